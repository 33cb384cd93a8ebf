// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <boost/intrusive/list.hpp>

#include "ucp/base/request.h"
#include "ucp/base/wire.h"
#include "ucp/bulk/engine/engine.h"
#include "ucp/bulk/engine/path_owner.h"
#include "ucp/bulk/schedule/path_choice.h"
#include "ucp/bulk/schedule/slice_queue.h"
#include "ucp/bulk/threads/shared_queue.h"
#include "ucs/time.h"
#include "uct/api/interface.h"

// The engine's records: paths, chains on them, transfers, and what an endpoint has of each.
namespace ucp::bulk {

class Path;
struct Group;

using WaitingHook = boost::intrusive::list_base_hook<boost::intrusive::tag<struct WaitingTag>>;
using JobHook = boost::intrusive::list_base_hook<boost::intrusive::tag<struct JobTag>>;

/** A transfer under way. Ends when nothing of it is under way and no path of it is to be cut. */
struct Job : WaitingHook, JobHook {
    Job(std::span<const Piece> given, const SliceRules& rules)
        : only(given.front()), work(given.size() == 1 ? std::span(&only, 1) : given, rules) {}

    bool is_over() const {
        return chains == 0 && cuts == 0 && fence.count == 0 &&
               (work.status() != UCS_OK || work.is_over());
    }

    /** Operations before a fence, which are flushed first. */
    struct Fence : uct::Completion {
        Job* job = nullptr;
        bool due = false;
        uint32_t seen = 0;  //!< Endpoint::fence_seen() when the flush was begun
    };

    Piece only;  //!< the piece if there is but one
    Transfer work;
    Direction direction = Direction::kPut;
    Engine::State* engine = nullptr;
    Request* request = nullptr;
    Notification* notification = nullptr;  //!< of the request's
    Group* group = nullptr;                //!< null: the endpoint's memory is gone
    size_t chains = 0;
    uint32_t number = 0;  //!< of the endpoint's remote operation
    uint32_t cuts = 0;    //!< failed paths that may still write what they carried
    Fence fence;
};
using WaitingList = boost::intrusive::list<Job, boost::intrusive::base_hook<WaitingHook>,
                                           boost::intrusive::constant_time_size<false>>;
using JobList = boost::intrusive::list<Job, boost::intrusive::base_hook<JobHook>,
                                       boost::intrusive::constant_time_size<false>>;

/** Slices that went by one doorbell. Without a job: given up, its completion is not. */
struct Chain : uct::Completion, boost::intrusive::list_base_hook<> {
    Engine::State* engine = nullptr;
    Job* job = nullptr;
    Path* path = nullptr;                      //!< null: its endpoint's memory is gone
    const uct::Endpoint* transport = nullptr;  //!< that it was posted on
    Run run;
};
using ChainList = boost::intrusive::list<Chain, boost::intrusive::constant_time_size<false>>;

/** The mover's strand that a path stands for, which knows of the path as long as it lives. */
struct LentTo {
    LentTo() = default;
    LentTo(const LentTo&) = delete;
    LentTo& operator=(const LentTo&) = delete;
    ~LentTo();

    std::shared_ptr<MoverStrand> strand;  //!< null: none
};

class Path : public uct::Pending {
  public:
    /** The endpoint's own lane; another interface, the engine's own; somebody else's. */
    enum class Kind : uint8_t { kHome, kRail, kStrand };
    enum class State : uint8_t {
        kUp,
        kLeaving,  //!< no more is posted, what is under way ends
        kCutting,  //!< failed: the peer has not yet said that nothing of it comes any more
        kResting,  //!< failed: made anew at `due`
        kProbing,  //!< made anew: takes part when the probe is back
        kLent,     //!< a mover posts on it, the engine does not
    };
    /** Does the transport answer? Of a path that was made anew, or of one that has been idle. */
    struct Probe : uct::Completion {
        bool is_back = false;
        bool is_abandoned = false;  //!< frees itself
    };

    Path(Group& owner, Kind which, double rate)
        : uct::Pending(serve), group(owner), kind(which), meter(rate) {}
    ~Path() {
        stop_waiting();
        abandon_probe();
    }

    void stop_waiting() {
        if (is_linked()) waiting_on->pending_remove(this);
    }
    /** The probe's answer means nothing any more. */
    void abandon_probe() {
        if (probe == nullptr) return;
        if (probe->is_back) {
            probe.reset();
        } else {
            probe.release()->is_abandoned = true;
        }
    }
    bool may_post() const { return state == State::kUp && failure == UCS_OK && link_up; }

    Group& group;
    const Kind kind;
    State state = State::kUp;
    bool link_up = true;
    ucs_status_t failure = UCS_OK;  //!< an error that came; to be handled in Worker::progress()
    Meter meter;
    uct::Endpoint* transport = nullptr;
    uct::Endpoint* waiting_on = nullptr;  //!< valid while is_linked()
    unsigned interface = 0;
    DomainPair domains{};
    std::unique_ptr<uct::Endpoint> own;                      //!< rails; null: to be made
    std::vector<std::byte> remote_device, remote_interface;  //!< rails
    PathOwner* owner = nullptr;                              //!< strands
    uint64_t name = 0;                                       //!< strands
    ChainList chains;
    unsigned failures = 0;  //!< since something went well
    ucs::Time due{};        //!< of the next CUT, the next making, the end of a probe's patience
    uint64_t cut = 0;       //!< the number of its CUT
    ucs::Time cut_end{};    //!< when the peer must have answered it
    bool is_cut = false;    //!< and it was answered
    std::vector<Job*> suspended;  //!< puts of theirs may still land
    std::unique_ptr<Probe> probe;
    LentTo lent;
    /** Messages that found no room on a rail. */
    std::vector<std::pair<AmId, std::vector<std::byte>>> held;

  private:
    /** There is room: the engine posts when the transport's call is over. */
    static ucs_status_t serve(uct::Pending* self);
};

/** What bulk has for an endpoint, from its first transfer or strand on. */
struct Group {
    explicit Group(Endpoint& owner) : endpoint(owner) {}

    Endpoint& endpoint;
    std::vector<std::unique_ptr<Path>> paths;  //!< the first is the home
    WaitingList waiting;                       //!< jobs with slices to post, in their order
    JobList jobs;                              //!< all
    bool is_active = false;                    //!< in Engine::State::active
    bool is_watched = false;                   //!< in Engine::State::watched
    std::unique_ptr<Crew> crew;                //!< null: no mover has a strand of it
    ucs::Time lent_at{};                       //!< since when movers have something of it
};

}  // namespace ucp::bulk
