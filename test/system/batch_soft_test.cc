// SPDX-License-Identifier: BSD-3-Clause

// Batches over the emulated adapter, and past it.

#include <algorithm>
#include <cstring>

#include "system/soft_world.h"
#include "ucp/api/ucpx.h"
#include "uct/self/self_interface.h"
#include "uct/sm/component.h"
#include "unit/ucp/region.h"

namespace ucp::test {
namespace {

ucs_status_ptr_t put_single(ucp_ep_h endpoint, const ucpx_piece_t& piece) {
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_MEMH;
    params.memh = piece.memh;
    return ucp_put_nbx(endpoint, piece.local_addr, piece.length, piece.remote_addr, piece.rkey,
                       &params);
}

// Memory of one worker, and of another that has keys to it.
class Memories {
  public:
    Memories(ucp_context_h here, ucp_context_h there, ucp_ep_h endpoint, size_t length)
        : local(here, length), remote(there, length) {
        remote.open(endpoint);
        local.fill(7);
    }

    // Pieces of equal length, the first here being the last there.
    std::vector<ucpx_piece_t> pieces(size_t count, size_t offset = 0) {
        const size_t length = (local.bytes.size() - offset) / count;
        std::vector<ucpx_piece_t> pieces;
        for (size_t i = 0; i < count; ++i) {
            pieces.push_back({local.bytes.data() + offset + i * length,
                              remote.address(offset + (count - 1 - i) * length), length,
                              local.memory, remote.key});
        }
        return pieces;
    }

    Region local, remote;
};

ucs_status_ptr_t start(ucp_ep_h endpoint, bool is_put, const std::vector<ucpx_piece_t>& pieces,
                       std::optional<uint64_t> notification = {}) {
    return start_batch(endpoint, is_put, pieces, notification);
}

SoftWorld::Options quiet_world(const softhca::FaultPlan& faults = {}) {
    SoftWorld::Options options;
    options.traffic.workers = 2;
    options.faults = faults;
    return options;
}

TEST(SoftBatch, NotificationsOvertakeNoByteOnALossyFabric) {
    softhca::FaultPlan faults;
    faults.drop = 0.02;
    faults.delay = 0.2;
    faults.delay_ns = 20000;
    SoftWorld world(quiet_world(faults));
    Cluster& cluster = world.cluster;
    constexpr size_t kBatches = 8;
    constexpr size_t kPieces = 32;
    std::vector<std::unique_ptr<Memories>> memories;
    std::vector<std::vector<ucpx_piece_t>> pieces;
    for (size_t i = 0; i < kBatches; ++i) {
        memories.push_back(std::make_unique<Memories>(cluster.context(0), cluster.context(1),
                                                      cluster.endpoint(0, 1), kPieces * 8192));
        pieces.push_back(memories.back()->pieces(kPieces));
    }
    struct Seen {
        const std::vector<std::vector<ucpx_piece_t>>& pieces;
        unsigned count = 0;
    } seen{pieces};
    const auto on_notified = [](void* arg, uint64_t, uint64_t value) {
        auto& seen = *static_cast<Seen*>(arg);
        ++seen.count;
        for (const ucpx_piece_t& piece : seen.pieces[value]) ASSERT_TRUE(is_equal(piece));
    };
    ASSERT_EQ(ucpx_worker_set_notify_handler(cluster.worker(1), on_notified, &seen), UCS_OK);
    std::vector<ucs_status_ptr_t> requests;
    for (size_t i = 0; i < kBatches; ++i) {
        requests.push_back(start(cluster.endpoint(0, 1), true, pieces[i], i));
    }
    for (const ucs_status_ptr_t request : requests) EXPECT_EQ(cluster.finish(request), UCS_OK);
    EXPECT_TRUE(cluster.until([&] { return seen.count == kBatches; }));
}

// The peer's memory goes while its key is in use: whichever piece meets that first, the batch ends
// with the error, once.
TEST(SoftBatch, ARefusedPieceAtAnyPositionEndsItWithTheError) {
    constexpr size_t kPieces = 16;
    for (size_t position = 0; position < kPieces; ++position) {
        SCOPED_TRACE(position);
        SoftWorld world(quiet_world());
        Cluster& cluster = world.cluster;
        const ucp_ep_h endpoint = cluster.endpoint(0, 1);
        auto whole = std::make_unique<Memories>(cluster.context(0), cluster.context(1), endpoint,
                                                kPieces * 4096);
        auto gone =
            std::make_unique<Memories>(cluster.context(0), cluster.context(1), endpoint, 8192);
        std::vector<ucpx_piece_t> pieces = whole->pieces(kPieces);
        pieces[position].remote_addr = gone->remote.address();
        pieces[position].rkey = gone->remote.key;
        gone->remote.unmap();
        unsigned notified = 0;
        const auto on_notified = [](void* arg, uint64_t, uint64_t) {
            ++*static_cast<unsigned*>(arg);
        };
        ASSERT_EQ(ucpx_worker_set_notify_handler(cluster.worker(1), on_notified, &notified),
                  UCS_OK);
        EXPECT_NE(cluster.finish(start(endpoint, true, pieces, 1)), UCS_OK);
        cluster.steps(100);
        EXPECT_EQ(notified, 0u);
    }
}

// --- what it costs, in doorbells and by the adapter's model of time

class BatchCost : public testing::Test {
  protected:
    static constexpr size_t kPieces = 1000;

