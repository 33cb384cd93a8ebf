// SPDX-License-Identifier: BSD-3-Clause
#include "ucm/intercept.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <linux/membarrier.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <vector>

#include "ucm/sites.h"
#include "ucm/system.h"

extern "C" {

// How the entry keeps the vector registers: with XSAVE if the mask is not 0, else with FXSAVE.
[[gnu::visibility("hidden")]] uint64_t ucm_vector_state_size = 512;
[[gnu::visibility("hidden")]] uint32_t ucm_vector_state_mask = 0;

// Called by stubs with the registers of a kernel call; see write_stub().
[[gnu::visibility("hidden")]] void ucm_site_entry();
}

asm(R"(
    .text
    .p2align 4
    .globl ucm_site_entry
    .hidden ucm_site_entry
    .type ucm_site_entry, @function
ucm_site_entry:
    endbr64
    pushq %rbp
    movq %rsp, %rbp
    pushq %rbx
    pushq %r9
    pushq %r8
    pushq %r10
    pushq %rdx
    pushq %rsi
    pushq %rdi
    pushq %rax
    movq %rsp, %rbx
    subq ucm_vector_state_size(%rip), %rsp
    andq $-64, %rsp
    cmpl $0, ucm_vector_state_mask(%rip)
    je 1f
    xorl %edx, %edx
    movq %rdx, 512(%rsp)
    movq %rdx, 520(%rsp)
    movq %rdx, 528(%rsp)
    movq %rdx, 536(%rsp)
    movq %rdx, 544(%rsp)
    movq %rdx, 552(%rsp)
    movq %rdx, 560(%rsp)
    movq %rdx, 568(%rsp)
    movl ucm_vector_state_mask(%rip), %eax
    xsave64 (%rsp)
    jmp 2f
1:
    fxsave64 (%rsp)
2:
    movq %rbx, %rdi
    cld
    call ucm_dispatch
    cmpl $0, ucm_vector_state_mask(%rip)
    je 3f
    movl ucm_vector_state_mask(%rip), %eax
    xorl %edx, %edx
    xrstor64 (%rsp)
    jmp 4f
3:
    fxrstor64 (%rsp)
4:
    movq %rbx, %rsp
    popq %rax
    popq %rdi
    popq %rsi
    popq %rdx
    popq %r10
    popq %r8
    popq %r9
    popq %rbx
    popq %rbp
    ret
    .size ucm_site_entry, . - ucm_site_entry
)");

