// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/schedule/slice_queue.h"

#include <new>
#include <utility>

namespace ucp::bulk {

SliceQueue::SliceQueue(std::span<const Piece> pieces, const SliceRules& rules)
    : pieces_(pieces), rules_(rules) {
    for (const Piece& piece : pieces) waiting_ += piece.length;
    skip_empty(next_);
}

void SliceQueue::skip_empty(Place& place) const {
    while (place.piece < pieces_.size() && place.offset == pieces_[place.piece].length) {
        ++place.piece;
        place.offset = 0;
    }
}

void SliceQueue::step(Place& place, size_t length) const {
    place.offset += length;
    skip_empty(place);
}

void SliceQueue::Cursor::advance(const Slice& slice) {
    queue_->step(at_, slice.length);
    left_ -= slice.length;
}

SliceQueue::Cursor SliceQueue::cursor() const {
    if (failed_.empty()) return {*this, next_, waiting_};
    return {*this, start(failed_.back()), failed_.back().bytes};
}

Run SliceQueue::split(Run& run, uint32_t slices) const {
    Run rest = run;
    Place place = start(run);
    for (uint32_t index = 0; index < slices; ++index) {
        const size_t length = slice_at(place).length;
        rest.bytes -= length;
        step(place, length);
    }
    rest.piece = place.piece;
    rest.offset = place.offset;
    rest.slices -= slices;
    run.slices = slices;
    run.bytes -= rest.bytes;
    return rest;
}

Run SliceQueue::take(const Cursor& end, uint32_t slices) {
    Run run;
    run.slices = slices;
    if (failed_.empty()) {
        run.piece = next_.piece;
        run.offset = next_.offset;
        run.bytes = waiting_ - end.bytes_left();
        next_ = end.place();
    } else {
        Run& failed = failed_.back();
        run.piece = failed.piece;
        run.offset = failed.offset;
        run.failures = failed.failures;
        run.bytes = failed.bytes - end.bytes_left();
        if (end.bytes_left() == 0) {
            failed_.pop_back();
        } else {
            failed.piece = end.place().piece;
            failed.offset = end.place().offset;
            failed.slices -= slices;
            failed.bytes = end.bytes_left();
        }
    }
    waiting_ -= run.bytes;
    under_way_ += run.bytes;
    return run;
}

void SliceQueue::failed(const Run& run) {
    returned(run);
    if (status_ == UCS_OK) ++failed_.back().failures;
}

void SliceQueue::returned(const Run& run) {
    under_way_ -= run.bytes;
    if (status_ != UCS_OK) return;
    try {
        failed_.push_back(run);
        waiting_ += run.bytes;
    } catch (const std::bad_alloc&) {
        fail(UCS_ERR_NO_MEMORY);
    }
}

void SliceQueue::hand_over(SliceQueue& to) {
    to.next_ = next_;
    to.failed_ = std::move(failed_);
    to.waiting_ = waiting_;
    under_way_ += waiting_;
    waiting_ = 0;
    failed_.clear();
    next_ = end();
}

uint64_t SliceQueue::take_back(SliceQueue& from) {
    const uint64_t bytes = from.waiting_;
    under_way_ -= bytes;
    if (status_ == UCS_OK) {
        try {
            failed_.insert(failed_.end(), from.failed_.begin(), from.failed_.end());
            waiting_ += bytes;
            if (from.next_.piece != from.end().piece) next_ = from.next_;
        } catch (const std::bad_alloc&) {
            fail(UCS_ERR_NO_MEMORY);
        }
    }
    from.waiting_ = 0;
    from.failed_.clear();
    from.next_ = from.end();
    return bytes;
}

uint64_t SliceQueue::take_back(SliceQueue& from, uint64_t bytes, unsigned slices) {
    Cursor next = from.cursor();
    uint64_t total = 0;
    uint32_t count = 0;
    for (; !next.is_end() && count < slices; ++count) {
        const Slice slice = next.slice();
        if (count != 0 && total + slice.length > bytes) break;
        total += slice.length;
        next.advance(slice);
    }
    const Run run = from.take(next, count);
    from.completed(run);
    returned(run);
    return run.bytes;
}

void SliceQueue::fail(ucs_status_t status) {
    if (status_ == UCS_OK) status_ = status;
    failed_.clear();
    next_ = end();
    waiting_ = 0;
}

}  // namespace ucp::bulk
