// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "ucp/base/wire.h"
#include "ucp/bulk/engine/engine.h"
#include "ucp/bulk/engine/path.h"
#include "ucp/bulk/engine/revocation_message.h"
#include "ucp/bulk/queue_pairs/addresses.h"
#include "ucp/bulk/threads/thread_pool.h"
#include "ucs/datastruct/memory_pool.h"

namespace ucp::bulk {

/** At most so many paths of one endpoint: the rails, its own lane one of them, and strands. */
inline constexpr size_t kMaxPaths = RemoteMemory::kMaxKeys * (1 + kMaxStrandsPerRail);
inline constexpr size_t kMaxChain = 64;

/**
 * The engine's inside. Posting and completions are in posting.cc, failures and the clock in
 * health.cc, CUT in severing.cc, what concerns movers in lending.cc.
 *
 * Two rules keep it simple. Users' callbacks, destructions and calls of a PathOwner happen only in
 * run_deferred() and advance(), which no transport calls. What a completion or message finds out
 * is noted in the path or job, and the group is put among the active.
 */
struct Engine::State {
    explicit State(Worker& owner);

    // --- posting.cc ---
    Group* find(const Endpoint& endpoint);
    Group& make(Endpoint& endpoint);
    void wake(Group& group);
    void watch(Group& group);
    void pump(Group& group);
    void deliver(Job& job);
    void finish_if_over(Job& job);

    // --- health.cc ---
    void settle(Group& group);
    void check(Group& group, ucs::Time now);
    void give_up(Path& path);
    void drop_all(Group& group, ucs_status_t status);
    void release(Group& group);
    /** Ask for room on the path's transport: the group is woken when there is some. */
    void wait_for_room(Path& path);

    // --- severing.cc ---
    void send_cut(Path& path, ucs::Time now);
    void carry_out(std::span<const std::byte> message);
    void send_everywhere(Endpoint& endpoint, AmId id, std::span<const std::byte> message);
    void send_on(Path& rail, AmId id, std::span<const std::byte> message);
    void send_held(Group& group);
    static ucs_status_t on_cut(void* worker, void* data, size_t length,
                               uct::ReceiveDescriptor* descriptor);
    static ucs_status_t on_cut_done(void* worker, void* data, size_t length,
                                    uct::ReceiveDescriptor* descriptor);

    // --- lending.cc and helping.cc, if there is a pool ---
    void adopt(Path& path);
    void stop_lent(Path& path);
    void lend(Group& group);
    void take_returns();
    void recall(Group& group, ucs_status_t status);
    /** The worker's own paths take of what is lent. */
    void help(Group& group);
    void tend(Group& group, ucs::Time now);

    Worker& worker;
    ScheduleRules rules;
    SliceRules slices;
    ucs::ObjectPool<Job> jobs{"bulk transfers"};
    ucs::ObjectPool<Chain> chains{"bulk chains"};
    std::unordered_map<const Endpoint*, std::unique_ptr<Group>> groups;
    JobList finished;
    JobList bereft;  //!< their endpoint is gone, chains on its lane are not
    std::vector<Group*> active, running, watched;  //!< to be pumped, being so, looked at in time
    std::vector<std::vector<std::byte>> cuts_due;  //!< CUTs that came
    CutRecord cuts;
    uint64_t next_cut = 0;
    PathOwner* end_owner = nullptr;
    ucs::Time tick{};  //!< when the watched are looked at next
    std::unique_ptr<Pool> pool;

  private:
    Load* make_load(Job& job, Crew& crew);
    void call_movers(Crew& crew);
    void give_back(Load& load);
    void lent_failed(const Return& entry);
    static void chain_done(uct::Completion* self);
    static void fence_done(uct::Completion* self);
    bool passes_fence(Job& job);
    void add_rails(Group& group);
    Job* draw(Group& group, Path& path, ucs::Time now);
    bool post_next(Group& group, Job& job, ucs::Time now);
    bool post(Group& group, Job& job, Path& path, size_t bytes, ucs::Time now);
    ssize_t post_chain(Job& job, Path& path, size_t bytes, ucs::Time now);
    void chain_failed(Job& job, Path* path, const Run& run, ucs_status_t status);
    void requeue(Job& job);
    void suspend(Job& job, Path& path);
    ucs_status_t make_rail(Path& path);
    void fail(Path& path, ucs_status_t status);
    void rest(Path& path, ucs::Time now);
    void probe(Path& path, ucs::Time now);
    void ask(Path& path);
    void ask_idle(Group& group);
    bool is_silent(Path& path, ucs::Time now);
    void severed(Path& path, ucs::Time now);
    bool others_went_on(const Path& path) const;
};

const uct::InterfaceAttributes& attributes_of(const Path& path);
/** Does the path take new slices, and does it know the memory of that one? */
bool can_take(const Path& path, const Job& job, const Slice& slice);
/** The bandwidth of an interface's device, with the weight of its distance. */
double expected_rate(Worker& worker, unsigned interface);
/** The endpoint's lane of the moment. What waits for room on another is woken on this one. */
void refresh_home(Group& group);

/** An error of the operation itself, not of its path: it would fail on any. */
inline bool is_refusal(ucs_status_t status) {
    return status == UCS_ERR_INVALID_ADDR || status == UCS_ERR_INVALID_PARAM ||
           status == UCS_ERR_EXCEEDS_LIMIT || status == UCS_ERR_UNSUPPORTED ||
           status == UCS_ERR_REJECTED;
}

}  // namespace ucp::bulk