namespace ucm {

namespace {

constexpr size_t kPage = 4096;
constexpr size_t kStubSize = 128;

std::vector<Text> stub_ranges;

// Pages that a jump of 32 bits reaches from the text; null if there is no room around it.
uint8_t* map_near(const Text& text, size_t bytes) {
    constexpr uintptr_t kReach = uintptr_t{1} << 30;
    constexpr uintptr_t kStep = 1 << 16;
    const auto begin = reinterpret_cast<uintptr_t>(text.begin) & ~(kStep - 1);
    for (uintptr_t distance = kStep; distance < kReach; distance += kStep) {
        for (const uintptr_t hint : {begin - distance, begin + distance}) {
            const long mapped = raw_syscall(
                SYS_mmap, static_cast<long>(hint), static_cast<long>(bytes), PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
            if (mapped == static_cast<long>(hint)) return reinterpret_cast<uint8_t*>(mapped);
            // A kernel that does not know the flag takes the address as a hint.
            if (!is_error(mapped)) raw_syscall(SYS_munmap, mapped, static_cast<long>(bytes));
        }
    }
    return nullptr;
}

class Writer {
  public:
    explicit Writer(uint8_t* at) : at_(at) {}
    Writer& bytes(std::initializer_list<int> values) {
        for (const int value : values) *at_++ = static_cast<uint8_t>(value);
        return *this;
    }
    Writer& copy(const uint8_t* from, size_t length) {
        std::memcpy(at_, from, length);
        at_ += length;
        return *this;
    }
    Writer& word(uint64_t value) {
        std::memcpy(at_, &value, sizeof(value));
        at_ += sizeof(value);
        return *this;
    }
    // An instruction's last four bytes: how far from behind it to the target.
    Writer& relative(const uint8_t* target) {
        const auto distance = static_cast<int32_t>(target - (at_ + 4));
        std::memcpy(at_, &distance, sizeof(distance));
        at_ += sizeof(distance);
        return *this;
    }
    uint8_t* at() const { return at_; }

  private:
    uint8_t* at_;
};

// The stub of a site:
//
//     <what stood at the site>
//     cmp    $255, %rax;  ja other
//     bt     %rax, calls(%rip);  jnc other
//     lea    -128(%rsp), %rsp            past the red zone
//     call   *entry(%rip)                sets %rax, and like the kernel changes nothing else
//     lea    128(%rsp), %rsp
//     jmp    site + 7
//  other:
//     jmp    site + 5                    the syscall instruction is still there
//     ...
//  calls:  .zero 32                      kCalls as bits
//  entry:  .quad ucm_site_entry
void write_stub(uint8_t* stub, const uint8_t* site) {
    uint8_t* const calls = stub + kStubSize - 40;
    uint8_t* const entry = stub + kStubSize - 8;
    for (const uint32_t call : kCalls) calls[call / 8] |= static_cast<uint8_t>(1 << call % 8);
    Writer(entry).word(reinterpret_cast<uintptr_t>(&ucm_site_entry));

    constexpr int kDispatch = 5 + 6 + 8 + 5;  // bytes of the four instructions from lea to jmp
    Writer writer(stub);
    writer.copy(site, kJump);
    writer.bytes({0x48, 0x3d, 0xff, 0, 0, 0}).bytes({0x77, 8 + 2 + kDispatch});
    writer.bytes({0x48, 0x0f, 0xa3, 0x05}).relative(calls).bytes({0x73, kDispatch});
    writer.bytes({0x48, 0x8d, 0x64, 0x24, 0x80});
    writer.bytes({0xff, 0x15}).relative(entry);
    writer.bytes({0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0});
    writer.bytes({0xe9}).relative(site + kJump + kSyscall);
    writer.bytes({0xe9}).relative(site + kJump);
}

// Other threads may be on their way through the site: they see the old code, a loop, the new.
void write_jump(uint8_t* site, const uint8_t* stub) {
    uint8_t jump[kJump];
    Writer(jump).bytes({0xe9});
    const auto distance = static_cast<int32_t>(stub - (site + kJump));
    std::memcpy(jump + 1, &distance, sizeof(distance));

    const auto store_two = [site](uint8_t first, uint8_t second) {
        const auto both = static_cast<uint16_t>(first | second << 8);
        asm volatile("movw %w1, (%0)" : : "r"(site), "r"(both) : "memory");
        raw_syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE);
    };
    store_two(0xeb, 0xfe);
    std::memcpy(site + 2, jump + 2, kJump - 2);
    store_two(jump[0], jump[1]);
}

bool protect(uint8_t* begin, size_t size, int protection) {
    const auto first = reinterpret_cast<uintptr_t>(begin) & ~(kPage - 1);
    const auto last = reinterpret_cast<uintptr_t>(begin) + size;
    return !is_error(raw_syscall(SYS_mprotect, static_cast<long>(first),
                                 static_cast<long>(last - first), protection));
}

// No signal for this thread: a handler would wait for ever at a site that is a loop just then.
// Other threads wait there only until this one is done.
class SignalsBlocked {
  public:
    SignalsBlocked() {
        const uint64_t all = ~uint64_t{0};
        change(&all, &before_);
    }
    ~SignalsBlocked() { change(&before_, nullptr); }
    SignalsBlocked(SignalsBlocked&&) = delete;

  private:
    static void change(const uint64_t* set, uint64_t* old) {
        raw_syscall(SYS_rt_sigprocmask, SIG_SETMASK, reinterpret_cast<long>(set),
                    reinterpret_cast<long>(old), sizeof(*set));
    }

    uint64_t before_ = 0;
};

// The sites of a text, and stubs for them near it.
class Patch {
  public:
    explicit Patch(const Text& text) : sites_(find_sites(text)) {}

    size_t sites() const { return sites_.size(); }

