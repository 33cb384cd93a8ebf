// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/proto/match/receive.h"

#include "ucp/proto/match/message_times.h"

namespace ucp {
namespace {

void note_error(Request& request, ucs_status_t status) {
    if (status != UCS_OK && request.status == UCS_OK) request.status = status;
}

}  // namespace

void release_receive(Request& request) {
    TagReceive& receive = request.part<TagReceive>();
    if (receive.timing.times != nullptr) receive.timing.times->end(request.status, receive.timing);
    note_error(request, receive.buffer.close());
    if (receive.memory != nullptr) Memory::destroy(receive.memory);
    receive.memory = nullptr;
}

ucs_status_t open_receive(Request& request, void* buffer, size_t count, const OpParams& params) {
    TagReceive& receive = request.emplace<TagReceive>();
    receive.fill();
    const bool is_plain = !params.has(UCP_OP_ATTR_FIELD_MEMORY_TYPE) &&
                          receive.buffer.open_contiguous(buffer, count, params.datatype());
    const ucs_status_t status =
        is_plain ? UCS_OK
                 : receive.buffer.open(buffer, count, params.datatype(), params.memory_type());
    if (status != UCS_OK) return status;
    receive.user_memory = reinterpret_cast<Memory*>(params.memory());
    request.cleanup = release_receive;
    request.length = receive.buffer.length();
    if (receive.buffer.type_class() == DatatypeClass::kDevice)
        request.memory_type = receive.buffer.memory_type();
    return UCS_OK;
}

void matched(Request& receive, Tag tag, size_t length) {
    receive.tag_info = {tag, length};
    if (length > receive.part<TagReceive>().buffer.length())
        note_error(receive, UCS_ERR_MESSAGE_TRUNCATED);
}

void store(Request& receive, size_t offset, const void* data, size_t length) {
    TagReceive& part = receive.part<TagReceive>();
    const ReceiverWork work(part.timing);
    note_error(receive, part.buffer.unpack(offset, data, length));
}

}  // namespace ucp
