// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/context/context.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <string_view>

#include "ucp/mem/device_memory.h"
#include "ucp/select/transport_names.h"
#include "ucp/select/worker_address.h"
#include "ucs/log/log.h"
#include "ucs/memory/detector.h"
#include "ucs/net/key_pair.h"
#include "ucs/runtime/runtime.h"
#include "ucs/sys/processors.h"
#include "ucs/sys/random.h"
#include "ucs/topo/topology.h"
#include "uct/api/module.h"

namespace ucp {
namespace {

constexpr size_t kMostResources = 250;  // what addresses can number

// Each complaint once in a process: programs make several contexts.
void warn_once(const std::vector<std::string>& texts) {
    static std::mutex mutex;
    static std::set<std::string> said;
    std::lock_guard lock(mutex);
    for (const std::string& text : texts) {
        if (said.insert(text).second) ucs::log_warn("{}", text);
    }
}

std::vector<std::string> prefixed(std::string_view prefix, std::vector<std::string> texts) {
    for (std::string& text : texts) text.insert(0, prefix);
    return texts;
}

// The lists of devices, by type.
struct DeviceRule {
    uct::DeviceType type;
    std::string_view variable;
    const ucs::config::AllowList Config::*list;
    const char* reason;
};
constexpr DeviceRule kDeviceRules[] = {
    {uct::DeviceType::kSelf, "UCX_SELF_DEVICES", &Config::self_devices,
     "UCX_SELF_DEVICES leaves it out"},
    {uct::DeviceType::kSharedMemory, "UCX_SHM_DEVICES", &Config::shared_memory_devices,
     "UCX_SHM_DEVICES leaves it out"},
    {uct::DeviceType::kNetwork, "UCX_NET_DEVICES", &Config::net_devices,
     "UCX_NET_DEVICES leaves it out"},
    {uct::DeviceType::kAccelerator, "UCX_ACC_DEVICES", &Config::accelerator_devices,
     "UCX_ACC_DEVICES leaves it out"},
};

const DeviceRule& rule_of(uct::DeviceType type) {
    return *std::ranges::find(kDeviceRules, type, &DeviceRule::type);
}

// What the user's lists name and nothing answers to.
void check_names(const Config& config, const std::vector<uct::Resource>& found) {
    std::vector<std::string_view> transports;
    transports.reserve(found.size());
    for (const uct::Resource& resource : found) transports.push_back(resource.transport);
    // Device memory goes beside the transports that carry messages: it has no resource.
    std::vector<uct::TransportDeclaration> known;
    if (ucs::MemoryDetectors::any()) {
        known = uct::known_transports();
        for (const uct::TransportDeclaration& transport : known) {
            if (transport.device_type == uct::DeviceType::kAccelerator)
                transports.push_back(transport.name);
        }
    }
    warn_once(prefixed("UCX_TLS: ", select::objections(config.transports, transports)));
    for (const DeviceRule& rule : kDeviceRules) {
        std::vector<std::string_view> devices;
        for (const uct::Resource& resource : found) {
            if (resource.device_type == rule.type) devices.push_back(resource.device);
        }
        warn_once(select::device_objections(rule.variable, config.*rule.list, devices));
    }
}

// An adapter without its port: the name that the system knows.
std::string_view adapter_of(std::string_view device) {
    return device.substr(0, device.rfind(':'));
}

// Queue pairs whose state an adapter keeps at hand. A connection takes about 375 bytes of it, and a
// ConnectX-5 has some 2 MiB for all that it keeps (Kalia, Kaminsky, Andersen: Datacenter RPCs can
// be General and Fast, NSDI 2019): these take three quarters of that.
constexpr size_t kAtHand = 4096;

// How many processes the launcher has started on this host; 0: it does not say.
size_t launched_on_host() {
    // Slurm's is a list for all hosts, "4(x2),3", which does not say which one this is: the
    // largest.
    for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "PMI_LOCAL_SIZE",
                             "SLURM_STEP_TASKS_PER_NODE"}) {
        const std::optional<std::string> value = ucs::runtime().environment->get(name);
        if (!value) continue;
        size_t most = 0;
        for (size_t begin = 0; begin < value->size();) {
            size_t number = 0;
            const char* const end = value->data() + value->size();
            const auto [rest, error] = std::from_chars(value->data() + begin, end, number);
            if (error == std::errc()) most = std::max(most, number);
            begin = value->find(',', static_cast<size_t>(rest - value->data()));
            if (begin == value->npos) break;
            ++begin;
        }
        if (most != 0) return most;
    }
    return 0;
}

}  // namespace

