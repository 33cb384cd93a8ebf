// SPDX-License-Identifier: BSD-3-Clause

// A worker's endpoints that are connected by socket address, and which endpoint of a peer is the
// one that its messages are answered on.

#include "ucp/endpoint/flush.h"
#include "ucp/worker/wakeup.h"
#include "ucp/worker/worker.h"
#include "ucp/lanes/driver/lane_driver.h"
#include "ucp/wireup/connection_manager.h"
#include "ucp/wireup/waiting_lane.h"
#include "ucs/log.h"

namespace ucp {

ucs_status_t Worker::connections(wireup::ConnectionManager** manager) {
    if (connections_ == nullptr) {
        ucs_status_t status = wireup::ConnectionManager::create(*this, &connections_);
        if (status == UCS_OK && wakeup_ != nullptr) {
            status = wakeup_->watch(connections_->descriptor());
        }
        if (status != UCS_OK) {
            connections_.reset();
            return status;
        }
    }
    *manager = connections_.get();
    return UCS_OK;
}

bool Worker::has_callers() const {
    return connections_ != nullptr && connections_->has_work();
}

Endpoint& Worker::create_waiting() {
    // Any transport will do for the limits of messages: nothing goes out before connect_waiting().
    unsigned index = 0;
    while (interfaces_[index].transport->attributes().reach != uct::Reach::kInterface) ++index;
    const DomainPair domains{static_cast<uint8_t>(interfaces_[index].domain), 0};
    auto* made = new Endpoint(*this, 0, index, domains, std::make_unique<wireup::WaitingLane>());
    endpoints_.push_back(*made);
    ++endpoint_count_;
    return *made;
}

ucs_status_t Worker::connect_waiting(Endpoint& endpoint, const WorkerAddress& remote) {
    Endpoint* made = nullptr;
    const ucs_status_t status = connect(remote, &made);
    if (status != UCS_OK) {
        ucs::log_error("worker {} answers and cannot be reached: {}", remote.name,
                       ucs_status_string(status));
        return status;
    }
    // The tracker knew the endpoint under no name.
    if (tracker_ != nullptr) tracker_->remove(endpoint.tracker_hook());
    endpoint.take_lanes(*made);
    Endpoint* known = find_endpoint(remote.uuid);
    const bool is_spare =
        !known->is_users() && known->lane_state() == nullptr && lanes_->link_of(*known) == nullptr;
    if (is_spare) {
        if (known->has_flag(Endpoint::kGreetedUs)) endpoint.set_flag(Endpoint::kGreetedUs);
        by_uuid_.erase(by_uuid_.iterator_to(*known));
        known->clear_flag(Endpoint::kPrimary);
        make_primary(endpoint);
        if (known != made) retire(*known);
    }
    endpoints_.erase(endpoints_.iterator_to(*made));
    --endpoint_count_;
    delete made;
    lanes_->endpoint_created(endpoint);
    endpoint.pump_controls();
    // Later: the callbacks of what is sent may close the endpoint, and who called needs it.
    pump_later(endpoint);
    return UCS_OK;
}

/** An endpoint of the library's own that another has replaced goes when its work is done. */
void Worker::retire(Endpoint& endpoint) {
    Request* flush = allocate_request();
    if (flush == nullptr) return;
    endpoint.set_flag(Endpoint::kClosing);
    make_flush(*flush, endpoint);
    flush->callback_kind = Request::CallbackKind::kInternal;
    flush->on_finish.internal = [](Request& request) { request.worker->doom(*request.endpoint); };
    endpoint.start(*flush);
}

// --- the primary endpoint of a peer
// ----------------------------------------------------------------

void Worker::make_primary(Endpoint& endpoint) {
    grow_table();
    by_uuid_.insert(endpoint);
    endpoint.set_flag(Endpoint::kPrimary);
}

void Worker::resign_primary(Endpoint& endpoint) {
    if (!endpoint.is_primary()) return;
    by_uuid_.erase(by_uuid_.iterator_to(endpoint));
    endpoint.clear_flag(Endpoint::kPrimary);
    // Most peers have one endpoint: there is nothing to look for then.
    if (by_uuid_.size() + doomed_.size() + 1 >= endpoint_count_) return;
    for (Endpoint& other : endpoints_) {
        if (&other == &endpoint || other.remote_uuid() != endpoint.remote_uuid()) continue;
        if (other.is_failed() || other.has_flag(Endpoint::kClosing)) continue;
        if (endpoint.has_flag(Endpoint::kGreetedUs)) other.set_flag(Endpoint::kGreetedUs);
        make_primary(other);
        return;
    }
}

}  // namespace ucp
