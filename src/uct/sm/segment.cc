// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>

#include "ucs/log/log.h"
#include "ucs/runtime/runtime.h"
#include "ucs/sys/process.h"

namespace uct::sm {

namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
// A short path or the name of a file. Not by snprintf(): a lane waits for the first of these, and
// the first snprintf() of a process takes several microseconds.
class ShortName {
  public:
    ShortName& operator<<(std::string_view part) {
        length_ += part.copy(text_ + length_, sizeof(text_) - 1 - length_);
        return *this;
    }
    ShortName& operator<<(uint32_t number) {
        char digits[16];
        const char* const end = std::to_chars(std::begin(digits), std::end(digits), number).ptr;
        return *this << std::string_view(digits, end - digits);
    }
    ShortName& add_hex(uint64_t number) {
        char digits[16];
        for (size_t i = std::size(digits); i-- > 0; number >>= 4)
            digits[i] = "0123456789abcdef"[number & 0xf];
        return *this << std::string_view(digits, sizeof(digits));
    }
    const char* c_str() const { return text_; }
    std::string_view view() const { return {text_, length_}; }

  private:
    char text_[64] = {};
    size_t length_ = 0;
};

ShortName file_name(uint64_t nonce) {
    return (ShortName() << "swiftlane-").add_hex(nonce);
}

// Does the link of a descriptor in /proc begin like this?
bool links_to(const char* path, std::string_view beginning) {
    char target[PATH_MAX];
    const ssize_t length = readlink(path, target, sizeof(target));
    return length > 0 &&
           std::string_view(target, static_cast<size_t>(length)).starts_with(beginning);
}

}  // namespace

// --- names

void SegmentName::write(std::span<std::byte> bytes) const {
    std::memcpy(bytes.data(), &nonce, sizeof(nonce));
    std::memcpy(bytes.data() + 8, &pid, sizeof(pid));
    std::memcpy(bytes.data() + 12, &descriptor, sizeof(descriptor));
}

std::optional<SegmentName> SegmentName::read(std::span<const std::byte> bytes) {
    if (bytes.size() != kLength) return {};
    SegmentName name;
    std::memcpy(&name.nonce, bytes.data(), sizeof(name.nonce));
    std::memcpy(&name.pid, bytes.data() + 8, sizeof(name.pid));
    std::memcpy(&name.descriptor, bytes.data() + 12, sizeof(name.descriptor));
    if (name.pid == 0 || name.pid > INT_MAX || name.descriptor > INT_MAX) return {};
    return name;
}

// --- mappings

MappedMemory::~MappedMemory() {
    if (base_ != nullptr) munmap(base_, size_);
}

MappedMemory::MappedMemory(MappedMemory&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedMemory& MappedMemory::operator=(MappedMemory&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(size_, other.size_);
    return *this;
}

// --- own segments

SharedSegment::SharedSegment(int descriptor, uint64_t nonce)
    : descriptor_(descriptor),
      name_{nonce, ucs::Process::own_number(), static_cast<uint32_t>(descriptor)} {}

SharedSegment::~SharedSegment() {
    close(descriptor_);
}

ucs_status_t SharedSegment::create(size_t size, void* hint, bool fixed,
                                   std::unique_ptr<SharedSegment>* segment) {
    const uint64_t nonce = ucs::unique_id();
    const int descriptor = memfd_create(file_name(nonce).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (descriptor < 0) {
        ucs::log_debug("no shared memory: {}", std::strerror(errno));
        return errno == EMFILE || errno == ENFILE ? UCS_ERR_NO_RESOURCE : UCS_ERR_UNSUPPORTED;
    }
    std::unique_ptr<SharedSegment> made(new SharedSegment(descriptor, nonce));
    if (fchmod(descriptor, S_IRUSR | S_IWUSR) != 0 ||
        ftruncate(descriptor, static_cast<off_t>(size)) != 0 ||
        fcntl(descriptor, F_ADD_SEALS, kSeals) != 0) {
        ucs::log_debug("no shared memory of {} bytes: {}", size, std::strerror(errno));
        return UCS_ERR_NO_MEMORY;
    }
    void* base = mmap(hint, size, PROT_READ | PROT_WRITE, MAP_SHARED | (fixed ? MAP_FIXED : 0),
                      descriptor, 0);
    if (base == MAP_FAILED) return UCS_ERR_NO_MEMORY;
    made->mapping_ = MappedMemory(static_cast<std::byte*>(base), size);
    *segment = std::move(made);
    return UCS_OK;
}

// --- those of others

int open_descriptor_of(uint32_t pid, uint32_t descriptor, std::string_view kind) {
    const ShortName path = ShortName() << "/proc/" << pid << "/fd/" << descriptor;
    // Looked at before it is opened, since opening a device may do something, and after, since the
    // owner may have closed it and opened another in between.
    if (!links_to(path.c_str(), kind)) return -1;
    const int opened = open(path.c_str(), O_RDWR | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (opened < 0) return -1;
    const ShortName own_path = ShortName() << "/proc/self/fd/" << static_cast<uint32_t>(opened);
    if (links_to(own_path.c_str(), kind)) return opened;
    close(opened);
    return -1;
}

ucs_status_t attach_segment(const SegmentName& name, MappedMemory* mapping) {
    const ShortName kind = ShortName() << "/memfd:" << file_name(name.nonce).view();
    const int descriptor = open_descriptor_of(name.pid, name.descriptor, kind.view());
    if (descriptor < 0) return UCS_ERR_UNREACHABLE;
    struct stat info;
    const bool is_sound = fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode) &&
                          info.st_uid == geteuid() && info.st_size > 0 &&
                          (fcntl(descriptor, F_GET_SEALS) & kSeals) == kSeals;
    void* base = is_sound ? mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ | PROT_WRITE,
                                 MAP_SHARED, descriptor, 0)
                          : MAP_FAILED;
    close(descriptor);
    if (!is_sound) {
        ucs::log_warn(
            "shared memory of process {} is refused: it is another user's, or its size "
            "is not fixed",
            name.pid);
        return UCS_ERR_UNREACHABLE;
    }
    if (base == MAP_FAILED) return UCS_ERR_NO_MEMORY;
    *mapping = MappedMemory(static_cast<std::byte*>(base), static_cast<size_t>(info.st_size));
    return UCS_OK;
}

}  // namespace uct::sm
