// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/lanes/switch.h"

#include <gtest/gtest.h>

namespace ucp::lanes {
namespace {

using State = TxDirection::State;

TxDirection in_state(State state) {
    TxDirection tx;
    const auto walk = [&](std::initializer_list<bool> steps) {
        for (const bool step : steps) EXPECT_TRUE(step);
    };
    switch (state) {
        case State::kScalable:
            break;
        case State::kMarking:
            walk({tx.begin(2)});
            break;
        case State::kWindowed:
            walk({tx.begin(2), tx.marker_posted()});
            break;
        case State::kDedicated:
            walk({tx.begin(2), tx.marker_posted(), tx.mark_acknowledged()});
            break;
        case State::kUnmarking:
            walk({tx.begin(2), tx.marker_posted(), tx.mark_acknowledged(), tx.stop()});
            break;
        case State::kStopped:
            walk({tx.begin(2), tx.marker_posted(), tx.stop(), tx.marker_posted()});
            break;
    }
    EXPECT_EQ(state, tx.state());
    return tx;
}

TEST(LanesSwitch, EveryEventInEveryState) {
    enum Event { kBegin, kPosted, kMarkAck, kStop, kDmarkAck };
    const struct {
        State from;
        Event event;
        bool taken;
        State to;
    } table[] = {
        {State::kScalable, kBegin, true, State::kMarking},
        {State::kScalable, kPosted, false, State::kScalable},
        {State::kScalable, kMarkAck, false, State::kScalable},
        {State::kScalable, kStop, false, State::kScalable},
        {State::kScalable, kDmarkAck, false, State::kScalable},
        {State::kMarking, kBegin, false, State::kMarking},
        {State::kMarking, kPosted, true, State::kWindowed},
        {State::kMarking, kMarkAck, false, State::kMarking},
        {State::kMarking, kStop, false, State::kMarking},
        {State::kMarking, kDmarkAck, false, State::kMarking},
        {State::kWindowed, kBegin, false, State::kWindowed},
        {State::kWindowed, kPosted, false, State::kWindowed},
        {State::kWindowed, kMarkAck, true, State::kDedicated},
        {State::kWindowed, kStop, true, State::kUnmarking},
        {State::kWindowed, kDmarkAck, false, State::kWindowed},
        {State::kDedicated, kBegin, false, State::kDedicated},
        {State::kDedicated, kPosted, false, State::kDedicated},
        {State::kDedicated, kMarkAck, false, State::kDedicated},
        {State::kDedicated, kStop, true, State::kUnmarking},
        {State::kDedicated, kDmarkAck, false, State::kDedicated},
        {State::kUnmarking, kBegin, false, State::kUnmarking},
        {State::kUnmarking, kPosted, true, State::kStopped},
        {State::kUnmarking, kMarkAck, true, State::kUnmarking},
        {State::kUnmarking, kStop, false, State::kUnmarking},
        {State::kUnmarking, kDmarkAck, false, State::kUnmarking},
        {State::kStopped, kBegin, false, State::kStopped},
        {State::kStopped, kPosted, false, State::kStopped},
        {State::kStopped, kMarkAck, true, State::kStopped},
        {State::kStopped, kStop, false, State::kStopped},
        {State::kStopped, kDmarkAck, true, State::kScalable},
    };
    for (const auto& row : table) {
        TxDirection tx = in_state(row.from);
        bool taken = false;
        switch (row.event) {
            case kBegin:
                taken = tx.begin(1);
                break;
            case kPosted:
                taken = tx.marker_posted();
                break;
            case kMarkAck:
                taken = tx.mark_acknowledged();
                break;
            case kStop:
                taken = tx.stop();
                break;
            case kDmarkAck:
                taken = tx.dmark_acknowledged();
                break;
        }
        EXPECT_EQ(row.taken, taken) << name(row.from) << " event " << row.event;
        EXPECT_EQ(row.to, tx.state()) << name(row.from) << " event " << row.event;
    }
}

TEST(LanesSwitch, WhatMayBePostedWhere) {
    EXPECT_TRUE(in_state(State::kScalable).may_post());
    EXPECT_EQ(LaneKind::kScalable, in_state(State::kScalable).lane());
    EXPECT_FALSE(in_state(State::kMarking).may_post());
    EXPECT_TRUE(in_state(State::kDedicated).may_post());
    EXPECT_EQ(LaneKind::kDedicated, in_state(State::kDedicated).lane());
    EXPECT_FALSE(in_state(State::kUnmarking).may_post());
    EXPECT_FALSE(in_state(State::kStopped).may_post());
}

TEST(LanesSwitch, WindowHoldsUntilTheMarkIsAcknowledged) {
    TxDirection tx = in_state(State::kWindowed);
    for (int i = 0; i < 2; ++i) {
        ASSERT_TRUE(tx.may_post());
        EXPECT_EQ(LaneKind::kDedicated, tx.lane());
        tx.posted();
    }
    EXPECT_FALSE(tx.may_post());
    EXPECT_TRUE(tx.mark_acknowledged());
    EXPECT_TRUE(tx.may_post());

    TxDirection shut;
    shut.begin(0);
    shut.marker_posted();
    EXPECT_FALSE(shut.may_post());
}

TEST(LanesSwitch, ReceiverDeliversFromOneLaneAtATime) {
    RxDirection rx;
    EXPECT_TRUE(rx.delivers(LaneKind::kScalable));
    EXPECT_FALSE(rx.delivers(LaneKind::kDedicated));
    EXPECT_FALSE(rx.dmark());
    EXPECT_TRUE(rx.mark());
    EXPECT_FALSE(rx.mark());
    EXPECT_TRUE(rx.delivers(LaneKind::kDedicated));
    EXPECT_FALSE(rx.delivers(LaneKind::kScalable));
    EXPECT_TRUE(rx.dmark());
    EXPECT_TRUE(rx.delivers(LaneKind::kScalable));
}

}  // namespace
}  // namespace ucp::lanes
