// SPDX-License-Identifier: BSD-3-Clause

// CUT and its answer, at both ends.

#include <algorithm>
#include <cstring>
#include <utility>

#include "ucp/bulk/engine/engine_state.h"
#include "ucp/worker/worker.h"
#include "ucs/log.h"

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

size_t pack_bytes(void* destination, void* arg) {
    const auto& bytes = *static_cast<std::span<const std::byte>*>(arg);
    std::memcpy(destination, bytes.data(), bytes.size());
    return bytes.size();
}

}  // namespace

void Engine::State::send_cut(Path& path, ucs::Time now) {
    path.due = ucs::deadline(now, kRepeat);
    Cut cut;
    cut.header.from = worker.uuid();
    cut.header.number = path.cut;
    Addresses own;
    if (path.kind == Path::Kind::kStrand) {
        cut.header.name = path.name;
        cut.header.is_strand = 1;
    } else {
        if (!read_addresses(*worker.interface(path.interface).transport, &own)) return;
        cut.device = own.device;
        cut.interface = own.interface;
        cut.target_device = path.remote_device;
        cut.target_interface = path.remote_interface;
    }
    send_everywhere(path.group.endpoint, AmId::kBulkCut, pack_cut(cut));
}

/** By the endpoint's lane and by every rail: nobody knows which of them are well. */
void Engine::State::send_everywhere(Endpoint& endpoint, AmId id,
                                    std::span<const std::byte> message) {
    for (const auto& path : make(endpoint).paths) {
        if (!path->may_post()) continue;
        if (path->kind == Path::Kind::kHome) endpoint.send_control(id, message);
        if (path->kind == Path::Kind::kRail) send_on(*path, id, message);
    }
}

void Engine::State::send_on(Path& rail, AmId id, std::span<const std::byte> message) {
    const bool is_free = rail.held.empty() && !rail.is_linked();
    if (is_free &&
        rail.own->am_bcopy(static_cast<uint8_t>(id), pack_bytes, &message) != UCS_ERR_NO_RESOURCE) {
        return;
    }
    const bool is_known = std::ranges::any_of(rail.held, [&](const auto& held) {
        return held.first == id && std::ranges::equal(held.second, message);
    });
    if (!is_known) rail.held.emplace_back(id, std::vector(message.begin(), message.end()));
    if (!rail.is_linked()) wait_for_room(rail);
}

void Engine::State::send_held(Group& group) {
    for (const auto& path : group.paths) {
        if (path->held.empty() || path->is_linked()) continue;
        const auto messages = std::exchange(path->held, {});
        if (!path->may_post()) continue;
        for (const auto& [id, message] : messages) send_on(*path, id, message);
    }
}

// Not here: a transport calls this, and may be the one to be cut off.
ucs_status_t Engine::State::on_cut(void* arg, void* data, size_t length, uct::ReceiveDescriptor*) {
    Worker& worker = *static_cast<Worker*>(arg);
    const std::span<const std::byte> bytes(static_cast<std::byte*>(data), length);
    Cut cut;
    if (!parse_cut(bytes, &cut)) {
        ucs::log_warn("a malformed CUT of {} bytes was dropped", length);
        return UCS_OK;
    }
    worker.bulk().state().cuts_due.emplace_back(bytes.begin(), bytes.end());
    worker.work_later();
    return UCS_OK;
}

void Engine::State::carry_out(std::span<const std::byte> message) {
    Cut cut;
    if (!parse_cut(message, &cut)) return;
    if (cut.header.is_strand != 0) {
        if (end_owner != nullptr) end_owner->cut_end(cut.header.from, cut.header.name);
    } else if (!cuts.is_done(cut)) {
        for (WorkerInterface& interface : worker.interfaces()) {
            Addresses own;
            if (!read_addresses(*interface.transport, &own) ||
                !std::ranges::equal(own.device, cut.target_device) ||
                !std::ranges::equal(own.interface, cut.target_interface)) {
                continue;
            }
            // What is not done yet is asked for again.
            if (interface.transport->cut_off(cut.sender(), cut.header.number) != UCS_OK) return;
        }
        cuts.done(cut);
    }
    // One that was closed here: the peer greets before it asks again, and gets its answer then.
    Endpoint* endpoint = worker.find_endpoint(cut.header.from);
    if (endpoint == nullptr) return;
    const CutDoneMessage done{worker.uuid(), cut.header.number};
    send_everywhere(*endpoint, AmId::kBulkCutDone, std::as_bytes(std::span(&done, 1)));
}

ucs_status_t Engine::State::on_cut_done(void* arg, void* data, size_t length,
                                        uct::ReceiveDescriptor*) {
    Worker& worker = *static_cast<Worker*>(arg);
    CutDoneMessage done;
    if (length != sizeof(done)) {
        ucs::log_warn("a malformed answer to a CUT of {} bytes was dropped", length);
        return UCS_OK;
    }
    std::memcpy(&done, data, sizeof(done));
    State& state = worker.bulk().state();
    for (Group* group : state.watched) {
        if (group->endpoint.remote_uuid() != done.from) continue;
        for (const auto& path : group->paths) {
            if (path->state != Path::State::kCutting || path->cut != done.number) continue;
            path->is_cut = true;
            state.wake(*group);
        }
    }
    return UCS_OK;
}

}  // namespace ucp::bulk
