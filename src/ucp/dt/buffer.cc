// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/dt/buffer.h"

#include <algorithm>
#include <cstring>

#include "ucp/mem/device_memory.h"
#include "ucs/log/log.h"

namespace ucp {

namespace {

ucs_status_t check_declared(ucs_memory_type_t declared, ucs_memory_type_t found) {
    const auto is_cuda = [](ucs_memory_type_t type) {
        return type == UCS_MEMORY_TYPE_CUDA || type == UCS_MEMORY_TYPE_CUDA_MANAGED;
    };
    if (declared == UCS_MEMORY_TYPE_UNKNOWN || declared == found ||
        (is_cuda(declared) && is_cuda(found)))
        return UCS_OK;
    if (declared > UCS_MEMORY_TYPE_UNKNOWN) return UCS_ERR_INVALID_PARAM;
    if (declared != UCS_MEMORY_TYPE_HOST && ucs::MemoryDetectors::of_type(declared) == nullptr) {
        ucs::log_error("a buffer was declared to be {} memory: nothing here can copy that",
                       ucs_memory_type_names[declared]);
        return UCS_ERR_UNSUPPORTED;
    }
    ucs::log_error("a buffer was declared to be {} memory, but is {} memory",
                   ucs_memory_type_names[declared], ucs_memory_type_names[found]);
    return UCS_ERR_INVALID_PARAM;
}

}  // namespace

ucs_status_t open_device_copy(std::span<const ucs::MemoryPiece> pieces, ucs_memory_type_t declared,
                              ucs::StagedCopy** copy, ucs_memory_type_t* type) {
    ucs::MemoryInfo found;
    bool is_empty = true;
    for (const ucs::MemoryPiece& piece : pieces) {
        if (piece.length == 0) continue;
        const ucs::MemoryInfo* memory = ucs::MemoryGate::find_held(piece.address);
        if (memory == nullptr) {
            found = memory_at(piece.address, piece.length);
            memory = &found;
        }
        if (is_empty) *type = memory->type;
        is_empty = false;
        if (memory->owner == nullptr && declared != UCS_MEMORY_TYPE_HOST) continue;
        const ucs_status_t status = check_declared(declared, memory->type);
        if (status != UCS_OK) return status;
        if (memory->owner != nullptr) return memory->owner->open_copy(pieces, memory, copy);
    }
    // All of it is host memory.
    return is_empty ? UCS_OK : check_declared(declared, UCS_MEMORY_TYPE_HOST);
}

ucs_status_t Buffer::find_memory(ucs_memory_type_t declared) {
    if (length_ == 0) return UCS_OK;
    const ucs::MemoryInfo memory = memory_at(address_, length_);
    const ucs_status_t status = check_declared(declared, memory.type);
    if (status != UCS_OK || memory.owner == nullptr) return status;
    if (memory.held != nullptr) {
        if (const ucs::MemoryInfo* const held = memory.held->hold(memory)) {
            take_device(*held);
            return UCS_OK;
        }
    }
    const ucs::MemoryPiece whole{address_, length_};
    ucs::StagedCopy* copy = nullptr;
    const ucs_status_t opened = memory.owner->open_copy({&whole, 1}, &memory, &copy);
    if (opened != UCS_OK) return opened;
    take_device(copy->memory);
    device_.copy = copy;
    return UCS_OK;
}

ucs_status_t Buffer::find_memory_of_pieces(ucs_memory_type_t declared) {
    static_assert(sizeof(ucp_dt_iov_t) == sizeof(ucs::MemoryPiece) &&
                  offsetof(ucp_dt_iov_t, length) == offsetof(ucs::MemoryPiece, length));
    ucs::StagedCopy* copy = nullptr;
    ucs_memory_type_t type = UCS_MEMORY_TYPE_HOST;
    const ucs_status_t status = open_device_copy(
        {static_cast<const ucs::MemoryPiece*>(address_), count_}, declared, &copy, &type);
    if (copy != nullptr) {
        device_ = {&copy->memory, copy};
        memory_type_ = type;
        class_ = DatatypeClass::kDevice;
    }
    return status;
}

void Buffer::take_device(const ucs::MemoryInfo& memory) {
    device_ = {&memory, nullptr};
    memory_type_ = memory.type;
    count_ = 0;
    class_ = DatatypeClass::kDevice;
}

bool Buffer::open_held(void* address, size_t count, ucp_datatype_t type,
                       ucs_memory_type_t declared) {
    if ((type & UCP_DATATYPE_CLASS_MASK) != UCP_DATATYPE_CONTIG ||
        __builtin_mul_overflow(count, contig_element_size(type), &length_) || length_ == 0)
        return false;
    const ucs::MemoryInfo* const memory = ucs::MemoryGate::hold(address);
    if (memory == nullptr) return false;
    if (declared != UCS_MEMORY_TYPE_UNKNOWN && declared != memory->type) {
        memory->held->release(memory->allocation);
        return false;
    }
    address_ = address;
    take_device(*memory);
    return true;
}

ucs_status_t Buffer::open_copy() {
    if (device_.copy != nullptr) return UCS_OK;
    const ucs::MemoryPiece whole{address_, length_};
    return device_.found->owner->open_copy({&whole, 1}, device_.found, &device_.copy);
}

ucs_status_t Buffer::describe(void* address, size_t count, ucp_datatype_t type,
                              ucs_memory_type_t declared) {
    address_ = address;
    count_ = count;
    length_ = 0;
    cursor_ = {0, 0};
    class_ = datatype_class(type);
    switch (class_) {
        case DatatypeClass::kContig:
            if (__builtin_mul_overflow(count, contig_element_size(type), &length_))
                return UCS_ERR_INVALID_PARAM;
            return address || length_ == 0 ? find_memory(declared) : UCS_ERR_INVALID_PARAM;
        case DatatypeClass::kIov:
            if (!address && count > 0) return UCS_ERR_INVALID_PARAM;
            for (const ucp_dt_iov_t& piece : pieces()) {
                if (!piece.buffer && piece.length > 0) return UCS_ERR_INVALID_PARAM;
                if (__builtin_add_overflow(length_, piece.length, &length_))
                    return UCS_ERR_INVALID_PARAM;
            }
            return find_memory_of_pieces(declared);
        case DatatypeClass::kGeneric:
            generic_ = {generic_datatype(type), nullptr};
            return generic_.type ? UCS_OK : UCS_ERR_INVALID_PARAM;
        case DatatypeClass::kDevice:
        case DatatypeClass::kInvalid:
            break;
    }
    return UCS_ERR_INVALID_PARAM;
}

ucs_status_t Buffer::close() {
    ucs_status_t status = UCS_OK;
    if (class_ == DatatypeClass::kGeneric) generic_.type->ops.finish(generic_.state);
    if (class_ == DatatypeClass::kDevice) {
        const auto [found, copy] = device_;
        if (copy == nullptr || found != &copy->memory) found->held->release(found->allocation);
        if (copy != nullptr) status = copy->finish();
    }
    class_ = DatatypeClass::kInvalid;
    return status;
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

ucs_status_t Packer::open_any(const void* buffer, size_t count, ucp_datatype_t type,
                              ucs_memory_type_t declared) {
    if (open_held(const_cast<void*>(buffer), count, type, declared)) return UCS_OK;
    ucs_status_t status = describe(const_cast<void*>(buffer), count, type, declared);
    if (status == UCS_OK && class_ == DatatypeClass::kGeneric) {
        const GenericDatatype* generic = generic_.type;
        generic_.state = generic->ops.start_pack(generic->context, buffer, count);
        length_ = generic->ops.packed_size(generic_.state);
    }
    return status;
}

size_t Packer::pack(size_t offset, void* destination, size_t room) {
    size_t length = std::min(room, length_ - offset);
    if (class_ == DatatypeClass::kDevice) {
        return open_copy() == UCS_OK && device_.copy->read(offset, destination, length) == UCS_OK
                   ? length
                   : 0;
    }
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

ucs_status_t Unpacker::open(void* buffer, size_t count, ucp_datatype_t type,
                            ucs_memory_type_t declared) {
    if (open_held(buffer, count, type, declared)) return UCS_OK;
    ucs_status_t status = describe(buffer, count, type, declared);
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
    if (class_ == DatatypeClass::kDevice) {
        ucs_status_t status = open_copy();
        if (status == UCS_OK)
            status = device_.copy->write(offset, data, std::min(length, length_ - offset));
        return status != UCS_OK || fits ? status : UCS_ERR_MESSAGE_TRUNCATED;
    }
    auto* in = static_cast<const std::byte*>(data);
    for_each_piece(offset, std::min(length, length_ - offset), [&](std::byte* to, size_t part) {
        std::memcpy(to, in, part);
        in += part;
        return true;
    });
    return fits ? UCS_OK : UCS_ERR_MESSAGE_TRUNCATED;
}

}  // namespace ucp
