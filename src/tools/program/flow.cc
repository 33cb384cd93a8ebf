// SPDX-License-Identifier: BSD-3-Clause
#include "tools/program/flow.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <queue>

#include "tools/program/message_sink.h"
#include "ucs/sys/random.h"

namespace tools {
namespace {

// Who gets how much of a rank's messages.
struct PeerWeight {
    unsigned peer;
    double weight;
};

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

// Sends to weighted peers. The next one is always the one that is furthest behind its share, so
// that even short stretches hold the weights closely.
class Flow {
  public:
    Flow(Rank& rank, const FlowOptions& options, uint64_t& messages)
        : rank_(rank),
          options_(options),
          messages_(messages),
          buffer_(options.size, options.verify ? options.window : 1),
          sequences_(rank.count(), SequenceCheck(options.seed, MessageKind::kHot)) {}

    // Until the host's clock reaches `end`. Returns when all is sent.
    Task run(std::vector<PeerWeight> peers, int64_t end) {
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
        const int64_t begin = rank_.host().now();
        double windows = 0;
        for (unsigned next = 0; rank_.host().now() < end; next = (next + 1) % options_.window) {
            // Give time a chance to pass: local completions alone might never suspend.
            if (next == 0) co_await rank_.yield();
            if (next == 0 && options_.rate > 0) {
                const double due = windows++ * options_.window * 1e9 / options_.rate;
                co_await rank_.sleep_until(begin + static_cast<int64_t>(due));
            }
            Batch& batch = *batches[next];
            co_await batch.done();
            Turn turn = turns.top();
            turns.pop();
            const auto message = buffer_.slot(options_.verify ? next : 0, options_.size);
            if (options_.verify) sequences_[turn.peer].fill(message, rank_.index(), turn.peer);
            batch.send(turn.peer, make_tag(MessageKind::kHot, rank_.index()), message.data(),
                       message.size());
            turn.when += turn.distance;
            turns.push(turn);
            ++messages_;
            if (next == 0) rank_.host().progressed(options_.window);
        }
        for (const auto& batch : batches) co_await batch->done();
    }

