// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ucp/api/ucp.h"
#include "ucp/api/ucpx.h"
#include "ucs/sys/random.h"
#include "unit/ucp/no_options.h"

// Traffic of every kind between workers of one process or of many, checked to the last byte.
//
// What is sent is a function of the seed, so a receiver knows every byte and its place in the
// order. For each ordered pair of workers: tagged messages and active messages numbered in their
// order; puts whose arrival a later message claims after a flush; puts and gets ordered by fences;
// gets of known memory; atomic additions that must add up. What the receiver has seen it writes
// into a report, which the sender reads with gets.
namespace ucp::test {

struct TrafficOptions {
    uint64_t seed = 1;
    size_t workers = 2;
    unsigned operations = 120;  // for each ordered pair; no more after stop()
    size_t max_length = 100000;
    size_t slots = 8;  // for puts, of slot_bytes each
    size_t slot_bytes = 20000;
};

// What a receiver has seen from one sender.
struct TrafficReport {
    uint64_t tagged, active, claims, fences;
    bool operator==(const TrafficReport&) const = default;
};

// Memory that one peer may access.
struct TrafficRegion {
    uint64_t address;
    std::string key;  // packed
};

struct TrafficTotals {
    uint64_t messages = 0;    // tagged and active, that arrived
    uint64_t operations = 0;  // of all kinds, that ended
    uint64_t bytes = 0;       // payload of these
};

// One worker's part: what it sends to each peer, and what it expects from each.
class Party {
  public:
    Party(const TrafficOptions& options, size_t index, ucp_context_h context, ucp_worker_h worker);
    // After the worker is gone, or has nothing under way that could write to memory.
    ~Party();
    Party(const Party&) = delete;
    Party& operator=(const Party&) = delete;

    size_t index() const { return index_; }
    // What `from` needs to know; the same at each call.
    TrafficRegion region_for(size_t from);
    void connect(size_t to, ucp_ep_h endpoint, const TrafficRegion& region);
    ucp_ep_h endpoint(size_t to) const;

    // Starts operations now and then, and looks after those under way. Does not progress.
    void step();
    // Starts nothing new.
    void stop();
    // Another lane for a random peer, or none.
    void force_switch();
    // What goes to the peer, or comes from it, may end with an error from now on.
    void expect_failure(size_t peer);
    // The peer is gone: nothing more goes to it or comes from it.
    void forgive(size_t peer);
    // Nothing more is checked or posted, receives are cancelled and requests given up. Progress
    // once before the end.
    void abandon();

    // All that was sent is over, arrived, and was right.
    bool is_done() const;
    // Operations under way to a peer.
    size_t pending(size_t to) const;
    // Operations to a peer that ended with an error.
    uint64_t failures(size_t to) const;
    std::string describe() const;
    const std::vector<std::string>& errors() const { return errors_; }
    const TrafficTotals& totals() const { return totals_; }

  private:
    struct Inbound;
    struct Outbound;
    friend struct Inbound;
    friend struct Outbound;

    void fail(std::string what);
    size_t length_of(size_t from, size_t to, uint64_t number) const;
    std::vector<uint8_t> content(unsigned stream, size_t from, size_t to, uint64_t number,
                                 size_t length) const;
    static ucs_status_t on_active(void* arg, const void* header, size_t header_length, void* data,
                                  size_t length, const ucp_am_recv_param_t* param);

    const TrafficOptions options_;
    const size_t index_;
    const ucp_context_h context_;
    const ucp_worker_h worker_;
    ucs::Random random_;
    std::vector<std::unique_ptr<Inbound>> inbound_;    // by sender; null for itself
    std::vector<std::unique_ptr<Outbound>> outbound_;  // by receiver
    std::vector<std::string> errors_;
    TrafficTotals totals_;
    bool abandoned_ = false;
};

}  // namespace ucp::test
