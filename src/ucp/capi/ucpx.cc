// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <optional>
#include <span>
#include <vector>

#include "ucp/api/ucpx.h"
#include "ucp/base/handles.h"
#include "ucp/bulk/batch/batch.h"
#include "ucp/bulk/queue_pairs/queue_pair_driver.h"
#include "ucp/capi/compat.h"
#include "ucp/lanes/driver/lane_driver.h"
#include "ucp/worker/worker.h"

using namespace ucp;

namespace {

// Copy an entry to an array of the caller's, whose entries may be smaller than ours.
template <typename Array, typename Entry>
void put_entry(Array& array, unsigned index, const Entry& entry) {
    if (index >= array.num_entries || array.entries == nullptr) return;
    std::memcpy(reinterpret_cast<char*>(array.entries) + index * array.entry_size, &entry,
                std::min(array.entry_size, sizeof(entry)));
}

unsigned fill_lanes(Endpoint& endpoint, ucpx_lanes_t& out) {
    constexpr unsigned kOneSided = UCPX_LANE_ROLE_RMA | UCPX_LANE_ROLE_AMO | UCPX_LANE_ROLE_BULK;
    Worker& worker = worker_of(endpoint);
    const bool one_sided_dedicated = &endpoint.one_sided_lane().endpoint != endpoint.scalable();
    const LaneState* state = endpoint.lane_state();
    const bool am_dedicated = state != nullptr && state->direction != nullptr &&
                              state->direction->tx.lane() == lanes::LaneKind::kDedicated;
    const auto entry_of = [&](unsigned index, ucpx_lane_kind_t kind, unsigned roles) {
        const auto& attributes = worker.interfaces().attributes(index);
        return ucpx_lane_t{attributes.transport.c_str(), attributes.device.c_str(), kind, roles};
    };
    put_entry(out, 0,
              entry_of(endpoint.scalable_index(), UCPX_LANE_KIND_SCALABLE,
                       UCPX_LANE_ROLE_CONTROL | (am_dedicated ? 0u : unsigned{UCPX_LANE_ROLE_AM}) |
                           (one_sided_dedicated ? 0u : kOneSided)));
    if (state == nullptr) return 1;
    put_entry(out, 1,
              entry_of(state->interface_index, UCPX_LANE_KIND_DEDICATED,
                       (am_dedicated ? unsigned{UCPX_LANE_ROLE_AM} : 0u) |
                           (one_sided_dedicated ? kOneSided : 0u)));
    unsigned count = 2;
    worker.bulk_queue_pairs().for_each(endpoint, [&](unsigned interface) {
        put_entry(out, count++, entry_of(interface, UCPX_LANE_KIND_DEDICATED, UCPX_LANE_ROLE_BULK));
    });
    return count;
}

}  // namespace

ucs_status_t ucpx_ep_query(ucp_ep_h ep, ucpx_ep_attr_t* attr) {
    Endpoint& endpoint = unwrap(ep);
    Worker& worker = worker_of(endpoint);
    GateLock lock(worker.gate());
    LaneDriver& driver = worker.lanes();
    const lanes::Link* found = driver.link_of(endpoint);
    const lanes::Link none;
    const lanes::Link& link = found != nullptr ? *found : none;
    const auto wants = wanted_of(attr);
    if (wants(UCPX_EP_ATTR_FIELD_PEER_UID)) attr->peer_uid = endpoint.remote_uuid();
    if (wants(UCPX_EP_ATTR_FIELD_ADAPTIVE)) attr->adaptive = driver.is_adaptive(endpoint) ? 1 : 0;
    if (wants(UCPX_EP_ATTR_FIELD_STATE)) {
        attr->state = static_cast<ucpx_lane_state_t>(link.state);
        attr->reason = static_cast<ucpx_lane_reason_t>(link.reason);
        const auto now = static_cast<lanes::Time>(worker.now().time_since_epoch().count());
        attr->state_age = found != nullptr ? static_cast<double>(now - link.since) * 1e-9 : 0;
    }
    if (wants(UCPX_EP_ATTR_FIELD_POLICY)) {
        attr->policy = static_cast<ucpx_lane_policy_t>(link.policy);
    }
    if (wants(UCPX_EP_ATTR_FIELD_SCORES)) {
        attr->local_score = link.local;
        attr->advertised_score = link.advertised;
        attr->remote_score = link.remote;
        attr->agreed_score = link.score();
    }
    if (wants(UCPX_EP_ATTR_FIELD_COUNTERS)) {
        attr->promotions = link.promotions;
        attr->demotions = link.demotions;
        attr->denials = link.denials;
    }
    if (wants(UCPX_EP_ATTR_FIELD_LANES)) {
        if (attr->lanes.entry_size == 0) return UCS_ERR_INVALID_PARAM;
        attr->lanes.num_entries = fill_lanes(endpoint, attr->lanes);
    }
    return UCS_OK;
}

