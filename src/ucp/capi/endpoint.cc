// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>
#include <span>

#include <cinttypes>

#include "ucp/api/ucp.h"
#include "ucp/base/handles.h"
#include "ucp/capi/compat.h"
#include "ucp/endpoint/extras.h"
#include "ucp/endpoint/flush.h"
#include "ucp/lanes/driver/lane_driver.h"
#include "ucp/wireup/connection.h"
#include "ucp/worker/worker.h"
#include "ucs/log/log.h"

using namespace ucp;

namespace ucp {
namespace {

ucs_status_ptr_t flush(Endpoint& endpoint, const OpParams& params) {
    if (endpoint.is_failed()) return UCS_STATUS_PTR(endpoint.status());
    if (endpoint.is_flushed() && !params.has(UCP_OP_ATTR_FLAG_NO_IMM_CMPL)) {
        worker_of(endpoint).lanes().nothing_to_flush();
        return nullptr;
    }
    Request* request = endpoint.requests().begin(params, Request::CallbackKind::kSend);
    if (request == nullptr) return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
    make_flush(*request, endpoint);
    ++endpoint.host().flushes;
    return endpoint.submit(*request, params);
}

}  // namespace
}  // namespace ucp

ucs_status_t ucp_ep_create(ucp_worker_h worker_h, const ucp_ep_params_t* params, ucp_ep_h* ep_p) {
    return locked(worker_h, [&](Worker& worker) {
        Endpoint* endpoint = nullptr;
        const ucs_status_t status = worker.create_endpoint(*params, &endpoint);
        if (status == UCS_OK) *ep_p = wrap(endpoint);
        return status;
    });
}

ucs_status_ptr_t ucp_ep_close_nbx(ucp_ep_h ep, const ucp_request_param_t* param) try {
    Endpoint& endpoint = unwrap(ep);
    if (worker_of(endpoint).is_inherited()) return nullptr;
    GateLock lock(endpoint.gate());
    const OpParams params(param);
    return worker_of(endpoint).close_endpoint(endpoint, params.flags(), params);
} catch (const std::bad_alloc&) {
    return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
}

ucs_status_ptr_t ucp_ep_close_nb(ucp_ep_h ep, unsigned mode) {
    const unsigned flags = mode == UCP_EP_CLOSE_MODE_FORCE ? unsigned{UCP_EP_CLOSE_FLAG_FORCE} : 0;
    return ucp_ep_close_nbx(ep, OldParams().flags(flags).get());
}

void ucp_ep_destroy(ucp_ep_h ep) {
    Worker& worker = worker_of(unwrap(ep));
    if (worker.is_inherited()) return;
    GateLock lock(worker.gate());
    wait_for(worker, worker.close_endpoint(unwrap(ep), 0, OpParams(OldParams().get())));
}

ucs_status_ptr_t ucp_disconnect_nb(ucp_ep_h ep) {
    return ucp_ep_close_nbx(ep, OldParams().get());
}

ucs_status_ptr_t ucp_ep_modify_nb(ucp_ep_h ep, const ucp_ep_params_t* params) {
    return locked(ep, [&](Endpoint& endpoint) { return UCS_STATUS_PTR(endpoint.modify(*params)); });
}

ucs_status_ptr_t ucp_ep_flush_nbx(ucp_ep_h ep, const ucp_request_param_t* param) {
    return locked(ep, [&](Endpoint& endpoint) { return flush(endpoint, OpParams(param)); });
}

ucs_status_ptr_t ucp_ep_flush_nb(ucp_ep_h ep, unsigned, ucp_send_callback_t cb) {
    return ucp_ep_flush_nbx(ep, OldParams().send_callback(cb).get());
}

ucs_status_t ucp_ep_flush(ucp_ep_h ep) {
    return locked(ep, [&](Endpoint& endpoint) {
        return wait_for(worker_of(endpoint), flush(endpoint, OpParams(OldParams().get())));
    });
}

