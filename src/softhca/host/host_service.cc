// SPDX-License-Identifier: BSD-3-Clause
#include <sys/file.h>

#include <csignal>

#include "softhca/host/futex.h"
#include "softhca/host/host_fabric.h"

/// The service thread of a process, and how others call it.
namespace softhca {
namespace {

constexpr uint64_t kIdleNs = 2000000000;  ///< between looks for dead processes
constexpr uint64_t kStalledNs = 200000;   ///< between tries of queues that wait for a peer

}  // namespace

void HostFabric::wake(Owner owner) {
    ProcRecord& proc = segment.proc(owner.slot);
    proc.attention.fetch_add(1, std::memory_order_release);
    futex_wake(proc.attention);
}

void HostFabric::serve() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, nullptr);
    ProcRecord& proc = segment.self_proc();
    uint32_t seen = proc.attention.load(std::memory_order_acquire);
    while (!stop_.load()) {
        serve_mailbox();
        flush_failed();
        collect_events();
        const bool stalled = num_stalled_.load() != 0;
        if (stalled) retry_stalled();
        const uint32_t before = seen;
        if (proc.attention.load(std::memory_order_acquire) == before) {
            futex_wait(proc.attention, before, stalled ? kStalledNs : kIdleNs);
        }
        seen = proc.attention.load(std::memory_order_acquire);
        if (seen == before && !stalled && flock(fd_, LOCK_EX | LOCK_NB) == 0) {
            reap_dead();
            flock(fd_, LOCK_UN);
        }
    }
    pthread_mutex_unlock(&proc.life);
}

void HostFabric::cq_activity(CqRecord& record, bool event) {
    if (!event) return;
    const Owner owner = record.owner;
    if (!local(owner)) {
        wake(owner);
        return;
    }
    std::lock_guard guard(objects_mutex);
    Cq* cq = cqs.get(segment.index_of(record.number));
    if (cq == nullptr) return;
    uint32_t notifications = record.notifications.exchange(0);
    while (notifications-- > 0) deliver_cq_event(*cq);
}

void HostFabric::raised_events(Owner owner, uint16_t) {
    // The owner's thread tells its contexts: the caller may hold locks that this would need.
    wake(owner);
}

void HostFabric::qp_failed(QpRecord& qp) {
    segment.proc(qp.owner.slot).qp_failures.fetch_add(1, std::memory_order_release);
    if (!local(qp.owner)) wake(qp.owner);
}

}  // namespace softhca
