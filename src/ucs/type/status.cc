// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/type/status.h"

#include <cstdio>

namespace {

// nullptr for a value that is no code.
const char* text_of(ucs_status_t status) {
    switch (status) {
        case UCS_OK:
            return "success";
        case UCS_INPROGRESS:
            return "in progress";
        case UCS_ERR_NO_MESSAGE:
            return "no message has arrived";
        case UCS_ERR_NO_RESOURCE:
            return "no room now, to be tried again";
        case UCS_ERR_IO_ERROR:
            return "input/output error";
        case UCS_ERR_NO_MEMORY:
            return "out of memory";
        case UCS_ERR_INVALID_PARAM:
            return "invalid argument";
        case UCS_ERR_UNREACHABLE:
            return "no transport leads to the destination";
        case UCS_ERR_INVALID_ADDR:
            return "invalid address";
        case UCS_ERR_NOT_IMPLEMENTED:
            return "not implemented";
        case UCS_ERR_MESSAGE_TRUNCATED:
            return "message longer than the receive buffer";
        case UCS_ERR_NO_PROGRESS:
            return "no progress";
        case UCS_ERR_BUFFER_TOO_SMALL:
            return "buffer too small";
        case UCS_ERR_NO_ELEM:
            return "no such element";
        case UCS_ERR_SOME_CONNECTS_FAILED:
            return "some connections failed";
        case UCS_ERR_NO_DEVICE:
            return "no such device";
        case UCS_ERR_BUSY:
            return "busy";
        case UCS_ERR_CANCELED:
            return "cancelled";
        case UCS_ERR_SHMEM_SEGMENT:
            return "shared memory segment failed";
        case UCS_ERR_ALREADY_EXISTS:
            return "exists already";
        case UCS_ERR_OUT_OF_RANGE:
            return "out of range";
        case UCS_ERR_TIMED_OUT:
            return "timed out";
        case UCS_ERR_EXCEEDS_LIMIT:
            return "limit exceeded";
        case UCS_ERR_UNSUPPORTED:
            return "not supported here";
        case UCS_ERR_REJECTED:
            return "rejected by the peer";
        case UCS_ERR_NOT_CONNECTED:
            return "not connected";
        case UCS_ERR_CONNECTION_RESET:
            return "connection reset by the peer";
        case UCS_ERR_FIRST_LINK_FAILURE:
            return "first code of link failures";
        case UCS_ERR_LAST_LINK_FAILURE:
            return "last code of link failures";
        case UCS_ERR_FIRST_ENDPOINT_FAILURE:
            return "first code of endpoint failures";
        case UCS_ERR_ENDPOINT_TIMEOUT:
            return "the peer did not answer in time";
        case UCS_ERR_LAST_ENDPOINT_FAILURE:
            return "last code of endpoint failures";
        case UCS_ERR_LAST:
            break;
    }
    return nullptr;
}

}  // namespace

extern "C" const char* ucs_status_string(ucs_status_t status) {
    if (const char* const text = text_of(status)) return text;
    thread_local char unknown[32];
    std::snprintf(unknown, sizeof unknown, "unknown status (%d)", static_cast<int>(status));
    return unknown;
}
