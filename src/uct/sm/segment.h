// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "ucs/type/status.h"

namespace uct::sm {

// How peers find a segment: a descriptor of its owner, and a random number that must match.
struct SegmentName {
    static constexpr size_t kLength = 16;

    uint64_t nonce;
    uint32_t pid;
    uint32_t descriptor;

    void write(std::span<std::byte> bytes) const;
    static std::optional<SegmentName> read(std::span<const std::byte> bytes);
    friend bool operator==(const SegmentName&, const SegmentName&) = default;
};

// Memory mapped into this process until the object goes.
class MappedMemory {
  public:
    MappedMemory() = default;
    MappedMemory(std::byte* base, size_t size) : base_(base), size_(size) {}
    ~MappedMemory();
    MappedMemory(MappedMemory&& other) noexcept;
    MappedMemory& operator=(MappedMemory&& other) noexcept;

    std::byte* base() const { return base_; }
    size_t size() const { return size_; }

  private:
    std::byte* base_ = nullptr;
    size_t size_ = 0;
};

// Shared memory of this process: an anonymous file, never linked into any file system, so that
// nothing is left of it when its last user has gone, however that came about. Its size is sealed:
// nobody can make a peer's access fail by cutting it.
class SharedSegment {
  public:
    // @param hint   null, or where to map it
    // @param fixed  map it there and nowhere else, in place of what is there
    static ucs_status_t create(size_t size, void* hint, bool fixed,
                               std::unique_ptr<SharedSegment>* segment);
    ~SharedSegment();
    SharedSegment(const SharedSegment&) = delete;
    SharedSegment& operator=(const SharedSegment&) = delete;

    std::byte* base() const { return mapping_.base(); }
    size_t size() const { return mapping_.size(); }
    const SegmentName& name() const { return name_; }

  private:
    SharedSegment(int descriptor, uint64_t nonce);

    int descriptor_;
    SegmentName name_;
    MappedMemory mapping_;
};

// Map a segment of another process, or of this one.
//
// @return UCS_ERR_UNREACHABLE: there is none of that name, it belongs to another user, it is not
//         sealed, or this process may not open it
ucs_status_t attach_segment(const SegmentName& name, MappedMemory* mapping);

// Open a descriptor of another process if it is of the kind that `kind` begins with, else -1.
int open_descriptor_of(uint32_t pid, uint32_t descriptor, std::string_view kind);

}  // namespace uct::sm
