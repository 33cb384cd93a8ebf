// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/engine/poster.h"

#include <algorithm>
#include <array>

#include "ucp/bulk/engine/notification.h"
#include "ucp/bulk/engine/path_table.h"
#include "ucp/bulk/schedule/rules.h"
#include "ucp/endpoint/endpoint.h"
#include "ucp/mem/memory.h"

namespace ucp::bulk {
namespace {

// Is what is posted on the path next delivered when all that is under way of the transfer has
// landed? Not if some of it went another way, or may yet be written by a path that has failed. What
// is posted on the endpoint's own lane is never posted anew: its error is the endpoint's.
bool has_order(const Transfer& transfer, const Path& path) {
    if (path.kind != Path::Kind::kLane || transfer.unrevoked_paths != 0 ||
        (path.attributes().capabilities & uct::kOrderedChain) == 0) {
        return false;
    }
    const auto here = std::ranges::count_if(path.chains, [&](const Chain& chain) {
        return chain.transfer == &transfer && chain.transport == path.transport;
    });
    return static_cast<size_t>(here) == transfer.chains;
}

// A short batch with a notification goes whole over the endpoint's lane, where that can follow it:
// the round trip saved is worth more than what other paths would take over.
bool stays_on_lane(const Transfer& transfer, const Path& lane, const ScheduleRules& rules) {
    return transfer.notification != nullptr && transfer.slices.bytes_waiting() <= rules.slice &&
           has_order(transfer, lane);
}

// As put_chain(), the last piece with the notification; 0 if that is not possible.
ssize_t put_with_notification(Notification& notification, const Path& path,
                              std::span<const uct::ChainPiece> pieces, Chain& chain) {
    const bool is_possible = (path.attributes().capabilities & uct::kImmediate) != 0 &&
                             notification.length == 0 && notification.value <= UINT32_MAX &&
                             notification.owner->take_room(notification, *path.transport);
    if (!is_possible) return 0;
    const ssize_t taken = path.transport->put_chain_immediate(
        pieces, static_cast<uint32_t>(notification.value), &chain);
    notification.is_posted = taken == static_cast<ssize_t>(pieces.size());
    if (!notification.is_posted) notification.owner->give_room(notification);
    return taken;
}

// Post the notification by itself, behind what has been posted on the path.
void notify_behind(Notification& notification, const Path& path) {
    if (!notification.owner->take_room(notification, *path.transport)) return;
    notification.is_posted =
        Notifier::post_behind(notification, {*path.transport, path.attributes(), path.domains});
    if (!notification.is_posted) notification.owner->give_room(notification);
}

// May the path take more of a long transfer while short ones come between? What all paths of its
// device have under way is before the bytes of a short one.
bool has_room_for_long(const PathGroup& group, const Path& path, size_t length,
                       const ScheduleRules& rules) {
    size_t under_way = 0;
    double rate = 0;
    for (const auto& each : group.paths) {
        if (each->device != path.device) continue;
        under_way += each->meter.under_way();
        rate = std::max(rate, each->meter.rate());
    }
    return under_way == 0 || under_way + length <= mixed_window(rate, rules);
}

// Does a chain of the group's only transfer cost as much as a slice? Of several, one's chain is
// under way while the end of another's is handled.
bool is_joined(const PathGroup& group, const Path& path) {
    const bool is_alone = &group.transfers.front() == &group.transfers.back();
    return is_alone && (path.attributes().capabilities & uct::kJoinedChain) != 0;
}

}  // namespace

// A chain knows no fence: what came before one is flushed first.
bool Poster::passes_fence(Transfer& transfer) {
    if (transfer.fence.due) {
        Endpoint& endpoint = transfer.group->endpoint;
        transfer.fence.callback = fence_done;
        transfer.fence.transfer = &transfer;
        transfer.fence.poster = this;
        transfer.fence.seen = endpoint.fence().seen();
        const ucs_status_t status = endpoint.flush_fenced(transfer.fence);
        if (status == UCS_ERR_NO_RESOURCE) {
            transfer.group->wake();
            return false;
        }
        transfer.fence.due = false;
        if (status == UCS_OK) endpoint.fence().flushed(transfer.fence.seen);
        if (status != UCS_OK && status != UCS_INPROGRESS) transfer.slices.fail(status);
    }
    return transfer.fence.count == 0;
}

void Poster::fence_done(uct::Completion* self) {
    const Transfer::Fence& fence = *static_cast<Transfer::Fence*>(self);
    Transfer& transfer = *fence.transfer;
    Poster& poster = *fence.poster;
    // A dedicated lane that has gone meanwhile had done all that was posted on it.
    if (self->status != UCS_OK && self->status != UCS_ERR_CANCELED)
        transfer.slices.fail(self->status);
    if (transfer.group != nullptr) {
        if (self->status == UCS_OK) transfer.group->endpoint.fence().flushed(fence.seen);
        transfer.group->wake();
    }
    poster.transfers_.finish_if_over(transfer);
}

ssize_t Poster::post_chain(Transfer& transfer, Path& path, size_t bytes, ucs::Time now) {
    std::array<uct::ChainPiece, kMaxChain> pieces;
    const std::span<const Piece> all = transfer.slices.pieces();
    const size_t longest_slice = path.longest_slice(transfer.direction);
    const uct::MemoryHandle* handle = nullptr;
    uct::RemoteKey key = uct::kInvalidRemoteKey;
    uint32_t known = UINT32_MAX;
    size_t count = 0, total = 0;
    SliceQueue::Cursor next = transfer.slices.cursor();
    while (!next.is_end() && count < rules_.chain) {
        const Slice slice = next.slice();
        if ((count != 0 && total + slice.length > bytes) || slice.length > longest_slice) break;
        const Piece& piece = all[slice.piece];
        if (slice.piece != known) {
            handle = piece.memory->handle(path.domains.local);
            key = piece.key->find(path.domains);
            if (handle == nullptr || key == uct::kInvalidRemoteKey) break;
            known = slice.piece;
        }
        pieces[count++] = {static_cast<std::byte*>(piece.local) + slice.offset, slice.length,
                           handle, piece.remote + slice.offset, key};
        total += slice.length;
        next.advance(slice);
    }
    if (count == 0) return UCS_ERR_UNSUPPORTED;
    Chain* chain = chains_.create();
    if (chain == nullptr) return UCS_ERR_NO_MEMORY;
    chain->callback = chain_done;
    chain->count = 2;  // one for this call: the transport may complete the chain within its own
    const std::span<const uct::ChainPiece> given(pieces.data(), count);
    Notification* const notification = transfer.notification != nullptr &&
                                               total == transfer.slices.bytes_waiting() &&
                                               has_order(transfer, path)
                                           ? transfer.notification
                                           : nullptr;
    ssize_t taken = 0;
    if (notification != nullptr) {
        taken = put_with_notification(*notification, path, given, *chain);
    }
    if (taken == 0) {
        taken = transfer.direction == Direction::kPut ? path.transport->put_chain(given, chain)
                                                      : path.transport->get_chain(given, chain);
    }
    if (taken <= 0) {
        chains_.destroy(chain);
        return taken;
    }
    if (static_cast<size_t>(taken) < count) {
        next = transfer.slices.cursor();
        for (ssize_t slice = 0; slice < taken; ++slice) next.advance(next.slice());
    }
    chain->run = transfer.slices.take(next, static_cast<uint32_t>(taken));
    chain->poster = this;
    chain->transfer = &transfer;
    chain->path = &path;
    chain->transport = path.transport;
    path.chains.push_back(*chain);
    path.meter.posted(chain->run.bytes, now);
    ++transfer.chains;
    if (notification != nullptr && !transfer.slices.has_next() && !notification->is_posted &&
        chain->status == UCS_OK) {
        notify_behind(*notification, path);
    }
    chain->complete(UCS_OK);
    return taken;
}

// @return whether there may be more to post now
bool Poster::post_next(PathGroup& group, Transfer& transfer, ucs::Time now, bool is_mixed) {
    const Slice slice = transfer.slices.cursor().slice();
    // Short ones among long ones are what the room is left for.
    ScheduleRules rules = rules_;
    rules.is_mixed = is_mixed && !is_short(transfer);
    std::array<Path*, kMaxPaths> paths;
    std::array<const Meter*, kMaxPaths> meters;
    size_t count = 0;
    const Path& lane = group.lane();
    const bool stays = lane.can_take(transfer, slice) && stays_on_lane(transfer, lane, rules_);
    for (const auto& path : group.paths) {
        if (stays && path->kind != Path::Kind::kLane) continue;
        if (!path->can_take(transfer, slice)) continue;
        if (rules.is_mixed && !has_room_for_long(group, *path, slice.length, rules)) continue;
        paths[count] = path.get();
        meters[count++] = &path->meter;
    }
    rules.is_joined = count == 1 && is_joined(group, *paths[0]);
    const Choice choice =
        choose({meters.data(), count}, slice.length, transfer.slices.bytes_waiting(), now, rules);
    if (choice.path < 0) return false;
    return post(transfer, *paths[static_cast<size_t>(choice.path)], choice.bytes, now);
}

// The transfer's next slices, if there is room. @return whether the group may have more to post
bool Poster::advance(PathGroup& group, Transfer& transfer, ucs::Time now, bool is_mixed) {
    const uint64_t before = transfer.slices.bytes_waiting();
    if (transfer.slices.has_next() && !passes_fence(transfer)) return false;
    if (transfer.slices.has_next() && !post_next(group, transfer, now, is_mixed)) return false;
    if (!transfer.is_waiting()) return true;  // ended within the call
    if (transfer.slices.has_next()) {
        // Slices that have failed meanwhile wait again.
        const uint64_t posted = before - std::min(before, transfer.slices.bytes_waiting());
        const size_t turn = transfer.turn.length(is_mixed, rules_.slice);
        if (transfer.turn.posted(posted, turn)) {
            group.waiting.splice(group.waiting.end(), group.waiting,
                                 group.waiting.iterator_to(transfer));
        }
        return true;
    }
    group.waiting.erase(group.waiting.iterator_to(transfer));
    transfers_.finish_if_over(transfer);
    return true;
}

// The short ones that came last, where long ones find no room.
void Poster::post_short(PathGroup& group, ucs::Time now) {
    constexpr unsigned kLooks = 16;
    unsigned looks = 0;
    for (auto next = group.waiting.end(); next != group.waiting.begin() && looks < kLooks;
         ++looks) {
        Transfer& transfer = *--next;
        if (!is_short(transfer)) continue;
        ++next;  // stays where it is while that transfer goes
        while (transfer.is_waiting() && is_short(transfer)) {
            if (!advance(group, transfer, now, true)) return;
        }
    }
}

bool Poster::post(Transfer& transfer, Path& path, size_t bytes, ucs::Time now) {
    const ssize_t posted = post_chain(transfer, path, bytes, now);
    if (posted > 0) return true;
    if (posted == 0) {
        path.wait_for_room();
        return path.is_linked();
    }
    if (posted == UCS_ERR_NO_MEMORY && transfer.chains != 0) {
        // What is under way gives some back.
        path.group.wake();
        return false;
    }
    if (posted == UCS_ERR_NO_MEMORY || path.kind == Path::Kind::kLane) {
        transfer.slices.fail(static_cast<ucs_status_t>(posted));
    } else {
        path.failure = static_cast<ucs_status_t>(posted);
        path.group.wake();
    }
    return true;
}

void Poster::post_waiting(PathGroup& group) {
    if (group.waiting.empty()) return;
    const ucs::Time now = clock_.now();
    const bool is_mixed = group.mixture.is_mixed(now);
    paths_.refresh_lane(group);
    while (!group.waiting.empty()) {
        if (advance(group, group.waiting.front(), now, is_mixed)) continue;
        if (is_mixed) post_short(group, now);
        return;
    }
}

// --- completions

void Poster::chain_done(uct::Completion* self) {
    Chain& chain = *static_cast<Chain*>(self);
    if (chain.transfer == nullptr) {
        chain.poster->chains_.destroy(&chain);
        return;
    }
    Transfer& transfer = *chain.transfer;
    Poster& poster = *chain.poster;
    const ucs_status_t status = chain.status;
    const Run run = chain.run;
    Path* path = chain.path;
    if (path != nullptr) path->chains.erase(path->chains.iterator_to(chain));
    poster.chains_.destroy(&chain);
    --transfer.chains;
    if (status == UCS_OK) {
        transfer.slices.completed(run);
        if (path != nullptr) {
            path->meter.completed(run.bytes, poster.clock_.now());
            path->failures = 0;
        }
    } else {
        if (path != nullptr) path->meter.withdrawn(run.bytes);
        poster.chain_failed(transfer, path, run, status);
    }
    if (transfer.group != nullptr) transfer.group->wake();
    poster.transfers_.finish_if_over(transfer);
}

void Poster::chain_failed(Transfer& transfer, Path* path, const Run& run, ucs_status_t status) {
    // Over TCP the endpoint goes on another way: nothing more is written by the old one.
    const bool has_moved =
        path != nullptr && path->kind == Path::Kind::kLane && status == UCS_ERR_UNREACHABLE;
    const bool is_lane = !has_moved && (path == nullptr || path->kind == Path::Kind::kLane);
    if (is_lane || is_refusal(status) || run.failures >= max_retries_) {
        transfer.slices.fail(status);
    }
    transfer.slices.failed(run);
    if (is_lane) return;
    if (has_moved) return transfers_.requeue(transfer);
    if (path->failure == UCS_OK) path->failure = status;
    transfers_.suspend(transfer, *path);
    transfers_.requeue(transfer);
}

void Poster::give_up_chains(Path& path) {
    path.stop_waiting();
    while (!path.chains.empty()) {
        Chain& chain = path.chains.front();
        path.chains.pop_front();
        Transfer& transfer = *chain.transfer;
        chain.transfer = nullptr;
        chain.path = nullptr;
        --transfer.chains;
        if (chain.run.failures >= max_retries_) transfer.slices.fail(path.failure);
        transfer.slices.failed(chain.run);
        transfers_.suspend(transfer, path);
        transfers_.requeue(transfer);
        transfers_.finish_if_over(transfer);
    }
    path.meter.give_up();
}

void Poster::detach_chains(Path& path) {
    for (Chain& chain : path.chains) chain.path = nullptr;
    path.chains.clear();
}

}  // namespace ucp::bulk
