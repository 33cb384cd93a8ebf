// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

#include <sys/types.h>

#include "ucp/bulk/engine/path.h"
#include "ucp/bulk/engine/transfer_table.h"
#include "ucs/datastruct/memory_pool.h"

namespace ucp::bulk {

class PathTable;

// Posts slices on the worker's own paths, and takes their completions.
class Poster {
  public:
    Poster(const ucs::Clock& clock, const ScheduleRules& rules, unsigned max_retries,
           PathTable& paths, TransferTable& transfers)
        : clock_(clock),
          rules_(rules),
          max_retries_(max_retries),
          paths_(paths),
          transfers_(transfers) {}

    // What waits in the group, as far as its paths take it.
    void post_waiting(PathGroup& group);
    // The transfer's next slices, up to so many bytes and one at least.
    // @return whether there may be more to post now
    bool post(Transfer& transfer, Path& path, size_t bytes, ucs::Time now);
    // A chain knows no fence: is everything before the one that the transfer is behind flushed? If
    // not, the flush is begun.
    bool passes_fence(Transfer& transfer);
    // The path has failed: its slices are posted elsewhere. The completions of its chains mean
    // nothing any more.
    void give_up_chains(Path& path);
    // The path's memory goes: the completions of its chains still count.
    static void detach_chains(Path& path);

    size_t chains_in_use() const { return chains_.in_use(); }

  private:
    bool is_short(const Transfer& transfer) const {
        return transfer.slices.bytes_waiting() <= Turn::short_bytes(rules_.slice);
    }
    bool post_next(PathGroup& group, Transfer& transfer, ucs::Time now, bool is_mixed);
    bool advance(PathGroup& group, Transfer& transfer, ucs::Time now, bool is_mixed);
    void post_short(PathGroup& group, ucs::Time now);
    ssize_t post_chain(Transfer& transfer, Path& path, size_t bytes, ucs::Time now);
    void chain_failed(Transfer& transfer, Path* path, const Run& run, ucs_status_t status);
    static void chain_done(uct::Completion* self);
    static void fence_done(uct::Completion* self);

    const ucs::Clock& clock_;
    const ScheduleRules rules_;
    const unsigned max_retries_;
    PathTable& paths_;
    TransferTable& transfers_;
    ucs::ObjectPool<Chain> chains_{"bulk chains"};
};

}  // namespace ucp::bulk
