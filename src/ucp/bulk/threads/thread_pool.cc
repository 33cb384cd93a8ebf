// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/threads/thread_pool.h"

#include <algorithm>

#include "ucp/bulk/threads/bulk_thread.h"
#include "ucs/log/log.h"
#include "ucs/sys/processors.h"
#include "ucs/sys/random.h"
#include "ucs/topo/topology.h"

namespace ucp::bulk {
namespace {

// Where the threads of a device run: near it, as far as the program may, and where the calling
// thread does not, if that has been bound since the pool was made.
std::vector<unsigned> cpus_for(const std::string& device, const std::vector<unsigned>& allowed) {
    std::vector<unsigned> cpus;
    if (const ucs::topo::Topology* topology = ucs::topo::Topology::machine()) {
        cpus = topology->cpus_near(device.substr(0, device.find(':')));
        std::erase_if(
            cpus, [&](unsigned cpu) { return std::ranges::find(allowed, cpu) == allowed.end(); });
    }
    return ucs::beside_caller(cpus.empty() ? allowed : cpus);
}

}  // namespace

ThreadPool::ThreadPool(DeferredWork& work, const InterfaceSet& interfaces, Context& context,
                       uint64_t seed, const Rules& rules)
    : events(work),
      interfaces_(interfaces),
      context_(context),
      random_(seed),
      rules_(rules),
      allowed_cpus_(ucs::allowed_cpus()) {
    for (unsigned index = 0; index < rules.shards; ++index) {
        shards_.push_back(std::make_unique<Shard>());
    }
}

ThreadPool::~ThreadPool() = default;

ThreadPool::DeviceThreads& ThreadPool::threads_of(unsigned interface) {
    const auto [entry, is_new] = devices_.try_emplace(interface);
    DeviceThreads& device = entry->second;
    if (!is_new) return device;
    Context& context = context_;
    const TransportResource& resource = context.resources()[interfaces_[interface].resource];
    uct::MemoryDomain& domain = *context.domains()[resource.domain].memory;
    BulkThread::Params params{context.clock(),
                              events,
                              rules_,
                              counters_,
                              cpus_for(resource.device, allowed_cpus_),
                              0,
                              context.estimated_endpoints()};
    DomainLock lock(context.domains());
    while (device.threads.size() < rules_.threads) {
        params.seed = random_();
        std::unique_ptr<BulkThread> thread;
        const ucs_status_t status = BulkThread::start(params, domain, resource.transport, &thread);
        if (status != UCS_OK) {
            ucs::log_warn("{} on {}: {} threads for bulk transfers instead of {}: {}",
                          resource.transport, resource.device, device.threads.size(),
                          rules_.threads, ucs_status_string(status));
            break;
        }
        device.threads.push_back(std::move(thread));
    }
    ucs::log_debug("{} on {}: {} threads for bulk transfers", resource.transport, resource.device,
                   device.threads.size());
    return device;
}

ucs_status_t ThreadPool::make_queue_pair(unsigned interface,
                                         std::unique_ptr<uct::Endpoint>* proxy) {
    DeviceThreads& device = threads_of(interface);
    if (device.threads.empty()) return UCS_ERR_UNSUPPORTED;
    BulkThread& thread = *device.threads[device.next++ % device.threads.size()];
    std::shared_ptr<ThreadQueuePair> queue_pair;
    const ucs_status_t status = thread.make_queue_pair(&queue_pair);
    if (status == UCS_OK) *proxy = std::make_unique<QueuePairProxy>(std::move(queue_pair));
    return status;
}

Shard& ThreadPool::shard_of(const Endpoint& endpoint) {
    return *shards_[ucs::mix64(endpoint.serial()) % shards_.size()];
}

size_t ThreadPool::threads() const {
    size_t count = 0;
    for (const auto& [interface, device] : devices_) count += device.threads.size();
    return count;
}

}  // namespace ucp::bulk
