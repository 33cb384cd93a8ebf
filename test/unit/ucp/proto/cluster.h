// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/mock_transport.h"
#include "ucp/api/ucp.h"
#include "ucp/base/handles.h"
#include "ucp/dt/buffer.h"
#include "ucp/worker/worker.h"
#include "ucs/config/source.h"
#include "ucs/sys/time.h"
#include "unit/ucp/pattern.h"

// Two workers over mock transports, for tests of the protocols.
namespace ucp::test {

using Bytes = std::vector<uint8_t>;

struct Settings {
    uct::mock::Config fabric;
    RndvScheme scheme = RndvScheme::kAuto;
    std::optional<size_t> rndv_threshold = 4096;
    std::optional<size_t> zcopy_threshold;
    LaneMode lanes = LaneMode::kScalable;
    AtomicMode atomics = AtomicMode::kGuess;
    bool loopback = false;  // one worker, which sends to itself
};

class Node {
  public:
    Node(const Settings& settings, uct::Component& component, const ucs::Clock& clock,
         uint64_t seed)
        : component_(&component) {
        Config config;
        std::string error;
        EXPECT_EQ(kConfigTable.load(ucs::config::Source(), config, error), UCS_OK) << error;
        config.rndv_scheme = settings.scheme;
        if (settings.rndv_threshold)
            config.rndv_threshold.emplace().bytes = *settings.rndv_threshold;
        if (settings.zcopy_threshold)
            config.zcopy_threshold.emplace().bytes = *settings.zcopy_threshold;
        config.lanes = settings.lanes;
        config.atomics = settings.atomics;
        ContextSeams seams;
        seams.clock = &clock;
        seams.virtual_time = true;
        seams.seed = seed;
        seams.components = std::span<uct::Component* const>(&component_, 1);
        ucp_params_t params{};
        params.field_mask = UCP_PARAM_FIELD_FEATURES;
        params.features = UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_AMO32 |
                          UCP_FEATURE_AMO64 | UCP_FEATURE_AM;
        EXPECT_EQ(Context::create(params, config, seams, &context_), UCS_OK);
        EXPECT_EQ(Worker::create(*context_, ucp_worker_params_t{}, &worker_), UCS_OK);
    }

    Worker& worker() { return *worker_; }
    Context& context() { return *context_; }
    ucp_worker_h handle() { return wrap(worker_.get()); }

    ucp_ep_h connect(Node& to) {
        ucp_ep_params_t params{};
        params.field_mask =
            UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
        params.address = reinterpret_cast<const ucp_address_t*>(to.worker().address().data());
        params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
        Endpoint* endpoint = nullptr;
        EXPECT_EQ(worker_->create_endpoint(params, &endpoint), UCS_OK);
        return wrap(endpoint);
    }
    void destroy_worker() { worker_.reset(); }

  private:
    uct::Component* component_;
    std::unique_ptr<Context> context_;
    std::unique_ptr<Worker> worker_;
};

class Cluster {
  public:
    explicit Cluster(const Settings& settings = {})
        : fabric_(with_clock(settings.fabric)), a(settings, fabric_.component(), clock_, 11) {
        if (!settings.loopback) b_.emplace(settings, fabric_.component(), clock_, 22);
        ep = a.connect(b());
        back = settings.loopback ? ep : b().connect(a);
    }

    Node& b() { return b_ ? *b_ : a; }
    Endpoint& endpoint() { return unwrap(ep); }
    uct::mock::Fabric& fabric() { return fabric_; }
    ucs::VirtualClock& clock() { return clock_; }

