// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <vector>

#include "ucp/bulk/queue_pairs/queue_pair_driver.h"
#include "ucp/worker/worker.h"

namespace ucp::bulk {

/** Who sends a StrandMessage; it follows. */
struct StrandHeader {
    uint64_t sender;  //!< uuid
};

struct StrandDriver::Strand {
    Set* set;
    uint8_t rail;   //!< its place in the message that offered it
    uint8_t place;  //!< among those of its rail
    unsigned interface;
    DomainPair domains;
    std::unique_ptr<uct::Endpoint> end;  //!< null: failed
    Path* path = nullptr;
};

/** The strands of one endpoint. */
class StrandDriver::Set final : public StrandSink {
  public:
    Set(StrandDriver& driver, Endpoint& endpoint)
        : link(*this, driver.worker_.uuid() < endpoint.remote_uuid()),
          driver_(driver),
          endpoint_(endpoint) {}

    void send(const StrandMessage& message) override;
    uint32_t new_epoch() override;
    std::vector<std::byte> make_ends() override;
    std::vector<std::byte> answer_ends(std::span<const std::byte> offered) override;
    bool connect_ends(std::span<const std::byte> granted) override;
    void start_posting() override;
    void stop_posting() override;
    void destroy_ends() override;

    void path_gone(Strand& strand);
    /** One of its queue pairs is no more. */
    void end_lost();
    Strand* find(uint64_t name);
    uint64_t name_of(const Strand& strand) const {
        return uint64_t{link.epoch()} << 16 | uint64_t{strand.rail} << 8 | strand.place;
    }
    Endpoint& endpoint() const { return endpoint_; }

    StrandLink link;
    std::vector<std::unique_ptr<Strand>> strands;
    ucs::Time patience = ucs::kNever;  //!< end of it, once the peer was asked; an answer renews it

  private:
    struct Place {
        unsigned interface;
        DomainPair domains;
    };
    std::vector<Place> places() const;
    unsigned wanted_each() const;
    Strand* make(unsigned rail, const Place& place);
    bool connect(Strand& strand, std::span<const std::byte> device,
                 std::span<const std::byte> address);
    std::vector<RailEnds> describe(std::span<const Place> rails) const;
    void idle_if_done();

    StrandDriver& driver_;
    Endpoint& endpoint_;
    bool is_stopping_ = false;
};

}  // namespace ucp::bulk
