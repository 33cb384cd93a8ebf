// SPDX-License-Identifier: BSD-3-Clause
#include <cstring>

#include "fuzz/inputs.h"
#include "fuzz/victim.h"
#include "ucp/bulk/engine/notification.h"
#include "ucp/lanes/messages.h"
#include "ucp/mem/memory.h"
#include "ucp/mem/packed_key.h"
#include "ucp/proto/rma/emulation.h"
#include "ucp/proto/rndv/rndv_wire.h"

namespace ucp::fuzz {

namespace {

// Names that Victim::speak_to() replaces.
constexpr uint64_t kPeer = 'p', kRegions = 'i', kRegion = 'k', kMemory = 'm';

constexpr uint64_t request(uint64_t index) {
    return 'r' | index << 8;
}

Input input_of(std::span<const std::byte> bytes) {
    const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
    return {data, data + bytes.size()};
}

std::vector<Input> addresses() {
    Victim victim(Victim::Links::kScalable);
    return {input_of(victim.worker().address())};
}

std::vector<Input> remote_keys() {
    Victim victim(Victim::Links::kScalable);
    char mapped[64];
    Memory* memory = nullptr;
    if (Memory::create(victim.context().domains(), mapped, sizeof(mapped), &memory) != UCS_OK)
        return {};
    std::vector<std::byte> key(packed_key_size(*memory));
    pack_key(*memory, key);
    Memory::destroy(memory);
    return {input_of(key)};
}

std::vector<Input> lane_messages() {
    std::vector<Input> inputs;
    for (auto type = static_cast<uint8_t>(lanes::MessageType::kScore);
         type <= static_cast<uint8_t>(lanes::kLastMessageType); ++type) {
        lanes::Message message;
        message.type = static_cast<lanes::MessageType>(type);
        message.epoch = 1;
        if (message.type == lanes::MessageType::kLane) message.address.assign(30, 1);
        Input bytes(lanes::encoded_size(message));
        lanes::encode(message, bytes);
        inputs.push_back(bytes);
    }
    return inputs;
}

class Messages {
  public:
    explicit Messages(Victim::Links links) : input_{static_cast<uint8_t>(0x80 | int(links))} {}

    template <typename Header>
    Messages& add(AmId id, const Header& header, size_t payload = 0) {
        return add(id, std::as_bytes(std::span(&header, 1)), payload);
    }
    Messages& add(AmId id, std::span<const std::byte> header, size_t payload) {
        input_.push_back(static_cast<uint8_t>(id));
        input_.push_back(static_cast<uint8_t>(header.size() + payload));
        const Input bytes = input_of(header);
        input_.insert(input_.end(), bytes.begin(), bytes.end());
        input_.resize(input_.size() + payload, 'x');
        return *this;
    }
    const Input& input() const { return input_; }

