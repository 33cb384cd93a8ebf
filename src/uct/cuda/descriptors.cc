// SPDX-License-Identifier: BSD-3-Clause
#include "uct/cuda/descriptors.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <utility>

#include "ucs/log/log.h"
#include "ucs/sys/no_signals.h"

namespace uct::cuda {

namespace {

struct Question {
    static constexpr uint64_t kMagic = 0x7377696674646573;  // "swiftdes"

    uint64_t magic;
    uint64_t token;
    uint64_t number;
};

constexpr timeval kAnswerWithin{1, 0};
constexpr timeval kAskWithin{0, 200'000};

// In the abstract space: nothing is left in a folder when the process ends.
socklen_t name_socket(uint64_t process, sockaddr_un& address) {
    address = {};
    address.sun_family = AF_UNIX;
    const int length =
        std::snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "swiftlane-cuda-%016llx",
                      static_cast<unsigned long long>(process));
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
}

// What is at the other end may be anybody's.
bool is_of_this_user(int connection) {
    ucred other{};
    socklen_t length = sizeof(other);
    return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &other, &length) == 0 &&
           other.uid == geteuid();
}

void limit_waits(int connection, const timeval& time) {
    (void)setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time));
    (void)setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time));
}

// A message of one byte, with room for a descriptor.
struct Envelope {
    explicit Envelope(char& byte) : text{&byte, 1} {
        message.msg_iov = &text;
        message.msg_iovlen = 1;
        message.msg_control = control;
        message.msg_controllen = sizeof(control);
    }
    iovec text;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
};

void send_descriptor(int connection, int descriptor) {
    char has = descriptor >= 0 ? 1 : 0;
    Envelope envelope(has);
    msghdr& message = envelope.message;
    if (has == 0) {
        message.msg_controllen = 0;
    } else {
        cmsghdr* const part = CMSG_FIRSTHDR(&message);
        part->cmsg_level = SOL_SOCKET;
        part->cmsg_type = SCM_RIGHTS;
        part->cmsg_len = CMSG_LEN(sizeof(descriptor));
        std::memcpy(CMSG_DATA(part), &descriptor, sizeof(descriptor));
    }
    (void)sendmsg(connection, &message, MSG_NOSIGNAL);
}

int receive_descriptor(int connection) {
    char has = 0;
    Envelope envelope(has);
    msghdr& message = envelope.message;
    if (recvmsg(connection, &message, MSG_CMSG_CLOEXEC) != 1) return -2;
    const cmsghdr* const part = CMSG_FIRSTHDR(&message);
    if (part == nullptr || part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS ||
        part->cmsg_len != CMSG_LEN(sizeof(int)))
        return -1;
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(part), sizeof(descriptor));
    return descriptor;
}

// The process has one: its thread ends before the process does.
DescriptorServer* server_to_stop = nullptr;

}  // namespace

// With the mutex.
bool DescriptorServer::begin() {
    if (thread_.joinable()) return true;
    if (is_stopped_) return false;
    sockaddr_un address;
    const socklen_t length = name_socket(process_, address);
    ucs::Descriptor listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (!listener) return false;
    if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
        listen(listener.get(), SOMAXCONN) != 0) {
        ucs::log_info("memory of CUDA devices cannot be shared by descriptors: {}",
                      std::strerror(errno));
        return false;
    }
    listener_ = std::move(listener);
    try {
        const ucs::NoSignals guard;
        thread_ = std::thread(&DescriptorServer::loop, this);
    } catch (const std::system_error&) {
        listener_.reset();
        return false;
    }
    if (server_to_stop == nullptr) {
        server_to_stop = this;
        (void)std::atexit([] {
            if (server_to_stop != nullptr) server_to_stop->stop();
        });
    }
    return true;
}

void DescriptorServer::stop() {
    {
        std::lock_guard lock(mutex_);
        is_stopped_ = true;
        if (server_to_stop == this) server_to_stop = nullptr;
        if (listener_) (void)shutdown(listener_.get(), SHUT_RDWR);
        offers_.clear();
    }
    if (thread_.joinable()) thread_.join();
    listener_.reset();
}

void DescriptorServer::loop() {
    for (;;) {
        const ucs::Descriptor connection(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        const int error = errno;
        if (connection) {
            answer(connection.get());
            continue;
        }
        {
            std::lock_guard lock(mutex_);
            if (is_stopped_) return;
        }
        if (error == EINTR || error == ECONNABORTED) continue;
        if (error != EMFILE && error != ENFILE && error != ENOBUFS && error != ENOMEM) return;
        // The process may be out of descriptors for a while.
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
}

void DescriptorServer::answer(int connection) {
    if (!is_of_this_user(connection)) return;
    limit_waits(connection, kAskWithin);
    Question question{};
    if (recv(connection, &question, sizeof(question), 0) != sizeof(question) ||
        question.magic != Question::kMagic || question.token != token_)
        return;
    std::lock_guard lock(mutex_);
    const auto offer = offers_.find(question.number);
    if (offer == offers_.end() && wanted_.size() < kMaxWanted) {
        wanted_.insert(question.number);
        any_wanted_ = true;
    }
    send_descriptor(connection, offer == offers_.end() ? -1 : offer->second.descriptor.get());
}

// With the mutex.
void DescriptorServer::give_up_oldest() {
    offers_.erase(
        std::ranges::min_element(offers_, {}, [](const auto& entry) { return entry.second.turn; }));
}

bool DescriptorServer::offer(uint64_t number, ucs::Descriptor descriptor) {
    std::lock_guard lock(mutex_);
    if (!begin()) return false;
    wanted_.erase(number);
    any_wanted_ = !wanted_.empty();
    const auto known = offers_.find(number);
    if (known != offers_.end()) {
        known->second.descriptor = std::move(descriptor);
        return true;
    }
    if (offers_.size() >= kMaxOffers) give_up_oldest();
    offers_[number] = {std::move(descriptor), ++turns_};
    return true;
}

void DescriptorServer::withdraw(uint64_t number) {
    std::lock_guard lock(mutex_);
    wanted_.erase(number);
    offers_.erase(number);
}

bool DescriptorServer::is_wanted(uint64_t number) {
    if (!any_wanted_.load(std::memory_order_relaxed)) return false;
    std::lock_guard lock(mutex_);
    return wanted_.contains(number);
}

int DescriptorServer::ask(uint64_t process, uint64_t token, uint64_t number) {
    sockaddr_un address;
    const socklen_t length = name_socket(process, address);
    const ucs::Descriptor connection(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (!connection) return -2;
    limit_waits(connection.get(), kAnswerWithin);
    const Question question{Question::kMagic, token, number};
    if (connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0 &&
        is_of_this_user(connection.get()) &&
        send(connection.get(), &question, sizeof(question), MSG_NOSIGNAL) == sizeof(question))
        return receive_descriptor(connection.get());
    return -2;
}

}  // namespace uct::cuda