    static SoftWorld::Options options() {
        SoftWorld::Options options = quiet_world();
        options.tick = ucs::Duration(50);
        return options;
    }
    struct Cost {
        uint64_t doorbells;
        double time;  // ns, modelled
    };
    template <typename Function>
    Cost measure(Function function) {
        const uint64_t before = world.wire.fabric().counters(0).doorbells;
        const ucs::Time began = cluster.clock.now();
        function();
        return {world.wire.fabric().counters(0).doorbells - before,
                static_cast<double>((cluster.clock.now() - began).count())};
    }
    Cost batch(const std::vector<ucpx_piece_t>& pieces) {
        return measure([&] { EXPECT_EQ(cluster.finish(start(endpoint(), true, pieces)), UCS_OK); });
    }
    Cost singles(const std::vector<ucpx_piece_t>& pieces, size_t window) {
        return measure([&] {
            std::vector<ucs_status_ptr_t> requests;
            for (const ucpx_piece_t& piece : pieces) {
                requests.push_back(put_single(endpoint(), piece));
                if (requests.size() < window) continue;
                for (ucs_status_ptr_t& request : requests) cluster.finish(request);
                requests.clear();
            }
            for (ucs_status_ptr_t& request : requests) cluster.finish(request);
            EXPECT_EQ(cluster.finish(ucp_ep_flush_nbx(endpoint(), &kNothing)), UCS_OK);
        });
    }
    // The same with the first node's processor in the time: its calls follow each other, each as
    // long as the model says. `post` starts operations, `is_over` ends the wait for them.
    template <typename Post, typename IsOver>
    double with_processor(Post post, IsOver is_over) {
        world.wire.fabric().take_cpu_time(0);
        const ucs::Time began = cluster.clock.now();
        post();
        while (!is_over()) work();
        return static_cast<double>((cluster.clock.now() - began).count());
    }
    void work() {
        for (size_t index : {0, 1}) ucp_worker_progress(cluster.worker(index));
        pass();
    }
    // What the calls since the last one cost.
    void pass() {
        const uint64_t cost = world.wire.fabric().take_cpu_time(0);
        world.wire.fabric().take_cpu_time(1);
        cluster.clock.advance(ucs::Duration(std::max<uint64_t>(cost, 1)));
        world.wire.advance_to(cluster.clock.now());
    }
    static bool is_over(ucs_status_ptr_t request) {
        return !UCS_PTR_IS_PTR(request) || ucp_request_is_completed(request) != 0;
    }
    ucp_ep_h endpoint() { return cluster.endpoint(0, 1); }
    Memories& memories(size_t length) {
        if (memories_ == nullptr) {
            memories_ = std::make_unique<Memories>(cluster.context(0), cluster.context(1),
                                                   endpoint(), length);
            // The way to the peer is there, and its memory known to the adapter's model.
            batch(memories_->pieces(1));
        }
        return *memories_;
    }

    SoftWorld world{options()};
    Cluster& cluster = world.cluster;

