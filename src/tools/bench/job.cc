// SPDX-License-Identifier: BSD-3-Clause
#include "tools/bench/job.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

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

bool send_message(int socket, const Json& message) {
    const std::string text = message.dump();
    while (send(socket, text.data(), text.size(), MSG_NOSIGNAL) < 0) {
        if (errno == EPIPE || errno == ECONNRESET) return false;
        if (errno != EINTR) fail("message between a rank and its launcher");
    }
    return true;
}

std::optional<Json> receive_message(int socket) {
    for (;;) {
        const ssize_t length = recv(socket, nullptr, 0, MSG_PEEK | MSG_TRUNC);
        if (length == 0 || (length < 0 && errno == ECONNRESET)) return std::nullopt;
        if (length < 0 && errno != EINTR) fail("message between a rank and its launcher");
        if (length < 0) continue;
        std::vector<char> text(static_cast<size_t>(length));
        if (recv(socket, text.data(), text.size(), 0) != length) {
            fail("message between a rank and its launcher");
        }
        return Json::parse(text);
    }
}

std::string to_hex(const std::string& bytes) {
    std::string text;
    for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    return text;
}

std::string from_hex(const std::string& text) {
    std::string bytes;
    for (size_t i = 0; i + 1 < text.size(); i += 2) {
        bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
    }
    return bytes;
}

}  // namespace tools
