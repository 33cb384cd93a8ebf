// SPDX-License-Identifier: BSD-3-Clause
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "softhca/host/futex.h"
#include "softhca/host/host_fabric.h"

/// Reaching into other processes' memory: by process_vm_readv/writev, and where that is forbidden
/// by mail to the owner's service thread, which copies through a buffer in the segment.
namespace softhca {
namespace {

enum MailState : uint32_t { kEmpty, kPosted, kDone, kFault };

/// Drops `bytes` from the front of a list.
void advance(iovec*& list, int& num, size_t bytes) {
    while (num > 0 && bytes >= list->iov_len) {
        bytes -= list->iov_len;
        ++list;
        --num;
    }
    if (num > 0) {
        list->iov_base = static_cast<char*>(list->iov_base) + bytes;
        list->iov_len -= bytes;
    }
}

void apply_atomic(uint64_t* word, bool compare, uint64_t compare_add, uint64_t swap,
                  uint64_t* old) {
    *old = __atomic_load_n(word, __ATOMIC_SEQ_CST);
    if (!compare) {
        __atomic_store_n(word, *old + compare_add, __ATOMIC_SEQ_CST);
    } else if (*old == compare_add) {
        __atomic_store_n(word, swap, __ATOMIC_SEQ_CST);
    }
}

}  // namespace

Reach HostFabric::move(Owner owner, iovec* mine, int num_mine, iovec* theirs, int num_theirs,
                       bool write) {
    if (local(owner)) {
        if (write) {
            copy_iov(theirs, num_theirs, mine, num_mine);
        } else {
            copy_iov(mine, num_mine, theirs, num_theirs);
        }
        return Reach::kOk;
    }
    if (segment.dead(owner)) return Reach::kDead;
    ProcRecord& proc = segment.proc(owner.slot);
    const auto pid = pid_t(proc.pid.load(std::memory_order_relaxed));
    while (num_theirs > 0 && num_mine > 0) {
        if (refuse_cma_ || proc.refuses_cma.load(std::memory_order_relaxed)) {
            return move_by_mail(owner, mine, num_mine, theirs, num_theirs, write);
        }
        const ssize_t moved =
            write
                ? process_vm_writev(pid, mine, unsigned(num_mine), theirs, unsigned(num_theirs), 0)
                : process_vm_readv(pid, mine, unsigned(num_mine), theirs, unsigned(num_theirs), 0);
        if (moved > 0) {
            advance(mine, num_mine, size_t(moved));
            advance(theirs, num_theirs, size_t(moved));
        } else if (moved < 0 && (errno == EPERM || errno == ENOSYS)) {
            proc.refuses_cma.store(true, std::memory_order_relaxed);
        } else if (moved < 0 && errno == ESRCH) {
            return Reach::kDead;
        } else if (moved == 0 || errno != EINTR) {
            return segment.dead(owner) ? Reach::kDead : Reach::kFault;
        }
    }
    return Reach::kOk;
}

Reach HostFabric::atomic(Owner owner, uint64_t addr, bool compare, uint64_t compare_add,
                         uint64_t swap, uint64_t* old) {
    if (segment.dead(owner)) return Reach::kDead;
    ProcRecord& proc = segment.proc(owner.slot);
    // All atomics on a process's memory go through this lock; it was never promised that they are
    // atomic against the processors' own (IBV_ATOMIC_HCA).
    segment.lock(proc.atomics);
    Reach reach = Reach::kOk;
    if (local(owner)) {
        apply_atomic(reinterpret_cast<uint64_t*>(addr), compare, compare_add, swap, old);
    } else if (refuse_cma_ || proc.refuses_cma.load(std::memory_order_relaxed)) {
        reach = mail(owner, compare ? Mail::kAtomicSwap : Mail::kAtomicAdd, addr, 8, compare_add,
                     swap, reinterpret_cast<char*>(old));
    } else {
        iovec mine{old, 8};
        iovec theirs{reinterpret_cast<void*>(addr), 8};
        reach = move(owner, &mine, 1, &theirs, 1, false);
        uint64_t value = compare ? swap : *old + compare_add;
        if (reach == Reach::kOk && (!compare || *old == compare_add)) {
            mine = {&value, 8};
            theirs = {reinterpret_cast<void*>(addr), 8};
            reach = move(owner, &mine, 1, &theirs, 1, true);
        }
    }
    proc.atomics.unlock();
    return reach;
}

Reach HostFabric::move_by_mail(Owner owner, iovec* mine, int num_mine, iovec* theirs,
                               int num_theirs, bool write) {
    while (num_theirs > 0 && num_mine > 0) {
        const size_t bytes =
            std::min({mine->iov_len, theirs->iov_len, size_t{ProcRecord::kBounceBytes}});
        const Reach reach = mail(owner, write ? Mail::kWrite : Mail::kRead,
                                 reinterpret_cast<uint64_t>(theirs->iov_base), bytes, 0, 0,
                                 static_cast<char*>(mine->iov_base));
        if (reach != Reach::kOk) return reach;
        advance(mine, num_mine, bytes);
        advance(theirs, num_theirs, bytes);
    }
    return Reach::kOk;
}

Reach HostFabric::mail(Owner owner, Mail kind, uint64_t addr, uint64_t bytes, uint64_t compare_add,
                       uint64_t swap, char* data) {
    ProcRecord& proc = segment.proc(owner.slot);
    const bool am_server = std::this_thread::get_id() == service_.get_id();
    auto await = [&] {
        while (proc.mail_state.load(std::memory_order_acquire) == kPosted) {
            if (segment.dead(owner)) return false;
            if (am_server) serve_mailbox();
            futex_wait(proc.mail_state, kPosted, 1000000);
        }
        return true;
    };
    segment.lock(proc.mailbox);
    // A sender that died may have left a letter that is being worked on.
    if (!await()) {
        proc.mailbox.unlock();
        return Reach::kDead;
    }
    uint64_t bounce = proc.bounce.load();
    if (bounce == 0) {
        bounce = segment.allocate_block(ProcRecord::kBounceBytes);
        proc.bounce.store(bounce);
    }
    Reach reach = Reach::kFault;
    if (bounce != 0) {
        char* buffer = segment.at<char>(bounce);
        if (kind == Mail::kWrite) std::memcpy(buffer, data, bytes);
        proc.mail_kind = uint32_t(kind);
        proc.mail_addr = addr;
        proc.mail_bytes = bytes;
        proc.mail_compare_add = compare_add;
        proc.mail_swap = swap;
        proc.mail_state.store(kPosted, std::memory_order_release);
        wake(owner);
        if (!await()) {
            reach = Reach::kDead;
        } else if (proc.mail_state.load() == kDone) {
            if (kind != Mail::kWrite) std::memcpy(data, buffer, bytes);
            reach = Reach::kOk;
        }
    }
    proc.mail_state.store(kEmpty, std::memory_order_release);
    proc.mailbox.unlock();
    return reach;
}

void HostFabric::serve_mailbox() {
    ProcRecord& proc = segment.self_proc();
    if (proc.mail_state.load(std::memory_order_acquire) != kPosted) return;
    char* buffer = segment.at<char>(proc.bounce.load());
    auto* memory = reinterpret_cast<char*>(proc.mail_addr);
    const Mail kind{proc.mail_kind};
    if (kind == Mail::kWrite) {
        std::memcpy(memory, buffer, proc.mail_bytes);
    } else if (kind == Mail::kRead) {
        std::memcpy(buffer, memory, proc.mail_bytes);
    } else {
        uint64_t old = 0;
        apply_atomic(reinterpret_cast<uint64_t*>(memory), kind == Mail::kAtomicSwap,
                     proc.mail_compare_add, proc.mail_swap, &old);
        std::memcpy(buffer, &old, sizeof(old));
    }
    proc.mail_state.store(kDone, std::memory_order_release);
    futex_wake(proc.mail_state);
}

std::atomic<uint32_t>* HostFabric::hold_region(uint32_t key) {
    static thread_local unsigned start = unsigned(reinterpret_cast<uintptr_t>(&start) >> 6);
    ProcRecord& proc = segment.self_proc();
    for (unsigned i = start;; ++i) {
        std::atomic<uint32_t>& hazard = proc.hazards[i % ProcRecord::kHazards];
        uint32_t empty = 0;
        // Sequentially consistent: the owner withdraws its key and then looks at the hazards, we
        // set the hazard and then look at the key.
        if (hazard.compare_exchange_strong(empty, key)) return &hazard;
        if ((i - start) % ProcRecord::kHazards == ProcRecord::kHazards - 1) sched_yield();
    }
}

void HostFabric::drain_region(uint32_t key) {
    for (unsigned i = 0; i < segment.num_procs(); ++i) {
        ProcRecord& proc = segment.proc(i);
        const uint16_t generation = uint16_t(proc.generation.load());
        if (generation == 0) continue;
        for (auto& hazard : proc.hazards) {
            while (hazard.load() == key && !segment.dead({uint16_t(i), generation})) {
                sched_yield();
            }
        }
    }
}

}  // namespace softhca
