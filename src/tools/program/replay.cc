// SPDX-License-Identifier: BSD-3-Clause
#include "tools/program/replay.h"

namespace tools {

Task replay(Rank& rank, const ReplayOptions& options) {
    const std::vector<Trace::Step>& steps = options.trace.ranks[rank.index()];
    for (const Trace::Step& step : steps) {
        if (step.kind == Trace::Step::Kind::kSend) rank.connect(step.peer);
    }
    // What the messages hold is of no interest.
    std::vector<char> out(options.trace.largest), in(options.trace.largest);
    co_await rank.barrier();
    const int64_t start = rank.host().now();
    uint64_t messages = 0;
    Batch batch(rank);
    for (const Trace::Step& step : steps) {
        switch (step.kind) {
            case Trace::Step::Kind::kSend:
                batch.send(step.peer, make_tag(Stream::kHot, rank.index()), out.data(), step.size);
                ++messages;
                break;
            case Trace::Step::Kind::kReceive:
                batch.receive(make_tag(Stream::kHot, step.peer), kExactTag, in.data(), step.size);
                break;
            case Trace::Step::Kind::kWait:
                co_await batch.done();
                break;
            case Trace::Step::Kind::kBarrier:
                co_await rank.barrier();
                break;
            case Trace::Step::Kind::kCompute:
                co_await rank.compute(step.time);
                break;
        }
    }
    co_await batch.done();
    rank.host().report({.size = options.trace.largest,
                        .messages = messages,
                        .elapsed = messages == 0 ? 0 : rank.host().now() - start});
    co_await rank.barrier();
}

}  // namespace tools
