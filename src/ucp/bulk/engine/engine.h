// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "ucp/bulk/engine/path_owner.h"
#include "ucp/bulk/schedule/rules.h"
#include "ucp/bulk/schedule/slice_queue.h"
#include "ucp/endpoint/endpoint_table.h"
#include "ucp/endpoint/rail_table.h"
#include "ucp/runtime/deferred_work.h"
#include "ucp/runtime/interface_set.h"
#include "ucs/sys/time.h"
#include "ucs/type/status.h"

namespace uct {}

namespace ucp {

struct Notification;
struct Request;

namespace bulk {

class ThreadPool;
struct PathGroup;

// Runs the bulk transfers of a worker (docs/design/bulk.md). Owned by it, one thread at a time with
// it. Costs nothing while there is no transfer.
class Engine {
  public:
    Engine(DeferredWork& work, InterfaceSet& interfaces, EndpointTable& endpoints,
           const RailTable& rails, const ucs::Clock& clock, const Rules& rules);
    ~Engine();
    Engine(const Engine&) = delete;

    // May the pieces go by start()? If not (no path of the endpoint has chains, or no registration
    // or key serves one) they take their usual way.
    bool can_serve(Endpoint& endpoint, Direction direction, std::span<const Piece> pieces);

    // Run pieces as one transfer of `request`, which has its endpoint set: call it from the
    // request's post(), with Order::kOneSided, after can_serve() was true, and return UCS_OK. It
    // takes a reference of the request and drops it once, with the result, from
    // Worker::progress(). Flush, close and fences wait for it.
    // @param pieces  alive until then, with the memory and keys that they refer to; a single one is
    //                copied
    // @param notification  what the peer is to be told behind the last byte of a put; null:
    // nothing. If it is not posted when the transfer is over, that is up to the caller
    // @return UCS_OK; UCS_ERR_NO_MEMORY: nothing happened
    ucs_status_t start(Request& request, Direction direction, std::span<const Piece> pieces,
                       Notification* notification = nullptr);

    // Start a put or get of one piece if it is long enough (is_bulk()) and can_serve() it, from the
    // request's post(), which then returns UCS_OK.
    // @return whether it was: if not, it takes its usual way
    bool try_start(Request& request, Direction direction, const Piece& piece);

    // --- queue pairs that others own ---

    // Null without memory, or if the endpoint has kMaxPaths already.
    Path* add_path(Endpoint& endpoint, const PathParams& params, PathOwner& owner);
    // Post nothing more on it; PathOwner::path_gone() follows when what is under way is complete.
    void remove_path(Path& path);
    // Its transport endpoint is of no use any more: as if that had failed.
    void path_failed(Path& path, ucs_status_t status);
    // Who is asked for queue pairs, one for all endpoints; null: nobody.
    void set_provider(QueuePairProvider* provider);

    // --- threads ---

    // From now on these carry what they can serve.
    void use_threads(std::unique_ptr<ThreadPool> pool);
    // Null: all is done in the caller's progress.
    ThreadPool* threads();

    // --- called by the worker and its endpoints ---

    // Work that calls have put aside.
    void run_deferred();
    // Timers: silence, links, probes, revocation.
    void advance(ucs::Time now);
    ucs::Time next_deadline() const;
    // Transfers of the endpoint end with its status.
    void endpoint_failed(Endpoint& endpoint);
    // The endpoint's memory goes.
    void forget(Endpoint& endpoint);
    // Transport endpoints, of which some are paths'; may be told again.
    using Failure = std::pair<const uct::Endpoint*, ucs_status_t>;
    void transports_failed(std::span<const Failure> failures);

    // --- what goes by it ---

    // Are a put, a get or announced data of that length for the engine?
    static bool is_bulk(Endpoint& endpoint, size_t length);
    // Have memory that a peer is to access in bulk known to the devices of all rails to it.
    static void register_for_peer(Endpoint& endpoint, const Memory& memory, size_t length);

    // --- questions ---

    // What there is of the endpoint; null: it has had no transfers.
    const PathGroup* find(const Endpoint& endpoint) const;
    // Bytes of all transfers of the endpoint so far.
    uint64_t begun(const Endpoint& endpoint) const;
    // Records that are in use.
    size_t transfers_in_use() const;
    size_t chains_in_use() const;
    // Paths that were looked at for transport endpoints that failed.
    uint64_t looks() const;

  private:
    struct Parts;

    void post_waiting(PathGroup& group);
    void end_transfers(PathGroup& group, ucs_status_t status);

    const std::unique_ptr<Parts> parts_;
};

}  // namespace bulk
}  // namespace ucp
