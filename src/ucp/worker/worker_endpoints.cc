// SPDX-License-Identifier: BSD-3-Clause

// A worker's endpoints: greeting, closing, failure, and when their memory goes.

#include <algorithm>
#include <cstring>

#include "ucp/bulk/engine/engine.h"
#include "ucp/bulk/queue_pairs/queue_pair_driver.h"
#include "ucp/endpoint/backlog.h"
#include "ucp/endpoint/flush.h"
#include "ucp/lanes/driver/lane_driver.h"
#include "ucp/wireup/connection.h"
#include "ucp/worker/worker.h"
#include "ucs/log.h"

namespace ucp {

// --- creation
// --------------------------------------------------------------------------------------

void Worker::grow_table() {
    if (by_uuid_.size() < bucket_count_) return;
    const size_t count = bucket_count_ * 4;
    auto buckets = std::make_unique<EndpointTable::bucket_type[]>(count);
    by_uuid_.rehash(EndpointTable::bucket_traits(buckets.get(), count));
    buckets_ = std::move(buckets);
    bucket_count_ = count;
}

ucs_status_t Worker::create_endpoint(const ucp_ep_params_t& params, Endpoint** endpoint) {
    const auto has = [&](uint64_t field) { return (params.field_mask & field) != 0; };
    Endpoint* found = nullptr;
    ucs_status_t status = UCS_ERR_INVALID_PARAM;
    if (has(UCP_EP_PARAM_FIELD_CONN_REQUEST)) {
        status = wireup::create_server_endpoint(*this, params, &found);
    } else if (has(UCP_EP_PARAM_FIELD_SOCK_ADDR)) {
        status = wireup::create_client_endpoint(*this, params, &found);
    } else if (has(UCP_EP_PARAM_FIELD_REMOTE_ADDRESS) && params.address != nullptr) {
        const size_t length = packed_address_length(params.address);
        WorkerAddress remote;
        status =
            unpack_address({reinterpret_cast<const std::byte*>(params.address), length}, &remote);
        if (status == UCS_OK) status = create_to(remote, &found);
    }
    if (status != UCS_OK) return status;
    found->give_to_user(params);
    lanes_->endpoint_created(*found);
    *endpoint = found;
    return UCS_OK;
}

ucs_status_t Worker::create_to(const WorkerAddress& remote, Endpoint** endpoint) {
    Endpoint* found = find_endpoint(remote.uuid);
    if (found == nullptr || found->is_users() || found->has_flag(Endpoint::kClosing)) {
        const ucs_status_t status = connect(remote, &found);
        if (status == UCS_ERR_UNREACHABLE) {
            ucs::log_error("no transport reaches worker {} ({:016x}): {}", remote.name, remote.uuid,
                           why_unreachable(remote));
        }
        if (status != UCS_OK) return status;
    }
    *endpoint = found;
    return UCS_OK;
}

Endpoint* Worker::find_endpoint(uint64_t uuid) {
    const auto found = by_uuid_.find(uuid);
    return found == by_uuid_.end() ? nullptr : &*found;
}

Endpoint* Worker::find_owner(const uct::Endpoint* lane) {
    for (Endpoint& endpoint : endpoints_) {
        if (endpoint.owns(lane)) return &endpoint;
    }
    return nullptr;
}

// --- greeting
// --------------------------------------------------------------------------------------

ucs_status_t Worker::on_hello(void* arg, void* data, size_t length, uct::ReceiveDescriptor*) {
    auto& self = *static_cast<Worker*>(arg);
    HelloHeader header;
    WorkerAddress remote;
    ucs_status_t status = UCS_ERR_INVALID_ADDR;
    if (length > sizeof(header)) {
        std::memcpy(&header, data, sizeof(header));
        const auto* bytes = static_cast<const std::byte*>(data) + sizeof(header);
        status = unpack_address({bytes, length - sizeof(header)}, &remote);
        if (status == UCS_OK && remote.uuid != header.sender) status = UCS_ERR_INVALID_ADDR;
    }
    if (status != UCS_OK) {
        ucs::log_warn("a malformed greeting of {} bytes was dropped", length);
        return UCS_OK;
    }
    Endpoint* endpoint = self.find_endpoint(remote.uuid);
    if (endpoint == nullptr) {
        status = self.connect(remote, &endpoint);
        if (status != UCS_OK) {
            ucs::log_warn("worker {} ({:016x}) greets and cannot be reached: {}", remote.name,
                          remote.uuid, ucs_status_string(status));
            return UCS_OK;
        }
    }
    endpoint->set_flag(Endpoint::kGreetedUs);
    return UCS_OK;
}

// --- closing
// ---------------------------------------------------------------------------------------

ucs_status_ptr_t Worker::close_endpoint(Endpoint& endpoint, unsigned flags,
                                        const OpParams& params) {
    endpoint.set_flag(Endpoint::kClosing);
    if ((flags & UCP_EP_CLOSE_FLAG_FORCE) != 0 || endpoint.is_failed()) {
        endpoint.take_from_user();
        endpoint.fail(UCS_ERR_CANCELED);
        doom(endpoint);
        return nullptr;
    }
    // The user's handle ends with this call, so the user's request waits for an inner flush: it may
    // be freed or finished before the endpoint is.
    Request* outer = begin_request(params, Request::CallbackKind::kSend);
    Request* flush = allocate_request();
    if (outer == nullptr || flush == nullptr) {
        if (outer != nullptr) recycle(*outer);
        if (flush != nullptr) recycle(*flush);
        return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
    }
    outer->flags |= Request::kInCall;
    make_flush(*flush, endpoint);
    flush->callback_kind = Request::CallbackKind::kInternal;
    flush->user_data = outer;
    flush->on_finish.internal = [](Request& inner) {
        Worker& worker = *inner.worker;
        worker.close_endpoint_now(*inner.endpoint);
        static_cast<Request*>(inner.user_data)->complete(inner.status);
    };
    endpoint.take_from_user();
    endpoint.start(*flush);
    return end_call(*outer, params);
}

// A peer that has greeted may go on sending to this worker: its endpoint stays, as the library's.
void Worker::close_endpoint_now(Endpoint& endpoint) {
    if (endpoint.is_failed() || !endpoint.is_primary()) {
        doom(endpoint);
        return;
    }
    endpoint.clear_flag(Endpoint::kClosing);
    endpoint.hang_up();
    lanes_->endpoint_closing(endpoint);
    const bool is_needed =
        endpoint.has_flag(Endpoint::kGreetedUs) || lanes_->link_of(endpoint) != nullptr;
    if (!is_needed) doom(endpoint);
}

void Worker::doom(Endpoint& endpoint) {
    if (endpoint.has_flag(Endpoint::kDoomed)) return;
    endpoint.set_flag(Endpoint::kDoomed);
    endpoint.set_flag(Endpoint::kClosing);
    endpoint.hang_up();
    resign_primary(endpoint);
    doomed_.push_back(&endpoint);
    work_later();
}

void Worker::reap() {
    const auto doomed = std::move(doomed_);
    doomed_.clear();
    for (Endpoint* endpoint : doomed) {
        const bool is_busy = endpoint->has_flag(Endpoint::kPumpLater) ||
                             (!endpoint->is_failed() && endpoint->has_backlog()) ||
                             (endpoint->is_failed() && !endpoint->has_flag(Endpoint::kPurged));
        const auto is_in_use = [&] {
            queue_pairs_->forget(*endpoint);
            bulk_->forget(*endpoint);
            // An initiator goes on with what it has, and ends it soon. Those loops of compare-swaps
            // and emulated operations know their endpoint to the end.
            return endpoint->has_remote_operations();
        };
        if (is_busy || !lanes_->release_endpoint(*endpoint) || queue_pairs_->holds(*endpoint) ||
            is_in_use()) {
            doomed_.push_back(endpoint);
            work_later();
            continue;
        }
        if (find_endpoint(endpoint->remote_uuid()) == nullptr) {
            rails_.erase(endpoint->remote_uuid());
        }
        endpoints_.erase(endpoints_.iterator_to(*endpoint));
        --endpoint_count_;
        delete endpoint;
    }
}

/** Lanes are given back in agreement with the peers, if they answer soon. */
void Worker::withdraw_lanes() {
    const auto holds_any = [this] { return lanes_->holds_lanes() || queue_pairs_->held() != 0; };
    if (!holds_any()) return;
    constexpr ucs::Duration kPatience = std::chrono::milliseconds(200);
    constexpr unsigned kIdleRounds = 2000;
    lanes_->withdraw();
    const ucs::Time limit = ucs::deadline(now(), kPatience);
    for (unsigned idle = 0; holds_any() && idle < kIdleRounds && now() < limit;) {
        idle = progress() == 0 ? idle + 1 : 0;
    }
}

// --- failure
// ---------------------------------------------------------------------------------------

void Worker::transport_failed(void* arg, uct::Endpoint* lane, ucs_status_t status) {
    auto& self = *static_cast<Worker*>(arg);
    self.failed_lanes_.emplace_back(lane, status);
    self.work_later();
}

void Worker::purge_later(Endpoint& endpoint) {
    resign_primary(endpoint);
    to_purge_.push_back(&endpoint);
    work_later();
}

void Worker::pump_later(Endpoint& endpoint) {
    if (endpoint.has_flag(Endpoint::kPumpLater)) return;
    endpoint.set_flag(Endpoint::kPumpLater);
    to_pump_.push_back(&endpoint);
    work_later();
}

}  // namespace ucp
