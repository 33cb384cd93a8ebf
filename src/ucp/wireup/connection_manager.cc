// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/wireup/connection_manager.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "ucp/worker/worker.h"
#include "ucp/wireup/connection.h"
#include "ucp/wireup/listener.h"

namespace ucp::wireup {
namespace {

constexpr size_t kMaxCallers = 1024;  //!< who have not said who they are
constexpr ucs::Duration kPatience = std::chrono::seconds(10);

}  // namespace

ucs_status_t Watched::watch(bool writing) {
    epoll_event event{};
    event.events = writing ? EPOLLIN | EPOLLOUT : EPOLLIN;
    const bool is_new = id_ == 0;
    if (is_new) id_ = ++manager_.last_id_;
    event.data.u64 = id_;
    const int operation = is_new ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
    if (epoll_ctl(manager_.poll_, operation, socket_.descriptor(), &event) != 0) {
        if (is_new) id_ = 0;
        return UCS_ERR_IO_ERROR;
    }
    manager_.watched_[id_] = this;
    return UCS_OK;
}

void Watched::ignore() {
    if (id_ == 0) return;
    epoll_ctl(manager_.poll_, EPOLL_CTL_DEL, socket_.descriptor(), nullptr);
    manager_.watched_.erase(id_);
    id_ = 0;
}

ConnectionManager::ConnectionManager(Worker& worker) : worker_(worker) {}

ucs_status_t ConnectionManager::create(Worker& worker,
                                       std::unique_ptr<ConnectionManager>* manager) {
    std::unique_ptr<ConnectionManager> made(new ConnectionManager(worker));
    made->poll_ = epoll_create1(EPOLL_CLOEXEC);
    if (made->poll_ < 0) return UCS_ERR_IO_ERROR;
    *manager = std::move(made);
    return UCS_OK;
}

ConnectionManager::~ConnectionManager() {
    callers_.clear();
    while (!listeners_.empty()) delete listeners_.back();
    if (poll_ >= 0) close(poll_);
}

bool ConnectionManager::has_work() const {
    if (!ending_.empty()) return true;
    epoll_event event;
    return epoll_wait(poll_, &event, 1, 0) > 0;
}

unsigned ConnectionManager::progress(ucs::Time now, bool is_quiet) {
    std::array<epoll_event, 16> events;
    const int count = epoll_wait(poll_, events.data(), static_cast<int>(events.size()), 0);
    for (int index = 0; index < count; ++index) {
        // What one of them does may be the end of another.
        const auto found = watched_.find(events[static_cast<size_t>(index)].data.u64);
        if (found != watched_.end()) found->second->ready();
    }
    std::erase_if(callers_, [&](const auto& caller) { return caller->has_expired(now); });
    if (!ending_.empty()) {
        // Their peers' last words are there already, but perhaps where progress looks seldom.
        const bool has_looked = std::exchange(is_looking_, !is_looking_);
        if (!has_looked) {
            worker_.look_everywhere();
        } else if (is_quiet && count <= 0) {
            const auto ending = std::move(ending_);
            ending_.clear();
            for (Connection* connection : ending) connection->end();
        }
    }
    return static_cast<unsigned>(std::max(count, 0));
}

void ConnectionManager::add_caller(Listener& listener, Socket socket) {
    if (callers_.size() >= kMaxCallers) return;
    auto caller = std::make_unique<Caller>(*this, listener, std::move(socket),
                                           ucs::deadline(worker_.now(), kPatience));
    if (caller->start() == UCS_OK) callers_.push_back(std::move(caller));
}

void ConnectionManager::drop_caller(Caller& caller) {
    std::erase_if(callers_, [&](const auto& each) { return each.get() == &caller; });
}

void ConnectionManager::drop_callers_of(const Listener& listener) {
    std::erase_if(callers_, [&](const auto& each) { return &each->listener() == &listener; });
}

void ConnectionManager::end_later(Connection& connection) {
    ending_.push_back(&connection);
    is_looking_ = false;
}

void ConnectionManager::forget(Connection& connection) {
    std::erase(ending_, &connection);
}

void ConnectionManager::remove(Listener& listener) {
    std::erase(listeners_, &listener);
}

}  // namespace ucp::wireup
