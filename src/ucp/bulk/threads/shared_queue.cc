// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/threads/shared_queue.h"

#include <algorithm>

#include "ucp/bulk/threads/thread_events.h"

namespace ucp::bulk {

std::vector<BulkThread*> SharedQueue::threads() const {
    std::vector<BulkThread*> all;
    for (const ThreadQueuePair* queue_pair : queue_pairs) all.push_back(&queue_pair->thread);
    return all;
}

bool SharedQueue::can_serve(const SharedTransfer& shared) const {
    return std::ranges::any_of(queue_pairs, [&](const ThreadQueuePair* queue_pair) {
        return queue_pair->link_up && shared.is_served_by(queue_pair->domain);
    });
}

void SharedQueue::end_if_over(SharedTransfer& shared, ThreadEvents& events) {
    const bool is_over =
        shared.slices.status() != UCS_OK || shared.slices.is_over() || !can_serve(shared);
    if (shared.chains != 0 || !is_over) return;
    transfers.erase(transfers.iterator_to(shared));
    events.push({.kind = ThreadEvent::Kind::kReturned, .shared = &shared});
}

void SharedQueue::end_idle_transfers(ThreadEvents& events) {
    for (auto shared = transfers.begin(); shared != transfers.end();)
        end_if_over(*shared++, events);
}

std::vector<Transfer*> SharedQueue::take_back(ThreadEvents& events) {
    std::vector<Transfer*> taken;
    for (auto next = transfers.begin(); next != transfers.end();) {
        SharedTransfer& shared = *next++;
        if (!shared.slices.has_next()) continue;
        shared.bytes -= shared.source.take_back(shared.slices);
        taken.push_back(&shared.transfer);
        end_if_over(shared, events);
    }
    return taken;
}

}  // namespace ucp::bulk
