// SPDX-License-Identifier: BSD-3-Clause
#include "tools/program/patterns.h"

#include <bit>
#include <cstring>

#include "tools/program/verify.h"

namespace tools {
namespace {

class Exchange {
  public:
    Exchange(Rank& rank, const BenchOptions& options)
        : rank_(rank),
          options_(options),
          out_(options.size_max, rank.count(), options.device),
          in_(options.size_max, rank.count(), options.device),
          sent_(rank.count(), SequenceCheck(options.seed, MessageKind::kHot, options.device)),
          received_(rank.count(), SequenceCheck(options.seed, MessageKind::kHot, options.device)) {}

    void keep_own(std::span<std::byte> to, std::span<const std::byte> from) const {
        if (options_.device != nullptr) {
            options_.device->copy(to.data(), from.data(), to.size());
        } else {
            std::memcpy(to.data(), from.data(), to.size());
        }
    }

    Task run(uint64_t size) {
        const unsigned self = rank_.index();
        keep_own(in_.slot(self, size), out_.slot(self, size));
        for (unsigned step = 1; step < rank_.count(); ++step) {
            const auto [to, from] = partners(step);
            const auto message = out_.slot(to, size);
            if (options_.verify) sent_[to].fill(message, self, to);
            Batch batch(rank_);
            batch.receive(make_tag(MessageKind::kHot, from), kExactTag, in_.slot(from, size).data(),
                          size);
            batch.send(to, make_tag(MessageKind::kHot, self), message.data(), size);
            co_await batch.done();
            if (options_.verify) received_[from].check(in_.slot(from, size), from, self);
        }
        rank_.host().progressed(rank_.count() - 1);
    }

  private:
    struct Partners {
        unsigned to, from;
    };

    // With a power of two, ranks swap in pairs; else each step is a ring.
    Partners partners(unsigned step) const {
        const unsigned self = rank_.index();
        const unsigned count = rank_.count();
        if (std::has_single_bit(count)) return {self ^ step, self ^ step};
        return {(self + step) % count, (self + count - step) % count};
    }

    Rank& rank_;
    const BenchOptions& options_;
    MessageBuffer out_;
    MessageBuffer in_;
    std::vector<SequenceCheck> sent_;
    std::vector<SequenceCheck> received_;
};

// All ranks must run the same number of exchanges, so rank 0 says how many more.
Task agree(Rank& rank, uint64_t* rounds) {
    Batch batch(rank);
    if (rank.index() == 0) {
        for (unsigned peer = 1; peer < rank.count(); ++peer) {
            batch.send(peer, make_tag(MessageKind::kControl, 0), rounds, sizeof(*rounds));
        }
    } else {
        batch.receive(make_tag(MessageKind::kControl, 0), kExactTag, rounds, sizeof(*rounds));
    }
    co_await batch.done();
}

Task run_rounds(Rank& rank, Exchange& exchange, uint64_t size, Pacer pacer, Sample* sample) {
    const int64_t start = rank.host().now();
    uint64_t rounds = 0;
    for (;;) {
        uint64_t more = pacer.next(rank.host().now() - start, rounds);
        co_await agree(rank, &more);
        if (more == 0) break;
        for (uint64_t i = 0; i < more; ++i) co_await exchange.run(size);
        rounds += more;
        sample->elapsed = rank.host().now() - start;
    }
    sample->rounds = rounds;
    sample->messages = rounds * (rank.count() - 1);
}

}  // namespace

Task alltoall(Rank& rank, const BenchOptions& options) {
    for (unsigned step = 1; step < rank.count(); ++step) {
        rank.connect((rank.index() + step) % rank.count());
    }
    Exchange exchange(rank, options);
    bool settled = options.settle == 0;
    for (const uint64_t size : options.sizes()) {
        co_await rank.barrier();
        Sample sample{.size = size};
        for (const Pacer& pacer : options.pacers(settled)) {
            co_await run_rounds(rank, exchange, size, pacer, &sample);
        }
        settled = true;
        rank.host().report(sample);
    }
    co_await rank.barrier();
}

}  // namespace tools
