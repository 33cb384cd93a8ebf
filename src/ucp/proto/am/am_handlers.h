// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ucp/api/ucp.h"
#include "ucp/base/request.h"
#include "ucp/base/wire.h"
#include "uct/api/types.h"

namespace ucp {

class Endpoint;
class Worker;

/** AmHeader::flags. */
inline constexpr uint16_t kAmReply = 1;  //!< the sender may be answered: its uuid is in the header

/**
 * The user's handlers of active messages, and what they keep.
 *
 * Data that a handler may keep has its owner's name in the 8 bytes before it: a transport's receive
 * descriptor (the bytes of the message's header are free by then), a copy on the heap, or the
 * announcement of a rendezvous. That is how release() and receive() find it.
 */
class AmHandlers {
  public:
    explicit AmHandlers(Worker& worker) : worker_(worker) {}

    ucs_status_t set(const ucp_am_handler_param_t& param);
    /** Handlers of the older interface. */
    ucs_status_t set(uint16_t id, ucp_am_callback_t callback, void* argument, uint32_t flags);

    /** Where the data of arriving messages is aligned to; a power of two. */
    void set_alignment(size_t alignment) { alignment_ = alignment; }

    /** ucp_am_data_release() */
    void release(void* data);
    /** ucp_am_recv_data_nbx() */
    ucs_status_ptr_t receive(void* descriptor, void* buffer, size_t count, const OpParams& params);

    // --- arriving messages ---

    struct Message {
        uint16_t id;
        bool wants_reply;
        uint64_t sender;  //!< uuid, if wants_reply
        const std::byte* header;
        size_t header_length;
        std::byte* data;
        size_t length;
    };
    /**
     * Hand over a message that lies in a transport's buffer; at least 8 bytes precede its data.
     * @param descriptor  null: the buffer cannot be kept
     * @return as uct::AmHandler
     */
    ucs_status_t deliver(const Message& message, uct::ReceiveDescriptor* descriptor);
    /** Hand over a message in memory of allocate(), which passes over. */
    void deliver_block(const Message& message);
    /** Hand over an announcement. */
    void deliver_announcement(const Message& message, const void* announcement, size_t size);

    /** Memory for data that may be kept, aligned for the user. */
    std::byte* allocate(size_t bytes);
    static void free_block(std::byte* data);

  private:
    struct Handler {
        ucp_am_recv_callback_t callback = nullptr;
        ucp_am_callback_t old_callback = nullptr;
        void* argument = nullptr;
        uint32_t flags = 0;
    };

    Handler* handler_of(uint16_t id);
    Handler* place(unsigned id);
    ucs_status_t call(const Handler& handler, const Message& message, uint64_t attributes);

    Worker& worker_;
    std::vector<Handler> handlers_;
    size_t alignment_ = 1;
    bool consumed_in_handler_ = false;  //!< the announcement that is being handed over is gone
};

void add_am_handlers(Worker& worker);

/** ucp_am_send_nbx() beyond the short path. */
ucs_status_ptr_t am_send(Endpoint& endpoint, uint16_t id, const void* header, size_t header_length,
                         const void* buffer, size_t count, const OpParams& params);
/** The longest header of a user that every lane of the worker takes. */
size_t max_am_header(Worker& worker);

}  // namespace ucp
