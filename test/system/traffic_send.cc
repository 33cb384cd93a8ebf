// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>

#include "system/traffic_parts.h"

namespace ucp::test {
namespace {

using Bytes = std::vector<uint8_t>;

}  // namespace

Party::Outbound::Outbound(Party& party, size_t to, ucp_ep_h endpoint, const TrafficRegion& region)
    : party(party),
      to(to),
      layout(party.options_),
      endpoint(endpoint),
      base(region.address),
      left(party.options_.operations) {
    if (ucp_ep_rkey_unpack(endpoint, region.key.data(), &key) != UCS_OK) {
        party.fail("a key cannot be unpacked");
    }
}

Party::Outbound::~Outbound() {
    if (key != nullptr) ucp_rkey_destroy(key);
}

// @return whether the operation could be started; one that ended at once is finished here
bool Party::Outbound::track(const char* name, ucs_status_ptr_t request,
                            std::shared_ptr<void> memory, size_t bytes,
                            std::function<void()> then) {
    Operation operation{name, request, std::move(memory), bytes, std::move(then)};
    if (UCS_PTR_IS_PTR(request)) {
        operations.push_back(std::move(operation));
        return true;
    }
    finish(operation, UCS_PTR_RAW_STATUS(request));
    return UCS_PTR_RAW_STATUS(request) == UCS_OK;
}

void Party::Outbound::finish(Operation& operation, ucs_status_t status) {
    ++party.totals_.operations;
    if (status == UCS_OK) {
        party.totals_.bytes += operation.bytes;
        if (operation.then) operation.then();
        return;
    }
    ++failures;
    if (!may_fail && !party.abandoned_) {
        party.fail(
            fmt::format("{} to {} ended with: {}", operation.name, to, ucs_status_string(status)));
    }
}

void Party::Outbound::send_tagged(bool sync) {
    const uint64_t number = tagged++;
    const size_t length = party.length_of(party.index_, to, number);
    auto bytes = std::make_shared<Bytes>(party.content(kTagged, party.index_, to, number, length));
    track(sync ? "a synchronous send" : "a tagged send",
          sync ? ucp_tag_send_sync_nbx(endpoint, bytes->data(), length, party.index_, &kNothing)
               : ucp_tag_send_nbx(endpoint, bytes->data(), length, party.index_, &kNothing),
          bytes, length);
}

void Party::Outbound::send_active() {
    struct Sent {
        AmNumber header;
        Bytes bytes;
    };
    const uint64_t number = active++;
    const size_t length = party.length_of(party.index_, to, number);
    auto sent = std::make_shared<Sent>(
        Sent{{party.index_, number}, party.content(kActive, party.index_, to, number, length)});
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_AM_SEND_FLAG_EAGER;
    if (number % 3 == 0) param.flags |= UCP_AM_SEND_FLAG_REPLY;
    track("an active message",
          ucp_am_send_nbx(endpoint, 0, &sent->header, sizeof(sent->header), sent->bytes.data(),
                          length, &param),
          sent, length);
}

// The data of a put must be there when a message sent after its flush arrives.
void Party::Outbound::put_and_claim() {
    if (puts - seen.claims >= party.options_.slots) return;
    const uint64_t number = puts++;
    const size_t slot = number % party.options_.slots;
    const size_t length =
        std::min(party.length_of(party.index_, to, number), party.options_.slot_bytes);
    auto bytes = std::make_shared<Bytes>(party.content(kPutData, party.index_, to, number, length));
    track("a put",
          ucp_put_nbx(endpoint, bytes->data(), length, base + slot * party.options_.slot_bytes, key,
                      &kNothing),
          bytes, length);
    // A flush that ends at once may overtake the notice of an earlier one, which it covers.
    track("a flush", ucp_ep_flush_nbx(endpoint, &kNothing), nullptr, 0, [this] {
        if (forgiven) return;  // the endpoint may be gone
        auto claim = std::make_shared<uint64_t>(claims++);
        track("a claim",
              ucp_tag_send_nbx(endpoint, claim.get(), 8, kClaimTag | party.index_, &kNothing),
              claim, 8);
    });
}

// One at a time: the receiver looks at the flag whenever it likes.
void Party::Outbound::put_fenced() {
    if (seen.fences != fences) return;
    const uint64_t number = ++fences;
    const size_t length =
        1 + std::min(party.length_of(party.index_, to, number), party.options_.slot_bytes - 1);
    auto bytes = std::make_shared<Bytes>(party.content(kFenced, party.index_, to, number, length));
    auto flag = std::make_shared<uint64_t>(number);
    track("the put before a fence",
          ucp_put_nbx(endpoint, bytes->data(), length, base + layout.fence_data, key, &kNothing),
          bytes, length);
    fence();
    track("the put after a fence",
          ucp_put_nbx(endpoint, flag.get(), 8, base + layout.fence_flag, key, &kNothing), flag, 8);
    fence();
    auto back = std::make_shared<uint64_t>(0);
    get_before_fetch(back, 8, layout.fence_flag, [this, back, number] {
        if (*back != number) party.fail(fmt::format("get {} from {} overtook a fence", number, to));
    });
}

void Party::Outbound::fence() {
    if (ucp_worker_fence(party.worker_) != UCS_OK && !may_fail) party.fail("a fence failed");
}

// A get, a fence and an atomic operation that fetches: when this has its value, the bytes of the
// get are there. Open MPI tells by it that an MPI_Rget is over. @param then  looks at them
void Party::Outbound::get_before_fetch(const std::shared_ptr<void>& into, size_t length,
                                       uint64_t from, std::function<void()> then) {
    track("the get before a fence",
          ucp_get_nbx(endpoint, into.get(), length, base + from, key, &kNothing), into, length);
    fence();
    auto value = std::make_shared<std::pair<uint64_t, uint64_t>>(0, 0);
    track("the fetch after a fence", fetch_and_add(*value), value, 8, std::move(then));
}

ucs_status_ptr_t Party::Outbound::fetch_and_add(std::pair<uint64_t, uint64_t>& value) {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER;
    param.datatype = ucp_dt_make_contig(8);
    param.reply_buffer = &value.second;
    return ucp_atomic_op_nbx(endpoint, UCP_ATOMIC_OP_ADD, &value.first, 1, base + layout.counter,
                             key, &param);
}

void Party::Outbound::get() {
    const size_t length =
        std::min(party.length_of(party.index_, to, party.random_()), party.options_.slot_bytes);
    auto bytes = std::make_shared<Bytes>(length);
    const std::shared_ptr<void> into(bytes, bytes->data());
    const auto check = [this, bytes] {
        if (*bytes != party.content(kConstant, party.index_, to, 0, bytes->size())) {
            party.fail(fmt::format("a get from {} brought other bytes", to));
        }
    };
    if (party.random_.below(2) == 0) return get_before_fetch(into, length, layout.constant, check);
    track("a get",
          ucp_get_nbx(endpoint, into.get(), length, base + layout.constant, key, &kNothing), into,
          length, check);
}

void Party::Outbound::add() {
    ++added;
    if (party.random_.below(2) == 0) {
        if (ucp_atomic_post(endpoint, UCP_ATOMIC_POST_OP_ADD, 1, 8, base + layout.counter, key) <
                0 &&
            !may_fail) {
            party.fail("an atomic addition failed");
        }
        return;
    }
    auto value = std::make_shared<std::pair<uint64_t, uint64_t>>(1, ~uint64_t{0});
    track("a fetching add", fetch_and_add(*value), value, 8, [this, value] {
        if (value->second >= added) party.fail("a fetching add brought an impossible value");
    });
}

void Party::Outbound::read_report() {
    struct Read {
        uint64_t counter;
        TrafficReport report;
    };
    static_assert(sizeof(Read) == 8 + sizeof(TrafficReport));
    reading = true;
    auto read = std::make_shared<Read>();
    track("reading the report",
          ucp_get_nbx(endpoint, read.get(), sizeof(Read), base + layout.counter, key, &kNothing),
          read, sizeof(Read), [this, read] {
              seen = read->report;
              counter = read->counter;
              reading = false;
          });
}

void Party::Outbound::start() {
    --left;
    const uint64_t draw = party.random_.below(20);
    if (draw < 7) return send_tagged(false);
    if (draw < 8) return send_tagged(true);
    if (draw < 13) return send_active();
    if (draw < 15) return put_and_claim();
    if (draw < 16) return put_fenced();
    if (draw < 18) return get();
    add();
}

void Party::Outbound::step() {
    for (size_t index = 0; index < operations.size();) {
        const ucs_status_t status = ucp_request_check_status(operations[index].request);
        if (status == UCS_INPROGRESS) {
            ++index;
            continue;
        }
        // Its follower may be added to the queue meanwhile.
        Operation operation = std::move(operations[index]);
        operations.erase(operations.begin() + static_cast<ptrdiff_t>(index));
        ucp_request_free(operation.request);
        finish(operation, status);
    }
    if (forgiven) return;
    if (left != 0 && operations.size() < 12 && party.random_.below(6) == 0) start();
    const bool is_waiting = puts != seen.claims || fences != seen.fences;
    const bool ends = left == 0 && operations.empty() && !is_done();
    if (!reading && (ends || is_waiting) && party.random_.below(16) == 0) read_report();
}

// Their memory stays: operations under way may still use it.
void Party::Outbound::give_up_requests() {
    for (Operation& operation : operations) {
        if (operation.request != nullptr) ucp_request_free(operation.request);
        operation.request = nullptr;
    }
}

bool Party::Outbound::is_done() const {
    if (!operations.empty()) return false;
    if (forgiven) return true;
    return left == 0 && puts == claims && seen == expected() && counter == added;
}

std::string Party::Outbound::describe() const {
    return fmt::format(
        "{} -> {}: {} operations ({}), {} to start; tagged {} of {}, active {} of {}, claims {} of "
        "{}, fences {} of {}, additions {} of {}",
        party.index_, to, operations.size(), operations.empty() ? "" : operations.front().name,
        left, seen.tagged, tagged, seen.active, active, seen.claims, claims, seen.fences, fences,
        counter, added);
}

}  // namespace ucp::test
