// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include <boost/intrusive/list.hpp>
#include <boost/intrusive/slist.hpp>

#include "ucp/api/ucpx.h"
#include "ucs/memory/stream_stop.h"

namespace ucp {

struct StreamOperation;

/** One communication of an operation on a stream. */
struct StreamPart : boost::intrusive::slist_base_hook<> {
    enum class State : uint8_t {
        kIdle,      //!< not begun, or ended
        kBegun,     //!< its request tells the end
        kLookedAt,  //!< the same, and StreamParts::look() is to be asked meanwhile
    };

    StreamPart(const ucpx_stream_part_t& what, StreamOperation& owner)
        : what(what), operation(owner) {
        if (what.signal != nullptr) signal = *what.signal;
    }

    const ucpx_stream_part_t what;  //!< its signal is the caller's
    ucpx_signal_t signal{};
    uint64_t value = 0;  //!< of the signal in the run that is under way
    StreamOperation& operation;
    State state = State::kIdle;
    void* request = nullptr;       //!< that is under way; null: none
    uint32_t outstanding = 0;      //!< requests that have been begun and have not ended
    ucs_status_t error = UCS_OK;   //!< that its run has got, whatever its requests say
    uint64_t endpoints_freed = 0;  //!< how many had been freed when its endpoint was last seen
};

/** An operation on a stream: a stop in it, and what is done while it stands there. */
struct StreamOperation : boost::intrusive::list_base_hook<> {
    enum class State : uint8_t {
        kArmed,    //!< the stream has not come yet
        kRunning,  //!< its parts are under way
        kPassing,  //!< captured: it has ended, and the stream has not gone on yet
        kEnded,
    };
    using Parts = boost::intrusive::slist<StreamPart, boost::intrusive::cache_last<true>,
                                          boost::intrusive::constant_time_size<false>>;

    class StreamOperations* owner = nullptr;
    ucs::StreamStop stop;
    Parts parts;
    State state = State::kArmed;
    bool has_handle = false;     //!< the program's; else it goes at its end
    bool has_looked_at = false;  //!< parts, in this run
    uint32_t running = 0;        //!< parts that have not ended, and who begins them
    ucs_status_t run_error = UCS_OK;
    ucs_status_t first_error = UCS_OK;
    uint64_t runs = 0;
    uint64_t failures = 0;
    size_t length = 0;  //!< received in the last run

    bool is_captured() const { return stop.is_captured; }
    ucs_status_t status() const {
        if (first_error != UCS_OK) return first_error;
        return runs == 0 || state == State::kRunning ? UCS_INPROGRESS : UCS_OK;
    }
};

}  // namespace ucp
