// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/proto/tag/engine.h"

#include <cstdlib>
#include <cstring>
#include <new>

#include "ucs/log/log.h"

namespace ucp {

void TagEngine::clear() {
    const auto give_up = [&](Request& request) {
        release_receive(request);
        if (request.holder == Request::Holder::kNobody) requests_.recycle(request);
    };
    for (; !copies_.empty(); copies_.pop_front()) {
        give_up(*copies_.front().receive);
        free(*copies_.front().message);
    }
    for (; !announced_.empty(); announced_.pop_front()) {
        give_up(*announced_.front().receive);
        free(*announced_.front().message);
    }
    matcher_.drain_expected([&](ExpectedReceive& expected) { give_up(whole(expected)); });
    matcher_.remove_unexpected_if(
        [](UnexpectedMessage&) { return true; },
        [&](UnexpectedMessage& message) { free(static_cast<TagMessage&>(message)); });
}

// What a posted receive needs, with address, length and class of its buffer, lies in two lines.
static_assert(Request::kPartOffset + sizeof(ExpectedReceive) + 3 * sizeof(void*) <= 2 * 64);

// Every member of the receive's request and part has a value from now on.
Request& TagEngine::whole(ExpectedReceive& expected) {
    auto& receive = static_cast<TagReceive&>(expected);
    Request& request = Request::of(receive);
    if ((request.flags & Request::kPartial) != 0) {
        receive.fill();
        request.fill();
        request.length = receive.buffer.length();
        if (receive.buffer.type_class() == DatatypeClass::kDevice)
            request.memory_type = receive.buffer.memory_type();
    }
    return request;
}

Request* TagEngine::begin(void* buffer, size_t count, const OpParams& params,
                          ucs_status_t* status) {
    Request* request = requests_.begin(params, Request::CallbackKind::kTagReceive);
    if (request == nullptr) {
        *status = UCS_ERR_NO_MEMORY;
        return nullptr;
    }
    *status = open_receive(*request, buffer, count, params);
    if (*status != UCS_OK) {
        requests_.give_back(*request, *status);
        return nullptr;
    }
    return request;
}

// A receive into plain memory, for a message that has not come yet.
inline ucs_status_ptr_t TagEngine::post(const Unpacker& unpacker, Tag tag, Tag mask,
                                        const OpParams& params) {
    Request* const request = requests_.begin_posted(params);
    if (request == nullptr) [[unlikely]]
        return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
    request->cleanup = release_receive;
    TagReceive& receive = request->emplace<TagReceive>();
    receive.tag = tag;
    receive.mask = mask;
    receive.buffer.take_contiguous(unpacker);
    matcher_.post(receive);
    return request->handle();
}

ucs_status_ptr_t TagEngine::post_held(void* buffer, size_t count, Tag tag, Tag mask,
                                      const OpParams& params) {
    Unpacker unpacker;
    if (!unpacker.open_held(buffer, count, params.datatype(), UCS_MEMORY_TYPE_UNKNOWN))
        return nullptr;
    Request* const request = requests_.begin_posted(params);
    if (request == nullptr) {
        (void)unpacker.close();
        return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
    }
    request->cleanup = release_receive;
    TagReceive& receive = request->emplace<TagReceive>();
    receive.tag = tag;
    receive.mask = mask;
    receive.buffer = unpacker;
    matcher_.post(receive);
    return request->handle();
}

constexpr uint32_t kUnusualReceive =
    UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL | UCP_OP_ATTR_FIELD_MEMH | UCP_OP_ATTR_FIELD_MEMORY_TYPE;

ucs_status_ptr_t TagEngine::receive_next(void* buffer, size_t count, Tag tag, Tag mask,
                                         OpParams params) {
    Unpacker unpacker;
    if (params.has(kUnusualReceive)) [[unlikely]]
        return receive_any(buffer, count, tag, mask, nullptr, params);
    if (!unpacker.open_contiguous(buffer, count, params.datatype())) [[unlikely]] {
        const ucs_status_ptr_t posted = post_held(buffer, count, tag, mask, params);
        return posted != nullptr ? posted : receive_any(buffer, count, tag, mask, nullptr, params);
    }
    return post(unpacker, tag, mask, params);
}

// The program hears of it in the call, so that most calls need no request.
inline ucs_status_ptr_t TagEngine::take_whole(TagMessage& message, const Unpacker& unpacker,
                                              const OpParams& params) {
    Request* request = nullptr;
    if (params.has(UCP_OP_ATTR_FLAG_NO_IMM_CMPL | UCP_OP_ATTR_FIELD_REQUEST)) {
        request = requests_.begin_found(params);
        if (request == nullptr) [[unlikely]]
            return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
        request->emplace<TagReceive>().buffer.take_contiguous(unpacker);
        request->tag_info = {message.tag, message.length};
    } else if (params.has(UCP_OP_ATTR_FIELD_RECV_INFO)) {
        *params.raw().recv_info.tag_info = {message.tag, message.length};
    }
    matcher_.remove(message);
    note_found();
    copy_plain(unpacker.data(), message.data, message.length);
    free(message);
    return request == nullptr ? nullptr : requests_.end_found(*request, params);
}

ucs_status_ptr_t TagEngine::receive_waiting(void* buffer, size_t count, Tag tag, Tag mask,
                                            OpParams params) {
    UnexpectedMessage* const message = matcher_.find_unexpected(tag, mask);
    if (message == nullptr) return receive_next(buffer, count, tag, mask, params);
    auto& found = static_cast<TagMessage&>(*message);
    Unpacker unpacker;
    const bool is_plain = !params.has(kUnusualReceive) && found.kind == TagMessageKind::kWhole &&
                          unpacker.open_contiguous(buffer, count, params.datatype()) &&
                          found.length <= unpacker.length() && !requests_.is_ending_call();
    return is_plain ? take_whole(found, unpacker, params)
                    : receive_any(buffer, count, tag, mask, message, params);
}

ucs_status_ptr_t TagEngine::receive_any(void* buffer, size_t count, Tag tag, Tag mask,
                                        UnexpectedMessage* message, OpParams params) {
    if (message == nullptr && params.has(UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL))
        return UCS_STATUS_PTR(UCS_ERR_NO_RESOURCE);
    ucs_status_t status = UCS_OK;
    Request* request = begin(buffer, count, params, &status);
    if (request == nullptr) return UCS_STATUS_PTR(status);
    TagReceive& receive = request->part<TagReceive>();
    receive.tag = tag;
    receive.mask = mask;
    if (message == nullptr) {
        matcher_.post(receive);
    } else {
        matcher_.remove(*message);
        note_found();
        give(*request, static_cast<TagMessage&>(*message), params);
    }
    return requests_.end_call(*request, params);
}

TagMessage* TagEngine::probe(Tag tag, Tag mask, bool remove) {
    UnexpectedMessage* message = matcher_.find_unexpected(tag, mask);
    if (message != nullptr && remove) matcher_.remove(*message);
    return static_cast<TagMessage*>(message);
}

ucs_status_ptr_t TagEngine::receive_message(TagMessage& message, void* buffer, size_t count,
                                            const OpParams& params) {
    ucs_status_t status = UCS_OK;
    Request* request = begin(buffer, count, params, &status);
    if (request == nullptr) return UCS_STATUS_PTR(status);
    give(*request, message, params);
    return requests_.end_call(*request, params);
}

// The message has left the queues; it is consumed.
void TagEngine::give(Request& receive, TagMessage& message, const OpParams& params) {
    if (message.kind != TagMessageKind::kRendezvous) {
        receive_kept(receive, message, params.has(UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL));
        return;
    }
    matched(receive, message.tag, message.length);
    const bool at_once = params.has(UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL);
    if (!at_once && fetch_later(receive, message)) return;
    rndv_.receive(receive, {message.data, message.room});
    free(message);
}

bool TagEngine::cancel(Request& request) {
    if (!is_receive(request)) return false;
    TagReceive& receive = request.part<TagReceive>();
    if (!receive.is_posted()) return false;
    matcher_.withdraw(receive);
    whole(receive);
    requests_.finish_later(request, UCS_ERR_CANCELED);
    return true;
}

// Its first part alone.
inline TagMessage* TagEngine::make(Tag tag, TagMessageKind kind, size_t bytes) {
    // If that fails there are still some, which are left to keep_lost().
    if (messages_.raw().capacity() < messages_.in_use() + kSpare &&
        !messages_.raw().reserve(messages_.in_use() + kSpare)) [[unlikely]]
        return nullptr;
    TagMessage* message = messages_.create(tag, kind, bytes);
    if (message == nullptr) return nullptr;
    message->data = message->inline_data;
    if (bytes <= TagMessage::kInlineBytes) [[likely]]
        return message;
    message->data = static_cast<std::byte*>(std::malloc(bytes));
    if (message->data != nullptr) return message;
    messages_.destroy(message);
    return nullptr;
}

TagMessage* TagEngine::allocate(Tag tag, TagMessageKind kind, size_t bytes) {
    TagMessage* const message = make(tag, kind, bytes);
    if (message != nullptr) message->fill(bytes);
    return message;
}

ucs_status_t TagEngine::arrived_early(Tag tag, const std::byte* payload, size_t length) {
    if (length > kPiece) [[unlikely]] {
        arrived(nullptr, tag, payload, length, 0, 0);
        return UCS_OK;
    }
    TagMessage* const message = make(tag, TagMessageKind::kWhole, length);
    const size_t outside = length <= TagMessage::kInlineBytes ? 0 : length;
    if (message == nullptr) [[unlikely]] {
        keep_lost(tag, length, 0, 0);
    } else if (!reassembly_.charge(message->held, 0, sizeof(*message) + outside)) [[unlikely]] {
        drop_uncharged(*message);
    } else {
        copy_plain(message->data, payload, length);
        keep(*message);
    }
    return UCS_OK;
}

void TagEngine::drop_uncharged(TagMessage& message) {
    const Tag tag = message.tag;
    const size_t length = message.length;
    free(message);
    keep_lost(tag, length, 0, 0, UCS_ERR_EXCEEDS_LIMIT);
}

bool TagEngine::charge(TagMessage& message, uint64_t claimed, size_t bytes) {
    const size_t outside = message.data == message.inline_data ? 0 : bytes;
    if (reassembly_.charge(message.held, claimed, sizeof(message) + outside)) return true;
    free(message);
    return false;
}

void TagEngine::keep_lost(Tag tag, size_t length, uint64_t sync_sender, uint64_t sync_request,
                          ucs_status_t status) {
    TagMessage* message = messages_.create(tag, TagMessageKind::kEager, length);
    if (message == nullptr) throw std::bad_alloc();
    ucs::log_error("an unexpected message of {} bytes cannot be kept: its receive fails ({})",
                   length, ucs_status_string(status));
    message->data = message->inline_data;
    message->fill(0);
    message->sync_sender = sync_sender;
    message->sync_request = sync_request;
    message->status = status;
    keep(*message);
}

}  // namespace ucp
