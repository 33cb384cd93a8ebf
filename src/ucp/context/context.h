// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ucp/api/ucp.h"
#include "ucp/context/config.h"
#include "ucp/context/queue_pair_budget.h"
#include "ucp/mem/domain_set.h"
#include "ucs/sys/host.h"
#include "ucs/sys/time.h"
#include "uct/api/interface.h"
#include "uct/api/memory_domain.h"

namespace ucp {

// A transport on a device that the configuration admits.
struct TransportResource {
    std::string transport;
    std::string device;
    uct::DeviceType device_type;
    unsigned domain;  // index in Context::domains()
    uint32_t kind;    // hash of the transport's name, as in worker addresses
    bool auxiliary;   // admitted only to bring up dedicated lanes
    float distance;   // seconds from the process's CPUs to the device
};

// A transport on a device that is here and not used.
struct LeftOut {
    std::string transport;
    std::string device;
    const char* reason;
};

// What tests and the simulator replace: time, randomness, transports.
//
// Left as it is: the process's runtime and all components.
struct ContextSeams {
    const ucs::Clock* clock = nullptr;
    bool virtual_time = false;  // the clock moves only between progress calls: look every time
    std::optional<uint64_t> seed;
    std::optional<std::span<uct::Component* const>> components;
    // Of the process that the context belongs to; null: the one that runs, or one of its own if it
    // is given components.
    AdapterCounts* adapter_counts = nullptr;
};

// Configuration, devices and memory of one program.
class Context {
  public:
    // @return UCS_ERR_NO_DEVICE if the configuration leaves no transport
    static ucs_status_t create(const ucp_params_t& params, const Config& config,
                               const ContextSeams& seams, std::unique_ptr<Context>* context);
    ~Context();
    Context(const Context&) = delete;

    const Config& config() const { return config_; }
    DomainSet& domains() { return domains_; }
    const DomainSet& domains() const { return domains_; }
    // Of all its workers, and of the process.
    QueuePairBudget& queue_pair_budget() const { return *queue_pair_budget_; }
    std::span<const TransportResource> resources() const { return resources_; }
    std::span<const LeftOut> left_out() const { return left_out_; }
    const ucs::Clock& clock() const { return *clock_; }
    bool virtual_time() const { return virtual_time_; }

    uint64_t features() const { return features_; }
    bool has_feature(uint64_t feature) const { return (features_ & feature) != 0; }
    size_t user_request_size() const { return request_size_; }
    ucp_request_init_callback_t request_init() const { return request_init_; }
    ucp_request_cleanup_callback_t request_cleanup() const { return request_cleanup_; }
    size_t estimated_endpoints() const { return estimated_endpoints_; }
    const std::string& name() const { return name_; }
    // The program was compiled for this minor version of the interface (ucp_init_version).
    void set_interface_minor(unsigned minor) { interface_minor_ = minor; }
    // A kind of memory as the program means it: "unknown" has another value in older versions.
    ucs_memory_type_t memory_type_from_program(ucs_memory_type_t type) const {
        return type == unknown_memory() ? UCS_MEMORY_TYPE_UNKNOWN : type;
    }

    uint64_t draw_uuid();
    // Is this a child of the process that made it? What it registered is the parent's.
    bool is_inherited() const { return ucs::process_id() != process_; }

  private:
    Context() = default;
    // UCS_MEMORY_TYPE_UNKNOWN of the version that the program was compiled for.
    ucs_memory_type_t unknown_memory() const {
        if (interface_minor_ < 16) return UCS_MEMORY_TYPE_RDMA;
        if (interface_minor_ < 17) return UCS_MEMORY_TYPE_ZE_HOST;
        return interface_minor_ < 21 ? UCS_MEMORY_TYPE_GAUDI : UCS_MEMORY_TYPE_UNKNOWN;
    }
    ucs_status_t find_resources(const ContextSeams& seams);
    // @return the domain's index, or none if the device cannot be opened
    std::optional<unsigned> open_domain(uct::Component& component, const std::string& device);
    void drop_needless_auxiliaries();
    void measure_distances();
    // @param processes  that share the adapters
    void limit_queue_pairs(AdapterCounts& counts, size_t processes);
    ucs_status_t open_registration_cache();

    const uint32_t process_ = ucs::process_id();
    Config config_;
    std::unique_ptr<QueuePairBudget> queue_pair_budget_;
    DomainSet domains_;
    std::vector<TransportResource> resources_;
    std::vector<LeftOut> left_out_;
    const ucs::Clock* clock_ = nullptr;
    bool virtual_time_ = false;
    std::optional<uint64_t> seed_;
    uint64_t drawn_ = 0;
    uint64_t features_ = 0;
    size_t request_size_ = 0;
    ucp_request_init_callback_t request_init_ = nullptr;
    ucp_request_cleanup_callback_t request_cleanup_ = nullptr;
    size_t estimated_endpoints_ = 1;
    unsigned interface_minor_ = UCP_API_MINOR;
    std::string name_;
};

}  // namespace ucp
