// SPDX-License-Identifier: BSD-3-Clause

// Long messages within a host of lengths for which it matters whether they are alone: in pieces
// where a program is likely to wait for them, else announced.

#include "ucp/proto/tag/engine.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "ucp/api/ucp.h"
#include "ucp/base/handles.h"
#include "ucp/context/context.h"
#include "ucp/worker/worker.h"
#include "uct/sm/component.h"
#include "unit/ucp/no_options.h"

namespace ucp::test {
namespace {

constexpr size_t kLong = 32 * 1024;
constexpr ucp_tag_t kTag = 7, kAll = ~ucp_tag_t{0};

class Rank {
  public:
    explicit Rank(uint64_t features = UCP_FEATURE_TAG, CostSource costs = CostSource::kFixed) {
        Config config;
        std::string error;
        EXPECT_EQ(kConfigTable.load(ucs::config::Source(), config, error), UCS_OK) << error;
        config.costs = costs;
        ucp_params_t params{};
        params.field_mask = UCP_PARAM_FIELD_FEATURES;
        params.features = features;
        ContextSeams seams;
        seams.components = std::span<uct::Component* const>(&component_, 1);
        EXPECT_EQ(Context::create(params, config, seams, &context_), UCS_OK);
        EXPECT_EQ(Worker::create(*context_, ucp_worker_params_t{}, &worker_), UCS_OK);
    }
    ucp_ep_h connect(Rank& to) {
        ucp_ep_params_t params{};
        params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        params.address = reinterpret_cast<const ucp_address_t*>(to.worker_->address().data());
        Endpoint* endpoint = nullptr;
        EXPECT_EQ(worker_->create_endpoint(params, &endpoint), UCS_OK);
        return endpoint_ = wrap(endpoint);
    }
    ucs_status_ptr_t send(std::vector<char>& data) { return send(endpoint_, data); }
    ucs_status_ptr_t send(ucp_ep_h endpoint, std::vector<char>& data) {
        return ucp_tag_send_nbx(endpoint, data.data(), data.size(), kTag, &kNothing);
    }
    ucs_status_ptr_t receive(std::vector<char>& data) {
        return ucp_tag_recv_nbx(wrap(worker_.get()), data.data(), data.size(), kTag, kAll,
                                &kNothing);
    }
    void progress() { worker_->progress(); }
    ucp_ep_h endpoint() const { return endpoint_; }
    ucp_worker_h worker() const { return wrap(worker_.get()); }

  private:
    uct::Component* component_ = &uct::sm::component();
    std::unique_ptr<Context> context_;
    std::unique_ptr<Worker> worker_;
    ucp_ep_h endpoint_ = nullptr;
};

class LongMessages : public testing::Test {
  protected:
    LongMessages() {
        here_.connect(there_);
        there_.connect(here_);
    }
    // Many looks at the queues, in which whatever can end does.
    bool ends(ucs_status_ptr_t operation) {
        if (!UCS_PTR_IS_PTR(operation)) return UCS_PTR_RAW_STATUS(operation) == UCS_OK;
        for (int i = 0; i < 2000; ++i) {
            here_.progress();
            there_.progress();
            if (ucp_request_check_status(operation) != UCS_INPROGRESS) {
                ucp_request_free(operation);
                return true;
            }
        }
        return false;
    }
    void hear() {
        std::vector<char> word(8);
        EXPECT_TRUE(ends(there_.send(word)));
        EXPECT_TRUE(ends(here_.receive(word)));
    }
    void expect_at_peer(char content) {
        std::vector<char> target(kLong);
        EXPECT_TRUE(ends(there_.receive(target)));
        EXPECT_EQ(target, std::vector<char>(kLong, content));
    }

    void SetUp() override {
        using select::Protocol;
        using select::Situation;
        const auto protocol = [&](Situation situation) {
            return unwrap(here_.endpoint())
                .protocols()
                .find(select::Operation::kTag, select::BufferClass::kContiguous, situation, kLong);
        };
        ASSERT_EQ(protocol(Situation::kAlone), Protocol::kCopy);
        ASSERT_EQ(protocol(Situation::kAmongOthers), Protocol::kRendezvous);
    }

