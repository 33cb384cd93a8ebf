// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/queue_pairs/negotiation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/hex.h"

namespace ucp::bulk {
namespace {

using State = QueuePairNegotiation::State;
using Type = QueuePairMessage::Type;

// How an end behaves when asked.
struct Habits {
    unsigned room = 2;  // ends that it may make
    bool connects = true;
    unsigned tries = 0;  // again, though there were none
};

// One end: a link, and what it believes to have. The ends of a round are counted, not made.
class End final : public QueuePairActions {
  public:
    End(bool opens, const Habits& habits, std::deque<QueuePairMessage>& out)
        : link(std::make_unique<QueuePairNegotiation>(*this, opens)),
          tries(habits.tries),
          habits_(habits),
          out_(out) {}

    void send(const QueuePairMessage& message) override {
        const auto decoded = decode_queue_pair_message(encode(message));
        ASSERT_TRUE(decoded);
        out_.push_back(*decoded);
    }
    uint32_t new_epoch() override { return ++epochs; }
    std::vector<std::byte> make_queue_pairs() override {
        EXPECT_EQ(ends, 0u);
        ends = habits_.room;
        return std::vector<std::byte>(ends);
    }
    std::vector<std::byte> answer_offer(std::span<const std::byte> offered) override {
        EXPECT_EQ(ends, 0u);
        ends = std::min<size_t>(habits_.room, offered.size());
        if (!habits_.connects) ends = 0;
        can_receive = ends != 0;
        return std::vector<std::byte>(ends);
    }
    bool connect_queue_pairs(std::span<const std::byte> granted) override {
        EXPECT_LE(granted.size(), ends);
        ends = habits_.connects ? granted.size() : 0;
        can_receive = ends != 0;
        return can_receive;
    }
    void start_posting() override {
        EXPECT_FALSE(posts);
        EXPECT_TRUE(can_receive);
        posts = true;
        if (peer->link_is_old) return;
        EXPECT_TRUE(peer->can_receive) << "the peer's ends are not connected";
        EXPECT_EQ(peer->ends, ends);
    }
    void stop_posting() override {
        EXPECT_TRUE(posts);
        posts = false;
        busy = true;
    }
    void destroy_queue_pairs() override {
        if (!is_gone && !peer->link_is_old) {
            EXPECT_FALSE(peer->posts || peer->busy) << "destroyed under the peer's transfers";
        }
        ends = 0;
        can_receive = posts = busy = false;
    }

    std::unique_ptr<QueuePairNegotiation> link;
    End* peer = nullptr;
    size_t ends = 0;
    bool can_receive = false;
    bool posts = false;
    bool busy = false;  // stopped, not yet idle
    bool is_up = false;
    bool is_wanted = false;
    bool is_gone = false;
    bool link_is_old = false;  // it has lost its round: the other end cannot know
    unsigned ups = 2, downs = 2, failures = 1, losses = 1, tries;
    uint32_t epochs = 10;

  private:
    const Habits habits_;
    std::deque<QueuePairMessage>& out_;
};

// Two ends and what is on its way; every choice of what happens next is a number.
class World {
  public:
    World(const Habits& lower, const Habits& higher, bool with_losses)
        : low(true, lower, to_high), high(false, higher, to_low), with_losses_(with_losses) {
        low.peer = &high;
        high.peer = &low;
        if (with_losses) low.downs = high.downs = low.ups = high.ups = 1;
    }

