// SPDX-License-Identifier: BSD-3-Clause
#include "tools/program/flow.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <queue>

#include "tools/program/sink.h"

namespace tools {
namespace {

// A peer's next turn: turns are 1/weight apart.
struct Turn {
    double when;
    unsigned peer;
    double distance;
    bool operator>(const Turn& other) const {
        return when != other.when ? when > other.when : peer > other.peer;
    }
};

// First turns lie in the middle of their distance: peers of equal weight alternate, and light ones
// do not all come at the start.
std::priority_queue<Turn, std::vector<Turn>, std::greater<>> first_turns(
    const std::vector<PeerWeight>& peers) {
    std::priority_queue<Turn, std::vector<Turn>, std::greater<>> turns;
    for (const PeerWeight& entry : peers) {
        turns.push({0.5 / entry.weight, entry.peer, 1 / entry.weight});
    }
    return turns;
}

}  // namespace

Flow::Flow(Rank& rank, const FlowOptions& options)
    : rank_(rank),
      options_(options),
      buffer_(options.size, options.verify ? options.window : 1),
      sequences_(rank.count(), SequenceCheck(options.seed, Stream::kHot)) {}

Task Flow::run(std::vector<PeerWeight> peers, int64_t end) {
    if (peers.empty()) {
        co_await rank_.sleep_until(end);
        co_return;
    }
    auto turns = first_turns(peers);
    // A buffer is filled anew only when its former message is gone.
    std::vector<std::unique_ptr<Batch>> batches;
    for (unsigned i = 0; i < options_.window; ++i) {
        batches.push_back(std::make_unique<Batch>(rank_));
    }
    for (unsigned next = 0; rank_.host().now() < end; next = (next + 1) % options_.window) {
        // Give time a chance to pass: local completions alone might never suspend.
        if (next == 0) co_await rank_.yield();
        Batch& batch = *batches[next];
        co_await batch.done();
        Turn turn = turns.top();
        turns.pop();
        const auto message = buffer_.slot(options_.verify ? next : 0, options_.size);
        if (options_.verify) sequences_[turn.peer].fill(message, rank_.index(), turn.peer);
        batch.send(turn.peer, make_tag(Stream::kHot, rank_.index()), message.data(),
                   message.size());
        turn.when += turn.distance;
        turns.push(turn);
        ++messages_;
        if (next == 0) rank_.host().progressed(options_.window);
    }
    for (const auto& batch : batches) co_await batch->done();
}

Task run_flow(Rank& rank, const FlowOptions& options, unsigned phases, int64_t time,
              const std::function<std::vector<PeerWeight>(unsigned phase)>& weights) {
    Sink sink(rank, {.stream = Stream::kHot,
                     .max_size = options.size,
                     .seed = options.seed,
                     .verify = options.verify,
                     .depth = options.window});
    rank.spawn(sink.run());
    co_await rank.barrier();
    const int64_t start = rank.host().now();
    Flow flow(rank, options);
    for (unsigned phase = 0; phase < phases; ++phase)
        co_await flow.run(weights(phase), start + (phase + 1) * time);
    rank.host().report(
        {.size = options.size, .messages = flow.messages(), .elapsed = rank.host().now() - start});
    co_await rank.barrier();
    co_await sink.stop();
}

}  // namespace tools