    Rank here_, there_;
    std::vector<char> first_ = std::vector<char>(kLong, 1);
    std::vector<char> second_ = std::vector<char>(kLong, 2);
};

// What goes in pieces has left the sender though nobody receives it yet.
TEST_F(LongMessages, WhoHasReceivedSendsOneLongMessageInPieces) {
    hear();
    EXPECT_TRUE(ends(here_.send(first_)));
    const ucs_status_ptr_t next = here_.send(second_);
    EXPECT_FALSE(ends(next));
    expect_at_peer(1);
    expect_at_peer(2);
    EXPECT_TRUE(ends(next));
}

// Whether the first will be the only one is not known before the turn is over, but after it.
TEST_F(LongMessages, WhoSentSeveralInATurnAnnouncesTheFirstOfTheNext) {
    hear();
    EXPECT_TRUE(ends(here_.send(first_)));
    const ucs_status_ptr_t second = here_.send(second_);
    expect_at_peer(1);
    expect_at_peer(2);
    EXPECT_TRUE(ends(second));
    hear();
    const ucs_status_ptr_t announced = here_.send(first_);
    EXPECT_FALSE(ends(announced));
    expect_at_peer(1);
    EXPECT_TRUE(ends(announced));
    hear();
    EXPECT_TRUE(ends(here_.send(second_)));
    expect_at_peer(2);
}

// Of two pieces: they leave at once for one peer, and are announced to many in turn.
TEST_F(LongMessages, ThatAreSpreadAreAnnouncedFromTwoPiecesOn) {
    std::vector<char> source(16 * 1024, 4);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(ends(here_.send(source))) << i;
    std::array<Rank, 8> others;
    for (Rank& other : others) {
        const ucs_status_ptr_t sending = here_.send(here_.connect(other), source);
        other.connect(here_);
        EXPECT_FALSE(ends(sending));
        std::vector<char> target(source.size());
        const ucs_status_ptr_t receiving = other.receive(target);
        for (int turn = 0; turn < 2000; ++turn) other.progress();
        EXPECT_TRUE(ends(receiving));
        EXPECT_EQ(target, source);
        EXPECT_TRUE(ends(sending));
    }
}

// As in exchanges out of step: the peer's message is there, and is fetched in progress only.
TEST_F(LongMessages, WhoHasAMessageToFetchAnnounces) {
    std::vector<char> target(kLong);
    const ucs_status_ptr_t theirs = there_.send(first_);
    EXPECT_FALSE(ends(theirs));
    const ucs_status_ptr_t receiving = here_.receive(target);
    const ucs_status_ptr_t sending = here_.send(second_);
    EXPECT_FALSE(ends(sending));
    EXPECT_TRUE(ends(receiving));
    EXPECT_EQ(target, first_);
    EXPECT_TRUE(ends(theirs));
    expect_at_peer(2);
    EXPECT_TRUE(ends(sending));
}

TEST_F(LongMessages, WhoWaitsForMessagesAnnounces) {
    hear();
    std::vector<char> answer(8);
    const std::array waiting{here_.receive(answer), here_.receive(answer)};
    const ucs_status_ptr_t sending = here_.send(first_);
    EXPECT_FALSE(ends(sending));
    expect_at_peer(1);
    EXPECT_TRUE(ends(sending));
    for (const ucs_status_ptr_t receive : waiting) {
        EXPECT_TRUE(ends(there_.send(answer)));
        EXPECT_TRUE(ends(receive));
    }
}

// One message goes out for each that comes in.
TEST_F(LongMessages, OfAnExchangeGoInPieces) {
    for (int i = 0; i < 3; ++i) {
        std::vector<char> target(kLong);
        const ucs_status_ptr_t waiting = here_.receive(target);
        EXPECT_TRUE(ends(here_.send(first_)));
        expect_at_peer(1);
        EXPECT_TRUE(ends(there_.send(second_)));
        EXPECT_TRUE(ends(waiting));
        EXPECT_EQ(target, second_);
    }
}

// Whatever was learned of messages that are alone.
TEST_F(LongMessages, OfAnExchangeGoAsTheTableSays) {
    using select::Way;
    Rank here(UCP_FEATURE_TAG, CostSource::kAdapted);
    std::vector<char> data(16 * 1024, 1), target(data.size());
    const ucp_ep_h endpoint = here.connect(there_);
    there_.connect(here);
    select::LearnedCosts& learned = *unwrap(endpoint).learned(select::Operation::kTag)->costs;
    const auto which = select::LearnedCosts::class_of(select::Load::kAlone, data.size());
    learned.restore(which, Way::kEager, 100, 1000);
    learned.restore(which, Way::kRendezvous, 0.01F, 1000);
    const ucs_status_ptr_t waiting = here.receive(target);
    EXPECT_EQ(here.send(data), nullptr);
    ucp_request_cancel(here.worker(), waiting);
    ucp_request_free(waiting);
}

// Who receives first and sends then has sent before it copies.
TEST_F(LongMessages, AreNotFetchedInTheCallThatReceives) {
    const std::vector<char> sent(1 << 20, 3);
    std::vector<char> source = sent, target(sent.size());
    const ucs_status_ptr_t sending = here_.send(source);
    EXPECT_FALSE(ends(sending));
    const ucs_status_ptr_t receiving = there_.receive(target);
    EXPECT_EQ(target, std::vector<char>(sent.size()));
    EXPECT_TRUE(ends(receiving));
    EXPECT_EQ(target, sent);
    EXPECT_TRUE(ends(sending));
}

// Who has armed the worker and receives before it sleeps is woken to fetch the message.
TEST_F(LongMessages, WakeWhoReceivesThemBeforeItSleeps) {
    Rank sleeper(UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP);
    here_.connect(sleeper);
    std::vector<char> source(1 << 20, 3), target(source.size());
    const ucs_status_ptr_t sending = here_.send(source);
    for (int i = 0; i < 2000; ++i) {
        here_.progress();
        sleeper.progress();
    }
    pollfd entry{-1, POLLIN, 0};
    ASSERT_EQ(ucp_worker_get_efd(sleeper.worker(), &entry.fd), UCS_OK);
    while (ucp_worker_arm(sleeper.worker()) == UCS_ERR_BUSY) sleeper.progress();
    const ucs_status_ptr_t receiving = sleeper.receive(target);
    ASSERT_TRUE(UCS_PTR_IS_PTR(receiving));
    EXPECT_EQ(poll(&entry, 1, 0), 1);
    for (const ucs_status_ptr_t request : {sending, receiving}) {
        for (int i = 0; i < 2000 && ucp_request_check_status(request) == UCS_INPROGRESS; ++i) {
            here_.progress();
            sleeper.progress();
        }
        EXPECT_EQ(ucp_request_check_status(request), UCS_OK);
        ucp_request_free(request);
    }
    EXPECT_EQ(target, source);
}

TEST_F(LongMessages, ThatWereAskedForArriveThoughTheReceiverCloses) {
    std::vector<char> source(1 << 20, 3), target(source.size());
    const ucs_status_ptr_t sending = here_.send(source);
    EXPECT_FALSE(ends(sending));
    const ucs_status_ptr_t receiving = there_.receive(target);
    const ucs_status_ptr_t closing = ucp_ep_close_nbx(there_.endpoint(), &kNothing);
    EXPECT_TRUE(ends(receiving));
    EXPECT_EQ(target, source);
    EXPECT_TRUE(ends(sending));
    EXPECT_TRUE(ends(closing));
}

TEST_F(LongMessages, ThatAWorkerLeavesUnfetchedAreFreed) {
    std::vector<char> source(1 << 20, 3), target(source.size());
    const ucs_status_ptr_t sending = here_.send(source);
    EXPECT_FALSE(ends(sending));
    const ucs_status_ptr_t receiving = there_.receive(target);
    ASSERT_TRUE(UCS_PTR_IS_PTR(receiving));
    ucp_request_free(receiving);
    ucp_request_free(sending);
}

// What the library makes of the order of a program's receives and long messages.
class Exchanges : public testing::TestWithParam<size_t> {
  protected:
    Exchanges() {
        here_.connect(there_);
        there_.connect(here_);
        send();
        std::vector<char> first(GetParam());
        const ucs_status_ptr_t receive = here_.receive(first);
        until_ended({receive});
    }
    void send() { EXPECT_EQ(there_.send(data_), nullptr); }
    void until_ended(const std::vector<ucs_status_ptr_t>& receives) {
        for (ucs_status_ptr_t receive : receives) {
            while (UCS_PTR_IS_PTR(receive) && ucp_request_check_status(receive) == UCS_INPROGRESS)
                here_.progress();
            if (UCS_PTR_IS_PTR(receive)) ucp_request_free(receive);
        }
    }
    // A message without a receive has been taken out of its queue.
    bool is_kept() {
        ucp_tag_recv_info_t info;
        return ucp_tag_probe_nb(here_.worker(), kTag, kAll, 0, &info) != nullptr;
    }

