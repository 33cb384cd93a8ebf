// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/wireup/connection_manager.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "ucp/wireup/connection.h"
#include "ucp/wireup/listener.h"
#include "ucs/log/log.h"

namespace ucp::wireup {
namespace {

// Those who have not said who they are: oldest first.
constexpr size_t kMaxCallers = 1024;
constexpr ptrdiff_t kMaxOfOneSource = 256;
constexpr ucs::Duration kHandshakeTimeout = std::chrono::seconds(10);

// Does that connection come from this host?
bool is_near(const ucs::net::Socket& socket) {
    constexpr uint8_t kLoopbackNet = 127;
    const ucs::net::IpAddress peer = socket.peer().ip();
    return peer == socket.local().ip() || (peer.version == 4 && peer.bytes[0] == kLoopbackNet);
}

}  // namespace

ucs_status_t WatchedSocket::watch(bool writing) {
    return manager_.watch(*this, socket_.descriptor(), writing, &id_);
}

void WatchedSocket::ignore() {
    if (id_ == 0) return;
    manager_.ignore(socket_.descriptor(), id_);
    id_ = 0;
}

ucs_status_t ConnectionManager::watch(WatchedSocket& watched, int descriptor, bool writing,
                                      uint64_t* id) {
    epoll_event event{};
    event.events = writing ? EPOLLIN | EPOLLOUT : EPOLLIN;
    const bool is_new = *id == 0;
    event.data.u64 = is_new ? ++last_id_ : *id;
    if (epoll_ctl(poll_, is_new ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, descriptor, &event) != 0)
        return UCS_ERR_IO_ERROR;
    *id = event.data.u64;
    watched_[*id] = &watched;
    return UCS_OK;
}

void ConnectionManager::ignore(int descriptor, uint64_t id) {
    epoll_ctl(poll_, EPOLL_CTL_DEL, descriptor, nullptr);
    watched_.erase(id);
}

ConnectionManager::ConnectionManager(const Services& services) : services_(services) {}

ucs_status_t ConnectionManager::create(const Services& services,
                                       std::unique_ptr<ConnectionManager>* manager) {
    std::unique_ptr<ConnectionManager> made(new ConnectionManager(services));
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

unsigned ConnectionManager::progress(ucs::Time now, bool is_quiet, bool* look) {
    std::array<epoll_event, 16> events;
    const int count = epoll_wait(poll_, events.data(), static_cast<int>(events.size()), 0);
    for (int index = 0; index < count; ++index) {
        // The event is packed: nothing may refer to its members.
        const uint64_t id = events[static_cast<size_t>(index)].data.u64;
        // What one of them does may be the end of another.
        const auto found = watched_.find(id);
        if (found != watched_.end()) serve(id, *found->second);
    }
    std::erase_if(callers_, [&](const auto& caller) { return caller->has_expired(now); });
    if (!ending_.empty()) {
        // Their peers' last words are there already, but perhaps where progress looks seldom.
        const bool has_looked = std::exchange(is_looking_, !is_looking_);
        if (!has_looked) {
            *look = true;
        } else if (is_quiet && count <= 0) {
            const auto ending = std::move(ending_);
            ending_.clear();
            for (Connection* connection : ending) connection->end();
        }
    }
    return static_cast<unsigned>(std::max(count, 0));
}

void ConnectionManager::serve(uint64_t id, WatchedSocket& watched) {
    try {
        watched.ready();
    } catch (const std::bad_alloc&) {
        ucs::log_error("no memory for a connection by socket address: it ends");
        const auto left = watched_.find(id);
        if (left != watched_.end()) left->second->out_of_memory();
    }
}

void ConnectionManager::add_caller(Listener& listener, ucs::net::Socket socket) {
    auto caller = std::make_unique<Caller>(*this, listener, std::move(socket),
                                           ucs::deadline(services_.clock.now(), kHandshakeTimeout));
    make_room_for(*caller);
    if (caller->start() == UCS_OK) callers_.push_back(std::move(caller));
}

// Who has been silent for longest gives way: first of those from the same address.
void ConnectionManager::make_room_for(const Caller& newcomer) {
    const auto is_neighbour = [&](const auto& each) { return each->source() == newcomer.source(); };
    if (std::ranges::count_if(callers_, is_neighbour) >= kMaxOfOneSource) {
        callers_.erase(std::ranges::find_if(callers_, is_neighbour));
    }
    if (callers_.size() >= kMaxCallers) callers_.erase(callers_.begin());
}

void ConnectionManager::refuse(const ucs::net::Socket& caller, std::string_view why) {
    complain(fmt::format("client {} is refused: {}", caller.peer().text(), why));
}

void ConnectionManager::complain(const std::string& text) {
    // Strangers shall not fill the log.
    constexpr ucs::Duration kBetween = std::chrono::seconds(10);
    const ucs::Time now = services_.clock.now();
    const auto level = now >= next_complaint_ ? ucs::LogLevel::kWarn : ucs::LogLevel::kDiag;
    if (now >= next_complaint_) next_complaint_ = now + kBetween;
    ucs::log(level, "{}", text);
}

void ConnectionManager::drop_caller(Caller& caller) {
    std::erase_if(callers_, [&](const auto& each) { return each.get() == &caller; });
}

void ConnectionManager::drop_callers_of(const Listener& listener) {
    std::erase_if(callers_, [&](const auto& each) { return &each->listener() == &listener; });
}

void ConnectionManager::end_later(Connection& connection) {
    try {
        ending_.push_back(&connection);
        is_looking_ = false;
    } catch (const std::bad_alloc&) {
        connection.end();
    }
}

// --- endpoints ---

// The endpoint has a connection, and that begins. @param begin  ucs_status_t(Connection&)
template <typename Begin>
ucs_status_t ConnectionManager::connect(Endpoint& endpoint, Begin begin) {
    try {
        auto made = std::make_unique<Connection>(*this, endpoint);
        Connection& connection = *made;
        endpoint.make_extras().connection = std::move(made);
        return begin(connection);
    } catch (const std::bad_alloc&) {
        return UCS_ERR_NO_MEMORY;
    }
}

ucs_status_t ConnectionManager::call(const ucp_ep_params_t& params, Endpoint** endpoint) {
    const auto has = [&](uint64_t field) { return (params.field_mask & field) != 0; };
    const unsigned flags = has(UCP_EP_PARAM_FIELD_FLAGS) ? params.flags : 0;
    const auto server = ucs::net::SocketAddress::from(params.sockaddr);
    if (!server || (flags & UCP_EP_PARAMS_FLAGS_CLIENT_SERVER) == 0) return UCS_ERR_INVALID_PARAM;
    std::optional<ucs::net::SocketAddress> local;
    if (has(UCP_EP_PARAM_FIELD_LOCAL_SOCK_ADDR)) {
        local = ucs::net::SocketAddress::from(params.local_sockaddr);
        if (!local || local->family() != server->family()) return UCS_ERR_INVALID_PARAM;
    }
    Endpoint& made = services_.connector.create_waiting();
    const bool has_key = !services_.job_key.empty();
    if (!has_key && services_.connector.knows_guests()) made.set_stranger();
    const ucs_status_t status = connect(made, [&](Connection& calling) {
        return calling.call(*server, local ? &*local : nullptr,
                            (flags & UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID) != 0);
    });
    if (status != UCS_OK) {
        services_.connector.discard(made);
        return status;
    }
    *endpoint = &made;
    return UCS_OK;
}

ucs_status_t ConnectionManager::accept(std::unique_ptr<ConnectionRequest> request,
                                       Endpoint** endpoint) {
    WorkerAddress remote;
    ucs_status_t status = unpack_address(request->introduction.address, &remote);
    Endpoint* made = nullptr;
    const bool is_proved = request->seal.length() != 0;
    std::vector<std::byte> own_address = services_.connector.address();
    if (status == UCS_OK && is_proved) status = services_.connector.create(remote, &made);
    if (status == UCS_OK && !is_proved) {
        status = services_.connector.create_for_guest(std::move(remote), is_near(request->socket),
                                                      &made, &own_address);
    }
    if (status != UCS_OK) {
        reject(std::move(request));
        return status;
    }
    status = connect(*made, [&](Connection& accepting) {
        return accepting.accept(*request, std::move(own_address));
    });
    if (status != UCS_OK) {
        services_.connector.discard(*made);
        return status;
    }
    *endpoint = made;
    return UCS_OK;
}

}  // namespace ucp::wireup
