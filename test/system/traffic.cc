// SPDX-License-Identifier: BSD-3-Clause
#include "system/traffic.h"

#include <fmt/format.h>

#include <algorithm>

#include "system/traffic_parts.h"

namespace ucp::test {

// --- the receiving side of one direction

Party::Inbound::Inbound(Party& party, size_t from)
    : party(party), from(from), layout(party.options_), memory((layout.bytes + 7) / 8) {
    buffer.resize(std::max<size_t>(party.options_.max_length, 64) + 1);
    const auto constant =
        party.content(kConstant, from, party.index_, 0, party.options_.slot_bytes);
    std::memcpy(at(layout.constant), constant.data(), constant.size());
    ucp_mem_map_params_t params{};
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    params.address = memory.data();
    params.length = memory.size() * 8;
    void* packed = nullptr;
    size_t size = 0;
    if (ucp_mem_map(party.context_, &params, &handle_) != UCS_OK ||
        ucp_rkey_pack(party.context_, handle_, &packed, &size) != UCS_OK) {
        party.fail("memory cannot be mapped");
        return;
    }
    region = {reinterpret_cast<uint64_t>(memory.data()),
              std::string(static_cast<const char*>(packed), size)};
    ucp_rkey_buffer_release(packed);
}

Party::Inbound::~Inbound() {
    if (handle_ != nullptr) ucp_mem_unmap(party.context_, handle_);
}

void Party::Inbound::received(const Receive& ended, ucs_status_t status, size_t length) {
    if (status == UCS_ERR_CANCELED || forgiven || party.abandoned_) return;
    if (status != UCS_OK && may_fail) {
        ++(ended.is_claim ? report().claims : report().tagged);
        return;
    }
    ended.is_claim ? on_claim(status, length) : on_tagged(status, length);
}

void Party::Inbound::on_tagged(ucs_status_t status, size_t length) {
    const uint64_t number = report().tagged++;
    const size_t expected = party.length_of(from, party.index_, number);
    ++party.totals_.messages;
    if (status == UCS_OK && length == expected) {
        const auto bytes = party.content(kTagged, from, party.index_, number, expected);
        if (std::memcmp(buffer.data(), bytes.data(), expected) == 0) return;
    }
    party.fail(
        fmt::format("tagged message {} from {} is out of order or damaged: {}, {} bytes "
                    "instead of {}",
                    number, from, ucs_status_string(status), length, expected));
}

void Party::Inbound::on_claim(ucs_status_t status, size_t length) {
    const uint64_t number = report().claims;
    const size_t bytes =
        std::min(party.length_of(from, party.index_, number), party.options_.slot_bytes);
    const auto expected = party.content(kPutData, from, party.index_, number, bytes);
    if (status != UCS_OK || length != 8 || claimed != number) {
        party.fail(fmt::format("claim {} from {} is out of order or damaged", number, from));
    } else if (std::memcmp(at(number % party.options_.slots * party.options_.slot_bytes),
                           expected.data(), bytes) != 0) {
        party.fail(fmt::format("put {} from {} is not there after its flush", number, from));
    }
    report().claims = number + 1;
}

void Party::Inbound::Receive::post() {
    ucp_request_param_t param{};
    param.op_attr_mask =
        UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    param.user_data = this;
    param.cb.recv = [](void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                       void* user_data) {
        auto& self = *static_cast<Receive*>(user_data);
        self.is_posted = false;
        ucp_request_free(request);
        self.owner.received(self, status, info->length);
    };
    is_posted = true;
    const ucp_worker_h worker = owner.party.worker_;
    const uint64_t from = owner.from;
    request = is_claim ? ucp_tag_recv_nbx(worker, &owner.claimed, 8, kClaimTag | from, ~uint64_t{0},
                                          &param)
                       : ucp_tag_recv_nbx(worker, owner.buffer.data(), owner.buffer.size(), from,
                                          ~uint64_t{0}, &param);
    if (UCS_PTR_IS_PTR(request)) return;
    is_posted = false;
    owner.party.fail("a receive cannot be posted");
}

void Party::Inbound::Receive::cancel() {
    if (is_posted) ucp_request_cancel(owner.party.worker_, request);
}

void Party::Inbound::cancel() {
    receive.cancel();
    claim_receive.cancel();
}

void Party::Inbound::handle(uint64_t number, const void* data, size_t length) {
    if (forgiven || party.abandoned_) return;
    const uint64_t next = report().active++;
    ++party.totals_.messages;
    if (number == next && length == party.length_of(from, party.index_, number)) {
        const auto expected = party.content(kActive, from, party.index_, number, length);
        if (std::memcmp(expected.data(), data, length) == 0) return;
    }
    party.fail(fmt::format("active message {} of {}, {} expected, is out of order or damaged",
                           number, from, next));
}

// The flag may come any time; what the fence put before it must be there.
void Party::Inbound::check_fence() {
    const uint64_t flag = *reinterpret_cast<const volatile uint64_t*>(at(layout.fence_flag));
    if (flag == report().fences) return;
    const size_t length =
        1 + std::min(party.length_of(from, party.index_, flag), party.options_.slot_bytes - 1);
    const auto expected = party.content(kFenced, from, party.index_, flag, length);
    if (flag != report().fences + 1 ||
        std::memcmp(at(layout.fence_data), expected.data(), length) != 0) {
        party.fail(fmt::format("put {} from {} overtook a fence", flag, from));
    }
    report().fences = flag;
}

void Party::Inbound::poll() {
    if (forgiven || party.abandoned_) return;
    for (Receive* each : {&receive, &claim_receive}) {
        if (!each->is_posted) each->post();
    }
    check_fence();
}

// --- a worker's part

Party::Party(const TrafficOptions& options, size_t index, ucp_context_h context,
             ucp_worker_h worker)
    : options_(options),
      index_(index),
      context_(context),
      worker_(worker),
      random_(ucs::mix64(options.seed) + index),
      inbound_(options.workers),
      outbound_(options.workers) {
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                         UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = 0;
    handler.cb = on_active;
    handler.arg = this;
    if (ucp_worker_set_am_recv_handler(worker, &handler) != UCS_OK) fail("no handler can be set");
    for (size_t from = 0; from < options.workers; ++from) {
        if (from != index) inbound_[from] = std::make_unique<Inbound>(*this, from);
    }
}

Party::~Party() = default;

TrafficRegion Party::region_for(size_t from) {
    return inbound_[from]->region;
}

void Party::connect(size_t to, ucp_ep_h endpoint, const TrafficRegion& region) {
    outbound_[to] = std::make_unique<Outbound>(*this, to, endpoint, region);
}

ucp_ep_h Party::endpoint(size_t to) const {
    return outbound_[to]->endpoint;
}

void Party::fail(std::string what) {
    if (errors_.size() < 16) {
        errors_.push_back(fmt::format("seed {} worker {}: {}", options_.seed, index_, what));
    }
}

// Half of the messages are tiny, the others spread over all orders of magnitude.
size_t Party::length_of(size_t from, size_t to, uint64_t number) const {
    const uint64_t draw = ucs::mix64(options_.seed ^ (uint64_t{from} << 8) ^ to ^ (number << 20));
    if (draw % 2 == 0) return (draw >> 8) % 65;
    size_t bits = 0;
    while ((size_t{1} << bits) < options_.max_length) ++bits;
    const uint64_t length = (draw >> 8) % ((size_t{1} << ((draw >> 40) % (bits + 1))) + 1);
    return std::min<size_t>(length, options_.max_length);
}

std::vector<uint8_t> Party::content(unsigned stream, size_t from, size_t to, uint64_t number,
                                    size_t length) const {
    std::vector<uint8_t> bytes(length);
    uint64_t state = ucs::mix64(options_.seed ^ (uint64_t{stream} << 56) ^ (uint64_t{from} << 48) ^
                                (uint64_t{to} << 40) ^ number);
    for (size_t offset = 0; offset < length; offset += 8) {
        state = ucs::mix64(state);
        std::memcpy(bytes.data() + offset, &state, std::min<size_t>(8, length - offset));
    }
    return bytes;
}

ucs_status_t Party::on_active(void* arg, const void* header, size_t header_length, void* data,
                              size_t length, const ucp_am_recv_param_t*) {
    auto& self = *static_cast<Party*>(arg);
    AmNumber number{};
    if (header_length == sizeof(number)) std::memcpy(&number, header, sizeof(number));
    if (header_length != sizeof(number) || number.from >= self.inbound_.size() ||
        self.inbound_[number.from] == nullptr) {
        self.fail("an active message has a wrong header");
    } else {
        self.inbound_[number.from]->handle(number.number, data, length);
    }
    return UCS_OK;
}

void Party::step() {
    for (size_t peer = 0; peer < options_.workers; ++peer) {
        if (outbound_[peer] && !abandoned_) outbound_[peer]->step();
        if (inbound_[peer]) inbound_[peer]->poll();
    }
}

void Party::stop() {
    for (const auto& outbound : outbound_) {
        if (outbound) outbound->left = 0;
    }
}

void Party::force_switch() {
    const auto& outbound = outbound_[random_.below(options_.workers)];
    if (!outbound || outbound->forgiven) return;
    const auto policy = static_cast<ucpx_lane_policy_t>(random_.below(UCPX_LANE_POLICY_LAST));
    const ucs_status_t status = ucpx_ep_lanes_request(outbound->endpoint, policy);
    // The endpoint may know of a failure before its error handler ran.
    if (status == UCS_ERR_UNSUPPORTED || status == UCS_ERR_INVALID_PARAM) {
        fail("a lane cannot be asked for");
    }
}

void Party::expect_failure(size_t peer) {
    outbound_[peer]->may_fail = true;
    inbound_[peer]->may_fail = true;
}

void Party::forgive(size_t peer) {
    expect_failure(peer);
    outbound_[peer]->forgiven = true;
    inbound_[peer]->forgiven = true;
    inbound_[peer]->cancel();
}

void Party::abandon() {
    abandoned_ = true;
    for (const auto& inbound : inbound_) {
        if (inbound) inbound->cancel();
    }
    for (const auto& outbound : outbound_) {
        if (outbound) outbound->give_up_requests();
    }
}

bool Party::is_done() const {
    return std::ranges::all_of(
        outbound_, [](const auto& outbound) { return !outbound || outbound->is_done(); });
}

size_t Party::pending(size_t to) const {
    return outbound_[to]->operations.size();
}

uint64_t Party::failures(size_t to) const {
    return outbound_[to]->failures;
}

std::string Party::describe() const {
    std::string text;
    for (const auto& outbound : outbound_) {
        if (outbound && !outbound->is_done()) text += outbound->describe() + "\n";
    }
    return text;
}

}  // namespace ucp::test
