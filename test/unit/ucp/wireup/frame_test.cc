// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/wireup/handshake.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>

#include <cstring>
#include <numeric>

#include "common/hex.h"
#include "ucs/sys/random.h"

namespace ucp::wireup {
namespace {

using ucs::net::Socket;
using ucs::net::SocketAddress;

// Two ends of one connection.
struct Ends {
    Ends() {
        sockaddr_in where{};
        where.sin_family = AF_INET;
        where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        Socket listener;
        EXPECT_EQ(Socket::open(AF_INET, &listener), UCS_OK);
        const auto any = SocketAddress::from({reinterpret_cast<sockaddr*>(&where), sizeof(where)});
        EXPECT_EQ(listener.bind(*any), UCS_OK);
        EXPECT_EQ(listener.listen(), UCS_OK);
        EXPECT_EQ(Socket::open(AF_INET, &writer), UCS_OK);
        EXPECT_EQ(writer.connect(listener.local()), UCS_INPROGRESS);
        pollfd calling{listener.descriptor(), POLLIN, 0};
        EXPECT_EQ(poll(&calling, 1, 10000), 1);
        EXPECT_EQ(listener.accept(&reader), UCS_OK);
    }
    void wait() {
        pollfd arriving{reader.descriptor(), POLLIN, 0};
        ASSERT_EQ(poll(&arriving, 1, 10000), 1);
    }
    Socket reader, writer;
};

Frame example() {
    Frame frame;
    frame.kind = FrameKind::kConnect;
    frame.has_client_id = true;
    frame.client_id = 77;
    frame.stream = 88;
    frame.address.assign(500, std::byte{9});
    return frame;
}

ucs_status_t read_all(Ends& ends, Frame* frame, FrameSeal seal = {}) {
    FrameReader reader;
    ucs_status_t status;
    while ((status = reader.read(ends.reader, seal, frame)) == UCS_INPROGRESS) ends.wait();
    return status;
}

TEST(Frame, ArrivesInPieces) {
    Ends ends;
    const auto bytes = pack_frame(example());
    FrameReader reader;
    FrameSeal none;
    Frame frame;
    for (size_t offset = 0; offset < bytes.size();) {
        const size_t part = std::min<size_t>(7, bytes.size() - offset);
        ASSERT_EQ(ends.writer.write(bytes.data() + offset, part), static_cast<ssize_t>(part));
        offset += part;
        ends.wait();
        const ucs_status_t status = reader.read(ends.reader, none, &frame);
        ASSERT_EQ(status, offset < bytes.size() ? UCS_INPROGRESS : UCS_OK);
    }
    EXPECT_EQ(frame.kind, FrameKind::kConnect);
    EXPECT_TRUE(frame.has_client_id);
    EXPECT_EQ(frame.client_id, 77u);
    EXPECT_EQ(frame.stream, 88u);
    EXPECT_EQ(frame.address, example().address);
}

TEST(Frame, ManyBehindEachOther) {
    Ends ends;
    FrameWriter writer;
    FrameSeal none;
    for (int count = 0; count < 3; ++count) writer.add(example(), none);
    ASSERT_EQ(writer.write(ends.writer), UCS_OK);
    ends.writer.finish();
    FrameReader reader;
    Frame frame;
    for (int count = 0; count < 3; ++count) EXPECT_EQ(read_all(ends, &frame), UCS_OK);
    EXPECT_EQ(read_all(ends, &frame), UCS_ERR_CONNECTION_RESET);
}

// What version 3 of the handshake has said, and what is said today.
TEST(Frame, RecordedOnesAreThoseOfToday) {
    EXPECT_EQ(kProtocol, 3) << "record another version beside this one";
    EXPECT_EQ(kOldestProtocol, 3);
    Call call{kHandshakeMagic, 3, 3, 0, 1, {}, {}};
    std::iota(reinterpret_cast<uint8_t*>(call.nonce.data()),
              reinterpret_cast<uint8_t*>(call.nonce.data()) + sizeof(call.nonce), uint8_t{0x10});
    CallAnswer answer{kHandshakeMagic, 3, 3, 0, Verdict::kProve, {}, {}};
    std::iota(reinterpret_cast<uint8_t*>(answer.nonce.data()),
              reinterpret_cast<uint8_t*>(answer.nonce.data()) + sizeof(answer.nonce),
              uint8_t{0x40});
    EXPECT_EQ(ucs::test::hex_of_object(call),
              "534c4353030003000000000001000000101112131415161718191a1b1c1d1e1f2021222324252627"
              "28292a2b2c2d2e2f");
    EXPECT_EQ(ucs::test::hex_of_object(answer),
              "534c4353030003000000000002000000404142434445464748494a4b4c4d4e4f5051525354555657"
              "58595a5b5c5d5e5f");
    Frame frame = example();
    frame.address.resize(4);
    std::vector<std::byte> connect = pack_frame(frame);
    FrameSeal(FrameSeal::End::kClient, "our common word", call, answer).append(connect);
    EXPECT_EQ(ucs::test::hex_of(connect),
              "534c434d020101004d00000000000000580000000000000004000000090909096502fde1ec2169f6"
              "8fb4fc63502ee2005a5f052b56a7836964770c97a1c8be7b");
    frame.kind = FrameKind::kAccept;
    frame.has_client_id = false;
    frame.client_id = 0;
    std::vector<std::byte> accept = pack_frame(frame);
    FrameSeal(FrameSeal::End::kServer, "our common word", call, answer).append(accept);
    EXPECT_EQ(ucs::test::hex_of(accept),
              "534c434d0202000000000000000000005800000000000000040000000909090992713ae159bd6386"
              "dda60a7f30215e5d5169032478266109f74c903aa1f0f486");
    for (const auto& [kind, recorded] :
         {std::pair{FrameKind::kReject, "534c434d020300000000000000000000000000000000000000000000"},
          std::pair{FrameKind::kBye, "534c434d020400000000000000000000000000000000000000000000"}}) {
        Frame empty;
        empty.kind = kind;
        EXPECT_EQ(ucs::test::hex_of(pack_frame(empty)), recorded);
    }
}

// Any header with one byte changed is refused, or is a frame of the length that it says.
TEST(Frame, GarbageIsRefused) {
    constexpr size_t kHeader = 28;
    const auto bytes = pack_frame(example());
    unsigned refused = 0;
    for (size_t place = 0; place < kHeader; ++place) {
        Ends ends;
        auto changed = bytes;
        changed[place] ^= std::byte{0xff};
        ASSERT_EQ(ends.writer.write(changed.data(), changed.size()),
                  static_cast<ssize_t>(changed.size()));
        ends.writer.finish();
        Frame frame;
        const ucs_status_t status = read_all(ends, &frame);
        const bool is_free = place >= 8 && place < 24;  // the two numbers
        if (is_free) {
            EXPECT_EQ(status, UCS_OK) << place;
        } else {
            EXPECT_TRUE(status == UCS_ERR_INVALID_PARAM || place == 24 || place == 25) << place;
            refused += status == UCS_ERR_INVALID_PARAM ? 1 : 0;
        }
    }
    EXPECT_GE(refused, 10u);
}

// --- proofs

// Both ends of a connection whose job keys are these.
struct Sealed {
    Sealed(std::string_view client_key, std::string_view server_key)
        : call(new_call(client_key)),
          answer(answer_to(call, server_key)),
          client(FrameSeal::End::kClient, client_key, call, answer),
          server(FrameSeal::End::kServer, server_key, call, answer) {}
    Call call;
    CallAnswer answer;
    FrameSeal client, server;
};

TEST(Handshake, SaysWhoBelongsTogether) {
    EXPECT_EQ(Sealed("", "").answer.verdict, Verdict::kOpen);
    EXPECT_EQ(Sealed("ours", "ours").answer.verdict, Verdict::kProve);
    EXPECT_EQ(Sealed("", "ours").answer.verdict, Verdict::kKeyMissing);
    EXPECT_EQ(Sealed("ours", "").answer.verdict, Verdict::kKeyUnknown);
    EXPECT_EQ(refusal(Sealed("", "").answer), "");
    EXPECT_EQ(refusal(Sealed("ours", "ours").answer), "");
    EXPECT_NE(refusal(Sealed("", "ours").answer), "");
    EXPECT_NE(refusal(Sealed("ours", "").answer), "");
}

TEST(Handshake, TakesTheHighestVersionThatBothSpeak) {
    const auto answer = [](uint16_t version, uint16_t oldest) {
        Call call = new_call("");
        call.version = version;
        call.oldest = oldest;
        return answer_to(call, "");
    };
    EXPECT_EQ(answer(kProtocol + 3, kProtocol).version, kProtocol);
    EXPECT_EQ(answer(kProtocol + 3, kProtocol).verdict, Verdict::kOpen);
    EXPECT_EQ(answer(kProtocol + 3, kProtocol + 1).verdict, Verdict::kOtherVersion);
    EXPECT_EQ(answer(1, 1).verdict, Verdict::kOtherVersion);
    EXPECT_NE(refusal(answer(1, 1))
                  .find(fmt::format("speaks versions {} to {}", kOldestProtocol, kProtocol)),
              std::string::npos);
    CallAnswer unasked = answer(kProtocol, kProtocol);
    unasked.version = kProtocol + 1;
    EXPECT_NE(refusal(unasked), "");
}

TEST(Handshake, SealedFramesArriveInOrderAndOnce) {
    Sealed ends("ours", "ours");
    Ends sockets;
    FrameWriter writer;
    for (int i = 0; i < 3; ++i) writer.add(example(), ends.client);
    ASSERT_EQ(writer.write(sockets.writer), UCS_OK);
    FrameReader reader;
    Frame frame;
    for (int i = 0; i < 3; ++i) {
        ucs_status_t status;
        while ((status = reader.read(sockets.reader, ends.server, &frame)) == UCS_INPROGRESS)
            sockets.wait();
        EXPECT_EQ(status, UCS_OK);
        EXPECT_EQ(frame.address, example().address);
    }
    // The first once more.
    FrameSeal again(FrameSeal::End::kClient, "ours", ends.call, ends.answer);
    FrameWriter replay;
    replay.add(example(), again);
    ASSERT_EQ(replay.write(sockets.writer), UCS_OK);
    EXPECT_EQ(read_all(sockets, &frame, ends.server), UCS_ERR_REJECTED);
}

TEST(Handshake, ASealIsWorthNothingElsewhere) {
    const auto accepts = [](FrameSeal writer, FrameSeal reader) {
        auto bytes = pack_frame(example());
        const size_t length = bytes.size();
        writer.append(bytes);
        const auto all = std::span(std::as_const(bytes));
        return reader.accepts(all.first(length), all.subspan(length));
    };
    const Sealed one("ours", "ours"), other("ours", "ours");
    EXPECT_TRUE(accepts(one.client, one.server));
    EXPECT_TRUE(accepts(one.server, one.client));
    EXPECT_FALSE(accepts(one.client, one.client)) << "sent back to who made it";
    EXPECT_FALSE(accepts(one.client, other.server)) << "on another connection";
    const FrameSeal guess(FrameSeal::End::kClient, "theirs", one.call, one.answer);
    EXPECT_FALSE(accepts(guess, one.server)) << "of another key";
    EXPECT_FALSE(accepts(FrameSeal(), one.server)) << "of no key";
    CallAnswer changed = one.answer;
    changed.capabilities = 1;
    const FrameSeal altered(FrameSeal::End::kClient, "ours", one.call, changed);
    EXPECT_FALSE(accepts(altered, one.server)) << "after words that were changed on the way";
}

}  // namespace
}  // namespace ucp::wireup
