// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The two ends of a direction of system/traffic.h: included by its implementation only.

#include <cstring>
#include <deque>
#include <functional>

#include "system/traffic.h"

namespace ucp::test {

// What the bytes of a message are a function of, beside its number.
enum Stream : unsigned { kTagged = 1, kActive = 2, kPutData = 3, kFenced = 4, kConstant = 5 };

// Tags: the stream's kind above, the sender below.
inline constexpr uint64_t kClaimTag = uint64_t{1} << 32;

struct AmNumber {
    uint64_t from;
    uint64_t number;
};

// Where things are in the memory that a receiver lends to one sender.
struct Layout {
    explicit Layout(const TrafficOptions& options)
        : fence_data(options.slots * options.slot_bytes),
          constant(fence_data + options.slot_bytes),
          fence_flag(constant + options.slot_bytes),
          counter(fence_flag + 8),
          report(counter + 8),
          bytes(report + sizeof(TrafficReport)) {}
    size_t fence_data, constant, fence_flag, counter, report, bytes;
};

struct Party::Inbound {
    // Posted again and again. It may end within the call that posts it.
    struct Receive {
        void post();
        void cancel();
        Inbound& owner;
        const bool is_claim;
        bool is_posted = false;
        ucs_status_ptr_t request = nullptr;
    };

    Inbound(Party& party, size_t from);
    ~Inbound();

    void poll();
    void cancel();
    void handle(uint64_t number, const void* data, size_t length);
    std::string describe() const;

    uint8_t* at(size_t offset) { return reinterpret_cast<uint8_t*>(memory.data()) + offset; }
    TrafficReport& report() { return *reinterpret_cast<TrafficReport*>(at(layout.report)); }

    Party& party;
    const size_t from;
    const Layout layout;
    bool may_fail = false, forgiven = false;
    Receive receive{*this, false}, claim_receive{*this, true};
    std::vector<uint8_t> buffer;
    uint64_t claimed = 0;
    std::vector<uint64_t> memory;
    ucp_mem_h handle_ = nullptr;
    TrafficRegion region;

  private:
    void on_tagged(ucs_status_t status, size_t length);
    void on_claim(ucs_status_t status, size_t length);
    void check_fence();
    void received(const Receive& ended, ucs_status_t status, size_t length);
};

struct Party::Outbound {
    Outbound(Party& party, size_t to, ucp_ep_h endpoint, const TrafficRegion& region);
    ~Outbound();

    void step();
    void give_up_requests();
    bool is_done() const;
    std::string describe() const;

    Party& party;
    const size_t to;
    const Layout layout;
    const ucp_ep_h endpoint;
    const uint64_t base;
    ucp_rkey_h key = nullptr;
    unsigned left;
    bool may_fail = false, forgiven = false;
    uint64_t failures = 0;

    uint64_t tagged = 0, active = 0, added = 0, puts = 0, claims = 0, fences = 0;
    TrafficReport seen{};  // as last read
    uint64_t counter = 0;
    bool reading = false;

    struct Operation {
        const char* name;
        ucs_status_ptr_t request;
        std::shared_ptr<void> memory;  // that the operation uses
        size_t bytes;
        std::function<void()> then;  // if it went well
    };
    std::deque<Operation> operations;

  private:
    TrafficReport expected() const { return {tagged, active, claims, fences}; }
    bool track(const char* name, ucs_status_ptr_t request, std::shared_ptr<void> memory,
               size_t bytes, std::function<void()> then = {});
    void finish(Operation& operation, ucs_status_t status);
    void start();
    void send_tagged(bool sync);
    void send_active();
    void put_and_claim();
    void put_fenced();
    void fence();
    void get_before_fetch(const std::shared_ptr<void>& into, size_t length, uint64_t from,
                          std::function<void()> then);
    ucs_status_ptr_t fetch_and_add(std::pair<uint64_t, uint64_t>& value);
    void get();
    void add();
    void read_report();
};

}  // namespace ucp::test
