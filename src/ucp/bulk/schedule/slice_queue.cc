// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/schedule/slice_queue.h"

#include <utility>

namespace ucp::bulk {

Transfer::Transfer(std::span<const Piece> pieces, const SliceRules& rules)
    : pieces_(pieces), rules_(rules) {
    for (const Piece& piece : pieces) waiting_ += piece.length;
    skip_empty(next_);
}

void Transfer::skip_empty(Place& place) const {
    while (place.piece < pieces_.size() && place.offset == pieces_[place.piece].length) {
        ++place.piece;
        place.offset = 0;
    }
}

void Transfer::step(Place& place, size_t length) const {
    place.offset += length;
    skip_empty(place);
}

void Transfer::Cursor::advance(const Slice& slice) {
    transfer_->step(at_, slice.length);
    left_ -= slice.length;
}

Transfer::Cursor Transfer::cursor() const {
    Cursor cursor;
    cursor.transfer_ = this;
    cursor.at_ = failed_.empty() ? next_ : start(failed_.back());
    cursor.left_ = failed_.empty() ? waiting_ : failed_.back().bytes;
    return cursor;
}

Run Transfer::split(Run& run, uint32_t slices) const {
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

Run Transfer::take(const Cursor& end, uint32_t slices) {
    Run run;
    run.slices = slices;
    if (failed_.empty()) {
        run.piece = next_.piece;
        run.offset = next_.offset;
        run.bytes = waiting_ - end.left_;
        next_ = end.at_;
    } else {
        Run& failed = failed_.back();
        run.piece = failed.piece;
        run.offset = failed.offset;
        run.failures = failed.failures;
        run.bytes = failed.bytes - end.left_;
        if (end.left_ == 0) {
            failed_.pop_back();
        } else {
            failed.piece = end.at_.piece;
            failed.offset = end.at_.offset;
            failed.slices -= slices;
            failed.bytes = end.left_;
        }
    }
    waiting_ -= run.bytes;
    under_way_ += run.bytes;
    return run;
}

void Transfer::failed(const Run& run) {
    returned(run);
    if (status_ == UCS_OK) ++failed_.back().failures;
}

void Transfer::returned(const Run& run) {
    under_way_ -= run.bytes;
    if (status_ != UCS_OK) return;
    waiting_ += run.bytes;
    failed_.push_back(run);
}

void Transfer::lend(Transfer& to) {
    to.next_ = next_;
    to.failed_ = std::move(failed_);
    to.waiting_ = waiting_;
    under_way_ += waiting_;
    waiting_ = 0;
    failed_.clear();
    next_ = end();
}

uint64_t Transfer::take_back(Transfer& from) {
    const uint64_t bytes = from.waiting_;
    under_way_ -= bytes;
    if (status_ == UCS_OK) {
        waiting_ += bytes;
        failed_.insert(failed_.end(), from.failed_.begin(), from.failed_.end());
        if (from.next_.piece != from.end().piece) next_ = from.next_;
    }
    from.waiting_ = 0;
    from.failed_.clear();
    from.next_ = from.end();
    return bytes;
}

uint64_t Transfer::take_back(Transfer& from, uint64_t bytes, unsigned slices) {
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

void Transfer::fail(ucs_status_t status) {
    if (status_ == UCS_OK) status_ = status;
    failed_.clear();
    next_ = end();
    waiting_ = 0;
}

}  // namespace ucp::bulk
