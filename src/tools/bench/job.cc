// SPDX-License-Identifier: BSD-3-Clause
#include "tools/bench/job.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace tools {
namespace {

[[noreturn]] void fail(const char* what) {
    throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace

SharedPage::SharedPage(int fd, unsigned ranks) : fd_(fd), length_(kLine * (1 + ranks)) {
    memory_ = mmap(nullptr, length_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory_ == MAP_FAILED) fail("shared memory of the job");
}

SharedPage SharedPage::create(unsigned ranks) {
    const int fd = memfd_create("swiftlane-bench", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, static_cast<off_t>(kLine * (1 + ranks))) != 0) {
        fail("shared memory of the job");
    }
    return SharedPage(fd, ranks);
}
SharedPage::SharedPage(SharedPage&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      length_(other.length_),
      memory_(std::exchange(other.memory_, MAP_FAILED)) {}

SharedPage::~SharedPage() {
    if (memory_ != MAP_FAILED) munmap(memory_, length_);
    if (fd_ >= 0) ::close(fd_);
}

}  // namespace tools
