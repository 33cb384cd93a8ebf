// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <boost/intrusive/slist.hpp>
#include <new>
#include <span>

#include "ucs/datastruct/memory_pool.h"
#include "ucs/runtime/runtime.h"
#include "uct/api/types.h"
#include "uct/ib/base/device.h"

namespace uct::ib {

class SendQueue;

// Most pieces of one work request: those of a zero-copy operation and its header.
inline constexpr unsigned kMaxIov = 4;
inline constexpr unsigned kMaxSge = kMaxIov + 1;

enum class Opcode : uint8_t { kSend, kWrite, kRead, kFetchAdd, kCompareSwap };

// Key of dynamically connected targets of this library: a peer must know it to send.
inline constexpr uint64_t kDcKey = 0x5377696674316e65;

// Where a work request of DC or a datagram goes.
struct DcTarget {
    ibv_ah* ah = nullptr;
    uint32_t number = 0;
    friend bool operator==(const DcTarget&, const DcTarget&) = default;
};

struct WorkRequest {
    explicit WorkRequest(Opcode code) : opcode(code) {}  // the unused pieces stay unset

    Opcode opcode;
    bool inlined = false;  // pieces are copied while posting; their local keys do not count
    bool signaled = false;
    bool fenced = false;  // starts after earlier reads and atomics of the queue
    uint8_t pieces = 0;
    uint32_t remote_key = 0;  // of a datagram: the Q_Key of its target
    uint64_t remote_address = 0;
    uint64_t operand = 0, compare = 0;
    DcTarget target;
    ibv_sge sge[kMaxSge];

    void add(const void* address, size_t length, uint32_t local_key = 0) {
        sge[pieces++] = {reinterpret_cast<uintptr_t>(address), static_cast<uint32_t>(length),
                         local_key};
    }
};

// What is to happen when a work request is complete. From a pool; one that has data behind it is a
// BounceBuffer. Those of a queue run in the order of posting.
struct SendOperation : boost::intrusive::slist_base_hook<
                           boost::intrusive::link_mode<boost::intrusive::normal_link>> {
    // Runs once, out of the queue's list, with the queue possibly gone; gives the object back.
    using Finish = void (*)(SendOperation& operation, ucs_status_t status);

    uint32_t index;  // of the work request in its queue
    Finish finish;
    ucs::MemoryPool* pool;
    Completion* completion;
    void* argument;  // UnpackCallback's, or where an atomic's old value goes
    UnpackCallback unpack;
    uint32_t length;
    bool has_request;   // false: rides on a request posted before it
    const void* owner;  // endpoint that posted it; shared queues only

    void release() { pool->release(this); }
    // What was posted, to be posted anew after another's failure; shared queues only.
    WorkRequest& record() { return *std::launder(reinterpret_cast<WorkRequest*>(record_)); }
    void keep(const WorkRequest& request) { ::new (record_) WorkRequest(request); }

  private:
    alignas(WorkRequest) std::byte record_[sizeof(WorkRequest)];
};

using OperationList = boost::intrusive::slist<SendOperation, boost::intrusive::cache_last<true>,
                                              boost::intrusive::constant_time_size<false>>;

// A registered buffer: `local_key` is written once, when the pool grows.
struct BounceBuffer {
    static constexpr size_t kKeyOffset = sizeof(SendOperation);

    SendOperation operation;
    uint32_t local_key;
    alignas(16) std::byte data[];
};

// Credits of a completion queue that several send queues share: one for each work request.
struct CompletionCredits {
    int available = 0;
};

// Told about the completions of a send queue.
class SendQueueOwner {
  public:
    // Work requests were completed, their operations finished; the queue may be empty now.
    virtual void on_completed(SendQueue& queue) = 0;
    // Work request `index` failed, those before it are done; the queue takes no more until the
    // owner has called reset() and restart(). May destroy the queue.
    virtual void on_failed(SendQueue& queue, uint32_t index, ucs_status_t status) = 0;
    // Completions are short: have what the queue did unsignalled signalled.
    virtual void signal_rest(SendQueue& queue) = 0;

  protected:
    ~SendQueueOwner() = default;
};

// A queue pair's send side with its accounting.
//
// Work requests are numbered. Most are unsignalled; one in `moderation` is signalled, and
// signal() makes the last one's end visible. Beyond `depth` there is room for one work request
// more, with a credit set aside, so that signal() works on a full queue too.
class SendQueue {
  public:
    static constexpr unsigned kReserve = 1;
    static constexpr size_t kMaxChain = 64;

    SendQueue(SendQueueOwner& owner, CompletionCredits& credits, unsigned depth,
              unsigned moderation);
    ~SendQueue();
    SendQueue(const SendQueue&) = delete;

    // Take over a new queue pair; `token` tells its completions from those of others.
    void attach(QpPtr qp, bool extended, bool dynamic, uint32_t token);
    // As attach(), a queue pair of datagrams: every work request has its target.
    void attach_datagrams(QpPtr qp, uint32_t token) {
        attach(std::move(qp), false, false, token);
        is_datagram_ = true;
    }

    ibv_qp* qp() const { return qp_.get(); }
    // The queue pair takes no more messages: what has arrived by now is all.
    void refuse_messages();
    uint32_t token() const { return token_; }
    SendQueueOwner& owner() const { return owner_; }

