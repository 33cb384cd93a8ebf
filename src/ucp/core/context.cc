// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/core/context.h"

#include <algorithm>
#include <string_view>

#include "ucp/core/address.h"
#include "ucs/log.h"
#include "ucs/random.h"
#include "ucs/runtime.h"
#include "uct/api/module.h"

namespace ucp {
namespace {

/** Does a name or group of UCX_TLS mean this transport? */
bool means(std::string_view word, std::string_view transport) {
    if (word == transport) return true;
    const bool is_rc = transport.starts_with("rc_");
    const bool is_dc = transport.starts_with("dc_");
    const bool is_ud = transport.starts_with("ud_");
    if (word == "ib") return is_rc || is_dc || is_ud;
    if (word == "rc") return is_rc;
    if (word == "dc") return is_dc;
    if (word == "ud") return is_ud;
    if (word == "rc_x") return transport == "rc_mlx5";
    if (word == "rc_v") return transport == "rc_verbs";
    if (word == "dc_x") return transport == "dc_mlx5";
    if (word == "loopback") return transport == "self";
    if (word == "sm" || word == "shm") return transport.starts_with("sm");
    return false;
}

bool admits(const ucs::config::AllowList& list, std::string_view transport) {
    const bool named = std::any_of(list.names.begin(), list.names.end(),
                                   [&](const auto& word) { return means(word, transport); });
    return named != list.negated;
}

}  // namespace

ucs_status_t Context::create(const ucp_params_t& params, const Config& config,
                             const ContextSeams& seams, std::unique_ptr<Context>* context) {
    const auto has = [&](uint64_t field) { return (params.field_mask & field) != 0; };
    if (!has(UCP_PARAM_FIELD_FEATURES)) return UCS_ERR_INVALID_PARAM;

    std::unique_ptr<Context> made(new Context());
    made->config_ = config;
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
    if (has(UCP_PARAM_FIELD_MT_WORKERS_SHARED)) {
        made->mt_workers_shared_ = params.mt_workers_shared != 0;
    }
    if (has(UCP_PARAM_FIELD_NAME) && params.name != nullptr) made->name_ = params.name;
    if (made->name_.empty()) made->name_ = "swiftlane";
    made->regions_ = RegionTable(made->draw_uuid());

    const ucs_status_t status = made->find_resources(seams);
    if (status != UCS_OK) return status;
    *context = std::move(made);
    return UCS_OK;
}

Context::~Context() = default;

ucs_status_t Context::find_resources(const ContextSeams& seams) {
    const auto components = seams.components ? *seams.components : uct::components();
    bool scalable_possible = false;
    for (uct::Component* component : components) {
        for (const uct::Resource& resource : component->resources()) {
            if (!admits(config_.transports, resource.transport)) continue;
            if (resource.device_type == uct::DeviceType::kNetwork &&
                !config_.net_devices.allows(resource.device)) {
                continue;
            }
            auto domain = std::find_if(domains_.begin(), domains_.end(), [&](const Domain& known) {
                return known.component == component && known.device == resource.device;
            });
            if (domain == domains_.end()) {
                std::unique_ptr<uct::MemoryDomain> memory;
                const ucs_status_t status = component->open_domain(resource.device, &memory);
                if (status != UCS_OK) {
                    ucs::log_warn("device {} of {} cannot be opened: {}", resource.device,
                                  component->name(), ucs_status_string(status));
                    continue;
                }
                domains_.push_back(
                    {component, resource.device, std::move(memory), kind_of(component->name())});
                domain = std::prev(domains_.end());
            }
            resources_.push_back({resource.transport, resource.device, resource.device_type,
                                  static_cast<unsigned>(domain - domains_.begin()),
                                  kind_of(resource.transport)});
            scalable_possible = true;
        }
    }
    if (!scalable_possible || domains_.size() > 255 || resources_.size() > 255) {
        ucs::log_error(
            "no transport is left: check UCX_TLS and UCX_NET_DEVICES, and that the "
            "modules are found (UCX_MODULE_DIR)");
        return UCS_ERR_NO_DEVICE;
    }
    return UCS_OK;
}

uint64_t Context::draw_uuid() {
    for (;;) {
        const uint64_t drawn =
            seed_ ? ucs::mix64(*seed_ + ++drawn_ * 0x9e3779b97f4a7c15u) : ucs::unique_id();
        if (drawn != 0) return drawn;
    }
}

}  // namespace ucp
