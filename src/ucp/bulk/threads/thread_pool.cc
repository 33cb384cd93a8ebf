// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/threads/thread_pool.h"

#include <algorithm>

#include "ucp/bulk/threads/queue_pair_proxy.h"
#include "ucp/worker/worker.h"
#include "ucs/log.h"
#include "ucs/random.h"
#include "ucs/topo/topology.h"

namespace ucp::bulk {
namespace {

constexpr unsigned kMaxShards = 64;
constexpr unsigned kMaxMovers = 64;  //!< of a device

/** Where the threads of a device run: near it, as far as the program may. */
std::vector<unsigned> cpus_for(const std::string& device) {
    const ucs::topo::Topology* topology = ucs::topo::Topology::machine();
    if (topology == nullptr) return {};
    const std::string adapter = device.substr(0, device.find(':'));
    std::vector<unsigned> cpus = topology->cpus_near(adapter);
    const std::vector<unsigned> allowed = ucs::topo::allowed_cpus();
    std::erase_if(cpus,
                  [&](unsigned cpu) { return std::ranges::find(allowed, cpu) == allowed.end(); });
    return cpus;
}

}  // namespace

Pool::Pool(Worker& worker, const MoverRules& rules)
    : returns(worker), worker_(worker), rules_(rules) {
    const unsigned shards = std::clamp(worker.config().bulk_shards, 1u, kMaxShards);
    for (unsigned index = 0; index < shards; ++index) {
        shards_.push_back(std::make_unique<Shard>());
    }
}

Pool::~Pool() = default;

Pool::Team& Pool::team_of(unsigned interface) {
    const auto [entry, is_new] = teams_.try_emplace(interface);
    Team& team = entry->second;
    if (!is_new) return team;
    Context& context = worker_.context();
    const TransportResource& resource = context.resources()[worker_.interface(interface).resource];
    uct::MemoryDomain& domain = *context.domains()[resource.domain].memory;
    Mover::Params params{context.clock(),
                         returns,
                         rules_,
                         counters_,
                         cpus_for(resource.device),
                         0,
                         context.estimated_endpoints()};
    ContextLock lock(context);
    const unsigned wanted = std::min(worker_.config().bulk_workers, kMaxMovers);
    while (team.movers.size() < wanted) {
        params.seed = worker_.random()();
        std::unique_ptr<Mover> mover;
        const ucs_status_t status = Mover::start(params, domain, resource.transport, &mover);
        if (status != UCS_OK) {
            ucs::log_warn("{} on {}: {} threads for bulk transfers instead of {}: {}",
                          resource.transport, resource.device, team.movers.size(), wanted,
                          ucs_status_string(status));
            break;
        }
        team.movers.push_back(std::move(mover));
    }
    ucs::log_debug("{} on {}: {} threads for bulk transfers", resource.transport, resource.device,
                   team.movers.size());
    return team;
}

ucs_status_t Pool::make_end(unsigned interface, std::unique_ptr<uct::Endpoint>* end) {
    Team& team = team_of(interface);
    if (team.movers.empty()) return UCS_ERR_UNSUPPORTED;
    Mover& mover = *team.movers[team.next++ % team.movers.size()];
    std::shared_ptr<MoverStrand> strand;
    const ucs_status_t status = mover.make(&strand);
    if (status == UCS_OK) *end = std::make_unique<LentEnd>(std::move(strand));
    return status;
}

Shard& Pool::shard_of(const Endpoint& endpoint) {
    return *shards_[ucs::mix64(endpoint.serial()) % shards_.size()];
}

size_t Pool::movers() const {
    size_t count = 0;
    for (const auto& [interface, team] : teams_) count += team.movers.size();
    return count;
}

}  // namespace ucp::bulk
