// SPDX-License-Identifier: BSD-3-Clause

// Notifications with payloads over every transport: what comes without a handler is kept, and who
// sends too much waits.

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ucp/bulk/engine/notification.h"
#include "ucp/endpoint/endpoint.h"
#include "ucs/log/log.h"
#include "unit/ucp/cluster.h"
#include "unit/ucp/region.h"
#include "unit/ucp/runtime/sender_wires.h"
#include "unit/ucs/log/log_capture.h"

namespace ucp::test {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr size_t kFrom = 0, kTo = 1, kBystander = 2;

struct Told {
    uint64_t sender;
    uint64_t value;
    Bytes payload;
};

// How many notifications of that payload a peer has room for.
constexpr size_t room_for(size_t length) {
    return Notifier::kWindow / (Notifier::kOverhead + length);
}

ucs_status_ptr_t notify(ucp_ep_h endpoint, uint64_t value, const Bytes& payload) {
    return start_telling(endpoint, true, {}, value, payload);
}

class Notifying {
  protected:
    explicit Notifying(SenderWire kind)
        : kind_(std::move(kind)),
          wire_(kind_.make()),
          cluster_(3, options_for(kind_, *wire_)),
          local_(cluster_.context(kFrom), kArea),
          remote_(cluster_.context(kTo), kArea) {
        remote_.open(endpoint());
        if (kind_.has_lanes) join_by_lane(cluster_, kFrom, kTo);
    }
    ~Notifying() { remote_.close(); }

    static constexpr size_t kArea = 256 * 1024;

    ucp_ep_h endpoint() { return cluster_.endpoint(kFrom, kTo); }
    Notifier& receiver() { return cluster_.inner(kTo).notifier(); }
    void listen(size_t worker = kTo) {
        EXPECT_EQ(ucpx_worker_set_notification_handler(cluster_.worker(worker), on_told, this),
                  UCS_OK);
    }
    void stop_listening() {
        EXPECT_EQ(ucpx_worker_set_notification_handler(cluster_.worker(kTo), nullptr, nullptr),
                  UCS_OK);
    }
    // So many notifications of that payload, from 0 on.
    void flood(size_t count, size_t length) {
        for (size_t i = 0; i < count; ++i) {
            requests_.push_back(notify(endpoint(), i, pattern(length, i)));
            cluster_.steps(2);
        }
    }
    size_t ended() const {
        return static_cast<size_t>(std::ranges::count_if(requests_, [](ucs_status_ptr_t request) {
            return !UCS_PTR_IS_PTR(request) || ucp_request_check_status(request) != UCS_INPROGRESS;
        }));
    }
    bool until_told(size_t count) {
        return cluster_.until([&] { return told_.size() >= count; });
    }
    // All that was asked for has come, once and in order.
    void expect_all(size_t length) {
        const size_t count = requests_.size();
        EXPECT_TRUE(until_told(count));
        for (const ucs_status_ptr_t request : std::exchange(requests_, {}))
            EXPECT_EQ(cluster_.finish(request), UCS_OK);
        cluster_.steps(20);
        ASSERT_EQ(told_.size(), count);
        for (size_t i = 0; i < count; ++i) {
            EXPECT_EQ(told_[i].sender, cluster_.uuid(kFrom));
            EXPECT_EQ(told_[i].value, i);
            EXPECT_EQ(told_[i].payload, pattern(length, i)) << i;
        }
    }

    const SenderWire kind_;
    const std::unique_ptr<Wire> wire_;
    Cluster cluster_;
    Region local_, remote_;
    std::vector<ucs_status_ptr_t> requests_;
    std::vector<Told> told_;
    std::function<void()> when_told_;

