// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>
#include <utility>

#include <boost/intrusive/list.hpp>

#include "ucp/api/ucp.h"
#include "ucp/mem/remote_memory.h"
#include "uct/api/interface.h"
#include "uct/api/types.h"

namespace ucp {

class Endpoint;
class RequestPool;

// A transport endpoint as the data path sees it at one moment.
struct Lane {
    uct::Endpoint& endpoint;
    const uct::InterfaceAttributes& attributes;
    DomainPair domains;  // here, for registrations; there, for remote keys
};

// An operation under way. Its handle points just behind it, at the user's area.
//
// Life: RequestPool::allocate() or begin() -> a protocol fills
// its part with emplace() and the hooks below -> Endpoint::submit() or RequestPool::finish_later()
// -> `count` references are dropped -> finished: cleanup(), the user's callback, memory back when
// the user has given it up too.
//
// References: `count` starts at 1, the *posting* reference, which the send queue drops when post()
// has nothing left to send or the request leaves the queue with an error. A protocol takes one
// more for each transport operation that returns UCS_INPROGRESS (call()) and one for an answer
// that it waits for; complete(status) drops one, and the first error is the request's status.
// Receives are never queued: their one reference is dropped when the data is there.
//
// Programs post many receives ahead, so what a receive needs from its posting to its end lies in
// two cache lines: the first of the request and the one behind it, with the beginning of the part.
// Behind the part comes what others need; a partial request gets it by fill().
struct Request : uct::Completion {
    // Post at most one message or one-sided operation on the lane.
    // @return UCS_OK: all is posted; UCS_INPROGRESS: one piece posted, more to come;
    //         UCS_ERR_NO_RESOURCE: nothing happened, call again when the lane has room; an error
    // ends the request. The lane may differ from call to call: fragment size and protocol are
    //         chosen at each call from the lane and the offset reached.
    using Post = ucs_status_t (*)(Request& request, const Lane& lane);
    using Cleanup = void (*)(Request& request);
    // The endpoint failed while the request waited for an answer. Drops that reference.
    using Abort = void (*)(Request& request, ucs_status_t status);

    enum Flag : uint32_t {
        kUserMemory = 1u << 0,     // memory of the user's: never goes to the pool
        kQueued = 1u << 1,         // in its endpoint's send queue
        kNeedsGreeting = 1u << 2,  // the receiver must know the sender's address first
        kAwaited = 1u << 3,        // a fence may wait for it: goes before what may wait for a fence
        kPartial = 1u << 4,        // fill() has not been called
        kEmulated = 1u << 5,       // a one-sided operation that goes as messages
    };

    // Who has the handle, and so hears of the end and gives the memory back.
    //
    //   begin()  kCall  -- finished --> kEndedCall -- end_call() --> none, or kProgram
    //            kCall  -- end_call() --> kProgram -- release() before the end --> kNobody
    enum class Holder : uint8_t {
        kProgram,
        kCall,       // the call that began it: an end is its return value
        kEndedCall,  // the same; it has ended
        kNobody,     // the library's own, or released before its end: the end gives it back
    };

    // By which rules it takes its turn on an endpoint.
    enum class Order : uint8_t {
        kMessage,         // among the messages, on their lane
        kOneSided,        // put, get, atomic: goes to the one-sided lane, obeys fences
        kFlush,           // has a place in the queue, but not on a lane: flushes the scalable one
        kFlushDedicated,  // then that goes on to the dedicated one, if there is one
    };

    enum class CallbackKind : uint8_t { kSend, kTagReceive, kAmReceive, kStreamReceive, kInternal };

    union Callback {
        ucp_send_nbx_callback_t send;
        ucp_tag_recv_nbx_callback_t tag_receive;
        ucp_am_recv_data_nbx_callback_t am_receive;
        ucp_stream_recv_nbx_callback_t stream_receive;
        void (*internal)(Request& request);
    };

    static constexpr size_t kPartOffset = 72;  // where in a request its part lies
    static constexpr size_t kPartSize = 208;

    Request() : uct::Completion{&Request::references_gone, 1, UCS_OK} { fill(); }
    struct Partial {};
    explicit Request(Partial) : uct::Completion{&Request::references_gone, 1, UCS_OK} {}
    // Give the members behind the part their first values.
    void fill() {
        endpoint = nullptr;
        post = nullptr;
        abort = nullptr;
        fence = 0;
        wire_id = 0;
        received = 0;
        protocol = nullptr;
        length = 0;
        memory_type = UCS_MEMORY_TYPE_HOST;
        flags &= ~uint32_t{kPartial};
    }

    // --- set up by the protocol ---
    RequestPool* pool = nullptr;
    uint32_t flags = 0;
    CallbackKind callback_kind = CallbackKind::kSend;
    Holder holder = Holder::kProgram;
    Order order = Order::kMessage;

