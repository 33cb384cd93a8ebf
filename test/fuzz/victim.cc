// SPDX-License-Identifier: BSD-3-Clause
#include "fuzz/victim.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "ucp/api/ucp.h"
#include "ucp/api/ucpx.h"
#include "ucp/base/handles.h"
#include "ucp/endpoint/endpoint.h"
#include "ucp/lanes/driver/lane_driver.h"
#include "ucp/mem/memory.h"
#include "ucp/mem/packed_key.h"
#include "ucp/proto/am/am_handlers.h"
#include "ucp/proto/eager/eager.h"
#include "ucp/proto/tag/engine.h"
#include "ucs/config/source.h"
#include "ucs/log/log.h"

namespace ucp::fuzz {

namespace {

constexpr uint64_t kFeatures =
    UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_AM | UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64;

// Takes what comes, and the data of announcements.
ucs_status_t take(void* worker, const void*, size_t, void* data, size_t length,
                  const ucp_am_recv_param_t* param) {
    static std::byte buffer[512];
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) return UCS_OK;
    const ucp_request_param_t none{};
    const ucs_status_ptr_t request = ucp_am_recv_data_nbx(
        static_cast<ucp_worker_h>(worker), data, buffer, std::min(length, sizeof(buffer)), &none);
    if (UCS_PTR_IS_PTR(request)) ucp_request_free(request);
    return UCS_OK;
}

}  // namespace

void Victim::create(Side& side, uint64_t seed) {
    Config config;
    std::string error;
    kConfigTable.load(ucs::config::Source(), config, error);
    config.rndv_threshold.emplace().bytes = 4096;
    config.switch_interval = std::chrono::hours(1);  // only requests move lanes
    config.min_residence = ucs::Duration(0);
    ContextSeams seams;
    seams.clock = &clock_;
    seams.virtual_time = true;
    seams.seed = seed;
    seams.components = std::span<uct::Component* const>(&component_, 1);
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = kFeatures;
    if (Context::create(params, config, seams, &side.context) != UCS_OK ||
        Worker::create(*side.context, ucp_worker_params_t{}, &side.worker) != UCS_OK)
        ucs::log_fatal("the fuzzed worker cannot be made");
}

