// SPDX-License-Identifier: BSD-3-Clause

// How a connection is made, and ends.

#include "uct/tcp/channel.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ucs/log/log.h"
#include "uct/tcp/tcp_interface.h"

namespace uct::tcp {

namespace {

// Attempts that break follow each other ever more slowly, and not all peers' at the same time.
constexpr ucs::Duration kFirstBackOff = std::chrono::milliseconds(1);
constexpr unsigned kMostDoublings = 7;
/** Of a bulk connection where another way may be better. */
constexpr ucs::Duration kBulkConnectTime = std::chrono::milliseconds(500);

ucs_status_t status_of(int error) {
    switch (error) {
        case ETIMEDOUT:
            return UCS_ERR_ENDPOINT_TIMEOUT;
        case EHOSTUNREACH:
        case ENETUNREACH:
        case EADDRNOTAVAIL:
            return UCS_ERR_UNREACHABLE;
        case EMFILE:
        case ENFILE:
        case ENOMEM:
        case ENOBUFS:
            return UCS_ERR_NO_MEMORY;
        default:
            return UCS_ERR_CONNECTION_RESET;
    }
}

}  // namespace

Channel::Channel(Link& link, unsigned index)
    : link_(link), index_(static_cast<uint8_t>(index)), queue_(link.interface().output_pools()) {}

Channel::~Channel() {
    close();
}

size_t Channel::room() const {
    const size_t limit = link_.interface().config().tx_queue_len;
    return limit - std::min(limit, queue_.size());
}

void Channel::watch(uint32_t events) {
    if (events == events_) return;
    if (!link_.interface().watch(socket_.get(), *this, events, events_ == 0)) {
        fail_later(UCS_ERR_NO_MEMORY);
        return;
    }
    events_ = events;
}

void Channel::wait_until(State state, ucs::Duration span) {
    state_ = state;
    deadline_ = ucs::deadline(link_.interface().now(), span);
    if (!TimerHook::is_linked()) link_.interface().add_timer(*this);
}

void Channel::fail_later(ucs_status_t status) {
    failure_ = status;
    wait_until(State::kFailing, ucs::Duration(0));
}

void Channel::start() {
    TcpInterface& interface = link_.interface();
    const auto& target = link_.target();
    was_open_ = false;
    if (!target) {
        fail_later(UCS_ERR_CONNECTION_RESET);
        return;
    }
    Session::Course course{&interface, target->device, target->listener.port};
    ucs::Duration patience = interface.config().conn_timeout;
    if (const Session* session = link_.session(); session != nullptr && index_ > 0) {
        if (session->is_moving()) {
            wait_until(State::kBackOff, kFirstBackOff);
            return;
        }
        if (session->course() != nullptr) course = *session->course();
        patience = std::min(patience, kBulkConnectTime);
        link_.session()->watch();
    }
    int cause = 0;
    socket_ = course.start(interface.config(), &cause);
    if (!socket_) {
        ucs::log_debug("{}: cannot connect to {}: {}", course.from->device().name,
                       course.to.ip.text(), std::strerror(cause));
        fail_later(status_of(cause));
        return;
    }
    wait_until(State::kConnecting, patience);
    watch(EPOLLOUT);
}

void Channel::on_connected() {
    TcpInterface& interface = link_.interface();
    if (const int error = pending_error(socket_.get()); error != 0) {
        report_failure(status_of(error));
        return;
    }
    wire::Hello hello = link_.hello();
    hello.channel = index_;
    hello.receiver = link_.target()->listener.id;
    hello.secret = link_.target()->listener.secret;
    hello.flags = interface.session_flags();
    if (::send(socket_.get(), &hello, sizeof(hello), MSG_NOSIGNAL) != sizeof(hello)) {
        retry();
        return;
    }
    wait_until(State::kGreeting, interface.config().conn_timeout);
    welcome_received_ = 0;
    watch(EPOLLIN);
}

void Channel::on_welcome() {
    auto* bytes = reinterpret_cast<std::byte*>(&welcome_);
    const ssize_t got =
        recv(socket_.get(), bytes + welcome_received_, sizeof(welcome_) - welcome_received_, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got < 0 && errno == ETIMEDOUT) {
        report_failure(UCS_ERR_ENDPOINT_TIMEOUT);
        return;
    }
    if (got <= 0) {
        retry();
        return;
    }
    welcome_received_ += static_cast<size_t>(got);
    if (welcome_received_ < sizeof(welcome_)) return;
    TcpInterface& interface = link_.interface();
    if (welcome_.magic != wire::kMagic || welcome_.version != wire::kVersion ||
        welcome_.channel != index_ || welcome_.answer == wire::Answer::kStale) {
        retry();
    } else if (welcome_.answer == wire::Answer::kYield) {
        close();
        wait_until(State::kYielded, interface.config().conn_timeout);
    } else if (welcome_.answer == wire::Answer::kCutOff) {
        close();
        if (!link_.begin_anew()) fail_later(UCS_ERR_CONNECTION_RESET);
    } else if (welcome_.answer != wire::Answer::kWelcome ||
               welcome_.max_frame != interface.max_message()) {
        ucs::log_error(
            "{}: {} takes messages of another size: UCX_TCP_RX_SEG_SIZE must be the "
            "same everywhere",
            interface.device().name, link_.target()->device.ip.text());
        close();
        fail_later(UCS_ERR_REJECTED);
    } else {
        link_.set_peer_number(welcome_.link);
        const bool resumes = index_ == 0 && interface.keeps_sessions_with(welcome_.flags);
        opened(resumes ? Beginning::kOwnSession : Beginning::kNothing);
    }
}

void Channel::retry() {
    close();
    const TcpInterface& interface = link_.interface();
    if (attempts_ >= interface.config().max_conn_retries) {
        fail_later(UCS_ERR_REJECTED);
        return;
    }
    ucs::Duration span = kFirstBackOff * (1 << std::min<unsigned>(attempts_, kMostDoublings));
    span += ucs::Duration(static_cast<ucs::Duration::rep>(
        link_.interface().random().below(static_cast<uint64_t>(span.count()))));
    ++attempts_;
    wait_until(State::kBackOff, span);
}

void Channel::on_deadline() {
    switch (state_) {
        case State::kBackOff:
        case State::kYielded:
            start();
            break;
        case State::kGreeting:
            // The peer's program may be busy for long; its kernel is not.
            if (pending_error(socket_.get()) == 0 && !is_silent(socket_.get())) {
                wait_until(State::kGreeting, link_.interface().config().conn_timeout);
                break;
            }
            [[fallthrough]];
        case State::kConnecting:
            report_failure(UCS_ERR_ENDPOINT_TIMEOUT);
            break;
        case State::kFailing:
            report_failure(failure_);
            break;
        case State::kIdle:
        case State::kOpen:
        case State::kMoving:
            TimerHook::unlink();
            break;
    }
}

void Channel::report_failure(ucs_status_t status) {
    close();
    if (was_open_) {
        link_.fail(status);
    } else {
        link_.connect_failed(*this, status);
    }
}

void Channel::opened(Beginning beginning) {
    state_ = State::kOpen;
    was_open_ = true;
    attempts_ = 0;
    peer_left_ = false;
    if (TimerHook::is_linked()) TimerHook::unlink();
    // Messages are to be with the kernel, which goes on when their sender makes no progress.
    if (index_ > 0) limit_send_ahead(socket_.get(), link_.interface().config());
    segment_ = longest_segment(socket_.get());
    watch(EPOLLIN | (queue_.empty() ? 0u : EPOLLOUT));
    if (beginning != Beginning::kNothing) {
        received_ = 0;
        link_.begin_session(beginning == Beginning::kPeersSession);
    }
    transmit_queue();
    link_.room_made();
}

// --- from one connection to the next
// ------------------------------------------------------------------------------

void Channel::hand_over() {
    // From here on the kernel takes nothing more, so that it acknowledges nothing unread, and what
    // there is to read has an end.
    shutdown(socket_.get(), SHUT_RDWR);
    is_draining_ = true;
    drain();
    is_draining_ = false;
    if (is_open()) suspend();
}

/** Input that is not complete stays: the next connection brings the rest. */
void Channel::suspend() {
    reset_on_close();
    link_.interface().forget_hot(this);
    socket_.reset();
    events_ = 0;
    state_ = State::kMoving;
}

void Channel::resume(Descriptor socket, bool is_new) {
    take(std::move(socket), is_new, Beginning::kNothing);
}

void Channel::take(Descriptor socket, bool is_new, Beginning beginning) {
    socket_ = std::move(socket);
    if (!link_.interface().watch(socket_.get(), *this, EPOLLIN, is_new)) {
        fail_later(UCS_ERR_IO_ERROR);
        return;
    }
    events_ = EPOLLIN;
    opened(beginning);
}

bool Channel::must_yield_to(uint64_t sender) const {
    if (state_ == State::kMoving) return false;
    return state_ == State::kIdle || state_ == State::kYielded || state_ == State::kBackOff ||
           state_ == State::kFailing || sender < link_.interface().id();
}

void Channel::adopt(Descriptor socket, bool is_new, bool resumes) {
    close();
    take(std::move(socket), is_new, resumes ? Beginning::kPeersSession : Beginning::kNothing);
}

unsigned Channel::on_event(uint32_t events) {
    switch (state_) {
        case State::kConnecting:
            on_connected();
            return 1;
        case State::kGreeting:
            on_welcome();
            return 1;
        case State::kOpen:
            break;
        default:
            return 0;
    }
    unsigned count = 0;
    if ((events & ~uint32_t{EPOLLOUT}) != 0) count = receive();
    if (is_open() && (events & EPOLLOUT) != 0) {
        transmit_queue();
        ++count;
    }
    return count;
}

void Channel::ended(int error) {
    const bool left = peer_left_ || has_all_arrived();
    Session* session = index_ == 0 ? link_.session() : nullptr;
    if (session != nullptr && !left) {
        suspend();
        if (!is_draining_) session->broken(error);
        return;
    }
    ucs::log_debug("{}: connection {} to {:016x} ended: {}", link_.interface().device().name,
                   index_, link_.peer(), error == 0 ? "closed" : std::strerror(error));
    close();
    was_open_ = false;
    if (link_.interface().is_leaving()) return;
    link_.channel_ended(*this, status_of(error), left);
}

void Channel::violation(const char* what) {
    ucs::log_warn("{}: a peer breaks the protocol ({}): its connection is closed",
                  link_.interface().device().name, what);
    close();
    link_.fail(UCS_ERR_IO_ERROR);
}

void Channel::drain() {
    while (is_open() && receive() > 0) {
    }
}

void Channel::leave() {
    if (is_open()) lingers();
}

/** Farewell included. */
bool Channel::has_all_arrived() const {
    if (leave_sent_ < sizeof(wire::Frame) || has_bytes_under_way()) return false;
    Session* session = index_ == 0 ? link_.session() : nullptr;
    return session == nullptr || session->has_all_arrived();
}

bool Channel::lingers() {
    // With unread bytes the kernel would reset the connection, and the peer lose what is under way.
    constexpr int kMostReads = 64;
    for (int i = 0; i < kMostReads && is_open() && receive() > 0; ++i) {
    }
    if (is_open() && (!queue_.empty() || is_replaying())) transmit_queue();
    if (!is_open()) return state_ == State::kMoving;
    if (!queue_.empty() || is_replaying()) return true;
    wire::Frame farewell{0, wire::FrameType::kLeave, 0, wire::kMark};
    if (leave_sent_ < sizeof(farewell)) {
        const iovec rest{reinterpret_cast<std::byte*>(&farewell) + leave_sent_,
                         sizeof(farewell) - leave_sent_};
        leave_sent_ += static_cast<uint8_t>(transmit({&rest, 1}));
        if (leave_sent_ < sizeof(farewell)) return true;
    }
    end_output();
    // Sent is not enough: what the peer sends to a closed socket would throw it away.
    return !has_all_arrived();
}

void Channel::end_output() {
    if (is_open()) shutdown(socket_.get(), SHUT_WR);
}

bool Channel::has_bytes_under_way() const {
    return is_open() && under_way(socket_.get()) > 0;
}

void Channel::reset_on_close() {
    const linger at_once{1, 0};
    if (socket_) setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
}

void Channel::abort() {
    reset_on_close();
    close();
}

void Channel::close() {
    state_ = State::kIdle;
    link_.interface().forget_hot(this);
    socket_.reset();  // leaves the epoll set by itself
    events_ = 0;
    drop_buffer();
    payload_ = {};
    bulk_expected_ = false;
    if (TimerHook::is_linked()) TimerHook::unlink();
}

}  // namespace uct::tcp
