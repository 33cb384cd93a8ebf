// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/engine/path_health.h"

#include <algorithm>
#include <utility>

#include "ucp/bulk/engine/path_table.h"
#include "ucp/bulk/engine/poster.h"
#include "ucp/bulk/engine/revocation.h"
#include "ucp/bulk/engine/transfer_table.h"
#include "ucp/endpoint/endpoint.h"
#include "ucs/log/log.h"

namespace ucp::bulk {
namespace {

constexpr unsigned kMaxDoublings = 5;

}  // namespace

// --- failing

void PathHealth::fail(Path& path, ucs_status_t status) {
    PathGroup& group = path.group;
    const ucs::Time now = clock_.now();
    ucs::log_info("bulk: a {} to worker {:016x} gave up: {}",
                  path.kind == Path::Kind::kRail ? path.attributes().device : "queue pair",
                  group.endpoint.remote_uuid(), ucs_status_string(status));
    path.failure = status;
    path.abandon_probe();
    path.held.clear();
    poster_.give_up_chains(path);
    revocation_.begin(path, now);
    if (path.kind == Path::Kind::kQueuePair) {
        path.owner->path_failed(path, status);
    } else {
        path.own.reset();
    }
    path.transport = nullptr;
    group.run_queue.watch(group);
    revocation_.ask(path, now);
}

void PathHealth::handle_events(PathGroup& group) {
    for (size_t index = 0; index < group.paths.size();) {
        Path& path = *group.paths[index];
        const bool is_up = path.state == Path::State::kUp || path.state == Path::State::kDraining;
        if (path.kind != Path::Kind::kLane && is_up && path.failure != UCS_OK) {
            fail(path, path.failure);
        }
        bool is_gone = false;
        if (path.state == Path::State::kRevoking && path.is_revoked) {
            transfers_.release_suspended(path);
            is_gone = path.kind == Path::Kind::kQueuePair;
            if (!is_gone) back_off(path, clock_.now());
        } else if (path.state == Path::State::kDraining && path.chains.empty()) {
            is_gone = true;
        }
        if (!is_gone) {
            ++index;
            continue;
        }
        const std::unique_ptr<Path> last = std::move(group.paths[index]);
        group.paths.erase(group.paths.begin() + static_cast<ptrdiff_t>(index));
        path.owner->path_gone(path);
    }
}

void PathHealth::drop_paths(PathGroup& group, ucs_status_t status) {
    for (const auto& path : group.paths) {
        path->stop_waiting();
        path->abandon_probe();
        if (path->kind == Path::Kind::kLane) continue;
        path->failure = status;
        poster_.give_up_chains(*path);
        for (Transfer* transfer : path->suspended) --transfer->unrevoked_paths;
        path->suspended.clear();
        path->transport = nullptr;
        path->own.reset();
    }
    while (group.paths.size() > 1) {
        const std::unique_ptr<Path> last = std::move(group.paths.back());
        group.paths.pop_back();
        if (last->kind == Path::Kind::kQueuePair) last->owner->path_gone(*last);
    }
}

// --- rails that are made anew

void PathHealth::back_off(Path& path, ucs::Time now) {
    path.transport = nullptr;
    path.own.reset();
    path.state = Path::State::kBackingOff;
    const unsigned doublings = std::min(path.failures, kMaxDoublings);
    ++path.failures;
    path.due = ucs::deadline(now, rules_.retry_interval * (1 << doublings));
}

void PathHealth::make_anew(Path& path, ucs::Time now) {
    path.failure = UCS_OK;
    if (path.make_transport() != UCS_OK) return back_off(path, now);
    path.state = Path::State::kProbing;
    path.due = ucs::deadline(now, rules_.stall_timeout);
    path.send_probe();
}

// --- silence and lost links

void PathHealth::probe_idle(PathGroup& group) {
    paths_.refresh_lane(group);
    for (const auto& path : group.paths) {
        const bool is_idle = path->may_post() && path->meter.under_way() == 0;
        if (is_idle && path->probe == nullptr) path->send_probe();
    }
}

bool PathHealth::others_went_on(const Path& path) {
    return std::ranges::any_of(path.group.paths, [&](const auto& other) {
        return other.get() != &path && other->meter.completed_at() > path.meter.silent_since();
    });
}

bool PathHealth::is_silent(Path& path, ucs::Time now) {
    if (path.meter.under_way() == 0 || now - path.meter.silent_since() < rules_.stall_timeout) {
        return false;
    }
    if (others_went_on(path)) return true;
    probe_idle(path.group);
    return false;
}

void PathHealth::check(PathGroup& group, ucs::Time now) {
    paths_.refresh_lane(group);
    bool other_links = false, is_greeted = false;
    for (const auto& path : group.paths) {
        const bool has_link = path->device->is_link_up();
        other_links = other_links || (has_link && path->state == Path::State::kUp);
    }
    for (const auto& each : group.paths) {
        Path& path = *each;
        const bool had_link = path.link_up;
        path.link_up = path.device->is_link_up();
        switch (path.state) {
            case Path::State::kUp:
            case Path::State::kDraining:
                if (path.probe != nullptr && path.probe->is_back) {
                    if (path.probe->status == UCS_OK) path.meter.answered(now);
                    path.probe.reset();
                }
                if (path.kind == Path::Kind::kLane) {
                    path.link_up = path.link_up && !is_silent(path, now);
                } else if (is_silent(path, now)) {
                    path.failure = UCS_ERR_TIMED_OUT;
                } else if (!path.link_up && other_links && path.meter.under_way() != 0) {
                    path.failure = UCS_ERR_UNREACHABLE;
                }
                break;
            case Path::State::kOnThread:
                break;
            case Path::State::kRevoking:
                path.revocation_end = ucs::deadline(path.revocation_end,
                                                    ucs::unseen(path.due, now, rules_.cut_timeout));
                if (now >= path.revocation_end) {
                    ucs::log_info("bulk: worker {:016x} does not revoke a path that has failed",
                                  group.endpoint.remote_uuid());
                    group.endpoint.fail(UCS_ERR_ENDPOINT_TIMEOUT);
                } else if (now >= path.due) {
                    // It may have closed its endpoint, and then has nothing to answer with.
                    if (!std::exchange(is_greeted, true)) group.endpoint.greet_again();
                    revocation_.ask(path, now);
                }
                break;
            case Path::State::kBackingOff:
                if (now >= path.due && path.link_up) make_anew(path, now);
                break;
            case Path::State::kProbing:
                if (path.probe->is_back && path.probe->status == UCS_OK) {
                    path.probe.reset();
                    path.state = Path::State::kUp;
                } else if (path.probe->is_back || now >= path.due) {
                    path.abandon_probe();
                    back_off(path, now);
                }
                break;
        }
        if (path.failure != UCS_OK || path.link_up != had_link) group.wake();
    }
    if (!group.waiting.empty()) group.wake();
}

}  // namespace ucp::bulk
