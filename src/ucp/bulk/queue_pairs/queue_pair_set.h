// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ucp/bulk/queue_pairs/negotiation.h"
#include "ucp/bulk/queue_pairs/review.h"
#include "ucp/context/queue_pair_budget.h"
#include "ucp/mem/remote_memory.h"
#include "ucs/sys/time.h"
#include "uct/api/interface.h"

namespace ucp {

class Endpoint;

namespace bulk {

class Path;
class QueuePairDriver;
class QueuePairSet;

// Who sends a QueuePairMessage; it follows.
struct QueuePairHeader {
    uint64_t sender;  // uuid
    uint64_t worth;   // of the sender's transfers on this endpoint, nanoseconds a second

    // All adapters of a host, busy all the time: who says more is not believed.
    static constexpr uint64_t kMostWorth = 100'000'000'000;
};

// A dedicated queue pair beside an endpoint's lane, for bulk transfers.
struct BulkQueuePair {
    QueuePairSet* set;  // null: gone before the path
    uint8_t rail;       // its place in the message that offered it
    uint8_t place;      // among those of its rail
    unsigned interface;
    DomainPair domains;
    QueuePairBudget::Share share;
    std::unique_ptr<uct::Endpoint> transport;  // null: failed
    Path* path = nullptr;
};

// The queue pairs of one endpoint.
class QueuePairSet final : public QueuePairActions {
  public:
    QueuePairSet(QueuePairDriver& driver, Endpoint& endpoint);

    void send(const QueuePairMessage& message) override;
    uint32_t new_epoch() override;
    std::vector<std::byte> make_queue_pairs() override;
    std::vector<std::byte> answer_offer(std::span<const std::byte> offered) override;
    bool connect_queue_pairs(std::span<const std::byte> granted) override;
    void start_posting() override;
    void stop_posting() override;
    void destroy_queue_pairs() override;

    // Its queue pairs are of scalable interfaces, and its lane is there as long as the endpoint. Of
    // several endpoints to a peer one has them.
    bool is_beside_scalable_lane() const;
    void path_gone(BulkQueuePair& queue_pair);
    // One of its queue pairs is no more.
    void queue_pair_lost();
    BulkQueuePair* find(uint64_t name);
    // A lane lacks what one of its queue pairs takes.
    bool is_wanted() const;
    // How long in each second this end's transfers keep their device busy, in nanoseconds, by what
    // began since the last calls.
    double worth(ucs::Time now);
    // Where there are not enough for all endpoints; worth of both ends.
    Claim claim(ucs::Time now);
    // A change is to show before the next one. Each that did not bring all that was due doubles the
    // time to the next.
    void rest(ucs::Time now);
    void has_its_due();
    void ask_for_worth();
    // The peer has none for this endpoint: it is the one to ask when that has changed.
    void refused() { peer_most_ = 0; }
    void peer_has_room() { peer_most_ = UINT32_MAX; }
    uint64_t name_of(const BulkQueuePair& queue_pair) const {
        return uint64_t{negotiation.epoch()} << 16 | uint64_t{queue_pair.rail} << 8 |
               queue_pair.place;
    }
    Endpoint& endpoint() const { return endpoint_; }

    QueuePairNegotiation negotiation;
    std::vector<std::unique_ptr<BulkQueuePair>> queue_pairs;
    ucs::Time answer_due = ucs::kNever;  // once the peer was asked; an answer ends it
    double peer_worth = 0;               // as it said last
    bool is_asked = false;               // what it is now: no answer yet

  private:
    // A device of this worker's that reaches one of the peer's.
    struct Rail {
        unsigned interface;
        DomainPair domains;
    };
    std::vector<Rail> rails() const;
    BulkQueuePair* make(unsigned index, const Rail& rail);
    bool connect(BulkQueuePair& queue_pair, std::span<const std::byte> device,
                 std::span<const std::byte> address);
    std::vector<RailAddresses> describe(std::span<const Rail> rails) const;
    void idle_if_done();

    QueuePairDriver& driver_;
    Endpoint& endpoint_;
    // Whether it got fewer than it wants is the driver's business.
    void tell_if_short();

    // What it would have if there were enough at this end.
    unsigned full() const;
    // A device has more for it.
    bool can_grow() const;

    bool is_stopping_ = false;
    unsigned peer_most_ = UINT32_MAX;  // that the peer had room for
    double worth_ = 0;
    uint64_t measured_ = 0;  // bytes begun until
    ucs::Time measured_at_;
    ucs::Time rests_until_{};
    ucs::Duration rest_;
};

}  // namespace bulk
}  // namespace ucp