ucs_status_t Context::create(const ucp_params_t& params, const Config& config,
                             const ContextSeams& seams, std::unique_ptr<Context>* context) {
    const auto has = [&](uint64_t field) { return (params.field_mask & field) != 0; };
    if (!has(UCP_PARAM_FIELD_FEATURES)) return UCS_ERR_INVALID_PARAM;
    if (!ucs::net::can_authenticate()) {
        ucs::log_error(
            "OpenSSL, by which workers prove who they are, does not work in this process: it found "
            "no memory when it was first used, or has no X25519 and HMAC-SHA256");
        return UCS_ERR_NO_MEMORY;
    }

    std::unique_ptr<Context> made(new Context());
    made->config_ = config;
    made->queue_pair_budget_ =
        std::make_unique<QueuePairBudget>(config.max_dedicated_qps.value_or(UINT32_MAX));
    made->clock_ = seams.clock != nullptr ? seams.clock : ucs::runtime().clock;
    made->virtual_time_ = seams.virtual_time;
    made->seed_ = seams.seed;
    made->features_ = params.features;
    if (has(UCP_PARAM_FIELD_REQUEST_SIZE)) made->request_size_ = params.request_size;
    if (has(UCP_PARAM_FIELD_REQUEST_INIT)) made->request_init_ = params.request_init;
    if (has(UCP_PARAM_FIELD_REQUEST_CLEANUP)) made->request_cleanup_ = params.request_cleanup;
    if (has(UCP_PARAM_FIELD_ESTIMATED_NUM_EPS)) {
        made->estimated_endpoints_ = std::max<size_t>(params.estimated_num_eps, 1);
    }
    if (config.estimated_endpoints) {
        made->estimated_endpoints_ = *config.estimated_endpoints;
    }
    if (has(UCP_PARAM_FIELD_NAME) && params.name != nullptr) made->name_ = params.name;
    if (made->name_.empty()) made->name_ = "swiftlane";
    size_t processes = config.processes_on_host.value_or(0);
    if (processes == 0 && has(UCP_PARAM_FIELD_ESTIMATED_NUM_PPN))
        processes = params.estimated_num_ppn;
    if (processes == 0 && !seams.virtual_time) processes = launched_on_host();
    made->domains_.set_options(
        {.is_shared = has(UCP_PARAM_FIELD_MT_WORKERS_SHARED) && params.mt_workers_shared != 0,
         .exports_memory = made->has_feature(UCP_FEATURE_EXPORTED_MEMH),
         .identity = made->draw_uuid()});

    ucs_status_t status = made->find_resources(seams);
    if (status == UCS_OK) status = made->open_registration_cache();
    if (status != UCS_OK) return status;
    AdapterCounts counts;  // may go: the limits keep their counts
    AdapterCounts* shared = seams.adapter_counts;
    if (shared == nullptr) shared = seams.components ? &counts : &AdapterCounts::own();
    made->limit_queue_pairs(*shared, std::max<size_t>(processes, 1));
    open_device_memory(config.memory_events);
    *context = std::move(made);
    return UCS_OK;
}

Context::~Context() = default;

std::optional<unsigned> Context::open_domain(uct::Component& component, const std::string& device) {
    const auto known = std::ranges::find_if(domains_.list(), [&](const Domain& domain) {
        return domain.component == &component && domain.device == device;
    });
    if (known != domains_.list().end())
        return static_cast<unsigned>(known - domains_.list().begin());
    std::unique_ptr<uct::MemoryDomain> memory;
    const ucs_status_t status = component.open_domain(device, &memory);
    if (status != UCS_OK) {
        ucs::log_warn("device {} of {} cannot be opened: {}", device, component.name(),
                      ucs_status_string(status));
        return std::nullopt;
    }
    domains_.list().push_back({&component, device, std::move(memory), kind_of(component.name())});
    return static_cast<unsigned>(domains_.size() - 1);
}

ucs_status_t Context::find_resources(const ContextSeams& seams) {
    const auto components = seams.components ? *seams.components : uct::components();
    std::vector<uct::Resource> found;
    for (uct::Component* component : components) {
        for (const uct::Resource& resource : component->resources()) {
            found.push_back(resource);
            const DeviceRule& rule = rule_of(resource.device_type);
            const auto permission = select::permission(config_.transports, resource.transport);
            const auto leave_out = [&](const char* reason) {
                left_out_.push_back({resource.transport, resource.device, reason});
            };
            if (permission == select::Permission::kNo) {
                leave_out("UCX_TLS leaves it out");
                continue;
            }
            if (!select::allows_device(config_.*rule.list, resource.device)) {
                leave_out(rule.reason);
                continue;
            }
            const std::optional<unsigned> domain = open_domain(*component, resource.device);
            if (!domain) {
                leave_out("the device cannot be opened");
                continue;
            }
            resources_.push_back({.transport = resource.transport,
                                  .device = resource.device,
                                  .device_type = resource.device_type,
                                  .domain = *domain,
                                  .kind = kind_of(resource.transport),
                                  .auxiliary = permission == select::Permission::kAuxiliary,
                                  .distance = 0});
        }
    }
    check_names(config_, found);
    drop_needless_auxiliaries();
    if (resources_.empty() || domains_.size() > kMostResources ||
        resources_.size() > kMostResources) {
        ucs::log_error(
            "no transport is left: check UCX_TLS and UCX_NET_DEVICES, and that the "
            "modules are found (UCX_MODULE_DIR)");
        return UCS_ERR_NO_DEVICE;
    }
    measure_distances();
    return UCS_OK;
}

