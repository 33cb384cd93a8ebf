// SPDX-License-Identifier: BSD-3-Clause

// How a connection is made, and ends.

#include "uct/tcp/association/tcp_connection.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <new>
#include <utility>

#include "ucs/log/log.h"
#include "uct/tcp/association/association.h"

namespace uct::tcp {

namespace {

// Failed attempts to connect are repeated after waits that double, and that differ from peer to
// peer.
constexpr ucs::Duration kFirstBackOff = std::chrono::milliseconds(1);
constexpr unsigned kMostDoublings = 7;
// The wait while the network is unreachable.
constexpr ucs::Duration kNoWayBackOff = std::chrono::milliseconds(100);

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

TcpConnection::TcpConnection(Association& association, unsigned index)
    : association_(association),
      index_(static_cast<uint8_t>(index)),
      queue_(association.buffers().output),
      outgoing_(stream_, association.attention().bursts),
      incoming_(stream_, association.attention().bursts) {}

TcpConnection::~TcpConnection() {
    close();
}

size_t TcpConnection::room() const {
    const size_t limit = association_.rail().config().tx_queue_len;
    return limit - std::min(limit, queue_.size());
}

void TcpConnection::watch(uint32_t events) {
    if (events == events_) return;
    if (!association_.events().watch(stream_.descriptor(), *this, events, events_ == 0)) {
        fail_later(UCS_ERR_NO_MEMORY);
        return;
    }
    events_ = events;
}

void TcpConnection::watch_as_needed() {
    // epoll does not tell of early input, which has left the kernel. EPOLLOUT makes it return at
    // once.
    watch(EPOLLIN | (wants_output() || has_early_input_ ? EPOLLOUT : 0u));
}

void TcpConnection::wait_until(State state, ucs::Duration span) {
    state_ = state;
    deadline_ = ucs::deadline(association_.rail().now(), span);
    if (!TimerHook::is_linked()) association_.events().add_timer(*this);
}

void TcpConnection::fail_later(ucs_status_t status) {
    failure_ = status;
    wait_until(State::kFailing, ucs::Duration(0));
}

void TcpConnection::start() {
    if (association_.is_guest()) return;  // it is the guest who connects
    Rail& rail = association_.rail();
    const auto& target = association_.target();
    was_open_ = false;
    if (!target) {
        fail_later(UCS_ERR_CONNECTION_RESET);
        return;
    }
    Session::Course course{&rail, target->device, target->listener.port};
    ucs::Duration patience = rail.config().conn_timeout;
    const Session* session = association_.session();
    const bool is_sessions = session != nullptr && index_ > 0;
    if (is_sessions) {
        if (session->is_moving()) {
            wait_until(State::kBackOff, kFirstBackOff);
            return;
        }
        if (session->course() != nullptr) course = *session->course();
        patience = std::min(patience, association_.bulk_connect_time());
        association_.session()->watch();
    }
    int cause = 0;
    stream_ = SocketStream(course.start(rail.config(), &cause));
    if (!stream_) {
        ucs::log_debug("{}: cannot connect to {}: {}", course.from->device().name,
                       course.to.ip.text(), std::strerror(cause));
        if (waits_for_way(status_of(cause))) return;
        fail_later(status_of(cause));
        // The session would try again at once, with no more success: fail later.
        if (is_sessions && failure_ == UCS_ERR_UNREACHABLE) wait_until(State::kFailing, patience);
        return;
    }
    wait_until(State::kConnecting, patience);
    watch(EPOLLOUT);
}

void TcpConnection::on_connected() {
    Rail& rail = association_.rail();
    if (const int error = stream_.pending_error(); error != 0) {
        if (!waits_for_way(status_of(error))) report_failure(status_of(error));
        return;
    }
    no_way_.over();
    wire::Hello hello = association_.hello();
    hello.connection = index_;
    const ListenerAddress& listener = association_.target()->listener;
    hello.receiver = listener.id;
    hello.flags |= rail.session_flags();
    handshake_ = std::make_unique<ClientHandshake>();
    if (!handshake_->begin(stream_, hello, rail.key_of(listener.secret), rail.encryption())) {
        retry();
        return;
    }
    wait_until(State::kHandshake, rail.config().conn_timeout);
    watch(EPOLLIN);
}

void TcpConnection::on_handshake() {
    switch (handshake_->read(stream_)) {
        case ClientHandshake::State::kUnderWay:
            // The handshake goes on: its next message has the whole time-out again.
            wait_until(State::kHandshake, association_.rail().config().conn_timeout);
            break;
        case ClientHandshake::State::kOver:
            on_welcome(handshake_->welcome());
            break;
        case ClientHandshake::State::kRefused:
            refused(handshake_->reason());
            break;
        case ClientHandshake::State::kBroken:
            if (errno == ETIMEDOUT) {
                report_failure(UCS_ERR_ENDPOINT_TIMEOUT);
            } else {
                retry();
            }
            break;
    }
}

// The peer refuses this worker, and would do so again: no further attempt.
void TcpConnection::refused(const std::string& reason) {
    ucs::log_error("{}: no connection to {}: {}", association_.rail().device().name,
                   association_.target()->device.ip.text(), reason);
    close();
    fail_later(UCS_ERR_REJECTED);
}

void TcpConnection::on_welcome(const wire::Welcome& welcome) {
    Rail& rail = association_.rail();
    if (welcome.connection != index_ || welcome.answer == wire::Answer::kStale) {
        retry();
    } else if (welcome.answer == wire::Answer::kYield) {
        close();
        wait_until(State::kYielded, rail.config().conn_timeout);
    } else if (welcome.answer == wire::Answer::kCutOff) {
        close();
        if (!association_.begin_anew()) fail_later(UCS_ERR_CONNECTION_RESET);
    } else if (welcome.answer != wire::Answer::kWelcome ||
               welcome.max_frame != rail.max_message()) {
        refused(
            "it takes messages of another size: UCX_TCP_RX_SEG_SIZE must be the same everywhere");
    } else {
        association_.set_peer_number(welcome.association);
        association_.set_peer_flags(welcome.flags);
        if (index_ == 0) association_.set_session_key(handshake_->session_key());
        const bool resumes = index_ == 0 && rail.keeps_sessions_with(welcome.flags);
        opened(resumes ? Beginning::kOwnSession : Beginning::kNothing);
    }
}

// A link that is lost while a connection is made may come back, as it may under one that is open.
// @return whether it is tried again
bool TcpConnection::waits_for_way(ucs_status_t status) {
    if (status != UCS_ERR_UNREACHABLE || index_ > 0) return false;
    const Rail& rail = association_.rail();
    no_way_.look(rail.now(), rail.config().conn_timeout);
    if (no_way_.length() >= rail.config().conn_timeout) return false;
    close();
    wait_until(State::kBackOff, kNoWayBackOff);
    return true;
}

void TcpConnection::retry() {
    close();
    const Rail& rail = association_.rail();
    if (attempts_ >= rail.config().max_conn_retries) {
        fail_later(UCS_ERR_REJECTED);
        return;
    }
    ucs::Duration span = kFirstBackOff * (1 << std::min<unsigned>(attempts_, kMostDoublings));
    span += ucs::Duration(static_cast<ucs::Duration::rep>(
        association_.rail().random().below(static_cast<uint64_t>(span.count()))));
    ++attempts_;
    wait_until(State::kBackOff, span);
}

void TcpConnection::on_deadline() {
    switch (state_) {
        case State::kBackOff:
        case State::kYielded:
            start();
            break;
        case State::kHandshake:
            // A peer's program may be busy for long. As long as its kernel answers it is waited
            // for.
            if (stream_.pending_error() == 0 && !is_silent(stream_.socket())) {
                wait_until(State::kHandshake, association_.rail().config().conn_timeout);
            } else {
                report_failure(UCS_ERR_ENDPOINT_TIMEOUT);
            }
            break;
        case State::kConnecting:
            // It may be connected, and this process had no processor to see it.
            if (stream_.peer().is_known()) {
                on_event(EPOLLOUT);
            } else {
                report_failure(UCS_ERR_ENDPOINT_TIMEOUT);
            }
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

void TcpConnection::report_failure(ucs_status_t status) {
    close();
    if (was_open_ || has_lost_output_) {
        association_.fail(status);
    } else {
        association_.connect_failed(*this, status);
    }
}

void TcpConnection::opened(Beginning beginning) {
    state_ = State::kOpen;
    was_open_ = true;
    attempts_ = 0;
    no_way_.over();
    peer_left_ = false;
    silence_.over();
    heard_at_ = looked_at_ = {};
    ++given_;
    handshake_.reset();
    if (TimerHook::is_linked()) TimerHook::unlink();
    // Not for messages: those go to the kernel at once, which sends them though the program makes
    // no progress.
    if (index_ > 0) {
        limit_send_ahead(stream_.socket(), association_.rail().config());
        association_.bulk_connected();
    }
    segment_ = longest_segment(stream_.socket());
    const Config& config = association_.rail().config();
    const bool gathers = index_ == 0 && config.nodelay && association_.answers_bursts();
    outgoing_.begin(gathers && config.burst != UINT_MAX ? config.burst : 0, segment_);
    has_early_input_ = stream_.has_unread();
    watch_as_needed();
    if (beginning != Beginning::kNothing) {
        received_ = 0;
        association_.begin_session(beginning == Beginning::kPeersSession);
    }
    transmit_queue(association_.attention().turn);
    association_.room_made();
}

// --- from one connection to the next

void TcpConnection::hand_over() {
    // From here on the kernel accepts nothing more, so that it acknowledges nothing that is not
    // read, and reading comes to an end.
    stream_.shut_down();
    is_draining_ = true;
    drain();
    is_draining_ = false;
    if (is_open()) suspend();
}

// An incomplete frame stays in the buffer: the next connection brings the rest.
void TcpConnection::suspend() {
    stream_.reset_on_close();
    association_.attention().forget_hot(this);
    outgoing_.end();
    incoming_.end();
    stream_.close();
    events_ = 0;
    state_ = State::kMoving;
}
void TcpConnection::take(SocketStream stream, bool is_new, Beginning beginning) {
    stream_ = std::move(stream);
    if (!association_.events().watch(stream_.descriptor(), *this, EPOLLIN, is_new)) {
        fail_later(UCS_ERR_IO_ERROR);
        return;
    }
    events_ = EPOLLIN;
    opened(beginning);
}

bool TcpConnection::must_yield_to(uint64_t sender) const {
    if (state_ == State::kMoving) return false;
    return state_ == State::kIdle || state_ == State::kYielded || state_ == State::kBackOff ||
           state_ == State::kFailing || sender < association_.rail().id();
}

void TcpConnection::adopt(SocketStream stream, bool is_new, bool resumes) {
    close();
    take(std::move(stream), is_new, resumes ? Beginning::kPeersSession : Beginning::kNothing);
}

unsigned TcpConnection::on_event(uint32_t events) {
    if (state_ == State::kConnecting || state_ == State::kHandshake) {
        try {
            state_ == State::kConnecting ? on_connected() : on_handshake();
        } catch (const std::bad_alloc&) {
            // What was read of the handshake is lost. Another attempt may find memory.
            if (!is_open()) retry();
        }
        return 1;
    }
    if (state_ != State::kOpen) return 0;
    unsigned count = 0;
    const bool has_input = (events & ~uint32_t{EPOLLOUT}) != 0;
    size_t& turn = association_.attention().turn;
    if (std::exchange(has_early_input_, false) || has_input) count = receive(turn);
    if (is_open() && (events & EPOLLOUT) != 0) {
        transmit_queue(turn);
        ++count;
    }
    return count;
}

void TcpConnection::ended(int error) {
    const bool left = peer_left_ || has_all_arrived();
    Session* session = index_ == 0 ? association_.session() : nullptr;
    if (session != nullptr && !left) {
        const ucs::Duration silence =
            error == ETIMEDOUT ? time_without_answer(stream_.socket()) : ucs::Duration(0);
        suspend();
        if (!is_draining_) session->broken(error, silence);
        return;
    }
    if (error == EBADMSG) {
        ucs::log_error("{}: what comes from {:016x} is not what was sent: the connection is closed",
                       association_.rail().device().name, association_.peer());
    }
    ucs::log_debug("{}: connection {} to {:016x} ended: {}", association_.rail().device().name,
                   index_, association_.peer(), error == 0 ? "closed" : std::strerror(error));
    close();
    was_open_ = false;
    if (association_.rail().is_leaving()) return;
    association_.connection_ended(*this, status_of(error), left);
}

void TcpConnection::violation(const char* what) {
    ucs::log_warn("{}: a peer breaks the protocol ({}): its connection is closed",
                  association_.rail().device().name, what);
    close();
    association_.fail(UCS_ERR_IO_ERROR);
}

void TcpConnection::drain() {
    size_t all = SIZE_MAX;
    while (is_open() && receive(all) > 0) {
    }
}

uint64_t TcpConnection::in_doubt(uint64_t unanswered) const {
    const uint64_t bytes = unanswered + stream_.backlog();
    // Encrypted: of a record that has not arrived as a whole nothing can be read.
    return bytes > 0 && stream_.tls() != nullptr ? bytes + TlsContext::kRecord : bytes;
}

// True when all that was sent is acknowledged, the farewell too.
bool TcpConnection::has_all_arrived() const {
    if (leave_sent_ < sizeof(wire::FrameHeader) || has_bytes_under_way()) return false;
    Session* session = index_ == 0 ? association_.session() : nullptr;
    return session == nullptr || session->has_all_arrived();
}

bool TcpConnection::lingers() {
    // Read first: if unread bytes were left the kernel would reset the connection, and the peer
    // would lose what is on its way to it.
    constexpr int kMostReads = 64;
    size_t all = SIZE_MAX;
    for (int i = 0; i < kMostReads && is_open() && receive(all) > 0; ++i) {
    }
    if (is_open() && wants_output()) transmit_queue(all);
    if (!is_open()) return state_ == State::kMoving;
    if (wants_output()) return true;
    wire::FrameHeader farewell{0, wire::FrameType::kLeave, 0, wire::kMark};
    if (leave_sent_ < sizeof(farewell)) {
        const iovec rest{reinterpret_cast<std::byte*>(&farewell) + leave_sent_,
                         sizeof(farewell) - leave_sent_};
        leave_sent_ += static_cast<uint8_t>(transmit({&rest, 1}));
        if (leave_sent_ < sizeof(farewell) || !stream_.flush()) return true;
    }
    end_output();
    // It is not enough that all is sent: if the peer sends to a closed socket, the reset discards
    // what it has not read.
    return !has_all_arrived();
}

Answers TcpConnection::look(ucs::Time now) {
    if (!is_open()) return {};
    note_heard(now);
    if (arrived_ == given_ && stream_.backlog() == 0) return {};
    if (now - heard_at_ < Answers::kSilence) return {.is_awaited = true, .quiet = now - heard_at_};
    if (looked_at_ == now) return answers_;
    looked_at_ = now;
    answers_ = Answers::of(stream_.socket());
    answers_.bytes = in_doubt(answers_.bytes);
    answers_.is_awaited = answers_.bytes != 0;
    if (!answers_.is_awaited) arrived_ = given_;
    return answers_;
}

void TcpConnection::drop_if_silent(ucs::Time now, ucs::Duration patience) {
    if (is_open() && silence_.lasts(look(now), now, patience)) ended(ETIMEDOUT);
}

void TcpConnection::abort() {
    stream_.reset_on_close();
    close();
}

void TcpConnection::close() {
    state_ = State::kIdle;
    association_.attention().forget_hot(this);
    outgoing_.end();
    incoming_.end();
    stream_.close();  // leaves the epoll set by itself
    events_ = 0;
    drop_buffer();
    payload_ = {};
    bulk_expected_ = false;
    handshake_.reset();
    if (TimerHook::is_linked()) TimerHook::unlink();
}

}  // namespace uct::tcp
