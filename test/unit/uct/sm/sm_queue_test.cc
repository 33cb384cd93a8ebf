// SPDX-License-Identifier: BSD-3-Clause

// Segments and queues of shared memory, and what they must stand: senders that die or lie.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "ucs/runtime/runtime.h"
#include "ucs/sys/random.h"
#include "uct/sm/inbox.h"
#include "uct/sm/outbox.h"
#include "unit/uct/child.h"

namespace uct::test {
namespace {

using namespace uct::sm;

constexpr Inbox::Size kSmall{8, 512, 8, 4};

std::unique_ptr<Inbox> make_inbox(const Inbox::Size& size = kSmall) {
    std::unique_ptr<Inbox> inbox;
    EXPECT_EQ(Inbox::create(size, &inbox), UCS_OK);
    return inbox;
}

constexpr auto kMany = Outbox::Kind::kManySenders;

constexpr auto kNoNews = [](uint32_t, const std::byte*, size_t) {};

std::vector<int> poll_all(Inbox& inbox) {
    std::vector<int> ids;
    inbox.poll(
        100,
        [&](uint8_t id, void*, size_t, ReceiveDescriptor*, uint32_t) {
            ids.push_back(id);
            return false;
        },
        kNoNews);
    return ids;
}

// The own queue of a sender that has none: no two are the same.
SegmentName new_name() {
    return {ucs::unique_id(), static_cast<uint32_t>(getpid()), 1};
}

// Of many senders, it has said who it is when this returns.
std::unique_ptr<Outbox> make_outbox(Inbox& inbox, Outbox::Kind kind = kMany,
                                    const SegmentName& own = new_name()) {
    std::unique_ptr<Outbox> outbox;
    EXPECT_EQ(Outbox::open(inbox.name(), kind, own, &outbox), UCS_OK);
    if (outbox != nullptr && kind == kMany) {
        EXPECT_TRUE(outbox->announce());
        EXPECT_EQ(poll_all(inbox), std::vector<int>{});
    }
    return outbox;
}

void publish(Outbox& outbox, uint64_t number, uint8_t id) {
    outbox.slot(number).control.store(outbox.word(number, id, 8, 0), std::memory_order_release);
}

void send(Outbox& outbox, uint8_t id) {
    bool sleeps;
    const uint64_t number = outbox.reserve(false, &sleeps);
    ASSERT_NE(number, Outbox::kFull);
    publish(outbox, number, id);
}

// --- segments

TEST(SmSegments, OnlyTheOneOfThatNameIsAttached) {
    std::unique_ptr<SharedSegment> segment;
    ASSERT_EQ(SharedSegment::create(4096, nullptr, false, &segment), UCS_OK);
    MappedMemory mapping;
    EXPECT_EQ(attach_segment(segment->name(), &mapping), UCS_OK);
    segment->base()[5] = std::byte{42};
    EXPECT_EQ(mapping.base()[5], std::byte{42});
    EXPECT_NE(mapping.base(), segment->base());

    SegmentName wrong = segment->name();
    wrong.nonce ^= 1;
    EXPECT_EQ(attach_segment(wrong, &mapping), UCS_ERR_UNREACHABLE);
    wrong = segment->name();
    wrong.descriptor = 0;
    EXPECT_EQ(attach_segment(wrong, &mapping), UCS_ERR_UNREACHABLE);
    wrong = segment->name();
    segment.reset();
    EXPECT_EQ(attach_segment(wrong, &mapping), UCS_ERR_UNREACHABLE);
}

TEST(SmSegments, OneThatItsOwnerCouldCutIsRefused) {
    const int descriptor = memfd_create("swiftlane-0000000000000007", MFD_ALLOW_SEALING);
    ASSERT_EQ(ftruncate(descriptor, 4096), 0);
    const SegmentName name{7, static_cast<uint32_t>(getpid()), static_cast<uint32_t>(descriptor)};
    MappedMemory mapping;
    EXPECT_EQ(attach_segment(name, &mapping), UCS_ERR_UNREACHABLE);
    EXPECT_EQ(fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
    EXPECT_EQ(attach_segment(name, &mapping), UCS_OK);
    close(descriptor);
}

// --- queues

TEST(SmQueues, SizesThatDoNotFitTheSegmentAreRefused) {
    const auto inbox = make_inbox();
    MappedMemory mapping;
    ASSERT_EQ(attach_segment(inbox->name(), &mapping), UCS_OK);
    auto& header = *reinterpret_cast<QueueHeader*>(mapping.base());
    const QueueHeader* const_header = &header;
    ASSERT_TRUE(QueueLayout::read(*const_header, mapping.size()));
    const auto refused = [&](uint32_t& field, uint32_t value) {
        const uint32_t before = std::exchange(field, value);
        std::unique_ptr<Outbox> outbox;
        const bool result =
            Outbox::open(inbox->name(), kMany, new_name(), &outbox) == UCS_ERR_UNREACHABLE;
        field = before;
        return result;
    };
    EXPECT_TRUE(refused(header.slots, 4));
    for (const uint32_t value : {0u, 3u, 1u << 19, 1u << 31, ~0u}) {
        EXPECT_TRUE(refused(header.slots, value)) << value;
        EXPECT_TRUE(refused(header.buffer_size, value | 1)) << value;
    }
    for (const uint32_t value : {0u, 3u, 1u << 20, ~0u})
        EXPECT_TRUE(refused(header.buffers, value));
    for (const uint32_t value : {1u << 20, ~0u}) EXPECT_TRUE(refused(header.senders, value));
    EXPECT_TRUE(refused(header.version, 1));
    EXPECT_TRUE(refused(header.pid, 1));
}

TEST(SmQueues, OneOfAnotherKindThanItsAddressIsRefused) {
    constexpr auto kOne = Outbox::Kind::kOneSender;
    const auto shared_queue = make_inbox();
    const auto ring = make_inbox({.slots = 8, .buffer_size = 512, .buffers = 8, .senders = 0});
    std::unique_ptr<Outbox> outbox;
    EXPECT_EQ(Outbox::open(ring->name(), kMany, new_name(), &outbox), UCS_ERR_UNREACHABLE);
    EXPECT_EQ(Outbox::open(shared_queue->name(), kOne, {}, &outbox), UCS_ERR_UNREACHABLE);
    EXPECT_EQ(Outbox::open(ring->name(), kOne, {}, &outbox), UCS_OK);
    EXPECT_EQ(Outbox::open(shared_queue->name(), kMany, new_name(), &outbox), UCS_OK);
}

TEST(SmQueues, WordsThatMakeNoSenseAreDropped) {
    const auto inbox = make_inbox();
    const auto outbox = make_outbox(*inbox);
    bool sleeps;
    for (const uint64_t flags : {uint64_t{0}, control::kInBuffer}) {
        const uint64_t number = outbox->reserve(flags != 0, &sleeps);
        outbox->slot(number).control = control::word(number, 31, 0xffffff, flags);
    }
    send(*outbox, 5);
    EXPECT_EQ(poll_all(*inbox), std::vector<int>{5});
}

TEST(SmQueues, ATailOutOfRangeOnlyStopsTheSender) {
    const auto inbox = make_inbox();
    const auto outbox = make_outbox(*inbox);
    MappedMemory mapping;
    ASSERT_EQ(attach_segment(inbox->name(), &mapping), UCS_OK);
    reinterpret_cast<QueueHeader*>(mapping.base())->tail = 1000;
    for (int i = 0; i < 7; ++i) send(*outbox, 1);
    bool sleeps;
    EXPECT_EQ(outbox->reserve(false, &sleeps), Outbox::kFull);
}

TEST(SmQueues, LongMessagesOfManySendersWaitForFewerPlaces) {
    const auto inbox = make_inbox();
    const auto outbox = make_outbox(*inbox);
    bool sleeps;
    const auto send_long = [&] {
        const uint64_t number = outbox->reserve(true, &sleeps);
        if (number == Outbox::kFull) return false;
        std::memset(outbox->reserved_buffer(), static_cast<int>(number), 512);
        outbox->slot(number).control = control::word(number, 2, 512, control::kInBuffer);
        return true;
    };
    unsigned sent = 0;
    while (send_long()) ++sent;
    EXPECT_EQ(sent, 4u);  // half of the slots
    EXPECT_FALSE(outbox->has_room());
    send(*outbox, 1);  // short ones go on
    std::vector<ReceiveDescriptor*> kept;
    std::vector<const unsigned char*> contents;
    inbox->poll(
        2,
        [&](uint8_t, void* data, size_t, ReceiveDescriptor* descriptor, uint32_t) {
            kept.push_back(descriptor);
            contents.push_back(static_cast<const unsigned char*>(data));
            return true;
        },
        kNoNews);
    ASSERT_EQ(kept.size(), 2u);
    EXPECT_TRUE(outbox->has_room());
    EXPECT_TRUE(send_long());
    EXPECT_FALSE(send_long());
    EXPECT_EQ(poll_all(*inbox), (std::vector<int>{2, 2, 1, 2}));
    // What is kept is nobody else's.
    for (int i = 0; i < 2; ++i) EXPECT_EQ(contents[i][0], i + 1);
    for (ReceiveDescriptor* descriptor : kept) descriptor->release();
}

TEST(SmQueues, LongMessagesOfOneSenderLieOneBehindTheOther) {
    constexpr size_t kPiece = 512;
    const auto inbox = make_inbox({.slots = 64, .buffer_size = kPiece, .buffers = 4, .senders = 0});
    const auto outbox = make_outbox(*inbox, Outbox::Kind::kOneSender);
    Area area = outbox->area();
    uint64_t number = 0, taken = 0;
    ucs::Random random(1);
    size_t most = 0;
    for (int i = 0; i < 2000; ++i) {
        // As many as there is room for, then some are taken.
        size_t waiting = number - taken;
        for (; area.has_room(outbox->area_tail()) && waiting < 64; ++waiting) {
            const size_t length = 1 + random.below(kPiece);
            std::memset(outbox->area_at(area.next()), static_cast<int>(number % 251), length);
            area.advance(length);
            outbox->slot(number).control = control::word(number, 2, length, control::kInBuffer);
            ++number;
        }
        most = std::max(most, waiting);
        taken += inbox->poll(
            1 + static_cast<unsigned>(random.below(waiting)),
            [&, expected = taken](uint8_t, void* data, size_t length, ReceiveDescriptor* kept,
                                  uint32_t) mutable {
                const auto* bytes = static_cast<const unsigned char*>(data);
                EXPECT_EQ(bytes[0], expected % 251);
                EXPECT_EQ(bytes[length - 1], expected % 251);
                EXPECT_EQ(kept, nullptr);
                ++expected;
                return false;
            },
            kNoNews);
    }
    EXPECT_GT(taken, 2000u);
    EXPECT_GT(most, 4u);  // more than pieces, where they are short
}

TEST(SmQueues, ASlotOfADeadSenderIsGivenUp) {
    const auto inbox = make_inbox();
    const auto outbox = make_outbox(*inbox);
    send(*outbox, 1);
    Child child([&] {
        std::unique_ptr<Outbox> theirs;
        bool sleeps;
        if (Outbox::open(inbox->name(), kMany, new_name(), &theirs) != UCS_OK ||
            theirs->reserve(false, &sleeps) != 3)
            _exit(1);
        (void)theirs.release();
    });
    send(*outbox, 2);
    EXPECT_EQ(poll_all(*inbox), std::vector<int>{1});
    // It may be about to fill the slot.
    inbox->look_after_senders();
    EXPECT_EQ(poll_all(*inbox), std::vector<int>{});
    child.kill();
    inbox->look_after_senders();
    EXPECT_FALSE(inbox->has_holes());
    EXPECT_EQ(poll_all(*inbox), std::vector<int>{2});
    child.reap();
}

// Two tried for the last slot with room for a long message. Who did not get it finds none, nor
// later since a third one goes on with short ones.
TEST(SmQueues, ASlotOfADeadSenderIsGivenUpThoughAnotherHadTriedForIt) {
    const auto inbox = make_inbox();
    const auto outbox = make_outbox(*inbox), third = make_outbox(*inbox);
    MappedMemory mapping;
    ASSERT_EQ(attach_segment(inbox->name(), &mapping), UCS_OK);
    const auto& header = *reinterpret_cast<const QueueHeader*>(mapping.base());
    const auto layout = QueueLayout::read(header, mapping.size());
    ASSERT_TRUE(layout);
    // Two have announced themselves, and the child will.
    const uint64_t last = 2 + layout->places() - 1, short_ones = last - 3;
    for (uint64_t count = 0; count < short_ones; ++count) send(*outbox, 1);
    Child child([&] {
        std::unique_ptr<Outbox> theirs;
        bool sleeps;
        if (Outbox::open(inbox->name(), kMany, new_name(), &theirs) != UCS_OK ||
            theirs->reserve(true, &sleeps) != last)
            _exit(1);
        (void)theirs.release();
    });
    reinterpret_cast<SenderRecord*>(mapping.base() + layout->sender_table())->attempt = last + 1;
    bool sleeps;
    EXPECT_EQ(outbox->reserve(true, &sleeps), Outbox::kFull);
    EXPECT_EQ(poll_all(*inbox).size(), short_ones);
    std::vector<int> more;
    for (; outbox->has_room(); more.push_back(2)) send(*third, 2);
    child.kill();
    for (int i = 0; i < 2; ++i) inbox->look_after_senders();
    EXPECT_EQ(poll_all(*inbox), more);
    child.reap();
}

struct Taken {
    int id;
    uint32_t place;
    std::string data;
    bool operator==(const Taken&) const = default;
};

// All that has come, in holes as well, and a look at the senders.
std::vector<Taken> take_all(Inbox& inbox) {
    std::vector<Taken> taken;
    const auto deliver = [&](uint8_t id, void* data, size_t length, ReceiveDescriptor*,
                             uint32_t place) {
        taken.push_back({id, place, {static_cast<const char*>(data), length}});
        return false;
    };
    if (inbox.has_message()) inbox.take(100, deliver, kNoNews);
    if (inbox.has_holes()) inbox.take_late(deliver, kNoNews);
    inbox.look_after_senders();
    return taken;
}

// As long as a sender may send at once.
void send_long(Outbox& outbox, uint64_t number, std::byte* buffer, uint8_t id, char fill) {
    std::memset(buffer, fill, 512);
    outbox.slot(number).control.store(outbox.word(number, id, 512, control::kInBuffer),
                                      std::memory_order_release);
}

class SmHoles : public testing::Test {
  protected:
    // The other sender's messages, short and long, all arrive in order: so many.
    void expect_traffic(unsigned count) {
        std::vector<Taken> seen, expected;
        for (unsigned i = 0; i < count;) {
            bool sleeps;
            const bool is_long = i % 3 == 0;
            const uint64_t number = other->reserve(is_long, &sleeps);
            if (number == Outbox::kFull) {
                const std::vector<Taken> taken = take_all(*inbox);
                ASSERT_FALSE(taken.empty()) << i;
                seen.insert(seen.end(), taken.begin(), taken.end());
                continue;
            }
            const char fill = static_cast<char>('a' + i % 23);
            if (is_long) {
                send_long(*other, number, other->reserved_buffer(), 2, fill);
                expected.push_back({2, 1, std::string(512, fill)});
            } else {
                std::memset(other->slot(number).data, fill, 8);
                publish(*other, number, 3);
                expected.push_back({3, 1, std::string(8, fill)});
            }
            ++i;
        }
        const std::vector<Taken> taken = take_all(*inbox);
        seen.insert(seen.end(), taken.begin(), taken.end());
        EXPECT_EQ(seen.size(), expected.size());
        EXPECT_TRUE(seen == expected);
    }
    // A slot that its sender does not fill; the receiver has noticed.
    uint64_t stop(Outbox& sender, bool is_long) {
        bool sleeps;
        const uint64_t number = sender.reserve(is_long, &sleeps);
        EXPECT_NE(number, Outbox::kFull);
        EXPECT_EQ(take_all(*inbox), std::vector<Taken>{});
        EXPECT_FALSE(inbox->has_holes());
        EXPECT_EQ(take_all(*inbox), std::vector<Taken>{});
        EXPECT_TRUE(inbox->has_holes());
        return number;
    }

    const std::unique_ptr<Inbox> inbox = make_inbox();
    const std::unique_ptr<Outbox> stopped = make_outbox(*inbox), other = make_outbox(*inbox);
};

TEST_F(SmHoles, OthersGoOnAndTheMessageComesWhenItsSenderDoes) {
    for (unsigned round = 0; round < 50; ++round) {
        expect_traffic(round);
        const uint64_t number = stop(*stopped, false);
        expect_traffic(100);
        std::memset(stopped->slot(number).data, 'x', 8);
        publish(*stopped, number, 9);
        // Before what its sender has sent since.
        bool sleeps;
        const uint64_t next = stopped->reserve(false, &sleeps);
        std::memset(stopped->slot(next).data, 'y', 8);
        publish(*stopped, next, 10);
        EXPECT_EQ(take_all(*inbox), (std::vector<Taken>{{9, 0, "xxxxxxxx"}, {10, 0, "yyyyyyyy"}}));
        EXPECT_FALSE(inbox->has_holes());
    }
    expect_traffic(100);
}

TEST_F(SmHoles, ALongMessageIsWrittenWhereNobodyElseWrites) {
    for (unsigned round = 0; round < 50; ++round) {
        expect_traffic(round);
        const uint64_t number = stop(*stopped, true);
        std::byte* const buffer = stopped->reserved_buffer();
        std::memset(buffer, 'y', 512);
        expect_traffic(100);
        EXPECT_EQ(std::string(reinterpret_cast<const char*>(buffer), 512), std::string(512, 'y'));
        send_long(*stopped, number, buffer, 9, 'x');
        EXPECT_EQ(take_all(*inbox), (std::vector<Taken>{{9, 0, std::string(512, 'x')}}));
    }
}

// Beyond where the bits that tell laps apart begin anew, so that what was written late, or before,
// looks like a message of a later lap.
TEST_F(SmHoles, LastForAnyNumberOfLaps) {
    const auto go_on = [&](uint32_t laps) {
        for (uint32_t lap = 0; lap < laps; ++lap) {
            for (unsigned i = 0; i < kSmall.slots - 1; ++i) send(*other, 1);
            ASSERT_EQ(poll_all(*inbox).size(), kSmall.slots - 1) << lap;
        }
    };
    constexpr uint32_t kAll = (1u << control::kNumberBits) / kSmall.slots;
    // Of the first, the next message of the slot has the same bits.
    for (const uint32_t laps : {kAll - 1, kAll + 10}) {
        const uint64_t number = stop(*stopped, false);
        go_on(laps);
        publish(*stopped, number, 9);
        EXPECT_EQ(take_all(*inbox).size(), 1u);
        go_on(20);
    }
}

TEST_F(SmHoles, ThereMayBeSeveral) {
    std::vector<std::unique_ptr<Outbox>> more;
    std::vector<uint64_t> numbers;
    const auto third = make_outbox(*inbox);
    for (const bool is_long : {false, true}) {
        for (unsigned between = 0; between < 7; ++between) {
            const uint64_t first = stop(*stopped, is_long);
            std::byte* const first_buffer = stopped->reserved_buffer();
            for (unsigned i = 0; i < between; ++i) {
                send(*other, 1);
                take_all(*inbox);
            }
            bool sleeps;
            const uint64_t second = third->reserve(is_long, &sleeps);
            ASSERT_NE(second, Outbox::kFull);
            std::byte* const second_buffer = third->reserved_buffer();
            for (int i = 0; i < 2; ++i) EXPECT_EQ(take_all(*inbox), std::vector<Taken>{});
            expect_traffic(100);
            if (is_long) {
                send_long(*third, second, second_buffer, 8, 'z');
                send_long(*stopped, first, first_buffer, 9, 'x');
            } else {
                publish(*third, second, 8);
                publish(*stopped, first, 9);
            }
            EXPECT_EQ(take_all(*inbox).size(), 2u);
            EXPECT_FALSE(inbox->has_holes());
            expect_traffic(20);
        }
    }
}

TEST_F(SmHoles, EndWithTheirSender) {
    Child child([&] {
        std::unique_ptr<Outbox> theirs;
        bool sleeps;
        if (Outbox::open(inbox->name(), kMany, new_name(), &theirs) != UCS_OK ||
            theirs->reserve(true, &sleeps) == Outbox::kFull)
            _exit(1);
        (void)theirs.release();
    });
    for (int i = 0; i < 3; ++i) EXPECT_EQ(take_all(*inbox), std::vector<Taken>{});
    EXPECT_TRUE(inbox->has_holes());
    expect_traffic(100);
    EXPECT_TRUE(inbox->has_holes());
    child.kill();
    take_all(*inbox);
    EXPECT_FALSE(inbox->has_holes());
    child.reap();
    expect_traffic(100);
    // The slot is as good as any.
    for (unsigned i = 0; i < kSmall.slots; ++i) send(*other, 1);
    EXPECT_EQ(poll_all(*inbox).size(), kSmall.slots);
}

// What has come late keeps its receiver awake.
TEST_F(SmHoles, NobodySleepsOverALateMessage) {
    const uint64_t number = stop(*stopped, false);
    EXPECT_TRUE(inbox->arm());
    EXPECT_TRUE(inbox->arm());
    publish(*stopped, number, 9);
    EXPECT_FALSE(inbox->arm());
    EXPECT_EQ(take_all(*inbox).size(), 1u);
    EXPECT_TRUE(inbox->arm());
}

TEST(SmQueues, OneSleepTakesOneSignal) {
    const auto inbox = make_inbox();
    const auto outbox = make_outbox(*inbox), other = make_outbox(*inbox);
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_NONBLOCK), 0);
    const std::unique_ptr<FILE, int (*)(FILE*)> in(fdopen(ends[0], "r"), fclose);
    const std::unique_ptr<FILE, int (*)(FILE*)> out(fdopen(ends[1], "w"), fclose);
    inbox->set_wake_descriptor(ends[1]);
    const auto send_and_wake = [&](Outbox& sender) {
        bool sleeps = false;
        const uint64_t number = sender.reserve(false, &sleeps);
        ASSERT_NE(number, Outbox::kFull);
        publish(sender, number, 1);
        if (sleeps) sender.wake_sleeper();
    };
    const auto signals = [&] {
        char bytes[16];
        return std::max<ssize_t>(read(ends[0], bytes, sizeof(bytes)), 0);
    };
    // The first sender is stopped before its signal, in the second sleep.
    bool sleeps = false;
    for (const bool is_stopped : {false, true}) {
        EXPECT_TRUE(inbox->arm());
        EXPECT_TRUE(inbox->arm());
        if (is_stopped) {
            publish(*outbox, outbox->reserve(false, &sleeps), 1);
        } else {
            send_and_wake(*outbox);
        }
        EXPECT_EQ(signals(), is_stopped ? 0 : 1);
        send_and_wake(*other);
        send_and_wake(*other);
        EXPECT_EQ(signals(), is_stopped ? 1 : 0);
        EXPECT_FALSE(inbox->arm()) << "messages are on their way";
        inbox->disarm();
        EXPECT_EQ(poll_all(*inbox).size(), 3u);
        send_and_wake(*other);
        EXPECT_EQ(signals(), 0) << "nobody sleeps";
        EXPECT_EQ(poll_all(*inbox).size(), 1u);
    }
    EXPECT_TRUE(sleeps);
    // It goes on in the next sleep: what it notes is of the one before.
    EXPECT_TRUE(inbox->arm());
    send_and_wake(*other);
    EXPECT_EQ(signals(), 1);
}

TEST(SmQueues, PlacesOfDeadSendersAreFreed) {
    const auto inbox = make_inbox();
    for (unsigned i = 0; i < 3 * kSmall.senders; ++i) {
        Child child([&] {
            std::unique_ptr<Outbox> theirs;
            if (Outbox::open(inbox->name(), kMany, new_name(), &theirs) != UCS_OK) _exit(1);
            (void)theirs.release();
        });
        child.kill();
        child.reap();
        inbox->look_after_senders();
    }
    make_outbox(*inbox);
    std::vector<std::unique_ptr<Outbox>> living;
    for (unsigned i = 0; i < kSmall.senders; ++i) living.push_back(make_outbox(*inbox));
    std::unique_ptr<Outbox> one_more;
    EXPECT_EQ(Outbox::open(inbox->name(), kMany, new_name(), &one_more), UCS_ERR_NO_RESOURCE);
}

TEST(SmQueues, MessagesTellTheirSendersPlace) {
    const auto inbox = make_inbox();
    const auto first = make_outbox(*inbox), second = make_outbox(*inbox);
    std::vector<uint32_t> places;
    const auto take = [&] {
        inbox->poll(
            100,
            [&](uint8_t, void*, size_t, ReceiveDescriptor*, uint32_t place) {
                places.push_back(place);
                return false;
            },
            kNoNews);
    };
    // Many laps, beyond where the bits that tell laps apart begin anew.
    for (uint32_t lap = 0; lap < 3u << control::kNumberBits; lap += 4) {
        send(*first, 1);
        send(*second, 1);
        send(*second, 1);
        send(*first, 1);
        places.clear();
        take();
        ASSERT_EQ(places, (std::vector<uint32_t>{0, 1, 1, 0})) << lap;
    }
}

TEST(SmQueues, ASenderSaysWhoItIsBeforeItsFirstMessage) {
    const auto inbox = make_inbox();
    const SegmentName name = new_name();
    std::unique_ptr<Outbox> outbox;
    ASSERT_EQ(Outbox::open(inbox->name(), kMany, name, &outbox), UCS_OK);
    EXPECT_TRUE(outbox->has_room());
    uint64_t number;
    EXPECT_FALSE(outbox->reserve_plain(&number));
    send(*outbox, 7);
    std::vector<SegmentName> announced;
    inbox->poll(
        100,
        [&](uint8_t id, void*, size_t, ReceiveDescriptor*, uint32_t) {
            EXPECT_EQ(id, 7);
            EXPECT_EQ(announced, std::vector<SegmentName>{name});
            return false;
        },
        [&](uint32_t place, const std::byte* who, size_t length) {
            EXPECT_EQ(place, 0u);
            announced.push_back(*SegmentName::read({who, length}));
        });
    EXPECT_TRUE(outbox->reserve_plain(&number));
    EXPECT_TRUE(inbox->is_elsewhere(1, name.nonce));
    EXPECT_FALSE(inbox->is_elsewhere(0, name.nonce));
    outbox.reset();
    EXPECT_FALSE(inbox->is_elsewhere(1, name.nonce));
}

}  // namespace
}  // namespace uct::test
