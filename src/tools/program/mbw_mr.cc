// SPDX-License-Identifier: BSD-3-Clause
#include "tools/program/patterns.h"

#include <optional>

#include "tools/program/message_sink.h"
#include "tools/program/verify.h"

namespace tools {
namespace {

// One message to each of the unused peers now and then, beside the hot traffic. It does not wait
// for its messages before the next round is due.
class Trickle {
  public:
    Trickle(Rank& rank, const BenchOptions& options, std::vector<unsigned> peers)
        : rank_(rank),
          options_(options),
          peers_(std::move(peers)),
          batch_(rank),
          buffer_(options.size_max, options.verify ? static_cast<unsigned>(peers_.size()) : 1),
          sequences_(peers_.size(), SequenceCheck(options.seed, MessageKind::kTrickle)) {}

    // Count hot messages. @return whether a round is due
    bool due(uint64_t hot_messages) {
        if (options_.trickle == 0 || peers_.empty()) return false;
        since_last_ += hot_messages;
        return since_last_ >= options_.trickle;
    }
    Task send(uint64_t size) {
        since_last_ -= options_.trickle;
        co_await batch_.done();
        for (unsigned i = 0; i < peers_.size(); ++i) {
            const auto message = buffer_.slot(options_.verify ? i : 0, size);
            if (options_.verify) sequences_[i].fill(message, rank_.index(), peers_[i]);
            batch_.send(peers_[i], make_tag(MessageKind::kTrickle, rank_.index()), message.data(),
                        size);
        }
    }
    auto finish() { return batch_.done(); }

  private:
    Rank& rank_;
    const BenchOptions& options_;
    const std::vector<unsigned> peers_;
    uint64_t since_last_ = 0;
    Batch batch_;
    MessageBuffer buffer_;
    std::vector<SequenceCheck> sequences_;  // as peers_
};

class Pair {
  public:
    Pair(Rank& rank, const BenchOptions& options, unsigned partner, Trickle& trickle)
        : rank_(rank),
          options_(options),
          partner_(partner),
          trickle_(trickle),
          buffer_(options.size_max, options.verify ? options.window : 1, options.device),
          sequence_(options.seed, MessageKind::kHot, options.device) {}

    // Windows until the pacer has enough; the receiver is told how many to expect.
    Task send(uint64_t size, Pacer pacer, Sample* sample) {
        Batch batch(rank_);
        const int64_t start = rank_.host().now();
        uint64_t windows = 0;
        for (;;) {
            uint64_t more = pacer.next(rank_.host().now() - start, windows);
            batch.send(partner_, make_tag(MessageKind::kControl, rank_.index()), &more,
                       sizeof(more));
            if (more == 0) break;
            for (uint64_t i = 0; i < more; ++i) co_await send_window(size, batch);
            windows += more;
        }
        sample->elapsed = rank_.host().now() - start;
        sample->messages = windows * options_.window;
        co_await batch.done();
    }

    Task receive(uint64_t size) {
        for (;;) {
            Batch batch(rank_);
            uint64_t more = 0;
            batch.receive(make_tag(MessageKind::kControl, partner_), kExactTag, &more,
                          sizeof(more));
            co_await batch.done();
            if (more == 0) co_return;
            for (uint64_t i = 0; i < more; ++i) co_await receive_window(size, batch);
        }
    }

  private:
    Task send_window(uint64_t size, Batch& batch) {
        const ucp_tag_t tag = make_tag(MessageKind::kHot, rank_.index());
        for (unsigned i = 0; i < options_.window; ++i) {
            const auto message = buffer_.slot(options_.verify ? i : 0, size);
            if (options_.verify) sequence_.fill(message, rank_.index(), partner_);
            batch.send(partner_, tag, message.data(), size);
        }
        uint32_t acknowledgement = 0;
        batch.receive(make_tag(MessageKind::kAck, partner_), kExactTag, &acknowledgement,
                      sizeof(acknowledgement));
        if (trickle_.due(options_.window)) co_await trickle_.send(size);
        co_await batch.done();
        rank_.host().progressed(options_.window);
    }

    Task receive_window(uint64_t size, Batch& batch) {
        const ucp_tag_t tag = make_tag(MessageKind::kHot, partner_);
        for (unsigned i = 0; i < options_.window; ++i) {
            const auto message = buffer_.slot(options_.verify ? i : 0, size);
            batch.receive(tag, kExactTag, message.data(), size);
        }
        co_await batch.done();
        if (options_.verify) {
            for (unsigned i = 0; i < options_.window; ++i) {
                sequence_.check(buffer_.slot(i, size), partner_, rank_.index());
            }
        }
        const uint32_t acknowledgement = 1;
        batch.send(partner_, make_tag(MessageKind::kAck, rank_.index()), &acknowledgement,
                   sizeof(acknowledgement));
        co_await batch.done();
    }

    Rank& rank_;
    const BenchOptions& options_;
    const unsigned partner_;
    Trickle& trickle_;
    MessageBuffer buffer_;
    SequenceCheck sequence_;
};

// Sender, receiver or neither.
struct Role {
    bool sends = false;
    std::optional<unsigned> partner;
};

Role role_of(unsigned rank, unsigned pairs) {
    if (rank < pairs) return {true, rank + pairs};
    if (rank < 2 * pairs) return {false, rank - pairs};
    return {};
}

std::vector<unsigned> unused_peers(const Rank& rank, const Role& role, unsigned wanted) {
    std::vector<unsigned> peers;
    for (unsigned step = 1; step < rank.count() && peers.size() < wanted; ++step) {
        const unsigned peer = (rank.index() + step) % rank.count();
        if (peer != role.partner) peers.push_back(peer);
    }
    return peers;
}

}  // namespace

Task mbw_mr(Rank& rank, const BenchOptions& options) {
    const Role role = role_of(rank.index(), options.hot_pairs());
    if (role.partner) rank.connect(*role.partner);
    const std::vector<unsigned> unused = unused_peers(rank, role, options.unused);
    for (const unsigned peer : unused) rank.connect(peer);

    Trickle trickle(rank, options, role.sends ? unused : std::vector<unsigned>());
    MessageSink sink(rank, {.stream = MessageKind::kTrickle,
                            .max_size = options.size_max,
                            .seed = options.seed,
                            .verify = options.verify});
    rank.spawn(sink.run());
    Pair pair(rank, options, role.partner.value_or(rank.index()), trickle);

    bool settled = options.settle == 0;
    for (const uint64_t size : options.sizes()) {
        co_await rank.barrier();
        Sample sample{.size = size};
        for (const Pacer& pacer : options.pacers(settled)) {
            if (!role.partner) break;
            if (role.sends) {
                co_await pair.send(size, pacer, &sample);
            } else {
                co_await pair.receive(size);
            }
        }
        settled = true;
        rank.host().report(sample);
    }
    co_await trickle.finish();
    co_await rank.barrier();
    co_await sink.stop();
}

}  // namespace tools
