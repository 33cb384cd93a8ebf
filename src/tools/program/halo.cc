// SPDX-License-Identifier: BSD-3-Clause
#include "tools/program/flow.h"

#include <algorithm>
#include <deque>
#include <vector>

#include "tools/program/verify.h"
#include "ucs/sys/random.h"

namespace tools {
namespace {

constexpr unsigned kBulkWindow = 2;
constexpr int64_t kLookInterval = 100'000;  // nanoseconds between looks at the end of the stream

uint64_t count_in(int64_t time, double rate) {
    return static_cast<uint64_t>(static_cast<double>(time) * rate / 1e9);
}

int64_t time_of(uint64_t index, double rate) {
    return static_cast<int64_t>(static_cast<double>(index) * 1e9 / rate);
}

class Neighbours {
  public:
    Neighbours(Rank& rank, const HaloOptions& options)
        : rank_(rank), options_(options), out_(options.size, 1) {
        const unsigned count = rank.count();
        for (unsigned distance = 1; distance <= options.distance; ++distance) {
            add((rank.index() + distance) % count, distance);
            add((rank.index() + count - distance) % count, distance);
        }
        for (const Neighbour& each : neighbours_) {
            rank.connect(each.peer);
            in_.emplace_back(options.size, 1);
        }
    }

    // `steps` of them, paced from now on.
    Task run(uint64_t steps) {
        const int64_t start = rank_.host().now();
        for (uint64_t step = 0; step < steps; ++step) {
            co_await rank_.sleep_until(start + time_of(step, options_.rate));
            Batch batch(rank_);
            for (size_t i = 0; i < neighbours_.size(); ++i) {
                const Neighbour& each = neighbours_[i];
                if (step % each.distance != 0) continue;
                batch.receive(make_tag(MessageKind::kHot, each.peer), kExactTag,
                              in_[i].slot(0, options_.size).data(), options_.size);
                batch.send(each.peer, make_tag(MessageKind::kHot, rank_.index()),
                           out_.slot(0, options_.size).data(), options_.size);
                ++messages_;
            }
            co_await batch.done();
        }
    }

    uint64_t messages() const { return messages_; }

  private:
    struct Neighbour {
        unsigned peer, distance;
    };

    void add(unsigned peer, unsigned distance) {
        const auto is_peer = [peer](const Neighbour& each) { return each.peer == peer; };
        if (peer != rank_.index() && std::ranges::none_of(neighbours_, is_peer)) {
            neighbours_.push_back({peer, distance});
        }
    }

    Rank& rank_;
    const HaloOptions& options_;
    std::vector<Neighbour> neighbours_;
    MessageBuffer out_;
    std::deque<MessageBuffer> in_;
    uint64_t messages_ = 0;
};

// A stream of large messages from one rank to another.
class Bulk {
  public:
    Bulk(Rank& rank, const HaloOptions& options) : rank_(rank), options_(options) {
        const unsigned half = rank.count() / 2;
        sends_ = rank.index() < half;
        const bool takes_part = rank.index() < 2 * half;
        messages_ = takes_part ? count_in(options.time, options.bulk_rate) : 0;
        if (!takes_part) return;
        partner_ = sends_ ? rank.index() + half : rank.index() - half;
        rank.connect(partner_);
        buffer_.resize(options.bulk_size);
    }

    Task run() {
        const int64_t start = rank_.host().now();
        Batch batch(rank_);
        for (uint64_t message = 0; message < messages_; ++message) {
            co_await batch.at_most(kBulkWindow - 1);
            if (sends_) {
                co_await rank_.sleep_until(start + time_of(message, options_.bulk_rate));
                batch.send(partner_, make_tag(MessageKind::kTrickle, rank_.index()), buffer_.data(),
                           buffer_.size());
            } else {
                batch.receive(make_tag(MessageKind::kTrickle, partner_), kExactTag, buffer_.data(),
                              buffer_.size());
            }
        }
        co_await batch.done();
        done_ = true;
    }

    bool is_done() const { return done_; }

  private:
    Rank& rank_;
    const HaloOptions& options_;
    bool sends_ = false;
    bool done_ = false;
    unsigned partner_ = 0;
    uint64_t messages_ = 0;
    std::vector<char> buffer_;
};

// Times that no two phases or ranks share but by chance.
int64_t draw_compute(const HaloOptions& options, unsigned rank, unsigned phase) {
    ucs::Random common(ucs::mix64(options.seed) ^ phase);
    ucs::Random own(ucs::mix64(options.seed + 1) ^ (uint64_t{phase} << 32 | rank));
    const auto least = static_cast<double>(options.compute_min);
    const double span = static_cast<double>(options.compute_max) - least;
    const double time = least + span * common.uniform();
    return static_cast<int64_t>(time * (1 - 0.1 * own.uniform()));
}

}  // namespace

Task halo(Rank& rank, const HaloOptions& options) {
    Neighbours neighbours(rank, options);
    Bulk bulk(rank, options);
    co_await rank.barrier();
    const int64_t start = rank.host().now();
    rank.spawn(bulk.run());
    co_await neighbours.run(count_in(options.time, options.rate));
    while (!bulk.is_done()) co_await rank.sleep_until(rank.host().now() + kLookInterval);
    rank.host().report({.size = options.size,
                        .messages = neighbours.messages(),
                        .elapsed = rank.host().now() - start});
    co_await rank.barrier();
}

Task phases(Rank& rank, const HaloOptions& options) {
    Neighbours neighbours(rank, options);
    co_await rank.barrier();
    int64_t elapsed = 0;
    for (unsigned phase = 0; phase < options.phases; ++phase) {
        co_await rank.compute(draw_compute(options, rank.index(), phase));
        const int64_t start = rank.host().now();
        co_await neighbours.run(count_in(options.time, options.rate));
        elapsed += rank.host().now() - start;
    }
    rank.host().report(
        {.size = options.size, .messages = neighbours.messages(), .elapsed = elapsed});
    co_await rank.barrier();
}

}  // namespace tools
