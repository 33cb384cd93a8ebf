// SPDX-License-Identifier: BSD-3-Clause
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "softhca/adapter/gpu_memory.h"
#include "softhca/host/host_fabric.h"
#include "ucs/sys/sanitizer.h"

// Executing send queues in the process that owns them: at once, in posting order. A request that
// has to wait (for a receive, for a peer that is not connected yet) stays at the front of its
// queue, which is tried again by every poll and by the service thread.
//
// Other processes' memory is reached by process_vm_readv/writev. Where that is forbidden, and where
// the memory is a GPU's, it is reached by mail to the owner's service thread, which copies through
// a buffer in the segment. A copy has ended, also on a GPU, before anybody is told.
namespace softhca {
namespace {

// Empty polls in a row between offers of the processor: some microseconds.
constexpr uint32_t kPollsBeforeYield = 256;

enum MailState : uint32_t { kEmpty, kPosted, kDone, kFault };

// Drops `bytes` from the front of a list.
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

// Adapters are atomic among each other, by a lock.
bool apply_atomic_on_gpu(uint64_t* word, bool compare, uint64_t compare_add, uint64_t swap,
                         uint64_t* old) {
    if (!copy_memory(old, word, sizeof(*old))) return false;
    const uint64_t value = compare ? swap : *old + compare_add;
    return (compare && *old != compare_add) || copy_memory(word, &value, sizeof(value));
}

// @return false: the word was memory of a GPU and is gone
bool apply_atomic(uint64_t* word, bool compare, uint64_t compare_add, uint64_t swap,
                  uint64_t* old) {
    if (gpu::may_hold(word)) return apply_atomic_on_gpu(word, compare, compare_add, swap, old);
    *old = __atomic_load_n(word, __ATOMIC_SEQ_CST);
    if (!compare) {
        __atomic_store_n(word, *old + compare_add, __ATOMIC_SEQ_CST);
    } else if (*old == compare_add) {
        __atomic_store_n(word, swap, __ATOMIC_SEQ_CST);
    }
    return true;
}

}  // namespace

void HostFabric::doorbell(Qp& qp, uint32_t) {
    if (!run_queue(qp) || qp.stalled) return;
    qp.stalled = true;
    {
        std::lock_guard guard(stalled_mutex_);
        stalled_.push_back(&qp);
        num_stalled_.fetch_add(1);
    }
    wake(segment.self());
}

bool HostFabric::run_queue(Qp& qp) {
    while (qp.sq_next != qp.sq_tail) {
        const QpState state = qp.record->state.load(std::memory_order_acquire);
        if (state == QpState::kErr || state == QpState::kSqe) {
            flush_send_queue(qp);
            return false;
        }
        if (state != QpState::kRts) return false;
        if (qp.wait_until == 0) {
            switch (faults.operation()) {
                case FaultInjector::Fate::kKillQp:
                    fail_qp(*this, *qp.record, IBV_EVENT_QP_FATAL);
                    continue;
                case FaultInjector::Fate::kLinkDown:
                    if (down_lid_.load() == 0) down_lid_.store(qp.record->lid);
                    break;
                case FaultInjector::Fate::kNothing:
                    down_lid_.store(0);
                    break;
            }
        }
        if (stream_failed(qp, qp.wqe(qp.sq_next))) {
            complete_oldest(qp, IBV_WC_WR_FLUSH_ERR);
            continue;
        }
        if (is_local(qp.wqe(qp.sq_next).opcode)) {
            complete_oldest(qp, execute_local(qp, qp.wqe(qp.sq_next)));
            continue;
        }
        GatherList gather;
        const ibv_wc_status status = prepare(qp, qp.sq_next, &gather);
        if (status != IBV_WC_SUCCESS) {
            complete_oldest(qp, status);
            continue;
        }
        Wqe& wqe = qp.wqe(qp.sq_next);
        if (takes_data(wqe.opcode)) wqe.length = uint32_t(gather.length);
        const RequestMessage request = make_request(qp, wqe, gather);
        uint8_t rnr_timer = 0;
        Reply reply = Reply::kSilence;
        // Every try of a message may be lost.
        for (unsigned tries = 0; tries <= qp.attr.retry_cnt; ++tries) {
            if (!reachable(request.src_lid, request.dest_lid) || faults.drop_message()) continue;
            if (qp.kind == QpKind::kUd && faults.active()) {
                send_astray(request);
            } else {
                reply = respond(*this, request, &rnr_timer);
            }
            break;
        }
        // It may have failed meanwhile, and its peer with it, whose silence says nothing then.
        const bool is_silent =
            reply == Reply::kSilence || reply == Reply::kNotReady || reply == Reply::kRnr;
        if (is_silent && qp.record->state.load(std::memory_order_acquire) == QpState::kErr)
            continue;
        if (!handle_reply(qp, reply, rnr_timer)) return true;
    }
    return false;
}

// Without a clock of its own the fabric lets a delayed datagram be overtaken by the next one of the
// process.
void HostFabric::send_astray(const RequestMessage& request) {
    if (faults.drop_datagram()) return;
    uint8_t rnr_timer = 0;
    if (faults.datagram_delay_ns() != 0) {
        std::lock_guard guard(astray_mutex_);
        if (!astray_) {
            astray_.emplace(request, std::vector<char>(request.length));
            iovec copy{astray_->second.data(), request.length};
            copy_iov(&copy, 1, request.iov, request.num_iov);
            return;
        }
    }
    for (int copies = faults.duplicate_datagram() ? 2 : 1; copies != 0; --copies) {
        respond(*this, request, &rnr_timer);
    }
    std::unique_lock guard(astray_mutex_);
    if (!astray_) return;
    auto [late, payload] = std::move(*astray_);
    astray_.reset();
    guard.unlock();
    iovec piece{payload.data(), payload.size()};
    late.iov = &piece;
    late.num_iov = payload.empty() ? 0 : 1;
    respond(*this, late, &rnr_timer);
}

bool HostFabric::handle_reply(Qp& qp, Reply reply, uint8_t rnr_timer) {
    if (qp.has_ack()) {
        if (reply == Reply::kRnr && !wait_for_peer(qp, true, rnr_wait_ns(rnr_timer))) return false;
        if (reply == Reply::kNotReady && !wait_for_peer(qp, false, ack_wait_ns(qp.attr.timeout))) {
            return false;
        }
    } else {
        reply = Reply::kAck;  // nobody tells
    }
    qp.wait_until = 0;
    qp.rnr_tries = qp.retries = 0;
    complete_oldest(qp, status_of(reply));
    return true;
}

bool HostFabric::wait_for_peer(Qp& qp, bool rnr, uint64_t wait) {
    uint32_t& tries = rnr ? qp.rnr_tries : qp.retries;
    const uint32_t most = rnr ? qp.attr.rnr_retry : qp.attr.retry_cnt;
    const bool for_ever = rnr ? qp.attr.rnr_retry == 7 : wait == 0;
    const uint64_t now = now_ns();
    // Tries in between come for free; only those after the full wait count.
    if (qp.wait_until != 0 && now < qp.wait_until) return false;
    if (!for_ever && tries++ >= most) return true;
    qp.wait_until = now + std::max<uint64_t>(wait, 1);
    return false;
}

void HostFabric::before_poll(Cq&) {
    if (num_stalled_.load(std::memory_order_relaxed) != 0) retry_stalled();
    const uint32_t failures = segment.self_proc().qp_failures.load(std::memory_order_relaxed);
    if (failures != seen_failures_.load(std::memory_order_relaxed)) flush_failed();
}

void HostFabric::after_poll(Cq&, int polled) {
    // A program that spins on its CQ keeps its peers from running where processors are few.
    static thread_local uint32_t empty = 0;
    if (polled > 0) {
        empty = 0;
    } else if (++empty % kPollsBeforeYield == 0) {
        sched_yield();
    }
}

void HostFabric::retry_stalled() {
    // Nobody waits for this mutex with a sq_lock that we would wait for: those are only tried.
    std::unique_lock guard(stalled_mutex_, std::try_to_lock);
    if (!guard.owns_lock()) return;
    std::erase_if(stalled_, [this](Qp* qp) {
        if (!qp->sq_lock.try_lock()) return false;
        const bool waits = run_queue(*qp);
        if (!waits) {
            qp->stalled = false;
            num_stalled_.fetch_sub(1);
        }
        qp->sq_lock.unlock();
        return !waits;
    });
}

void HostFabric::flush_failed() {
    const uint32_t failures = segment.self_proc().qp_failures.load(std::memory_order_acquire);
    if (seen_failures_.exchange(failures) == failures) return;
    std::lock_guard guard(objects_mutex);
    for (Qp* qp : all_qps) {
        if (qp->record->state.load(std::memory_order_acquire) != QpState::kErr) continue;
        // One that is busy looks at the state itself before its next request.
        if (!qp->sq_lock.try_lock()) continue;
        flush_send_queue(*qp);
        qp->sq_lock.unlock();
    }
}

void HostFabric::quiesce(Qp& qp) {
    {
        std::lock_guard guard(stalled_mutex_);
        if (std::erase(stalled_, &qp) != 0) num_stalled_.fetch_sub(1);
    }
    qp.sq_lock.lock();
    qp.stalled = false;
    qp.wait_until = 0;
    qp.sq_next = qp.sq_done = qp.sq_tail;
    qp.sq_lock.unlock();
}

// --- other processes' memory ---

AccessResult HostFabric::move(Owner owner, iovec* mine, int num_mine, iovec* theirs, int num_theirs,
                              bool write) {
    if (local(owner)) {
        const bool is_there = write ? copy_iov(theirs, num_theirs, mine, num_mine)
                                    : copy_iov(mine, num_mine, theirs, num_theirs);
        return is_there ? AccessResult::kOk : AccessResult::kFault;
    }
    if (segment.dead(owner)) return AccessResult::kDead;
    ProcRecord& proc = segment.proc(owner.slot);
    const auto pid = pid_t(proc.pid.load(std::memory_order_relaxed));
    while (num_theirs > 0 && num_mine > 0) {
        if (refuse_cma_ || proc.refuses_cma.load(std::memory_order_relaxed) ||
            may_be_on_gpu(owner, reinterpret_cast<uint64_t>(theirs->iov_base))) {
            return move_by_mail(owner, mine, num_mine, theirs, num_theirs, write);
        }
        if (gpu::may_hold(mine->iov_base)) {
            const AccessResult reach =
                move_from_gpu(owner, mine, num_mine, theirs, num_theirs, write);
            if (reach != AccessResult::kOk) return reach;
            continue;
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
            return AccessResult::kDead;
        } else if (moved == 0 || errno != EINTR) {
            return segment.dead(owner) ? AccessResult::kDead : AccessResult::kFault;
        }
    }
    return AccessResult::kOk;
}

AccessResult HostFabric::atomic(Owner owner, uint64_t addr, bool compare, uint64_t compare_add,
                                uint64_t swap, uint64_t* old) {
    if (segment.dead(owner)) return AccessResult::kDead;
    ProcRecord& proc = segment.proc(owner.slot);
    // All atomics on a process's memory go through this lock; it was never promised that they are
    // atomic against the processors' own (IBV_ATOMIC_HCA).
    segment.lock(proc.atomics);
    AccessResult reach = AccessResult::kOk;
    if (local(owner)) {
        if (!apply_atomic(reinterpret_cast<uint64_t*>(addr), compare, compare_add, swap, old))
            reach = AccessResult::kFault;
    } else if (refuse_cma_ || proc.refuses_cma.load(std::memory_order_relaxed) ||
               may_be_on_gpu(owner, addr)) {
        reach = mail(owner, compare ? Mail::kAtomicSwap : Mail::kAtomicAdd, addr, 8, compare_add,
                     swap, reinterpret_cast<char*>(old));
    } else {
        iovec mine{old, 8};
        iovec theirs{reinterpret_cast<void*>(addr), 8};
        reach = move(owner, &mine, 1, &theirs, 1, false);
        uint64_t value = compare ? swap : *old + compare_add;
        if (reach == AccessResult::kOk && (!compare || *old == compare_add)) {
            mine = {&value, 8};
            theirs = {reinterpret_cast<void*>(addr), 8};
            reach = move(owner, &mine, 1, &theirs, 1, true);
        }
    }
    proc.atomics.unlock();
    return reach;
}

void HostFabric::gpu_registered() {
    // Written by whoever registers: each writes what includes its own.
    ProcRecord& proc = segment.self_proc();
    proc.gpu_first.store(gpu::first_registered.load());
    proc.gpu_end.store(gpu::end_registered.load());
}

bool HostFabric::may_be_on_gpu(Owner owner, uint64_t address) {
    const ProcRecord& proc = segment.proc(owner.slot);
    return address < proc.gpu_end.load(std::memory_order_relaxed) &&
           address >= proc.gpu_first.load(std::memory_order_relaxed);
}

// The next bytes between memory of this process's GPUs and the owner's host memory.
AccessResult HostFabric::move_from_gpu(Owner owner, iovec*& mine, int& num_mine, iovec*& theirs,
                                       int& num_theirs, bool write) {
    static thread_local std::vector<char> between(size_t{256} * 1024);
    const size_t bytes = std::min({mine->iov_len, theirs->iov_len, between.size()});
    iovec here{between.data(), bytes};
    iovec there{theirs->iov_base, bytes};
    if (write && !copy_memory(between.data(), mine->iov_base, bytes)) return AccessResult::kFault;
    const AccessResult reach = move(owner, &here, 1, &there, 1, write);
    if (reach != AccessResult::kOk) return reach;
    if (!write && !copy_memory(mine->iov_base, between.data(), bytes)) return AccessResult::kFault;
    advance(mine, num_mine, bytes);
    advance(theirs, num_theirs, bytes);
    return AccessResult::kOk;
}

AccessResult HostFabric::move_by_mail(Owner owner, iovec* mine, int num_mine, iovec* theirs,
                                      int num_theirs, bool write) {
    while (num_theirs > 0 && num_mine > 0) {
        const size_t bytes =
            std::min({mine->iov_len, theirs->iov_len, size_t{ProcRecord::kBounceBytes}});
        const AccessResult reach = mail(owner, write ? Mail::kWrite : Mail::kRead,
                                        reinterpret_cast<uint64_t>(theirs->iov_base), bytes, 0, 0,
                                        static_cast<char*>(mine->iov_base));
        if (reach != AccessResult::kOk) return reach;
        advance(mine, num_mine, bytes);
        advance(theirs, num_theirs, bytes);
    }
    return AccessResult::kOk;
}

AccessResult HostFabric::mail(Owner owner, Mail kind, uint64_t addr, uint64_t bytes,
                              uint64_t compare_add, uint64_t swap, char* data) {
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
        return AccessResult::kDead;
    }
    uint64_t bounce = proc.bounce.load();
    if (bounce == 0) {
        bounce = segment.allocate_block(ProcRecord::kBounceBytes);
        proc.bounce.store(bounce);
    }
    AccessResult reach = AccessResult::kFault;
    char* const buffer = bounce == 0 ? nullptr : segment.at<char>(bounce);
    if (buffer != nullptr && (kind != Mail::kWrite || copy_memory(buffer, data, bytes))) {
        proc.mail_kind = uint32_t(kind);
        proc.mail_addr = addr;
        proc.mail_bytes = bytes;
        proc.mail_compare_add = compare_add;
        proc.mail_swap = swap;
        proc.mail_state.store(kPosted, std::memory_order_release);
        wake(owner);
        if (!await()) {
            reach = AccessResult::kDead;
        } else if (proc.mail_state.load() == kDone &&
                   (kind == Mail::kWrite || copy_memory(data, buffer, bytes))) {
            reach = AccessResult::kOk;
        }
    }
    proc.mail_state.store(kEmpty, std::memory_order_release);
    proc.mailbox.unlock();
    return reach;
}

void HostFabric::serve_mailbox() {
    ProcRecord& proc = segment.self_proc();
    if (proc.mail_state.load(std::memory_order_acquire) != kPosted) return;
    const ucs::IgnoredByThreadSanitizer stands_for_the_adapter;
    char* buffer = segment.at<char>(proc.bounce.load());
    auto* memory = reinterpret_cast<char*>(proc.mail_addr);
    const Mail kind{proc.mail_kind};
    bool is_there = true;
    if (kind == Mail::kWrite) {
        is_there = copy_memory(memory, buffer, proc.mail_bytes);
    } else if (kind == Mail::kRead) {
        is_there = copy_memory(buffer, memory, proc.mail_bytes);
    } else {
        uint64_t old = 0;
        is_there = apply_atomic(reinterpret_cast<uint64_t*>(memory), kind == Mail::kAtomicSwap,
                                proc.mail_compare_add, proc.mail_swap, &old);
        std::memcpy(buffer, &old, sizeof(old));
    }
    proc.mail_state.store(is_there ? kDone : kFault, std::memory_order_release);
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
