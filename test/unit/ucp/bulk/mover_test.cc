// SPDX-License-Identifier: BSD-3-Clause

// Threads that move lent transfers over a device of these tests, which has no room, fails, falls
// silent or loses its link when it is told to.

#include "ucp/bulk/mover.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <list>

#include "ucp/bulk/path.h"
#include "ucs/runtime.h"
#include "uct/base/refusing_endpoint.h"
#include "unit/ucp/cluster.h"

namespace ucp::bulk::test {
namespace {

using namespace std::chrono_literals;

constexpr size_t kSlice = 4096;

/** What the device does; changed by the test while the thread runs. */
struct Device {
    std::atomic<unsigned> room{64};  //!< pieces taken by a chain; 0: none now
    std::atomic<bool> is_silent{false};
    std::atomic<bool> is_broken{false};
    std::atomic<bool> link_up{true};
    std::atomic<unsigned> endpoints{0};
};

class FakeInterface;

class FakeEndpoint final : public uct::RefusingEndpoint {
  public:
    explicit FakeEndpoint(FakeInterface& interface) : interface_(interface) {}
    ~FakeEndpoint() override;

    ssize_t put_chain(std::span<const uct::ChainPiece> pieces, uct::Completion* done) override {
        return post(pieces, done, true);
    }
    ssize_t get_chain(std::span<const uct::ChainPiece> pieces, uct::Completion* done) override {
        return post(pieces, done, false);
    }
    bool is_connected(const uct::RemoteAddress&) const override { return true; }

    struct Posted {
        std::vector<uct::ChainPiece> pieces;
        uct::Completion* done;
        bool is_put;
    };
    std::list<Posted> posted;

  private:
    ssize_t post(std::span<const uct::ChainPiece> pieces, uct::Completion* done, bool is_put);

    FakeInterface& interface_;
};

class FakeInterface final : public uct::Interface {
  public:
    FakeInterface(Device& device, const uct::InterfaceParams& params)
        : device_(device), params_(params) {}

    ucs_status_t get_device_address(std::span<std::byte>) const override { return UCS_OK; }
    bool is_reachable(const uct::RemoteAddress&) const override { return true; }
    ucs_status_t create_endpoint(const uct::RemoteAddress&,
                                 std::unique_ptr<uct::Endpoint>* endpoint) override {
        auto made = std::make_unique<FakeEndpoint>(*this);
        endpoints_.push_back(made.get());
        ++device_.endpoints;
        *endpoint = std::move(made);
        return UCS_OK;
    }
    /** One chain of each endpoint. */
    unsigned progress() override {
        unsigned events = 0;
        if (device_.is_silent) return events;
        for (FakeEndpoint* endpoint : endpoints_) {
            if (endpoint->posted.empty()) continue;
            ++events;
            const FakeEndpoint::Posted chain = endpoint->posted.front();
            endpoint->posted.pop_front();
            if (device_.is_broken) {
                params_.error_handler(params_.error_arg, endpoint, UCS_ERR_CONNECTION_RESET);
                chain.done->complete(UCS_ERR_CONNECTION_RESET);
                continue;
            }
            for (const uct::ChainPiece& piece : chain.pieces) {
                void* const remote = reinterpret_cast<void*>(piece.remote);
                std::memcpy(chain.is_put ? remote : piece.local,
                            chain.is_put ? piece.local : remote, piece.length);
            }
            chain.done->complete(UCS_OK);
        }
        return events;
    }
    bool is_link_up() const override { return device_.link_up; }
    ucs_status_t flush(uct::Completion*) override { return UCS_OK; }

    void remove(FakeEndpoint* endpoint) {
        std::erase(endpoints_, endpoint);
        --device_.endpoints;
    }
    Device& device() { return device_; }

  private:
    Device& device_;
    const uct::InterfaceParams params_;
    std::vector<FakeEndpoint*> endpoints_;
};

FakeEndpoint::~FakeEndpoint() {
    interface_.remove(this);
    for (const Posted& chain : posted) chain.done->complete(UCS_ERR_CANCELED);
}

ssize_t FakeEndpoint::post(std::span<const uct::ChainPiece> pieces, uct::Completion* done,
                           bool is_put) {
    pieces = pieces.first(std::min<size_t>(pieces.size(), interface_.device().room));
    if (pieces.empty()) return 0;
    posted.push_back({{pieces.begin(), pieces.end()}, done, is_put});
    return static_cast<ssize_t>(pieces.size());
}

class FakeDomain final : public uct::MemoryDomain {
  public:
    explicit FakeDomain(Device& device) : device_(device) {}