ucs_status_t ucpx_ep_lanes_request(ucp_ep_h ep, ucpx_lane_policy_t policy) {
    return locked(ep, [&](Endpoint& endpoint) {
        if (policy < UCPX_LANE_POLICY_AUTO || policy >= UCPX_LANE_POLICY_LAST) {
            return UCS_ERR_INVALID_PARAM;
        }
        return worker_of(endpoint).lanes().set_policy(endpoint, static_cast<lanes::Policy>(policy));
    });
}

ucs_status_t ucpx_ep_lanes_weight(ucp_ep_h ep, double weight) {
    return locked(ep, [&](Endpoint& endpoint) {
        if (!(weight >= 0 && weight <= UCPX_LANE_MAX_WEIGHT)) return UCS_ERR_INVALID_PARAM;
        return worker_of(endpoint).lanes().set_weight(endpoint, weight);
    });
}

ucs_status_t ucpx_worker_query(ucp_worker_h worker_h, ucpx_worker_attr_t* attr) try {
    Worker& worker = unwrap(worker_h);
    GateLock lock(worker.gate());
    LaneDriver& driver = worker.lanes();
    const lanes::Negotiator& negotiator = driver.negotiator();
    const lanes::Counters& counters = negotiator.counters();
    const auto wants = wanted_of(attr);
    if (wants(UCPX_WORKER_ATTR_FIELD_UID)) attr->uid = worker.uuid();
    if (wants(UCPX_WORKER_ATTR_FIELD_SLOTS)) {
        attr->cap = negotiator.config().cap + negotiator.config().host_cap;
        attr->dedicated = negotiator.held();
        attr->dedicated_peak = driver.peak_held();
        attr->established = static_cast<unsigned>(std::count_if(
            negotiator.links().begin(), negotiator.links().end(), [](const auto& entry) {
                return entry.second.state == lanes::LinkState::kEstablished;
            }));
    }
    if (wants(UCPX_WORKER_ATTR_FIELD_SWITCHES)) {
        attr->promotions = counters.promotions;
        attr->demotions = counters.demotions;
        attr->replays = driver.replays();
        attr->held = driver.held_messages();
    }
    if (wants(UCPX_WORKER_ATTR_FIELD_NEGOTIATION)) {
        attr->requests = counters.requests;
        attr->denials_sent = counters.denials_sent;
        attr->denials_received = counters.denials_received;
        attr->deferrals = counters.deferrals;
        attr->withdrawals = counters.withdrawals;
        attr->pings = counters.pings;
        attr->failures = counters.failures;
        attr->violations = counters.violations;
    }
    if (wants(UCPX_WORKER_ATTR_FIELD_TRACKER)) {
        const ucs::UsageTracker* tracker = driver.tracker();
        attr->tracker_interval = tracker != nullptr ? ucs::seconds(tracker->options().interval)
                                                    : std::numeric_limits<double>::infinity();
        attr->tracker_windows = driver.windows();
        attr->tracker_samples = tracker != nullptr ? tracker->samples() : 0;
        attr->tracker_memory = tracker != nullptr ? tracker->memory_bytes() : 0;
    }
    if (wants(UCPX_WORKER_ATTR_FIELD_KEPT)) {
        attr->lanes_reused = counters.reused;
        attr->kept = static_cast<unsigned>(negotiator.kept());
    }
    if (wants(UCPX_WORKER_ATTR_FIELD_IDLE)) {
        const ucs::Time deadline = worker.next_deadline();
        attr->idle = deadline == ucs::kNever
                         ? INT64_MAX
                         : std::max<int64_t>((deadline - worker.now()).count(), 0);
    }
    if (wants(UCPX_WORKER_ATTR_FIELD_ADMISSION))
        attr->admission_score = negotiator.admission(lanes::Pool::kDevice);
    if (wants(UCPX_WORKER_ATTR_FIELD_LINKS)) {
        if (attr->links.entry_size == 0) return UCS_ERR_INVALID_PARAM;
        std::vector<const lanes::Link*> links;
        for (const auto& [peer, link] : negotiator.links()) {
            if (driver.endpoint_of(peer) != nullptr) links.push_back(&link);
        }
        std::sort(links.begin(), links.end(),
                  [](const auto* a, const auto* b) { return a->rank() > b->rank(); });
        for (unsigned index = 0; index < links.size(); ++index) {
            Endpoint& endpoint = *driver.endpoint_of(links[index]->peer);
            const ucpx_link_t entry{endpoint.remote_uuid(),
                                    endpoint.is_users() ? wrap(&endpoint) : nullptr,
                                    static_cast<ucpx_lane_state_t>(links[index]->state),
                                    static_cast<ucpx_lane_reason_t>(links[index]->reason),
                                    links[index]->advertised,
                                    links[index]->remote};
            put_entry(attr->links, index, entry);
        }
        attr->links.num_entries = static_cast<unsigned>(links.size());
    }
    return UCS_OK;
} catch (const std::bad_alloc&) {
    return UCS_ERR_NO_MEMORY;
}

