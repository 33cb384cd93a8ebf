// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/queue_pairs/negotiation.h"

#include <cstring>

#include "ucp/bulk/schedule/rules.h"

namespace ucp::bulk {

using Type = QueuePairMessage::Type;

namespace {

// kAsk belongs to none.
constexpr uint32_t kNoRound = 1;

}  // namespace

std::vector<std::byte> encode(const QueuePairMessage& message) {
    std::vector<std::byte> bytes(QueuePairMessage::kHeader);
    bytes[0] = static_cast<std::byte>(message.type);
    bytes[1] = static_cast<std::byte>(message.is_answer);
    std::memcpy(&bytes[2], &message.epoch, sizeof(message.epoch));
    bytes.insert(bytes.end(), message.addresses.begin(), message.addresses.end());
    return bytes;
}

std::optional<QueuePairMessage> decode_queue_pair_message(std::span<const std::byte> bytes) {
    if (bytes.size() < QueuePairMessage::kHeader ||
        bytes.size() > QueuePairMessage::kHeader + QueuePairMessage::kMaxAddresses) {
        return {};
    }
    const auto type = std::to_integer<uint8_t>(bytes[0]);
    const auto answer = std::to_integer<uint8_t>(bytes[1]);
    if (type < static_cast<uint8_t>(Type::kOpen) || type > static_cast<uint8_t>(Type::kStill)) {
        return {};
    }
    QueuePairMessage message;
    message.type = static_cast<Type>(type);
    const bool has_answer = message.type == Type::kDown || message.type == Type::kStill;
    if (answer > (has_answer ? 1 : 0)) return {};
    message.is_answer = answer != 0;
    std::memcpy(&message.epoch, &bytes[2], sizeof(message.epoch));
    const auto addresses = bytes.subspan(QueuePairMessage::kHeader);
    const bool may_have = message.type == Type::kOpen || message.type == Type::kGrant;
    if (message.epoch == 0 || (!may_have && !addresses.empty())) return {};
    if (message.type == Type::kOpen && addresses.empty()) return {};
    message.addresses.assign(addresses.begin(), addresses.end());
    return message;
}

void QueuePairNegotiation::on_lane_up() {
    is_lane_up_ = true;
    open_if_due();
}

void QueuePairNegotiation::on_wanted() {
    if (is_wanted_) return;
    is_wanted_ = true;
    open_if_due();
}

void QueuePairNegotiation::on_lane_down() {
    is_lane_up_ = reopens_ = false;
    drain();
}

void QueuePairNegotiation::open_if_due() {
    if (!is_lane_up_ || !is_wanted_) return;
    if (state_ == State::kDraining) reopens_ = true;
    if (state_ != State::kClosed) return;
    if (!opens_) return sink_.send({Type::kAsk, kNoRound, false, {}});
    std::vector<std::byte> addresses = sink_.make_queue_pairs();
    if (addresses.empty()) return;
    begin(sink_.new_epoch(), State::kOpening);
    sink_.send({Type::kOpen, epoch_, false, std::move(addresses)});
}

void QueuePairNegotiation::on_message(const QueuePairMessage& message) {
    if (message.type == Type::kOpen) return opened(message);
    if (message.type == Type::kAsk) {
        is_wanted_ = true;
        return open_if_due();
    }
    const bool is_current = state_ != State::kClosed && message.epoch == epoch_;
    if (!is_current) {
        // Its sender is in a round that this end has lost, or never had.
        if (!message.is_answer && !message.is_refusal())
            sink_.send({Type::kDown, message.epoch, true, {}});
        return;
    }
    switch (message.type) {
        case Type::kOpen:
        case Type::kAsk:
            break;
        case Type::kGrant:
            granted(message);
            break;
        case Type::kUp:
            if (state_ != State::kGranted) break;
            state_ = State::kOpen;
            sink_.start_posting();
            break;
        case Type::kDown:
            peer_down_ = true;
            // Who answers so has no queue pairs; nothing here was ever connected.
            if (state_ == State::kOpening) return close();
            drain();
            close_if_both_down();
            break;
        case Type::kStill:
            if (!message.is_answer) sink_.send({Type::kStill, epoch_, true, {}});
            break;
    }
}

void QueuePairNegotiation::opened(const QueuePairMessage& message) {
    if (opens_) return;
    is_wanted_ = true;
    if (state_ != State::kClosed) {
        if (message.epoch == epoch_) return;
        // The peer has forgotten the former round: its queue pairs are gone.
        close();
    }
    std::vector<std::byte> addresses = sink_.answer_offer(message.addresses);
    if (!addresses.empty()) begin(message.epoch, State::kGranted);
    sink_.send({Type::kGrant, message.epoch, false, std::move(addresses)});
}

void QueuePairNegotiation::granted(const QueuePairMessage& message) {
    if (state_ == State::kOpening) {
        if (message.addresses.empty()) return close();
        if (!sink_.connect_queue_pairs(message.addresses)) return drain();
        state_ = State::kOpen;
        sink_.send({Type::kUp, epoch_, false, {}});
        sink_.start_posting();
    } else if (state_ == State::kDraining && message.addresses.empty()) {
        peer_down_ = true;
        close_if_both_down();
    }
}

void QueuePairNegotiation::on_idle() {
    if (state_ != State::kDraining || own_down_) return;
    own_down_ = true;
    sink_.send({Type::kDown, epoch_, false, {}});
    close_if_both_down();
}

void QueuePairNegotiation::on_gone() {
    is_lane_up_ = reopens_ = false;
    if (state_ != State::kClosed) close();
}
void QueuePairNegotiation::begin(uint32_t epoch, State state) {
    epoch_ = epoch;
    state_ = state;
    own_down_ = peer_down_ = false;
}

void QueuePairNegotiation::drain() {
    if (state_ == State::kClosed || state_ == State::kDraining) return;
    const bool was_posting = state_ == State::kOpen;
    state_ = State::kDraining;
    if (was_posting) {
        sink_.stop_posting();
    } else {
        on_idle();
    }
}

void QueuePairNegotiation::on_silence() {
    if (awaits_peer()) sink_.send({Type::kStill, epoch_, false, {}});
}

void QueuePairNegotiation::close() {
    state_ = State::kClosed;
    sink_.destroy_queue_pairs();
    if (reopens_) {
        reopens_ = false;
        open_if_due();
    }
}

const char* name(QueuePairNegotiation::State state) {
    static constexpr const char* kNames[] = {"closed", "opening", "granted", "open", "draining"};
    return kNames[static_cast<size_t>(state)];
}

namespace {

#pragma pack(push, 1)
struct Header {
    uint32_t kind;
    uint8_t domain;
    uint8_t partner_domain;
    uint8_t count;
    uint8_t device_length;
    uint8_t address_length;
};
#pragma pack(pop)

void append(std::vector<std::byte>& bytes, std::span<const std::byte> more) {
    bytes.insert(bytes.end(), more.begin(), more.end());
}

}  // namespace

std::vector<std::byte> encode(std::span<const RailAddresses> rails) {
    std::vector<std::byte> bytes;
    for (const RailAddresses& rail : rails) {
        const size_t length = rail.addresses.empty() ? 0 : rail.addresses.front().size();
        const Header header{rail.kind,
                            rail.domain,
                            rail.partner_domain,
                            static_cast<uint8_t>(rail.addresses.size()),
                            static_cast<uint8_t>(rail.device.size()),
                            static_cast<uint8_t>(length)};
        append(bytes, std::as_bytes(std::span(&header, 1)));
        append(bytes, rail.device);
        for (const auto& address : rail.addresses) append(bytes, address);
    }
    return bytes;
}

std::optional<std::vector<RailAddresses>> decode_rail_addresses(std::span<const std::byte> bytes) {
    std::vector<RailAddresses> rails;
    const auto take = [&bytes](size_t length) {
        const auto part = bytes.first(length);
        bytes = bytes.subspan(length);
        return std::vector<std::byte>(part.begin(), part.end());
    };
    while (!bytes.empty()) {
        Header header;
        if (bytes.size() < sizeof(header)) return {};
        std::memcpy(&header, bytes.data(), sizeof(header));
        bytes = bytes.subspan(sizeof(header));
        const size_t rest =
            size_t{header.device_length} + size_t{header.count} * size_t{header.address_length};
        const bool has_length = header.address_length != 0;
        if (header.count > kMaxQueuePairsPerRail || has_length != (header.count != 0) ||
            bytes.size() < rest) {
            return {};
        }
        RailAddresses& rail = rails.emplace_back();
        rail.kind = header.kind;
        rail.domain = header.domain;
        rail.partner_domain = header.partner_domain;
        rail.device = take(header.device_length);
        for (unsigned i = 0; i < header.count; ++i) {
            rail.addresses.push_back(take(header.address_length));
        }
    }
    return rails;
}

}  // namespace ucp::bulk
