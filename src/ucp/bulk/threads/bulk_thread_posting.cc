// SPDX-License-Identifier: BSD-3-Clause

// What a thread takes, posts and gives back, and what becomes of its queue pairs.

#include <algorithm>
#include <array>

#include "ucp/bulk/schedule/rules.h"
#include "ucp/bulk/threads/bulk_thread.h"
#include "ucs/log/log.h"

namespace ucp::bulk {
namespace {

// Under the shard.
SharedTransfer* find_transfer(ThreadQueuePair& queue_pair) {
    bool any = false;
    for (SharedTransfer& shared : queue_pair.queue->transfers) {
        if (!shared.slices.has_next()) continue;
        any = true;
        if (shared.is_served_by(queue_pair.domain)) return &shared;
    }
    if (!any) queue_pair.queue->has_work.store(false);
    return nullptr;
}

// Another path to the peer has one. Under the shard.
bool others_have_link(const ThreadQueuePair& queue_pair) {
    const SharedQueue& queue = *queue_pair.queue;
    return queue.others_have_link ||
           std::ranges::any_of(queue.queue_pairs, [&](const ThreadQueuePair* other) {
               return other != &queue_pair && other->link_up;
           });
}

}  // namespace

// --- taking and posting

bool BulkThread::pull_all() {
    bool has_posted = false;
    for (size_t count = 0; count < posting_.size(); ++count) {
        ThreadQueuePair& queue_pair = *posting_[(next_ + count) % posting_.size()];
        if (queue_pair.state != ThreadQueuePair::State::kPosting || queue_pair.is_full ||
            queue_pair.failure != UCS_OK || !queue_pair.queue->has_work.load()) {
            continue;
        }
        has_posted = pull(queue_pair) || has_posted;
    }
    ++next_;
    return has_posted;
}

bool BulkThread::pull(ThreadQueuePair& queue_pair) {
    SharedQueue& queue = *queue_pair.queue;
    const ucs::Time now = clock_.now();
    std::array<uct::ChainPiece, kMaxChain> pieces;
    size_t count = 0;
    SharedTransfer* shared = nullptr;
    Run run;
    {
        std::lock_guard lock(queue.shard.mutex);
        shared = find_transfer(queue_pair);
        if (shared == nullptr || !queue_pair.link_up) return false;
        std::array<const Meter*, kMaxPaths> meters;
        size_t paths = 0;
        for (const ThreadQueuePair* each : queue.queue_pairs) {
            const bool can_take = each == &queue_pair || (shared->is_served_by(each->domain) &&
                                                          each->link_up && !each->is_full);
            if (can_take && paths < meters.size()) meters[paths++] = &each->meter;
        }
        SliceQueue::Cursor next = shared->slices.cursor();
        const size_t bytes =
            ucp::bulk::pull(queue_pair.meter, {meters.data(), paths}, next.slice().length,
                            shared->slices.bytes_waiting(), now, rules_.schedule);
        if (bytes == 0) return false;
        const std::span<const Piece> all = shared->slices.pieces();
        for (size_t total = 0; !next.is_end() && count < rules_.schedule.chain; ++count) {
            const Slice slice = next.slice();
            if (count != 0 && total + slice.length > bytes) break;
            const Piece& piece = all[slice.piece];
            const PieceAccess& one = shared->access[queue_pair.domain][slice.piece];
            pieces[count] = {static_cast<std::byte*>(piece.local) + slice.offset, slice.length,
                             one.memory, piece.remote + slice.offset, one.key};
            total += slice.length;
            next.advance(slice);
        }
        run = shared->slices.take(next, static_cast<uint32_t>(count));
        ++shared->chains;
        queue_pair.meter.posted(run.bytes, now);
    }
    ThreadChain* chain = chains_.create();
    if (chain == nullptr) {
        withdraw(queue_pair, *shared, run, true);
        return false;
    }
    chain->callback = chain_done;
    chain->count = 2;  // one for this call: the transport may complete the chain within its own
    chain->thread = this;
    const std::span<const uct::ChainPiece> given(pieces.data(), count);
    const ssize_t taken = shared->direction == Direction::kPut
                              ? queue_pair.transport->put_chain(given, chain)
                              : queue_pair.transport->get_chain(given, chain);
    if (taken <= 0) {
        chains_.destroy(chain);
        withdraw(queue_pair, *shared, run, true);
        queue_pair.is_full = true;
        if (taken < 0 && queue_pair.failure == UCS_OK) {
            queue_pair.failure = static_cast<ucs_status_t>(taken);
            has_failures_ = true;
        }
        return false;
    }
    if (static_cast<size_t>(taken) < count) {
        Run rest = shared->slices.split(run, static_cast<uint32_t>(taken));
        withdraw(queue_pair, *shared, rest, false);
        queue_pair.is_full = true;
    }
    chain->queue_pair = &queue_pair;
    chain->shared = shared;
    chain->run = run;
    queue_pair.chains.push_back(*chain);
    counters_.chains.fetch_add(1, std::memory_order_relaxed);
    counters_.bytes.fetch_add(run.bytes, std::memory_order_relaxed);
    chain->complete(UCS_OK);
    return true;
}

// What was taken and not posted.
void BulkThread::withdraw(ThreadQueuePair& queue_pair, SharedTransfer& shared, const Run& rest,
                          bool is_all) {
    std::lock_guard lock(queue_pair.queue->shard.mutex);
    shared.slices.returned(rest);
    queue_pair.queue->has_work.store(true);
    // Others have looked meanwhile, found nothing and sleep; this one has no room for it.
    for (const ThreadQueuePair* other : queue_pair.queue->queue_pairs) {
        if (&other->thread != this) other->thread.wake();
    }
    queue_pair.meter.withdrawn(rest.bytes);
    if (!is_all) return;
    --shared.chains;
    queue_pair.queue->end_if_over(shared, events_);
}

// --- completions

void BulkThread::chain_done(uct::Completion* self) {
    auto& chain = *static_cast<ThreadChain*>(self);
    BulkThread& thread = *chain.thread;
    if (chain.queue_pair == nullptr) {
        thread.chains_.destroy(&chain);
        return;
    }
    ThreadQueuePair& queue_pair = *chain.queue_pair;
    if (chain.status != UCS_OK) {
        // Queue pairs are not destroyed within a call of their transport.
        chain.has_failed = true;
        if (queue_pair.failure == UCS_OK) queue_pair.failure = chain.status;
        thread.has_failures_ = true;
        return;
    }
    SharedTransfer& shared = *chain.shared;
    SharedQueue& queue = *queue_pair.queue;
    const Run run = chain.run;
    queue_pair.chains.erase(queue_pair.chains.iterator_to(chain));
    thread.chains_.destroy(&chain);
    {
        const ucs::Time now = thread.clock_.now();
        std::lock_guard lock(queue.shard.mutex);
        shared.slices.completed(run);
        queue_pair.meter.completed(run.bytes, now);
        queue.completed_at = now;
        queue.is_stalled = false;
        --shared.chains;
        queue.end_if_over(shared, thread.events_);
    }
    if (queue_pair.state == ThreadQueuePair::State::kStopping && queue_pair.chains.empty()) {
        thread.has_failures_ = true;  // it is looked at when the transport's call is over
    }
}

// --- queue pairs

std::shared_ptr<ThreadQueuePair> BulkThread::shared(const ThreadQueuePair& queue_pair) const {
    const auto found = std::ranges::find_if(
        queue_pairs_, [&](const auto& each) { return each.get() == &queue_pair; });
    return found == queue_pairs_.end() ? nullptr : *found;
}

void BulkThread::handle_failures() {
    has_failures_ = false;
    for (size_t index = 0; index < queue_pairs_.size(); ++index) {
        const std::shared_ptr<ThreadQueuePair> queue_pair = queue_pairs_[index];
        if (queue_pair->state == ThreadQueuePair::State::kOver) continue;
        if (queue_pair->failure != UCS_OK) {
            give_up(*queue_pair, queue_pair->failure);
        } else if (queue_pair->state == ThreadQueuePair::State::kStopping &&
                   queue_pair->chains.empty()) {
            stopped(*queue_pair);
        }
    }
}

// Takes no more from now on.
void BulkThread::leave(ThreadQueuePair& queue_pair) {
    SharedQueue& queue = *queue_pair.queue;
    std::vector<BulkThread*> others;
    {
        std::lock_guard lock(queue.shard.mutex);
        std::erase(queue.queue_pairs, &queue_pair);
        others = queue.threads();
        queue.end_idle_transfers(events_);
    }
    for (BulkThread* other : others) other->wake();
}

void BulkThread::stopped(ThreadQueuePair& queue_pair) {
    queue_pair.state = ThreadQueuePair::State::kIdle;
    queue_pair.queue = nullptr;
    std::erase(posting_, &queue_pair);
    events_.push({.kind = ThreadEvent::Kind::kStopped, .queue_pair = shared(queue_pair)});
}

// Nothing of the queue pair is written here any more when its runs are offered to others, and the
// worker hears of the failure before it hears of the end of a transfer that the queue pair carried.
void BulkThread::give_up(ThreadQueuePair& queue_pair, ucs_status_t status) {
    struct Lost {
        SharedTransfer* shared;
        Run run;
        ucs_status_t status;
        bool is_refused;
    };
    std::vector<Lost> lost;
    while (!queue_pair.chains.empty()) {
        ThreadChain& chain = queue_pair.chains.front();
        queue_pair.chains.pop_front();
        // What went down with another chain's refusal was not refused itself.
        const bool is_refused = chain.has_failed && is_refusal(chain.status);
        lost.push_back(
            {chain.shared, chain.run, chain.has_failed ? chain.status : status, is_refused});
        if (chain.has_failed) {
            chains_.destroy(&chain);
        } else {
            chain.queue_pair = nullptr;
        }
    }
    queue_pair.transport.reset();
    queue_pair.failure = status;
    queue_pair.state = ThreadQueuePair::State::kOver;
    SharedQueue* const queue = std::exchange(queue_pair.queue, nullptr);
    std::erase(posting_, &queue_pair);
    ThreadEvent entry{
        .kind = ThreadEvent::Kind::kFailed, .queue_pair = shared(queue_pair), .status = status};
    if (queue == nullptr) return events_.push(std::move(entry));

    std::vector<BulkThread*> others;
    {
        std::lock_guard lock(queue->shard.mutex);
        std::erase(queue->queue_pairs, &queue_pair);
        queue_pair.meter.give_up();
        for (const Lost& each : lost) {
            SharedTransfer& shared = *each.shared;
            if (each.is_refused || each.run.failures >= rules_.max_retries) {
                shared.slices.fail(each.status);
            }
            shared.slices.failed(each.run);
            --shared.chains;
            if (shared.direction == Direction::kPut) entry.transfers.push_back(&shared.transfer);
        }
        if (!lost.empty()) queue->has_work.store(true);
        events_.push(std::move(entry));
        queue->end_idle_transfers(events_);
        others = queue->threads();
    }
    for (BulkThread* other : others) {
        if (other != this) other->wake();
    }
}

// Errors come by themselves; this finds silence and lost links.
void BulkThread::watch(ucs::Time now) {
    const bool link_up = interface_->is_link_up();
    for (ThreadQueuePair* queue_pair : posting_) {
        queue_pair->is_full = false;
        SharedQueue& queue = *queue_pair->queue;
        std::lock_guard lock(queue.shard.mutex);
        queue_pair->link_up = link_up;
        if (!link_up) queue.end_idle_transfers(events_);
        if (queue_pair->chains.empty() || queue_pair->failure != UCS_OK) continue;
        const ucs::Time since = queue_pair->meter.silent_since();
        const bool others_went_on = std::max(queue.completed_at, queue.others_completed_at) > since;
        if (now - since >= rules_.stall_timeout && others_went_on) {
            queue_pair->failure = UCS_ERR_TIMED_OUT;
        } else if (!link_up && others_have_link(*queue_pair)) {
            queue_pair->failure = UCS_ERR_UNREACHABLE;
        }
        has_failures_ = has_failures_ || queue_pair->failure != UCS_OK;
    }
}

}  // namespace ucp::bulk
