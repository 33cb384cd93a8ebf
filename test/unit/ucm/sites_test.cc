// SPDX-License-Identifier: BSD-3-Clause
// What the hooks look for in this system's C library, and what they leave alone. No hook is
// installed in this process.
#include "ucm/sites.h"

#include <gtest/gtest.h>

#if defined(__x86_64__)

#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <string>

namespace {

using ucm::find_sites;
using ucm::is_replaceable;

constexpr uint32_t kAny = UINT32_MAX;  // a site of syscall()

uint32_t call_of(const uint8_t* site) {
    if (site[0] != 0xb8) return kAny;
    uint32_t number;
    std::memcpy(&number, site + 1, sizeof(number));
    return number;
}

std::string place_of(const uint8_t* site) {
    Dl_info info{};
    if (dladdr(site, &info) == 0) return "?";
    const std::string path(info.dli_fname);
    char offset[32];
    std::snprintf(offset, sizeof(offset), "+0x%zx",
                  static_cast<size_t>(site - static_cast<const uint8_t*>(info.dli_fbase)));
    return path.substr(path.rfind('/') + 1) + offset;
}

TEST(Sites, EveryCallIsFoundInTheCLibraryAndCanBeReplaced) {
    const std::map<uint32_t, const char*> names{{SYS_mmap, "mmap"},     {SYS_munmap, "munmap"},
                                                {SYS_brk, "brk"},       {SYS_shmat, "shmat"},
                                                {SYS_mremap, "mremap"}, {SYS_madvise, "madvise"},
                                                {SYS_shmdt, "shmdt"},   {kAny, "any (syscall())"}};
    std::map<uint32_t, int> found;
    for (const ucm::Text& text : ucm::texts_of_c_library()) {
        for (const uint8_t* site : find_sites(text)) {
            const uint32_t call = call_of(site);
            ++found[call];
            const auto name = names.find(call);
            std::printf("%-16s %s%s\n", name != names.end() ? name->second : "other",
                        place_of(site).c_str(), is_replaceable(site) ? "" : " is ambiguous");
            EXPECT_TRUE(is_replaceable(site)) << place_of(site);
        }
    }
    for (const auto& [call, name] : names) EXPECT_GT(found[call], 0) << name;
}

// Code at a known place within a block of 16 bytes.
class SiteInCode : public testing::Test {
  protected:
    // The site of munmap behind `before`, its first byte at an offset.
    uint8_t* place(std::initializer_list<uint8_t> before, size_t offset = 16) {
        static constexpr uint8_t kMunmap[] = {0xb8, SYS_munmap, 0, 0, 0, 0x0f, 0x05};
        std::memset(code_, 0x90, sizeof(code_));
        std::memcpy(code_ + offset - before.size(), before.begin(), before.size());
        std::memcpy(code_ + offset, kMunmap, sizeof(kMunmap));
        return code_ + offset;
    }

    alignas(16) uint8_t code_[64];
};

TEST_F(SiteInCode, IsFoundWhereItStands) {
    uint8_t* const site = place({0xf3, 0x0f, 0x1e, 0xfa});  // endbr64
    const auto sites = find_sites({code_, sizeof(code_)});
    ASSERT_EQ(sites.size(), 1u);
    EXPECT_EQ(sites[0], site);
    EXPECT_TRUE(is_replaceable(site));
    site[1] = SYS_getpid;
    EXPECT_TRUE(find_sites({code_, sizeof(code_)}).empty());
    site[1] = SYS_munmap;
    site[6] = 0x34;  // sysenter
    EXPECT_TRUE(find_sites({code_, sizeof(code_)}).empty());
}

TEST_F(SiteInCode, IsLeftAloneWhereItMayBePartOfAnotherInstruction) {
    EXPECT_FALSE(is_replaceable(place({0x49})));              // mov $..., %r8
    EXPECT_FALSE(is_replaceable(place({0xc7})));              // movl $..., disp32(%rax)
    EXPECT_FALSE(is_replaceable(place({0x8b})));              // mov disp32(%rax), %edi
    EXPECT_FALSE(is_replaceable(place({0xc7, 0x45})));        // movl $..., disp8(%rbp)
    EXPECT_FALSE(is_replaceable(place({0xc7, 0x44, 0x24})));  // movl $..., disp8(%rsp)
    EXPECT_TRUE(is_replaceable(place({0x48, 0x89, 0xdf})));   // mov %rbx, %rdi; before it
}

TEST_F(SiteInCode, IsLeftAloneWhereTwoBytesAreNoOnePiece) {
    EXPECT_TRUE(is_replaceable(place({}, 30)));
    EXPECT_FALSE(is_replaceable(place({}, 31)));
    EXPECT_TRUE(is_replaceable(place({}, 32)));
}

}  // namespace

#endif
