// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/engine/revocation.h"

#include <algorithm>
#include <utility>

#include "ucp/bulk/engine/path_table.h"
#include "ucs/log/log.h"
#include "ucs/sys/random.h"

namespace ucp::bulk {
namespace {

constexpr ucs::Duration kRepeat = std::chrono::milliseconds(100);

struct Addresses {
    std::vector<std::byte> device, interface;
};

bool read_addresses(const uct::Interface& interface, Addresses* addresses) {
    const uct::InterfaceAttributes& attributes = interface.attributes();
    if (attributes.reach != uct::Reach::kInterface) return false;
    addresses->device.resize(attributes.device_address_length);
    addresses->interface.resize(attributes.interface_address_length);
    return interface.get_device_address(addresses->device) == UCS_OK &&
           interface.get_interface_address(addresses->interface) == UCS_OK;
}

}  // namespace

Revocation::Revocation(InterfaceSet& interfaces, EndpointTable& endpoints, PathTable& paths,
                       RunQueue& run_queue, ucs::Duration patience)
    : interfaces_(interfaces),
      endpoints_(endpoints),
      paths_(paths),
      run_queue_(run_queue),
      patience_(patience) {
    interfaces.set_handler(AmId::kBulkRevoke, on_revoke, this);
    interfaces.set_handler(AmId::kBulkRevokeDone, on_revoke_done, this);
}

void Revocation::begin(Path& path, ucs::Time now) {
    path.state = Path::State::kRevoking;
    path.is_revoked = false;
    path.revocation = ++last_;
    path.revocation_end = ucs::deadline(now, patience_);
}

void Revocation::ask(Path& path, ucs::Time now) {
    path.due = ucs::deadline(now, kRepeat);
    RevokeMessage message;
    message.header.from = path.group.endpoint.local_uuid();
    message.header.number = path.revocation;
    Addresses own;
    if (path.kind == Path::Kind::kQueuePair) {
        message.header.name = path.name;
        message.header.is_queue_pair = 1;
    } else {
        if (!read_addresses(*path.device, &own)) return;
        message.device = own.device;
        message.interface = own.interface;
        message.target_device = path.remote_device;
        message.target_interface = path.remote_interface;
    }
    send_everywhere(path.group.endpoint, AmId::kBulkRevoke, pack_revoke(message));
}

// By the endpoint's lane and by every rail: nobody knows which of them are well.
void Revocation::send_everywhere(Endpoint& endpoint, AmId id, std::span<const std::byte> message) {
    for (const auto& path : paths_.find_or_make(endpoint).paths) {
        if (!path->may_post()) continue;
        if (path->kind == Path::Kind::kLane) endpoint.send_control(id, message);
        if (path->kind == Path::Kind::kRail) send_on(*path, id, message);
    }
}

void Revocation::send_on(Path& rail, AmId id, std::span<const std::byte> message) {
    const bool is_free = rail.held.empty() && !rail.is_linked();
    if (is_free && post_bytes(*rail.own, id, message) != UCS_ERR_NO_RESOURCE) return;
    const bool is_known = std::ranges::any_of(rail.held, [&](const auto& held) {
        return held.first == id && std::ranges::equal(held.second, message);
    });
    if (!is_known) rail.held.emplace_back(id, std::vector(message.begin(), message.end()));
    if (!rail.is_linked()) rail.wait_for_room();
}

void Revocation::send_held(PathGroup& group) {
    for (const auto& path : group.paths) {
        if (path->held.empty() || path->is_linked()) continue;
        const auto messages = std::exchange(path->held, {});
        if (!path->may_post()) continue;
        for (const auto& [id, message] : messages) send_on(*path, id, message);
    }
}

// Not here: a transport calls this, and may be the one that is to be destroyed.
ucs_status_t Revocation::on_revoke(void* self, void* data, size_t length, uct::ReceiveDescriptor*) {
    auto& revocation = *static_cast<Revocation*>(self);
    const std::span<const std::byte> bytes(static_cast<std::byte*>(data), length);
    RevokeMessage message;
    if (!parse_revoke(bytes, &message)) {
        ucs::log_warn("a malformed REVOKE of {} bytes was dropped", length);
        return UCS_OK;
    }
    revocation.requests_.emplace_back(bytes.begin(), bytes.end());
    revocation.run_queue_.run_later();
    return UCS_OK;
}

void Revocation::carry_out_requests() {
    const auto requests = std::exchange(requests_, {});
    for (const auto& request : requests) carry_out(request);
}

// Is the rail that it names the worker's who sent it, as far as the transport can tell?
bool Revocation::is_senders(const uct::Interface& interface, const RevokeMessage& message) const {
    const uint64_t name = interface.name_of(message.sender());
    const uint64_t owner = name == 0 ? 0 : interfaces_.peers().worker_of(name);
    if (owner == 0 || owner == message.header.from) return true;
    ucs::log_warn("worker {:016x} wants a connection of worker {:016x} cut off: dropped",
                  message.header.from, owner);
    return false;
}

void Revocation::carry_out(std::span<const std::byte> bytes) {
    RevokeMessage message;
    if (!parse_revoke(bytes, &message)) return;
    if (message.header.is_queue_pair != 0) {
        if (paths_.provider() != nullptr) {
            paths_.provider()->revoke_queue_pair(message.header.from, message.header.name);
        }
    } else if (!record_.is_done(message)) {
        for (WorkerInterface& interface : interfaces_.list()) {
            Addresses own;
            if (!read_addresses(*interface.transport, &own) ||
                !std::ranges::equal(own.device, message.target_device) ||
                !std::ranges::equal(own.interface, message.target_interface)) {
                continue;
            }
            if (!is_senders(*interface.transport, message)) return;
            const ucs_status_t status =
                interface.transport->cut_off(message.sender(), message.header.number);
            if (status != UCS_OK) return;  // the peer asks again
        }
        record_.done(message);
    }
    // One that was closed here: the peer greets before it asks again, and gets its answer then.
    Endpoint* endpoint = endpoints_.find(message.header.from);
    if (endpoint == nullptr) return;
    const RevokeDoneMessage done{endpoint->local_uuid(), message.header.number};
    send_everywhere(*endpoint, AmId::kBulkRevokeDone, std::as_bytes(std::span(&done, 1)));
}

ucs_status_t Revocation::on_revoke_done(void* self, void* data, size_t length,
                                        uct::ReceiveDescriptor*) {
    RevokeDoneMessage done;
    if (!read_whole(data, length, &done)) {
        ucs::log_warn("a malformed answer to a REVOKE of {} bytes was dropped", length);
        return UCS_OK;
    }
    for (PathGroup* group : static_cast<Revocation*>(self)->run_queue_.watched()) {
        if (group->endpoint.remote_uuid() != done.from) continue;
        for (const auto& path : group->paths) {
            if (path->state != Path::State::kRevoking || path->revocation != done.number) continue;
            path->is_revoked = true;
            group->wake();
        }
    }
    return UCS_OK;
}

bool parse_revoke(std::span<const std::byte> bytes, RevokeMessage* message) {
    RevokeHeader& header = message->header;
    if (!read_header(bytes.data(), bytes.size(), &header, &bytes)) return false;
    const std::pair<std::span<const std::byte>*, size_t> parts[] = {
        {&message->device, header.device_length},
        {&message->interface, header.interface_length},
        {&message->target_device, header.target_device_length},
        {&message->target_interface, header.target_interface_length},
    };
    for (const auto& [part, length] : parts) {
        if (length > bytes.size()) return false;
        *part = bytes.first(length);
        bytes = bytes.subspan(length);
    }
    return bytes.empty() && header.number != 0 && header.is_queue_pair <= 1;
}

std::vector<std::byte> pack_revoke(const RevokeMessage& message) {
    RevokeHeader header = message.header;
    header.device_length = static_cast<uint8_t>(message.device.size());
    header.interface_length = static_cast<uint8_t>(message.interface.size());
    header.target_device_length = static_cast<uint8_t>(message.target_device.size());
    header.target_interface_length = static_cast<uint8_t>(message.target_interface.size());
    const auto fixed = std::as_bytes(std::span(&header, 1));
    std::vector<std::byte> bytes(fixed.begin(), fixed.end());
    for (const auto part :
         {message.device, message.interface, message.target_device, message.target_interface}) {
        bytes.insert(bytes.end(), part.begin(), part.end());
    }
    return bytes;
}

uint64_t RevocationRecord::key(const RevokeMessage& message) {
    uint64_t hash = ucs::mix64(message.header.from) ^ ucs::mix64(message.header.name + 1);
    for (const auto part :
         {message.device, message.interface, message.target_device, message.target_interface}) {
        for (const std::byte byte : part) hash = ucs::mix64(hash ^ static_cast<uint8_t>(byte));
    }
    return hash;
}

bool RevocationRecord::is_done(const RevokeMessage& message) const {
    const auto found = last_.find(key(message));
    return found != last_.end() && found->second >= message.header.number;
}
}  // namespace ucp::bulk
