// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include <boost/intrusive/list.hpp>

#include "ucs/datastruct/memory_pool.h"
#include "ucs/sys/time.h"
#include "uct/base/copy_threads.h"
#include "uct/base/joint_copy.h"
#include "uct/base/local_copy.h"

namespace uct {

class CompletionGroup;
class CopyGroup;

// An entry of a CopyQueue: a copy, or a flush that waits for the copies before it.
struct CopyRecord : CopyThreads::Copy {
    using Hook = boost::intrusive::list_member_hook<
        boost::intrusive::link_mode<boost::intrusive::safe_link>>;

    CopyRecord(const LocalCopy& its_copy, CopyGroup* owner, Completion* told, bool only_waits)
        : CopyThreads::Copy(its_copy), group(owner), completion(told), is_flush(only_waits) {}
    // True if only the partner's chunks are missing.
    bool is_awaited() const { return joint && joint.is_taken(); }

    CopyGroup* group;
    Completion* completion;  // null: nobody is told
    const bool is_flush;
    JointCopy joint{};
    Hook turn{};  // among those that wait for their turn, that are awaited, with threads, or done
    Hook age{};   // in its group, the oldest first
};

// The copies of one endpoint, which derives from it.
class CopyGroup {
  public:
    using Records = boost::intrusive::list<
        CopyRecord, boost::intrusive::member_hook<CopyRecord, CopyRecord::Hook, &CopyRecord::age>,
        boost::intrusive::constant_time_size<false>>;

    CopyGroup() = default;
    CopyGroup(CopyGroup&&) = delete;

    bool has_copies() const { return !records.empty(); }

    // --- called by the queue, before completions are; neither may start a copy

    virtual void copy_failed(ucs_status_t status) = 0;
    // No copy of the group is under way any more.
    virtual void copies_done() = 0;

    Records records;     // the queue's
    uint64_t visit = 0;  // the queue's

  protected:
    ~CopyGroup() { assert(records.empty()); }
};

// Copies within a host, done by the processor that asks for them, and by threads if there are any:
// what cannot be done at once is shared with these, and progress() does a turn's part of it, so
// that they make nothing slower. The rest is about a queue without threads. A long one goes in
// pieces, one in each progress of its interface, so that no call of a program takes longer than
// about kTurn, and several share the turns, round robin by bytes. So a copy may be asynchronous, as
// on a network. Long ones are offered to the process whose memory is the other end, too, if there
// is a way (JointCopy).
//
// How many bytes a turn is worth follows from the rate of the copies so far. Copies of up to kSlice
// bytes are done at once while the turn is worth anything yet, also before long ones that wait: a
// turn leaves one slice for them.
// Several have a slice at a time each, which is worth a quarter of a turn: where copies are fast,
// to cut one in many would cost calls of the system and nothing would be the sooner for it. Copies
// of a group may end in any order; who needs one waits for the others.
//
// One thread at a time, that of the interface.
class CopyQueue {
  public:
    static constexpr ucs::Duration kTurn = std::chrono::microseconds(60);
    static constexpr size_t kSlice = 128 * 1024;           // the least of slice()
    static constexpr size_t kMostBytes = 2 * 1024 * 1024;  // of a turn, however fast copies are
    // Bytes a second, assumed until a copy was timed.
    static constexpr double kAssumedRate = 8e9;

    // Offers a copy of one piece to its partner; returns an empty JointCopy if it cannot.
    using Offer = JointCopy (*)(const LocalCopy& copy, const Iov& piece);

    // @param threads  null: there are none; else they outlive the queue, and nothing is offered
    // @param offer    null: to nobody
    CopyQueue(const ucs::Clock& clock, CopyThreads::Move move, CopyThreads* threads = nullptr,
              Offer offer = nullptr)
        : clock_(clock), threads_(threads), offer_(offer), owner_(move) {}
    CopyQueue(const CopyQueue&) = delete;
    // It is written to when threads are done with a copy while its owner sleeps.
    void set_wake_descriptor(int descriptor) { owner_.wake_descriptor = descriptor; }

