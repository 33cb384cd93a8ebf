// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "common/mock_internal.h"
#include "uct/base/am.h"

namespace uct::mock {

namespace {

void append(std::vector<std::byte>& data, const void* from, size_t length) {
    const auto* bytes = static_cast<const std::byte*>(from);
    data.insert(data.end(), bytes, bytes + length);
}

void append(std::vector<std::byte>& data, std::span<const Iov> iov) {
    for (const Iov& piece : iov) append(data, piece.buffer, piece.length);
}

}  // namespace

MockEndpoint::MockEndpoint(MockInterface& interface, uint32_t id)
    : interface_(interface),
      id_(id),
      channel_(std::make_shared<Channel>()),
      acknowledgements_(std::make_shared<Channel>()) {
    FabricState& fabric = interface.fabric;
    for (Channel* channel : {channel_.get(), acknowledgements_.get()}) {
        channel->source_worker = interface.params.worker_id;
        channel->kind = interface.kind;
        channel->device = interface.device;
        channel->source_interface = interface.id;
        channel->source_endpoint = id;
        channel->usual_delay = fabric.random(fabric.config.max_delay + 1);
    }
    acknowledgements_->acknowledgements = true;
}

MockEndpoint::~MockEndpoint() {
    FabricState& fabric = interface_.fabric;
    pending_.clear();
    interface_.removed(this);

    std::vector<Completion*> cancelled;
    for (Packet* packet : outstanding_) {
        if (packet->completion != nullptr) cancelled.push_back(packet->completion);
        packet->forget_sender();
        if (packet->stranded) fabric.recycle(packet);
    }
    for (auto& [sequence, completion] : flushes_) cancelled.push_back(completion);
    std::erase_if(interface_.completions, [&](Packet* packet) {
        if (packet->source != nullptr) return false;
        --fabric.busy;
        fabric.recycle(packet);
        return true;
    });
    if (interface_.kind == Kind::kDedicated && channel_->packets.size() > 1) {
        // A queue pair takes unsent messages with it; the first is on the wire already.
        for (auto packet = channel_->packets.begin() + 1; packet != channel_->packets.end();
             ++packet) {
            --fabric.busy;
            ++interface_.counters().lost;
            fabric.recycle(*packet);
        }
        channel_->packets.resize(1);
    }
    for (Completion* completion : cancelled) completion->complete(UCS_ERR_CANCELED);
}

bool MockEndpoint::starved() const {
    return starved_until_ > interface_.turn;
}

// May an operation be posted now? Refuses at random too, until the next progress at most.
ucs_status_t MockEndpoint::room() {
    if (status_ != UCS_OK) return status_;
    if (!connected()) return UCS_ERR_NOT_CONNECTED;
    FabricState& fabric = interface_.fabric;
    if (starved() && fabric.chance(fabric.config.sudden_room_probability)) starved_until_ = 0;
    if (!starved() && fabric.chance(fabric.config.no_resource_probability)) {
        starved_until_ = interface_.turn + 1;
    }
    if (starved() || outstanding_.size() >= fabric.config.transmit_depth) {
        ++interface_.counters().no_resource;
        return UCS_ERR_NO_RESOURCE;
    }
    return UCS_OK;
}

Packet* MockEndpoint::prepare(PacketType type, Completion* completion) {
    Packet* packet = interface_.fabric.acquire();
    packet->type = type;
    packet->source = this;
    packet->target_endpoint = peer_endpoint_;
    packet->completion = completion;
    return packet;
}

void MockEndpoint::post(Packet* packet) {
    Counters& counters = interface_.counters();
    switch (packet->type) {
        case PacketType::kAm:
            ++counters.am;
            break;
        case PacketType::kPut:
            ++counters.put;
            break;
        case PacketType::kGet:
            ++counters.get;
            break;
        case PacketType::kAtomic:
            ++counters.atomic;
            break;
        case PacketType::kCheck:
            ++counters.check;
            break;
    }
    counters.bytes += packet->type == PacketType::kGet ? packet->length : packet->data.size();
    packet->sequence = ++posted_;
    outstanding_.push_back(packet);
    interface_.fabric.send(channel_, packet);
}

ucs_status_t MockEndpoint::am_short(uint8_t id, uint64_t header, const void* payload,
                                    uint32_t length) {
    if (length > interface_.attributes().am.max_short) return UCS_ERR_INVALID_PARAM;
    if (const ucs_status_t status = room(); status != UCS_OK) return status;
    Packet* packet = prepare(PacketType::kAm, nullptr);
    packet->am_id = id;
    append(packet->data, &header, sizeof(header));
    append(packet->data, payload, length);
    ++interface_.counters().am_short;
    post(packet);
    return UCS_OK;
}

ssize_t MockEndpoint::am_bcopy(uint8_t id, PackCallback pack, void* arg) {
    if (const ucs_status_t status = room(); status != UCS_OK) return status;
    if (id < 64 && (interface_.fabric.config.without_memory >> id & 1) != 0) throw std::bad_alloc();
    Packet* packet = prepare(PacketType::kAm, nullptr);
    packet->am_id = id;
    packet->data.resize(interface_.attributes().am.longest_bcopy());
    const size_t length =
        pack_or_release(pack, packet->data.data(), arg, [&] { interface_.fabric.recycle(packet); });
    packet->data.resize(length);
    post(packet);
    return static_cast<ssize_t>(length);
}

ucs_status_t MockEndpoint::am_zcopy(uint8_t id, std::span<const std::byte> header,
                                    std::span<const Iov> iov, Completion* completion) {
    if (iov.size() > interface_.attributes().am.max_iov ||
        header.size() > interface_.attributes().am.max_header) {
        return UCS_ERR_INVALID_PARAM;
    }
    if (const ucs_status_t status = room(); status != UCS_OK) return status;
    Packet* packet = prepare(PacketType::kAm, completion);
    packet->am_id = id;
    append(packet->data, header.data(), header.size());
    append(packet->data, iov);
    post(packet);
    return UCS_INPROGRESS;
}

ucs_status_t MockEndpoint::put_short(const void* buffer, uint32_t length, uint64_t remote_address,
                                     RemoteKey key) {
    if (length > interface_.attributes().put.max_short) return UCS_ERR_INVALID_PARAM;
    if (const ucs_status_t status = room(); status != UCS_OK) return status;
    Packet* packet = prepare(PacketType::kPut, nullptr);
    packet->remote_address = remote_address;
    packet->key = key;
    append(packet->data, buffer, length);
    post(packet);
    return UCS_OK;
}

ssize_t MockEndpoint::put_bcopy(PackCallback pack, void* arg, uint64_t remote_address,
                                RemoteKey key) {
    if (const ucs_status_t status = room(); status != UCS_OK) return status;
    Packet* packet = prepare(PacketType::kPut, nullptr);
    packet->remote_address = remote_address;
    packet->key = key;
    packet->data.resize(interface_.attributes().put.max_bcopy);
    const size_t length =
        pack_or_release(pack, packet->data.data(), arg, [&] { interface_.fabric.recycle(packet); });
    packet->data.resize(length);
    post(packet);
    return static_cast<ssize_t>(length);
}

ucs_status_t MockEndpoint::put_zcopy(std::span<const Iov> iov, uint64_t remote_address,
                                     RemoteKey key, Completion* completion) {
    if (iov.size() > interface_.attributes().put.max_iov) return UCS_ERR_INVALID_PARAM;
    if (const ucs_status_t status = room(); status != UCS_OK) return status;
    Packet* packet = prepare(PacketType::kPut, completion);
    packet->remote_address = remote_address;
    packet->key = key;
    append(packet->data, iov);
    post(packet);
    return UCS_INPROGRESS;
}

ucs_status_t MockEndpoint::get_bcopy(UnpackCallback unpack, void* arg, size_t length,
                                     uint64_t remote_address, RemoteKey key,
                                     Completion* completion) {
    if (length > interface_.attributes().get.max_bcopy) return UCS_ERR_INVALID_PARAM;
    if (const ucs_status_t status = room(); status != UCS_OK) return status;
    Packet* packet = prepare(PacketType::kGet, completion);
    packet->remote_address = remote_address;
    packet->key = key;
    packet->length = length;
    packet->unpack = unpack;
    packet->unpack_arg = arg;
    post(packet);
    return UCS_INPROGRESS;
}

ucs_status_t MockEndpoint::get_zcopy(std::span<const Iov> iov, uint64_t remote_address,
                                     RemoteKey key, Completion* completion) {
    if (iov.size() > interface_.attributes().get.max_iov) return UCS_ERR_INVALID_PARAM;
    if (const ucs_status_t status = room(); status != UCS_OK) return status;
    Packet* packet = prepare(PacketType::kGet, completion);
    packet->remote_address = remote_address;
    packet->key = key;
    packet->length = 0;
    for (const Iov& piece : iov) packet->length += piece.length;
    packet->destination.assign(iov.begin(), iov.end());
    post(packet);
    return UCS_INPROGRESS;
}

// The last packet completes it: an error of an earlier one is the endpoint's, and so the last's.
ssize_t MockEndpoint::chain(PacketType type, std::span<const ChainPiece> pieces,
                            Completion* completion) {
    ssize_t taken = 0;
    Packet* last = nullptr;
    for (const ChainPiece& piece : pieces) {
        if (piece.length > interface_.attributes().put.max_zcopy) return UCS_ERR_INVALID_PARAM;
        const ucs_status_t status = room();
        if (status == UCS_ERR_NO_RESOURCE) break;
        if (status != UCS_OK) return status;
        last = prepare(type, nullptr);
        last->remote_address = piece.remote;
        last->key = piece.key;
        if (type == PacketType::kPut) {
            append(last->data, piece.local, piece.length);
        } else {
            last->length = piece.length;
            last->destination.push_back({piece.local, piece.length, piece.memory});
        }
        post(last);
        ++taken;
    }
    if (taken == 0) return 0;
    last->completion = completion;
    ++interface_.counters().chains;
    return taken;
}

// At once, as a processor does.
ssize_t MockEndpoint::copy(PacketType type, std::span<const ChainPiece> pieces) {
    const ucs_status_t room_status = room();
    if (room_status != UCS_OK) return room_status == UCS_ERR_NO_RESOURCE ? 0 : room_status;
    ++interface_.counters().copies;
    FabricState& fabric = interface_.fabric;
    ssize_t done = 0;
    for (const ChainPiece& piece : pieces) {
        if (done == static_cast<ssize_t>(fabric.config.pieces_at_once)) break;
        Packet* packet = prepare(type, nullptr);
        packet->remote_address = piece.remote;
        packet->key = piece.key;
        packet->length = piece.length;
        if (type == PacketType::kPut) append(packet->data, piece.local, piece.length);
        const ucs_status_t status = fabric.access(packet);
        if (status == UCS_OK && type == PacketType::kGet)
            std::ranges::copy(packet->data, static_cast<std::byte*>(piece.local));
        fabric.recycle(packet);
        if (status != UCS_OK) {
            if (done == 0) return status;
            break;
        }
        ++done;
    }
    return done;
}

ucs_status_t MockEndpoint::atomic(AtomicOp op, unsigned size, uint64_t operand, uint64_t compare,
                                  void* result, uint64_t remote_address, RemoteKey key,
                                  Completion* completion) {
    const InterfaceAttributes& attributes = interface_.attributes();
    const uint8_t supported = size == 8 ? attributes.atomic64_ops : attributes.atomic32_ops;
    if ((supported & static_cast<uint8_t>(op)) == 0) return UCS_ERR_UNSUPPORTED;
    if (const ucs_status_t status = room(); status != UCS_OK) return status;
    Packet* packet = prepare(PacketType::kAtomic, completion);
    packet->atomic_op = op;
    packet->size = size;
    packet->operand = operand;
    packet->compare = compare;
    packet->result = result;
    packet->remote_address = remote_address;
    packet->key = key;
    post(packet);
    return UCS_INPROGRESS;
}

ucs_status_t MockEndpoint::flush(Completion* completion) {
    if (status_ != UCS_OK) return status_;
    if (done_ == posted_) return UCS_OK;
    if (interface_.fabric.config.flush_takes_room) {
        if (const ucs_status_t status = room(); status != UCS_OK) return status;
    }
    if (completion != nullptr) flushes_.emplace_back(posted_, completion);
    return UCS_INPROGRESS;
}

ucs_status_t MockEndpoint::check(Completion* completion) {
    if (const ucs_status_t status = room(); status != UCS_OK) return status;
    post(prepare(PacketType::kCheck, completion));
    return UCS_INPROGRESS;
}

ucs_status_t MockEndpoint::pending_add(Pending* pending) {
    if (status_ != UCS_OK) return status_;
    if (!starved() && outstanding_.size() < interface_.fabric.config.transmit_depth &&
        pending_.empty()) {
        return UCS_ERR_BUSY;
    }
    if (!listed) interface_.waiting.push_back(this);
    listed = true;
    pending_.push_back(*pending);
    return UCS_OK;
}

void MockEndpoint::pending_remove(Pending* pending) {
    if (pending->is_linked()) pending_.erase(pending_.iterator_to(*pending));
}

// Progress callbacks run with their element out of the queue; it returns unless finished.
void MockEndpoint::serve_pending() {
    while (!pending_.empty() && !starved() &&
           outstanding_.size() < interface_.fabric.config.transmit_depth) {
        Pending& pending = pending_.front();
        pending_.pop_front();
        const ucs_status_t status = pending.progress();
        if (status == UCS_OK) continue;
        pending_.push_front(pending);
        if (status != UCS_INPROGRESS) return;
    }
}

void MockEndpoint::fail(ucs_status_t status) {
    status_ = status;
    pending_.clear();
    ++interface_.counters().failed;
    const InterfaceParams& params = interface_.params;
    params.error_handler(params.error_arg, this, status);
}

void MockEndpoint::acknowledged(Packet* packet) {
    outstanding_.pop_front();
    done_ = packet->sequence;
    const ucs_status_t status = status_ != UCS_OK ? status_ : packet->status;
    if (status == UCS_OK) {
        const std::byte* from = packet->data.data();
        if (packet->unpack != nullptr) {
            packet->unpack(packet->unpack_arg, from, packet->data.size());
        }
        for (const Iov& piece : packet->destination) {
            std::memcpy(piece.buffer, from, piece.length);
            from += piece.length;
        }
        if (packet->result != nullptr) std::memcpy(packet->result, from, packet->size);
    }
    std::vector<Completion*> finished;
    if (packet->completion != nullptr) finished.push_back(packet->completion);
    while (!flushes_.empty() && flushes_.front().first <= done_) {
        finished.push_back(flushes_.front().second);
        flushes_.pop_front();
    }
    if (status == UCS_ERR_REJECTED && finished.empty()) {
        // Of a chain: its last packet would complete it.
        const auto last = std::ranges::find_if(
            outstanding_, [](const Packet* other) { return other->completion != nullptr; });
        if (last != outstanding_.end()) {
            finished.push_back(std::exchange((*last)->completion, nullptr));
        }
    }
    interface_.fabric.recycle(packet);
    // Callbacks may destroy this endpoint: nothing of it is touched after the first.
    if (status != UCS_OK && status_ == UCS_OK) {
        fail(status == UCS_ERR_REJECTED ? UCS_ERR_CONNECTION_RESET : status);
    }
    for (Completion* completion : finished) completion->complete(status);
}

bool MockEndpoint::is_connected(const RemoteAddress& remote) const {
    if (!connected() || status_ != UCS_OK) return false;
    if (interface_.kind == Kind::kScalable) {
        return MockInterface::parse(remote.interface, kInterfaceAddressLength) ==
               channel_->target_interface;
    }
    if (MockInterface::parse(remote.endpoint, kEndpointAddressLength) !=
        channel_->target_interface) {
        return false;
    }
    uint32_t peer;
    std::memcpy(&peer, remote.endpoint.data() + 8, sizeof(peer));
    return peer == peer_endpoint_;
}

ucs_status_t MockEndpoint::get_address(std::span<std::byte> address) const {
    if (interface_.kind != Kind::kDedicated) return UCS_ERR_UNSUPPORTED;
    if (address.size() < kEndpointAddressLength) return UCS_ERR_BUFFER_TOO_SMALL;
    const uint32_t words[] = {kAddressMark, interface_.id, id_};
    std::memcpy(address.data(), words, sizeof(words));
    return UCS_OK;
}

ucs_status_t MockEndpoint::connect(const RemoteAddress& remote) {
    if (interface_.kind != Kind::kDedicated) return UCS_ERR_UNSUPPORTED;
    if (connected()) return UCS_ERR_ALREADY_EXISTS;
    const uint32_t interface = MockInterface::parse(remote.endpoint, kEndpointAddressLength);
    if (interface == 0) return UCS_ERR_INVALID_ADDR;
    std::memcpy(&peer_endpoint_, remote.endpoint.data() + 8, sizeof(peer_endpoint_));
    channel_->target_interface = interface;
    return UCS_OK;
}

}  // namespace uct::mock
