// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstring>

#include "ucp/api/ucp.h"

namespace ucp {

/**
 * A user's buffer with its datatype, seen as the bytes of its packed form.
 *
 * start_send() or start_receive() fixes the length and, for a generic datatype, calls the user's
 * start callback; finish() calls its finish callback and must follow exactly once. Offsets may be
 * visited in any order for contiguous and iov data and are visited in rising order for generic
 * data when the transport keeps the order (it does).
 */
class Payload {
  public:
    /** @return UCS_ERR_INVALID_PARAM for a datatype that does not exist */
    ucs_status_t start_send(const void* buffer, size_t count, ucp_datatype_t datatype) {
        return start(const_cast<void*>(buffer), count, datatype, false);
    }
    ucs_status_t start_receive(void* buffer, size_t count, ucp_datatype_t datatype) {
        return start(buffer, count, datatype, true);
    }

    size_t length() const { return length_; }
    bool is_contiguous() const { return is_contiguous_; }
    /** Contiguous data only. */
    void* at(size_t offset) const { return static_cast<std::byte*>(buffer_) + offset; }
    void* buffer() const { return buffer_; }

    /** Copy `length` bytes of the packed form, which exist, to `destination`. @return bytes written
     */
    size_t pack(size_t offset, void* destination, size_t length) {
        if (!is_contiguous_) return pack_other(offset, destination, length);
        if (length != 0) std::memcpy(destination, at(offset), length);
        return length;
    }

    /** The reverse; offset + length is within length(). @return the user's error, if any */
    ucs_status_t unpack(size_t offset, const void* source, size_t length) {
        if (!is_contiguous_) return unpack_other(offset, source, length);
        if (length != 0) std::memcpy(at(offset), source, length);
        return UCS_OK;
    }

    void finish() {
        if (generic_state_ != nullptr) finish_generic();
    }

    /** For requests: the iov array and its count. */
    size_t count() const { return count_; }
    ucp_datatype_t datatype() const { return datatype_; }

  private:
    ucs_status_t start(void* buffer, size_t count, ucp_datatype_t datatype, bool receive) {
        generic_state_ = nullptr;
        buffer_ = buffer;
        count_ = count;
        datatype_ = datatype;
        is_contiguous_ = (datatype & UCP_DATATYPE_CLASS_MASK) == UCP_DATATYPE_CONTIG;
        if (!is_contiguous_) return start_other(receive);
        length_ = count * (datatype >> UCP_DATATYPE_SHIFT);
        return UCS_OK;
    }
    ucs_status_t start_other(bool receive);
    size_t pack_other(size_t offset, void* destination, size_t length);
    ucs_status_t unpack_other(size_t offset, const void* source, size_t length);
    void finish_generic();

    void* buffer_ = nullptr;
    size_t count_ = 0;
    size_t length_ = 0;
    ucp_datatype_t datatype_ = 0;
    void* generic_state_ = nullptr;  //!< non-null between start and finish of a generic datatype
    size_t iov_index_ = 0;           //!< where the last iov access ended, so that runs are O(1)
    size_t iov_position_ = 0;        //!< packed offset at which that piece begins
    bool is_contiguous_ = true;
};

}  // namespace ucp
