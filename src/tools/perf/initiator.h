// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "tools/perf/pair_end.h"

namespace tools::perf {

// What one thread measured of one size.
struct Sample {
    uint64_t messages = 0;  // of a batch: its pieces
    uint64_t operations = 0;
    int64_t elapsed = 0;             // ns, until the last byte was there
    std::vector<int64_t> latencies;  // ns; of the last operations, if there were very many
};

// The thread that starts operations and takes the time. The target's thread does as it is told
// (serve()).
class Initiator {
  public:
    // `done` counts operations while they are measured, for those who watch.
    Initiator(PairEnd& peer, std::atomic<uint64_t>& done);

    void warm_up(Metric metric, uint64_t size);
    Sample measure(Metric metric, uint64_t size) {
        return run(metric, size, {options_.iterations, options_.time});
    }
    // Processor time that the target's process has taken, ns.
    uint64_t target_usage();
    void leave();

  private:
    // How long a measurement goes on.
    struct Span {
        uint64_t operations;  // 0: until `time` has passed
        int64_t time;
    };

    Sample run(Metric metric, uint64_t size, const Span& span);
    Sample latency(uint64_t size, const Span& span);
    Sample bandwidth(uint64_t size, const Span& span);
    Sample verified_bandwidth(uint64_t size, const Span& span);
    void finish(uint64_t operations, uint64_t size);
    ucs_status_ptr_t start(uint64_t number, uint64_t size, ucp_request_param_t params);
    void exchange(uint64_t number, uint64_t size);
    ucs_status_ptr_t start_batch(uint64_t size, const ucp_request_param_t& params);
    void prepare_pieces(uint64_t size);
    bool is_two_sided() const {
        return options_.operation == Operation::kTag || options_.operation == Operation::kAm;
    }
    bool writes() const;
    bool reads() const { return !is_two_sided() && !writes(); }
    void expect_right(uint64_t wrong, uint64_t size) const;

    PairEnd& peer_;
    const Options& options_;
    std::atomic<uint64_t>& done_;
    std::vector<ucpx_piece_t> pieces_;
    uint64_t sequence_ = 0;  // of contents that put, get and batch move
    unsigned slots_ = 1;
    unsigned window_ = 1;
};

}  // namespace tools::perf