  private:
    std::unique_ptr<Memories> memories_;
};

TEST_F(BatchCost, PagesAreAsFastAsOneContiguousTransfer) {
    Memories& all = memories(kPieces << 16);
    const Cost whole = batch(all.pieces(1));
    const Cost pages = batch(all.pieces(kPieces));
    EXPECT_GE(whole.time / pages.time, 0.95);
    EXPECT_LE(pages.doorbells * 16, kPieces);
}

TEST_F(BatchCost, SmallPiecesGainOverSinglePuts) {
    Memories& all = memories(kPieces << 12);
    const Cost together = batch(all.pieces(kPieces));
    const Cost awaited = singles(all.pieces(kPieces), 1);
    const Cost pipelined = singles(all.pieces(kPieces), kPieces);
    EXPECT_GE(awaited.time / together.time, 5);
    // The wire is what limits both. The time of posting, which a batch saves, is not in this clock.
    EXPECT_GE(pipelined.time / together.time, 0.95);
    EXPECT_LE(together.doorbells * 16, pipelined.doorbells);
}

// Single puts leave one by one while others are posted. A batch's first chains are so short that it
// loses nothing by that.
TEST_F(BatchCost, IsNoMoreThanThatOfPipelinedPuts) {
    const double poll = softhca::Model().cqe_poll;  // the end is known to within
    const auto doorbells = [&] { return world.wire.fabric().counters(0).doorbells; };
    for (const size_t length : {256, 4096, 65536}) {
        SCOPED_TRACE(length);
        Memories all(cluster.context(0), cluster.context(1), endpoint(), kPieces * length);
        const auto pieces = all.pieces(kPieces);
        batch(pieces);  // as in memories()
        ucs_status_ptr_t request = nullptr;
        const uint64_t first = doorbells();
        const double together = with_processor([&] { request = start(endpoint(), true, pieces); },
                                               [&] { return is_over(request); });
        EXPECT_EQ(cluster.finish(request), UCS_OK);
        const uint64_t second = doorbells();
        std::vector<ucs_status_ptr_t> requests;
        const double pipelined = with_processor(
            [&] {
                for (const ucpx_piece_t& piece : pieces) {
                    requests.push_back(put_single(endpoint(), piece));
                    if (requests.size() % 16 == 0) work();
                    pass();
                }
                requests.push_back(ucp_ep_flush_nbx(endpoint(), &kNothing));
            },
            [&] { return is_over(requests.back()); });
        for (const ucs_status_ptr_t each : requests) EXPECT_EQ(cluster.finish(each), UCS_OK);
        EXPECT_LE(together, pipelined + poll);
        EXPECT_LE((second - first) * 16, doorbells() - second);
    }
}

// --- past the adapter

// Two workers of one host, or one worker, each with an adapter beside the local transports.
class LocalPath : public testing::TestWithParam<bool> {
  protected:
    LocalPath() : wire_(2, softhca::Model(), {}, {}) {
        uct::Component* const components[] = {&uct::self::component(), &uct::sm::component(),
                                              &wire_.component()};
        const size_t count = GetParam() ? 1 : 2;
        for (size_t index = 0; index < count; ++index) {
            wire_.enter(index);
            ucp_params_t params{};
            params.field_mask = UCP_PARAM_FIELD_FEATURES;
            params.features = kAllFeatures;
            ContextSeams seams;
            seams.components = components;
            std::unique_ptr<Context> context;
            EXPECT_EQ(Context::create(params, quiet_config(), seams, &context), UCS_OK);
            contexts_.push_back(std::move(context));
            ucp_worker_params_t worker_params{};
            ucp_worker_h worker = nullptr;
            EXPECT_EQ(ucp_worker_create(wrap(contexts_.back().get()), &worker_params, &worker),
                      UCS_OK);
            workers_.push_back(worker);
        }
        ucp_address_t* address = nullptr;
        size_t length = 0;
        EXPECT_EQ(ucp_worker_get_address(workers_.back(), &address, &length), UCS_OK);
        ucp_ep_params_t params{};
        params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        params.address = address;
        EXPECT_EQ(ucp_ep_create(workers_.front(), &params, &endpoint_), UCS_OK);
        ucp_worker_release_address(workers_.back(), address);
    }
    ~LocalPath() override {
        for (const ucp_worker_h worker : workers_) ucp_worker_destroy(worker);
    }

    ucs_status_t finish(ucs_status_ptr_t operation) {
        if (!UCS_PTR_IS_PTR(operation)) return UCS_PTR_RAW_STATUS(operation);
        while (ucp_request_is_completed(operation) == 0) step();
        const ucs_status_t status = ucp_request_check_status(operation);
        ucp_request_free(operation);
        return status;
    }
    void step() {
        for (const ucp_worker_h worker : workers_) ucp_worker_progress(worker);
    }
    ucp_context_h context(size_t index) { return wrap(contexts_[index % contexts_.size()].get()); }

    SoftWire wire_;
    std::vector<std::unique_ptr<Context>> contexts_;
    std::vector<ucp_worker_h> workers_;
    ucp_ep_h endpoint_ = nullptr;
};

TEST_P(LocalPath, NoAdapterIsUsedForAPeerOfThisHost) {
    constexpr size_t kPieces = 500;
    unsigned notified = 0;
    const auto on_notified = [](void* arg, uint64_t, uint64_t) { ++*static_cast<unsigned*>(arg); };
    ASSERT_EQ(ucpx_worker_set_notify_handler(workers_.back(), on_notified, &notified), UCS_OK);
    {
        Memories memories(context(0), context(1), endpoint_, kPieces * 4000);
        const auto pieces = memories.pieces(kPieces);
        const softhca::Counters before = wire_.fabric().total();
        ASSERT_EQ(finish(start(endpoint_, true, pieces, 1)), UCS_OK);
        EXPECT_TRUE(std::ranges::all_of(pieces, is_equal));
        while (notified == 0) step();
        std::fill(memories.local.bytes.begin(), memories.local.bytes.end(), 0);
        ASSERT_EQ(finish(start(endpoint_, false, pieces, 2)), UCS_OK);
        EXPECT_TRUE(std::ranges::all_of(pieces, is_equal));
        EXPECT_NE(memories.local.bytes, std::vector<uint8_t>(memories.local.bytes.size()));
        while (notified == 1) step();
        const softhca::Counters after = wire_.fabric().total();
        EXPECT_EQ(after.wqes, before.wqes);
        EXPECT_EQ(after.doorbells, before.doorbells);
    }
}

INSTANTIATE_TEST_SUITE_P(Peers, LocalPath, testing::Bool(), [](const auto& info) {
    return std::string(info.param ? "same_worker" : "same_host");
});

}  // namespace
}  // namespace ucp::test
