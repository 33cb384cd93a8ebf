// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>
#include <vector>

#include "ucp/api/ucp.h"
#include "ucp/proto/match/message_times.h"
#include "ucp/proto/match/turns.h"
#include "ucp/proto/rndv/rndv.h"
#include "ucp/runtime/interface_set.h"
#include "ucs/sys/time.h"
#include "uct/api/types.h"

namespace ucp {

// An active message that came before its handler: what AmHandlers needs to hand it over later.
struct EarlyMessage {
    uint16_t id = 0;
    bool wants_reply = false;
    uint64_t sender = 0;               // uuid, if wants_reply
    std::vector<std::byte> header;     // the user's
    std::byte* data = nullptr;         // of AmHandlers::allocate(); null for an announcement
    size_t length = 0;                 // of the data in bytes, announced or here
    std::vector<std::byte> announced;  // the announcement of a rendezvous; else empty
    ucs::Time since = {};              // when the first look found it; set by overdue()
    bool was_seen = false;             // such a look has been

    // Memory that it takes here, in bytes.
    size_t size() const {
        return sizeof(*this) + header.size() + announced.size() + (data != nullptr ? length : 0);
    }
};

// Active messages without a handler, in order of arrival. A program may set a handler as late as
// when its own send has ended; the answer may have come by then. Bounded in number, bytes and time:
// more than that is a mistake of the program's. The owner of the messages' data is whoever took
// them out last.
class EarlyMessages {
  public:
    static constexpr size_t kMostMessages = 1024;
    static constexpr size_t kMostBytes = size_t{4} << 20;
    // How long one waits, from the first look at it on.
    static constexpr ucs::Duration kMostTime = std::chrono::seconds(1);

    bool empty() const { return messages_.empty(); }
    // Room for one more message of that size()?
    bool has_room(size_t bytes) const {
        return messages_.size() < kMostMessages && bytes <= kMostBytes - bytes_;
    }
    // Requires has_room().
    void add(EarlyMessage message);
    bool has(uint16_t id) const;
    // Moves the oldest message of that id to `message`. @return false: there is none
    bool take(uint16_t id, EarlyMessage* message);
    // Moves the oldest message to `message` if nobody asked for it in time.
    bool take_overdue(ucs::Time now, EarlyMessage* message);
    // The oldest of all. @return false: there is none
    bool take_any(EarlyMessage* message);
    // When a message is overdue; ucs::kNever without any.
    ucs::Time next_deadline() const;

  private:
    using Messages = std::list<EarlyMessage>;
    void take(Messages::iterator found, EarlyMessage* message);

    Messages messages_;
    size_t bytes_ = 0;
};

// AmHeader::flags.
inline constexpr uint16_t kAmReply = 1;  // the sender may be answered: its uuid is in the header
// Above it: the number of the endpoint to answer on, of a worker that sends to itself; or 0.
inline constexpr unsigned kAmPartnerShift = 4;

// Active messages of a worker: sending, the user's handlers, and what they keep.
//
// Data that a handler may keep has its owner's name in the 8 bytes before it: a transport's receive
// descriptor (the bytes of the message's header are free by then), a copy on the heap, or the
// announcement of a rendezvous. That is how release() and receive() find it.
//
// Messages that come before their handler wait for it for a while (EarlyMessages). It gets them in
// the next progress, before any that come later.
class AmHandlers : MessageProtocol {
  public:
    // @param services  of the messages; @param times  outlives the handlers
    template <typename... Services>
    explicit AmHandlers(MessageTimes& times, Services&... services)
        : MessageProtocol(services...), times_(times) {}
    ~AmHandlers();

    void add_handlers(InterfaceSet& interfaces);

    // ucp_am_send_nbx() beyond the short path.
    ucs_status_ptr_t send(Endpoint& endpoint, uint16_t id, const void* header, size_t header_length,
                          const void* buffer, size_t count, const OpParams& params);