    // @param completion  may be null
    // @return UCS_OK: done; UCS_INPROGRESS: a part of it is, the completion will be called; or the
    //         error
    ucs_status_t start(CopyGroup& group, const LocalCopy& copy, Completion* completion);
    // Does a copy of one piece, if it is short and its turn has come: start() without its records.
    // @return UCS_ERR_NO_RESOURCE: start() has to do it
    ucs_status_t copy_short(CopyDirection direction, const Iov& piece, uint64_t remote,
                            RemoteKey key) {
        if (piece.length >= kShort || !has_room()) return UCS_ERR_NO_RESOURCE;
        const ucs_status_t status = owner_.move(direction, piece, remote, key);
        if (status == UCS_OK) spend(piece.length);
        return status;
    }
    // Complete when all copies of the group so far are. @return UCS_OK or UCS_INPROGRESS
    ucs_status_t flush(CopyGroup& group, Completion* completion);
    ucs_status_t flush_all(Completion* completion);
    // Ends all copies of the group now, with UCS_ERR_CANCELED.
    void cancel(CopyGroup& group);

    // Does the next turn, less what handlers have copied in the same call of progress.
    // @return copies that have ended
    unsigned progress();
    // There are copies under way, or the turn is used up: progress() is to be called.
    bool needs_progress() const { return left_ <= 0 || !empty(); }
    // progress() has something to do, if only to begin a new turn for copies that are to come: with
    // what the last ones left of theirs they would be cut in two.
    bool wants_progress() const {
        return needs_progress() || left_ + static_cast<ptrdiff_t>(kSlice / 2) < turn();
    }
    bool empty() const { return turns_.empty() && shared_.empty() && awaited_.empty(); }
    // True if nothing is under way and all completions were called.
    bool is_idle() const { return records_.in_use() == 0; }
    // Prepares for sleep: from here on threads write to the descriptor when there is something to
    // do.
    // @return false: there is something to do already
    bool sleep() {
        return left_ > 0 && turns_.empty() && awaited_.empty() &&
               (shared_.empty() || threads_->sleep(owner_));
    }

    // --- other copies in the same calls, which count as well

    // Is anything of the turn left?
    bool has_room() const { return left_ > 0; }
    void spend(size_t bytes) { left_ -= static_cast<ptrdiff_t>(bytes); }

    // Bytes of a turn.
    size_t turn_bytes() const { return turn_; }
    // Bytes that one of several copies has in a turn.
    size_t slice() const { return std::max(kSlice, turn_ / 4); }

  private:
    // Of copies below this length none is timed, cut or offered to its partner.
    static constexpr size_t kShort = std::min(kSlice, JointCopy::kLeast);

    using Turns = boost::intrusive::list<
        CopyRecord, boost::intrusive::member_hook<CopyRecord, CopyRecord::Hook, &CopyRecord::turn>,
        boost::intrusive::constant_time_size<false>>;

    ptrdiff_t turn() const { return static_cast<ptrdiff_t>(turn_); }
    ucs_status_t advance(LocalCopy& copy, JointCopy& joint, size_t bytes);
    ucs_status_t advance_alone(LocalCopy& copy, size_t bytes);
    JointCopy offer(LocalCopy& copy);
    ucs_status_t advance_joint(LocalCopy& copy, JointCopy& joint, size_t bytes);
    static ucs_status_t settle(LocalCopy& copy, JointCopy& joint);
    unsigned progress_awaited();
    ucs_status_t move(const CopyThreads::Piece& piece);
    void note_rate(size_t bytes, ucs::Time begin);
    bool is_due_at_once(size_t length) const;
    void flush_groups(Turns& copies, CompletionGroup& gather, ucs_status_t* status);
    unsigned progress_shared();
    size_t piece_of(size_t length) const;
    CopyRecord* add(CopyGroup& group, const LocalCopy& copy, Completion* completion, bool is_flush);
    void finish(CopyRecord& record, ucs_status_t status);
    void complete_done();

    const ucs::Clock& clock_;
    CopyThreads* const threads_;
    const Offer offer_;
    CopyThreads::Owner owner_;
    double seconds_per_byte_ = 1 / kAssumedRate;
    size_t turn_ = 320 * 1024;
    ptrdiff_t left_ = 320 * 1024;  // of the turn
    ptrdiff_t given_ = left_;      // what the last progress() left of it
    uint64_t visits_ = 0;
    Turns turns_;    // copies, whose turn it is first
    Turns shared_;   // copies that threads have, the oldest first
    Turns awaited_;  // copies whose partners have the last chunks
    Turns done_;     // their completions are to be called
    ucs::ObjectPool<CopyRecord> records_{"local copies", 16};
};

}  // namespace uct
