// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/engine/thread_handover.h"

#include <algorithm>
#include <array>
#include <utility>

#include "ucp/bulk/engine/path_table.h"
#include "ucp/bulk/engine/poster.h"
#include "ucp/bulk/engine/transfer_table.h"
#include "ucp/bulk/schedule/rules.h"
#include "ucp/bulk/threads/bulk_thread.h"
#include "ucp/mem/memory.h"

namespace ucp::bulk {
namespace {

// Something is completed on a path whose chains are not counted here.
void note_completion(Meter& meter, ucs::Time now) {
    if (now <= meter.completed_at()) return;
    meter.posted(0, now);
    meter.completed(0, now);
}

std::vector<PieceAccess> access_of(const SharedQueue::Domain& domain, const Transfer& transfer) {
    const size_t longest =
        transfer.direction == Direction::kPut ? domain.longest_put : domain.longest_get;
    if (transfer.slices.longest_slice() > longest) return {};
    std::vector<PieceAccess> access;
    const Piece* known = nullptr;
    for (const Piece& piece : transfer.slices.pieces()) {
        if (known == nullptr || piece.memory != known->memory || piece.key != known->key) {
            const PieceAccess one{piece.memory->handle(domain.pair.local),
                                  piece.key->find(domain.pair)};
            if (one.memory == nullptr || one.key == uct::kInvalidRemoteKey) return {};
            access.push_back(one);
            known = &piece;
        } else {
            access.push_back(access.back());
        }
    }
    return access;
}

}  // namespace

ThreadHandover::ThreadHandover(std::unique_ptr<ThreadPool> pool, const ucs::Clock& clock,
                               const ScheduleRules& rules, ucs::Duration stall_timeout,
                               PathTable& paths, TransferTable& transfers, Poster& poster)
    : clock_(clock),
      rules_(rules),
      stall_timeout_(stall_timeout),
      paths_(paths),
      transfers_(transfers),
      poster_(poster),
      pool_(std::move(pool)) {}

// --- queue pairs

void ThreadHandover::attach(Path& path) {
    const auto* proxy = dynamic_cast<const QueuePairProxy*>(path.transport);
    if (proxy == nullptr) return;
    PathGroup& group = path.group;
    if (group.shared_queue == nullptr) {
        group.shared_queue = std::make_unique<SharedQueue>(pool_->shard_of(group.endpoint));
    }
    SharedQueue& queue = *group.shared_queue;
    auto domain = std::ranges::find(queue.domains, path.domains, &SharedQueue::Domain::pair);
    if (domain == queue.domains.end()) {
        const uct::InterfaceAttributes& attributes = path.attributes();
        queue.domains.push_back({path.domains, attributes.put.max_zcopy, attributes.get.max_zcopy});
        domain = queue.domains.end() - 1;
    }
    path.state = Path::State::kOnThread;
    path.on_thread = proxy->queue_pair();
    ThreadQueuePair& queue_pair = *path.on_thread;
    queue_pair.path = &path;
    queue_pair.thread.begin(queue_pair, queue,
                            static_cast<unsigned>(domain - queue.domains.begin()),
                            path.meter.rate());
}

void ThreadHandover::stop(Path& path) {
    ThreadQueuePair& queue_pair = *path.on_thread;
    queue_pair.thread.stop(queue_pair);
}

// --- transfers

SharedTransfer* ThreadHandover::share(Transfer& transfer, SharedQueue& queue) {
    std::vector<std::vector<PieceAccess>> access;
    bool is_served = false;
    for (const SharedQueue::Domain& domain : queue.domains) {
        access.push_back(access_of(domain, transfer));
        is_served = is_served || !access.back().empty();
    }
    if (!is_served) return nullptr;
    SharedTransfer* shared =
        pool_->shared_transfers.create(transfer, transfer.slices, queue, transfer.direction);
    if (shared == nullptr) return nullptr;
    shared->access = std::move(access);
    return shared;
}

void ThreadHandover::hand_over(PathGroup& group) {
    SharedQueue& queue = *group.shared_queue;
    {
        std::lock_guard lock(queue.shard.mutex);
        if (queue.queue_pairs.empty() || queue.is_stalled) return;
    }
    bool any = false;
    for (auto next = group.waiting.begin(); next != group.waiting.end();) {
        Transfer& transfer = *next++;
        if (!transfer.slices.has_next()) continue;
        if (!poster_.passes_fence(transfer)) break;
        SharedTransfer* shared = transfer.slices.has_next() ? share(transfer, queue) : nullptr;
        if (shared == nullptr) continue;
        std::unique_lock lock(queue.shard.mutex);
        if (!queue.can_serve(*shared)) {
            lock.unlock();
            pool_->shared_transfers.destroy(shared);
            continue;
        }
        if (queue.transfers.empty()) group.shared_at = clock_.now();
        transfer.slices.hand_over(shared->slices);
        shared->bytes = shared->slices.bytes_waiting();
        queue.transfers.push_back(*shared);
        queue.has_work.store(true);
        lock.unlock();
        ++transfer.chains;
        group.waiting.erase(group.waiting.iterator_to(transfer));
        any = true;
    }
    if (!any) return;
    std::vector<BulkThread*> threads;
    {
        std::lock_guard lock(queue.shard.mutex);
        threads = queue.threads();
    }
    for (BulkThread* thread : threads) thread->wake();
    group.wake();
}

// Nothing of it is under way any more: what is left of it waits in its transfer again.
void ThreadHandover::returned(SharedTransfer& shared) {
    Transfer& transfer = shared.transfer;
    if (shared.slices.status() != UCS_OK) transfer.slices.fail(shared.slices.status());
    shared.bytes -= transfer.slices.take_back(shared.slices);
    Run rest;
    rest.bytes = shared.bytes;
    transfer.slices.completed(rest);
    pool_->shared_transfers.destroy(&shared);
    --transfer.chains;
    transfers_.requeue(transfer);
    transfer.group->wake();
    transfers_.finish_if_over(transfer);
}

void ThreadHandover::handle_events() {
    // What is handled may bring more.
    for (auto events = pool_->events.take(); !events.empty(); events = pool_->events.take()) {
        for (const ThreadEvent& event : events) {
            switch (event.kind) {
                case ThreadEvent::Kind::kReturned:
                    returned(*event.shared);
                    break;
                case ThreadEvent::Kind::kFailed:
                    queue_pair_failed(event);
                    break;
                case ThreadEvent::Kind::kStopped:
                    if (Path* path = event.queue_pair->path; path != nullptr) {
                        if (path->state == Path::State::kOnThread)
                            path->state = Path::State::kDraining;
                        path->group.wake();
                    }
                    break;
            }
        }
    }
}

void ThreadHandover::queue_pair_failed(const ThreadEvent& event) {
    ThreadQueuePair& queue_pair = *event.queue_pair;
    if (queue_pair.path == nullptr) {
        QueuePairProvider* const provider = paths_.provider();
        if (queue_pair.proxy != nullptr && provider != nullptr) {
            const uct::Endpoint* const failed = queue_pair.proxy;
            provider->transports_failed({&failed, 1});
        }
        return;
    }
    Path& path = *queue_pair.path;
    for (Transfer* transfer : event.transfers) transfers_.suspend(*transfer, path);
    if (path.failure == UCS_OK) path.failure = event.status;
    if (path.state == Path::State::kOnThread) path.state = Path::State::kUp;
    path.group.wake();
}

void ThreadHandover::take_all_back(PathGroup& group, ucs_status_t status) {
    SharedQueue& queue = *group.shared_queue;
    {
        std::lock_guard lock(queue.shard.mutex);
        for (SharedTransfer& shared : queue.transfers) shared.slices.fail(status);
    }
    for (const auto& path : group.paths) {
        if (path->on_thread == nullptr) continue;
        ThreadQueuePair& queue_pair = *path->on_thread;
        queue_pair.thread.close(queue_pair);
    }
    handle_events();
}

bool ThreadHandover::check(PathGroup& group, ucs::Time now) {
    SharedQueue& queue = *group.shared_queue;
    ucs::Time others{};
    bool others_have_link = false;
    for (const auto& path : group.paths) {
        if (path->on_thread != nullptr) continue;
        others = std::max(others, path->meter.completed_at());
        others_have_link = others_have_link || path->may_post();
    }
    std::vector<Transfer*> taken;
    bool is_quiet = false;
    {
        std::lock_guard lock(queue.shard.mutex);
        queue.others_completed_at = others;
        queue.others_have_link = others_have_link;
        for (const auto& path : group.paths) {
            if (path->state == Path::State::kOnThread)
                note_completion(path->meter, queue.completed_at);
        }
        const bool is_idle = std::ranges::all_of(
            queue.queue_pairs,
            [](const ThreadQueuePair* queue_pair) { return queue_pair->meter.under_way() == 0; });
        if (is_idle) queue.is_stalled = false;
        is_quiet = !queue.transfers.empty() &&
                   now - std::max(queue.completed_at, group.shared_at) >= stall_timeout_ / 2;
        if (is_quiet) {
            queue.is_stalled = true;
            taken = queue.take_back(pool_->events);
        }
    }
    for (auto transfer = taken.rbegin(); transfer != taken.rend(); ++transfer)
        transfers_.requeue(**transfer);
    if (!taken.empty() || queue.has_work.load()) group.wake();
    return is_quiet;
}

// --- slices that the worker's own paths steal

// Some of what waits for threads waits in its transfer again, for that path: what it is to have by
// the rules of the schedule.
// @return null: nothing
Transfer* ThreadHandover::steal(PathGroup& group, Path& path, ucs::Time now) {
    SharedQueue& queue = *group.shared_queue;
    std::lock_guard lock(queue.shard.mutex);
    for (SharedTransfer& shared : queue.transfers) {
        Transfer& transfer = shared.transfer;
        if (!shared.slices.has_next() || transfer.slices.status() != UCS_OK) continue;
        const Slice slice = shared.slices.cursor().slice();
        if (!path.can_take(transfer, slice)) continue;
        std::array<const Meter*, kMaxPaths> meters;
        size_t count = 0;
        for (const auto& each : group.paths) {
            if (each->can_take(transfer, slice)) meters[count++] = &each->meter;
        }
        for (const ThreadQueuePair* each : queue.queue_pairs) {
            const bool can_serve =
                each->link_up && !each->is_full && shared.is_served_by(each->domain);
            if (can_serve) meters[count++] = &each->meter;
        }
        const size_t bytes = pull(path.meter, {meters.data(), count}, slice.length,
                                  shared.slices.bytes_waiting(), now, rules_);
        if (bytes == 0) continue;
        shared.bytes -= transfer.slices.take_back(shared.slices, bytes, rules_.chain);
        queue.end_if_over(shared, pool_->events);
        return &transfer;
    }
    return nullptr;
}

void ThreadHandover::steal_slices(PathGroup& group) {
    if (!group.shared_queue->has_work.load()) return;
    const ucs::Time now = clock_.now();
    paths_.refresh_lane(group);
    for (bool any = true; any;) {
        any = false;
        for (const auto& path : group.paths) {
            Transfer* const transfer = steal(group, *path, now);
            if (transfer == nullptr) continue;
            any = poster_.post(*transfer, *path, transfer->slices.bytes_waiting(), now) || any;
            if (!transfer->slices.has_next()) continue;
            transfers_.requeue(*transfer);
            group.wake();
        }
    }
}

}  // namespace ucp::bulk