    std::vector<unsigned> choices() const {
        std::vector<unsigned> possible;
        for (unsigned choice = 0; choice < 20; ++choice) {
            if (is_possible(choice)) possible.push_back(choice);
        }
        return possible;
    }
    bool is_possible(unsigned choice) const {
        const End& end = choice % 2 == 0 ? low : high;
        switch (choice / 2) {
            case 0:
                return !(choice == 0 ? to_low : to_high).empty();
            case 1:
                return end.busy;
            case 2:
                return !end.is_up && end.ups > 0;
            case 3:
                return end.is_up && end.downs > 0;
            case 4:
                return end.posts && end.failures > 0;
            case 5:
                return !end.is_wanted;
            case 6:
                return with_losses_ && end.losses > 0;
            case 7:
                return end.link->awaits_peer() && !is_asking(to_low) && !is_asking(to_high);
            case 9:
                return end.link->is_lacking() && end.tries > 0;
            default:
                return end.posts && end.peer->ends == 0;
        }
    }
    void run(unsigned choice) {
        End& end = choice % 2 == 0 ? low : high;
        auto& in = choice % 2 == 0 ? to_low : to_high;
        switch (choice / 2) {
            case 0: {
                const QueuePairMessage message = in.front();
                in.pop_front();
                end.link->on_message(message);
                break;
            }
            case 1:
                end.busy = false;
                end.link->on_idle();
                break;
            case 2:
                --end.ups;
                end.is_up = true;
                end.link->on_lane_up();
                break;
            case 3:
                --end.downs;
                end.is_up = false;
                end.link->on_lane_down();
                break;
            case 4:
                --end.failures;
                end.link->on_all_failed();
                break;
            case 5:
                end.is_wanted = true;
                end.link->on_wanted();
                break;
            case 7:
                end.link->on_silence();
                break;
            case 8:  // what it posts finds nobody
                end.link->on_all_failed();
                break;
            case 9:
                --end.tries;
                end.link->on_room();
                break;
            default:
                // The endpoint fails, and another one to the same worker takes its place.
                --end.losses;
                end.is_gone = end.link_is_old = true;
                end.link->on_gone();
                EXPECT_EQ(end.ends, 0u);
                end.is_gone = end.is_up = end.is_wanted = false;
                end.link = std::make_unique<QueuePairNegotiation>(end, &end == &low);
                break;
        }
        // A loss is over when the other end has noticed: both are closed, nothing is on its way.
        if (is_quiet() && low.link->state() == State::kClosed &&
            high.link->state() == State::kClosed) {
            low.link_is_old = high.link_is_old = false;
        }
    }
    // A question or its answer is on its way: time enough passes before the next.
    static bool is_asking(const std::deque<QueuePairMessage>& queue) {
        return std::ranges::any_of(queue, [](const QueuePairMessage& message) {
            return message.type == Type::kStill || message.is_answer;
        });
    }
    bool is_quiet() const { return to_low.empty() && to_high.empty() && !low.busy && !high.busy; }
    // Nothing happens any more, but for what programs and lanes do.
    bool is_final() const {
        return is_quiet() && !low.link->awaits_peer() && !high.link->awaits_peer() &&
               !is_possible(16) && !is_possible(17);
    }

    std::string key() const {
        std::string text;
        for (const End* end : {&low, &high}) {
            text += std::string(name(end->link->state())) + std::to_string(end->ends) +
                    std::to_string(end->can_receive) + std::to_string(end->posts) +
                    std::to_string(end->busy) + std::to_string(end->is_up) +
                    std::to_string(end->is_wanted) + std::to_string(end->link_is_old) +
                    std::to_string(end->ups) + std::to_string(end->downs) +
                    std::to_string(end->failures) + std::to_string(end->losses) +
                    std::to_string(end->tries) + "." + std::to_string(end->link->epoch()) + "/";
        }
        for (const auto* queue : {&to_low, &to_high}) {
            for (const QueuePairMessage& message : *queue) {
                text += std::to_string(static_cast<int>(message.type)) +
                        std::to_string(message.epoch) + std::to_string(message.is_answer) +
                        std::to_string(message.addresses.size()) + ",";
            }
            text += "|";
        }
        return text;
    }

    std::deque<QueuePairMessage> to_low, to_high;
    End low, high;

