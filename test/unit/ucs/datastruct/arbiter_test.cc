// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/datastruct/arbiter.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace ucs {
namespace {

using Result = Arbiter::Result;

struct Request : Arbiter::Element {
    explicit Request(std::string name_value) : name(std::move(name_value)) {}
    std::string name;
};

class ArbiterTest : public ::testing::Test {
  protected:
    ~ArbiterTest() override {
        for (auto* group : {&a_, &b_, &c_}) arbiter_.purge(*group, [](Arbiter::Element&) {});
    }

    Request& request(std::string name) { return requests_.emplace_back(std::move(name)); }

    void queue(Arbiter::Group& group, std::initializer_list<const char*> names) {
        for (const char* name : names) group.push_back(request(name));
        arbiter_.schedule(group);
    }

    // Dispatches, with one answer to everything.
    std::vector<std::string> served(Result answer = Result::kDone) {
        std::vector<std::string> names;
        arbiter_.dispatch([&](Arbiter::Group&, Arbiter::Element& element) {
            names.push_back(static_cast<Request&>(element).name);
            return answer;
        });
        return names;
    }

    using Names = std::vector<std::string>;

    std::deque<Request> requests_;
    Arbiter arbiter_;
    Arbiter::Group a_, b_, c_;
};

TEST_F(ArbiterTest, GroupsTakeTurnsAndKeepTheirOrder) {
    queue(a_, {"a1", "a2", "a3"});
    queue(b_, {"b1"});
    queue(c_, {"c1", "c2"});
    EXPECT_EQ(served(), (Names{"a1", "b1", "c1", "a2", "c2", "a3"}));
    EXPECT_TRUE(arbiter_.empty());
    EXPECT_FALSE(a_.is_scheduled());
    EXPECT_TRUE(served().empty());
}

TEST_F(ArbiterTest, ControlGoesFirstInItsGroup) {
    queue(a_, {"a1", "a2"});
    a_.push_front(request("control"));
    EXPECT_EQ(served(), (Names{"control", "a1", "a2"}));
}

TEST_F(ArbiterTest, StopKeepsElementAndTurn) {
    queue(a_, {"a1", "a2"});
    queue(b_, {"b1"});
    EXPECT_EQ(served(Result::kStop), Names{"a1"});
    EXPECT_EQ(served(), (Names{"a1", "b1", "a2"}));
}

TEST_F(ArbiterTest, LaterIsAskedOncePerDispatch) {
    queue(a_, {"a1", "a2"});
    queue(b_, {"b1"});
    EXPECT_EQ(served(Result::kLater), (Names{"a1", "b1"}));
    EXPECT_EQ(served(), (Names{"a1", "b1", "a2"}));
}

TEST_F(ArbiterTest, UnscheduledWaitsForSchedule) {
    queue(a_, {"a1"});
    queue(b_, {"b1"});
    EXPECT_EQ(served(Result::kUnscheduled), (Names{"a1", "b1"}));
    EXPECT_TRUE(arbiter_.empty());
    EXPECT_TRUE(served().empty());
    arbiter_.schedule(b_);
    arbiter_.schedule(b_);  // no second turn
    EXPECT_EQ(served(), Names{"b1"});
    EXPECT_FALSE(a_.empty());
}

TEST_F(ArbiterTest, AnEmptyGroupIsNotScheduled) {
    arbiter_.schedule(a_);
    EXPECT_FALSE(a_.is_scheduled());
    EXPECT_TRUE(arbiter_.empty());
}

TEST_F(ArbiterTest, UnscheduleKeepsElements) {
    queue(a_, {"a1"});
    arbiter_.unschedule(a_);
    arbiter_.unschedule(a_);
    EXPECT_TRUE(served().empty());
    EXPECT_FALSE(a_.empty());
}

TEST_F(ArbiterTest, PurgeInOrder) {
    queue(a_, {"a1", "a2"});
    queue(b_, {"b1"});
    Names purged;
    arbiter_.purge(a_, [&](Arbiter::Element& element) {
        EXPECT_FALSE(element.is_queued());
        purged.push_back(static_cast<Request&>(element).name);
    });
    EXPECT_EQ(purged, (Names{"a1", "a2"}));
    EXPECT_EQ(served(), Names{"b1"});
}

TEST_F(ArbiterTest, ACancelledRequestIsSkipped) {
    queue(a_, {"a1"});
    Request& cancelled = request("a2");
    a_.push_back(cancelled);
    a_.push_back(request("a3"));
    a_.remove(cancelled);
    EXPECT_FALSE(cancelled.is_queued());
    EXPECT_EQ(served(), (Names{"a1", "a3"}));
}

TEST_F(ArbiterTest, ACallbackMayFreeItsElement) {
    auto owned = std::make_unique<Request>("a1");
    a_.push_back(*owned);
    arbiter_.schedule(a_);
    arbiter_.dispatch([&](Arbiter::Group&, Arbiter::Element&) {
        owned.reset();
        return Result::kDone;
    });
    EXPECT_TRUE(a_.empty());
}

TEST_F(ArbiterTest, ACallbackMayPushAndScheduleAnywhere) {
    queue(a_, {"a1"});
    Names names;
    arbiter_.dispatch([&](Arbiter::Group& group, Arbiter::Element& element) {
        names.push_back(static_cast<Request&>(element).name);
        if (names.size() == 1) {
            queue(b_, {"b1"});
            queue(group, {"a2"});
        }
        return Result::kDone;
    });
    EXPECT_EQ(names, (Names{"a1", "b1", "a2"}));
}

TEST_F(ArbiterTest, AnElementThatStaysGoesBeforeWhatItsCallbackPushed) {
    queue(a_, {"a1", "a2"});
    arbiter_.dispatch([&](Arbiter::Group& group, Arbiter::Element&) {
        group.push_front(request("control"));
        arbiter_.schedule(group);
        return Result::kStop;
    });
    EXPECT_EQ(served(), (Names{"a1", "control", "a2"}));
}

// The error of one endpoint empties the queue of another, and its own.
TEST_F(ArbiterTest, ACallbackMayPurge) {
    queue(a_, {"a1", "a2"});
    queue(b_, {"b1"});
    queue(c_, {"c1"});
    Names names;
    arbiter_.dispatch([&](Arbiter::Group& group, Arbiter::Element& element) {
        names.push_back(static_cast<Request&>(element).name);
        if (&group == &a_) {
            arbiter_.purge(a_, [](Arbiter::Element&) {});
            arbiter_.purge(b_, [](Arbiter::Element&) {});
        }
        return Result::kDone;
    });
    EXPECT_EQ(names, (Names{"a1", "c1"}));
    EXPECT_TRUE(arbiter_.empty());
}

TEST_F(ArbiterTest, ABusyGroupDoesNotStarveOthers) {
    for (int count = 0; count < 1000; ++count) queue(a_, {"a"});
    queue(b_, {"b"});
    int before_b = 0;
    bool seen = false;
    arbiter_.dispatch([&](Arbiter::Group& group, Arbiter::Element&) {
        seen = seen || &group == &b_;
        before_b += !seen;
        return Result::kDone;
    });
    EXPECT_EQ(before_b, 1);
}

}  // namespace
}  // namespace ucs
