// SPDX-License-Identifier: BSD-3-Clause
#include "uct/base/copy_queue.h"

#include <algorithm>

#include "ucs/type/bits.h"
#include "uct/base/completion_group.h"

namespace uct {

namespace {

// Shorter copies say more of the call than of the rate.
constexpr size_t kTimed = CopyQueue::kSlice;
constexpr double kNewest = 0.25;  // weight of the last copy in the average
// One that took much longer was interrupted.
constexpr double kInterrupted = 4;
constexpr size_t kPage = 4096;

size_t bytes_of_turn(double seconds_per_byte) {
    const double bytes = ucs::seconds(CopyQueue::kTurn) / seconds_per_byte;
    const auto most = static_cast<double>(CopyQueue::kMostBytes);
    return ucs::align_down(static_cast<size_t>(std::min(bytes, most)), kPage);
}

}  // namespace

ucs_status_t CopyQueue::advance_alone(LocalCopy& copy, size_t bytes) {
    const ucs::Time begin = bytes >= kTimed ? clock_.now() : ucs::Time();
    for (size_t done = 0; done < bytes;) {
        const Iov piece = copy.next(bytes - done);
        const ucs_status_t status = owner_.move(copy.direction(), piece, copy.remote(), copy.key());
        if (status != UCS_OK) return status;
        copy.advance(piece.length);
        done += piece.length;
    }
    spend(bytes);
    note_rate(bytes, begin);
    return UCS_OK;
}

// None of several pieces: few long copies have them.
JointCopy CopyQueue::offer(LocalCopy& copy) {
    const size_t length = copy.left();
    if (offer_ == nullptr || threads_ != nullptr || length < JointCopy::kLeast ||
        length > JointCopy::kMost)
        return {};
    const Iov piece = copy.next(length);
    return piece.length == length ? offer_(copy, piece) : JointCopy();
}

// @return UCS_INPROGRESS: there is more to do, by one of both; the joint copy is none any more if
//         this side has to do the rest alone
ucs_status_t CopyQueue::advance_joint(LocalCopy& copy, JointCopy& joint, size_t bytes) {
    const Iov whole = copy.next(copy.left());
    size_t offset, length;
    for (size_t done = 0; done < bytes; done += length) {
        if (!joint.take(&offset, &length)) return settle(copy, joint);
        const Iov here{static_cast<std::byte*>(whole.buffer) + offset, length, whole.memory};
        const ucs_status_t status =
            move({nullptr, here, copy.remote() + offset, copy.direction(), copy.key()});
        if (status != UCS_OK) {
            joint.withdraw();
            return status;
        }
    }
    return UCS_INPROGRESS;
}

// Where no chunks are left to take.
ucs_status_t CopyQueue::settle(LocalCopy& copy, JointCopy& joint) {
    const ucs_status_t status = joint.look();
    if (status != UCS_ERR_REJECTED) return status;
    copy.advance(joint.own_bytes());
    return UCS_INPROGRESS;
}

// @return UCS_INPROGRESS: there is more to do
ucs_status_t CopyQueue::advance(LocalCopy& copy, JointCopy& joint, size_t bytes) {
    if (joint) return advance_joint(copy, joint, bytes);
    const ucs_status_t status = advance_alone(copy, bytes);
    return status == UCS_OK && copy.left() != 0 ? UCS_INPROGRESS : status;
}

ucs_status_t CopyQueue::move(const CopyThreads::Piece& piece) {
    const size_t bytes = piece.here.length;
    const ucs::Time begin = bytes >= kTimed ? clock_.now() : ucs::Time();
    const ucs_status_t status = owner_.move(piece.direction, piece.here, piece.remote, piece.key);
    spend(bytes);
    if (status == UCS_OK) note_rate(bytes, begin);
    return status;
}

void CopyQueue::note_rate(size_t bytes, ucs::Time begin) {
    if (bytes < kTimed) return;
    const double took = ucs::seconds(clock_.now() - begin) / static_cast<double>(bytes);
    if (took <= 0) return;  // virtual time
    const double counted = std::min(took, kInterrupted * seconds_per_byte_);
    seconds_per_byte_ += kNewest * (counted - seconds_per_byte_);
    turn_ = std::max(bytes_of_turn(seconds_per_byte_), kSlice);
}

// Of a copy that is alone: what is left of the turn, or all if that is little more.
size_t CopyQueue::piece_of(size_t length) const {
    const size_t piece = std::max(left_ > 0 ? static_cast<size_t>(left_) : 0, kSlice);
    return length <= piece + piece / 2 ? length : piece;
}

// With threads the call that starts a copy does all of it or nothing: a turn's work at most, as to
// have a thread woken takes as long.
bool CopyQueue::is_due_at_once(size_t length) const {
    if (!has_room()) return false;
    return threads_ == nullptr ? turns_.empty() || length <= kSlice : piece_of(length) == length;
}

ucs_status_t CopyQueue::start(CopyGroup& group, const LocalCopy& given, Completion* completion) {
    if (given.left() == 0) return UCS_OK;
    LocalCopy copy = given;
    JointCopy joint = offer(copy);
    if (is_due_at_once(copy.left())) {
        const ucs_status_t status = advance(copy, joint, piece_of(copy.left()));
        if (status != UCS_INPROGRESS) return status;
    }
    CopyRecord* const record = add(group, copy, completion, false);
    if (record == nullptr) return UCS_ERR_NO_MEMORY;
    record->joint = std::move(joint);
    const bool is_shared = threads_ != nullptr && threads_->share(*record, owner_);
    Turns& its = is_shared ? shared_ : record->is_awaited() ? awaited_ : turns_;
    its.push_back(*record);
    return UCS_INPROGRESS;
}

CopyRecord* CopyQueue::add(CopyGroup& group, const LocalCopy& copy, Completion* completion,
                           bool is_flush) {
    CopyRecord* const record = records_.create(copy, &group, completion, is_flush);
    if (record != nullptr) group.records.push_back(*record);
    return record;
}

ucs_status_t CopyQueue::flush(CopyGroup& group, Completion* completion) {
    if (!group.has_copies()) return UCS_OK;
    if (completion == nullptr) return UCS_INPROGRESS;
    const LocalCopy nothing(CopyDirection::kPut, {}, 0, kInvalidRemoteKey);
    return add(group, nothing, completion, true) == nullptr ? UCS_ERR_NO_MEMORY : UCS_INPROGRESS;
}

void CopyQueue::flush_groups(Turns& copies, CompletionGroup& gather, ucs_status_t* status) {
    for (CopyRecord& record : copies) {
        if (*status != UCS_OK || record.group->visit == visits_) continue;
        record.group->visit = visits_;
        const ucs_status_t begun = flush(*record.group, gather.add());
        if (begun == UCS_INPROGRESS) continue;
        gather.cancel();
        *status = begun;
    }
}

ucs_status_t CopyQueue::flush_all(Completion* completion) {
    if (empty()) return UCS_OK;
    ++visits_;
    CompletionGroup* const gather = CompletionGroup::start(completion);
    ucs_status_t status = UCS_OK;
    flush_groups(turns_, *gather, &status);
    flush_groups(awaited_, *gather, &status);
    flush_groups(shared_, *gather, &status);
    if (status == UCS_OK) return gather->finish();
    gather->abandon();
    return status;
}

// The group may be gone when a completion returns: it is not touched any more from then on.
void CopyQueue::finish(CopyRecord& record, ucs_status_t status) {
    CopyGroup& group = *record.group;
    record.status = status;
    group.records.erase(group.records.iterator_to(record));
    done_.push_back(record);
    if (status != UCS_OK) group.copy_failed(status);
    while (group.has_copies() && group.records.front().is_flush) {
        done_.push_back(group.records.front());
        group.records.pop_front();
    }
    if (!group.has_copies()) group.copies_done();
}

void CopyQueue::complete_done() {
    while (!done_.empty()) {
        CopyRecord& record = done_.front();
        done_.pop_front();
        Completion* const completion = record.completion;
        const ucs_status_t status = record.status;
        records_.destroy(&record);
        if (completion != nullptr) completion->complete(status);
    }
}

void CopyQueue::cancel(CopyGroup& group) {
    if (!group.has_copies()) return;
    while (group.has_copies()) {
        CopyRecord& record = group.records.front();
        group.records.pop_front();
        if (record.owner != nullptr) {
            threads_->withdraw(record);
            shared_.erase(shared_.iterator_to(record));
        } else if (!record.is_flush) {
            Turns& its = record.is_awaited() ? awaited_ : turns_;
            its.erase(its.iterator_to(record));
            record.joint.withdraw();
        }
        record.status = UCS_ERR_CANCELED;
        done_.push_back(record);
    }
    complete_done();
}

// A part of what threads have, and what they have done.
unsigned CopyQueue::progress_shared() {
    CopyThreads::Piece piece;
    while (has_room() &&
           threads_->take(owner_, std::max(static_cast<size_t>(left_), kSlice), &piece))
        threads_->give_back(piece, move(piece));
    unsigned ended = 0;
    while (CopyThreads::Copy* copy = threads_->next_done(owner_)) {
        auto& record = static_cast<CopyRecord&>(*copy);
        shared_.erase(shared_.iterator_to(record));
        finish(record, record.status);
        complete_done();
        ++ended;
    }
    return ended;
}

unsigned CopyQueue::progress_awaited() {
    unsigned ended = 0;
    for (auto next = awaited_.begin(); next != awaited_.end();) {
        CopyRecord& record = *next++;
        const ucs_status_t status = settle(record.copy, record.joint);
        if (status == UCS_INPROGRESS && record.joint) continue;
        awaited_.erase(awaited_.iterator_to(record));
        if (status == UCS_INPROGRESS) {
            turns_.push_back(record);
        } else {
            finish(record, status);
            ++ended;
        }
    }
    complete_done();
    return ended;
}

unsigned CopyQueue::progress() {
    constexpr auto kLeast = static_cast<ptrdiff_t>(kSlice);
    // Behind a long copy that waits a short one has its slice, too.
    const bool are_several = !turns_.empty() && &turns_.front() != &turns_.back();
    left_ = std::max(turn() - (given_ - left_), are_several ? 2 * kLeast : kLeast);
    unsigned ended = 0;
    while (!turns_.empty() && has_room()) {
        CopyRecord& record = turns_.front();
        turns_.pop_front();
        LocalCopy& copy = record.copy;
        const bool is_alone = turns_.empty();
        const ucs_status_t status = advance(
            copy, record.joint, is_alone ? piece_of(copy.left()) : std::min(copy.left(), slice()));
        if (status == UCS_INPROGRESS) {
            (record.is_awaited() ? awaited_ : turns_).push_back(record);
            continue;
        }
        finish(record, status);
        complete_done();
        ++ended;
    }
    if (!awaited_.empty()) ended += progress_awaited();
    if (!shared_.empty()) ended += progress_shared();
    // Those who wait for room, and calls until the next progress, are not to wait for long copies.
    left_ = given_ = std::max(left_, kLeast);
    return ended;
}

}  // namespace uct