  private:
    Rank& rank_;
    const FlowOptions& options_;
    uint64_t& messages_;
    MessageBuffer buffer_;
    std::vector<SequenceCheck> sequences_;  // by peer
};

// Sends from the start of the traffic on, and counts.
using Sender = std::function<Task(int64_t start, uint64_t& messages)>;

// The program of a rank, once it is connected: it receives from everybody while it sends, and
// reports.
Task run_sender(Rank& rank, const FlowOptions& options, const Sender& sender) {
    MessageSink sink(rank, {.stream = MessageKind::kHot,
                            .max_size = options.size,
                            .seed = options.seed,
                            .verify = options.verify,
                            .depth = options.window});
    rank.spawn(sink.run());
    co_await rank.barrier();
    const int64_t start = rank.host().now();
    uint64_t messages = 0;
    co_await sender(start, messages);
    rank.host().report(
        {.size = options.size, .messages = messages, .elapsed = rank.host().now() - start});
    co_await rank.barrier();
    co_await sink.stop();
}

// The same for `phases` times `time` nanoseconds.
// @param weights  of the peers in a phase
Task run_flow(Rank& rank, const FlowOptions& options, unsigned phases, int64_t time,
              const std::function<std::vector<PeerWeight>(unsigned phase)>& weights) {
    const Sender sender = [&](int64_t start, uint64_t& messages) -> Task {
        Flow flow(rank, options, messages);
        for (unsigned phase = 0; phase < phases; ++phase)
            co_await flow.run(weights(phase), start + (phase + 1) * time);
    };
    co_await run_sender(rank, options, sender);
}

std::vector<PeerWeight> weights_of(const Rank& rank, const ZipfOptions& options) {
    std::vector<unsigned> order;
    for (unsigned peer = 0; peer < rank.count(); ++peer) {
        if (peer != rank.index()) order.push_back(peer);
    }
    ucs::Random random(ucs::mix64(options.flow.seed) ^ rank.index());
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    if (options.peers != 0 && options.peers < order.size()) order.resize(options.peers);

    std::vector<PeerWeight> weights;
    for (size_t i = 0; i < order.size(); ++i) {
        weights.push_back({order[i], std::pow(static_cast<double>(i + 1), -options.exponent)});
    }
    return weights;
}

std::vector<PeerWeight> weights_of(const Rank& rank, const ShiftOptions& options, unsigned phase) {
    const auto hot = hot_peers(rank.index(), rank.count(), options.hot, phase);
    const size_t others = rank.count() - 1 - hot.size();
    std::vector<PeerWeight> weights;
    for (unsigned peer = 0; peer < rank.count(); ++peer) {
        if (peer == rank.index()) continue;
        if (std::ranges::find(hot, peer) != hot.end()) {
            weights.push_back({peer, (1 - options.background) / static_cast<double>(hot.size())});
        } else if (options.background > 0) {
            weights.push_back({peer, options.background / static_cast<double>(others)});
        }
    }
    return weights;
}

Task stream_to(Rank& rank, const StreamOptions& options, const std::vector<PeerWeight>& peers) {
    for (const PeerWeight& entry : peers) rank.connect(entry.peer);
    const std::function weights = [&](unsigned) { return peers; };
    co_await run_flow(rank, options.flow, 1, options.time, weights);
}

struct PacedPeer {
    unsigned peer;
    double rate;   // messages a second
    int64_t next;  // when the next one is due
};

// A message at a time, as a program does whose sends block, each peer's at its rate. The host is
// told how long each took.
Task send_paced(Rank& rank, uint64_t size, int64_t until, std::vector<PacedPeer> peers,
                uint64_t* messages) {
    const MessageBuffer buffer(size, 1);
    const auto message = buffer.slot(0, size);
    for (PacedPeer& each : peers) each.next = rank.host().now();
    while (true) {
        PacedPeer& next = *std::ranges::min_element(peers, {}, &PacedPeer::next);
        if (next.next >= until) break;
        co_await rank.sleep_until(next.next);
        next.next += static_cast<int64_t>(1e9 / next.rate);
        const int64_t begun = rank.host().now();
        Batch batch(rank);
        batch.send(next.peer, make_tag(MessageKind::kHot, rank.index()), message.data(),
                   message.size());
        co_await batch.done();
        rank.host().completed(rank.host().now() - begun);
        ++*messages;
    }
    co_await rank.sleep_until(until);
}

}  // namespace

Task zipf(Rank& rank, const ZipfOptions& options) {
    const std::function weights = [&](unsigned) { return weights_of(rank, options); };
    for (const PeerWeight& entry : weights(0)) rank.connect(entry.peer);
    co_await run_flow(rank, options.flow, 1, options.time, weights);
}

std::vector<unsigned> hot_peers(unsigned rank, unsigned ranks, unsigned hot, unsigned phase) {
    const unsigned distances = (ranks - 1) / 2;  // a distance of half the ring has one side only
    std::vector<unsigned> peers;
    for (unsigned i = 0; peers.size() < hot && i < distances; ++i) {
        const unsigned distance = 1 + (phase * ((hot + 1) / 2) + i) % distances;
        peers.push_back((rank + distance) % ranks);
        if (peers.size() < hot) peers.push_back((rank + ranks - distance) % ranks);
    }
    return peers;
}

Task shift(Rank& rank, const ShiftOptions& options) {
    for (unsigned step = 1; step < rank.count(); ++step) {
        rank.connect((rank.index() + step) % rank.count());
    }
    const std::function weights = [&](unsigned phase) { return weights_of(rank, options, phase); };
    co_await run_flow(rank, options.flow, options.phases, options.time, weights);
}

Task ring(Rank& rank, const StreamOptions& options) {
    const std::vector<PeerWeight> peers{{(rank.index() + 1) % rank.count(), 1}};
    co_await stream_to(rank, options, peers);
}

Task incast(Rank& rank, const StreamOptions& options) {
    std::vector<PeerWeight> peers;
    if (rank.index() != 0) peers.push_back({0, 1});
    co_await stream_to(rank, options, peers);
}

Task churn(Rank& rank, const StreamOptions& options) {
    const Sender sender = [&](int64_t start, uint64_t& messages) -> Task {
        Flow flow(rank, options.flow, messages);
        const unsigned others = rank.count() - 1;
        const int64_t time = options.time / options.rounds;
        for (unsigned round = 0; round < options.rounds; ++round) {
            const unsigned peer = (rank.index() + 1 + round % others) % rank.count();
            rank.connect(peer);
            std::vector<PeerWeight> peers{{peer, 1}};
            co_await flow.run(std::move(peers), start + (round + 1) * time);
            co_await rank.disconnect(peer);
        }
    };
    co_await run_sender(rank, options.flow, sender);
}

Task sleepers(Rank& rank, const StreamOptions& options) {
    const auto sleeps = [&options](unsigned index) {
        return index % options.stride == options.stride - 1;
    };
    const Sender sender = [&](int64_t start, uint64_t& messages) -> Task {
        const unsigned count = rank.count();
        std::vector<PacedPeer> hot;   // while all are awake
        std::vector<PacedPeer> rest;  // while some compute
        for (const unsigned peer :
             {(rank.index() + 1) % count, (rank.index() + count - 1) % count}) {
            const bool is_sleepy = sleeps(rank.index()) || sleeps(peer);
            const double quiet = static_cast<double>(options.quiet) * 1e9;
            rank.connect(peer);
            hot.push_back({peer, (is_sleepy ? 2 : 1) * options.rate, 0});
            rest.push_back(
                {peer, is_sleepy ? quiet / static_cast<double>(options.sleep) : 4 * options.rate,
                 0});
        }
        for (int64_t stretch = start; stretch < start + options.time;
             stretch += options.awake + options.sleep) {
            const int64_t begin = stretch + options.awake;
            co_await send_paced(rank, options.flow.size, begin, hot, &messages);
            if (sleeps(rank.index())) {
                co_await rank.compute(options.sleep);
            } else {
                co_await send_paced(rank, options.flow.size, begin + options.sleep, rest,
                                    &messages);
            }
        }
    };
    co_await run_sender(rank, options.flow, sender);
}

}  // namespace tools
