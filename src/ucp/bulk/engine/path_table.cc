// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/engine/path_table.h"

#include "ucp/bulk/schedule/rules.h"

namespace ucp::bulk {

PathGroup* PathTable::find(const Endpoint& endpoint) const {
    const auto found = groups_.find(&endpoint);
    return found == groups_.end() ? nullptr : found->second.get();
}

std::vector<Path*> PathTable::find(std::span<const uct::Endpoint* const> transports) {
    std::vector<Path*> found(transports.size());
    if (groups_.empty()) return found;
    std::unordered_multimap<const uct::Endpoint*, size_t> places;
    for (size_t place = 0; place < transports.size(); ++place)
        places.emplace(transports[place], place);
    for (const auto& [endpoint, group] : groups_) {
        for (const auto& path : group->paths) {
            ++looks_;
            if (path->transport == nullptr || path->kind == Path::Kind::kLane) continue;
            const auto [first, last] = places.equal_range(path->transport);
            for (auto at = first; at != last; ++at) found[at->second] = path.get();
        }
    }
    return found;
}

// At first with the bandwidth of its device, less what the distance costs.
std::unique_ptr<Path> PathTable::make_path(PathGroup& group, Path::Kind kind, unsigned interface,
                                           double weight) {
    const WorkerInterface& device = interfaces_[interface];
    const double rate =
        expected_rate(device.transport->attributes().bandwidth, double{device.distance}, slice_);
    return std::make_unique<Path>(group, kind, *device.transport, rate * weight);
}

PathGroup& PathTable::find_or_make(Endpoint& endpoint) {
    if (PathGroup* const known = find(endpoint)) return *known;
    run_queue_.make_room(groups_.size() + 1);
    auto made = std::make_unique<PathGroup>(endpoint, run_queue_);
    PathGroup& group = *made;
    const Lane lane = endpoint.one_sided_lane();
    auto path = make_path(group, Path::Kind::kLane, endpoint.interface_of(lane));
    path->transport = &lane.endpoint;
    path->domains = lane.domains;
    group.paths.push_back(std::move(path));
    // From here on it can be forgotten as others are.
    groups_.emplace(&endpoint, std::move(made));
    if (provider_ != nullptr) provider_->wanted(endpoint);
    add_rails(group);
    return group;
}

void PathTable::add_rails(PathGroup& group) {
    for (const Rail& rail : rails_.rails(group.endpoint.remote_uuid())) {
        auto path = make_path(group, Path::Kind::kRail, rail.interface);
        path->domains = rail.domains;
        path->remote_device = rail.remote_device;
        path->remote_interface = rail.remote_interface;
        if (path->make_transport() != UCS_OK) path->state = Path::State::kBackingOff;
        group.paths.push_back(std::move(path));
    }
    // The peer must be able to answer a REVOKE.
    if (group.paths.size() > 1) group.endpoint.greet();
}

Path* PathTable::add_queue_pair(PathGroup& group, const PathParams& params, PathOwner& owner) {
    if (group.paths.size() == kMaxPaths) return nullptr;
    auto path = make_path(group, Path::Kind::kQueuePair, params.interface, params.weight);
    path->transport = params.transport;
    path->domains = params.domains;
    path->owner = &owner;
    path->name = params.name;
    group.paths.push_back(std::move(path));
    return group.paths.back().get();
}

void PathTable::erase(PathGroup& group) {
    run_queue_.forget(group);
    groups_.erase(&group.endpoint);
}

void PathTable::refresh_lane(PathGroup& group) {
    Path& path = group.lane();
    const Lane lane = group.endpoint.one_sided_lane();
    if (path.transport == &lane.endpoint) return;
    path.stop_waiting();
    path.transport = &lane.endpoint;
    path.device = interfaces_[group.endpoint.interface_of(lane)].transport.get();
}

}  // namespace ucp::bulk