  private:
    static void on_told(void* arg, const ucpx_notification_t* notification) {
        auto& self = *static_cast<Notifying*>(arg);
        EXPECT_EQ(notification->payload == nullptr, notification->payload_length == 0);
        const auto* const bytes = static_cast<const uint8_t*>(notification->payload);
        self.told_.push_back({notification->sender_uid,
                              notification->value,
                              {bytes, bytes + notification->payload_length}});
        if (self.when_told_) self.when_told_();
    }
};

class KeptNotifications : public Notifying, public testing::TestWithParam<SenderWire> {
  protected:
    KeptNotifications() : Notifying(GetParam()) {}
};

INSTANTIATE_TEST_SUITE_P(Wires, KeptNotifications, testing::ValuesIn(sender_wires()),
                         [](const auto& info) { return info.param.name; });

TEST_P(KeptNotifications, PayloadsOfAllLengthsComeBehindTheBytes) {
    listen();
    uint64_t value = 0;
    for (const bool is_put : {true, false}) {
        for (const size_t length : {0, 1, 8, 100, 1000, 4000, 8200, 20000, 65536}) {
            for (const size_t data : {size_t{0}, size_t{64}, kArea}) {
                SCOPED_TRACE(std::to_string(length) + " behind " + std::to_string(data));
                (is_put ? local_ : remote_).fill(++value);
                bool is_there = false;
                when_told_ = [&] {
                    is_there = !is_put || std::ranges::equal(std::span(local_.bytes).first(data),
                                                             std::span(remote_.bytes).first(data));
                };
                const std::vector<ucpx_piece_t> pieces{
                    {local_.bytes.data(), remote_.address(), data, local_.memory, remote_.key}};
                Bytes payload = pattern(length, value);
                told_.clear();
                const ucs_status_ptr_t batch =
                    start_telling(endpoint(), is_put, pieces, value << 33, payload);
                std::ranges::fill(payload, 0);  // the caller's again
                EXPECT_EQ(cluster_.finish(batch), UCS_OK);
                ASSERT_TRUE(until_told(1));
                cluster_.steps(10);
                ASSERT_EQ(told_.size(), 1u);
                EXPECT_TRUE(is_there);
                EXPECT_EQ(told_[0].value, value << 33);
                EXPECT_EQ(told_[0].sender, cluster_.uuid(kFrom));
                EXPECT_EQ(told_[0].payload, pattern(length, value));
                when_told_ = {};
            }
        }
    }
}

TEST_P(KeptNotifications, AreHandedOverInOrderWhenAHandlerIsSet) {
    const size_t count = room_for(1000);
    flood(count, 1000);
    EXPECT_TRUE(cluster_.until([&] { return receiver().kept() == count; }));
    EXPECT_EQ(ended(), count);
    EXPECT_TRUE(told_.empty());
    listen();
    EXPECT_TRUE(told_.empty());  // from progress alone
    expect_all(1000);
    EXPECT_EQ(receiver().kept(), 0u);
}

TEST_P(KeptNotifications, OfASenderThatFloodsAreFewAndItWaits) {
    for (const size_t length : {size_t{0}, size_t{3000}, Notifier::kLongest}) {
        SCOPED_TRACE(length);
        const size_t count = 3 * room_for(length);
        ucs::LogCapture log;
        flood(count, length);
        cluster_.steps(2000);
        EXPECT_EQ(receiver().kept(), room_for(length));
        EXPECT_EQ(ended(), room_for(length));
        EXPECT_TRUE(log.contains("ucpx_worker_set_notification_handler") ||
                    log.contains("ucpx_worker_set_notify_handler"));
        // It is told once, not for each.
        EXPECT_EQ(log.entries().size(), 1u);
        const size_t held =
            cluster_.inner(kTo).interfaces().peer_memory().held(cluster_.uuid(kFrom));
        EXPECT_GE(held, room_for(length) * length);
        EXPECT_LE(held, 4 * Notifier::kWindow);
        // Nothing else waits for that, in either direction, nor do others' notifications.
        pass(cluster_, kFrom, kTo, 1 + length);
        pass(cluster_, kTo, kFrom, 2 + length);
        EXPECT_EQ(cluster_.finish(notify(cluster_.endpoint(kFrom, kBystander), 5, {1, 2, 3})),
                  UCS_OK);
        EXPECT_EQ(ended(), room_for(length));
        listen();
        expect_all(length);
        EXPECT_EQ(cluster_.inner(kTo).interfaces().peer_memory().held(cluster_.uuid(kFrom)), 0u);
        stop_listening();
        told_.clear();
    }
}

TEST_P(KeptNotifications, MayComeForEverWhereTheyAreTaken) {
    listen();
    // As many as fill the room several times; now and then nobody listens.
    const size_t count = 5 * room_for(5000);
    for (size_t i = 0; i < count; ++i) {
        if (i % 16 == 4) stop_listening();
        if (i % 16 == 12) listen();
        requests_.push_back(notify(endpoint(), i, pattern(5000, i)));
        cluster_.steps(2);
    }
    listen();
    expect_all(5000);
}

TEST_P(KeptNotifications, OfASenderWhosePeerDiesEndWithItsError) {
    ucs_status_t failure = UCS_OK;
    const ucp_ep_h endpoint = cluster_.connect(kFrom, kTo, noting_failure(failure));
    const size_t count = 2 * room_for(4000);
    for (size_t i = 0; i < count; ++i) {
        requests_.push_back(notify(endpoint, i, pattern(4000, i)));
        cluster_.steps(2);
    }
    cluster_.steps(500);
    EXPECT_EQ(ended(), room_for(4000));
    remote_.close();
    // As a dead peer's, its endpoint fails; those that wait have not been posted.
    unwrap(endpoint).fail(UCS_ERR_ENDPOINT_TIMEOUT);
    size_t failed = 0;
    for (const ucs_status_ptr_t request : std::exchange(requests_, {})) {
        const ucs_status_t status = cluster_.finish(request);
        if (status != UCS_OK) {
            EXPECT_EQ(status, UCS_ERR_ENDPOINT_TIMEOUT);
            ++failed;
        }
    }
    EXPECT_EQ(failed, count - room_for(4000));
    EXPECT_TRUE(cluster_.until([&] { return failure != UCS_OK; }));
    // What had come before is there, and whoever comes next has room.
    listen();
    EXPECT_TRUE(until_told(room_for(4000)));
    cluster_.steps(100);
    EXPECT_EQ(told_.size(), room_for(4000));
    const ucp_ep_h next = cluster_.connect(kFrom, kTo);
    EXPECT_EQ(cluster_.finish(notify(next, 1, {7})), UCS_OK);
    EXPECT_TRUE(until_told(room_for(4000) + 1));
}

TEST_P(KeptNotifications, FollowEachOtherAroundAFence) {
    flood(room_for(30000) + 2, 30000);
    cluster_.steps(200);
    EXPECT_EQ(ended(), requests_.size() - 2);
    // The put waits for the batches before the fence, and they for nobody but the peer.
    EXPECT_EQ(ucp_worker_fence(cluster_.worker(kFrom)), UCS_OK);
    local_.fill(5);
    const ucs_status_ptr_t put =
        ucp_put_nbx(endpoint(), local_.bytes.data(), 64, remote_.address(), remote_.key, &kNothing);
    cluster_.steps(200);
    listen();
    expect_all(30000);
    EXPECT_EQ(cluster_.finish(put), UCS_OK);
    EXPECT_EQ(cluster_.finish(ucp_ep_flush_nbx(endpoint(), &kNothing)), UCS_OK);
    EXPECT_TRUE(
        std::ranges::equal(std::span(local_.bytes).first(64), std::span(remote_.bytes).first(64)));
}

TEST_P(KeptNotifications, ThatWaitOutlastTheEndpointsClose) {
    flood(room_for(30000) + 3, 30000);
    cluster_.steps(200);
    remote_.close();
    const ucs_status_ptr_t close = ucp_ep_close_nbx(endpoint(), &kNothing);
    cluster_.forget(kFrom, kTo);
    cluster_.steps(500);
    listen();
    expect_all(30000);
    EXPECT_EQ(cluster_.finish(close), UCS_OK);
}

TEST_P(KeptNotifications, AreAcknowledgedThoughTheReceiverHasClosedItsEndpoint) {
    pass(cluster_, kTo, kFrom, 9);
    const ucs_status_ptr_t close = ucp_ep_close_nbx(cluster_.endpoint(kTo, kFrom), &kNothing);
    cluster_.forget(kTo, kFrom);
    EXPECT_EQ(cluster_.finish(close), UCS_OK);
    listen();
    flood(4 * room_for(10000), 10000);
    expect_all(10000);
}

TEST_P(KeptNotifications, OfFewBytesDoNotOvertakeThoseThatWait) {
    flood(3, 60000);
    // It would find room.
    requests_.push_back(notify(endpoint(), 3, Bytes(10)));
    cluster_.steps(200);
    EXPECT_EQ(ended(), 2u);
    listen();
    ASSERT_TRUE(until_told(4));
    for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(told_[i].value, i);
    for (const ucs_status_ptr_t request : requests_) EXPECT_EQ(cluster_.finish(request), UCS_OK);
}

TEST_P(KeptNotifications, ToOneselfAreNoneTheLess) {
    const ucp_ep_h self = cluster_.endpoint(kFrom, kFrom);
    const size_t count = 2 * room_for(9000);
    for (size_t i = 0; i < count; ++i) {
        requests_.push_back(notify(self, i, pattern(9000, i)));
        cluster_.steps(2);
    }
    EXPECT_EQ(ended(), room_for(9000));
    listen(kFrom);
    expect_all(9000);
}

TEST_P(KeptNotifications, TheOlderHandlerGetsTheirValue) {
    std::vector<uint64_t> values;
    const auto handler = [](void* arg, uint64_t, uint64_t value) {
        static_cast<std::vector<uint64_t>*>(arg)->push_back(value);
    };
    requests_.push_back(notify(endpoint(), 3, pattern(100, 1)));
    requests_.push_back(start_batch(endpoint(), true, {}, 4));
    cluster_.steps(100);
    EXPECT_EQ(ucpx_worker_set_notify_handler(cluster_.worker(kTo), handler, &values), UCS_OK);
    requests_.push_back(notify(endpoint(), 5, {}));
    EXPECT_TRUE(cluster_.until([&] { return values.size() == 3; }));
    EXPECT_EQ(values, (std::vector<uint64_t>{3, 4, 5}));
    for (const ucs_status_ptr_t request : requests_) EXPECT_EQ(cluster_.finish(request), UCS_OK);
}

TEST_P(KeptNotifications, WhatNoPayloadCanBeIsRefused) {
    listen();
    EXPECT_EQ(UCS_PTR_STATUS(notify(endpoint(), 1, Bytes(Notifier::kLongest + 1))),
              UCS_ERR_EXCEEDS_LIMIT);
    ucpx_batch_t batch{};
    batch.field_mask = UCPX_BATCH_FIELD_PAYLOAD;
    batch.entry_size = sizeof(ucpx_piece_t);
    batch.payload_length = 1;
    EXPECT_EQ(UCS_PTR_STATUS(ucpx_put_batch_nbx(endpoint(), &batch, &kNothing)),
              UCS_ERR_INVALID_PARAM);
    // A payload alone has no value.
    batch.payload = "x";
    EXPECT_EQ(cluster_.finish(ucpx_put_batch_nbx(endpoint(), &batch, &kNothing)), UCS_OK);
    ASSERT_TRUE(until_told(1));
    EXPECT_EQ(told_[0].value, 0u);
    EXPECT_EQ(told_[0].payload, Bytes{'x'});
}

}  // namespace
}  // namespace ucp::test
