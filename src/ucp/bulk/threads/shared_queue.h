// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include <boost/intrusive/list.hpp>

#include "ucp/bulk/schedule/path_choice.h"
#include "ucp/bulk/schedule/slice_queue.h"
#include "ucp/mem/remote_memory.h"
#include "ucs/time.h"
#include "uct/api/interface.h"

// What the worker's thread and its movers share of an endpoint (docs/bulk.md, Workers).
namespace ucp::bulk {

struct Crew;
struct Job;
struct Load;
class LentEnd;
class Mover;
class Path;
class Returns;

/** Guards the crews of the endpoints that fall on it. Nothing is posted or awaited under it. */
struct Shard {
    std::mutex mutex;
};

/** Slices that a mover posted by one doorbell. */
struct MoverChain : uct::Completion, boost::intrusive::list_base_hook<> {
    Mover* mover = nullptr;
    struct MoverStrand* strand = nullptr;  //!< null: given up, its completion is not
    Load* load = nullptr;
    Run run;
    bool has_failed = false;  //!< the completion came, with an error
};
using MoverChainList =
    boost::intrusive::list<MoverChain, boost::intrusive::constant_time_size<false>>;

/** A strand on a mover's interface. */
struct MoverStrand {
    enum class State : uint8_t {
        kIdle,      //!< not yet or no longer used
        kPosting,   //!< takes part
        kStopping,  //!< takes no more, what is under way ends
        kOver,      //!< failed or destroyed
    };

    explicit MoverStrand(Mover& owner) : mover(owner) {}

    Mover& mover;

    // --- the mover's ---
    State state = State::kIdle;
    std::unique_ptr<uct::Endpoint> transport;
    Crew* crew = nullptr;  //!< while posting or stopping
    unsigned domain = 0;   //!< its place in Crew::domains; settled while it is in Crew::strands
    /** The transport had no room when it was asked last: others need not wait for this one. */
    std::atomic<bool> is_full{false};
    MoverChainList chains;
    ucs_status_t failure = UCS_OK;  //!< to be handled when the transport's call is over

    // --- under the crew's shard ---
    Meter meter{1};
    bool link_up = true;

    // --- the worker's ---
    Path* path = nullptr;
    LentEnd* end = nullptr;
};

/** How a domain reaches a piece. */
struct Grip {
    const uct::MemoryHandle* memory;
    uct::RemoteKey key;
};

/** What was waiting of a transfer when it was lent. Made and freed by the worker. */
struct Load : boost::intrusive::list_base_hook<> {
    Load(Job& owner, Crew& carriers, Direction where, std::span<const Piece> pieces,
         const SliceRules& rules)
        : job(owner), crew(carriers), direction(where), work(pieces, rules) {}

    /** Does the domain in that place of Crew::domains serve it? */
    bool is_served_by(unsigned domain) const {
        return domain < grips.size() && !grips[domain].empty();
    }

    Job& job;
    Crew& crew;
    const Direction direction;
    std::vector<std::vector<Grip>>
        grips;  //!< by domain and piece; empty: the domain does not serve

    // --- under the crew's shard; the worker's again when it has come back ---
    Transfer work;
    uint64_t bytes = 0;  //!< that are under way in the job for it
    size_t chains = 0;
};

/** The strands of an endpoint that movers hold, and what they are to carry. */
struct Crew {
    struct Domain {
        DomainPair pair;
        size_t longest_put, longest_get;
    };

    explicit Crew(Shard& where) : shard(where) {}

    // --- called under the shard ---

    /** Those whose strands post, to be woken without the shard. */
    std::vector<Mover*> movers() const;
    /** Is there a strand that serves it, on a device with a link? */
    bool carries(const Load& load) const;
    /** It goes to the worker if nothing of it is under way and nothing more will be. */
    void end_if_over(Load& load, Returns& returns);
    void end_idle_loads(Returns& returns);
    /**
     * What waits of the loads waits in their jobs again; those with nothing under way end, behind
     * what is on its way to the worker already. In the worker's thread.
     * @return the jobs that have got something, in their order
     */
    std::vector<Job*> take_back(Returns& returns);

    Shard& shard;
    std::vector<Domain> domains;  //!< the worker's

    /** Is there anything to be taken? Written under the shard, looked at without it. */
    std::atomic<bool> has_work{false};

    // --- under the shard ---
    boost::intrusive::list<Load, boost::intrusive::constant_time_size<false>> loads;
    std::vector<MoverStrand*> strands;  //!< those that post
    ucs::Time completed_at{};           //!< something on a strand
    ucs::Time others_at{};              //!< something on the endpoint's other paths
    bool others_have_link = false;      //!< one of these at least
    bool is_distrusted = false;         //!< silent: nothing is lent until something is completed
};

}  // namespace ucp::bulk
