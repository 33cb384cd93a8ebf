// SPDX-License-Identifier: BSD-3-Clause
#include "tools/perf/initiator.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>

namespace tools::perf {
namespace {

constexpr size_t kMostLatencies = 1 << 18;
// Calls that end at once do not drive the library: it gets its turn every so often.
constexpr uint64_t kProgressEvery = 16;

int64_t now() {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Pace {
  public:
    Pace(uint64_t operations, int64_t time)
        : operations_(operations), begin_(now()), end_(begin_ + time) {}

    int64_t begin() const { return begin_; }
    bool goes_on(uint64_t started) const {
        return operations_ != 0 ? started < operations_ : started == 0 || now() < end_;
    }

  private:
    const uint64_t operations_;
    const int64_t begin_;
    const int64_t end_;
};

}  // namespace

Initiator::Initiator(PairEnd& peer, std::atomic<uint64_t>& done)
    : peer_(peer), options_(peer.options()), done_(done) {}
bool Initiator::writes() const {
    return options_.operation == Operation::kPut ||
           (options_.operation == Operation::kBatch && !options_.batch_gets);
}

void Initiator::warm_up(Metric metric, uint64_t size) {
    if (options_.warmup == 0) return;
    run(metric, size, {options_.warmup, 0});
    done_ = 0;
}
uint64_t Initiator::target_usage() {
    return peer_
        .ask({.kind = Instruction::Kind::kUsage, .slots = 0, .size = 0, .sequence = 0, .count = 0})
        .value;
}

void Initiator::leave() {
    peer_.instruct(
        {.kind = Instruction::Kind::kLeave, .slots = 0, .size = 0, .sequence = 0, .count = 0});
    peer_.flush();
}

Sample Initiator::run(Metric metric, uint64_t size, const Span& span) {
    slots_ = options_.slots(size);
    // What is in a slot must stay until it has been looked at.
    const bool keeps_slots = is_two_sided() || options_.verify;
    const bool is_batch = options_.operation == Operation::kBatch;
    window_ = keeps_slots && !is_batch ? std::min(options_.window, slots_) : options_.window;
    if (is_batch) prepare_pieces(size);
    Sample sample;
    if (metric == Metric::kLatency) {
        sample = latency(size, span);
    } else if (options_.verify && !is_two_sided()) {
        sample = verified_bandwidth(size, span);
    } else {
        sample = bandwidth(size, span);
    }
    sample.messages = sample.operations * (is_batch ? options_.pieces : 1);
    return sample;
}

// --- one operation

// The first piece here is the last one there: neighbours are none at both ends.
void Initiator::prepare_pieces(uint64_t size) {
    pieces_.resize(options_.pieces);
    for (unsigned i = 0; i < options_.pieces; ++i) {
        const unsigned place = options_.pieces - 1 - i;
        pieces_[i] = {.local_addr = peer_.slot(i, size),
                      .remote_addr = peer_.remote_slot(place, size),
                      .length = size,
                      .memh = peer_.memory(),
                      .rkey = peer_.remote_key()};
    }
}

ucs_status_ptr_t Initiator::start_batch(uint64_t size, const ucp_request_param_t& params) {
    ucpx_batch_t batch{};
    batch.pieces = pieces_.data();
    batch.num_pieces = pieces_.size();
    batch.entry_size = sizeof(ucpx_piece_t);
    if (options_.notify) batch.field_mask = UCPX_BATCH_FIELD_NOTIFICATION;
    return options_.batch_gets ? ucpx_get_batch_nbx(peer_.endpoint(), &batch, &params)
                               : ucpx_put_batch_nbx(peer_.endpoint(), &batch, &params);
}

ucs_status_ptr_t Initiator::start(uint64_t number, uint64_t size, ucp_request_param_t params) {
    if (options_.operation == Operation::kBatch) return start_batch(size, params);
    const uint64_t place = number % slots_;
    std::byte* local = peer_.slot(place, size);
    const uint64_t remote = peer_.remote_slot(place, size);
    params.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
    params.memh = peer_.memory();
    if (options_.verify && is_two_sided()) peer_.fill_message({local, size}, number);
    switch (options_.operation) {
        case Operation::kPut:
            return ucp_put_nbx(peer_.endpoint(), local, size, remote, peer_.remote_key(), &params);
        case Operation::kGet:
            return ucp_get_nbx(peer_.endpoint(), local, size, remote, peer_.remote_key(), &params);
        case Operation::kTag:
            return ucp_tag_send_nbx(peer_.endpoint(), local, size, kDataTag, &params);
        default:
            return ucp_am_send_nbx(peer_.endpoint(), kMessageId, nullptr, 0, local, size, &params);
    }
}

// --- latency

// There and, where the other side answers, back.
void Initiator::exchange(uint64_t number, uint64_t size) {
    if (!is_two_sided()) {
        peer_.wait(start(number, size, {}));
        if (options_.operation == Operation::kPut) peer_.flush();
        return;
    }
    if (options_.operation == Operation::kAm) {
        peer_.wait(start(number, size, {}));
        while (peer_.arrivals().finished <= number) peer_.progress();
        return;
    }
    // The answer goes to another slot if there is one; else over the message, which is gone by
    // then.
    std::byte* back = peer_.slot((number + 1) % slots_, size);
    const ucp_request_param_t params = peer_.params();
    if (slots_ == 1) peer_.wait(start(number, size, {}));
    const ucs_status_ptr_t receive =
        ucp_tag_recv_nbx(peer_.worker(), back, size, kDataTag, ~ucp_tag_t{0}, &params);
    if (slots_ != 1) peer_.wait(start(number, size, {}));
    peer_.wait(receive);
    if (options_.verify) expect_right(!peer_.is_right({back, size}, number), size);
}

Sample Initiator::latency(uint64_t size, const Span& span) {
    Sample sample;
    sample.latencies.reserve(std::min<uint64_t>(
        span.operations != 0 ? span.operations : kMostLatencies, kMostLatencies));
    const bool verifies = options_.verify && !is_two_sided();
    const bool is_batch = options_.operation == Operation::kBatch;
    const unsigned slots = is_batch ? slots_ : 1;
    if (is_two_sided()) {
        peer_.arrivals() = {.size = size, .slots = slots_};
        peer_.ask({Instruction::Kind::kEcho, slots_, size, 0, 0});
    }
    const Pace pace(span.operations, span.time);
    int64_t measured = 0;
    for (uint64_t number = 0; pace.goes_on(number); ++number) {
        if (verifies) {
            sequence_ += slots;
            if (writes()) peer_.fill(sequence_, slots, size, is_batch);
            if (reads()) peer_.ask({Instruction::Kind::kFill, slots, size, sequence_, 0});
        }
        const int64_t begin = now();
        exchange(is_two_sided() ? number : 0, size);
        const int64_t taken = (now() - begin) / (is_two_sided() ? 2 : 1);
        measured += taken;
        if (sample.latencies.size() < kMostLatencies) {
            sample.latencies.push_back(taken);
        } else {
            sample.latencies[number % kMostLatencies] = taken;
        }
        if (verifies && writes()) {
            expect_right(peer_.ask({Instruction::Kind::kCheck, slots, size, sequence_, 0}).wrong,
                         size);
        } else if (verifies) {
            expect_right(peer_.count_wrong(sequence_, slots, size, is_batch), size);
        }
        ++sample.operations;
        done_.store(sample.operations, std::memory_order_relaxed);
    }
    if (is_two_sided()) expect_right(peer_.arrivals().wrong, size);
    finish(sample.operations, size);
    sample.elapsed = measured;
    return sample;
}

// --- bandwidth

Sample Initiator::bandwidth(uint64_t size, const Span& span) {
    Sample sample;
    if (is_two_sided()) peer_.ask({Instruction::Kind::kReceive, window_, size, 0, 0});
    Window window;
    const ucp_request_param_t params = window.params();
    const Pace pace(span.operations, span.time);
    while (pace.goes_on(sample.operations)) {
        do {
            // Messages end in any instruction, and each has a content of its own until then.
            const bool is_turn = sample.operations % slots_ == 0;
            if (is_turn && options_.verify && is_two_sided()) peer_.drain(window);
            window.started(start(sample.operations++, size, params));
            if (sample.operations % kProgressEvery != 0) continue;
            peer_.progress();
            done_.store(sample.operations, std::memory_order_relaxed);
        } while (window.outstanding() < window_ && pace.goes_on(sample.operations));
        while (window.outstanding() >= window_) peer_.progress();
        window.check();
        done_.store(sample.operations, std::memory_order_relaxed);
    }
    peer_.drain(window);
    if (options_.operation == Operation::kPut) peer_.flush();
    finish(sample.operations, size);
    sample.elapsed = now() - pace.begin();
    return sample;
}

// Window by window, each with a content of its own that is looked at before the next. Only the
// transfers are timed.
Sample Initiator::verified_bandwidth(uint64_t size, const Span& span) {
    Sample sample;
    const bool is_batch = options_.operation == Operation::kBatch;
    Window window;
    const ucp_request_param_t params = window.params();
    const Pace pace(span.operations, span.time);
    while (pace.goes_on(sample.operations)) {
        sequence_ += slots_;
        if (writes()) peer_.fill(sequence_, slots_, size, is_batch);
        if (reads()) peer_.ask({Instruction::Kind::kFill, slots_, size, sequence_, 0});
        const int64_t begin = now();
        for (unsigned i = 0; i < (is_batch ? 1 : slots_); ++i) {
            while (window.outstanding() >= window_) peer_.progress();
            window.started(start(i, size, params));
            ++sample.operations;
        }
        peer_.drain(window);
        if (options_.operation == Operation::kPut) peer_.flush();
        sample.elapsed += now() - begin;
        if (reads()) {
            expect_right(peer_.count_wrong(sequence_, slots_, size, is_batch), size);
        } else {
            expect_right(peer_.ask({Instruction::Kind::kCheck, slots_, size, sequence_, 0}).wrong,
                         size);
        }
        done_.store(sample.operations, std::memory_order_relaxed);
    }
    finish(sample.operations, size);
    return sample;
}

// Messages and notifications are there only when the target says so.
void Initiator::finish(uint64_t operations, uint64_t size) {
    if (!is_two_sided() && !options_.notify) return;
    expect_right(peer_.ask({Instruction::Kind::kEnd, slots_, size, 0, operations}).wrong, size);
}

void Initiator::expect_right(uint64_t wrong, uint64_t size) const {
    if (wrong == 0) return;
    throw std::runtime_error(
        fmt::format("{} messages of {} bytes arrived with wrong content", wrong, size));
}

}  // namespace tools::perf
