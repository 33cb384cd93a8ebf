// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "ucp/dt/datatype.h"
#include "ucs/memory/gate.h"
#include "uct/api/types.h"

namespace ucp {

// A user's buffer as a sequence of length() bytes in the order of its datatype.
//
// Contiguous and iov buffers can be addressed at any offset; walking forward costs O(1) a step, a
// jump back walks the iov from its start. The bytes of a generic datatype exist only through its
// callbacks, which get the offset and do the seeking. An opened buffer of a generic datatype owns
// the user's packing state until close(); the object is plain data otherwise and may be copied by
// its owner as long as one copy is closed.
//
// A buffer in the memory of a device cannot be touched by the processor, nor by transports: like a
// generic one it exists only through pack() and unpack(), which copy. It owns that copy's state,
// which most buffers in one piece never have: their data goes some other way.
class Buffer {
  public:
    size_t length() const { return length_; }
    DatatypeClass type_class() const { return class_; }
    bool is_contiguous() const { return class_ == DatatypeClass::kContig; }
    // Bytes in host memory that lie in pieces, or wherever the program's callbacks find them.
    bool is_packed() const {
        return class_ == DatatypeClass::kIov || class_ == DatatypeClass::kGeneric;
    }

    // The bytes of a contiguous buffer.
    void* data() const { return address_; }
    // A buffer that lies in device memory as one piece; empty: another one.
    std::span<std::byte> device_bytes() const {
        if (class_ != DatatypeClass::kDevice || count_ != 0) return {};
        return {static_cast<std::byte*>(address_), length_};
    }
    // What device_bytes() were found to lie in; null: there are none.
    const ucs::MemoryInfo* found() const {
        return class_ == DatatypeClass::kDevice && count_ == 0 ? device_.found : nullptr;
    }
    // The same, copied; of another buffer nothing but the type, if it lies
    // in host memory.
    ucs::MemoryInfo memory() const {
        if (class_ == DatatypeClass::kDevice) return *device_.found;
        return {.type = is_contiguous() ? UCS_MEMORY_TYPE_HOST : UCS_MEMORY_TYPE_UNKNOWN};
    }
    // Of a buffer of class kDevice: the memory of its first piece that has bytes.
    ucs_memory_type_t memory_type() const { return memory_type_; }
    // All bytes lie together at data(), in memory of this type; nothing: they do not.
    std::optional<ucs_memory_type_t> whole_in() const {
        if (is_contiguous()) return UCS_MEMORY_TYPE_HOST;
        return device_bytes().empty() ? std::nullopt : std::optional(memory_type_);
    }
    // The pieces of an iov buffer.
    std::span<const ucp_dt_iov_t> pieces() const {
        return {static_cast<const ucp_dt_iov_t*>(address_), count_};
    }

    // Describe [offset, offset + length) of a contiguous or iov buffer for a zero-copy operation.
    // @param out     pieces to fill; `memory` is left to the caller; empty pieces are skipped
    // @param filled  how many pieces were written
    // @return bytes described: less than `length` if `out` is too small for all pieces
    size_t gather(size_t offset, size_t length, std::span<uct::Iov> out, size_t* filled);

    // Describe a contiguous buffer of host memory, without a call.
    // @return false: it is none, or not sound, or its memory must be asked for
    bool open_contiguous(const void* address, size_t count, ucp_datatype_t type) {
        if ((type & UCP_DATATYPE_CLASS_MASK) != UCP_DATATYPE_CONTIG ||
            __builtin_mul_overflow(count, contig_element_size(type), &length_)) [[unlikely]] {
            return false;
        }
        if (!ucs::MemoryGate::instance().is_plain(address) && (address != nullptr || length_ != 0))
            [[unlikely]] {
            return false;
        }
        address_ = const_cast<void*>(address);
        class_ = DatatypeClass::kContig;
        return true;
    }

    // Describe a buffer that lies as one piece in memory of a device that operations work on, and
    // is one of those from now on.
    // @return false: it is another one
    bool open_held(void* address, size_t count, ucp_datatype_t type, ucs_memory_type_t declared);

    // Describe what another one does, which is contiguous: without what only others have.
    void take_contiguous(const Buffer& other) {
        address_ = other.address_;
        length_ = other.length_;
        class_ = DatatypeClass::kContig;
    }

