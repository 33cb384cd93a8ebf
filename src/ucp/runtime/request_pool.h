// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_set>
#include <vector>

#include "ucp/base/request.h"
#include "ucp/runtime/deferred_work.h"
#include "ucp/runtime/gate.h"
#include "ucs/datastruct/memory_pool.h"
#include "ucs/datastruct/slot_table.h"

namespace ucp {

class Worker;

// The part of each request that belongs to the program (ucp_params_t).
struct UserArea {
    size_t size = 0;
    ucp_request_init_callback_t init = nullptr;
    ucp_request_cleanup_callback_t cleanup = nullptr;
};

// A worker's requests: their memory, their names on the wire, and their ends.
//
// Thread rule: the worker's. Callbacks of the program run inside.
class RequestPool {
  public:
    RequestPool(const UserArea& area, Gate& gate, DeferredWork& work, Worker* owner);
    ~RequestPool();
    RequestPool(const RequestPool&) = delete;

    Gate& gate() { return gate_; }
    // The next progress has something to run, whatever the transports have. Any thread.
    void run_soon() { work_.notify(); }
    // The same from a call of the program, which may have armed the worker already, to sleep next.
    void run_behind_call() {
        run_soon();
        gate_.end_call();
    }
    // For the C functions, which are called with a request alone.
    Worker* owner() const { return owner_; }

    // --- beginning ---

    // A request of the library's own; null if there is no memory.
    Request* allocate();
    // A request for a call of the program: in the program's memory if the parameters say so, with
    // the callback that they hold. The call has it: end_call() or Endpoint::submit() ends that,
    // or recycle() if it was in vain. Null if there is no memory.
    Request* begin(const OpParams& params, Request::CallbackKind kind);
    // The partial request of a receive that is posted in this call. Null if there is no memory.
    Request* begin_posted(const OpParams& params) {
        Request* const request = begin_found(params);
        if (request != nullptr && params.has_callback()) {
            request->on_finish.tag_receive = params.raw().cb.recv;
            request->user_data = params.user_data();  // which nobody else asks for
        }
        return request;
    }
    // The same of a receive whose message has come before: end_found() ends it in this call.
    Request* begin_found(const OpParams& params) {
        uint32_t flags = Request::kPartial;
        void* memory;
        if (params.has(UCP_OP_ATTR_FIELD_REQUEST)) {
            memory = &Request::from_handle(params.raw().request);
            flags |= Request::kUserMemory;
        } else {
            memory = memory_.allocate();
            if (memory == nullptr) [[unlikely]]
                return nullptr;
        }
        auto* request = new (memory) Request(Request::Partial());
        request->pool = this;
        request->flags = flags;
        request->callback_kind = Request::CallbackKind::kTagReceive;
        return request;
    }
    // ucp_request_alloc(): memory of the pool that the program treats as its own.
    Request* lend();

    // --- ending ---

