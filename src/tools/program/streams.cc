// SPDX-License-Identifier: BSD-3-Clause
#include "tools/program/streams.h"

#include <algorithm>

#include "tools/program/sink.h"

namespace tools {
namespace {

Sink::Options sink_options(const StreamOptions& options) {
    return {.stream = Stream::kHot,
            .max_size = options.flow.size,
            .seed = options.flow.seed,
            .verify = options.flow.verify,
            .depth = options.flow.window};
}

Task stream_to(Rank& rank, const StreamOptions& options, std::vector<PeerWeight> peers) {
    for (const PeerWeight& entry : peers) rank.connect(entry.peer);
    Sink sink(rank, sink_options(options));
    rank.spawn(sink.run());
    co_await rank.barrier();
    const int64_t start = rank.host().now();
    Flow flow(rank, options.flow);
    co_await flow.run(std::move(peers), start + options.time);
    rank.host().report({.size = options.flow.size,
                        .messages = flow.messages(),
                        .elapsed = rank.host().now() - start});
    co_await rank.barrier();
    co_await sink.stop();
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
        batch.send(next.peer, make_tag(Stream::kHot, rank.index()), message.data(), message.size());
        co_await batch.done();
        rank.host().completed(rank.host().now() - begun);
        ++*messages;
    }
    co_await rank.sleep_until(until);
}

}  // namespace

Task ring(Rank& rank, const StreamOptions& options) {
    std::vector<PeerWeight> peers;
    peers.push_back({(rank.index() + 1) % rank.count(), 1});
    co_await stream_to(rank, options, std::move(peers));
}

Task incast(Rank& rank, const StreamOptions& options) {
    std::vector<PeerWeight> peers;
    if (rank.index() != 0) peers.push_back({0, 1});
    co_await stream_to(rank, options, std::move(peers));
}

Task churn(Rank& rank, const StreamOptions& options) {
    Sink sink(rank, sink_options(options));
    rank.spawn(sink.run());
    co_await rank.barrier();
    const int64_t start = rank.host().now();
    Flow flow(rank, options.flow);
    const unsigned others = rank.count() - 1;
    for (unsigned round = 0; round < options.rounds; ++round) {
        const unsigned peer = (rank.index() + 1 + round % others) % rank.count();
        rank.connect(peer);
        std::vector<PeerWeight> peers{{peer, 1}};
        co_await flow.run(std::move(peers), start + (round + 1) * (options.time / options.rounds));
        co_await rank.disconnect(peer);
    }
    rank.host().report({.size = options.flow.size,
                        .messages = flow.messages(),
                        .elapsed = rank.host().now() - start});
    co_await rank.barrier();
    co_await sink.stop();
}

Task sleepers(Rank& rank, const StreamOptions& options) {
    Sink sink(rank, sink_options(options));
    rank.spawn(sink.run());
    co_await rank.barrier();
    const int64_t start = rank.host().now();
    uint64_t messages = 0;
    const auto sleeps = [&options](unsigned index) {
        return index % options.stride == options.stride - 1;
    };
    const unsigned count = rank.count();
    std::vector<PacedPeer> hot;   // while all are awake
    std::vector<PacedPeer> rest;  // while some compute
    for (const unsigned peer : {(rank.index() + 1) % count, (rank.index() + count - 1) % count}) {
        const bool is_sleepy = sleeps(rank.index()) || sleeps(peer);
        const double quiet = static_cast<double>(options.quiet) * 1e9;
        rank.connect(peer);
        hot.push_back({peer, (is_sleepy ? 2 : 1) * options.rate, 0});
        rest.push_back(
            {peer, is_sleepy ? quiet / static_cast<double>(options.sleep) : 4 * options.rate, 0});
    }
    for (int64_t stretch = start; stretch < start + options.time;
         stretch += options.awake + options.sleep) {
        const int64_t begin = stretch + options.awake;
        co_await send_paced(rank, options.flow.size, begin, hot, &messages);
        if (sleeps(rank.index())) {
            co_await rank.compute(options.sleep);
        } else {
            co_await send_paced(rank, options.flow.size, begin + options.sleep, rest, &messages);
        }
    }
    rank.host().report(
        {.size = options.flow.size, .messages = messages, .elapsed = rank.host().now() - start});
    co_await rank.barrier();
    co_await sink.stop();
}

}  // namespace tools