ucs_status_t ucp_ep_query(ucp_ep_h ep, ucp_ep_attr_t* attr) {
    const auto wants = wanted_of(attr);
    Endpoint& endpoint = unwrap(ep);
    GateLock lock(endpoint.gate());
    const EndpointExtras* extras = endpoint.extras();
    constexpr uint64_t kSocketFields =
        UCP_EP_ATTR_FIELD_LOCAL_SOCKADDR | UCP_EP_ATTR_FIELD_REMOTE_SOCKADDR;
    if (wants(kSocketFields)) {
        if (extras == nullptr || extras->connection == nullptr) return UCS_ERR_NOT_CONNECTED;
        const auto& connection = static_cast<const wireup::Connection&>(*extras->connection);
        if (wants(UCP_EP_ATTR_FIELD_LOCAL_SOCKADDR))
            attr->local_sockaddr = connection.local().storage();
        if (wants(UCP_EP_ATTR_FIELD_REMOTE_SOCKADDR))
            attr->remote_sockaddr = connection.peer().storage();
    }
    if (wants(UCP_EP_ATTR_FIELD_NAME)) {
        if (extras != nullptr && !extras->name.empty()) {
            snprintf(attr->name, sizeof(attr->name), "%s", extras->name.c_str());
        } else {
            snprintf(attr->name, sizeof(attr->name), "%016llx",
                     static_cast<unsigned long long>(endpoint.remote_uuid()));
        }
    }
    if (wants(UCP_EP_ATTR_FIELD_TRANSPORTS)) {
        ucp_transports_t& out = attr->transports;
        unsigned filled = 0;
        const Lane lanes[] = {endpoint.scalable_lane(), endpoint.one_sided_lane()};
        const bool has_both = &lanes[0].endpoint != &lanes[1].endpoint;
        for (const Lane& lane : std::span(lanes).first(has_both ? 2 : 1)) {
            if (filled < out.num_entries) {
                const auto& attributes = lane.attributes;
                const ucp_transport_entry_t entry{attributes.transport.c_str(),
                                                  attributes.device.c_str()};
                std::memcpy(reinterpret_cast<char*>(out.entries) + filled * out.entry_size, &entry,
                            std::min(out.entry_size, sizeof(entry)));
            }
            ++filled;
        }
        out.num_entries = std::min(filled, out.num_entries);
    }
    if (wants(UCP_EP_ATTR_FIELD_USER_DATA)) attr->user_data = endpoint.user_argument();
    return UCS_OK;
}

ucs_status_t ucp_ep_evaluate_perf(ucp_ep_h ep, const ucp_ep_evaluate_perf_param_t* param,
                                  ucp_ep_evaluate_perf_attr_t* attr) {
    Endpoint& endpoint = unwrap(ep);
    GateLock lock(endpoint.gate());
    if ((param->field_mask & UCP_EP_PERF_PARAM_FIELD_MESSAGE_SIZE) == 0) {
        return UCS_ERR_INVALID_PARAM;
    }
    if ((attr->field_mask & UCP_EP_PERF_ATTR_FIELD_ESTIMATED_TIME) != 0) {
        const auto& lane = endpoint.one_sided_lane().attributes;
        attr->estimated_time = lane.overhead + lane.latency.at(1);
        if (lane.bandwidth > 0) {
            attr->estimated_time += static_cast<double>(param->message_size) / lane.bandwidth;
        }
    }
    return UCS_OK;
}

namespace {

// Runtimes look for names in this text.
void print_info(const Endpoint& endpoint, FILE* stream) {
    const LaneDriver& lanes = worker_of(endpoint).lanes();
    fprintf(stream, "#\n# Swiftlane endpoint to worker %016" PRIx64 "\n#\n",
            endpoint.remote_uuid());
    const auto& scalable = endpoint.scalable_lane().attributes;
    fprintf(stream, "#     scalable lane: %s/%s\n", scalable.transport.c_str(),
            scalable.device.c_str());
    if (endpoint.lane_state() != nullptr) {
        const auto& dedicated = endpoint.dedicated_lane().attributes;
        fprintf(stream, "#     dedicated lane: %s/%s\n", dedicated.transport.c_str(),
                dedicated.device.c_str());
    }
    fprintf(stream, "#\n%s#\n", endpoint.configuration().describe("#     ").c_str());
    const char* promotion = "yes";
    if (endpoint.is_stranger()) {
        promotion = "no: the two ends have no key (UCX_TCP_JOB_KEY) and do not agree on lanes";
    } else if (!endpoint.is_promotable()) {
        promotion = "no: the two ends have nothing dedicated in common on these devices";
    } else if (!endpoint.is_primary()) {
        promotion = "no: another endpoint to the same worker takes part";
    } else if (!lanes.is_adaptive(endpoint)) {
        promotion = "no: lane switching is off (UCX_LANES, UCX_MAX_PRIORITY_EPS)";
    }
    fprintf(stream, "#     a dedicated lane when hot: %s\n", promotion);
    if (lanes.keeps_lane_to(endpoint.remote_uuid()))
        fprintf(stream, "#     a dedicated lane is kept from before\n");
    const lanes::Link* link = lanes.link_of(endpoint);
    if (link != nullptr) {
        fprintf(stream, "#     link: %s (%s), score %" PRIu64 "\n", lanes::name(link->state),
                lanes::name(link->reason), link->score());
    }
    if (endpoint.short_limit() >= 0) {
        fprintf(stream, "#     short messages: up to %td bytes\n#\n", endpoint.short_limit());
    } else {
        fprintf(stream, "#     short messages: none at the moment\n#\n");
    }
}

}  // namespace

void ucp_ep_print_info(ucp_ep_h ep, FILE* stream) {
    Endpoint& endpoint = unwrap(ep);
    GateLock lock(endpoint.gate());
    print_info(endpoint, stream);
}