    // A posted receive has got all it waited for: what complete() does for a request with one
    // reference, outside of calls, with no name and nothing to clean up.
    void end_receive(Request& request) {
        const bool is_given_up = request.holder == Request::Holder::kNobody;
        const ucp_tag_recv_nbx_callback_t callback = request.on_finish.tag_receive;
        request.count = 0;
        request.cleanup = nullptr;
        request.set_finished();
        // As in deliver(): the request may be gone from here on.
        if (callback != nullptr)
            callback(request.handle(), UCS_OK, &request.tag_info, request.user_data);
        if (is_given_up) [[unlikely]]
            recycle(request);
    }
    // A receive of begin_found() has its message and its `tag_info`. Not while is_ending_call().
    // @return what end_call() does
    ucs_status_ptr_t end_found(Request& request, const OpParams& params) {
        request.count = 0;
        if (!params.has(UCP_OP_ATTR_FLAG_NO_IMM_CMPL)) [[unlikely]]
            return give_found_back(request, params);
        void* const handle = request.handle();
        request.set_finished();
        // As in deliver(): the request may be gone from here on.
        if (params.has_callback()) {
            const EndingCall ending(is_ending_call_);
            params.raw().cb.recv(handle, UCS_OK, &request.tag_info, params.user_data());
        }
        return handle;
    }
    // A callback runs within a call that has started its operation: what that receives in turn ends
    // later.
    bool is_ending_call() const { return is_ending_call_; }
    // A request that was never started, or is finished, and whose handle nobody holds.
    void recycle(Request& request) {
        if ((request.flags & Request::kUserMemory) != 0) return;
        request.~Request();
        memory_.release(&request);
    }
    // The same of one whose preparation failed half-way: what its part holds is released.
    void undo(Request& request);
    // A receive's or an internal request's result for the program's call that began it: takes the
    // handle back if the request is finished, unless `params` forbid it. Fills
    // recv_info.
    ucs_status_ptr_t end_call(Request& request, const OpParams& params);
    // The request's call ends with `status` and without a handle.
    ucs_status_ptr_t give_back(Request& request, ucs_status_t status);
    // Drop a reference of the request in the next progress: for failures inside calls.
    void finish_later(Request& request, ucs_status_t status);
    // ucp_request_free(): nobody is told of the end if it is still to come.
    void free(Request& request) {
        if (request.is_finished() && lent_.empty()) [[likely]] {
            recycle(request);
        } else {
            request.on_finish = {};
            release(request);
        }
    }
    // ucp_request_release(): the memory goes back at the end, of which the callback still tells.
    void release(Request& request);
    // The last reference is gone (Request::complete()).
    void finish(Request& request);
    // Ends what finish_later() put aside. @return how many
    unsigned run_deferred();
    // The worker goes: what was put aside stays as it is.
    void drop_deferred() { deferred_.clear(); }

    // --- names on the wire, and answers of peers ---

    // Gives the request a name; the failure of its endpoint finds it by this table as well.
    uint64_t name(Request& request);
    // @return null for a name that is not in use: names come from outside
    Request* find(uint64_t wire_id);
    void unname(Request& request);
    // Requests are under way that messages of peers will name.
    bool has_named() const { return named_.size() != 0; }
    // The peer will answer: the request gets a name, and a reference that the answer drops. As
    // name() it throws std::bad_alloc, and has no effect then.
    void await_answer(Request& request) {
        name(request);
        ++request.count;
    }
    // The answer is here. May end the request.
    void answered(Request& request, ucs_status_t status) {
        unname(request);
        request.complete(status);
    }
    // The answer that the request waits for will not come.
    void abort(Request& request, ucs_status_t status);
    // The same for all named requests of an endpoint that has failed. Allocates nothing.
    void abort_named(const Endpoint& endpoint, ucs_status_t status);

  private:
    // Prepares the program's part of each request once.
    class Chunks final : public ucs::ChunkSource {
      public:
        explicit Chunks(const UserArea& area) : area_(area) {}
        Chunk allocate(size_t bytes) override;
        void release(const Chunk& chunk, size_t bytes) override;
        void prepare(void* object, const Chunk& chunk) override;

      private:
        const UserArea area_;
        std::vector<void*> prepared_;
    };

    // However a callback ends that is called within its operation's call.
    class EndingCall {
      public:
        explicit EndingCall(bool& is_ending) : is_ending_(is_ending) { is_ending_ = true; }
        ~EndingCall() { is_ending_ = false; }
        EndingCall(EndingCall&&) = delete;

      private:
        bool& is_ending_;
    };

    void deliver(Request& request);
    ucs_status_ptr_t deliver_within_call(Request& request);
    [[gnu::noinline]] ucs_status_ptr_t give_found_back(Request& request, const OpParams& params);
    void defer(Request& request);

    Gate& gate_;
    DeferredWork& work_;
    Worker* const owner_;
    Chunks chunks_;
    ucs::MemoryPool memory_;
    ucs::SlotTable<Request> named_;
    RequestQueue deferred_;
    bool is_ending_call_ = false;  // a callback runs within a call that has started its operation
    std::unordered_set<Request*> lent_;
};

}  // namespace ucp
