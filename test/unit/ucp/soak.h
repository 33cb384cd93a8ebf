// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "ucs/random.h"
#include "unit/ucp/cluster.h"

namespace ucp::test {

/**
 * Two-way traffic of every kind between a few workers, while lanes are switched as often as the
 * protocol allows. What is sent is a function of the seed, so every byte that arrives is checked,
 * and so is its place in the order.
 *
 * For each ordered pair of workers: tagged messages and active messages numbered in their order;
 * puts whose arrival a later tagged message claims after a flush; puts ordered by a fence; gets of
 * known memory; atomic additions that must add up.
 */
class Soak {
  public:
    struct Options {
        uint64_t seed = 1;
        size_t workers = 2;
        unsigned cap = 1;
        unsigned operations = 120;  //!< for each ordered pair
        size_t max_length = 100000;
        unsigned switch_every = 60;  //!< steps between two requests for a lane, in the mean
        uct::mock::Config fabric;
    };
    struct Result {
        std::vector<std::string> errors;
        uint64_t promotions = 0;
        uint64_t demotions = 0;
        uint64_t replays = 0;
        uint64_t held = 0;
        uint64_t steps = 0;
    };

    /** Everything varied by the seed. */
    static Options options_for(uint64_t seed);

    explicit Soak(const Options& options);
    ~Soak();
    Result run();

  private:
    struct Link;
    struct Operation;

    void check_caps();
    void force_switch();
    void start_operation(Link& link);
    void send_tagged(Link& link, bool sync);
    void send_active(Link& link);
    void put_and_claim(Link& link);
    void put_fenced(Link& link);
    void get(Link& link);
    void add(Link& link);
    void poll(Link& link);
    void post_receive(Link& link);
    void fail(const std::string& what);
    bool is_done() const;
    void verify_end();
    size_t length_of(const Link& link, uint64_t number) const;
    static ucs_status_t on_active(void* arg, const void* header, size_t header_length, void* data,
                                  size_t length, const ucp_am_recv_param_t* param);

    Options options_;
    ucs::Random random_;
    std::unique_ptr<Cluster> cluster_;
    std::vector<std::unique_ptr<Link>> links_;
    Result result_;
    uint64_t errors_ = 0;
};

}  // namespace ucp::test
