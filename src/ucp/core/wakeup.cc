// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/core/wakeup.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "ucp/core/worker.h"

namespace ucp {
namespace {

bool can_wake(const uct::InterfaceAttributes& attributes) {
    return (attributes.capabilities & uct::kEventFd) != 0;
}

bool watch(int poll, int descriptor) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = descriptor;
    return epoll_ctl(poll, EPOLL_CTL_ADD, descriptor, &event) == 0;
}

}  // namespace

ucs_status_t Wakeup::create(Worker& worker, std::unique_ptr<Wakeup>* wakeup) {
    std::unique_ptr<Wakeup> made(new Wakeup(worker));
    made->poll_ = epoll_create1(EPOLL_CLOEXEC);
    made->signal_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (made->poll_ < 0 || made->signal_ < 0 || !watch(made->poll_, made->signal_)) {
        return UCS_ERR_IO_ERROR;
    }
    for (const WorkerInterface& interface : worker.interfaces()) {
        const auto& attributes = interface.transport->attributes();
        // Messages of a worker to itself are there when the call that sent them returns.
        if (attributes.device_type == uct::DeviceType::kSelf) continue;
        if (!can_wake(attributes)) return UCS_ERR_UNSUPPORTED;
        // Transports of one device may share a descriptor.
        if (!watch(made->poll_, interface.transport->event_fd()) && errno != EEXIST) {
            return UCS_ERR_IO_ERROR;
        }
    }
    *wakeup = std::move(made);
    return UCS_OK;
}

Wakeup::~Wakeup() {
    if (poll_ >= 0) close(poll_);
    if (signal_ >= 0) close(signal_);
}

ucs_status_t Wakeup::arm() {
    uint64_t count;
    if (read(signal_, &count, sizeof(count)) == sizeof(count)) return UCS_ERR_BUSY;
    if (worker_.has_work()) return UCS_ERR_BUSY;
    for (const WorkerInterface& interface : worker_.interfaces()) {
        if (!can_wake(interface.transport->attributes())) {
            if (interface.transport->progress() != 0) return UCS_ERR_BUSY;
            continue;
        }
        const ucs_status_t status = interface.transport->arm();
        if (status != UCS_OK) return status;
    }
    return UCS_OK;
}

ucs_status_t Wakeup::wait(ucs::Duration limit) const {
    pollfd entry{poll_, POLLIN, 0};
    const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(
        std::clamp(limit, ucs::Duration(0), ucs::Duration(std::chrono::hours(1))));
    const int ready = poll(&entry, 1, static_cast<int>(milliseconds.count()));
    return ready < 0 && errno != EINTR ? UCS_ERR_IO_ERROR : UCS_OK;
}

ucs_status_t Wakeup::signal() const {
    const uint64_t one = 1;
    return write(signal_, &one, sizeof(one)) == sizeof(one) || errno == EAGAIN ? UCS_OK
                                                                               : UCS_ERR_IO_ERROR;
}

}  // namespace ucp