    Rank here_, there_;
    std::vector<char> data_ = std::vector<char>(GetParam(), 1);
    std::vector<char> target_ = std::vector<char>(GetParam());
};

// The next message is mostly for the receive that the program posts next.
TEST_P(Exchanges, ProgressEndsWithTheLastReceive) {
    const ucs_status_ptr_t receive = here_.receive(target_);
    send();
    send();
    until_ended({receive});
    EXPECT_FALSE(is_kept());
    // Nobody is ready for it: it is taken all the same.
    for (int i = 0; i < 100 && !is_kept(); ++i) here_.progress();
    EXPECT_TRUE(is_kept());
    until_ended({here_.receive(target_)});
    EXPECT_EQ(target_, data_);
}

// Receives from anybody that are posted all the time change nothing of it.
TEST_P(Exchanges, ProgressEndsWithTheLastReceiveBesideThoseThatStand) {
    std::vector<char> question(8);
    const ucs_status_ptr_t standing = ucp_tag_recv_nbx(
        here_.worker(), question.data(), question.size(), kTag << 32, kAll << 32, &kNothing);
    const ucs_status_ptr_t receive = here_.receive(target_);
    send();
    send();
    until_ended({receive});
    EXPECT_FALSE(is_kept());
    until_ended({here_.receive(target_)});
    ucp_request_cancel(here_.worker(), standing);
    until_ended({standing});
}

// One of them may be the next message's.
TEST_P(Exchanges, OneCallTakesMessagesForReceivesFromAnybody) {
    std::vector<char> second(GetParam());
    const ucs_status_ptr_t first = here_.receive(target_);
    const ucs_status_ptr_t from_anybody =
        ucp_tag_recv_nbx(here_.worker(), second.data(), second.size(), kTag, kAll >> 32, &kNothing);
    send();
    send();
    while (ucp_request_check_status(first) == UCS_INPROGRESS) here_.progress();
    EXPECT_EQ(ucp_request_check_status(from_anybody), UCS_OK);
    until_ended({first, from_anybody});
}

TEST_P(Exchanges, OneCallTakesMessagesForReceivesThatAreAllPosted) {
    std::vector<char> second(GetParam());
    const std::vector receives{here_.receive(target_), here_.receive(second)};
    send();
    send();
    while (ucp_request_check_status(receives[0]) == UCS_INPROGRESS) here_.progress();
    EXPECT_EQ(ucp_request_check_status(receives[1]), UCS_OK);
    until_ended(receives);
}

INSTANTIATE_TEST_SUITE_P(Lengths, Exchanges, testing::Values(8, 5000),
                         testing::PrintToStringParamName());

class TurnsOf : public testing::Test {
  protected:
    using Situation = select::Situation;
    void hear() { ++receives_; }
    Situation next_to(size_t peer, bool is_busy = false) { return next(peer, 0, is_busy); }
    // For the receive that was posted last.
    Situation exchange_with(size_t peer, bool is_busy = false) {
        hear();
        return next(peer, 1, is_busy);
    }
    // The same, but the peer's message was there first.
    Situation late_exchange_with(size_t peer) {
        hear();
        return next(peer, 0, false, true);
    }
    bool was_exchange() const { return was_exchange_; }
    bool speaks_alone() { return next_to(0) == Situation::kAlone; }
    bool speaks_alone_after_a_receive() {
        hear();
        return speaks_alone();
    }
    bool speaks_alone_while_waiting() {
        hear();
        return next(0, 2, false) == Situation::kAlone;
    }

