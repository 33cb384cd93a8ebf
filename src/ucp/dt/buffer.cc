// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/dt/buffer.h"

#include <algorithm>
#include <cstring>

namespace ucp {

ucs_status_t Buffer::describe(void* address, size_t count, ucp_datatype_t type) {
    address_ = address;
    count_ = count;
    length_ = 0;
    cursor_ = {0, 0};
    class_ = datatype_class(type);
    switch (class_) {
        case DatatypeClass::kContig:
            if (__builtin_mul_overflow(count, contig_element_size(type), &length_))
                return UCS_ERR_INVALID_PARAM;
            return address || length_ == 0 ? UCS_OK : UCS_ERR_INVALID_PARAM;
        case DatatypeClass::kIov:
            if (!address && count > 0) return UCS_ERR_INVALID_PARAM;
            for (const ucp_dt_iov_t& piece : pieces()) {
                if (!piece.buffer && piece.length > 0) return UCS_ERR_INVALID_PARAM;
                if (__builtin_add_overflow(length_, piece.length, &length_))
                    return UCS_ERR_INVALID_PARAM;
            }
            return UCS_OK;
        case DatatypeClass::kGeneric:
            generic_ = {generic_datatype(type), nullptr};
            return generic_.type ? UCS_OK : UCS_ERR_INVALID_PARAM;
        case DatatypeClass::kInvalid:
            break;
    }
    return UCS_ERR_INVALID_PARAM;
}

void Buffer::close() {
    if (class_ == DatatypeClass::kGeneric) generic_.type->ops.finish(generic_.state);
    class_ = DatatypeClass::kInvalid;
}

void Buffer::seek(size_t offset) {
    if (offset < cursor_.start) cursor_ = {0, 0};
    std::span<const ucp_dt_iov_t> iov = pieces();
    while (cursor_.index < count_ && offset - cursor_.start >= iov[cursor_.index].length) {
        cursor_.start += iov[cursor_.index].length;
        ++cursor_.index;
    }
}

template <typename Copy>
void Buffer::for_each_piece(size_t offset, size_t length, Copy copy) {
    if (class_ == DatatypeClass::kContig) {
        if (length > 0) copy(static_cast<std::byte*>(address_) + offset, length);
        return;
    }
    std::span<const ucp_dt_iov_t> iov = pieces();
    while (length > 0) {
        seek(offset);
        const ucp_dt_iov_t& piece = iov[cursor_.index];
        size_t skip = offset - cursor_.start;
        size_t part = std::min(length, piece.length - skip);
        if (!copy(static_cast<std::byte*>(piece.buffer) + skip, part)) return;
        offset += part;
        length -= part;
    }
}

size_t Buffer::gather(size_t offset, size_t length, std::span<uct::Iov> out, size_t* filled) {
    size_t used = 0;
    size_t described = 0;
    for_each_piece(offset, std::min(length, length_ - offset), [&](std::byte* data, size_t part) {
        if (used == out.size()) return false;
        out[used++] = {data, part, nullptr};
        described += part;
        return true;
    });
    *filled = used;
    return described;
}

ucs_status_t Packer::open(const void* buffer, size_t count, ucp_datatype_t type) {
    ucs_status_t status = describe(const_cast<void*>(buffer), count, type);
    if (status == UCS_OK && class_ == DatatypeClass::kGeneric) {
        const GenericDatatype* generic = generic_.type;
        generic_.state = generic->ops.start_pack(generic->context, buffer, count);
        length_ = generic->ops.packed_size(generic_.state);
    }
    return status;
}

size_t Packer::pack(size_t offset, void* destination, size_t room) {
    size_t length = std::min(room, length_ - offset);
    if (class_ == DatatypeClass::kGeneric) {
        if (length == 0) return 0;
        return generic_.type->ops.pack(generic_.state, offset, destination, length);
    }
    auto* out = static_cast<std::byte*>(destination);
    for_each_piece(offset, length, [&](const std::byte* data, size_t part) {
        std::memcpy(out, data, part);
        out += part;
        return true;
    });
    return length;
}

ucs_status_t Unpacker::open(void* buffer, size_t count, ucp_datatype_t type) {
    ucs_status_t status = describe(buffer, count, type);
    if (status == UCS_OK && class_ == DatatypeClass::kGeneric) {
        const GenericDatatype* generic = generic_.type;
        generic_.state = generic->ops.start_unpack(generic->context, buffer, count);
        length_ = generic->ops.packed_size(generic_.state);
    }
    return status;
}

ucs_status_t Unpacker::unpack(size_t offset, const void* data, size_t length) {
    bool fits = offset <= length_ && length <= length_ - offset;
    if (class_ == DatatypeClass::kGeneric) {
        if (!fits) return UCS_ERR_MESSAGE_TRUNCATED;
        if (length == 0) return UCS_OK;
        return generic_.type->ops.unpack(generic_.state, offset, data, length);
    }
    if (offset >= length_) return fits ? UCS_OK : UCS_ERR_MESSAGE_TRUNCATED;
    auto* in = static_cast<const std::byte*>(data);
    for_each_piece(offset, std::min(length, length_ - offset), [&](std::byte* to, size_t part) {
        std::memcpy(to, in, part);
        in += part;
        return true;
    });
    return fits ? UCS_OK : UCS_ERR_MESSAGE_TRUNCATED;
}

}  // namespace ucp
