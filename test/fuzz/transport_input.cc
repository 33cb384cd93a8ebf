// SPDX-License-Identifier: BSD-3-Clause

// What comes by an adapter or lies in shared memory: packets, addresses and keys of transports, and
// queues that others write into.

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "fuzz/inputs.h"
#include "ucp/mem/exported.h"
#include "uct/ib/base/address.h"
#include "uct/ib/ud/wire.h"
#include "uct/sm/component.h"
#include "uct/sm/inbox.h"
#include "uct/sm/outbox.h"

namespace ucp::fuzz {

namespace {

namespace ib = uct::ib;
namespace sm = uct::sm;

// What can be read is written as it was.
template <typename Address>
void read_address_of(std::span<const std::byte> bytes) {
    const std::vector<std::byte> exact(bytes.begin(), bytes.end());
    const auto address = Address::read(exact);
    if (!address) return;
    std::vector<std::byte> written(exact.size());
    address->write(written);
    if (!Address::read(written)) std::abort();
}

Input input_of(std::span<const std::byte> bytes) {
    Input input(bytes.size());
    std::memcpy(input.data(), bytes.data(), bytes.size());
    return input;
}

// One byte says of which kind an address is.
template <typename Address>
void add_address(std::vector<Input>& inputs, uint8_t kind, const Address& address) {
    std::vector<std::byte> bytes(1 + Address::kLength);
    bytes[0] = std::byte{kind};
    address.write(std::span(bytes).subspan(1));
    inputs.push_back(input_of(bytes));
}

constexpr sm::Inbox::Size kShared{8, 512, 8, 4}, kRing{8, 512, 8, 0};

// A queue of which every word may be anything: what its owner reads, and what a sender does.
class Queue {
  public:
    explicit Queue(const sm::Inbox::Size& size) : is_shared_(size.senders != 0) {
        if (sm::Inbox::create(size, &inbox_) != UCS_OK ||
            sm::attach_segment(inbox_->name(), &mapping_) != UCS_OK) {
            std::abort();
        }
        open();
    }

    void write(size_t offset, std::span<const uint8_t> bytes) {
        offset %= mapping_.size();
        const size_t length = std::min(bytes.size(), mapping_.size() - offset);
        std::memcpy(mapping_.base() + offset, bytes.data(), length);
    }
    void open() {
        const auto kind =
            is_shared_ ? sm::Outbox::Kind::kManySenders : sm::Outbox::Kind::kOneSender;
        std::unique_ptr<sm::Outbox> opened;
        if (sm::Outbox::open(inbox_->name(), kind, inbox_->name(), &opened) == UCS_OK)
            outbox_ = std::move(opened);
    }
    void send(bool is_long) {
        if (outbox_ == nullptr || !is_shared_) return;
        bool sleeps;
        const uint64_t number = outbox_->reserve(is_long, &sleeps);
        if (number == sm::Outbox::kFull) return;
        std::byte* const buffer = is_long ? outbox_->reserved_buffer() : nullptr;
        if (buffer != nullptr) std::memset(buffer, 1, outbox_->buffer_size());
        outbox_->slot(number).control =
            outbox_->word(number, 3, buffer != nullptr ? outbox_->buffer_size() : 8,
                          buffer != nullptr ? sm::control::kInBuffer : 0);
    }
    void take(bool keeps) {
        std::vector<uct::ReceiveDescriptor*> kept;
        inbox_->poll(
            16,
            [&](uint8_t id, void* data, size_t length, uct::ReceiveDescriptor* descriptor,
                uint32_t) {
                if (id >= uct::kMaxAmId) std::abort();
                sum_ += length != 0 ? static_cast<uint8_t*>(data)[length - 1] : 0;
                if (!keeps || descriptor == nullptr) return false;
                kept.push_back(descriptor);
                return true;
            },
            [&](uint32_t place, const std::byte* who, size_t length) {
                const auto name = sm::SegmentName::read({who, length});
                if (name) inbox_->is_elsewhere(place, name->nonce);
            });
        for (uct::ReceiveDescriptor* descriptor : kept) descriptor->release();
        inbox_->look_after_senders();
    }