ucs_status_t Context::open_registration_cache() {
    using ucs::config::Ternary;
    if (config_.registration_cache == Ternary::kNo) return UCS_OK;
    if (domains_.open_cache({.regions = config_.cached_regions, .bytes = config_.cached_bytes},
                            config_.memory_events))
        return UCS_OK;
    if (config_.registration_cache == Ternary::kYes) {
        ucs::log_error(
            "UCX_RCACHE_ENABLE=y: registrations cannot be kept, as nothing tells when memory is "
            "unmapped");
        return UCS_ERR_UNSUPPORTED;
    }
    ucs::log_info("no memory events: every transfer registers its memory anew");
    return UCS_OK;
}

// An auxiliary transport stays where nothing else brings up dedicated lanes; one for a device.
void Context::drop_needless_auxiliaries() {
    const auto declaration_of = [&](const TransportResource& resource) {
        const auto declared = domains_[resource.domain].component->transports();
        return std::ranges::find(declared, resource.transport, &uct::TransportDeclaration::name);
    };
    const auto is_needless = [&](const TransportResource& resource) {
        if (!resource.auxiliary) return false;
        bool has_use = false;
        for (const TransportResource& other : resources_) {
            if (other.domain != resource.domain) continue;
            const auto declared = declaration_of(other);
            has_use |= declared->reach == uct::Reach::kEndpoint;
            const bool is_better = !other.auxiliary || declared > declaration_of(resource);
            if (!declared->auxiliary_for.empty() && is_better) return true;
        }
        return !has_use;
    };
    std::vector<TransportResource> kept;
    bool is_dedicated = false;
    for (const TransportResource& resource : resources_) {
        if (is_needless(resource)) {
            left_out_.push_back({resource.transport, resource.device, "UCX_TLS leaves it out"});
            continue;
        }
        is_dedicated |= resource.auxiliary;
        kept.push_back(resource);
    }
    resources_ = std::move(kept);
    // Who asks for rc and no scalable transport means rc for every peer, as in UCX.
    if (is_dedicated && config_.lanes == LaneMode::kDynamic) config_.lanes = LaneMode::kDedicated;
}

void Context::measure_distances() {
    if (!config_.prefer_nearest) return;
    std::set<std::string_view> adapters;
    for (const TransportResource& resource : resources_) {
        if (resource.device_type != uct::DeviceType::kNetwork) continue;
        adapters.insert(adapter_of(resource.device));
    }
    // Looking at the machine takes milliseconds of each rank's start.
    if (adapters.size() < 2) return;
    const ucs::topo::Topology* topology = ucs::topo::Topology::machine();
    if (topology == nullptr) {
        ucs::log_debug("the machine's topology cannot be found out: all adapters are equally near");
        return;
    }
    const std::vector<unsigned> cpus = ucs::allowed_cpus();
    for (TransportResource& resource : resources_) {
        if (resource.device_type != uct::DeviceType::kNetwork) continue;
        resource.distance =
            static_cast<float>(topology->distance(adapter_of(resource.device), cpus));
    }
}

void Context::limit_queue_pairs(AdapterCounts& counts, size_t processes) {
    // Whoever wants a lane to each peer has them.
    if (config_.lanes == LaneMode::kDedicated && !config_.max_adapter_qps) return;
    for (unsigned index = 0; index < domains_.size(); ++index) {
        const Domain& domain = domains_[index];
        const size_t room = domain.memory->attributes().max_dedicated;
        if (room == SIZE_MAX) continue;
        const size_t most = std::min<size_t>(config_.max_adapter_qps.value_or(kAtHand), room);
        const auto part = static_cast<uint32_t>(std::max<size_t>(most / processes, 1));
        const std::string adapter(adapter_of(domain.device));
        queue_pair_budget_->limit(index, counts.find_or_make(adapter), part);
        ucs::log_debug("{}: {} queue pairs at most for lanes and bulk, as {} processes share {}",
                       adapter, part, processes, most);
    }
}

uint64_t Context::draw_uuid() {
    for (;;) {
        const uint64_t drawn =
            seed_ ? ucs::mix64(*seed_ + ++drawn_ * 0x9e3779b97f4a7c15u) : ucs::unique_id();
        if (drawn != 0) return drawn;
    }
}

}  // namespace ucp
