// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <boost/intrusive/list.hpp>

#include "ucp/bulk/schedule/slice_queue.h"
#include "ucp/bulk/schedule/turns.h"
#include "uct/api/interface.h"

namespace ucp {

struct Notification;
struct Request;

namespace bulk {

class Poster;
struct PathGroup;

using WaitingHook = boost::intrusive::list_base_hook<boost::intrusive::tag<struct WaitingTag>>;
using TransferHook = boost::intrusive::list_base_hook<boost::intrusive::tag<struct TransferTag>>;

// A transfer under way. Ends when nothing of it is under way, no flush of it is, and no failed path
// may still write what it carried of it.
struct Transfer : WaitingHook, TransferHook {
    Transfer(std::span<const Piece> given, const SliceRules& rules)
        : only(given.front()),
          slices(given.size() == 1 ? std::span(&only, 1) : given, rules),
          turn(slices.bytes_waiting()) {}

    bool is_over() const {
        return chains == 0 && unrevoked_paths == 0 && fence.count == 0 &&
               (slices.status() != UCS_OK || slices.is_over());
    }
    bool is_waiting() const { return WaitingHook::is_linked(); }

    // Operations before a fence, which are flushed first.
    struct Fence : uct::Completion {
        Transfer* transfer = nullptr;
        Poster* poster = nullptr;
        bool due = false;
        uint32_t seen = 0;  // OneSidedFence::seen() when the flush was begun
    };

    Piece only;  // the piece if there is but one
    SliceQueue slices;
    Direction direction = Direction::kPut;
    Request* request = nullptr;
    Notification* notification = nullptr;  // of the request's
    PathGroup* group = nullptr;            // null: the endpoint's memory is gone
    size_t chains = 0;                     // under way; what threads have counts as one
    uint32_t number = 0;                   // of the endpoint's remote operation
    uint32_t unrevoked_paths = 0;          // failed paths that may still write what they carried
    Fence fence;
    Turn turn;  // its share of the paths
};
using WaitingList = boost::intrusive::list<Transfer, boost::intrusive::base_hook<WaitingHook>,
                                           boost::intrusive::constant_time_size<false>>;
using TransferList = boost::intrusive::list<Transfer, boost::intrusive::base_hook<TransferHook>,
                                            boost::intrusive::constant_time_size<false>>;

}  // namespace bulk
}  // namespace ucp
