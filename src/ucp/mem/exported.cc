// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/mem/exported.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <utility>

#include "ucs/memory/pages.h"
#include "ucs/sys/host.h"
#include "ucs/type/bits.h"

namespace ucp {
namespace {

#pragma pack(push, 1)
struct Packed {
    static constexpr uint32_t kMagic = 0x4d4c5345;
    static constexpr uint32_t kVersion = 1;

    uint32_t magic;
    uint32_t version;
    uint64_t host;
    uint64_t device, inode;  // what the descriptor must lead to: its number may be used anew
    int32_t process;
    int32_t descriptor;
    uint64_t length;  // bytes to be used, from the first on
};
#pragma pack(pop)

}  // namespace

SharedPages::~SharedPages() {
    if (address_ != nullptr) munmap(address_, length_);
    if (descriptor_ >= 0) close(descriptor_);
}

SharedPages::SharedPages(SharedPages&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      address_(std::exchange(other.address_, nullptr)),
      length_(std::exchange(other.length_, 0)) {}

SharedPages& SharedPages::operator=(SharedPages&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    std::swap(address_, other.address_);
    std::swap(length_, other.length_);
    return *this;
}

ucs_status_t SharedPages::create(size_t length, void* hint, bool fixed, SharedPages* pages) {
    SharedPages made;
    made.descriptor_ = memfd_create("swiftlane", MFD_CLOEXEC);
    const size_t bytes = ucs::align_up(length, ucs::page_size());
    if (made.descriptor_ < 0 || ftruncate(made.descriptor_, static_cast<off_t>(bytes)) != 0) {
        return UCS_ERR_NO_MEMORY;
    }
    void* mapped = mmap(hint, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | (fixed ? MAP_FIXED : 0),
                        made.descriptor_, 0);
    if (mapped == MAP_FAILED) return UCS_ERR_NO_MEMORY;
    made.address_ = mapped;
    made.length_ = bytes;
    *pages = std::move(made);
    return UCS_OK;
}

size_t SharedPages::packed_size() {
    return sizeof(Packed);
}

void SharedPages::pack(void* buffer, size_t used) const {
    struct stat status {};
    fstat(descriptor_, &status);
    const Packed packed{Packed::kMagic, Packed::kVersion, ucs::host_id(), status.st_dev,
                        status.st_ino,  getpid(),         descriptor_,    used};
    std::memcpy(buffer, &packed, sizeof(packed));
}

ucs_status_t SharedPages::open(const void* bytes, SharedPages* pages, size_t* used) {
    Packed packed;
    std::memcpy(&packed, bytes, sizeof(packed));
    if (packed.magic != Packed::kMagic || packed.version != Packed::kVersion ||
        packed.process <= 0 || packed.descriptor < 0) {
        return UCS_ERR_INVALID_PARAM;
    }
    if (packed.host != ucs::host_id()) return UCS_ERR_UNREACHABLE;
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", packed.process, packed.descriptor);
    SharedPages made;
    struct stat status {};
    // Asked first: to open what is no such file might have effects.
    if (stat(path, &status) != 0 || !S_ISREG(status.st_mode) || status.st_dev != packed.device ||
        status.st_ino != packed.inode) {
        return UCS_ERR_UNREACHABLE;
    }
    made.descriptor_ = ::open(path, O_RDWR | O_CLOEXEC);
    if (made.descriptor_ < 0 || fstat(made.descriptor_, &status) != 0 ||
        status.st_ino != packed.inode) {
        return UCS_ERR_UNREACHABLE;
    }
    const auto length = static_cast<size_t>(status.st_size);
    if (packed.length == 0 || packed.length > length) return UCS_ERR_INVALID_PARAM;
    void* mapped = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, made.descriptor_, 0);
    if (mapped == MAP_FAILED) return UCS_ERR_NO_MEMORY;
    made.address_ = mapped;
    made.length_ = length;
    *used = packed.length;
    *pages = std::move(made);
    return UCS_OK;
}

}  // namespace ucp
