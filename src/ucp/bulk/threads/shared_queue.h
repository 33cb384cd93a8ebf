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
#include "ucs/sys/time.h"
#include "uct/api/interface.h"

// What the worker's thread and its threads share of an endpoint (docs/design/bulk.md, "Threads").
namespace ucp::bulk {

struct SharedQueue;
struct Transfer;
struct SharedTransfer;
class QueuePairProxy;
class BulkThread;
class Path;
class ThreadEvents;

// A lock for the shared queues of some endpoints. Nothing is posted or awaited under it.
struct Shard {
    std::mutex mutex;
};

// Slices that a thread posted by one doorbell.
struct ThreadChain : uct::Completion, boost::intrusive::list_base_hook<> {
    BulkThread* thread = nullptr;
    struct ThreadQueuePair* queue_pair = nullptr;  // null: given up, its completion is not
    SharedTransfer* shared = nullptr;
    Run run;
    bool has_failed = false;  // the completion came, with an error
};
using ThreadChainList =
    boost::intrusive::list<ThreadChain, boost::intrusive::constant_time_size<false>>;

// A queue pair on a thread's interface.
struct ThreadQueuePair {
    enum class State : uint8_t {
        kIdle,      // not yet or no longer used
        kPosting,   // takes part
        kStopping,  // takes no more, what is under way ends
        kOver,      // failed or destroyed
    };

    explicit ThreadQueuePair(BulkThread& owner) : thread(owner) {}

    BulkThread& thread;

    // --- the thread's ---
    State state = State::kIdle;
    std::unique_ptr<uct::Endpoint> transport;
    SharedQueue* queue = nullptr;  // while posting or stopping
    // Its place in SharedQueue::domains; settled while it is in SharedQueue::queue_pairs.
    unsigned domain = 0;
    // The transport had no room when it was asked last: others need not wait for this one.
    std::atomic<bool> is_full{false};
    ThreadChainList chains;
    ucs_status_t failure = UCS_OK;  // to be handled when the transport's call is over

    // --- under the queue's shard ---
    Meter meter{1};
    bool link_up = true;

    // --- the worker's ---
    Path* path = nullptr;
    QueuePairProxy* proxy = nullptr;
};

// How a domain reaches a piece.
struct PieceAccess {
    const uct::MemoryHandle* memory;
    uct::RemoteKey key;
};

// What was waiting of a transfer when it was handed over. Made and freed by the worker.
struct SharedTransfer : boost::intrusive::list_base_hook<> {
    SharedTransfer(Transfer& owner, SliceQueue& of_owner, SharedQueue& where, Direction kind)
        : transfer(owner),
          source(of_owner),
          queue(where),
          direction(kind),
          slices(of_owner.pieces(), of_owner.rules()) {}

    // Does the domain in that place of SharedQueue::domains serve it?
    bool is_served_by(unsigned domain) const {
        return domain < access.size() && !access[domain].empty();
    }

    Transfer& transfer;
    SliceQueue& source;  // the worker's, of the transfer
    SharedQueue& queue;
    const Direction direction;
    // By domain and piece; empty: the domain does not serve.
    std::vector<std::vector<PieceAccess>> access;

    // --- under the queue's shard; the worker's again when it has come back ---
    SliceQueue slices;
    uint64_t bytes = 0;  // that are under way in the transfer for it
    size_t chains = 0;
};

// What the threads have of an endpoint: their queue pairs, and what these are to carry.
struct SharedQueue {
    struct Domain {
        DomainPair pair;
        size_t longest_put, longest_get;
    };

    explicit SharedQueue(Shard& where) : shard(where) {}

    // --- called under the shard ---

    // Those whose queue pairs post, to be woken without the shard.
    std::vector<BulkThread*> threads() const;
    // Is there a queue pair that serves it, on a device with a link?
    bool can_serve(const SharedTransfer& shared) const;
    // It goes to the worker if nothing of it is under way and nothing more will be.
    void end_if_over(SharedTransfer& shared, ThreadEvents& events);
    void end_idle_transfers(ThreadEvents& events);
    // What no thread has taken waits at its source again; those with nothing under way end, behind
    // what is on its way to the worker already. In the worker's thread.
    // @return the transfers that have got something, in their order
    std::vector<Transfer*> take_back(ThreadEvents& events);

    Shard& shard;
    std::vector<Domain> domains;  // the worker's

    // Is there anything to be taken? Written under the shard, looked at without it.
    std::atomic<bool> has_work{false};

    // --- under the shard ---
    boost::intrusive::list<SharedTransfer, boost::intrusive::constant_time_size<false>> transfers;
    std::vector<ThreadQueuePair*> queue_pairs;  // those that post
    ucs::Time completed_at{};                   // something on a queue pair
    ucs::Time others_completed_at{};            // something on the endpoint's other paths
    bool others_have_link = false;              // one of these at least
    bool is_stalled = false;  // silent: nothing is handed over until something is completed
};

}  // namespace ucp::bulk
