// SPDX-License-Identifier: BSD-3-Clause

// A worker's endpoints: making, closing, failure, and when their memory goes.

#include <algorithm>
#include <new>
#include <thread>

#include <config.h>  // of the build
#include "ucp/base/handles.h"
#include "ucp/endpoint/flush.h"
#include "ucp/wireup/listener.h"
#include "ucp/worker/worker.h"
#include "ucs/log/log.h"

namespace ucp {

// --- making ---

ucs_status_t Worker::create_endpoint(const ucp_ep_params_t& params, Endpoint** endpoint) {
    const auto has = [&](uint64_t field) { return (params.field_mask & field) != 0; };
    Endpoint* found = nullptr;
    wireup::ConnectionManager* manager = nullptr;
    ucs_status_t status = UCS_ERR_INVALID_PARAM;
    if (has(UCP_EP_PARAM_FIELD_CONN_REQUEST)) {
        if (params.conn_request == nullptr) return UCS_ERR_INVALID_PARAM;
        std::unique_ptr<wireup::ConnectionRequest> request(&unwrap(params.conn_request));
        status = connections(&manager);
        if (status == UCS_OK) status = manager->accept(std::move(request), &found);
    } else if (has(UCP_EP_PARAM_FIELD_SOCK_ADDR)) {
        status = connections(&manager);
        if (status == UCS_OK) status = manager->call(params, &found);
    } else if (has(UCP_EP_PARAM_FIELD_REMOTE_ADDRESS) && params.address != nullptr) {
        const size_t length = packed_address_length(params.address);
        WorkerAddress remote;
        status =
            unpack_address({reinterpret_cast<const std::byte*>(params.address), length}, &remote);
        if (status == UCS_OK) {
            status = connector_.create(remote, &found);
        } else {
            ucs::log_error(
                "an address was not made by a worker of this library, version " PACKAGE_VERSION
                ": both ends must run the same library, and not UCX at one of them");
        }
    }
    if (status != UCS_OK) return status;
    const bool is_own = found->remote_uuid() == uuid();
    const bool is_paired = is_own && has(UCP_EP_PARAM_FIELD_FLAGS) &&
                           (params.flags & UCP_EP_PARAMS_FLAGS_NO_LOOPBACK) != 0;
    if (is_paired) endpoints_.pair(*found);
    connector_.give_to_user(*found, params);
    if (is_paired) streams_.take_early(*found);
    *endpoint = found;
    return UCS_OK;
}

// --- closing ---

ucs_status_ptr_t Worker::close_endpoint(Endpoint& endpoint, unsigned flags,
                                        const OpParams& params) {
    endpoint.begin_closing();
    if ((flags & UCP_EP_CLOSE_FLAG_FORCE) != 0 || endpoint.is_failed()) {
        endpoint.take_from_user();
        endpoint.fail(UCS_ERR_CANCELED);
        endpoints_.doom(endpoint);
        return nullptr;
    }
    // What a receive has asked for is to be under way, so that the flush waits for it.
    tags_.fetch_announced();
    // The user's handle ends with this call, so the user's request waits for an inner flush: it may
    // be freed or finished before the endpoint is.
    Request* outer = requests_.begin(params, Request::CallbackKind::kSend);
    Request* flush = make_internal_flush(endpoint, outer, [](Request& inner) {
        worker_of(*inner.endpoint).close_endpoint_now(*inner.endpoint);
        static_cast<Request*>(inner.user_data)->complete(inner.status);
    });
    if (outer == nullptr || flush == nullptr) {
        if (outer != nullptr) requests_.recycle(*outer);
        if (flush != nullptr) requests_.recycle(*flush);
        return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
    }
    endpoint.take_from_user();
    endpoint.start(*flush);
    return requests_.end_call(*outer, params);
}

// A peer that has greeted may go on sending to this worker: its endpoint stays, as the library's.
void Worker::close_endpoint_now(Endpoint& endpoint) {
    if (endpoint.is_failed() || !endpoint.is_primary()) {
        endpoints_.doom(endpoint);
        return;
    }
    endpoint.end_closing();
    endpoint.hang_up();
    lanes_.endpoint_closing(endpoint);
    // A guest has no more to say than his endpoint lets him.
    const bool may_go_on =
        endpoint.peer_has_greeted() && !connector_.is_guest(endpoint.remote_uuid());
    const bool is_needed = may_go_on || lanes_.link_of(endpoint) != nullptr;
    if (!is_needed) endpoints_.doom(endpoint);
}

void Worker::free_doomed() {
    for (Endpoint* endpoint : endpoints_.take_doomed()) {
        // It is doomed again when its peer is told.
        if (endpoint->is_untold() && !endpoint->is_to_be_purged()) continue;
        const bool is_busy = endpoint->is_to_be_pumped() ||
                             (!endpoint->is_failed() && endpoint->has_backlog()) ||
                             endpoint->is_to_be_purged();
        const auto is_in_use = [&] {
            queue_pairs_.forget(*endpoint);
            bulk_.forget(*endpoint);
            // An initiator goes on with what it has, and ends it soon. Those loops of compare-swaps
            // and emulated operations know their endpoint to the end.
            return endpoint->has_remote_operations();
        };
        queue_pairs_.withdraw(*endpoint);
        if (is_busy || !lanes_.release_endpoint(*endpoint) || queue_pairs_.holds(*endpoint) ||
            is_in_use()) {
            endpoints_.doom_again(*endpoint);
            continue;
        }
        if (endpoints_.find(endpoint->remote_uuid()) == nullptr) {
            connector_.forget_peer(endpoint->remote_uuid());
            notifier_.forget_peer(endpoint->remote_uuid());
        }
        endpoints_.destroy(*endpoint);
    }
}

// Lanes are given back in agreement with the peers, if they answer soon.
void Worker::withdraw_lanes() {
    if (!holds_lanes()) return;
    constexpr ucs::Duration kLongest = std::chrono::milliseconds(200);
    constexpr unsigned kIdleRounds = 2000;
    lanes_.withdraw();
    queue_pairs_.withdraw();
    const ucs::Time limit = ucs::deadline(now(), kLongest);
    for (unsigned idle = 0; holds_lanes() && now() < limit;) {
        idle = progress() == 0 ? idle + 1 : 0;
        if (idle < kIdleRounds) continue;
        // On a virtual clock nobody else runs meanwhile.
        if (context_.virtual_time()) return;
        std::this_thread::yield();
    }
}

// --- failure ---

void Worker::transport_failed(void* arg, uct::Endpoint* lane, ucs_status_t status) {
    auto& self = *static_cast<Worker*>(arg);
    try {
        self.failed_lanes_.emplace_back(lane, status);
    } catch (const std::bad_alloc&) {
        // To be told of it at once is harmless; its lanes go with it.
        if (Endpoint* endpoint = self.endpoints_.find_owner(lane)) endpoint->fail(status);
    }
    self.host_.work.notify();
}

unsigned Worker::end_failed_lanes() {
    if (failed_lanes_.empty()) return 0;
    std::vector<const uct::Endpoint*> lanes;
    for (const auto& [lane, status] : failed_lanes_) lanes.push_back(lane);
    // Of all at once: a device that breaks takes lanes of all peers along.
    const std::vector<Endpoint*> owners = endpoints_.find_owners(lanes);
    bulk_.transports_failed(failed_lanes_);
    queue_pairs_.transports_failed(lanes);
    const auto failures = std::exchange(failed_lanes_, {});
    unsigned events = 0;
    for (size_t index = 0; index < failures.size(); ++index) {
        const auto& [lane, status] = failures[index];
        Endpoint* endpoint = owners[index];
        // One lane of an endpoint may take the other along.
        if (endpoint != nullptr && !endpoint->owns(lane)) continue;
        if (endpoint == nullptr) {
            lanes_.kept_lane_failed(lane);
            continue;
        }
        if (lane == endpoint->scalable()) {
            endpoint->fail(status);
            endpoint->end_telling();
        } else {
            lanes_.lane_failed(*endpoint, status);
        }
        ++events;
    }
    return events;
}

void Worker::endpoint_failed(Endpoint& endpoint) {
    endpoints_.resign_primary(endpoint);
    try {
        to_purge_.push_back(&endpoint);
    } catch (const std::bad_alloc&) {
        has_unlisted_ = true;
    }
    host_.work.notify();
}

unsigned Worker::purge_failed() {
    unsigned purged = 0;
    const auto try_purge = [&](Endpoint& endpoint) {
        try {
            purge(endpoint);
            ++purged;
        } catch (const std::bad_alloc&) {
            // All steps may be taken again.
            endpoint.note_purge(true);
            retry_later();
        }
        endpoint.tell_peer();
    };
    const auto failed = std::exchange(to_purge_, {});
    const bool is_complete = !std::exchange(has_unlisted_, false);
    for (Endpoint* endpoint : failed) try_purge(*endpoint);
    if (is_complete) [[likely]]
        return purged;
    endpoints_.for_each([&](Endpoint& endpoint) {
        if (!endpoint.is_failed()) return endpoint.retry_controls();
        if (!endpoint.is_to_be_purged()) return endpoint.tell_peer();
        try_purge(endpoint);
    });
    return purged;
}

void Worker::retry_later() {
    constexpr ucs::Duration kPause = std::chrono::milliseconds(10);
    next_retry_ = std::min(next_retry_, ucs::deadline(now(), kPause));
}

void Worker::reset_told(Endpoint& endpoint) {
    if (endpoint.is_doomed()) endpoints_.look_for_doomed();
}

void Worker::retry(ucs::Time time) {
    if (time < next_retry_) [[likely]]
        return;
    next_retry_ = ucs::kNever;
    has_unlisted_ = true;
    host_.work.notify();
}

void Worker::out_of_memory() {
    ucs::log_error("worker {} has run out of memory: its endpoints fail", name_);
    endpoints_.for_each([](Endpoint& endpoint) { endpoint.reset(UCS_ERR_NO_MEMORY); });
    host_.work.notify();
}

// Nothing may be missing among the messages of an endpoint.
void Worker::message_lost(void* arg, std::optional<uint64_t> sender) {
    auto& self = *static_cast<Worker*>(arg);
    Endpoint* const endpoint = sender ? self.endpoints_.find(*sender) : nullptr;
    if (!sender) return self.out_of_memory();
    if (endpoint != nullptr) endpoint->reset(UCS_ERR_NO_MEMORY);
    self.reassembly_.end_all_of(*sender, UCS_ERR_NO_MEMORY);
}

void Worker::cut_off(void* arg, uint64_t sender, ucs_status_t why) {
    auto& self = *static_cast<Worker*>(arg);
    if (Endpoint* endpoint = self.endpoints_.find(sender)) endpoint->reset(why);
}

// Everything that holds a reference of a request of this endpoint gives it up. User callbacks run
// here, so the endpoint may be closed meanwhile; it is not freed before free_doomed().
void Worker::purge(Endpoint& endpoint) {
    const ucs_status_t status = endpoint.status();
    endpoint.note_purge(false);
    endpoint.log_failure();
    lanes_.endpoint_failed(endpoint);
    endpoint.end_waiting();
    queue_pairs_.endpoint_failed(endpoint);
    bulk_.endpoint_failed(endpoint);
    requests_.abort_named(endpoint, status);
    rndv_.direct.abort(endpoint, status);
    notifier_.peer_failed(endpoint.remote_uuid());
    if (EndpointExtras* const extras = endpoint.extras(); extras != nullptr) {
        extras->flushes.drain([status](FlushWait& flush) { flush.request->complete(status); });
        if (extras->stream != nullptr) extras->stream->cancel_receives(status);
    }
    const bool was_last = endpoints_.find(endpoint.remote_uuid()) == nullptr;
    endpoint.tell_failure();
    // Last: where it finds no memory, nobody else has to wait for it.
    if (was_last) reassembly_.sender_failed(endpoint.remote_uuid(), status);
}

}  // namespace ucp
