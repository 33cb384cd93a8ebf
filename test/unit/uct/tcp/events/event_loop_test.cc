// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/events/event_loop.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace uct::tcp {
namespace {

using namespace std::chrono_literals;

constexpr ucs::Time kStart = ucs::Time{} + 1h;

struct Alarm : Timer {
    Alarm(std::string& rung, char called, ucs::Time when) : rang(rung), name(called) {
        deadline_ = when;
    }
    void on_deadline() override {
        rang += name;
        if (again == ucs::Duration{}) {
            unlink();
        } else {
            deadline_ += again;
        }
    }
    std::string& rang;
    char name;
    ucs::Duration again{};
};

struct Patient : Watched {
    Patient(std::string& said, char called, ucs::Duration interval)
        : seen(said), name(called), every(interval) {
        next_check_ = kStart + every;
    }
    void check(ucs::Time now) override {
        seen += name;
        next_check_ = now + every;
        if (other != nullptr) other->unlink();
    }
    std::string& seen;
    char name;
    ucs::Duration every;
    Watched* other = nullptr;  // leaves the list with it
};

struct Pipe : EventTarget {
    Pipe() { EXPECT_EQ(pipe(ends), 0); }
    ~Pipe() {
        close(ends[0]);
        close(ends[1]);
    }
    unsigned on_event(uint32_t events) override {
        seen |= events;
        char byte;
        return read(ends[0], &byte, 1) == 1 ? 1 : 0;
    }
    int ends[2];
    uint32_t seen = 0;
};

class EventLoopTest : public testing::Test {
  protected:
    EventLoop loop_{"test"};
    std::string happened_;
};

TEST_F(EventLoopTest, TimersRunWhenTheyAreDueAndMayComeBack) {
    Alarm early(happened_, 'e', kStart + 1s), late(happened_, 'l', kStart + 3s);
    early.again = 1s;
    loop_.add_timer(late);
    loop_.add_timer(early);
    EXPECT_EQ(loop_.next_deadline(), kStart + 1s);
    loop_.run_timers(kStart + 999ms);
    EXPECT_EQ(happened_, "");
    loop_.run_timers(kStart + 1s);
    EXPECT_EQ(happened_, "e");
    EXPECT_EQ(loop_.next_deadline(), kStart + 2s);
    early.again = {};
    loop_.run_timers(kStart + 3s);
    EXPECT_EQ(happened_, "ele");
    EXPECT_FALSE(loop_.has_timers());
    EXPECT_EQ(loop_.next_deadline(), ucs::kNever);
}

TEST_F(EventLoopTest, EachIsLookedAfterAtItsOwnTime) {
    Patient often(happened_, 'o', 1s), seldom(happened_, 's', 4s);
    loop_.look_after(seldom);
    loop_.look_after(often);
    for (int second = 1; second <= 4; ++second) {
        EXPECT_EQ(loop_.next_deadline(), kStart + std::chrono::seconds(second));
        loop_.check_watched(kStart + std::chrono::seconds(second));
    }
    EXPECT_EQ(happened_, "oooso");
}

TEST_F(EventLoopTest, WhoLeavesWithAnotherIsNotLookedAt) {
    Patient first(happened_, 'f', 1s), second(happened_, 's', 1s);
    first.other = &second;
    loop_.look_after(first);
    loop_.look_after(second);
    loop_.check_watched(kStart + 1s);
    EXPECT_EQ(happened_, "f");
}

TEST_F(EventLoopTest, TheClockIsReadInOneOfManyCalls) {
    const auto times_due = [&] {
        int due = 0;
        for (int call = 0; call < 640; ++call) due += loop_.is_check_due() ? 1 : 0;
        return due;
    };
    EXPECT_EQ(times_due(), 0) << "there is nobody to look after";
    Patient patient(happened_, 'p', 1s);
    loop_.look_after(patient);
    EXPECT_EQ(times_due(), 10);
}

TEST_F(EventLoopTest, DescriptorsAreHeardUntilTheyAreLetGo) {
    ASSERT_TRUE(loop_.is_open());
    Pipe pipe;
    ASSERT_TRUE(loop_.watch(pipe.ends[0], pipe, EPOLLIN, true));
    EXPECT_EQ(loop_.poll(), 0u);
    ASSERT_EQ(write(pipe.ends[1], "ab", 2), 2);
    EXPECT_EQ(loop_.poll(), 1u);
    EXPECT_EQ(pipe.seen, uint32_t{EPOLLIN});
    EXPECT_FALSE(loop_.arm(ucs::kNever, kStart)) << "a byte is left: who would sleep must not";
    loop_.stop_watching(pipe.ends[0]);
    EXPECT_EQ(loop_.poll(), 0u);
    EXPECT_TRUE(loop_.arm(ucs::kNever, kStart));
}

TEST_F(EventLoopTest, ASleeperWakesForWhatIsDue) {
    ASSERT_TRUE(loop_.arm(kStart + 1h, kStart));
    pollfd waiting{loop_.descriptor(), POLLIN, 0};
    EXPECT_EQ(::poll(&waiting, 1, 0), 0);
    loop_.arm(kStart, kStart);
    EXPECT_EQ(::poll(&waiting, 1, 60000), 1);
    Patient patient(happened_, 'p', 1s);
    loop_.look_after(patient);
    EXPECT_EQ(loop_.poll(), 0u) << "the alarm is no event of anybody's";
    EXPECT_TRUE(loop_.is_check_due()) << "it may be for those looked after";
}

}  // namespace
}  // namespace uct::tcp
