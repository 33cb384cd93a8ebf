// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <boost/intrusive/list.hpp>
#include <boost/intrusive/slist.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "ucp/api/ucpx.h"
#include "ucp/on_stream/progress_thread.h"
#include "ucp/runtime/deferred_work.h"
#include "ucp/runtime/gate.h"
#include "ucs/datastruct/memory_pool.h"
#include "ucs/memory/stream_stop.h"

namespace ucp {

struct StreamOperation;

// One communication of an operation on a stream.
struct StreamPart : boost::intrusive::slist_base_hook<> {
    enum class State : uint8_t {
        kIdle,      // not begun, or ended
        kBegun,     // its request tells the end
        kLookedAt,  // the same, and StreamParts::look() is to be asked meanwhile
    };

    StreamPart(const ucpx_stream_part_t& what, StreamOperation& owner)
        : what(what), operation(owner) {
        if (what.signal != nullptr) signal = *what.signal;
    }

    const ucpx_stream_part_t what;  // its signal is the caller's
    ucpx_signal_t signal{};
    uint64_t value = 0;  // of the signal in the run that is under way
    StreamOperation& operation;
    State state = State::kIdle;
    void* request = nullptr;       // that is under way; null: none
    uint32_t outstanding = 0;      // requests that have been begun and have not ended
    ucs_status_t error = UCS_OK;   // that its run has got, whatever its requests say
    uint64_t endpoints_freed = 0;  // how many had been freed when its endpoint was last seen
};

// An operation on a stream: a stop in it, and what is done while it stands there.
struct StreamOperation : boost::intrusive::list_base_hook<> {
    enum class State : uint8_t {
        kArmed,    // the stream has not come yet
        kRunning,  // its parts are under way
        kPassing,  // captured: it has ended, and the stream has not gone on yet
        kEnded,
    };
    using Parts = boost::intrusive::slist<StreamPart, boost::intrusive::cache_last<true>,
                                          boost::intrusive::constant_time_size<false>>;

    class StreamOperations* owner = nullptr;
    ucs::StreamStop stop;
    Parts parts;
    State state = State::kArmed;
    bool has_handle = false;     // the program's; else it goes at its end
    bool has_looked_at = false;  // parts, in this run
    bool is_watched = false;     // it stands in StreamOperations::watched_
    uint32_t running = 0;        // parts that have not ended, and who begins them
    ucs_status_t run_error = UCS_OK;
    ucs_status_t first_error = UCS_OK;
    uint64_t runs = 0;
    uint64_t failures = 0;
    size_t length = 0;  // received in the last run

    bool is_captured() const { return stop.is_captured; }
    ucs_status_t status() const {
        if (first_error != UCS_OK) return first_error;
        return runs == 0 || state == State::kRunning ? UCS_INPROGRESS : UCS_OK;
    }
};

// How parts are carried out.
class StreamParts {
  public:
    virtual ~StreamParts() = default;
    // Begin it.
    // @return UCS_OK or an error: it has ended. UCS_INPROGRESS: StreamOperations::ended() tells, or
    //         look() does if the part is kLookedAt
    virtual ucs_status_t begin(StreamPart& part) = 0;
    // Of a part that is kLookedAt. @return UCS_INPROGRESS, or its end
    virtual ucs_status_t look(StreamPart& part) = 0;
    // The worker goes: have it end soon. Nobody hears of it.
    virtual void cancel(StreamPart& part) = 0;
    // What was handed to a part that is never begun, if anything, is given back.
    virtual void drop(StreamPart& part) = 0;
};

// A worker's operations on streams of devices (docs/design/gpu.md): puts stops into streams, sees
// when these come, has the parts begun, and lets the streams go on at their end.
//
// Destroyed after the worker's requests and endpoints: nothing is read or written any more when the
// stops that are left are opened. Thread rule: the worker's.
class StreamOperations {
  public:
    StreamOperations(Gate& gate, DeferredWork& work, std::unique_ptr<StreamParts> parts)
        : gate_(gate), work_(work), parts_(std::move(parts)) {}
    ~StreamOperations();
    StreamOperations(StreamOperations&&) = delete;

    // Put an operation into a stream. May throw std::bad_alloc, without effect.
    // @param handle  null: the program wants none
    ucs_status_t enqueue(std::span<const ucpx_stream_part_t> parts, void* stream,
                         StreamOperation** handle);
    void release(StreamOperation& operation);
    // One of the part's requests has ended; the last ends the part.
    void ended(StreamPart& part, ucs_status_t status);

    // Within progress: looks at all. @return how many began or ended
    unsigned run_deferred();
    // Nothing sleeps while there are some.
    bool any() const { return !watched_.empty(); }
    // The worker goes: nothing begins any more, and what is under way is to end.
    void cancel();

    // For the C functions, which are called with an operation alone.
    Gate& gate() { return gate_; }
    // Progress by a thread.
    std::unique_ptr<ProgressThread>& thread() { return thread_; }

  private:
    StreamOperation* make(std::span<const ucpx_stream_part_t> parts);
    void destroy(StreamOperation& operation);
    unsigned look_at(StreamOperation& operation);
    void begin(StreamOperation& operation);
    void part_ended(StreamPart& part, ucs_status_t status);
    void one_less(StreamOperation& operation);
    void open_for_good(StreamOperation& operation);

    Gate& gate_;
    DeferredWork& work_;
    const std::unique_ptr<StreamParts> parts_;
    ucs::ObjectPool<StreamOperation> memory_{"operations on streams"};
    ucs::ObjectPool<StreamPart> part_memory_{"parts of operations on streams"};
    boost::intrusive::list<StreamOperation, boost::intrusive::constant_time_size<false>> all_;
    std::vector<StreamOperation*> watched_;  // that had not ended when they were last looked at
    std::unique_ptr<ProgressThread> thread_;
};

}  // namespace ucp