    void step() {
        clock_.advance(std::chrono::microseconds(1));
        a.worker().progress();
        if (b_) b_->worker().progress();
    }
    // Progress until the condition holds. @return false if it does not within many steps
    bool until(const std::function<bool()>& condition, unsigned steps = 200000) {
        for (; !condition(); --steps) {
            if (steps == 0) return false;
            step();
        }
        return true;
    }
    // Wait for an operation and give its result; the request is freed.
    ucs_status_t wait(ucs_status_ptr_t operation) {
        if (!UCS_PTR_IS_PTR(operation)) return UCS_PTR_RAW_STATUS(operation);
        Request& request = Request::from_handle(operation);
        if (!until([&] { return request.is_finished(); })) return UCS_ERR_TIMED_OUT;
        const ucs_status_t status = request.status;
        request.pool->free(request);
        return status;
    }
    ucs_status_t flush() {
        const ucp_request_param_t param{};
        Request* request =
            a.worker().requests().begin(OpParams(&param), Request::CallbackKind::kSend);
        make_flush_of(*request);
        return wait(endpoint().submit(*request, OpParams(&param)));
    }
    void settle() {
        EXPECT_TRUE(until([&] { return fabric_.idle(); }));
        for (int i = 0; i < 100; ++i) step();
    }

  private:
    uct::mock::Config with_clock(uct::mock::Config config) {
        config.time = [this] {
            return static_cast<uint64_t>(clock_.now().time_since_epoch().count() / 1000);
        };
        return config;
    }
    void make_flush_of(Request& request);

    ucs::VirtualClock clock_;
    uct::mock::Fabric fabric_;

  public:
    Node a;

  private:
    std::optional<Node> b_;

  public:
    ucp_ep_h ep;    // from a to b
    ucp_ep_h back;  // from b to a
};

// A buffer in one of the datatype classes, and the bytes that it stands for.
class TypedBuffer {
  public:
    enum class Kind { kContig, kIov, kGeneric };

    TypedBuffer(Kind kind, Bytes bytes) : bytes_(std::move(bytes)), kind_(kind) {
        std::mt19937 random(static_cast<unsigned>(bytes_.size()));
        for (size_t offset = 0; offset < bytes_.size();) {
            const size_t most = std::max<size_t>(bytes_.size() / 5, 3);
            const size_t length = std::min<size_t>(random() % most, bytes_.size() - offset);
            iov_.push_back({bytes_.data() + offset, length});
            offset += length;
        }
        if (kind == Kind::kGeneric) {
            const ucp_generic_dt_ops_t ops = {start_pack, start_unpack, size, pack, unpack, finish};
            EXPECT_EQ(ucp_dt_create_generic(&ops, this, &type_), UCS_OK);
        } else {
            type_ = kind == Kind::kIov ? ucp_dt_make_iov() : ucp_dt_make_contig(1);
        }
    }
    ~TypedBuffer() {
        EXPECT_EQ(states_, 0);
        ucp_dt_destroy(type_);
    }
    TypedBuffer(const TypedBuffer&) = delete;
    TypedBuffer& operator=(const TypedBuffer&) = delete;

    void* buffer() { return kind_ == Kind::kIov ? static_cast<void*>(iov_.data()) : bytes_.data(); }
    size_t count() const { return kind_ == Kind::kIov ? iov_.size() : bytes_.size(); }
    ucp_datatype_t type() const { return type_; }
    const Bytes& bytes() const { return bytes_; }

  private:
    static void* start_pack(void* context, const void*, size_t) {
        ++static_cast<TypedBuffer*>(context)->states_;
        return context;
    }
    static void* start_unpack(void* context, void*, size_t) {
        return start_pack(context, nullptr, 0);
    }
    static size_t size(void* state) { return static_cast<TypedBuffer*>(state)->bytes_.size(); }
    static size_t pack(void* state, size_t offset, void* to, size_t room) {
        const Bytes& bytes = static_cast<TypedBuffer*>(state)->bytes_;
        const size_t length = std::min(room, bytes.size() - offset);
        std::memcpy(to, bytes.data() + offset, length);
        return length;
    }
    static ucs_status_t unpack(void* state, size_t offset, const void* from, size_t length) {
        EXPECT_EQ(offset % kPieceAlignment, 0u) << "a piece ends within an element";
        std::memcpy(static_cast<TypedBuffer*>(state)->bytes_.data() + offset, from, length);
        return UCS_OK;
    }
    static void finish(void* state) { --static_cast<TypedBuffer*>(state)->states_; }

    Bytes bytes_;
    std::vector<ucp_dt_iov_t> iov_;
    Kind kind_;
    ucp_datatype_t type_ = 0;
    int states_ = 0;
};

}  // namespace ucp::test