  private:
    const bool with_losses_;
};

// Nobody waits for ever: who asks when nothing is on its way waits no longer for the answer.
void expect_questions_to_help(World& world) {
    for (const unsigned choice : {14u, 15u}) {
        if (!world.is_possible(choice)) continue;
        world.run(choice);
        while (world.is_possible(0) || world.is_possible(1)) {
            world.run(world.is_possible(0) ? 0 : 1);
        }
        const End& end = choice == 14 ? world.low : world.high;
        EXPECT_FALSE(end.link->awaits_peer()) << name(end.link->state());
    }
}

// Every order of every event, each state once. @return the number of states
size_t explore(const Habits& lower, const Habits& higher, bool with_losses, bool* ever_open) {
    std::set<std::string> seen;
    std::vector<std::vector<unsigned>> todo = {{}};
    while (!todo.empty() && !testing::Test::HasFailure()) {
        const std::vector<unsigned> path = std::move(todo.back());
        todo.pop_back();
        World world(lower, higher, with_losses);
        for (const unsigned choice : path) world.run(choice);
        if (!seen.insert(world.key()).second) continue;
        const State low = world.low.link->state(), high = world.high.link->state();
        if (low == State::kOpen && high == State::kOpen) *ever_open = true;
        if (world.is_final()) {
            EXPECT_EQ(low == State::kOpen, high == State::kOpen) << name(low) << " " << name(high);
            EXPECT_TRUE(low == State::kOpen || low == State::kClosed) << name(low);
            EXPECT_EQ(world.low.ends, world.high.ends);
            if (low == State::kOpen) {
                EXPECT_EQ(world.low.link->epoch(), world.high.link->epoch());
            }
            // Nothing speaks against them: then there are some.
            const bool is_due = world.low.is_up && world.high.is_up &&
                                (world.low.is_wanted || world.high.is_wanted);
            const bool is_able = lower.connects && higher.connects && lower.room != 0 &&
                                 higher.room != 0 && world.low.failures + world.high.failures == 2;
            if (is_due && is_able && !with_losses) {
                EXPECT_EQ(low, State::kOpen);
            }
        }
        const std::vector<unsigned> choices = world.choices();
        if (world.is_quiet()) expect_questions_to_help(world);
        if (testing::Test::HasFailure()) {
            std::string text;
            for (const unsigned choice : path) text += std::to_string(choice) + " ";
            ADD_FAILURE() << "after " << text;
        }
        for (const unsigned choice : choices) {
            todo.push_back(path);
            todo.back().push_back(choice);
        }
    }
    return seen.size();
}

TEST(QueuePairNegotiation, EveryOrderOfEventsEndsInAgreement) {
    bool opened = false;
    EXPECT_GT(explore({}, {}, false, &opened), 100u);
    EXPECT_TRUE(opened);
}

TEST(QueuePairNegotiation, EitherEndMayTryAgainAtAnyTime) {
    const Habits once, again{.tries = 1};
    for (const auto& [lower, higher] : {std::pair{again, once}, {once, again}}) {
        bool opened = false;
        explore(lower, higher, false, &opened);
        EXPECT_TRUE(opened);
    }
}

TEST(QueuePairNegotiation, FewerAreGrantedWhereThereIsLessRoom) {
    for (const unsigned room : {1u, 5u}) {
        bool opened = false;
        explore({.room = 3}, {.room = room}, false, &opened);
        EXPECT_TRUE(opened);
    }
}

TEST(QueuePairNegotiation, WithoutRoomOrConnectionThereAreNone) {
    const Habits fine, full{.room = 0}, broken{.connects = false};
    for (const auto& [lower, higher] :
         {std::pair{full, fine}, {fine, full}, {fine, broken}, {broken, fine}, {broken, broken}}) {
        bool opened = false;
        explore(lower, higher, false, &opened);
        EXPECT_FALSE(opened);
    }
}

TEST(QueuePairNegotiation, AnEndThatHasLostItsRoundComesToAgreementAgain) {
    bool opened = false;
    explore({}, {}, true, &opened);
    EXPECT_TRUE(opened);
}

class OneEnd : public testing::Test {
  protected:
    OneEnd() { end.peer = &other; }
    QueuePairMessage message(Type type, uint32_t epoch, size_t ends = 0, bool is_answer = false) {
        return {type, epoch, is_answer, std::vector<std::byte>(ends)};
    }
    std::deque<QueuePairMessage> sent, unused;
    End end{false, {}, sent};
    End other{true, {}, unused};
};

TEST_F(OneEnd, MessagesOfAnotherRoundChangeNothing) {
    end.link->on_message(message(Type::kOpen, 7, 2));
    ASSERT_EQ(end.link->state(), State::kGranted);
    sent.clear();
    end.link->on_message(message(Type::kOpen, 7, 2));
    end.link->on_message(message(Type::kGrant, 6));
    EXPECT_EQ(end.link->state(), State::kGranted);
    EXPECT_TRUE(sent.empty());
    // Who is in a round that is not known here is told so, once.
    for (const Type type : {Type::kUp, Type::kDown, Type::kStill}) {
        end.link->on_message(message(type, 6));
        ASSERT_EQ(sent.size(), 1u);
        EXPECT_EQ(sent[0].type, Type::kDown);
        EXPECT_TRUE(sent[0].is_answer);
        EXPECT_EQ(sent[0].epoch, 6u);
        sent.clear();
    }
    for (const Type type : {Type::kDown, Type::kStill}) {
        end.link->on_message(message(type, 6, 0, true));
    }
    EXPECT_TRUE(sent.empty());
    EXPECT_EQ(end.link->state(), State::kGranted);
}

TEST_F(OneEnd, WhoAwaitsThePeerAsksAndGivesUpInTheEnd) {
    end.link->on_silence();
    EXPECT_TRUE(sent.empty());
    end.link->on_message(message(Type::kOpen, 7, 2));
    sent.clear();
    ASSERT_TRUE(end.link->awaits_peer());
    end.link->on_silence();
    ASSERT_EQ(sent.size(), 1u);
    EXPECT_EQ(sent[0].type, Type::kStill);
    EXPECT_FALSE(sent[0].is_answer);
    end.link->on_message(message(Type::kStill, 7, 0, true));
    EXPECT_EQ(end.link->state(), State::kGranted);
    // A question about this round is answered.
    end.link->on_message(message(Type::kStill, 7));
    ASSERT_EQ(sent.size(), 2u);
    EXPECT_EQ(sent[1].type, Type::kStill);
    EXPECT_TRUE(sent[1].is_answer);
    end.link->on_no_answer();
    EXPECT_EQ(end.link->state(), State::kClosed);
    EXPECT_EQ(end.ends, 0u);
}

TEST_F(OneEnd, AFreshRoundOfAPeerThatHasForgottenTheOldOneReplacesIt) {
    end.link->on_message(message(Type::kOpen, 7, 2));
    end.link_is_old = other.link_is_old = true;
    end.link->on_message(message(Type::kUp, 7));
    ASSERT_EQ(end.link->state(), State::kOpen);
    end.link->on_message(message(Type::kOpen, 9, 1));
    EXPECT_EQ(end.link->state(), State::kGranted);
    EXPECT_EQ(end.ends, 1u);
    EXPECT_FALSE(end.posts);
}

TEST_F(OneEnd, OnlyTheLowerEndOpens) {
    end.link->on_lane_up();
    EXPECT_TRUE(sent.empty());
    end.link->on_wanted();
    ASSERT_EQ(sent.size(), 1u);
    EXPECT_EQ(sent[0].type, Type::kAsk);
    sent.clear();
    QueuePairNegotiation lower(end, true);
    lower.on_message(message(Type::kOpen, 3, 1));
    EXPECT_EQ(lower.state(), State::kClosed);
    EXPECT_TRUE(sent.empty());
}

// What is said since version 3 of worker addresses.
TEST(QueuePairMessages, RecordedOnesAreRead) {
    const RailAddresses rail{0x11223344, 1, 2, {3, std::byte{7}}, {{2, std::byte{8}}}};
    const std::string recorded_rails = "4433221101020103020707070808";
    EXPECT_EQ(ucs::test::hex_of(encode(std::span(&rail, 1))), recorded_rails);
    const auto rails = decode_rail_addresses(ucs::test::bytes_of_hex(recorded_rails));
    ASSERT_TRUE(rails);
    ASSERT_EQ(rails->size(), 1u);
    EXPECT_EQ(rails->front().kind, rail.kind);
    EXPECT_EQ(rails->front().addresses, rail.addresses);
    const std::pair<QueuePairMessage, std::string> messages[] = {
        {{Type::kOpen, 5, false, {2, std::byte{9}}}, "0100050000000909"},
        {{Type::kGrant, 5, false, {2, std::byte{9}}}, "0200050000000909"},
        {{Type::kUp, 5, false, {}}, "030005000000"},
        {{Type::kDown, 5, true, {}}, "040105000000"},
        {{Type::kAsk, 5, false, {}}, "050005000000"},
        {{Type::kStill, 5, true, {}}, "060105000000"},
    };
    for (const auto& [message, recorded] : messages) {
        EXPECT_EQ(ucs::test::hex_of(encode(message)), recorded);
        const auto read = decode_queue_pair_message(ucs::test::bytes_of_hex(recorded));
        ASSERT_TRUE(read) << recorded;
        EXPECT_EQ(read->type, message.type);
        EXPECT_EQ(read->epoch, message.epoch);
        EXPECT_EQ(read->is_answer, message.is_answer);
        EXPECT_EQ(read->addresses, message.addresses);
    }
}

TEST(QueuePairMessages, OnlyWhatEncodeMakesIsRead) {
    QueuePairMessage grant{Type::kGrant, 5, false, std::vector<std::byte>(3, std::byte{9})};
    const auto bytes = encode(grant);
    const auto read = decode_queue_pair_message(bytes);
    ASSERT_TRUE(read);
    EXPECT_EQ(read->type, Type::kGrant);
    EXPECT_EQ(read->epoch, 5u);
    EXPECT_EQ(read->addresses, grant.addresses);
    for (size_t length = 0; length < QueuePairMessage::kHeader; ++length) {
        EXPECT_FALSE(decode_queue_pair_message(std::span(bytes).first(length)));
    }
    const auto refuse = [&](Type type, uint32_t epoch, bool answer, size_t ends) {
        EXPECT_FALSE(
            decode_queue_pair_message(encode({type, epoch, answer, std::vector<std::byte>(ends)})));
    };
    refuse(Type{0}, 1, false, 0);
    refuse(Type{7}, 1, false, 0);
    refuse(Type::kUp, 0, false, 0);
    refuse(Type::kUp, 1, true, 0);
    refuse(Type::kUp, 1, false, 1);
    refuse(Type::kDown, 1, false, 1);
    refuse(Type::kOpen, 1, false, 0);
    refuse(Type::kOpen, 1, false, QueuePairMessage::kMaxAddresses + 1);
}

}  // namespace
}  // namespace ucp::bulk
