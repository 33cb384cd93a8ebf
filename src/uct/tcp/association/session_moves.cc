// SPDX-License-Identifier: BSD-3-Clause
// How a session gets from one connection to the next.
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "ucs/log/log.h"
#include "uct/tcp/association/association.h"
#include "uct/tcp/association/session.h"

namespace uct::tcp {

namespace {

using std::chrono::milliseconds;

// How long another way may take to connect, at first.
constexpr ucs::Duration kConnectTime = milliseconds(300);
constexpr ucs::Duration kLongestConnectTime = milliseconds(3000);
constexpr ucs::Duration kHandshakeCheck = milliseconds(100);
constexpr ucs::Duration kYieldTime = milliseconds(1000);
constexpr ucs::Duration kLongestRetry = milliseconds(1000);

ucs::Duration doubled(ucs::Duration first, unsigned times, ucs::Duration most) {
    return std::min(first * (1 << std::min(times, 10u)), most);
}

}  // namespace

bool Session::try_next(bool with_present) {
    const std::vector<Course> list = courses(with_present);
    if (list.empty()) return false;
    is_going_home_ = false;
    connect(list[turn_ % list.size()]);
    return true;
}

// One of the two ends sees to it.
void Session::try_home(ucs::Time now) {
    next_home_ = now + doubled(kRetry, home_tries_, kLongestRetry);
    if (rail_.id() > association_.peer() || !rail_.has_carrier()) return;
    const auto found =
        std::ranges::find(peers_, home_.remote, [](const Peer& peer) { return peer.device.ip; });
    if (found == peers_.end()) return;
    ++home_tries_;
    is_going_home_ = true;
    connect({&rail_, found->device, found->port});
}

Socket Session::Course::start(const Config& config, int* cause) const {
    const NetworkDevice& device = from->device();
    const SocketAddress address(to.ip, port, device.index);
    return start_connect(device, address, from->is_on_link(to), config, cause);
}

void Session::connect(const Course& course) {
    trying_ = course;
    int cause = 0;
    candidate_ = SocketStream(course.start(rail_.config(), &cause));
    if (!candidate_ ||
        !association_.events().watch(candidate_.descriptor(), *this, EPOLLOUT, true)) {
        attempt_failed(cause);
        return;
    }
    const unsigned rounds = is_going_home_ ? 0 : tries_ / 4;
    set_phase(Phase::kConnecting, doubled(kConnectTime, rounds, kLongestConnectTime));
}

void Session::attempt_failed(int error) {
    drop_attempt();
    ucs::log_debug("{}: no way to {:016x} by {}: {}", rail_.device().name, association_.peer(),
                   trying_.to.ip.text(), std::strerror(error));
    const ucs::Time time = now();
    if (is_going_home_ && connection_.is_open()) return;
    ++tries_;
    ++turn_;
    was_refused_ |= error == ECONNREFUSED && is_near(trying_);
    if (connection_.is_open()) {
        next_try_ = time + doubled(kRetry, tries_, kLongestRetry);
        watch();
        return;
    }
    const size_t count = std::max<size_t>(courses(true).size(), 1);
    trouble_.look(time, patience_);
    if (was_refused_ && tries_ >= count) {
        association_.fail(UCS_ERR_CONNECTION_RESET);
    } else if (patience_ != ucs::kForever && trouble_.length() >= patience_) {
        association_.fail(UCS_ERR_ENDPOINT_TIMEOUT);
    } else {
        const auto round = static_cast<unsigned>(tries_ / count);
        set_phase(Phase::kPausing,
                  round == 0 ? ucs::Duration(0) : doubled(milliseconds(1), round, kLongestRetry));
    }
}

void Session::on_deadline() {
    switch (phase_) {
        case Phase::kConnecting:
            attempt_failed(ETIMEDOUT);
            break;
        case Phase::kHandshake:
            // The peer's program may be busy for long; its kernel is not.
            if (is_silent(candidate_.socket())) {
                attempt_failed(ETIMEDOUT);
            } else {
                trouble_.begin_anew(now());
                set_phase(Phase::kHandshake, kHandshakeCheck);
            }
            break;
        case Phase::kYielded:
        case Phase::kPausing:
            if (!try_next(true)) attempt_failed(ENETUNREACH);
            break;
        case Phase::kSteady:
            TimerHook::unlink();
            break;
    }
}

unsigned Session::on_event(uint32_t events) {
    if (!candidate_) return 0;
    if (phase_ == Phase::kConnecting) {
        connected();
    } else if (phase_ == Phase::kHandshake) {
        continue_handshake();
    }
    return 1;
}

void Session::connected() {
    if (const int error = candidate_.pending_error(); error != 0) {
        attempt_failed(error);
        return;
    }
    if (!candidate_.peer().is_known()) return;  // an event of the attempt before
    if (connection_.is_open()) connection_.hand_over();
    if (is_over_ || connection_.is_open()) return;
    trouble_.begin_anew(now());  // a kernel has answered
    wire::Hello hello = association_.hello();
    hello.flags |= wire::kCanResume | wire::kResumes;
    hello.receiver = association_.peer();
    hello.peer_association = association_.peer_number();
    hello.attempt = ++attempt_;
    hello.received = connection_.received();
    if (!handshake_.begin(candidate_, hello, association_.session_key(), rail_.encryption()) ||
        !association_.events().watch(candidate_.descriptor(), *this, EPOLLIN, false)) {
        attempt_failed(ECONNRESET);
        return;
    }
    set_phase(Phase::kHandshake, kHandshakeCheck);
}

void Session::continue_handshake() {
    switch (handshake_.read(candidate_)) {
        case ClientHandshake::State::kUnderWay:
            break;
        case ClientHandshake::State::kBroken:
            attempt_failed(errno == 0 ? ECONNRESET : errno);
            break;
        case ClientHandshake::State::kRefused:
            ucs::log_error("{}: messages to {:016x} cannot go on over {}: {}", rail_.device().name,
                           association_.peer(), trying_.to.ip.text(), handshake_.reason());
            association_.fail(UCS_ERR_REJECTED);
            break;
        case ClientHandshake::State::kOver:
            welcomed(handshake_.welcome());
            break;
    }
}

void Session::welcomed(const wire::Welcome& welcome) {
    if (welcome.answer == wire::Answer::kWelcome) {
        if (!history_.replay_from(welcome.received)) {
            association_.fail(UCS_ERR_IO_ERROR);
            return;
        }
        trusted_at_ = 0;
        if (ucs::is_before(peer_attempt_, welcome.attempt)) peer_attempt_ = welcome.attempt;
        go_on(std::move(candidate_), false);
        if (is_over_) return;
        // The peer keeps all until it knows that its welcome has come.
        const wire::FrameHeader here{0, wire::FrameType::kHere, 0, wire::kMark};
        const iovec piece{const_cast<wire::FrameHeader*>(&here), sizeof(here)};
        connection_.send({&piece, 1}, sizeof(here));
    } else if (welcome.answer == wire::Answer::kYield) {
        drop_attempt();
        set_phase(Phase::kYielded, kYieldTime);
    } else if (welcome.answer == wire::Answer::kStale) {
        attempt_failed(EAGAIN);
    } else {
        association_.fail(UCS_ERR_CONNECTION_RESET);
    }
}

wire::Answer Session::judge(const wire::Hello& hello) const {
    if (!ucs::is_before(peer_attempt_, hello.attempt)) return wire::Answer::kStale;
    const bool stays = phase_ == Phase::kHandshake && rail_.id() < hello.sender;
    return stays ? wire::Answer::kYield : wire::Answer::kWelcome;
}

void Session::accept(const AuthenticatedPeer& peer, SocketStream stream, bool is_new) {
    const wire::Hello& hello = peer.hello;
    drop_attempt();
    if (connection_.is_open()) connection_.hand_over();
    if (is_over_ || connection_.is_open()) return;
    peer_attempt_ = hello.attempt;
    if (!history_.replay_from(hello.received)) {
        association_.fail(UCS_ERR_IO_ERROR);
        return;
    }
    wire::Welcome welcome = AuthenticatedPeer::answer(wire::Answer::kWelcome);
    welcome.max_frame = static_cast<uint32_t>(rail_.max_message());
    welcome.association = association_.number();
    welcome.received = connection_.received();
    welcome.flags |= wire::kCanResume | wire::kResumes;
    welcome.attempt = attempt_;
    trusted_at_ = connection_.received() + 1;
    if (peer.send(stream, welcome)) {
        go_on(std::move(stream), is_new);
    } else {
        broken(ECONNRESET);
    }
}

void Session::go_on(SocketStream stream, bool is_new) {
    drop_attempt();
    tries_ = turn_ = home_tries_ = 0;
    was_refused_ = false;
    trouble_.over();
    next_question_ = {};
    next_try_ = next_home_ = now() + 2 * kRetry;
    connection_.resume(std::move(stream), is_new);
    if (is_over_) return;
    const AddressPair before = std::exchange(present_, addresses());
    is_home_ = present_ == home_;
    const auto member = std::ranges::find(rail_.rails(), present_.local,
                                          [](const Rail* each) { return each->device().address; });
    const auto peer =
        std::ranges::find(peers_, present_.remote, [](const Peer& each) { return each.device.ip; });
    if (member == rail_.rails().end() || peer == peers_.end()) {
        course_.from = nullptr;
    } else {
        course_ = {*member, peer->device, peer->port};
    }
    ucs::log_diag("{}: messages to {:016x} go from {} to {} now", rail_.device().name,
                  association_.peer(), present_.local.text(), present_.remote.text());
    watch();
    if (present_ != before) association_.drop_bulk();
}

}  // namespace uct::tcp
