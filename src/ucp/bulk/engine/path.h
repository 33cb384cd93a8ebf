// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <boost/intrusive/list.hpp>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "ucp/base/wire.h"
#include "ucp/bulk/engine/path_owner.h"
#include "ucp/bulk/engine/run_queue.h"
#include "ucp/bulk/engine/transfer.h"
#include "ucp/bulk/schedule/path_choice.h"
#include "ucp/bulk/schedule/slice_queue.h"
#include "ucp/bulk/schedule/turns.h"
#include "ucp/bulk/threads/shared_queue.h"
#include "ucs/sys/time.h"
#include "uct/api/interface.h"

namespace ucp::bulk {

struct ThreadQueuePair;

// Slices that went by one doorbell. Without a transfer: given up, its completion is not.
struct Chain : uct::Completion, boost::intrusive::list_base_hook<> {
    Poster* poster = nullptr;
    Transfer* transfer = nullptr;
    Path* path = nullptr;                      // null: its endpoint's memory is gone
    const uct::Endpoint* transport = nullptr;  // that it was posted on
    Run run;
};
using ChainList = boost::intrusive::list<Chain, boost::intrusive::constant_time_size<false>>;

class Path : public uct::Pending {
  public:
    // The endpoint's own lane; another interface, the engine's own; somebody else's.
    enum class Kind : uint8_t { kLane, kRail, kQueuePair };
    enum class State : uint8_t {
        kUp,
        kDraining,    // no more is posted, what is under way ends
        kRevoking,    // failed: the peer has not yet said that nothing of it comes any more
        kBackingOff,  // failed: made anew at `due`
        kProbing,     // made anew: takes part when the probe is back
        kOnThread,    // a thread posts on it, the engine does not
    };
    // Does the transport answer? Of a path that was made anew, or of one that has been idle.
    struct Probe : uct::Completion {
        bool is_back = false;
        bool is_abandoned = false;  // frees itself
    };

    Path(PathGroup& owner, Kind which, uct::Interface& its_device, double rate)
        : uct::Pending(serve), group(owner), kind(which), device(&its_device), meter(rate) {}
    ~Path();

    const uct::InterfaceAttributes& attributes() const { return device->attributes(); }
    bool may_post() const { return state == State::kUp && failure == UCS_OK && link_up; }
    // Does it take new slices, and does it know the memory of that one?
    bool can_take(const Transfer& transfer, const Slice& slice) const;
    // Of one operation.
    size_t longest_slice(Direction direction) const {
        const uct::InterfaceAttributes& its = attributes();
        return direction == Direction::kPut ? its.put.max_zcopy : its.get.max_zcopy;
    }
    // Make the transport endpoint of a rail.
    ucs_status_t make_transport();
    // The group is woken when the transport has room.
    void wait_for_room();
    void stop_waiting() {
        if (is_linked()) waiting_on->pending_remove(this);
    }
    // Ask the transport for an answer.
    void send_probe();
    // The probe's answer means nothing any more.
    void abandon_probe();

    PathGroup& group;
    const Kind kind;
    State state = State::kUp;
    bool link_up = true;
    ucs_status_t failure = UCS_OK;  // an error that came; to be handled in Worker::progress()
    uct::Interface* device;
    Meter meter;
    uct::Endpoint* transport = nullptr;
    uct::Endpoint* waiting_on = nullptr;  // valid while is_linked()
    DomainPair domains{};
    std::unique_ptr<uct::Endpoint> own;                      // rails; null: to be made
    std::vector<std::byte> remote_device, remote_interface;  // rails
    PathOwner* owner = nullptr;                              // queue pairs
    uint64_t name = 0;                                       // queue pairs
    ChainList chains;
    unsigned failures = 0;             // since something went well
    ucs::Time due{};                   // of the next REVOKE, the next making, the probe's answer
    uint64_t revocation = 0;           // the number of its revocation
    ucs::Time revocation_end{};        // when the peer must have answered
    bool is_revoked = false;           // and it has
    std::vector<Transfer*> suspended;  // puts of theirs may still land
    std::unique_ptr<Probe> probe;
    // Of a thread, which the path stands for; it knows of the path as long as that lives.
    std::shared_ptr<ThreadQueuePair> on_thread;
    // Messages that found no room on a rail.
    std::vector<std::pair<AmId, std::vector<std::byte>>> held;

  private:
    // There is room: the engine posts when the transport's call is over.
    static ucs_status_t serve(uct::Pending* self);
};

}  // namespace ucp::bulk

namespace ucp {

class Endpoint;

namespace bulk {

// What bulk has for an endpoint, from its first transfer or queue pair on.
struct PathGroup {
    PathGroup(Endpoint& owner, RunQueue& queue) : endpoint(owner), run_queue(queue) {}

    Path& lane() { return *paths.front(); }
    // Its paths and transfers are looked at in the next progress.
    void wake() { run_queue.wake(*this); }
    // A transfer of so many bytes starts.
    void note_start(uint64_t bytes, ucs::Time now) {
        begun += bytes;
        // One that is much longer than many that come behind it is the oldest soon, or waits.
        uint64_t longest = transfers.front().slices.bytes_left();
        if (!waiting.empty()) {
            longest = std::max(
                {longest, waiting.front().slices.bytes_left(), waiting.back().slices.bytes_left()});
        }
        mixture.started(bytes, longest, now);
    }

    Endpoint& endpoint;
    RunQueue& run_queue;
    std::vector<std::unique_ptr<Path>> paths;   // the first is the endpoint's own lane
    WaitingList waiting;                        // transfers with slices to post, by turns
    Mixture mixture;                            // of long ones and short ones
    uint64_t begun = 0;                         // bytes of all transfers so far
    TransferList transfers;                     // all
    bool is_awake = false;                      // in the run queue
    bool is_watched = false;                    // the same
    std::unique_ptr<SharedQueue> shared_queue;  // null: no thread has a queue pair of it
    ucs::Time shared_at{};                      // since when threads have something of it
};

}  // namespace bulk
}  // namespace ucp
