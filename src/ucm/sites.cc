// SPDX-License-Identifier: BSD-3-Clause
#include "ucm/sites.h"

#if defined(__x86_64__)

#include <link.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>

namespace ucm {

namespace {

bool is_site(const uint8_t* code) {
    if (code[kJump] != 0x0f || code[kJump + 1] != 0x05) return false;
    static constexpr uint8_t kSixthArgument[] = {0x4c, 0x8b, 0x4c, 0x24, 0x08};  // in syscall()
    if (std::memcmp(code, kSixthArgument, kJump) == 0) return true;
    uint32_t number;
    std::memcpy(&number, code + 1, sizeof(number));
    return code[0] == 0xb8 && std::ranges::find(kCalls, number) != kCalls.end();
}

// May its first byte be the last but four of a longer instruction, which sets memory to a number?
bool may_be_inside_another(const uint8_t* site) {
    if (site[0] != 0xb8) return false;
    const auto is_prefix = [](uint8_t byte) { return byte >= 0x40 && byte <= 0x4f; };
    const auto has_short_offset = [](uint8_t byte) { return byte >= 0x40 && byte <= 0x7f; };
    static constexpr uint8_t kWithOperand[] = {0x8b, 0x8d, 0x89, 0xc7};
    return is_prefix(site[-1]) || std::ranges::find(kWithOperand, site[-1]) != kWithOperand + 4 ||
           (site[-2] == 0xc7 && has_short_offset(site[-1])) ||
           (site[-3] == 0xc7 && site[-2] == 0x44);
}

}  // namespace

std::vector<Text> texts_of_c_library() {
    std::vector<Text> texts;
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* arg) {
            const std::string_view path(info->dlpi_name);
            const std::string_view name = path.substr(path.rfind('/') + 1);
            if (!name.starts_with("libc.so.") && !name.starts_with("libpthread.so.") &&
                !name.starts_with("ld-linux"))
                return 0;
            for (const auto& header : std::span(info->dlpi_phdr, info->dlpi_phnum)) {
                if (header.p_type == PT_LOAD && (header.p_flags & PF_X) != 0) {
                    static_cast<std::vector<Text>*>(arg)->push_back(
                        {reinterpret_cast<uint8_t*>(info->dlpi_addr + header.p_vaddr),
                         header.p_memsz});
                }
            }
            return 0;
        },
        &texts);
    return texts;
}

std::vector<uint8_t*> find_sites(const Text& text) {
    constexpr size_t kLookedAtBefore = 3;
    std::vector<uint8_t*> sites;
    for (size_t i = kLookedAtBefore; i + kJump + kSyscall <= text.size; ++i) {
        if (is_site(text.begin + i)) sites.push_back(text.begin + i);
    }
    return sites;
}

bool is_replaceable(const uint8_t* site) {
    constexpr uintptr_t kBlock = 16;
    return reinterpret_cast<uintptr_t>(site) % kBlock != kBlock - 1 && !may_be_inside_another(site);
}

}  // namespace ucm

#endif