  private:
    const bool is_shared_;
    std::unique_ptr<sm::Inbox> inbox_;
    sm::MappedMemory mapping_;
    std::unique_ptr<sm::Outbox> outbox_;
    unsigned sum_ = 0;
};

// A handle of exported memory, always of this process: descriptors of others stay alone.
void map_exported(std::vector<std::byte> packed) {
    constexpr size_t kProcess = 32;
    if (packed.size() < SharedPages::packed_size()) return;
    const int32_t own = getpid();
    std::memcpy(packed.data() + kProcess, &own, sizeof(own));
    SharedPages pages;
    size_t used = 0;
    if (SharedPages::open(packed.data(), &pages, &used) == UCS_OK && used > pages.length())
        std::abort();
}

// Steps of a queue: bits 0 to 2 say what is done, the others how.
enum Step : uint8_t { kOpen, kSend, kSendLong, kTake, kKeep, kWrite };

}  // namespace

void read_datagram(std::span<const uint8_t> input) {
    if (input.empty()) return;
    const auto bytes = std::as_bytes(input.subspan(1));
    const std::vector<std::byte> exact(bytes.begin(), bytes.end());
    switch (input[0] % 6) {
        case 0:
            if (const auto header = ib::ud::Header::read(exact)) {
                if (header->length() > exact.size()) std::abort();
                std::vector<std::byte> written(header->length());
                header->write(written.data());
                if (!ib::ud::Header::read(written)) std::abort();
            }
            return;
        case 1:
            return read_address_of<ib::PortAddress>(exact);
        case 2:
            return read_address_of<ib::DctAddress>(exact);
        case 3:
            return read_address_of<ib::QpAddress>(exact);
        case 4:
            return read_address_of<ib::ud::UdAddress>(exact);
        default:
            ib::PortAddress().is_source(1, exact);
    }
}

std::vector<Input> datagrams() {
    std::vector<Input> inputs;
    const ib::PortAddress port{
        .mtu = 3, .lid = 7, .gid = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}};
    add_address(inputs, 1, port);
    add_address(inputs, 2, ib::DctAddress{77, {}});
    add_address(inputs, 3, ib::QpAddress{77, 5, 16});
    add_address(inputs, 4, ib::ud::UdAddress{77, 5});
    for (const bool greets : {false, true}) {
        ib::ud::Header header;
        header.is_numbered = true;
        header.destination = greets ? 0 : 1;
        header.source = 2;
        header.id = 4;
        if (greets) header.hello = ib::ud::Hello{port, {77, 5}, 9};
        std::vector<std::byte> bytes(1 + header.length());
        header.write(bytes.data() + 1);
        inputs.push_back(input_of(bytes));
    }
    inputs.emplace_back(41, uint8_t{5});
    return inputs;
}

void read_shared_memory(std::span<const uint8_t> input) {
    if (input.empty()) return;
    std::unique_ptr<uct::MemoryDomain> domain;
    if (sm::component().open_domain("memory", &domain) != UCS_OK) std::abort();
    const auto bytes = std::as_bytes(input);
    uct::RemoteKey key;
    if (domain->unpack_remote_key(std::vector(bytes.begin(), bytes.end()), &key) == UCS_OK)
        domain->release_remote_key(key);
    map_exported({bytes.begin(), bytes.end()});
    Queue queue((input[0] & 0x80) != 0 ? kRing : kShared);
    for (input = input.subspan(1); !input.empty();) {
        const uint8_t step = input[0];
        input = input.subspan(1);
        switch (step & 7) {
            case kOpen:
                queue.open();
                break;
            case kSend:
            case kSendLong:
                queue.send((step & 7) == kSendLong);
                break;
            case kTake:
            case kKeep:
                queue.take((step & 7) == kKeep);
                break;
            default: {
                if (input.size() < 3) return;
                const size_t offset = input[0] | size_t{input[1]} << 8;
                const size_t length = std::min<size_t>(input[2], input.size() - 3);
                queue.write(offset, input.subspan(3, length));
                input = input.subspan(3 + length);
            }
        }
    }
}

std::vector<Input> shared_memories() {
    std::vector<Input> inputs{
        {0, kSend, kTake, kSendLong, kKeep, kOpen, kSend, kSend, kTake},
        {0, kSend, kSend, kSend, kSend, kSendLong, kSend, kSend, kSend, kTake, kTake},
        {0x80, kOpen, kTake},
    };
    static SharedPages exported;
    if (!exported.is_mapped()) SharedPages::create(8192, nullptr, false, &exported);
    std::vector<std::byte> packed(SharedPages::packed_size());
    exported.pack(packed.data(), 5000);
    inputs.push_back(input_of(packed));
    for (const bool is_ring : {false, true}) {
        // A message by hand: at the first slot, of each form, with another sender's place.
        const sm::QueueLayout layout{8, is_ring ? 8u : 12u, 512, is_ring ? 0u : 4u};
        for (const uint64_t flags :
             {uint64_t{0}, sm::control::kInBuffer, sm::control::kAnnouncement}) {
            const uint64_t word = sm::control::word(0, 3, 16, flags) + sm::control::of_sender(2);
            Input input{static_cast<uint8_t>(is_ring ? 0x80 : 0), kWrite,
                        static_cast<uint8_t>(layout.slot_table()),
                        static_cast<uint8_t>(layout.slot_table() >> 8), sizeof(word)};
            input.resize(input.size() + sizeof(word));
            std::memcpy(input.data() + input.size() - sizeof(word), &word, sizeof(word));
            input.push_back(kKeep);
            inputs.push_back(input);
        }
    }
    return inputs;
}

}  // namespace ucp::fuzz
