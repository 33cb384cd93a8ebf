// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "ucp/lanes/negotiator.h"
#include "unit/ucp/lanes/config.h"
#include "unit/ucp/lanes/recorder.h"

namespace ucp::lanes {

using lanes_test::Recorder;
using Type = MessageType;

inline constexpr Peer kPeer = 2;   // worker 20
inline constexpr Peer kOther = 3;  // worker 30

// One negotiator, with everything around it played by the test.
class NegotiatorFixture : public ::testing::Test {
  protected:
    NegotiatorFixture() {
        config_.trickle_ratio = 0;
        config_.min_score = 10;
        config_.min_residence = 0;
        config_.request_pings = 1;
        config_.keep = 0;
    }
    void start(std::uint64_t worker, std::uint32_t cap = 1) {
        own_ = worker;
        config_.cap = cap;
        sink_ = std::make_unique<Recorder>();
        negotiator_ = std::make_unique<Negotiator>(config_, worker, *sink_);
        now_ = 0;
    }

    Message message(Type type, Peer peer = kPeer) {
        Message made;
        made.type = type;
        const Link* link = negotiator_->find(peer);
        made.epoch = link ? link->epoch : 0;
        made.window = 4;
        made.address = {9};
        if (type == Type::kRequest) {
            made.epoch = 0x100 | (peer * 10 > own_);
            made.local = made.estimate = 1000;
        }
        if (type == Type::kScore) made.local = 5;
        return made;
    }
    // Outranked, whatever the link may grow to.
    Message denial(Peer peer) {
        Message made = message(Type::kDeny, peer);
        made.deny = DenyReason::kOutranked;
        made.floor = {1'000'000, {}};
        return made;
    }
    // A message that comes alone.
    ucs_status_t hear(Peer peer, const Message& message) {
        const ucs_status_t status = negotiator_->on_message(peer, message);
        negotiator_->settle();
        return status;
    }
    ucs_status_t deliver(Type type, Peer peer = kPeer) { return hear(peer, message(type, peer)); }
    void advance(Time by) { negotiator_->advance(now_ += by); }
    void score(Peer peer, Score measured) {
        negotiator_->on_score(peer, measured);
        advance(0);
    }
    LinkState state(Peer peer = kPeer) const { return negotiator_->find(peer)->state; }

    // Takes `peer` from a denied or fresh link to Established, by an own request.
    void climb(Peer peer, LinkState until) {
        const std::uint8_t address[] = {1};
        const auto reached = [&] { return state(peer) == until; };
        deliver(Type::kScore, peer);
        if (reached()) return;
        score(peer, 100);
        if (reached()) return;
        if (until == LinkState::kWithdrawing) {
            advance(config_.wait_timeout);
            advance(config_.wait_timeout);
            return;
        }
        deliver(Type::kAccept, peer);
        if (reached()) return;
        negotiator_->on_lane_created(peer, UCS_OK, address);
        if (reached()) return;
        deliver(Type::kLane, peer);
        negotiator_->on_lane_ready(peer, UCS_OK);
        if (reached()) return;
        deliver(Type::kReady, peer);
        negotiator_->on_marker_posted(peer);
        if (reached()) return;
        deliver(Type::kMark, peer);
        deliver(Type::kMarkAck, peer);
        if (reached()) return;
        negotiator_->set_policy(peer, Policy::kScalable);
        negotiator_->on_marker_posted(peer);
        if (reached()) return;
        deliver(Type::kDmark, peer);
        deliver(Type::kDmarkAck, peer);
        negotiator_->on_flushed(peer);
        deliver(Type::kFlushed, peer);
    }
    void bring_to(LinkState wanted) {
        if (wanted == LinkState::kCommitted) {
            // Agreed, but the only slot is still on its way down.
            climb(kOther, LinkState::kEstablished);
            score(kPeer, 1000);
            deliver(Type::kAccept);
        } else {
            climb(kPeer, wanted);
        }
        ASSERT_EQ(wanted, state());
        ASSERT_TRUE(negotiator_->consistent());
        sink_->take();
    }

    static constexpr std::uint64_t worker_ = 10;
    std::uint64_t own_ = 0;
    Config config_ = config_of_tests();
    std::unique_ptr<Recorder> sink_;
    std::unique_ptr<Negotiator> negotiator_;
    Time now_ = 0;
};

}  // namespace ucp::lanes
