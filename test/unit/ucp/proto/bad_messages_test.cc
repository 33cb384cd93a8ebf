// SPDX-License-Identifier: BSD-3-Clause
#include <malloc.h>

#include <algorithm>

#include "ucp/base/sender.h"
#include "ucp/bulk/engine/notification.h"
#include "ucp/mem/memory.h"
#include "ucp/mem/packed_key.h"
#include "ucp/proto/match/message_times.h"
#include "ucp/proto/rma/emulation.h"
#include "ucp/proto/rma/rma.h"
#include "ucp/proto/rndv/rndv_wire.h"
#include "ucp/proto/tag/engine.h"
#include "unit/ucp/proto/cluster.h"
#include "unit/ucs/log/log_capture.h"

#if defined(__SANITIZE_ADDRESS__)
// Of the sanitizer's allocator_interface.h, which GCC does not install.
// NOLINTNEXTLINE(bugprone-reserved-identifier)
extern "C" size_t __sanitizer_get_current_allocated_bytes();
#endif

// Bytes that come from outside: whatever they are, the worker drops them with a warning and goes
// on.
namespace ucp::test {
namespace {

template <typename Message>
std::vector<std::byte> bytes_of(const Message& message, size_t extra = 0) {
    const auto* data = reinterpret_cast<const std::byte*>(&message);
    std::vector<std::byte> bytes(data, data + sizeof(message));
    bytes.resize(bytes.size() + extra);
    return bytes;
}

struct BadMessage {
    const char* what;
    AmId id;
    std::vector<std::byte> bytes;
};

// `from` is a peer that the worker knows; names of requests and regions are made up.
std::vector<BadMessage> bad_messages(uint64_t from, uint64_t identity) {
    const auto rts = [&](uint32_t key, uint32_t header, size_t extra) {
        RndvRts message{};
        message.sender = from;
        message.request = 1;
        message.length = 100;
        message.key_length = key;
        message.header_length = header;
        return bytes_of(message, extra);
    };
    const auto described = [&](size_t bytes, uint32_t header) {
        RndvRts message{};
        message.sender = from;
        message.request = 1;
        message.length = 100;
        message.export_length = static_cast<uint32_t>(bytes);
        message.header_length = header;
        return bytes_of(message, bytes + header);
    };
    const auto rtr = [&](uint64_t request, uint64_t offset, uint64_t end, uint32_t key,
                         size_t extra) {
        return bytes_of(RndvRtr{request, from, 1, offset, end, 0, key, 0}, extra);
    };
    const auto rtr_to_device = [&](uint32_t bytes) {
        return bytes_of(RndvRtr{1, from, 1, 0, 10, 0, 0, bytes}, bytes);
    };
    const auto part_of = [](uint64_t request, uint64_t receiver) {
        struct {
            RndvRtr rtr;
            ucs::MemoryExport window;
        } message{};
        message.rtr = {request, receiver, 1, 0, 10, RndvRtr::kPart, 0, sizeof(message.window)};
        message.window.size = 10;
        return bytes_of(message);
    };
    const auto notify = [&](uint32_t kind, size_t total, size_t extra) {
        return bytes_of(NotifyHeader{from, 1, kind, static_cast<uint32_t>(total)}, extra);
    };
    const RemoteAccess nowhere{identity, 77, 0x1000};
    const RemoteAccess odd{identity, 1, 0x1001};
    return {
        {"announcement: key longer than the message", AmId::kRndvRts, rts(50, 0, 10)},
        {"announcement: bytes that nobody announced", AmId::kRndvRts, rts(0, 0, 1)},
        {"announcement: lengths that overflow", AmId::kRndvRts, rts(~0u, ~0u, 6)},
        {"announcement: a key of zeros", AmId::kRndvRts, rts(80, 0, 80)},
        {"announcement: a description too short", AmId::kRndvRts, described(10, 0)},
        {"announcement: a description of less than is announced", AmId::kRndvRts,
         described(sizeof(ucs::MemoryExport), 0)},
        {"news of memory: too long", AmId::kMemoryNews, bytes_of(MemoryNews{}, 1)},
        {"news of memory: no such event", AmId::kMemoryNews,
         bytes_of(MemoryNews{from, UCS_MEMORY_TYPE_CUDA, 1, 1, 0, 2})},
        {"announcement: no sender", AmId::kRndvRts, bytes_of(RndvRts{})},
        {"announcement: a key of zeros", AmId::kRndvRts,
         bytes_of(RndvRts{0, from, 1, 10, 0, 0, 46, 0, 0}, 46)},
        {"acknowledgement: unknown send", AmId::kRndvAts, bytes_of(RndvDone{99, from, 0})},
        {"acknowledgement: positive status", AmId::kRndvAts, bytes_of(RndvDone{1, from, 5})},
        {"acknowledgement: no such status", AmId::kRndvAts, bytes_of(RndvDone{1, from, -128})},
        {"acknowledgement: too long", AmId::kRndvAts, bytes_of(RndvDone{1, from, 0}, 1)},
        {"request: unknown send", AmId::kRndvRtr, rtr(99, 0, 10, 0, 0)},
        {"request: empty range", AmId::kRndvRtr, rtr(1, 10, 10, 0, 0)},
        {"request: range backwards", AmId::kRndvRtr, rtr(1, 10, 5, 0, 0)},
        {"request: a key of zeros", AmId::kRndvRtr, rtr(1, 0, 10, 80, 80)},
        {"request: a description too short", AmId::kRndvRtr, rtr_to_device(10)},
        {"request: a description of less than is asked for", AmId::kRndvRtr,
         rtr_to_device(sizeof(ucs::MemoryExport))},
        {"request of a part: unknown send", AmId::kRndvRtr, part_of(99, from)},
        {"request of a part: another worker's send", AmId::kRndvRtr, part_of(1, 123)},
        {"end: unknown receive", AmId::kRndvAtp, bytes_of(RndvDone{99, from, 0})},
        {"data: unknown receive", AmId::kRndvData, bytes_of(RndvData{99, from, 0}, 10)},
        {"stream: a name and no bytes", AmId::kStream, bytes_of(StreamHeader{from})},
        {"active message: a size that overflows", AmId::kAmFirst,
         bytes_of(AmFirstHeader{{0, 0, 0}, {from, 1}, UINT64_MAX - 8}, 64)},
        {"tagged message: a size that no memory has", AmId::kTagFirst,
         bytes_of(TagFirstHeader{0, {from, 1}, UINT64_MAX - 8, 0, 0}, 64)},
        {"put: no such region", AmId::kPut, bytes_of(EmulatedPut{from, 1, nowhere, 1}, 8)},
        {"put: another identity", AmId::kPut,
         bytes_of(EmulatedPut{from, 2, {identity + 1, 1, 0x1000}, 1}, 8)},
        {"get: no such region", AmId::kGetRequest, bytes_of(EmulatedGet{from, 1, nowhere, 8})},
        {"get: all of memory", AmId::kGetRequest,
         bytes_of(EmulatedGet{from, 1, nowhere, UINT64_MAX})},
        {"get: unknown worker", AmId::kGetRequest, bytes_of(EmulatedGet{123, 1, nowhere, 8})},
        {"get: too long", AmId::kGetRequest, bytes_of(EmulatedGet{from, 1, nowhere, 8}, 3)},
        {"request for a copy: too short", AmId::kGetRequest,
         bytes_of(EmulatedGet{from, 1, nowhere, 8}, sizeof(CopyRequest) - 1)},
        {"request for a copy: too long", AmId::kGetRequest,
         bytes_of(EmulatedGet{from, 1, nowhere, 8}, sizeof(CopyRequest) + 1)},
        {"request for a copy: no such region", AmId::kGetRequest,
         bytes_of(EmulatedGet{from, 1, nowhere, 8}, sizeof(CopyRequest))},
        {"request for a copy: no such direction", AmId::kGetRequest,
         bytes_of(CopyMessage{{from, 1, nowhere, 8}, {2, {}}})},
        {"request for a copy: unknown worker", AmId::kGetRequest,
         bytes_of(EmulatedGet{123, 1, nowhere, 8}, sizeof(CopyRequest))},
        {"reply: unknown get", AmId::kGetReply, bytes_of(EmulatedGetReply{from, 99, 0}, 8)},
        {"atomic: no such region", AmId::kAtomicRequest,
         bytes_of(EmulatedAtomic{from, 1, nowhere, 1, 8, 0, 0})},
        {"atomic: no such operation", AmId::kAtomicRequest,
         bytes_of(EmulatedAtomic{from, 1, nowhere, 3, 8, 0, 0})},
        {"atomic: no such size", AmId::kAtomicRequest,
         bytes_of(EmulatedAtomic{from, 1, nowhere, 1, 2, 0, 0})},
        {"atomic: not aligned", AmId::kAtomicRequest,
         bytes_of(EmulatedAtomic{from, 1, odd, 1, 8, 0, 0})},
        {"atomic reply: unknown", AmId::kAtomicReply, bytes_of(EmulatedAtomicReply{from, 99, 0})},
        {"answer: unknown", AmId::kRmaAck, bytes_of(EmulatedDone{from, 99, 0})},
        {"notification: no such kind", AmId::kNotify, notify(3, 0, 0)},
        {"notification: no bytes of a payload", AmId::kNotify, notify(1, 10, 8)},
        {"notification: no number of its message", AmId::kNotify, notify(1, 10, 7)},
        {"notification: more than its payload", AmId::kNotify, notify(1, 10, 19)},
        {"notification: a payload that is too long", AmId::kNotify,
         notify(1, Notifier::kLongest + 1, 100)},
        {"credit: too long", AmId::kNotify, notify(2, 0, 1)},
        {"credit: of a payload", AmId::kNotify, notify(2, 1, 0)},
    };
}

void expect_alive(Cluster& cluster) {
    uint64_t word = 0;
    Memory* mapped = nullptr;
    ASSERT_EQ(Memory::create(cluster.b().context().domains(), &word, sizeof(word), &mapped),
              UCS_OK);
    std::vector<std::byte> packed(packed_key_size(*mapped));
    pack_key(*mapped, packed);
    ucp_rkey_h key = nullptr;
    ASSERT_EQ(ucp_ep_rkey_unpack(cluster.ep, packed.data(), &key), UCS_OK);
    EXPECT_EQ(ucp_atomic_post(cluster.ep, UCP_ATOMIC_POST_OP_ADD, 5, 8,
                              reinterpret_cast<uintptr_t>(&word), key),
              UCS_OK);
    EXPECT_EQ(cluster.flush(), UCS_OK);
    EXPECT_EQ(word, 5u);
    ucp_rkey_destroy(key);
    Memory::destroy(mapped);
}

TEST(BadMessages, AreDroppedWithAWarning) {
    Cluster cluster;
    Worker& victim = cluster.b().worker();
    const uint64_t identity = cluster.b().context().domains().regions().identity();
    for (BadMessage& message : bad_messages(cluster.a.worker().uuid(), identity)) {
        SCOPED_TRACE(message.what);
        ucs::LogCapture log;
        victim.interfaces().deliver(cluster.a.worker().uuid(), static_cast<uint8_t>(message.id),
                                    message.bytes.data(), message.bytes.size());
        EXPECT_FALSE(log.entries().empty());
    }
    EXPECT_EQ(victim.tags().matcher().unexpected_count(), 0u);
    ucs::LogCapture log;  // the peer in turn gets refusals that it never asked for
    cluster.settle();
    expect_alive(cluster);
}

TEST(BadMessages, TruncatedHeadersOfEveryKind) {
    Cluster cluster;
    Worker& victim = cluster.b().worker();
    const size_t headers[] = {sizeof(RndvRts),        sizeof(RndvDone),
                              sizeof(RndvRtr),        sizeof(RndvDone),
                              sizeof(RndvData),       sizeof(EmulatedPut),
                              sizeof(EmulatedGet),    sizeof(EmulatedGetReply),
                              sizeof(EmulatedAtomic), sizeof(EmulatedAtomicReply),
                              sizeof(EmulatedDone),   sizeof(OrderedHeader),
                              sizeof(TookMessage),    sizeof(NotifyMessage)};
    const AmId ids[] = {AmId::kRndvRts,     AmId::kRndvAts,  AmId::kRndvRtr,
                        AmId::kRndvAtp,     AmId::kRndvData, AmId::kPut,
                        AmId::kGetRequest,  AmId::kGetReply, AmId::kAtomicRequest,
                        AmId::kAtomicReply, AmId::kRmaAck,   AmId::kOrdered,
                        AmId::kTook,        AmId::kNotify};
    for (size_t kind = 0; kind < std::size(ids); ++kind) {
        for (size_t length = 0; length < headers[kind]; ++length) {
            ucs::LogCapture log;
            std::vector<std::byte> bytes(length, std::byte{1});
            victim.interfaces().deliver(cluster.a.worker().uuid(), static_cast<uint8_t>(ids[kind]),
                                        bytes.data(), length);
            EXPECT_FALSE(log.entries().empty()) << kind << " cut to " << length;
        }
    }
    expect_alive(cluster);
}

void deliver(Worker& victim, AmId id, std::vector<std::byte> bytes) {
    const uint64_t sender = claimed_sender(id, bytes).value_or(0);
    victim.interfaces().deliver(sender, static_cast<uint8_t>(id), bytes.data(), bytes.size());
}

TEST(BadMessages, APutIsRefusedOnce) {
    Cluster cluster;
    Worker& victim = cluster.b().worker();
    ucs::LogCapture log;
    const uint64_t from = cluster.a.worker().uuid();
    const auto put = [&](uint64_t request) {
        deliver(victim, AmId::kPut, bytes_of(EmulatedPut{from, request, {1, 1, 0x1000}, 0}, 8));
    };
    for (int piece = 0; piece < 3; ++piece) put(1);
    EXPECT_EQ(log.entries().size(), 1u);
    put(2);
    EXPECT_EQ(log.entries().size(), 2u);
}

TEST(BadMessages, AFragmentThatComesTwiceCountsOnce) {
    Cluster cluster;
    Worker& victim = cluster.b().worker();
    const MessageId id{cluster.a.worker().uuid(), 7};
    Bytes buffer(2000, 0xee);
    const ucp_request_param_t param{};
    const ucs_status_ptr_t receive = ucp_tag_recv_nbx(cluster.b().handle(), buffer.data(),
                                                      buffer.size(), 5, ~uint64_t{0}, &param);
    ASSERT_TRUE(UCS_PTR_IS_PTR(receive));
    ucs::LogCapture log;
    deliver(victim, AmId::kTagFirst, bytes_of(TagFirstHeader{5, id, 2000, 0, 0}, 1000));
    for (int i = 0; i < 2; ++i)
        deliver(victim, AmId::kFragment, bytes_of(FragmentHeader{id, 1000}, 500));
    deliver(victim, AmId::kFragment, bytes_of(FragmentHeader{id, 1600}, 400));
    EXPECT_EQ(log.entries().size(), 2u);
    EXPECT_EQ(ucp_request_check_status(receive), UCS_INPROGRESS);
    deliver(victim, AmId::kFragment, bytes_of(FragmentHeader{id, 1500}, 500));
    EXPECT_EQ(cluster.wait(receive), UCS_OK);
    EXPECT_EQ(buffer, Bytes(2000));
}

size_t bytes_allocated() {
#if defined(__SANITIZE_ADDRESS__)
    return __sanitizer_get_current_allocated_bytes();
#else
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
#endif
}

TEST(BadMessages, AnnouncedLengthsTakeNoMemory) {
    constexpr uint64_t kTotal = uint64_t{1} << 30;
    constexpr unsigned kMessages = 500;
    Cluster cluster;
    Worker& victim = cluster.b().worker();
    const uint64_t from = cluster.a.worker().uuid();
    ucs::LogCapture log;
    const size_t before = bytes_allocated();
    for (unsigned i = 0; i < kMessages; ++i) {
        deliver(victim, AmId::kAmFirst,
                bytes_of(AmFirstHeader{{0, 0, 0}, {from, 2 * i + 1}, kTotal}, 64));
        deliver(victim, AmId::kTagFirst,
                bytes_of(TagFirstHeader{0, {from, 2 * i + 2}, kTotal, 0, 0}, 64));
    }
    EXPECT_LT(bytes_allocated() - before, size_t{8} << 20);
}

TEST(BadMessages, LongMessagesWithoutAReceiveGrowAsTheyCome) {
    Cluster cluster;
    Worker& victim = cluster.b().worker();
    const MessageId id{cluster.a.worker().uuid(), 7};
    const Bytes content = pattern(100000, 3);
    const auto piece = [&](const auto& header, size_t offset, size_t length) {
        std::vector<std::byte> bytes = bytes_of(header, length);
        std::memcpy(bytes.data() + sizeof(header), content.data() + offset, length);
        return bytes;
    };
    deliver(victim, AmId::kTagFirst, piece(TagFirstHeader{5, id, content.size(), 0, 0}, 0, 10));
    for (size_t offset = 10; offset < content.size();) {
        const size_t length = std::min<size_t>(3 * offset, content.size() - offset);
        deliver(victim, AmId::kFragment, piece(FragmentHeader{id, offset}, offset, length));
        offset += length;
    }
    Bytes buffer(content.size());
    const ucp_request_param_t param{};
    EXPECT_EQ(cluster.wait(ucp_tag_recv_nbx(cluster.b().handle(), buffer.data(), buffer.size(), 5,
                                            ~uint64_t{0}, &param)),
              UCS_OK);
    EXPECT_EQ(buffer, content);
}

}  // namespace
}  // namespace ucp::test