    // Give the user's state of a generic datatype back. Needed once after a successful open().
    // @return the error of a copy to a device that was under way
    ucs_status_t close();

  protected:
    // @param declared  what the program says of the memory; UNKNOWN: found out
    // @return UCS_ERR_INVALID_PARAM for unknown classes, sums that overflow, null with bytes, and
    //         memory that is not what was declared; UCS_ERR_UNSUPPORTED for memory that nothing
    //         here can copy
    ucs_status_t describe(void* address, size_t count, ucp_datatype_t type,
                          ucs_memory_type_t declared);
    ucs_status_t find_memory(ucs_memory_type_t declared);
    ucs_status_t find_memory_of_pieces(ucs_memory_type_t declared);
    void take_device(const ucs::MemoryInfo& memory);
    // The staged copy of a buffer of class kDevice, which the first access opens.
    // @return an error of MemoryDetector::open_copy()
    ucs_status_t open_copy();
    // Set the cursor to the piece that holds byte `offset` of an iov.
    void seek(size_t offset);

    template <typename Copy>
    void for_each_piece(size_t offset, size_t length, Copy copy);

    void* address_ = nullptr;
    size_t length_ = 0;
    DatatypeClass class_ = DatatypeClass::kInvalid;
    // A contiguous buffer leaves these as they are.
    ucs_memory_type_t memory_type_;
    // Pieces, or elements of a generic datatype; kDevice: 0 if there is one piece, at the address.
    size_t count_;
    union {
        struct {
            size_t index;  // piece that the next access is likely to start in
            size_t start;  // its first byte's place in the sequence
        } cursor_;
        struct {
            const GenericDatatype* type;
            void* state;
        } generic_;
        struct {
            // Until close(), what the first piece was found to lie in: the copy's, or that of
            // HeldAllocations, for which this buffer's operation is one that works on it.
            const ucs::MemoryInfo* found;
            ucs::StagedCopy* copy;  // null: not yet
        } device_;                  // kDevice
    };
};

// Open a copy of a buffer that lies, wholly or in part, in the memory of a device. Arguments and
// errors as for Buffer::describe().
// @param copy  stays as it is where all is host memory
// @param type  gets the memory of the first piece that has bytes, if one has
ucs_status_t open_device_copy(std::span<const ucs::MemoryPiece> pieces, ucs_memory_type_t declared,
                              ucs::StagedCopy** copy, ucs_memory_type_t* type);

// How much of the `left` bytes of a message goes into a piece that has room for `room` of them. All
// but the last end at multiples of the alignment: MPICH's unpacking takes whole elements only.
inline constexpr size_t kPieceAlignment = 64;
inline size_t piece_length(size_t room, size_t left) {
    if (left <= room) return left;
    return room < kPieceAlignment ? room : room / kPieceAlignment * kPieceAlignment;
}

// Reads a send buffer.
class Packer : public Buffer {
  public:
    ucs_status_t open(const void* buffer, size_t count, ucp_datatype_t type,
                      ucs_memory_type_t declared = UCS_MEMORY_TYPE_UNKNOWN) {
        if (declared == UCS_MEMORY_TYPE_UNKNOWN && open_contiguous(buffer, count, type)) [[likely]]
            return UCS_OK;
        return open_any(buffer, count, type, declared);
    }

    // Copy bytes from `offset` on, at most `room`, to `destination`.
    // @return bytes copied; a generic datatype may give fewer than fit; 0 before the end means that
    //         the user's callback is stuck, or a device has failed, and the operation must fail
    size_t pack(size_t offset, void* destination, size_t room);

  private:
    ucs_status_t open_any(const void* buffer, size_t count, ucp_datatype_t type,
                          ucs_memory_type_t declared);
};

// Writes a receive buffer.
class Unpacker : public Buffer {
  public:
    ucs_status_t open(void* buffer, size_t count, ucp_datatype_t type,
                      ucs_memory_type_t declared = UCS_MEMORY_TYPE_UNKNOWN);

    // Store bytes that belong at `offset`.
    // @return UCS_ERR_MESSAGE_TRUNCATED if they reach past the end (what fits is stored, except for
    //         generic datatypes); the status of a user's unpack callback
    ucs_status_t unpack(size_t offset, const void* data, size_t length);
};

}  // namespace ucp
