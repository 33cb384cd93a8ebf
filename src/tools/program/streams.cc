// SPDX-License-Identifier: BSD-3-Clause
#include "tools/program/streams.h"

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

std::vector<unsigned> neighbours_of(const Rank& rank) {
    const unsigned count = rank.count();
    return {(rank.index() + 1) % count, (rank.index() + count - 1) % count};
}

// The awake send to their neighbours whatever those do.
Task send_steadily(Rank& rank, const StreamOptions& options, uint64_t* messages) {
    const std::vector<unsigned> peers = neighbours_of(rank);
    for (const unsigned peer : peers) rank.connect(peer);
    const MessageBuffer buffer(options.flow.size, 1);
    const auto message = buffer.slot(0, options.flow.size);
    const int64_t start = rank.host().now();
    const auto total =
        static_cast<uint64_t>(static_cast<double>(options.time) * options.rate / 1e9);
    for (uint64_t step = 0; step < total; ++step) {
        const double due = static_cast<double>(step) * 1e9 / options.rate;
        co_await rank.sleep_until(start + static_cast<int64_t>(due));
        for (const unsigned peer : peers) {
            const int64_t begun = rank.host().now();
            Batch batch(rank);
            batch.send(peer, make_tag(Stream::kHot, rank.index()), message.data(), message.size());
            co_await batch.done();
            rank.host().completed(rank.host().now() - begun);
            ++*messages;
        }
    }
}

Task compute_mostly(Rank& rank, const StreamOptions& options) {
    const int64_t end = rank.host().now() + options.time;
    while (rank.host().now() < end) {
        co_await rank.compute(options.sleep);
        co_await rank.yield();
    }
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
    if (rank.index() % options.stride == options.stride - 1) {
        co_await compute_mostly(rank, options);
    } else {
        co_await send_steadily(rank, options, &messages);
    }
    rank.host().report(
        {.size = options.flow.size, .messages = messages, .elapsed = rank.host().now() - start});
    co_await rank.barrier();
    co_await sink.stop();
}

}  // namespace tools
