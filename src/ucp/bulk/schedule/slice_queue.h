// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ucs/type/status.h"

namespace ucp {

class Memory;
class RemoteMemory;

namespace bulk {

enum class Direction : uint8_t { kPut, kGet };

// Contiguous bytes here and there.
struct Piece {
    void* local;
    uint64_t remote;
    size_t length;
    const Memory* memory;     // covers the local bytes
    const RemoteMemory* key;  // to the remote ones, for the domains of all paths
};

// How pieces are divided into slices.
struct SliceRules {
    size_t slice = 0;
    size_t fragment = 0;  // a tail of up to so many bytes joins the slice before it
};

// Slices that follow each other in the order of the pieces; where they start tells where each
// ends.
struct Run {
    uint32_t piece = 0;  // index of the piece that the first belongs to
    uint32_t slices = 0;
    uint64_t offset = 0;  // of the first in its piece
    uint64_t bytes = 0;
    uint32_t failures = 0;  // of the most unlucky of them
};

struct Slice {
    uint32_t piece;
    uint64_t offset;
    size_t length;
};

// What of a transfer is to be posted, and what has become of the rest. Pure; slices have no records
// of their own, they are counted from their run's start.
class SliceQueue {
  public:
    SliceQueue(std::span<const Piece> pieces, const SliceRules& rules);

    std::span<const Piece> pieces() const { return pieces_; }
    const SliceRules& rules() const { return rules_; }
    // Bytes of a slice at most.
    size_t longest_slice() const { return rules_.slice + rules_.fragment; }
    bool has_next() const { return waiting_ != 0; }
    uint64_t bytes_waiting() const { return waiting_; }
    // Those, and the ones under way.
    uint64_t bytes_left() const { return waiting_ + under_way_; }
    // How often the next slices have failed.
    uint32_t failures() const { return failed_.empty() ? 0 : failed_.back().failures; }

    struct Place {
        uint32_t piece = 0;
        uint64_t offset = 0;
    };
    // Goes along the next slices, failed ones first, without taking them.
    class Cursor {
      public:
        Cursor(const SliceQueue& queue, const Place& start, uint64_t bytes)
            : queue_(&queue), at_(start), left_(bytes) {}

        bool is_end() const { return left_ == 0; }
        const Place& place() const { return at_; }
        uint64_t bytes_left() const { return left_; }
        Slice slice() const { return queue_->slice_at(at_); }
        void advance(const Slice& slice);

      private:
        const SliceQueue* queue_;
        Place at_;
        uint64_t left_;
    };
    Cursor cursor() const;

    // Shortens a run to its first `slices`. @return the rest. Looks at nothing that changes.
    Run split(Run& run, uint32_t slices) const;
    // The `slices` from cursor() up to `end` are posted.
    Run take(const Cursor& end, uint32_t slices);
    void completed(const Run& run) { under_way_ -= run.bytes; }
    // To be posted again, unless the transfer has failed, or there is no memory to note it.
    void failed(const Run& run);
    // The same without counting a failure: it was not posted after all.
    void returned(const Run& run);
    // All that waits here waits in `to`, of the same pieces and fresh, and is under way here.
    void hand_over(SliceQueue& to);
    // What waits in `from`, which it was handed over to, waits here again. @return how many bytes
    uint64_t take_back(SliceQueue& from);
    // The same of the next slices alone: one, or more of up to so many bytes.
    uint64_t take_back(SliceQueue& from, uint64_t bytes, unsigned slices);
    // Nothing more is posted. The first error stays.
    void fail(ucs_status_t status);

    ucs_status_t status() const { return status_; }
    // Nothing is under way, and nothing is left to be.
    bool is_over() const { return waiting_ == 0 && under_way_ == 0; }

  private:
    static Place start(const Run& run) { return {run.piece, run.offset}; }
    Slice slice_at(const Place& place) const {
        const uint64_t rest = pieces_[place.piece].length - place.offset;
        return {place.piece, place.offset,
                rest <= rules_.slice + rules_.fragment ? rest : rules_.slice};
    }
    void skip_empty(Place& place) const;
    void step(Place& place, size_t length) const;
    Place end() const { return {static_cast<uint32_t>(pieces_.size()), 0}; }

    std::span<const Piece> pieces_;
    SliceRules rules_;
    Place next_{};
    std::vector<Run> failed_;
    uint64_t waiting_ = 0;    // bytes to be posted
    uint64_t under_way_ = 0;  // bytes posted, of which it is not known what became
    ucs_status_t status_ = UCS_OK;
};

// An error of the operation itself, not of its path: it would fail on any.
inline bool is_refusal(ucs_status_t status) {
    return status == UCS_ERR_INVALID_ADDR || status == UCS_ERR_INVALID_PARAM ||
           status == UCS_ERR_EXCEEDS_LIMIT || status == UCS_ERR_UNSUPPORTED ||
           status == UCS_ERR_REJECTED;
}

}  // namespace bulk
}  // namespace ucp
