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
        case State::kLeaving:
            walk({tx.begin(2), tx.marker_posted(), tx.mark_acknowledged(), tx.stop()});
            break;
        case State::kLeft:
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
        {State::kWindowed, kStop, true, State::kLeaving},
        {State::kWindowed, kDmarkAck, false, State::kWindowed},
        {State::kDedicated, kBegin, false, State::kDedicated},
        {State::kDedicated, kPosted, false, State::kDedicated},
        {State::kDedicated, kMarkAck, false, State::kDedicated},
        {State::kDedicated, kStop, true, State::kLeaving},
        {State::kDedicated, kDmarkAck, false, State::kDedicated},
        {State::kLeaving, kBegin, false, State::kLeaving},
        {State::kLeaving, kPosted, true, State::kLeft},
        {State::kLeaving, kMarkAck, true, State::kLeaving},
        {State::kLeaving, kStop, false, State::kLeaving},
        {State::kLeaving, kDmarkAck, false, State::kLeaving},
        {State::kLeft, kBegin, false, State::kLeft},
        {State::kLeft, kPosted, false, State::kLeft},
        {State::kLeft, kMarkAck, true, State::kLeft},
        {State::kLeft, kStop, false, State::kLeft},
        {State::kLeft, kDmarkAck, true, State::kScalable},
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
    for (const State state : {State::kLeaving, State::kLeft}) {
        EXPECT_TRUE(in_state(state).may_post());
        EXPECT_EQ(LaneKind::kScalable, in_state(state).lane());
        EXPECT_TRUE(in_state(state).is_ordered());
    }
    EXPECT_FALSE(in_state(State::kScalable).is_ordered());
    EXPECT_FALSE(in_state(State::kDedicated).is_ordered());
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

// Of a sender that leaves, the peer holds no more than it granted.
TEST(LanesSwitch, WindowHoldsUntilTheDmarkIsAcknowledged) {
    TxDirection tx = in_state(State::kDedicated);
    EXPECT_TRUE(tx.stop());
    for (int i = 0; i < 2; ++i) {
        ASSERT_TRUE(tx.may_post());
        tx.posted();
        if (i == 0) {
            EXPECT_TRUE(tx.marker_posted());
        }
    }
    EXPECT_FALSE(tx.may_post());
    EXPECT_TRUE(tx.dmark_acknowledged());
    EXPECT_TRUE(tx.may_post());
    EXPECT_FALSE(tx.is_ordered());
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