ucs_status_t ucpx_worker_set_lane_callback(ucp_worker_h worker_h, ucpx_lane_callback_t cb,
                                           void* arg) {
    Worker& worker = unwrap(worker_h);
    GateLock lock(worker.gate());
    worker.lanes().set_callback(cb, arg);
    return UCS_OK;
}

// --- why lanes are what they are ---

ucs_status_t ucpx_worker_explain(ucp_worker_h worker_h, const ucp_address_t* address, size_t length,
                                 unsigned flags, FILE* stream) {
    return locked(worker_h, [&](Worker& worker) {
        WorkerAddress peer;
        const ucs_status_t status =
            unpack_address({reinterpret_cast<const std::byte*>(address), length}, &peer);
        if (status != UCS_OK) return status;
        if ((flags & UCPX_EXPLAIN_FLAG_OTHER_HOST) != 0) ++peer.host;
        worker.planner().explain(peer, stream);
        return UCS_OK;
    });
}

// --- batches ---

namespace {

ucs_status_ptr_t batch_nbx(ucp_ep_h ep, const ucpx_batch_t* batch, const ucp_request_param_t* param,
                           bool is_put) try {
    Endpoint& endpoint = unwrap(ep);
    if (batch == nullptr || param == nullptr ||
        (batch->num_pieces != 0 &&
         (batch->pieces == nullptr || batch->entry_size < sizeof(ucpx_piece_t))) ||
        !worker_of(endpoint).context().has_feature(UCP_FEATURE_RMA))
        return UCS_STATUS_PTR(UCS_ERR_INVALID_PARAM);
    std::span pieces(batch->pieces, batch->num_pieces);
    // Callers compiled with a later header have longer entries.
    std::vector<ucpx_piece_t> known;
    if (batch->num_pieces != 0 && batch->entry_size != sizeof(ucpx_piece_t)) {
        known.resize(batch->num_pieces);
        const auto* entries = reinterpret_cast<const std::byte*>(batch->pieces);
        for (size_t i = 0; i < known.size(); ++i) {
            std::memcpy(&known[i], entries + i * batch->entry_size, sizeof(ucpx_piece_t));
        }
        pieces = known;
    }
    CheckedPieces checked;
    const ucs_status_t status =
        check_pieces(worker_of(endpoint).one_sided(), pieces, true, &checked);
    if (status != UCS_OK) return UCS_STATUS_PTR(status);
    const auto has = [&](uint64_t field) { return (batch->field_mask & field) != 0; };
    std::span<const std::byte> payload;
    if (has(UCPX_BATCH_FIELD_PAYLOAD)) {
        if (batch->payload_length > UCPX_MAX_NOTIFICATION_PAYLOAD)
            return UCS_STATUS_PTR(UCS_ERR_EXCEEDS_LIMIT);
        if (batch->payload == nullptr && batch->payload_length != 0)
            return UCS_STATUS_PTR(UCS_ERR_INVALID_PARAM);
        payload = {static_cast<const std::byte*>(batch->payload), batch->payload_length};
    }
    const OpParams params(param);
    Worker& worker = worker_of(endpoint);
    GateLock lock(endpoint.gate());
    if (endpoint.is_failed()) return UCS_STATUS_PTR(endpoint.status());
    Request* teller = nullptr;
    if (has(UCPX_BATCH_FIELD_PAYLOAD | UCPX_BATCH_FIELD_NOTIFICATION)) {
        const uint64_t value = has(UCPX_BATCH_FIELD_NOTIFICATION) ? batch->notification : 0;
        teller = worker.notifier().begin(endpoint, value, payload, params);
        if (teller == nullptr) return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
    }
    return start_batch(worker.one_sided(), endpoint, checked, is_put, teller, params);
} catch (const std::bad_alloc&) {
    return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
}

}  // namespace