  private:
    Situation next(size_t peer, size_t awaited, bool is_busy, bool is_found = false) {
        // They are only compared.
        const auto& endpoint = reinterpret_cast<const Endpoint&>(places_[peer]);
        const Turns::Place place = turns_.next(endpoint, {receives_, awaited, is_found}, is_busy);
        was_exchange_ = place.is_exchange;
        return place.situation;
    }

    bool was_exchange_ = false;
    ucp::Turns turns_;
    std::array<char, 9> places_{};
    uint64_t receives_ = 0;
};

TEST_F(TurnsOf, MessagesBeginWithAReceive) {
    EXPECT_FALSE(speaks_alone());
    EXPECT_FALSE(speaks_alone());
}

TEST_F(TurnsOf, OneMessageEachHaveOneThatIsAlone) {
    EXPECT_TRUE(speaks_alone_after_a_receive());
    EXPECT_TRUE(speaks_alone_after_a_receive());
}

TEST_F(TurnsOf, SeveralMessagesMakeTheNextSuspect) {
    EXPECT_TRUE(speaks_alone_after_a_receive());
    EXPECT_FALSE(speaks_alone());
    EXPECT_FALSE(speaks_alone());
    EXPECT_FALSE(speaks_alone_after_a_receive());
    EXPECT_TRUE(speaks_alone_after_a_receive());
}

TEST_F(TurnsOf, MessagesAreNotOverWhileTheProgramWaits) {
    EXPECT_TRUE(speaks_alone_after_a_receive());
    EXPECT_FALSE(speaks_alone_while_waiting());
    EXPECT_FALSE(speaks_alone_after_a_receive());
    EXPECT_TRUE(speaks_alone_after_a_receive());
}

// A ring, or windows to one peer.
TEST_F(TurnsOf, MessagesToOnePeerAreNotSpread) {
    for (int i = 0; i < 3; ++i) EXPECT_EQ(next_to(2), Situation::kAmongOthers);
}

TEST_F(TurnsOf, MessagesToManyPeersInTurnAreSpread) {
    EXPECT_EQ(next_to(0), Situation::kAmongOthers);
    for (size_t i = 1; i < 30; ++i) EXPECT_EQ(next_to(i % 9), Situation::kSpread) << i;
}

// Their queues are still in the caches.
TEST_F(TurnsOf, MessagesToFewPeersInTurnAreNotSpread) {
    for (size_t i = 0; i < 8; ++i) (void)next_to(i);
    for (size_t i = 0; i < 30; ++i) EXPECT_EQ(next_to(i * 3 % 8), Situation::kAmongOthers) << i;
}

TEST_F(TurnsOf, OneMessageForOneIsAlone) {
    EXPECT_EQ(next_to(0), Situation::kAmongOthers);
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(exchange_with(0), Situation::kAlone);
        EXPECT_TRUE(was_exchange());
    }
    EXPECT_EQ(exchange_with(0, true), Situation::kAmongOthers);
    EXPECT_FALSE(was_exchange());
    EXPECT_EQ(exchange_with(0), Situation::kAlone);
    EXPECT_EQ(exchange_with(1), Situation::kSpread);
    EXPECT_EQ(exchange_with(1), Situation::kAlone);
    // The answers of which two are waited for, though one receive is left.
    hear();
    EXPECT_EQ(exchange_with(0), Situation::kAmongOthers);
}

TEST_F(TurnsOf, OneMessageForOneThatWasThereIsAnExchange) {
    EXPECT_EQ(exchange_with(0), Situation::kAlone);
    EXPECT_EQ(late_exchange_with(0), Situation::kAlone);
    EXPECT_TRUE(was_exchange());
    hear();
    EXPECT_EQ(next_to(0), Situation::kAlone);
    EXPECT_FALSE(was_exchange()) << "the answer to what was waited for";
    hear();
    EXPECT_EQ(late_exchange_with(0), Situation::kAlone);
    EXPECT_FALSE(was_exchange()) << "it is the first behind two";
}

// As where a program answers one peer after the other.
TEST_F(TurnsOf, OneMessageEachIsAloneWhoeverItGoesTo) {
    for (size_t i = 0; i < 6; ++i) {
        hear();
        EXPECT_EQ(next_to(i % 3), Situation::kAlone);
    }
}

TEST_F(TurnsOf, NothingIsAloneBesideOthers) {
    hear();
    EXPECT_EQ(next_to(0, true), Situation::kAmongOthers);
    hear();
    EXPECT_EQ(next_to(1, true), Situation::kSpread);
}

}  // namespace
}  // namespace ucp::test