Endpoint* Victim::endpoint(Side& from, const Side& to) {
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    params.address = reinterpret_cast<const ucp_address_t*>(to.worker->address().data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    Endpoint* made = nullptr;
    if (from.worker->create_endpoint(params, &made) != UCS_OK)
        ucs::log_fatal("the fuzzed worker reaches nobody");
    return made;
}

Victim::Victim(Links links) {
    create(victim_, 1);
    create(peer_, 2);
    Memory::create(victim_.context->domains(), mapped_, sizeof(mapped_), &memory_);
    Memory::create(peer_.context->domains(), peer_mapped_, sizeof(peer_mapped_), &peer_memory_);
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                         UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.cb = take;
    handler.arg = wrap(victim_.worker.get());
    victim_.worker->am_handlers().set(handler);
    Endpoint* to_peer = endpoint(victim_, peer_);
    endpoint(peer_, victim_);
    start_link(*to_peer, links);
    start_requests(*to_peer);
    step(20);
}

Victim::~Victim() {
    for (ucs_status_ptr_t handle : requests_) {
        if (UCS_PTR_IS_PTR(handle)) ucp_request_free(handle);
    }
    ucp_rkey_destroy(peer_key_);
    // A worker that goes waits for the peers of its lanes. This one does not run any more.
    for (Side* side : {&victim_, &peer_}) {
        side->worker->endpoints().for_each([](Endpoint& endpoint) {
            endpoint.take_from_user();
            endpoint.fail(UCS_ERR_CANCELED);
        });
        for (unsigned round = 0; round < 4; ++round) side->worker->progress();
    }
    victim_.worker.reset();
    peer_.worker.reset();
    Memory::destroy(memory_);
    Memory::destroy(peer_memory_);
}

void Victim::start_link(Endpoint& to_peer, Links links) {
    if (links == Links::kScalable) return step_both(20);
    LaneDriver& lanes = victim_.worker->lanes();
    lanes.set_policy(to_peer, lanes::Policy::kDedicated);
    if (links == Links::kGoingUp) return step_both(60);
    const auto is_up = [&] {
        const lanes::Link* link = lanes.link_of(to_peer);
        return link != nullptr && link->state == lanes::LinkState::kEstablished;
    };
    for (unsigned limit = 1000; limit != 0 && !is_up(); --limit) step_both(1);
    step_both(20);
    if (links != Links::kGoingDown) return;
    lanes.set_policy(to_peer, lanes::Policy::kScalable);
    step_both(20);
}

// What waits for the peer, which no longer runs: what comes in its name is the input's.
void Victim::start_requests(Endpoint& to_peer) {
    const ucp_request_param_t param{};
    const OpParams params(&param);
    for (const TagMode mode : {TagMode::kNormal, TagMode::kSync}) {
        const size_t length = mode == TagMode::kNormal ? sizeof(source_) : 100;
        requests_.push_back(victim_.worker->tags().send(to_peer, source_, length, 1, mode, params));
    }
    for (Tag tag = 0; tag < 3; ++tag) {
        const size_t length = tag == 0 ? 100 : sizeof(target_);
        requests_.push_back(
            victim_.worker->tags().receive(target_, length, tag, kFullTagMask, params));
    }
    std::vector<std::byte> key(packed_key_size(*peer_memory_));
    pack_key(*peer_memory_, key);
    ucp_ep_rkey_unpack(wrap(&to_peer), key.data(), &peer_key_);
    ucp_request_param_t fetch{};
    fetch.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER;
    fetch.datatype = ucp_dt_make_contig(sizeof(fetched_));
    fetch.reply_buffer = &fetched_;
    requests_.push_back(ucp_atomic_op_nbx(wrap(&to_peer), UCP_ATOMIC_OP_ADD, source_, 1,
                                          reinterpret_cast<uintptr_t>(peer_mapped_), peer_key_,
                                          &fetch));
    // The second one waits for the peer's credit.
    const std::vector<std::byte> payload(UCPX_MAX_NOTIFICATION_PAYLOAD);
    ucpx_batch_t batch{};
    batch.field_mask = UCPX_BATCH_FIELD_PAYLOAD;
    batch.entry_size = sizeof(ucpx_piece_t);
    batch.payload = payload.data();
    batch.payload_length = payload.size();
    for (int i = 0; i < 2; ++i)
        requests_.push_back(ucpx_put_batch_nbx(wrap(&to_peer), &batch, &param));
}

void Victim::step_both(unsigned count) {
    while (count-- != 0) {
        step(1);
        peer_.worker->progress();
    }
}

void Victim::step(unsigned count) {
    while (count-- != 0) {
        clock_.advance(std::chrono::microseconds(1));
        victim_.worker->progress();
    }
}

void Victim::message(uint8_t id, std::span<const std::byte> bytes) {
    // A copy of its own size, so that a sanitizer sees every read past it.
    std::vector<std::byte> copy(bytes.begin(), bytes.end());
    victim_.worker->interfaces().deliver(peer_.worker->uuid(), id, copy.data(), copy.size());
    step(1);
}

void Victim::connect(std::span<const std::byte> address) {
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    params.address = reinterpret_cast<const ucp_address_t*>(address.data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    Endpoint* made = nullptr;
    if (victim_.worker->create_endpoint(params, &made) != UCS_OK) return;
    const ucp_request_param_t param{};
    requests_.push_back(
        victim_.worker->tags().send(*made, source_, 10, 1, TagMode::kNormal, OpParams(&param)));
    step(10);
}

void Victim::speak_to(std::span<std::byte> bytes) const {
    for (; bytes.size() >= sizeof(uint64_t); bytes = bytes.subspan(sizeof(uint64_t))) {
        uint64_t word;
        std::memcpy(&word, bytes.data(), sizeof(word));
        switch (static_cast<char>(word)) {
            case 'p':
                word = peer_.worker->uuid();
                break;
            case 'v':
                word = victim_.worker->uuid();
                break;
            case 'r':
                word = 1 + (word >> 8) % 8;
                break;
            case 'm':
                word = reinterpret_cast<uintptr_t>(mapped_) + (word >> 8) % sizeof(mapped_);
                break;
            case 'i':
                word = victim_.context->domains().regions().identity();
                break;
            case 'k':
                word = memory_->region();
                break;
            default:
                continue;
        }
        std::memcpy(bytes.data(), &word, sizeof(word));
    }
}

}  // namespace ucp::fuzz
