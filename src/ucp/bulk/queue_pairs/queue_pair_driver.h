// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ucp/bulk/engine/engine.h"
#include "ucp/bulk/engine/path_owner.h"
#include "ucp/bulk/queue_pairs/negotiation.h"
#include "ucp/bulk/queue_pairs/review.h"
#include "ucp/context/queue_pair_budget.h"
#include "ucp/endpoint/endpoint_table.h"
#include "ucp/runtime/deferred_work.h"
#include "ucp/runtime/interface_set.h"
#include "ucs/sys/time.h"
#include "uct/api/interface.h"

namespace ucp {
namespace bulk {

class QueuePairSet;
struct BulkQueuePair;

// Makes, connects and destroys the queue pairs of a worker's promoted endpoints, as their
// negotiations decide, and hands them to the engine as paths.
//
// Messages and events are put aside and looked at in run_deferred(), so that nothing here happens
// within a call of a transport. Every queue pair counts from its making to its destruction.
class QueuePairDriver final : public PathOwner, public QueuePairProvider {
  public:
    struct Options {
        unsigned each;                 // queue pairs of a rail; 0: none are ever made
        unsigned total;                // with the worker's lanes; UINT32_MAX: any number
        unsigned lane_cap;             // dedicated lanes that the worker may have: they come first
        ucs::Duration answer_timeout;  // of peers
        uint32_t epoch;                // of the first round
    };

    QueuePairDriver(DeferredWork& work, InterfaceSet& interfaces, EndpointTable& endpoints,
                    Engine& engine, const ucs::Clock& clock, const Options& options);
    ~QueuePairDriver();
    QueuePairDriver(const QueuePairDriver&) = delete;

    // --- events of the worker, its lanes and the engine ---

    void lane_changed(Endpoint& endpoint, bool is_established);
    // Those beside scalable lanes, which nobody takes down, are given back in agreement with the
    // peer: the endpoint's, all.
    void withdraw(const Endpoint& endpoint);
    void withdraw();
    void endpoint_failed(Endpoint& endpoint) { drop(endpoint); }
    // The endpoint's memory goes.
    void forget(Endpoint& endpoint) { drop(endpoint); }
    void run_deferred();
    // Peers that keep an end waiting are asked whether they are still there.
    void advance(ucs::Time now);
    ucs::Time next_deadline() const { return std::min(tick_, review_at_); }

    // --- questions ---

    // Queue pairs that are there now, and the most that were there at any time.
    unsigned held() const { return held_; }
    unsigned peak_held() const { return peak_held_; }
    bool holds(const Endpoint& endpoint) const;
    // Call visit(interface index) for each queue pair that takes part in transfers.
    template <typename Visit>
    void for_each(const Endpoint& endpoint, Visit&& visit) const {
        for (const unsigned interface : interfaces_of(endpoint)) visit(interface);
    }

    // --- for the sets of queue pairs ---

    const InterfaceSet& interfaces() const { return interfaces_; }
    Engine& engine() const { return engine_; }
    // Can an endpoint have queue pairs of that interface?
    bool serves(unsigned interface) const;
    // How many, if there are enough.
    unsigned wanted_of(unsigned interface) const;
    // How many queue pairs an endpoint may have now, beside those that it has.
    unsigned room_of(QueuePairSet& set) const;
    ucs::Time now() const { return clock_.now(); }
    // An endpoint has fewer than it wants: from now on they go to whom they bring most.
    void review_soon();
    // @param share  becomes its part of the context's budget
    std::unique_ptr<uct::Endpoint> make_transport(unsigned interface,
                                                  QueuePairBudget::Share& share);
    void destroy_transport(BulkQueuePair& queue_pair);
    // Not 0, and none that was used before.
    uint32_t new_epoch();
    // The peer's next step is waited for: advance() looks after it.
    void await_peer();
    // Hand it to the engine.
    void add_path(Endpoint& endpoint, BulkQueuePair& queue_pair, double weight);
    // Its set is gone, its path is not yet.
    void keep_orphan(std::unique_ptr<BulkQueuePair> queue_pair);

    // --- PathOwner ---
    void path_failed(Path& path, ucs_status_t status) override;
    void path_gone(Path& path) override;

    // --- QueuePairProvider ---
    void wanted(Endpoint& endpoint) override;
    void transports_failed(std::span<const uct::Endpoint* const> transports) override;
    void revoke_queue_pair(uint64_t peer, uint64_t name) override;

  private:
    struct Event {
        enum class Kind : uint8_t { kWanted, kUp, kDown, kMessage };
        Kind kind;
        Endpoint* endpoint;
        QueuePairMessage message;
        double worth = 0;  // kMessage: of the peer's transfers
    };

    static ucs_status_t on_message(void* worker, void* data, size_t length,
                                   uct::ReceiveDescriptor* descriptor);
    void put_aside(Event event);
    void handle(const Event& event);
    // The endpoint to that peer that a message of that round is for; null: nobody is known.
    Endpoint* find_round(uint64_t peer, uint32_t epoch) const;
    QueuePairSet& set_of(Endpoint& endpoint);
    void give_way();
    // Queue pairs that bulk may have at most, those that there are included; UINT32_MAX: any
    // number.
    unsigned limit() const;
    // Those of them that no other worker of the process has.
    unsigned total() const;
    // All that take part in a review, with their claims.
    std::vector<std::pair<QueuePairSet*, Claim>> claims() const;
    void review(ucs::Time now);
    void drop(Endpoint& endpoint);
    std::vector<unsigned> interfaces_of(const Endpoint& endpoint) const;

    DeferredWork& work_;
    InterfaceSet& interfaces_;
    EndpointTable& endpoints_;
    Engine& engine_;
    const ucs::Clock& clock_;
    const Options options_;
    std::map<uint64_t, std::unique_ptr<QueuePairSet>> sets_;  // by Endpoint::serial()
    std::unordered_map<const Path*, BulkQueuePair*> by_path_;
    std::vector<std::unique_ptr<BulkQueuePair>> orphans_;
    std::vector<Event> events_;
    uint32_t epoch_;
    ucs::Time tick_ = ucs::kNever;       // when sets that await their peer are looked at
    ucs::Time review_at_ = ucs::kNever;  // kNever: there are enough for all
    unsigned held_ = 0;
    unsigned peak_held_ = 0;
};

}  // namespace bulk
}  // namespace ucp
