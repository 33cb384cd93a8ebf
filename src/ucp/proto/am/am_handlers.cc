// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/proto/am/am_handlers.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <span>
#include <utility>

#include "ucp/base/handles.h"
#include "ucp/proto/match/receive.h"
#include "ucs/log/log.h"

namespace ucp {
namespace {

// Whose the bytes are that a handler keeps. The 8 bytes before them are a pointer to the owner,
// with this in its low bits.
enum class Owner : uintptr_t { kDescriptor = 0, kBlock = 1, kAnnouncement = 2 };

void set_owner(void* data, void* pointer, Owner kind) {
    const uintptr_t value = reinterpret_cast<uintptr_t>(pointer) | static_cast<uintptr_t>(kind);
    std::memcpy(static_cast<std::byte*>(data) - sizeof(value), &value, sizeof(value));
}

std::pair<void*, Owner> owner_of(void* data) {
    uintptr_t value;
    std::memcpy(&value, static_cast<std::byte*>(data) - sizeof(value), sizeof(value));
    return {reinterpret_cast<void*>(value & ~uintptr_t{3}), static_cast<Owner>(value & 3)};
}

// The announcement's bytes, and how many there are in front of them.
struct KeptAnnouncement {
    size_t size;
    uint64_t owner;
};

std::span<const std::byte> announcement_of(void* descriptor) {
    auto* kept = static_cast<KeptAnnouncement*>(descriptor) - 1;
    return {static_cast<const std::byte*>(descriptor), kept->size};
}

void free_announcement(void* descriptor) {
    std::free(static_cast<KeptAnnouncement*>(descriptor) - 1);
}

}  // namespace

// --- handlers ---

AmHandlers::~AmHandlers() {
    EarlyMessage message;
    while (early_.take_any(&message)) {
        if (message.data != nullptr) free_block(message.data);
    }
}

ucs_status_t AmHandlers::set(unsigned id, const Handler& handler) {
    if (id > UINT16_MAX) return UCS_ERR_INVALID_PARAM;
    if (handlers_.size() <= id) handlers_.resize(id + 1);
    const auto number = static_cast<uint16_t>(id);
    waiting_.erase(number);
    handlers_[id] = {};
    const bool is_any = handler.callback != nullptr || handler.old_callback != nullptr;
    if (!is_any || !early_.has(number)) {
        handlers_[id] = handler;
        return UCS_OK;
    }
    // Handlers are called from progress alone.
    waiting_[number] = handler;
    requests_.run_soon();
    return UCS_OK;
}

ucs_status_t AmHandlers::set(const ucp_am_handler_param_t& param) {
    const auto has = [&](uint64_t field) { return (param.field_mask & field) != 0; };
    if (!has(UCP_AM_HANDLER_PARAM_FIELD_ID) || !has(UCP_AM_HANDLER_PARAM_FIELD_CB)) {
        return UCS_ERR_INVALID_PARAM;
    }
    Handler handler;
    handler.callback = param.cb;
    if (has(UCP_AM_HANDLER_PARAM_FIELD_ARG)) handler.argument = param.arg;
    if (has(UCP_AM_HANDLER_PARAM_FIELD_FLAGS)) handler.flags = param.flags;
    return set(param.id, handler);
}
// @return null if there is none; one that waits for messages that came before it gets them
const AmHandlers::Handler* AmHandlers::handler_of(uint16_t id) {
    if (is_set(id)) [[likely]]
        return &handlers_[id];
    if (waiting_.contains(id)) hand_over_early(id);
    return is_set(id) ? &handlers_[id] : nullptr;
}

// --- messages that came before their handler ---

// A handler may set or take away any handler meanwhile, its own as well.
void AmHandlers::hand_over_early(uint16_t id) {
    const auto found = waiting_.find(id);
    if (found == waiting_.end()) return;
    handlers_[id] = found->second;
    waiting_.erase(found);
    EarlyMessage early;
    while (is_set(id) && early_.take(id, &early)) {
        const Message message{
            early.id,   early.wants_reply, early.sender, early.header.data(), early.header.size(),
            early.data, early.length};
        if (early.announced.empty()) {
            deliver_block(message);
        } else {
            deliver_announcement(message, early.announced.data(), early.announced.size());
        }
    }
}

unsigned AmHandlers::run_deferred() {
    unsigned count = 0;
    for (; !waiting_.empty(); ++count) hand_over_early(waiting_.begin()->first);
    return count;
}

// Takes over the message's data, a block of allocate(), unless it is an announcement.
void AmHandlers::keep_early(const Message& message, std::span<const std::byte> announced) {
    EarlyMessage early;
    early.id = message.id;
    early.wants_reply = message.wants_reply;
    early.sender = message.sender;
    early.data = message.data;
    early.length = message.length;
    try {
        early.header.assign(message.header, message.header + message.header_length);
        early.announced.assign(announced.begin(), announced.end());
        if (early_.has_room(early.size())) {
            early_.add(early);
        } else {
            drop(early, "too many wait for one");
        }
    } catch (const std::bad_alloc&) {
        if (message.data != nullptr) free_block(message.data);
        throw;
    }
}

void AmHandlers::drop(const EarlyMessage& message, const char* reason) {
    ucs::log_warn("an active message {} without a handler was dropped: {}", message.id, reason);
    Announcement announcement;
    if (message.data != nullptr) free_block(message.data);
    if (!message.announced.empty() && parse_announcement(message.announced, &announcement))
        rndv_.refuse(announcement.rts, UCS_OK);
}

void AmHandlers::drop_overdue(ucs::Time now) {
    EarlyMessage message;
    while (early_.take_overdue(now, &message)) drop(message, "none was set for long");
}

ucs_status_t AmHandlers::call(const Handler& handler, const Message& message, uint64_t attributes) {
    ++received_;
    ucp_ep_h reply = nullptr;
    if (message.wants_reply) {
        Endpoint* const endpoint = Loopbacks::is_number(message.sender)
                                       ? endpoints_.loopbacks().find(message.sender)
                                       : endpoints_.find(message.sender);
        if (endpoint != nullptr && endpoint->admits(AmId::kAmSingle)) {
            endpoint->set_lent();
            reply = wrap(endpoint);
        }
    }
    if (handler.callback == nullptr) {
        const unsigned flags =
            (attributes & UCP_AM_RECV_ATTR_FLAG_DATA) != 0 ? UCP_CB_PARAM_FLAG_DATA : 0;
        return handler.old_callback(handler.argument, message.data, message.length, reply, flags);
    }
    ucp_am_recv_param_t param{};
    param.recv_attr = attributes;
    if (reply != nullptr) {
        param.recv_attr |= UCP_AM_RECV_ATTR_FIELD_REPLY_EP;
        param.reply_ep = reply;
    }
    return handler.callback(handler.argument, message.header_length != 0 ? message.header : nullptr,
                            message.header_length, message.data, message.length, &param);
}

// --- arriving messages ---

std::byte* AmHandlers::allocate(size_t bytes) {
    if (bytes > PTRDIFF_MAX) return nullptr;  // sizes come from messages
    const size_t alignment = std::max<size_t>(alignment_, 16);
    const size_t room = (alignment + bytes + alignment - 1) / alignment * alignment;
    auto* block = static_cast<std::byte*>(std::aligned_alloc(alignment, room));
    if (block == nullptr) return nullptr;
    set_owner(block + alignment, block, Owner::kBlock);
    return block + alignment;
}

// A message is lost. Nothing may be missing among the messages of an endpoint: its sender's fails,
// or all if the sender is not known.
void AmHandlers::lost(uint64_t sender) {
    if (Endpoint* endpoint = endpoints_.find(sender)) return endpoint->reset(UCS_ERR_NO_MEMORY);
    if (sender == 0)
        endpoints_.for_each([](Endpoint& endpoint) { endpoint.reset(UCS_ERR_NO_MEMORY); });
}

void AmHandlers::free_block(std::byte* data) {
    std::free(owner_of(data).first);
}

ucs_status_t AmHandlers::deliver(const Message& message, uct::ReceiveDescriptor* descriptor) {
    const Handler* handler = handler_of(message.id);
    const bool is_aligned =
        reinterpret_cast<uintptr_t>(message.data) % std::max<size_t>(alignment_, 1) == 0;
    const bool must_copy =
        handler == nullptr || !is_aligned ||
        (descriptor == nullptr && (handler->flags & UCP_AM_FLAG_PERSISTENT_DATA) != 0);
    if (must_copy && (message.length != 0 || handler == nullptr)) {
        Message copy = message;
        copy.data = allocate(message.length);
        if (copy.data == nullptr) {
            ucs::log_error("no memory for an active message of {} bytes: it is lost",
                           message.length);
            lost(message.sender);
            return UCS_OK;
        }
        std::memcpy(copy.data, message.data, message.length);
        deliver_block(copy);
        return UCS_OK;
    }
    const bool may_keep = descriptor != nullptr;
    const ucs_status_t status =
        call(*handler, message, may_keep ? uint64_t{UCP_AM_RECV_ATTR_FLAG_DATA} : 0);
    if (status != UCS_INPROGRESS || !may_keep) return UCS_OK;
    set_owner(message.data, descriptor, Owner::kDescriptor);
    return UCS_INPROGRESS;
}

void AmHandlers::deliver_block(const Message& message) {
    const Handler* handler = handler_of(message.id);
    if (handler == nullptr) {
        keep_early(message, {});
    } else if (call(*handler, message, UCP_AM_RECV_ATTR_FLAG_DATA) != UCS_INPROGRESS) {
        free_block(message.data);
    }
}

void AmHandlers::deliver_announcement(const Message& message, const void* announcement,
                                      size_t size) {
    Announcement parsed;
    const Handler* handler = handler_of(message.id);
    if (handler == nullptr) {
        keep_early(message, {static_cast<const std::byte*>(announcement), size});
        return;
    }
    auto* kept = static_cast<KeptAnnouncement*>(std::malloc(sizeof(KeptAnnouncement) + size));
    if (kept == nullptr) {
        if (parse_announcement({static_cast<const std::byte*>(announcement), size}, &parsed)) {
            rndv_.refuse(parsed.rts, UCS_ERR_NO_MEMORY);
        }
        return;
    }
    kept->size = size;
    void* descriptor = kept + 1;
    std::memcpy(descriptor, announcement, size);
    set_owner(descriptor, descriptor, Owner::kAnnouncement);
    Message told = message;
    told.data = static_cast<std::byte*>(descriptor);
    // receive() may consume the descriptor inside the handler: it is not read afterwards unless the
    // handler says that it has left it alone.
    if (call(*handler, told, UCP_AM_RECV_ATTR_FLAG_RNDV) != UCS_INPROGRESS &&
        !std::exchange(consumed_in_handler_, false)) {
        release(descriptor);
    }
    consumed_in_handler_ = false;
}

void AmHandlers::release(void* data) {
    const auto [pointer, kind] = owner_of(data);
    switch (kind) {
        case Owner::kDescriptor:
            static_cast<uct::ReceiveDescriptor*>(pointer)->release();
            return;
        case Owner::kBlock:
            std::free(pointer);
            return;
        case Owner::kAnnouncement: {
            Announcement announcement;
            if (parse_announcement(announcement_of(data), &announcement)) {
                rndv_.refuse(announcement.rts, UCS_OK);
            }
            free_announcement(data);
            return;
        }
    }
}

ucs_status_ptr_t AmHandlers::receive(void* descriptor, void* buffer, size_t count,
                                     const OpParams& params) {
    Announcement announcement;
    if (owner_of(descriptor).second != Owner::kAnnouncement ||
        !parse_announcement(announcement_of(descriptor), &announcement)) {
        return UCS_STATUS_PTR(UCS_ERR_INVALID_PARAM);
    }
    Request* request = requests_.begin(params, Request::CallbackKind::kAmReceive);
    if (request == nullptr) return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
    const ucs_status_t status = open_receive(*request, buffer, count, params);
    if (status != UCS_OK) {
        requests_.recycle(*request);
        return UCS_STATUS_PTR(status);
    }
    const size_t length = announcement.rts.length;
    times_.begin_announced(*request, announcement.rts.sender, announcement.rts.stamp, length);
    matched(*request, 0, length);
    request->received = std::min(length, request->part<TagReceive>().buffer.length());
    rndv_.receive(*request, announcement_of(descriptor));
    free_announcement(descriptor);
    consumed_in_handler_ = true;
    return requests_.end_call(*request, params);
}

void EarlyMessages::add(EarlyMessage message) {
    const size_t size = message.size();
    messages_.push_back(std::move(message));
    bytes_ += size;
}

bool EarlyMessages::has(uint16_t id) const {
    return std::ranges::any_of(messages_, [&](const auto& message) { return message.id == id; });
}

void EarlyMessages::take(Messages::iterator found, EarlyMessage* message) {
    bytes_ -= found->size();
    *message = std::move(*found);
    messages_.erase(found);
}

bool EarlyMessages::take(uint16_t id, EarlyMessage* message) {
    const auto found =
        std::ranges::find_if(messages_, [&](const auto& other) { return other.id == id; });
    if (found == messages_.end()) return false;
    take(found, message);
    return true;
}

bool EarlyMessages::take_any(EarlyMessage* message) {
    if (messages_.empty()) return false;
    take(messages_.begin(), message);
    return true;
}

bool EarlyMessages::take_overdue(ucs::Time now, EarlyMessage* message) {
    for (auto other = messages_.rbegin(); other != messages_.rend() && !other->was_seen; ++other) {
        other->since = now;
        other->was_seen = true;
    }
    if (messages_.empty() || now < messages_.front().since + kMostTime) return false;
    return take_any(message);
}

ucs::Time EarlyMessages::next_deadline() const {
    if (messages_.empty()) return ucs::kNever;
    const EarlyMessage& oldest = messages_.front();
    return oldest.was_seen ? oldest.since + kMostTime : ucs::Time{};
}

}  // namespace ucp