    const uct::MemoryDomainAttributes& attributes() const override { return attributes_; }
    ucs_status_t register_memory(void*, size_t, uct::MemoryHandle**) override { return UCS_OK; }
    void deregister_memory(uct::MemoryHandle*) override {}
    void pack_remote_key(const uct::MemoryHandle*, std::span<std::byte>) const override {}
    ucs_status_t unpack_remote_key(std::span<const std::byte>, uct::RemoteKey*) override {
        return UCS_OK;
    }
    ucs_status_t open_interface(std::string_view, const uct::InterfaceParams& params,
                                std::unique_ptr<uct::Interface>* interface) override {
        *interface = std::make_unique<FakeInterface>(device_, params);
        return UCS_OK;
    }

  private:
    Device& device_;
    const uct::MemoryDomainAttributes attributes_;
};

/** Two devices with a thread and a strand each, and a transfer that they are lent. */
class Movers : public testing::Test {
  protected:
    Movers()
        : cluster_(1),
          returns_(cluster_.inner(0)),
          here_(ucp::test::pattern(kLength, 1)),
          there_(kLength) {
        for (size_t index = 0; index < 2; ++index) {
            MoverRules rules;
            rules.schedule = {.slice = kSlice, .window = 16 * kSlice, .chain = 8};
            rules.stall_timeout = 20ms;
            rules.max_retries = 3;
            const Mover::Params params{
                *ucs::runtime().clock, returns_, rules, counters_, {}, index, 1};
            EXPECT_EQ(Mover::start(params, domains_[index], "fake", &movers_[index]), UCS_OK);
            EXPECT_EQ(movers_[index]->make(&strands_[index]), UCS_OK);
        }
    }
    ~Movers() override {
        for (const auto& strand : strands_) strand->mover.close(*strand);
        for (auto& mover : movers_) mover.reset();
        for (const Device& device : devices_) EXPECT_EQ(device.endpoints, 0u);
    }

    void begin(size_t index) { movers_[index]->begin(*strands_[index], crew_, 0, 1e9); }
    void lend(Direction direction = Direction::kPut) {
        const SliceRules slices{.slice = kSlice, .fragment = 0};
        piece_ = {here_.data(), reinterpret_cast<uintptr_t>(there_.data()), kLength, nullptr,
                  nullptr};
        job_.emplace(std::span<const Piece>(&piece_, 1), slices);
        load_.emplace(*job_, crew_, direction, job_->work.pieces(), slices);
        load_->grips = {{Grip{nullptr, 0}}};
        job_->work.lend(load_->work);
        {
            std::lock_guard lock(shard_.mutex);
            crew_.loads.push_back(*load_);
            crew_.has_work = true;
        }
        for (const auto& mover : movers_) mover->wake();
    }
    /** Until there are so many. */
    std::vector<Return> returned(size_t count) {
        std::vector<Return> all;
        const auto limit = std::chrono::steady_clock::now() + 60s;
        while (all.size() < count && std::chrono::steady_clock::now() < limit) {
            for (Return& entry : returns_.take()) all.push_back(std::move(entry));
            std::this_thread::yield();
        }
        EXPECT_EQ(all.size(), count);
        all.resize(count);
        return all;
    }
    void expect_done(const Return& entry) {
        EXPECT_EQ(entry.kind, Return::Kind::kLoad);
        EXPECT_EQ(entry.load, &*load_);
        EXPECT_EQ(load_->work.status(), UCS_OK);
        EXPECT_TRUE(load_->work.is_over());
        EXPECT_TRUE(here_ == there_);
    }

    static constexpr size_t kLength = 1 << 20;

