// SPDX-License-Identifier: BSD-3-Clause
#include "system/host_pair.h"

#include <algorithm>

#include "uct/ib/component.h"
#include "uct/sm/component.h"
#include "uct/tcp/component.h"

namespace ucp::test {

using bulk::QueuePairDriver;

HostPair::HostPair(const Options& options)
    : here(options.length), there(options.length), queue_pairs_wanted_(options.qps) {
    Config config = quiet_config();
    config.transports = {false, options.transports};
    config.bulk_workers = options.workers;
    config.bulk_shards = options.shards;
    config.bulk_qps = options.qps;
    config.bulk_stall_timeout = options.stall_timeout;
    config.bulk_window = ucs::config::MemorySize{options.window};
    config.bulk_slice_size = ucs::config::MemorySize{options.slice};
    config.max_rails = 4;
    ucs::config::Source source;
    std::string error;
    for (const auto& [name, value] : options.variables) {
        EXPECT_EQ(source.modify(name, value, error), UCS_OK) << error;
    }
    Config set = config;
    if (!options.variables.empty()) {
        EXPECT_EQ(kConfigTable.load(source, set, error), UCS_OK) << error;
        config.bulk_workers = set.bulk_workers;
        config.bulk_shards = set.bulk_shards;
    }
    components_ = {&uct::ib::component(), &uct::sm::component(), &uct::tcp::component()};
    for (Side& side : sides_) {
        ContextSeams seams;
        seams.components = components_;
        ucp_params_t params{};
        params.field_mask = UCP_PARAM_FIELD_FEATURES;
        params.features = options.features;
        EXPECT_EQ(Context::create(params, config, seams, &side.context), UCS_OK);
        const ucp_worker_params_t worker_params{};
        EXPECT_EQ(ucp_worker_create(wrap(side.context.get()), &worker_params, &side.worker),
                  UCS_OK);
    }
    connect(0, 1);
    connect(1, 0);
    ucp_mem_map_params_t map{};
    map.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    map.address = there.data();
    map.length = there.size();
    EXPECT_EQ(ucp_mem_map(wrap(sides_[1].context.get()), &map, &memory_), UCS_OK);
    void* packed = nullptr;
    size_t size = 0;
    EXPECT_EQ(ucp_rkey_pack(wrap(sides_[1].context.get()), memory_, &packed, &size), UCS_OK);
    EXPECT_EQ(ucp_ep_rkey_unpack(endpoint(0), packed, &key_), UCS_OK);
    ucp_rkey_buffer_release(packed);
}

HostPair::~HostPair() {
    for (size_t index = 0; index < sides_.size(); ++index) destroy(index);
    if (key_ != nullptr) ucp_rkey_destroy(key_);
    withdraw_memory();
    for (const auto& operation : operations_) EXPECT_EQ(operation->ends, 1u);
}

void HostPair::withdraw_memory() {
    if (memory_ == nullptr) return;
    EXPECT_EQ(ucp_mem_unmap(wrap(sides_[1].context.get()), std::exchange(memory_, nullptr)),
              UCS_OK);
}

void HostPair::connect(size_t from, size_t to) {
    ucp_address_t* address = nullptr;
    size_t length = 0;
    ASSERT_EQ(ucp_worker_get_address(sides_[to].worker, &address, &length), UCS_OK);
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                        UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.address = address;
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler.cb = [](void*, ucp_ep_h, ucs_status_t) {};
    ASSERT_EQ(ucp_ep_create(sides_[from].worker, &params, &sides_[from].endpoint), UCS_OK);
    ucp_worker_release_address(sides_[to].worker, address);
}

void HostPair::destroy(size_t index) {
    if (sides_[index].worker == nullptr) return;
    ucp_worker_destroy(std::exchange(sides_[index].worker, nullptr));
}

void HostPair::step() {
    for (const Side& side : sides_) {
        if (side.worker != nullptr) ucp_worker_progress(side.worker);
    }
}

bool HostPair::has_queue_pairs() const {
    size_t count = 0;
    const QueuePairDriver& queue_pairs = inner(0).bulk_queue_pairs();
    queue_pairs.for_each(unwrap(endpoint(0)), [&](unsigned) { ++count; });
    return count >= queue_pairs_wanted_;
}

bool HostPair::is_scalable(size_t index) const {
    ucpx_ep_attr_t attr{};
    attr.field_mask = UCPX_EP_ATTR_FIELD_STATE;
    EXPECT_EQ(ucpx_ep_query(endpoint(index), &attr), UCS_OK);
    return attr.state == UCPX_LANE_STATE_SCALABLE;
}

void HostPair::promote() {
    // Queue pairs are made for those that have had bulk transfers.
    EXPECT_EQ(finish(start_put(0, std::min<size_t>(here.size(), 1 << 20))), UCS_OK);
    EXPECT_EQ(ucpx_ep_lanes_request(endpoint(0), UCPX_LANE_POLICY_DEDICATED), UCS_OK);
    EXPECT_TRUE(until([&] { return has_queue_pairs(); }));
}

void HostPair::demote() {
    EXPECT_EQ(ucpx_ep_lanes_request(endpoint(0), UCPX_LANE_POLICY_SCALABLE), UCS_OK);
    // A request that comes while the lane is being released is made later: with intervals as long
    // as these, much later.
    EXPECT_TRUE(until([&] {
        return !inner(0).bulk_queue_pairs().holds(unwrap(endpoint(0))) && is_scalable(0) &&
               is_scalable(1);
    }));
}

HostOperation& HostPair::add() {
    return *operations_.emplace_back(std::make_unique<HostOperation>());
}

void HostPair::end(HostOperation& operation, void* request, ucs_status_t status) {
    ++operation.ends;
    operation.status = status;
    ucp_request_free(request);
}

ucp_request_param_t HostPair::parameters(HostOperation& operation) {
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    params.cb.send = [](void* request, ucs_status_t status, void* user_data) {
        end(*static_cast<HostOperation*>(user_data), request, status);
    };
    params.user_data = &operation;
    return params;
}

HostOperation& HostPair::started(HostOperation& operation, ucs_status_ptr_t request) {
    if (!UCS_PTR_IS_PTR(request)) {
        ++operation.ends;
        operation.status = UCS_PTR_RAW_STATUS(request);
    }
    return operation;
}

HostOperation& HostPair::start_put(size_t offset, size_t length) {
    HostOperation& operation = add();
    const ucp_request_param_t params = parameters(operation);
    length = std::min(length, here.size() - offset);
    return started(operation,
                   ucp_put_nbx(endpoint(0), here.data() + offset, length,
                               reinterpret_cast<uintptr_t>(there.data()) + offset, key_, &params));
}

HostOperation& HostPair::start_get(size_t offset, size_t length) {
    HostOperation& operation = add();
    const ucp_request_param_t params = parameters(operation);
    length = std::min(length, here.size() - offset);
    return started(operation,
                   ucp_get_nbx(endpoint(0), here.data() + offset, length,
                               reinterpret_cast<uintptr_t>(there.data()) + offset, key_, &params));
}

HostOperation& HostPair::start_send(const void* data, size_t length) {
    HostOperation& operation = add();
    const ucp_request_param_t params = parameters(operation);
    return started(operation, ucp_tag_send_nbx(endpoint(0), data, length, 1, &params));
}

HostOperation& HostPair::start_receive(void* data, size_t length) {
    HostOperation& operation = add();
    ucp_request_param_t params = parameters(operation);
    params.cb.recv = [](void* request, ucs_status_t status, const ucp_tag_recv_info_t*,
                        void* user_data) {
        end(*static_cast<HostOperation*>(user_data), request, status);
    };
    return started(operation, ucp_tag_recv_nbx(worker(1), data, length, 1, UINT64_MAX, &params));
}

ucs_status_t HostPair::finish(HostOperation& operation) {
    if (!until([&] { return operation.ends != 0; })) {
        ADD_FAILURE() << "an operation hangs";
        return UCS_ERR_TIMED_OUT;
    }
    return operation.status;
}

void HostPair::fill(uint64_t seed) {
    const auto bytes = pattern(here.size(), seed);
    std::copy(bytes.begin(), bytes.end(), here.begin());
}

void HostPair::fill_there(uint64_t seed) {
    const auto bytes = pattern(there.size(), seed);
    std::copy(bytes.begin(), bytes.end(), there.begin());
}

}  // namespace ucp::test
