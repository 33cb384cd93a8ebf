// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/ud/ud_peer.h"

#include <algorithm>
#include <new>

#include "ucs/log/log.h"
#include "uct/base/am.h"
#include "uct/ib/ud/ud_interface.h"

namespace uct::ib::ud {

UdPeer::UdPeer(UdInterface& interface, const PeerTarget& target, const Source& source,
               size_t payload_limit, uint32_t name, uint64_t start)
    : interface_(interface),
      target_(target),
      port_(source.port),
      identity_{.name = source.identity},
      connection_(std::in_place, interface.settings(), name, start),
      payload_limit_(static_cast<uint16_t>(payload_limit)) {}

UdPeer::~UdPeer() {
    forget_sender(interface_.params().am_table, identity_);
    SentList packets;
    connection_->sender().take_all(&packets);
    packets.clear_and_dispose([](SentPacket* packet) { static_cast<Packet*>(packet)->drop(); });
    drop_received();
}

// --- sending

bool UdPeer::has_room() const {
    return status_ == UCS_OK && connection_->sender().backlog() < interface_.backlog_limit();
}

ucs_status_t UdPeer::begin_message(Packet** packet) {
    if (!has_room()) [[unlikely]]
        return no_room();
    const size_t longest = interface_.attributes().am.max_bcopy;
    if (!interface_.has_packets((longest + payload_limit_ - 1) / payload_limit_)) [[unlikely]]
        return UCS_ERR_NO_MEMORY;
    *packet = interface_.packet();
    return UCS_OK;
}

void UdPeer::send(Packet& packet, uint8_t id, size_t length) {
    Sender& sender = connection_->sender();
    packet.id = id;
    packet.size = static_cast<uint32_t>(std::min<size_t>(length, payload_limit_));
    packet.has_more = length > payload_limit_;
    sender.add(packet);
    for (size_t done = packet.size; done < length;) {
        Packet* const next = interface_.packet();  // begin_message() has seen to it
        next->id = id;
        next->size = static_cast<uint32_t>(std::min<size_t>(length - done, payload_limit_));
        std::memcpy(next->payload(), packet.payload() + done, next->size);
        done += next->size;
        next->has_more = done < length;
        sender.add(*next);
    }
    if (!transmit()) interface_.transmit_later(*this);
    interface_.reschedule(*this);
}

bool UdPeer::transmit() {
    Sender& sender = connection_->sender();
    while (SentPacket* next = sender.next()) {
        auto& packet = static_cast<Packet&>(*next);
        if (packet.is_posted()) [[unlikely]] {
            sender.postponed(packet, interface_.clock());
            continue;
        }
        if (!interface_.queue().has_room()) [[unlikely]]
            return false;
        post(packet);
    }
    return true;
}

void UdPeer::post(Packet& packet) {
    Header header;
    header.is_numbered = true;
    header.number = packet.number();
    header.id = packet.id;
    header.is_ping = packet.is_ping;
    header.has_more = packet.has_more;
    header.asks_acknowledgement = connection_->sender().fills_window();
    connection_->address(&header, interface_.hello());
    connection_->receiver().acknowledge(&header, false);
    connection_->sender().transmitted(packet, interface_.clock());
    if (packet.was_resent()) [[unlikely]]
        interface_.count_retransmission();
    std::byte* const begin = packet.payload() - header.length();
    header.write(begin);
    const size_t length = header.length() + packet.size;
    WorkRequest request = interface_.request_to(target_);
    request.inlined = length <= interface_.max_inline();
    request.signaled = !request.inlined;
    request.add(begin, length, request.inlined ? 0 : packet.local_key());
    if (!interface_.queue().post(request, request.inlined ? nullptr : &packet)) [[unlikely]]
        return;  // as good as lost
    if (!request.inlined) packet.set_posted();
}

void UdPeer::acknowledge() {
    if (!interface_.queue().has_room()) return;
    Header header;
    connection_->address(&header, interface_.hello());
    connection_->receiver().acknowledge(&header, true);
    WorkRequest request = interface_.request_to(target_);
    constexpr size_t kLongest = Header::kMaxLength + kSelectiveWords * sizeof(uint64_t);
    if (header.length() <= interface_.max_inline()) {
        std::byte bytes[kLongest];
        header.write(bytes);
        request.inlined = true;
        request.add(bytes, header.length());
        interface_.queue().post(request, nullptr);
        return;
    }
    Packet* packet = interface_.packet();
    if (packet == nullptr) return;
    header.write(packet->payload());
    request.signaled = true;
    request.add(packet->payload(), header.length(), packet->local_key());
    if (interface_.queue().post(request, packet)) packet->set_posted();
    packet->drop();
}

ucs_status_t UdPeer::flush(Completion* completion) {
    if (status_ != UCS_OK || connection_->sender().is_idle()) return status_;
    if (completion == nullptr) return UCS_INPROGRESS;
    AcknowledgementWaiter* waiter = interface_.waiters().create();
    if (waiter == nullptr) return UCS_ERR_NO_MEMORY;
    await_acknowledgement(*waiter, completion);
    return UCS_INPROGRESS;
}

void UdPeer::await_acknowledgement(AcknowledgementWaiter& waiter, Completion* completion) {
    waiter.number = connection_->sender().next_number() - 1;
    waiter.completion = completion;
    waiters_.push_back(waiter);
}

void UdPeer::complete_waiters() {
    while (!waiters_.empty() && connection_->sender().is_complete(waiters_.front().number)) {
        AcknowledgementWaiter& waiter = waiters_.front();
        Completion* const completion = waiter.completion;
        waiters_.pop_front();
        interface_.waiters().destroy(&waiter);
        completion->complete(UCS_OK);
    }
}

// --- receiving

void UdPeer::arrived(const Header& header, ReceiveBuffer* buffer, std::byte* data,
                     uint32_t length) {
    const ucs::Time now = interface_.clock();
    SentList done;
    const bool is_sound = connection_->acknowledged(header, now, &done);
    if (!is_sound) ucs::log_debug("a peer acknowledges what was not sent");
    if (!done.empty()) {
        done.clear_and_dispose([](SentPacket* packet) { static_cast<Packet*>(packet)->drop(); });
        for (UdEndpoint& endpoint : endpoints_) interface_.pending().schedule(endpoint);
        complete_waiters();
    }
    if (connection_->sender().next() != nullptr) interface_.transmit_later(*this);
    if (!header.is_numbered) {
        interface_.recycle(buffer);
        return;
    }
    Receiver& receiver = connection_->receiver();
    const uint32_t front = static_cast<uint32_t>(header.length());
    switch (receiver.arrived(header.number, header.asks_acknowledgement, now)) {
        case Receiver::Verdict::kDeliver:
            deliver(header, buffer, data + front, length - front);
            while (HeldPacket* next = receiver.next()) {
                const auto held = *static_cast<HeldBuffer*>(next);
                interface_.count_held(-1);
                std::byte* const bytes = UdInterface::packet_in(held.buffer);
                const auto kept = Header::read({bytes, held.length});
                deliver(*kept, held.buffer, bytes + kept->length(), held.length - kept->length());
            }
            break;
        case Receiver::Verdict::kHold:
            if (interface_.may_hold()) {
                receiver.hold(*::new (UdInterface::grh_in(buffer))
                                  HeldBuffer(header.number, buffer, length));
                interface_.count_held(1);
                break;
            }
            [[fallthrough]];
        case Receiver::Verdict::kDrop:
            interface_.recycle(buffer);
            break;
    }
}

void UdPeer::deliver(const Header& header, ReceiveBuffer* buffer, std::byte* payload,
                     size_t length) {
    if (header.is_ping) {
        interface_.recycle(buffer);
        return;
    }
    const AmTable& table = interface_.params().am_table;
    if (!header.has_more && assembling_ == Assembling::kNothing) [[likely]] {
        SenderScope sender(table);
        if (!sender.admits(identity_, header.id, payload, length))
            return interface_.recycle(buffer);
        return dispatch_am_once(table, header.id, payload, length, buffer,
                                [&] { interface_.recycle(buffer); });
    }
    const size_t longest = interface_.config().segment_size;
    if (assembling_ == Assembling::kNothing) {
        try {
            assembly_ = std::make_unique<std::vector<std::byte>>();
            assembly_->reserve(longest);
            assembling_ = Assembling::kMessage;
        } catch (const std::bad_alloc&) {
            assembly_.reset();
            assembling_ = Assembling::kLost;
            SenderScope sender(table);
            if (sender.admits(identity_, header.id, payload, length) && table.lost != nullptr)
                table.lost(table.lost_arg, header.id, payload, length);
        }
    }
    // A correct peer sends no more; the rest of a longer message is dropped.
    if (assembly_ != nullptr && assembly_->size() + length <= longest) {
        assembly_->insert(assembly_->end(), payload, payload + length);
    }
    interface_.recycle(buffer);
    if (header.has_more) return;
    assembling_ = Assembling::kNothing;
    const auto message = std::move(assembly_);
    if (message == nullptr) return;
    SenderScope sender(table);
    if (sender.admits(identity_, header.id, message->data(), message->size()))
        dispatch_am(table, header.id, message->data(), message->size(), nullptr);
}

void UdPeer::drop_received() {
    HeldList held;
    connection_->receiver().restart(&held);
    interface_.count_held(-static_cast<int>(held.size()));
    held.clear_and_dispose(
        [&](HeldPacket* packet) { interface_.recycle(static_cast<HeldBuffer*>(packet)->buffer); });
    assembly_.reset();
    assembling_ = Assembling::kNothing;
}

// --- the end

void UdPeer::restart(uint32_t name, uint64_t start) {
    drop_received();
    connection_.emplace(interface_.settings(), name, start);
}

void UdPeer::end() {
    SentList packets;
    connection_->sender().take_all(&packets);
    packets.clear_and_dispose([](SentPacket* packet) { static_cast<Packet*>(packet)->drop(); });
    drop_received();
    while (!waiters_.empty()) {
        AcknowledgementWaiter& waiter = waiters_.front();
        Completion* const completion = waiter.completion;
        waiters_.pop_front();
        interface_.waiters().destroy(&waiter);
        completion->complete(status_);
    }
    // Each handler may destroy any endpoint, the others of this peer too.
    decltype(endpoints_) told;
    while (!endpoints_.empty()) {
        UdEndpoint& endpoint = endpoints_.front();
        endpoints_.pop_front();
        told.push_back(endpoint);
        interface_.pending().drop_all(endpoint);
        interface_.report_failure(&endpoint, status_);
    }
    endpoints_.splice(endpoints_.end(), told);
}

}  // namespace uct::ib::ud
