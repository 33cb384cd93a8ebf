// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "common/hex.h"
#include "unit/uct/ib/ud/ud_network.h"

namespace uct::ib::ud::test {
namespace {

std::vector<uint64_t> numbers(uint64_t count) {
    std::vector<uint64_t> result(count);
    for (uint64_t i = 0; i < count; ++i) result[i] = i;
    return result;
}

void send(End& end, uint64_t first, uint64_t count) {
    for (uint64_t i = first; i < first + count; ++i) end.send(i);
}

class Lossy : public testing::TestWithParam<int> {};

TEST_P(Lossy, NothingIsLostDoubledOrReordered) {
    const double rate = GetParam() / 100.0;
    for (uint64_t seed = 1; seed <= 50; ++seed) {
        SCOPED_TRACE(seed);
        Network network(seed, {rate, rate, rate});
        ucs::Random random(seed);
        uint64_t sent[2] = {};
        const auto is_done = [&] {
            return network.end(0).received.size() == sent[1] &&
                   network.end(1).received.size() == sent[0] &&
                   network.end(0).connection.sender().is_idle() &&
                   network.end(1).connection.sender().is_idle();
        };
        for (int burst = 0; burst < 10; ++burst) {
            for (unsigned side = 0; side < 2; ++side) {
                const uint64_t count = random.below(120);
                send(network.end(side), sent[side], count);
                sent[side] += count;
            }
            for (uint64_t steps = random.below(40); steps != 0; --steps) network.step();
        }
        ASSERT_TRUE(network.until(is_done));
        for (unsigned side = 0; side < 2; ++side) {
            EXPECT_EQ(network.end(side).received, numbers(sent[1 - side]));
            EXPECT_TRUE(network.end(side).is_sound);
            EXPECT_EQ(network.end(side).connection.sender().in_flight(), 0u);
        }
    }
}
INSTANTIATE_TEST_SUITE_P(Percent, Lossy, testing::Values(0, 1, 10, 30));

TEST(UdConnection, ACleanNetworkIsUsedWithoutRetransmissions) {
    Network network(1, {});
    send(network.end(0), 0, 5000);
    ASSERT_TRUE(network.until([&] { return network.end(0).connection.sender().is_idle(); }));
    EXPECT_EQ(network.end(0).transmissions, 5000u);
    EXPECT_EQ(network.end(0).connection.sender().window(), kMaxAhead);
    // Acknowledgements are not sent for each packet.
    EXPECT_EQ(network.end(1).received.size(), 5000u);
}

TEST(UdConnection, TheWindowFollowsLoss) {
    Network network(2, {.loss = 0.1});
    send(network.end(0), 0, 5000);
    ASSERT_TRUE(network.until([&] {
        return network.end(0).received.size() == 0 && network.end(1).received.size() == 5000;
    }));
    EXPECT_LT(network.end(0).connection.sender().window(), 64u);
    // What is sent again is about what was lost.
    EXPECT_LT(network.end(0).transmissions, 5000u * 13 / 10);
}

TEST(UdConnection, OneLossIsMendedWithinRoundTripsNotTimeouts) {
    Network network(3, {});
    send(network.end(0), 0, 10);
    network.transmit(0);
    auto flying = network.take_flying();
    ASSERT_EQ(flying.size(), 10u);
    const ucs::Time begin = network.now;
    for (size_t i = 1; i < flying.size(); ++i) network.end(1).arrive(flying[i], network.now);
    EXPECT_TRUE(network.end(1).received.empty());
    EXPECT_EQ(network.end(1).connection.receiver().held(), 9u);
    ASSERT_TRUE(network.until([&] { return network.end(1).received.size() == 10; }));
    EXPECT_LT(network.now - begin, default_settings().tick);
    EXPECT_EQ(network.end(0).transmissions, 11u);
}

TEST(UdConnection, TheLastPacketOfAllIsSentAgainAfterATimeout) {
    Network network(4, {});
    send(network.end(0), 0, 1);
    network.transmit(0);
    network.take_flying();
    ASSERT_TRUE(network.until([&] { return network.end(1).received.size() == 1; }));
    EXPECT_EQ(network.end(0).transmissions, 2u);
}

TEST(UdConnection, FirstPacketsOfBothEndsMayCross) {
    Network network(5, {});
    send(network.end(0), 0, 3);
    send(network.end(1), 0, 3);
    network.transmit(0);
    network.transmit(1);
    ASSERT_TRUE(network.until([&] {
        return network.end(0).connection.sender().is_idle() &&
               network.end(1).connection.sender().is_idle();
    }));
    EXPECT_EQ(network.end(0).received, numbers(3));
    EXPECT_EQ(network.end(1).received, numbers(3));
    EXPECT_TRUE(network.end(0).connection.is_confirmed());
    EXPECT_EQ(network.replaced + network.stale, 0u);
}

TEST(UdConnection, AcknowledgementsRideOnData) {
    Network network(6, {});
    for (uint64_t i = 0; i < 50; ++i) {
        network.end(0).send(i);
        network.transmit(0);
        for (const Bytes& bytes : network.take_flying()) {
            network.end(1).arrive(bytes, network.now);
        }
        network.end(1).send(i);
        network.transmit(1);
        const auto back = network.take_flying();
        ASSERT_EQ(back.size(), 1u);
        network.end(0).arrive(back[0], network.now);
        EXPECT_TRUE(network.end(0).connection.sender().is_idle());
    }
}

TEST(UdConnection, WhatAFormerSessionSentIsRefused) {
    Network network(7, {});
    send(network.end(0), 0, 4);
    network.transmit(0);
    const auto old = network.take_flying();
    network.restart(0);
    send(network.end(0), 100, 2);
    ASSERT_TRUE(network.until([&] { return network.end(0).connection.sender().is_idle(); }));
    for (const Bytes& bytes : old) {
        EXPECT_EQ(network.end(1).arrive(bytes, network.now), UdConnection::Match::kStale);
    }
    EXPECT_EQ(network.end(1).received, (std::vector<uint64_t>{100, 101}));
}

TEST(UdConnection, AnEndThatBeginsAnewIsFoundOut) {
    Network network(8, {});
    send(network.end(0), 0, 4);
    send(network.end(1), 0, 4);
    ASSERT_TRUE(network.until([&] {
        return network.end(0).connection.sender().is_idle() &&
               network.end(1).connection.sender().is_idle();
    }));
    network.restart(0);
    send(network.end(0), 0, 1);
    EXPECT_TRUE(network.until([&] { return network.replaced > 0; }));
    // Nothing of the new connection was taken for the old one's.
    EXPECT_EQ(network.end(1).received, numbers(4));
}

TEST(UdConnection, AnEndThatBeginsAnewBeforeItAcknowledgedAnythingIsJoined) {
    Network network(9, {});
    send(network.end(0), 0, 2);
    network.transmit(0);
    network.take_flying();
    send(network.end(1), 0, 2);
    network.transmit(1);
    for (const Bytes& bytes : network.take_flying()) network.end(0).arrive(bytes, network.now);
    network.restart(1);
    send(network.end(1), 7, 1);
    ASSERT_TRUE(network.until([&] {
        return network.end(0).connection.sender().is_idle() &&
               network.end(1).connection.sender().is_idle();
    }));
    EXPECT_EQ(network.end(1).received, numbers(2));
    EXPECT_EQ(network.end(0).received, (std::vector<uint64_t>{0, 1, 7}));
}

// Nobody looks for long: the process was stopped. Then it looks again.
TEST(UdConnection, WhatAStoppedProcessDoesNotSeeIsNoSilence) {
    for (const bool is_alive : {true, false}) {
        Network network(10, {});
        send(network.end(0), 0, 1);
        network.cut(true);
        for (int i = 0; i < 5; ++i) ASSERT_TRUE(network.step());
        network.now += 10 * default_settings().timeout;
        const ucs::Time begin = network.now;
        ASSERT_TRUE(network.step());
        network.cut(!is_alive);
        network.until(
            [&] { return network.is_dead || network.end(0).connection.sender().is_idle(); });
        EXPECT_EQ(network.is_dead, !is_alive);
        if (network.is_dead) {
            EXPECT_GE(network.now - begin, default_settings().timeout / 2);
        }
    }
}

TEST(UdConnection, SilenceBeyondTheTimeoutIsDeath) {
    Network network(10, {});
    send(network.end(0), 0, 1);
    ASSERT_TRUE(network.until([&] { return network.end(0).connection.sender().is_idle(); }));
    network.cut(true);
    const ucs::Time begin = network.now + std::chrono::seconds(60);
    network.now = begin;  // long idle: that is no silence
    send(network.end(0), 1, 5);
    network.until([&] { return network.is_dead; });
    EXPECT_TRUE(network.is_dead);
    EXPECT_GE(network.now - begin, default_settings().timeout);
    EXPECT_LT(network.now - begin, default_settings().timeout + std::chrono::milliseconds(200));
    // Waits grow: far fewer transmissions than ticks.
    EXPECT_LT(network.end(0).transmissions, 500u);
}

TEST(UdConnection, ALinkThatComesBackIsUsedAgain) {
    Network network(11, {});
    send(network.end(0), 0, 20);
    network.cut(true);
    const ucs::Time begin = network.now;
    while (network.now - begin < std::chrono::seconds(1)) ASSERT_TRUE(network.step());
    network.cut(false);
    ASSERT_TRUE(network.until([&] { return network.end(1).received.size() == 20; }));
    EXPECT_LT(network.now - begin, std::chrono::milliseconds(1200));
}

TEST(Receiver, HoldsNoMoreThanItsBound) {
    Receiver receiver;
    const ucs::Time now{};
    EXPECT_EQ(receiver.arrived(kMaxAhead + 1, false, now), Receiver::Verdict::kDrop);
    EXPECT_EQ(receiver.arrived(kMaxAhead, false, now), Receiver::Verdict::kHold);
    HeldPacket last(kMaxAhead);
    receiver.hold(last);
    EXPECT_EQ(receiver.arrived(kMaxAhead, false, now), Receiver::Verdict::kDrop);
    Header header;
    receiver.acknowledge(&header, true);
    EXPECT_EQ(header.selective_words, kSelectiveWords);
    EXPECT_EQ(header.selective[kSelectiveWords - 1] >> 63, 1u);
}

TEST(Sender, AnAcknowledgementOfWhatWasNeverSentIsRefused) {
    const Settings settings = default_settings();
    End end(settings, 1, 1);
    end.send(0);
    SentList done;
    EXPECT_FALSE(end.connection.sender().acknowledged(1, {}, ucs::Time{}, &done));
    EXPECT_TRUE(done.empty());
}

TEST(Sender, ALostAcknowledgementOfWhatWasHeldIsAskedForAgain) {
    const Settings settings = default_settings();
    End end(settings, 1, 1);
    Sender& sender = end.connection.sender();
    const ucs::Time now{};
    end.send(0);
    end.send(1);
    end.transmit(now, [](const Bytes&) {});
    SentList done;
    // The second is held; then the first has come, and what says that of both is lost.
    const uint64_t second[] = {1};
    ASSERT_TRUE(sender.acknowledged(0, second, now, &done));
    ASSERT_TRUE(sender.acknowledged(1, {}, now, &done));
    EXPECT_EQ(sender.in_flight(), 0u);
    ASSERT_NE(sender.deadline(), ucs::kNever);
    EXPECT_EQ(sender.on_timer(sender.deadline()), Sender::Verdict::kSendAgain);
    ASSERT_NE(sender.next(), nullptr);
    EXPECT_EQ(sender.next()->number(), 1u);
    sender.take_all(&done);
    while (!done.empty()) {
        SentPacket& packet = done.front();
        done.pop_front();
        End::release(packet);
    }
}

// What packets of version 1 are like, to whom does not know the sender and to whom does, and of
// acknowledgements.
TEST(Packets, RecordedOnesAreRead) {
    Header first;
    first.is_numbered = true;
    first.has_more = true;
    first.id = 7;
    first.source = 9;
    first.number = 1;
    first.hello = Hello{{.mtu = 5, .lid = 7, .gid = {0xfe, 0x80, 1}}, {17, 5}, 3};
    Header later;
    later.is_numbered = true;
    later.asks_acknowledgement = true;
    later.id = 8;
    later.destination = 4;
    later.source = 9;
    later.number = 0x01020304;
    later.acknowledged = 2;
    Header ping = later;
    ping.id = 0;
    ping.is_ping = true;
    Header acknowledgement;
    acknowledgement.destination = 4;
    acknowledgement.source = 9;
    acknowledgement.acknowledged = 6;
    acknowledgement.selective_words = 1;
    acknowledgement.selective[0] = 5;
    const std::pair<Header, std::string> packets[] = {
        {first,
         "011507000000000009000000010000000000000001050700fe800100000000000000000000000000"
         "d011000005000000030000000000000000000000"},
        {later, "0106080004000000090000000403020102000000"},
        {ping, "010e000004000000090000000403020102000000"},
        {acknowledgement, "01000001040000000900000000000000060000000500000000000000"}};
    for (const auto& [header, recorded] : packets) {
        Bytes bytes(header.length());
        header.write(bytes.data());
        EXPECT_EQ(ucs::test::hex_of(bytes), recorded);
        const auto read = Header::read(ucs::test::bytes_of_hex(recorded));
        ASSERT_TRUE(read);
        Bytes again(read->length());
        read->write(again.data());
        EXPECT_EQ(again, bytes);
    }
}

TEST(Packets, EveryByteIsChecked) {
    Header header;
    header.is_numbered = true;
    header.source = 9;
    header.hello = Hello{{.mtu = 5, .lid = 7, .gid = {0xfe, 0x80, 1}}, {17, 5}, 3};
    Bytes bytes(header.length() + 5);
    header.write(bytes.data());
    const auto read = Header::read(bytes);
    ASSERT_TRUE(read);
    EXPECT_EQ(read->length(), Header::kMaxLength);
    EXPECT_EQ(read->hello->address, header.hello->address);
    EXPECT_EQ(read->hello->port, header.hello->port);
    EXPECT_EQ(read->hello->start, 3u);
    for (size_t length = 0; length < header.length(); ++length) {
        EXPECT_FALSE(Header::read({bytes.data(), length}));
    }
    const auto changed = [&](size_t at, int value) {
        Bytes copy = bytes;
        copy[at] = static_cast<std::byte>(value);
        return Header::read(copy).has_value();
    };
    EXPECT_FALSE(changed(0, 2));     // version
    EXPECT_FALSE(changed(1, 0x25));  // an unknown flag
    EXPECT_FALSE(changed(1, 0x04));  // no destination and no hello
    EXPECT_FALSE(changed(1, 0x01));  // an acknowledgement with a payload
    EXPECT_FALSE(changed(2, 32));    // an id
    EXPECT_FALSE(changed(3, 1));     // data with selective words
    EXPECT_FALSE(changed(3, 5));
    EXPECT_FALSE(changed(8, 0));  // no source
    EXPECT_FALSE(changed(20, 0));
    EXPECT_FALSE(changed(Header::kLength + 36, 1));  // reserved
    // Whatever is read never goes beyond the bytes.
    for (size_t at = 0; at < bytes.size(); ++at) {
        for (const int value : {0, 1, 0x7f, 0x80, 0xff}) {
            Bytes copy = bytes;
            copy[at] = static_cast<std::byte>(value);
            const auto any = Header::read(copy);
            if (any) {
                EXPECT_LE(any->length(), copy.size());
            }
        }
    }
}

}  // namespace
}  // namespace uct::ib::ud::test
