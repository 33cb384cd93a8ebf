// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/mock_transport.h"
#include "ucp/api/ucp.h"
#include "ucp/api/ucpx.h"
#include "ucp/base/handles.h"
#include "ucp/context/context.h"
#include "ucp/worker/worker.h"
#include "ucs/sys/time.h"
#include "unit/ucp/no_options.h"
#include "unit/ucp/pattern.h"

namespace ucp::test {

inline constexpr uint64_t kAllFeatures =
    UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64 | UCP_FEATURE_AM;

// The defaults, with the ranking of endpoints so seldom that only requests move lanes, and with
// lanes that go when they are given back, so that tests can count.
inline Config quiet_config() {
    Config config;
    std::string error;
    EXPECT_EQ(kConfigTable.load(ucs::config::Source(), config, error), UCS_OK) << error;
    config.switch_interval = std::chrono::hours(1);
    config.min_residence = ucs::Duration(0);
    config.lane_keep = ucs::Duration(0);
    return config;
}

// The same, and what operations cost is learned.
inline Config learning_config() {
    Config config = quiet_config();
    config.costs = CostSource::kLearned;
    return config;
}

// What carries the messages of a cluster, if not its mock fabric.
class Wire {
  public:
    virtual ~Wire() = default;
    virtual uct::Component& component() = 0;
    // The worker of that index is about to be made.
    virtual void enter(size_t index) = 0;
    // The worker of that index has run.
    virtual void leave(size_t index) = 0;
    virtual void advance_to(ucs::Time now) = 0;
    virtual void kill(size_t index) = 0;
    // Dedicated lanes that the worker has now, as the transport counts them.
    virtual size_t dedicated_endpoints(size_t index) const = 0;
};

// Workers of one process on a mock fabric or a wire, driven in turn on a virtual clock.
class Cluster {
  public:
    struct Options {
        Wire* wire = nullptr;  // outlives the cluster; null: the mock fabric
        uct::mock::Config fabric;
        Config config = quiet_config();
        uint64_t seed = 1;
        size_t request_size = 0;
        ucs::Duration tick = std::chrono::microseconds(1);  // of the clock, for each step()
        ucs_thread_mode_t thread_mode = UCS_THREAD_MODE_SINGLE;
        // So many contexts, the first ones, are of one process; each other is one by itself.
        size_t in_one_process = 0;
    };

    explicit Cluster(size_t size) : Cluster(size, Options()) {}
    Cluster(size_t size, const Options& options)
        : fabric(options.fabric),
          wire_(options.wire),
          tick_(options.tick),
          components_{wire_ != nullptr ? &wire_->component() : &fabric.component()} {
        for (size_t index = 0; index < size; ++index) add(options, index);
        endpoints_.resize(size, std::vector<ucp_ep_h>(size));
    }
    ~Cluster() {
        for (size_t index = 0; index < workers_.size(); ++index) destroy(index);
    }

    size_t size() const { return workers_.size(); }
    ucp_worker_h worker(size_t index) const { return workers_[index]; }
    ucp_context_h context(size_t index) const { return wrap(contexts_[index].get()); }
    Worker& inner(size_t index) const { return unwrap(workers_[index]); }
    uint64_t uuid(size_t index) const { return inner(index).uuid(); }

    // A new endpoint, each time.
    ucp_ep_h connect(size_t from, size_t to, ucp_ep_params_t params = {}) {
        ucp_address_t* address = nullptr;
        size_t length = 0;
        EXPECT_EQ(ucp_worker_get_address(workers_[to], &address, &length), UCS_OK);
        params.field_mask |= UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        params.address = address;
        ucp_ep_h endpoint = nullptr;
        EXPECT_EQ(ucp_ep_create(workers_[from], &params, &endpoint), UCS_OK);
        ucp_worker_release_address(workers_[to], address);
        return endpoint;
    }
    // The endpoint of that pair, made at first use.
    ucp_ep_h endpoint(size_t from, size_t to) {
        ucp_ep_h& endpoint = endpoints_[from][to];
        if (endpoint == nullptr) endpoint = connect(from, to);
        return endpoint;
    }
    void forget(size_t from, size_t to) { endpoints_[from][to] = nullptr; }

    // One round of progress of every worker. @return events
    unsigned step() {
        clock.advance(tick_);
        if (wire_ != nullptr) wire_->advance_to(clock.now());
        unsigned events = 0;
        for (size_t index = 0; index < workers_.size(); ++index) {
            if (workers_[index] == nullptr || index == still_) continue;
            events += ucp_worker_progress(workers_[index]);
            if (wire_ != nullptr) wire_->leave(index);
        }
        return events;
    }
    void steps(unsigned count) {
        while (count-- != 0) step();
    }
    bool until(const std::function<bool()>& condition, unsigned limit = 200000) {
        for (unsigned count = 0; !condition(); ++count) {
            if (count == limit) return false;
            step();
        }
        return true;
    }
    // Wait for an operation and give its request back.
    ucs_status_t finish(ucs_status_ptr_t operation) {
        if (!UCS_PTR_IS_PTR(operation)) return UCS_PTR_RAW_STATUS(operation);
        if (!until([&] { return ucp_request_check_status(operation) != UCS_INPROGRESS; })) {
            ADD_FAILURE() << "an operation hangs";
            return UCS_ERR_TIMED_OUT;
        }
        const ucs_status_t status = ucp_request_check_status(operation);
        ucp_request_free(operation);
        return status;
    }