    // Everything that may fail, before anything is replaced.
    bool prepare(const Text& text) {
        if (sites_.empty()) return true;
        if (!std::ranges::all_of(sites_, is_replaceable)) return false;
        stubs_.size = (sites_.size() * kStubSize + kPage - 1) & ~(kPage - 1);
        stubs_.begin = map_near(text, stubs_.size);
        if (stubs_.begin == nullptr) return false;
        for (size_t i = 0; i < sites_.size(); ++i) write_stub(stub(i), sites_[i]);
        return protect(stubs_.begin, stubs_.size, PROT_READ | PROT_EXEC) &&
               protect_sites(PROT_READ | PROT_WRITE | PROT_EXEC);
    }
    void apply() {
        if (sites_.empty()) return;
        stub_ranges.push_back(stubs_);
        const SignalsBlocked blocked;
        for (size_t i = 0; i < sites_.size(); ++i) write_jump(sites_[i], stub(i));
        protect_sites(PROT_READ | PROT_EXEC);
    }
    void abandon() {
        protect_sites(PROT_READ | PROT_EXEC);
        if (stubs_.begin != nullptr) {
            raw_syscall(SYS_munmap, reinterpret_cast<long>(stubs_.begin),
                        static_cast<long>(stubs_.size));
        }
    }

  private:
    uint8_t* stub(size_t index) const { return stubs_.begin + index * kStubSize; }
    bool protect_sites(int protection) const {
        return std::ranges::all_of(sites_,
                                   [=](uint8_t* site) { return protect(site, kJump, protection); });
    }

    std::vector<uint8_t*> sites_;
    Text stubs_{};
};

// Can all threads be made to see new code?
bool can_synchronize() {
    if (!is_error(raw_syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE)))
        return true;
    // One thread alone needs nothing. The folder's links: two, and one for each thread.
    struct stat tasks {};
    return stat("/proc/self/task", &tasks) == 0 && tasks.st_nlink == 2 + 1;
}

// How to keep the vector registers over a call: kernel calls leave them alone.
void measure_vector_state() {
    unsigned a, b, c, d;
    constexpr unsigned kOsUsesXsave = 1u << 27;
    if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kOsUsesXsave) == 0) return;
    unsigned low, high;
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    constexpr unsigned kOldVectorMaskRegisters = 0xe7;  // x87, SSE, AVX, AVX-512; no tiles
    const unsigned mask = low & kOldVectorMaskRegisters;
    unsigned size = 512 + 64;
    for (unsigned i = 2; i < 8; ++i) {
        if ((mask & 1u << i) != 0 && __get_cpuid_count(0xd, i, &a, &b, &c, &d) != 0)
            size = std::max(size, b + a);
    }
    ucm_vector_state_size = size;
    ucm_vector_state_mask = mask;
}

}  // namespace

bool patch_system_calls() {
    if (!can_synchronize()) return false;
    measure_vector_state();
    size_t sites = 0;
    bool is_ready = true;
    std::vector<Patch> patches;
    for (const Text& text : texts_of_c_library()) {
        Patch& patch = patches.emplace_back(text);
        sites += patch.sites();
        is_ready = is_ready && patch.prepare(text);
    }
    for (Patch& patch : patches) is_ready ? patch.apply() : patch.abandon();
    return is_ready && sites > 0;
}

bool is_patched(const void* function) {
    const auto* code = static_cast<const uint8_t*>(function);
    static constexpr uint8_t kEndbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};
    if (std::memcmp(code, kEndbr64, sizeof(kEndbr64)) == 0) code += sizeof(kEndbr64);
    if (code[0] != 0xe9) return false;
    int32_t distance;
    std::memcpy(&distance, code + 1, sizeof(distance));
    const uint8_t* const target = code + kJump + distance;
    return std::ranges::any_of(stub_ranges, [target](const Text& stubs) {
        return target >= stubs.begin && target < stubs.begin + stubs.size;
    });
}

}  // namespace ucm

#else

namespace ucm {

bool patch_system_calls() {
    return false;
}
bool is_patched(const void*) {
    return false;
}

}  // namespace ucm

#endif
