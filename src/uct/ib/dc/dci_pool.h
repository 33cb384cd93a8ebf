// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <vector>

#include "ucs/config/values.h"
#include "uct/base/pending_queue.h"
#include "uct/ib/base/send_queue.h"

namespace uct::ib {

class DcEndpoint;
class DciPool;
class IbInterface;

enum class TxPolicy : uint8_t { kDcs, kDcsQuota, kRand };

struct DcConfig {
    unsigned num_dci;
    TxPolicy tx_policy;
    unsigned tx_quota;
};

// A DC initiator. It reaches one target at a time; changing it costs the adapter a connect.
class Dci final : private SendQueueOwner {
  public:
    Dci(DciPool& pool, IbInterface& interface, uint16_t index, unsigned moderation);
    ~Dci();
    // The initiator of a queue that DciPool gave.
    static Dci& of(SendQueue& queue) { return static_cast<Dci&>(queue.owner()); }

    SendQueue queue;
    const uint16_t index;
    bool is_ready = false;        // listed to be served after polling
    bool is_free = false;         // in the pool's list
    unsigned used = 0;            // work requests since its owner got it
    DcEndpoint* owner = nullptr;  // policies dcs; null too when the endpoint is gone
    DcTarget last_target;
    PendingQueue waiting;  // endpoints that wait for room on this initiator

  private:
    void on_completed(SendQueue& queue) override;
    void on_failed(SendQueue& queue, uint32_t index, ucs_status_t status) override;
    void signal_rest(SendQueue& queue) override { queue.signal(last_target); }

    DciPool& pool_;
};

// The initiators of a DC interface and the endpoints that want them.
//
// dcs, dcs_quota: an endpoint has an initiator to itself from its first work request until the last
// is acknowledged, so that its messages keep their order. rand: an endpoint belongs to one for good
// and shares it; what was posted is kept, so that the failure of one endpoint's operation can be
// mended for the others. Initiators are made when first needed.
class DciPool {
  public:
    static constexpr uint16_t kNone = 0xffff;

    DciPool(IbInterface& interface, const DcConfig& config);
    ~DciPool();

    bool is_shared() const { return policy_ == TxPolicy::kRand; }
    size_t created() const { return dcis_.size(); }
    Dci& at(uint16_t index) { return *dcis_[index]; }

    // For a new endpoint: the initiator it belongs to, kNone unless shared, or if there is none.
    uint16_t assign();
    // An initiator that nobody has; null if all are in use.
    Dci* find_free();
    // It is the endpoint's now.
    void take(Dci& dci, DcEndpoint& endpoint);
    // Does the owner have to give way?
    bool is_over_quota(const Dci& dci) const {
        return !for_dci_.empty() && policy_ == TxPolicy::kDcsQuota && dci.used >= quota_;
    }
    // Should this work request be signalled, so that its initiator is given back early?
    bool is_scarce() const { return free_.empty() && dcis_.size() == limit_; }
    // Must post() be asked about every work request: is_shared() or is_scarce()?
    bool is_special() const { return special_; }
    // Nobody gives an initiator back unasked whose last work request was unsignalled.
    void signal_all();

    // Nothing that was posted on it touches memory here or there any more; it ends at once.
    void cancel(Dci& dci);

    void wait(DcEndpoint& endpoint);
    void unwait(DcEndpoint& endpoint, Pending& pending);
    void drop_waiting(DcEndpoint& endpoint);
    // @return as PendingQueue::dispatch()
    bool serve();
    ucs_status_t flush(Completion* completion);

    // --- for its initiators ---
    // Work requests of the initiator were completed.
    void completed(Dci& dci);
    // Work request `index` of the initiator failed.
    void failed(Dci& dci, uint32_t index, ucs_status_t status);

  private:
    Dci* create();
    void mend_shared(Dci& dci, ucs_status_t status, OperationList& rest, OperationList* done,
                     OperationList* dead);
    bool recover(Dci& dci);
    void make_ready(Dci& dci);
    void put_free(Dci& dci);
    void count_free() { special_ = is_shared() || is_scarce(); }

    IbInterface& interface_;
    const TxPolicy policy_;
    size_t limit_;  // initiators that may be made, as far as the device has shown
    const unsigned quota_;
    std::vector<std::unique_ptr<Dci>> dcis_;
    std::vector<uint16_t> free_;
    std::vector<uint16_t> ready_, serving_;
    PendingQueue for_dci_;  // endpoints that wait for an initiator
    std::vector<DcEndpoint*> failing_;
    bool all_signalled_ = false;
    bool special_ = false;
};

}  // namespace uct::ib

template <>
struct ucs::config::EnumNames<uct::ib::TxPolicy> {
    struct Entry {
        uct::ib::TxPolicy value;
        std::string_view name;
    };
    static constexpr Entry kNames[] = {
        {uct::ib::TxPolicy::kDcs, "dcs"},
        {uct::ib::TxPolicy::kDcsQuota, "dcs_quota"},
        {uct::ib::TxPolicy::kRand, "rand"},
    };
};