    ucs_status_t set(const ucp_am_handler_param_t& param);
    // Handlers of the older interface.
    ucs_status_t set(uint16_t id, ucp_am_callback_t callback, void* argument, uint32_t flags) {
        return set(unsigned{id}, {nullptr, callback, argument, flags});
    }

    // Where the data of arriving messages is aligned to; a power of two.
    void set_alignment(size_t alignment) { alignment_ = alignment; }

    // Gives handlers that have been set what came before them. @return messages
    unsigned run_deferred();
    // Now and then: drops what no handler was set for.
    void advance(ucs::Time now) {
        if (!early_.empty()) [[unlikely]]
            drop_overdue(now);
    }
    ucs::Time next_deadline() const { return early_.next_deadline(); }

    // ucp_am_data_release()
    void release(void* data);
    // ucp_am_recv_data_nbx()
    ucs_status_ptr_t receive(void* descriptor, void* buffer, size_t count, const OpParams& params);

    // --- arriving messages ---

    struct Message {
        uint16_t id;
        bool wants_reply;
        uint64_t sender;  // if wants_reply: uuid, or Loopbacks' number
        const std::byte* header;
        size_t header_length;
        std::byte* data;
        size_t length;
    };
    // Hand over a message that lies in a transport's buffer; at least 8 bytes precede its data.
    // @param descriptor  null: the buffer cannot be kept
    // @return as uct::AmHandler
    ucs_status_t deliver(const Message& message, uct::ReceiveDescriptor* descriptor);
    // Hand over a message in memory of allocate(), which passes over.
    void deliver_block(const Message& message);
    // Hand over an announcement.
    void deliver_announcement(const Message& message, const void* announcement, size_t size);

    // A message of that worker found no memory: its endpoint ends, as nothing may be missing.
    // @param sender  0: nobody knows; all endpoints end
    void lost(uint64_t sender);
    // Memory for data that may be kept, aligned for the user.
    std::byte* allocate(size_t bytes);
    static void free_block(std::byte* data);
    Reassembly& reassembly() const { return reassembly_; }

  private:
    struct Handler {
        ucp_am_recv_callback_t callback = nullptr;
        ucp_am_callback_t old_callback = nullptr;
        void* argument = nullptr;
        uint32_t flags = 0;
    };

    bool is_set(uint16_t id) const {
        return id < handlers_.size() &&
               (handlers_[id].callback != nullptr || handlers_[id].old_callback != nullptr);
    }
    const Handler* handler_of(uint16_t id);
    // By which protocol a message goes that ucp_am_send_nbx() sends with those flags.
    MessageTimes::Route route(Endpoint& endpoint, const Packer& buffer, const Memory* memory,
                              uint32_t flags);
    ucs_status_t set(unsigned id, const Handler& handler);
    void hand_over_early(uint16_t id);
    void keep_early(const Message& message, std::span<const std::byte> announced);
    void drop(const EarlyMessage& message, const char* reason);
    void drop_overdue(ucs::Time now);
    ucs_status_t call(const Handler& handler, const Message& message, uint64_t attributes);

    static ucs_status_t on_short(void* self, void* data, size_t length,
                                 uct::ReceiveDescriptor* descriptor);
    static ucs_status_t on_single(void* self, void* data, size_t length,
                                  uct::ReceiveDescriptor* descriptor);
    static ucs_status_t on_first(void* self, void* data, size_t length,
                                 uct::ReceiveDescriptor* descriptor);
    static ucs_status_t on_announcement(void* self, void* data, size_t length,
                                        uct::ReceiveDescriptor* descriptor);

    MessageTimes& times_;
    std::vector<Handler> handlers_;
    EarlyMessages early_;
    // Handlers of messages that came before them: in force when those have been handed over.
    std::unordered_map<uint16_t, Handler> waiting_;
    Turns turns_;            // of long messages
    uint64_t received_ = 0;  // messages that handlers got
    size_t alignment_ = 1;
    bool consumed_in_handler_ = false;  // the announcement that is being handed over is gone
};

}  // namespace ucp
