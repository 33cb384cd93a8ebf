// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <unordered_map>

#include "uct/base/pending_queue.h"
#include "uct/ib/base/ib_interface.h"

namespace uct::ib {

class RcEndpoint;

// rc_mlx5 and rc_verbs as the domain of an adapter opens them.
extern const Transport rc_mlx5, rc_verbs;

// rc_mlx5 and rc_verbs: dedicated endpoints, one queue pair each.
class RcInterface final : public IbInterface {
  public:
    // @param is_extended  work requests are posted with ibv_wr_*: rc_mlx5
    static ucs_status_t open(IbDomain& domain, bool is_extended, const TransportConfig& config,
                             const InterfaceParams& params, std::unique_ptr<Interface>* interface);

    bool is_reachable(const RemoteAddress& remote) const override;
    ucs_status_t create_endpoint(const RemoteAddress& remote,
                                 std::unique_ptr<Endpoint>* endpoint) override;
    ucs_status_t flush(Completion* completion) override;

    bool is_extended() const { return is_extended_; }
    PendingQueue& pending() { return pending_; }

    void add(RcEndpoint& endpoint, uint32_t qp_number);
    void remove(RcEndpoint& endpoint, uint32_t qp_number);
    // An endpoint's gate was set or removed: arrivals are looked up while there is one.
    void count_gates(int change) { gates_ += change; }
    // It owes its peer a grant and had no room to send it.
    void owe_grant(RcEndpoint& endpoint) { owing_.push_back(&endpoint); }
    // Changed by endpoints that stop for want of a grant, and go on.
    void count_waiting(int change) { waiting_for_grant_ += change; }

  private:
    RcInterface(IbDomain& domain, bool is_extended, const TransportConfig& config,
                const InterfaceParams& params);

    void received(const ibv_wc& completion, ReceiveBuffer* buffer) override;
    void become_message(ibv_wc& completion) override;
    bool after_poll() override;
    RcEndpoint* find(uint32_t qp_number) {
        Recent& recent = recent_[qp_number % kRecent];
        return recent.number == qp_number && recent.endpoint != nullptr ? recent.endpoint
                                                                        : find_slow(qp_number);
    }
    RcEndpoint* find_slow(uint32_t qp_number);
    PeerIdentity* sender_of_kept(uint32_t qp_number);

    const bool is_extended_;
    PendingQueue pending_;
    // Where endpoints are found for each message: one of those whose numbers share a place.
    struct Recent {
        uint32_t number = 0;
        RcEndpoint* endpoint = nullptr;
    };
    static constexpr size_t kRecent = 64;

    std::unordered_map<uint32_t, RcEndpoint*> endpoints_;
    std::array<Recent, kRecent> recent_{};
    // Of endpoints that are gone and have messages that were kept.
    std::unordered_map<uint32_t, PeerIdentity> departed_;
    std::vector<RcEndpoint*> owing_;
    int gates_ = 0;
    int waiting_for_grant_ = 0;
};

}  // namespace uct::ib