    ucp::test::Cluster cluster_;
    Returns returns_;
    MoverCounters counters_;
    std::array<Device, 2> devices_;
    std::array<FakeDomain, 2> domains_{FakeDomain(devices_[0]), FakeDomain(devices_[1])};
    Shard shard_;
    Crew crew_{shard_};
    std::vector<uint8_t> here_, there_;
    Piece piece_{};
    std::optional<Job> job_;
    std::optional<Load> load_;
    std::array<std::unique_ptr<Mover>, 2> movers_;
    std::array<std::shared_ptr<MoverStrand>, 2> strands_;
};

TEST_F(Movers, CarryWhatTheyAreLent) {
    begin(0);
    begin(1);
    for (const Direction direction : {Direction::kPut, Direction::kGet}) {
        lend(direction);
        expect_done(returned(1)[0]);
    }
    EXPECT_EQ(counters_.bytes, 2 * kLength);
    EXPECT_GE(counters_.chains, 2 * kLength / kSlice / 8);
}

TEST_F(Movers, WhatADeviceHasNoRoomForGoesBack) {
    devices_[0].room = 3;
    devices_[1].room = 0;
    begin(0);
    begin(1);
    lend();
    expect_done(returned(1)[0]);
    EXPECT_EQ(counters_.bytes, kLength);
    EXPECT_GE(counters_.chains, kLength / kSlice / 3);
}

TEST_F(Movers, AStrandThatFailsIsReportedBeforeTheEndOfWhatItCarried) {
    devices_[0].is_broken = true;
    begin(0);
    lend();
    // The last one: what waits comes back.
    auto entries = returned(2);
    EXPECT_EQ(entries[0].kind, Return::Kind::kFailed);
    EXPECT_EQ(entries[0].status, UCS_ERR_CONNECTION_RESET);
    ASSERT_FALSE(entries[0].jobs.empty());
    EXPECT_EQ(entries[0].jobs[0], &*job_);
    EXPECT_EQ(entries[1].kind, Return::Kind::kLoad);
    EXPECT_EQ(load_->work.status(), UCS_OK);
    EXPECT_EQ(load_->work.bytes_waiting(), kLength);
    EXPECT_EQ(devices_[0].endpoints, 0u);
}

TEST_F(Movers, AnotherStrandCarriesWhatAFailedOneHad) {
    devices_[0].is_silent = true;
    devices_[1].room = 1;
    begin(0);
    lend();
    while (counters_.chains == 0) std::this_thread::yield();
    begin(1);
    devices_[0].is_broken = true;
    devices_[0].is_silent = false;
    auto entries = returned(2);
    EXPECT_EQ(entries[0].kind, Return::Kind::kFailed);
    EXPECT_EQ(entries[0].strand, strands_[0]);
    expect_done(entries[1]);
}

TEST_F(Movers, ASilentStrandHasFailedIfOthersWentOn) {
    devices_[0].is_silent = true;
    begin(0);
    lend();
    // Alone it may be that nobody gets anything done.
    while (counters_.chains == 0) std::this_thread::yield();
    begin(1);
    auto entries = returned(2);
    EXPECT_EQ(entries[0].kind, Return::Kind::kFailed);
    EXPECT_EQ(entries[0].status, UCS_ERR_TIMED_OUT);
    EXPECT_EQ(entries[0].strand, strands_[0]);
    expect_done(entries[1]);
}

TEST_F(Movers, AStrandWithoutLinkHasFailedIfAnotherHasOne) {
    devices_[0].is_silent = true;
    begin(0);
    lend();
    while (counters_.chains == 0) std::this_thread::yield();
    devices_[0].link_up = false;
    begin(1);
    auto entries = returned(2);
    EXPECT_EQ(entries[0].kind, Return::Kind::kFailed);
    EXPECT_EQ(entries[0].strand, strands_[0]);
    expect_done(entries[1]);
}

TEST_F(Movers, WhatIsUnderWayEndsWhenAStrandIsToldToStop) {
    devices_[0].is_silent = true;
    begin(0);
    lend();
    while (counters_.chains < 2) std::this_thread::yield();
    movers_[0]->stop(*strands_[0]);
    EXPECT_FALSE(returns_.any());
    devices_[0].is_silent = false;
    auto entries = returned(2);
    EXPECT_EQ(entries[0].kind, Return::Kind::kLoad);
    EXPECT_EQ(entries[1].kind, Return::Kind::kStopped);
    EXPECT_EQ(load_->work.bytes_waiting(), kLength - counters_.bytes);
}

TEST_F(Movers, AStrandMayBeClosedWithChainsUnderWay) {
    devices_[0].is_silent = true;
    begin(0);
    lend(Direction::kGet);
    while (counters_.chains < 2) std::this_thread::yield();
    movers_[0]->close(*strands_[0]);
    auto entries = returned(2);
    EXPECT_EQ(entries[0].kind, Return::Kind::kFailed);
    // Gets of a strand that is destroyed write nothing any more.
    EXPECT_TRUE(entries[0].jobs.empty());
    EXPECT_EQ(entries[1].kind, Return::Kind::kLoad);
    EXPECT_EQ(load_->work.bytes_waiting(), kLength);
}

TEST_F(Movers, SlicesThatFailTooOftenEndTheTransfer) {
    // Each new strand fails with the same slices.
    devices_[0].is_broken = true;
    begin(0);
    lend();
    unsigned rounds = 0;
    for (; rounds < 10; ++rounds) {
        returned(2);
        if (load_->work.status() != UCS_OK) break;
        movers_[0]->close(*strands_[0]);
        ASSERT_EQ(movers_[0]->make(&strands_[0]), UCS_OK);
        {
            std::lock_guard lock(shard_.mutex);
            crew_.loads.push_back(*load_);
            crew_.has_work = true;
        }
        begin(0);
    }
    EXPECT_EQ(rounds, 3u);
    EXPECT_EQ(load_->work.status(), UCS_ERR_CONNECTION_RESET);
}

}  // namespace
}  // namespace ucp::bulk::test