  private:
    std::atomic<bool> finished_{false};

  public:
    Callback on_finish{};  // null: nobody is told
    void* user_data = nullptr;
    ucp_tag_recv_info_t tag_info;  // result of tag receives
    Cleanup cleanup = nullptr;     // releases what the part holds; called once, before the callback

    // The protocol's own data; one type a request. It is never destroyed, only cleaned up.
    template <typename T, typename... Args>
    T& emplace(Args&&... args) {
        static_assert(sizeof(T) <= kPartSize && alignof(T) <= 8);
        static_assert(std::is_trivially_destructible_v<T> ||
                      requires { requires T::kNeedsNoDestructor; });
        return *new (part_) T{std::forward<Args>(args)...};
    }
    template <typename T>
    T& part() {
        return *std::launder(reinterpret_cast<T*>(part_));
    }
    // The request that has this part.
    template <typename T>
    static Request& of(T& part) {
        return *reinterpret_cast<Request*>(reinterpret_cast<std::byte*>(&part) - kPartOffset);
    }

    // Account for a transport operation that was given this request as its completion:
    // `status = request.call([&](uct::Completion* c) { return lane.endpoint.am_zcopy(..., c); })`.
    // One that throws has not begun.
    template <typename Operation>
    ucs_status_t call(Operation operation) {
        ++count;
        try {
            const ucs_status_t result = operation(static_cast<uct::Completion*>(this));
            if (result != UCS_INPROGRESS) --count;
            return result;
        } catch (...) {
            --count;
            throw;
        }
    }

    // Count reached 0, cleanup done. Programs ask this from any thread, without the lock.
    bool is_finished() const { return finished_.load(std::memory_order_acquire); }
    void set_finished() { finished_.store(true, std::memory_order_release); }

    void* handle() { return this + 1; }
    static Request& from_handle(void* handle) { return *(static_cast<Request*>(handle) - 1); }

  private:
    static void references_gone(uct::Completion* self);

    alignas(8) std::byte part_[kPartSize];

  public:
    // In its endpoint's send queue, or among those that the next progress() ends.
    boost::intrusive::list_member_hook<boost::intrusive::link_mode<boost::intrusive::normal_link>>
        queue_hook;
    Endpoint* endpoint;  // null for receives
    Post post;
    Abort abort;       // null: complete(status)
    uint32_t fence;    // EndpointHost::fence_sequence when it was started
    uint64_t wire_id;  // RequestPool::name(), released at the finish; 0: it has none
    size_t received;   // result of receives of AM data and streams: bytes
    // For ucp_request_query() alone.
    const char* protocol;           // what carries it out; null for receives
    size_t length;                  // of the buffer in bytes; a partial request's is in its part
    ucs_memory_type_t memory_type;  // of the buffer
};

using RequestQueue = boost::intrusive::list<
    Request,
    boost::intrusive::member_hook<Request, decltype(Request::queue_hook), &Request::queue_hook>,
    boost::intrusive::constant_time_size<false>>;

// ucp_request_param_t with its defaults applied.
class OpParams {
  public:
    explicit OpParams(const ucp_request_param_t* param) : param_(*param) {}

    bool has(uint32_t bits) const { return (param_.op_attr_mask & bits) != 0; }
    ucp_datatype_t datatype() const {
        return has(UCP_OP_ATTR_FIELD_DATATYPE) ? param_.datatype : ucp_dt_make_contig(1);
    }
    uint32_t flags() const { return has(UCP_OP_ATTR_FIELD_FLAGS) ? param_.flags : 0; }
    void* user_data() const {
        return has(UCP_OP_ATTR_FIELD_USER_DATA) ? param_.user_data : nullptr;
    }
    ucp_mem_h memory() const { return has(UCP_OP_ATTR_FIELD_MEMH) ? param_.memh : nullptr; }
    void* reply_buffer() const {
        return has(UCP_OP_ATTR_FIELD_REPLY_BUFFER) ? param_.reply_buffer : nullptr;
    }
    // What the program says of the buffer. RDMA and what comes behind it, which nothing here
    // serves, counts as UNKNOWN: in older versions of the interface these values mean that.
    ucs_memory_type_t memory_type() const {
        return has(UCP_OP_ATTR_FIELD_MEMORY_TYPE) && (param_.memory_type < UCS_MEMORY_TYPE_RDMA ||
                                                      param_.memory_type > UCS_MEMORY_TYPE_UNKNOWN)
                   ? param_.memory_type
                   : UCS_MEMORY_TYPE_UNKNOWN;
    }
    bool has_callback() const { return has(UCP_OP_ATTR_FIELD_CALLBACK); }
    const ucp_request_param_t& raw() const { return param_; }

  private:
    const ucp_request_param_t& param_;
};

}  // namespace ucp