    void destroy(size_t index) {
        if (workers_[index] == nullptr) return;
        const ucp_worker_h worker = std::exchange(workers_[index], nullptr);
        ucp_worker_destroy(worker);
    }
    // The worker stops, with all that it was about to send.
    void kill(size_t index) {
        if (wire_ != nullptr) {
            wire_->kill(index);
        } else {
            fabric.kill(uuid(index));
        }
        killed().push_back(std::exchange(workers_[index], nullptr));
    }
    // From now on the worker lives, but its program never calls it.
    void hold_still(size_t index) { still_ = index; }
    size_t dedicated_endpoints(size_t index) const {
        return wire_ != nullptr ? wire_->dedicated_endpoints(index)
                                : fabric.dedicated_endpoints(uuid(index));
    }

    ucpx_lane_state_t lane_state(ucp_ep_h endpoint) {
        ucpx_ep_attr_t attr{};
        attr.field_mask = UCPX_EP_ATTR_FIELD_STATE;
        EXPECT_EQ(ucpx_ep_query(endpoint, &attr), UCS_OK);
        return attr.state;
    }
    ucpx_worker_attr_t counters(size_t index) {
        ucpx_worker_attr_t attr{};
        attr.field_mask = UCPX_WORKER_ATTR_FIELD_SLOTS | UCPX_WORKER_ATTR_FIELD_SWITCHES |
                          UCPX_WORKER_ATTR_FIELD_NEGOTIATION | UCPX_WORKER_ATTR_FIELD_KEPT;
        EXPECT_EQ(ucpx_worker_query(workers_[index], &attr), UCS_OK);
        return attr;
    }

    ucs::VirtualClock clock;
    uct::mock::Fabric fabric;

  private:
    void add(const Options& options, size_t index) {
        if (wire_ != nullptr) wire_->enter(index);
        ucp_params_t params{};
        params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_REQUEST_SIZE;
        params.features = kAllFeatures;
        params.request_size = options.request_size;
        ContextSeams seams;
        seams.clock = &clock;
        seams.virtual_time = true;
        seams.seed = options.seed * 1000 + index;
        seams.components = components_;
        if (index < options.in_one_process) seams.adapter_counts = &adapter_counts_;
        std::unique_ptr<Context> context;
        ASSERT_EQ(Context::create(params, options.config, seams, &context), UCS_OK);
        contexts_.push_back(std::move(context));
        ucp_worker_params_t worker_params{};
        worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
        worker_params.thread_mode = options.thread_mode;
        ucp_worker_h worker = nullptr;
        ASSERT_EQ(ucp_worker_create(wrap(contexts_.back().get()), &worker_params, &worker), UCS_OK);
        workers_.push_back(worker);
    }

    Wire* wire_;
    ucs::Duration tick_;
    size_t still_ = SIZE_MAX;  // the worker that hold_still() named
    std::array<uct::Component*, 1> components_;
    AdapterCounts adapter_counts_;
    std::vector<std::unique_ptr<Context>> contexts_;
    std::vector<ucp_worker_h> workers_;
    // Killed processes clean up nothing: their workers stay, where leak checkers find them.
    static std::vector<ucp_worker_h>& killed() {
        static auto* all = new std::vector<ucp_worker_h>;
        return *all;
    }
    std::vector<std::vector<ucp_ep_h>> endpoints_;
};

// Of an endpoint whose failure is noted there.
inline ucp_ep_params_t noting_failure(ucs_status_t& status) {
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler = {[](void* arg, ucp_ep_h, ucs_status_t failure) {
                              *static_cast<ucs_status_t*>(arg) = failure;
                          },
                          &status};
    return params;
}

// A message of that number and tag, received by the peer: what came before it has come.
inline void pass(Cluster& cluster, size_t from, size_t to, uint64_t number) {
    uint64_t got = 0;
    const ucs_status_ptr_t sending = ucp_tag_send_sync_nbx(cluster.endpoint(from, to), &number,
                                                           sizeof(number), number, &kNothing);
    EXPECT_EQ(cluster.finish(ucp_tag_recv_nbx(cluster.worker(to), &got, sizeof(got), number,
                                              UINT64_MAX, &kNothing)),
              UCS_OK);
    EXPECT_EQ(cluster.finish(sending), UCS_OK);
    EXPECT_EQ(got, number);
}

}  // namespace ucp::test
