// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "ucp/bulk/engine/path.h"
#include "ucp/endpoint/rail_table.h"

namespace ucp {
namespace bulk {

// The paths of all endpoints with bulk transfers.
class PathTable {
  public:
    PathTable(InterfaceSet& interfaces, const RailTable& rails, RunQueue& run_queue, size_t slice)
        : interfaces_(interfaces), rails_(rails), run_queue_(run_queue), slice_(slice) {}

    PathGroup* find(const Endpoint& endpoint) const;
    // With the lane and the rails, if it is new.
    PathGroup& find_or_make(Endpoint& endpoint);
    void erase(PathGroup& group);
    // The paths, not endpoints' own lanes, with these transport endpoints, in their order; null:
    // none. Looks at each path once: a device that breaks takes a path of each peer along.
    std::vector<Path*> find(std::span<const uct::Endpoint* const> transports);
    // Null if the endpoint has kMaxPaths already.
    Path* add_queue_pair(PathGroup& group, const PathParams& params, PathOwner& owner);
    // The endpoint's lane of the moment: what waits for room on another is woken on this one.
    void refresh_lane(PathGroup& group);

    // Whose queue pairs are asked for and revoked; null: nobody's.
    void set_provider(QueuePairProvider* provider) { provider_ = provider; }
    QueuePairProvider* provider() const { return provider_; }

    // Paths that were looked at for their transport endpoints.
    uint64_t looks() const { return looks_; }

  private:
    std::unique_ptr<Path> make_path(PathGroup& group, Path::Kind kind, unsigned interface,
                                    double weight = 1);
    void add_rails(PathGroup& group);

    InterfaceSet& interfaces_;
    const RailTable& rails_;
    RunQueue& run_queue_;
    const size_t slice_;
    std::unordered_map<const Endpoint*, std::unique_ptr<PathGroup>> groups_;
    QueuePairProvider* provider_ = nullptr;
    uint64_t looks_ = 0;
};

}  // namespace bulk
}  // namespace ucp
