// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/wireup/connector.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "ucp/endpoint/flush.h"
#include "ucs/log/log.h"
#include "uct/base/refusing_endpoint.h"

namespace ucp {
namespace {

// The lane of an endpoint whose peer is not known yet: it never has room, so that everything waits
// in the endpoint's queues. Nothing is kept of who waits: the endpoint takes its waits back when
// its real lanes come, and starts anew.
class WaitingLane final : public uct::RefusingEndpointWith<UCS_ERR_NO_RESOURCE> {
  public:
    ucs_status_t check(uct::Completion*) override { return UCS_OK; }
    ucs_status_t pending_add(uct::Pending*) override { return UCS_OK; }
    bool is_connected(const uct::RemoteAddress&) const override { return false; }
};

const char* checksums(bool has_checksums) {
    return has_checksums ? "bear checksums" : "bear none";
}

}  // namespace

Connector::Connector(InterfaceSet& interfaces, LanePlanner& planner, EndpointTable& endpoints,
                     RailTable& rails, LaneEvents& lanes)
    : interfaces_(interfaces),
      planner_(planner),
      endpoints_(endpoints),
      rails_(rails),
      lanes_(lanes),
      guests_(interfaces) {}

void Connector::add_handlers() {
    interfaces_.set_handler(AmId::kHello, on_hello, this);
    interfaces_.set_handler(AmId::kReset, on_reset, this);
}

std::vector<std::byte> Connector::address_for_host() const {
    return planner_.edited_address(
        [this](unsigned index, AddressEntry& entry, std::vector<std::byte>* storage) {
            return guests_.conceal(index, entry, storage);
        });
}

std::vector<std::byte> Connector::address_for_guest(uint64_t worker) const {
    return planner_.edited_address(
        [this, worker](unsigned index, AddressEntry& entry, std::vector<std::byte>* storage) {
            if (!guests_.is_way(worker, index)) return false;
            guests_.admit(worker, entry, index, storage);
            return true;
        });
}

ucs_status_t Connector::connect(const WorkerAddress& remote, Endpoint** endpoint,
                                TransportPair* pair) {
    const auto give_up = [&](ucs_status_t status) {
        if (endpoints_.find(remote.uuid) == nullptr) forget_peer(remote.uuid);
        return status;
    };
    if (remote.has_checksums != planner_.has_checksums()) {
        ucs::log_error(
            "worker {} ({:016x}) is refused: its messages {}, and those here {}: "
            "UCX_CHECKSUM must be the same at both ends",
            remote.name, remote.uuid, checksums(remote.has_checksums),
            checksums(planner_.has_checksums()));
        return give_up(UCS_ERR_REJECTED);
    }
    const std::vector<select::Candidate> ranked = planner_.rank(remote);
    ucs_status_t status = UCS_ERR_UNREACHABLE;
    for (size_t place = 0; place < ranked.size(); ++place) {
        const select::Candidate& candidate = ranked[place];
        WorkerInterface& local = interfaces_[planner_.interface(candidate)];
        const AddressEntry& entry = remote.entries[candidate.remote];
        std::unique_ptr<uct::Endpoint> scalable;
        status = local.transport->create_endpoint({entry.device, entry.interface, {}}, &scalable);
        if (status != UCS_OK) {
            ucs::log_info("no {} endpoint to worker {:016x}: {}; the next best is tried",
                          planner_.transport(candidate), remote.uuid, ucs_status_string(status));
            continue;
        }
        if (pair != nullptr) *pair = {planner_.interface(candidate), &entry};
        if (pair == nullptr && !rails_.has(remote.uuid)) {
            std::vector<Rail> rails = planner_.rails(remote, std::span(ranked).subspan(place));
            if (!rails.empty()) rails_.set(remote.uuid, std::move(rails));
        }
        *endpoint = &endpoints_.make(
            remote.uuid, planner_.configure(remote, candidate, rails_.rails(remote.uuid)),
            std::move(scalable));
        ++local.endpoints_made;
        return UCS_OK;
    }
    return give_up(status);
}

uint64_t Connector::name_of(const AddressEntry& remote) const {
    for (const WorkerInterface& interface : interfaces_.list()) {
        if (interface.kind != remote.kind) continue;
        return interface.transport->name_of({remote.device, remote.interface, {}});
    }
    return 0;
}

bool Connector::learn_names(const WorkerAddress& remote, bool overrules) {
    for (const AddressEntry& entry : remote.entries) {
        const uint64_t name = name_of(entry);
        if (name != 0 && !interfaces_.peers().learn(name, remote.uuid, overrules)) {
            return false;
        }
    }
    return true;
}

bool Connector::lists_sender(const WorkerAddress& remote) const {
    const uint64_t sender = interfaces_.sender_name();
    return sender == 0 || std::ranges::any_of(remote.entries, [&](const AddressEntry& entry) {
               return name_of(entry) == sender;
           });
}

void Connector::forget_peer(uint64_t worker) {
    rails_.erase(worker);
    interfaces_.peers().forget(worker);
    guests_.end(worker);
}

ucs_status_t Connector::create(const WorkerAddress& remote, Endpoint** endpoint) {
    learn_names(remote, true);
    const ucs_status_t status = find_or_connect(remote, endpoint, nullptr);
    if (status == UCS_OK) endpoints_.answer_late(**endpoint);
    return status;
}

ucs_status_t Connector::create_for_guest(WorkerAddress remote, bool is_near, Endpoint** endpoint,
                                         std::vector<std::byte>* address) {
    if (!guests_.can_host()) {
        const bool has_network =
            std::ranges::any_of(interfaces_.list(), [](const WorkerInterface& interface) {
                return interface.transport->attributes().device_type == uct::DeviceType::kNetwork;
            });
        if (has_network && !std::exchange(has_warned_, true)) {
            ucs::log_warn(
                "clients without a key get the worker's whole address, as tcp is not among its "
                "transports: set UCX_TCP_JOB_KEY at both ends where strangers reach the listener");
        }
        *address = this->address();
        return create(remote, endpoint);
    }
    PeerNames& peers = interfaces_.peers();
    guests_.restrict(remote, is_near);
    std::erase_if(remote.entries, [&](const AddressEntry& entry) {
        // Who calls himself has better ways than the network.
        const bool is_own = remote.uuid == planner_.uuid();
        if (is_own && entry.device_type == uct::DeviceType::kNetwork) return true;
        const uint64_t name = name_of(entry);
        return name != 0 && peers.worker_of(name) != 0 && peers.worker_of(name) != remote.uuid;
    });
    const bool is_other = endpoints_.find(remote.uuid) != nullptr && !is_guest(remote.uuid);
    ucs_status_t status = is_other ? UCS_ERR_REJECTED : guests_.invite(remote);
    if (status != UCS_OK) {
        ucs::log_warn("a client that says it is worker {:016x} is refused: that is somebody else",
                      remote.uuid);
        return status;
    }
    TransportPair pair;
    status = find_or_connect(remote, endpoint, &pair);
    if (status == UCS_ERR_UNREACHABLE) {
        ucs::log_error(
            "clients without a key are served over tcp and shared memory: for other transports set "
            "UCX_TCP_JOB_KEY at both ends");
    }
    if (status != UCS_OK) return status;
    (*endpoint)->set_stranger();
    if (pair.remote != nullptr) {
        guests_.settle(remote, pair.interface, *pair.remote);
        if (const uint64_t name = name_of(*pair.remote); name != 0) {
            peers.learn(name, remote.uuid, false);
            peers.set_guest(name);
        }
    }
    *address = address_for_guest(remote.uuid);
    return UCS_OK;
}

ucs_status_t Connector::find_or_connect(const WorkerAddress& remote, Endpoint** endpoint,
                                        TransportPair* pair) {
    Endpoint* found = endpoints_.find(remote.uuid);
    if (found == nullptr || found->is_users() || found->is_closing()) {
        Endpoint* const known = found;
        const ucs_status_t status = connect(remote, &found, pair);
        if (status == UCS_ERR_UNREACHABLE) {
            ucs::log_error("no transport reaches worker {} ({:016x}): {}", remote.name, remote.uuid,
                           planner_.why_unreachable(remote));
        }
        if (status != UCS_OK) return status;
        // With a link it stays the primary one until that has ended: see LaneDriver.
        const bool is_leaving = known != nullptr && known->is_closing() && !lanes_.has_link(*known);
        if (is_leaving) endpoints_.replace_primary(*known, *found);
    }
    *endpoint = found;
    return UCS_OK;
}

void Connector::give_to_user(Endpoint& endpoint, const ucp_ep_params_t& params) {
    endpoint.give_to_user(params);
    lanes_.endpoint_created(endpoint);
}

ucs_status_t Connector::on_hello(void* arg, void* data, size_t length, uct::ReceiveDescriptor*) {
    auto& self = *static_cast<Connector*>(arg);
    HelloHeader header;
    WorkerAddress remote;
    std::span<const std::byte> address;
    ucs_status_t status = UCS_ERR_INVALID_ADDR;
    if (read_header(data, length, &header, &address)) {
        // An endpoint knows its peer's address: what the greeting says takes no memory then.
        if (Endpoint* known = self.endpoints_.find(header.sender)) {
            known->set_peer_has_greeted();
            return UCS_OK;
        }
        status = unpack_address(address, &remote);
        if (status == UCS_OK && remote.uuid != header.sender) status = UCS_ERR_INVALID_ADDR;
    }
    if (status != UCS_OK) {
        ucs::log_warn("a malformed greeting of {} bytes was dropped", length);
        return UCS_OK;
    }
    // Where a guest says that he is nobody calls.
    if (self.interfaces_.peers().is_guest(self.interfaces_.sender_name())) return UCS_OK;
    if (!self.lists_sender(remote) || !self.learn_names(remote, false)) {
        ucs::log_warn("worker {:016x} greets with connections of others: dropped", remote.uuid);
        return UCS_OK;
    }
    Endpoint* endpoint = nullptr;
    status = self.connect(remote, &endpoint);
    if (status != UCS_OK) {
        ucs::log_warn("worker {} ({:016x}) greets and cannot be reached: {}", remote.name,
                      remote.uuid, ucs_status_string(status));
        return UCS_OK;
    }
    endpoint->set_peer_has_greeted();
    self.endpoints_.answer_late(*endpoint);
    return UCS_OK;
}

ucs_status_t Connector::on_reset(void* arg, void* data, size_t length, uct::ReceiveDescriptor*) {
    auto& self = *static_cast<Connector*>(arg);
    ResetHeader header{};
    (void)read_whole(data, length, &header);
    if (Endpoint* endpoint = self.endpoints_.find(header.sender))
        endpoint->fail(UCS_ERR_CONNECTION_RESET);
    return UCS_OK;
}

Endpoint& Connector::create_waiting() {
    return endpoints_.make(0, planner_.configure_waiting(), std::make_unique<WaitingLane>());
}

ucs_status_t Connector::connect_waiting(Endpoint& endpoint, const WorkerAddress& remote) {
    Endpoint* made = nullptr;
    // A server has no say over whom this worker knows already.
    const ucs_status_t status =
        learn_names(remote, false) ? connect(remote, &made) : UCS_ERR_REJECTED;
    if (status != UCS_OK) {
        ucs::log_error("worker {} answers and cannot be reached: {}", remote.name,
                       ucs_status_string(status));
        return status;
    }
    // The tracker knew the endpoint under no name.
    lanes_.endpoint_renamed(endpoint);
    endpoint.take_lanes(*made);
    Endpoint* known = endpoints_.find(remote.uuid);
    const bool is_spare = !known->is_users() && !lanes_.has_link(*known);
    if (is_spare) {
        endpoints_.replace_primary(*known, endpoint);
        if (known != made) retire(*known);
    }
    endpoints_.destroy(*made);
    lanes_.endpoint_created(endpoint);
    endpoint.pump_controls();
    // Later: the callbacks of what is sent may close the endpoint, and who called needs it.
    endpoint.pump_later();
    return UCS_OK;
}

// An endpoint of the library's own that another has replaced goes when its work is done.
void Connector::retire(Endpoint& endpoint) {
    Request* flush = make_internal_flush(endpoint, &endpoints_, [](Request& request) {
        static_cast<EndpointTable*>(request.user_data)->doom(*request.endpoint);
    });
    if (flush == nullptr) return;
    endpoint.begin_closing();
    endpoint.start(*flush);
}

}  // namespace ucp