    bool has_room() const {
        return posted_ - completed_ < depth_ && credits_.available > 0 && !failed_;
    }
    bool has_own_room() const { return posted_ - completed_ < depth_ && !failed_; }
    bool is_idle() const { return posted_ == completed_; }
    bool has_failed() const { return failed_; }
    // Of one that is not half of all numbers old, unless others are outstanding.
    bool is_complete(uint32_t index) const { return !ucs::is_before(completed_, index); }
    uint32_t posted() const { return posted_; }
    bool has_unsignaled() const { return posted_ != signaled_; }
    uint32_t outstanding() const { return posted_ - completed_; }

    // May post_plain() be called? If not, post() may still have room.
    bool has_plain_room() const { return plain_left_ != 0 && credits_.available > 0; }
    // Post an unsignalled message inline where has_plain_room(): what most messages are, and all
    // that is left of post() for them. @return false if the driver refused, logged
    bool post_plain(const DcTarget* target, std::span<const ibv_data_buf, 2> pieces) {
        ibv_qp_ex* const qp = extended_;
        ibv_wr_start(qp);
        qp->wr_id = uint64_t{token_} << 32 | (posted_ + 1);
        qp->wr_flags = 0;
        ibv_wr_send(qp);
        if (target != nullptr) mlx5dv_wr_set_dc_addr(dynamic_, target->ah, target->number, kDcKey);
        ibv_wr_set_inline_data_list(qp, pieces.size(), pieces.data());
        if (ibv_wr_complete(qp) != 0) [[unlikely]]
            return refused();
        --credits_.available;
        --plain_left_;
        ++posted_;
        return true;
    }
    // Post where has_room(). @return false if the driver refused, logged
    bool post(const WorkRequest& request, SendOperation* operation = nullptr);
    // Post writes or reads with one doorbell, the last one signalled; `operation` runs when all are
    // complete. From the front, as many as there is room for, at most kMaxChain.
    // @param immediate  goes with the last piece; of writes only. Not sent unless all are taken
    // @return how many; 0 without room; UCS_ERR_IO_ERROR if the driver refused all, logged
    ssize_t post_chain(Opcode opcode, std::span<const ChainPiece> pieces, const DcTarget& target,
                       SendOperation& operation, const uint32_t* immediate = nullptr);
    // Let the end of what is posted so far be known. @return false if that must wait
    bool signal(const DcTarget& target);
    // As signal(), and run `operation` then.
    bool ride(SendOperation& operation, const DcTarget& target);

    // It failed without a completion that says so. The queue may be destroyed when this returns.
    void fail(ucs_status_t status);
    // A completion arrived. The queue may be destroyed when this returns.
    void complete(uint32_t index, ibv_wc_status status, uint32_t vendor_error);

    // After a failure: the queue pair goes to the reset state, in which it touches no buffer; its
    // late completions are known by their token. Operations before `failed` go to `done`, the
    // others to `rest`: the caller finishes them.
    void reset(uint32_t failed, OperationList* done, OperationList* rest);
    // Ready to send again after reset(), the queue pair having been brought up by the caller.
    void restart(uint32_t token);
    // Take the operations that wait, for the destruction of the queue.
    OperationList take_all();
    // Operations of an endpoint that goes: they go on without it.
    void forget_owner(const void* owner);

  private:
    bool submit(const WorkRequest& request, bool signaled);
    bool refused() const;
    void count_plain();
    bool post_extended(const WorkRequest& request, uint64_t id, unsigned flags);
    bool post_plain(const WorkRequest& request, uint64_t id, unsigned flags);
    bool chain_extended(Opcode opcode, std::span<const ChainPiece> pieces, const DcTarget& target,
                        const uint32_t* immediate);
    size_t chain_plain(Opcode opcode, std::span<const ChainPiece> pieces,
                       const uint32_t* immediate);
    void finish(uint32_t index, ucs_status_t status);

    SendQueueOwner& owner_;
    CompletionCredits& credits_;
    QpPtr qp_;
    ibv_qp_ex* extended_ = nullptr;
    mlx5dv_qp_ex* dynamic_ = nullptr;
    uint32_t token_ = 0;
    const uint32_t depth_;
    const uint32_t moderation_;
    uint32_t plain_left_ = 0;  // unsignalled ones that have room for sure and need no look
    uint32_t posted_ = ucs::first_number();  // number of the last work request
    uint32_t signaled_ = posted_;            // number of the last signalled one
    uint32_t completed_ = posted_;           // number of the last completed one
    uint32_t reserved_signal_ = posted_;     // number of a signal() posted into the reserve
    bool reserve_used_ = false;
    bool failed_ = false;
    bool is_datagram_ = false;
    OperationList operations_;
};

// UCS_ERR_REJECTED: the remote side does not allow this access; it is well otherwise.
ucs_status_t status_of(ibv_wc_status status);
// Of what a failed work request takes with it.
inline ucs_status_t status_of_others(ucs_status_t status) {
    return status == UCS_ERR_REJECTED ? UCS_ERR_CONNECTION_RESET : status;
}
// The first is the one that failed.
void finish_failed(OperationList& operations, ucs_status_t status);
void finish_all(OperationList& operations, ucs_status_t status);

}  // namespace uct::ib