ucs_status_ptr_t ucpx_put_batch_nbx(ucp_ep_h ep, const ucpx_batch_t* batch,
                                    const ucp_request_param_t* param) {
    return batch_nbx(ep, batch, param, true);
}

ucs_status_ptr_t ucpx_get_batch_nbx(ucp_ep_h ep, const ucpx_batch_t* batch,
                                    const ucp_request_param_t* param) {
    return batch_nbx(ep, batch, param, false);
}

ucs_status_t ucpx_worker_set_notify_handler(ucp_worker_h worker_h, ucpx_notify_callback_t cb,
                                            void* arg) {
    Worker& worker = unwrap(worker_h);
    GateLock lock(worker.gate());
    worker.notifier().set_handler({cb, nullptr, arg});
    return UCS_OK;
}

ucs_status_t ucpx_worker_set_notification_handler(ucp_worker_h worker_h,
                                                  ucpx_notification_callback_t cb, void* arg) {
    Worker& worker = unwrap(worker_h);
    GateLock lock(worker.gate());
    worker.notifier().set_handler({nullptr, cb, arg});
    return UCS_OK;
}

size_t ucpx_request_test_batch(const ucs_status_ptr_t* requests, size_t num_requests,
                               ucs_status_t* statuses) {
    size_t ended = 0;
    for (size_t i = 0; i < num_requests; ++i) {
        ucs_status_t status = UCS_PTR_RAW_STATUS(requests[i]);
        if (UCS_PTR_IS_PTR(requests[i])) {
            const Request& request = Request::from_handle(requests[i]);
            status = request.is_finished() ? request.status : UCS_INPROGRESS;
        }
        if (status != UCS_INPROGRESS) ++ended;
        if (statuses != nullptr) statuses[i] = status;
    }
    return ended;
}