  private:
    Input input_;
};

// What goes before the first bytes of a notification's payload.
struct FirstPayload {
    NotifyHeader header;
    NotifyPayload payload;
};

std::vector<Input> messages() {
    const auto links = Victim::Links::kScalable;
    const MessageId first{kPeer, 7};
    const RemoteAccess memory{kRegions, kRegion, kMemory};
    const RndvRts announcement{1, kPeer, 9, 100, kMemory, 67, 0, 0, 0};
    std::vector<Input> inputs = {
        Messages(links).add(AmId::kTagShort, uint64_t{1}, 20).input(),
        Messages(links)
            .add(AmId::kTagFirst, TagFirstHeader{1, first, 20, 3, 67}, 8)
            .add(AmId::kFragment, FragmentHeader{first, 8}, 12)
            .input(),
        Messages(links)
            .add(AmId::kTagFirst, TagFirstHeader{99, first, 20, 0, 0}, 8)
            .add(AmId::kTagFirst, TagFirstHeader{99, first, 20, 0, 66}, 8)
            .add(AmId::kFragment, FragmentHeader{first, 8}, 12)
            .input(),
        Messages(links).add(AmId::kTagSync, TagSyncHeader{1, kPeer, 3}, 8).input(),
        Messages(links).add(AmId::kTagSyncAck, SyncAckHeader{request(1)}).input(),
        Messages(links).add(AmId::kAmShort, AmHeader{0, 0, 0}, 8).input(),
        Messages(links).add(AmId::kAmSingle, AmSingleHeader{{0, 1, 4}, kPeer}, 8).input(),
        Messages(links)
            .add(AmId::kAmFirst, AmFirstHeader{{0, 1, 4}, first, 20}, 12)
            .add(AmId::kFragment, FragmentHeader{first, 8}, 12)
            .input(),
        // With a time that is to be told.
        Messages(links)
            .add(AmId::kAmFirst, AmFirstHeader{{0, 1, 4}, {kPeer, kStamped | 67}, 20}, 12)
            .add(AmId::kFragment, FragmentHeader{{kPeer, kStamped | 67}, 8}, 12)
            .input(),
        Messages(links)
            .add(AmId::kRndvRts, announcement)
            .add(AmId::kRndvData, RndvData{request(3), kPeer, 0}, 60)
            .add(AmId::kRndvData, RndvData{request(3), kPeer, 60}, 40)
            .input(),
        // Of no bytes, with a time that is to be told.
        Messages(links).add(AmId::kRndvRts, RndvRts{1, kPeer, 9, 0, kMemory, 2, 0, 0, 0}).input(),
        Messages(links)
            .add(AmId::kRndvRts, announcement)
            .add(AmId::kRndvAtp, RndvDone{request(3), kPeer, 0})
            .input(),
        Messages(links)
            .add(AmId::kRndvAmRts, RndvRts{0, kPeer, 9, 100, kMemory, 0, 0, 8, 0}, 8)
            .add(AmId::kRndvData, RndvData{request(3), kPeer, 0}, 100)
            .input(),
        Messages(links).add(AmId::kPut, EmulatedPut{kPeer, 1, memory, 1}, 8).input(),
        Messages(links).add(AmId::kGetRequest, EmulatedGet{kPeer, 1, memory, 8}).input(),
        Messages(links)
            .add(AmId::kGetRequest, CopyMessage{{kPeer, 1, memory, 8}, {CopyRequest::kPut, {}}})
            .input(),
        Messages(links)
            .add(AmId::kAtomicRequest, EmulatedAtomic{kPeer, 1, memory, 1, 8, 1, 0})
            .input(),
        Messages(links)
            .add(AmId::kNotify, NotifyMessage{kPeer, 1})
            .add(AmId::kNotify, FirstPayload{{kPeer, 1, NotifyHeader::kPayload, 8}, {7}}, 8)
            .input(),
        Messages(links)
            .add(AmId::kNotify, FirstPayload{{kPeer, 1, NotifyHeader::kPayload, 20}, {7}}, 8)
            .add(AmId::kFragment, FragmentHeader{first, 8}, 12)
            .input(),
        Messages(links)
            .add(AmId::kNotify, NotifyHeader{kPeer, 65600, NotifyHeader::kCredit, 0})
            .input(),
        Messages(links).add(AmId::kHello, HelloHeader{kPeer}, 40).input(),
    };
    for (uint64_t name = 0; name < 4; ++name) {
        inputs.push_back(
            Messages(links).add(AmId::kRndvAts, RndvDone{request(name), kPeer, 0}).input());
        inputs.push_back(
            Messages(links)
                .add(AmId::kRndvRtr, RndvRtr{request(name), kPeer, 4, 0, 10000, 0, 0, 0})
                .input());
        inputs.push_back(Messages(links)
                             .add(AmId::kGetReply, EmulatedGetReply{kPeer, request(name), 0}, 8)
                             .input());
        inputs.push_back(Messages(links)
                             .add(AmId::kAtomicReply, EmulatedAtomicReply{kPeer, request(name), 5})
                             .input());
        inputs.push_back(
            Messages(links).add(AmId::kRmaAck, EmulatedDone{kPeer, request(name), 0}).input());
    }
    for (uint8_t state = 0; state < 4; ++state) {
        Messages talk(static_cast<Victim::Links>(state));
        for (const Input& message : lane_messages()) {
            Input bytes(sizeof(LaneHeader));
            std::memcpy(bytes.data(), &kPeer, sizeof(kPeer));
            bytes.insert(bytes.end(), message.begin(), message.end());
            const auto wire = std::as_bytes(std::span(bytes));
            inputs.push_back(Messages(static_cast<Victim::Links>(state))
                                 .add(AmId::kLane, wire, 0)
                                 .add(AmId::kMarker, wire, 0)
                                 .input());
            talk.add(AmId::kLane, wire, 0);
        }
        inputs.push_back(talk.input());
    }
    return inputs;
}

constexpr Target kTargets[] = {
    {"address", read_address, addresses},
    {"rkey", read_remote_key, remote_keys},
    {"message", read_messages, messages},
    {"lane_message", read_lane_message, lane_messages},
    {"tcp_stream", read_tcp_stream, tcp_streams},
    {"tcp_session", read_tcp_session, tcp_sessions},
    {"tls", read_tls, tls_lines},
    {"callers", read_callers, callers},
    {"answers", read_answers, answers},
    {"datagram", read_datagram, datagrams},
    {"shared_memory", read_shared_memory, shared_memories},
};

}  // namespace

std::span<const Target> targets() {
    return kTargets;
}

}  // namespace ucp::fuzz
