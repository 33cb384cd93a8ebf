// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/session.h"

#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "ucs/log.h"
#include "uct/tcp/frames.h"
#include "uct/tcp/tcp_interface.h"

namespace uct::tcp {

namespace {

using std::chrono::milliseconds;

/** Sent again without an answer, and nothing heard for so long: the way is in doubt. */
constexpr unsigned kSilence = 200;  // milliseconds, as the kernel counts
/** How long another way may take to connect, at first. */
constexpr ucs::Duration kConnectTime = milliseconds(300);
constexpr ucs::Duration kLongestConnectTime = milliseconds(3000);
/** An answer to what was sent again may still be on its way: so long, or two round trips. */
constexpr ucs::Duration kAnswerTime = milliseconds(50);
constexpr ucs::Duration kGreetingCheck = milliseconds(100);
constexpr ucs::Duration kYieldTime = milliseconds(1000);
constexpr ucs::Duration kRetry = milliseconds(50), kLongestRetry = milliseconds(1000);
/** After the kernel has given a connection up, other ways have so long. */
constexpr ucs::Duration kGrace = milliseconds(2000);

int under_way(int socket) {
    int bytes = 0;
    return socket >= 0 && ioctl(socket, SIOCOUTQ, &bytes) == 0 ? bytes : 0;
}

/** @param round_trip  of the connection, in its opinion */
bool is_silent(int socket, ucs::Duration* round_trip = nullptr) {
    if (under_way(socket) == 0) return false;
    tcp_info info{};
    socklen_t length = sizeof(info);
    if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return false;
    if (round_trip != nullptr) *round_trip = std::chrono::microseconds(info.tcpi_rtt);
    return (info.tcpi_retransmits >= 1 || info.tcpi_probes >= 2) &&
           info.tcpi_last_ack_recv >= kSilence;
}

bool is_connected(int socket) {
    SocketAddress peer;
    return getpeername(socket, peer.data(), &peer.length) == 0;
}

ucs::Duration doubled(ucs::Duration first, unsigned times, ucs::Duration most) {
    return std::min(first * (1 << std::min(times, 10u)), most);
}

}  // namespace

Session::Session(Link& link, Channel& channel)
    : link_(link),
      channel_(channel),
      interface_(link.interface()),
      history_(link.interface().output_pools()) {}

ucs::Time Session::now() const {
    return interface_.now();
}

bool Session::is_moving() const {
    return !is_over_ && !channel_.is_open();
}

void Session::watch() {
    if (!WatchHook::is_linked() && !is_over_) interface_.watch(*this);
}

void Session::begin() {
    way_ = home_ = present();
    struct {
        wire::Frame frame;
        wire::Routes routes;
        std::array<wire::Route, wire::kMaxRoutes> list;
    } message{};
    message.routes.secret = interface_.secret();
    size_t count = 0;
    const auto add = [&](const TcpInterface& member) {
        if (count == message.list.size()) return;
        wire::Route& route = message.list[count++];
        member.own_device_address().write(route.device);
        route.port = member.port();
    };
    add(interface_);
    for (const TcpInterface* member : interface_.family()) {
        const bool helps = member != &interface_ && !member->device().loopback;
        if (helps && !interface_.device().loopback) add(*member);
    }
    const size_t payload = count * sizeof(wire::Route);
    message.frame = head_of(wire::FrameType::kRoutes, message.routes, payload).frame;
    const iovec piece{&message, sizeof(message.frame) + sizeof(message.routes) + payload};
    channel_.send({&piece, 1}, piece.iov_len);
}

void Session::stop() {
    if (std::exchange(is_over_, true)) return;
    drop_attempt();
    if (WatchHook::is_linked()) WatchHook::unlink();
    link_.session_over();
}

// --- sending
// ------------------------------------------------------------------------------

void Session::trim() {
    // Until the peer has sent something here, its end may be one that nobody reads.
    if (channel_.received() >= trusted_at_ && channel_.is_open()) {
        const auto waiting = static_cast<uint64_t>(under_way(channel_.socket()));
        history_.forget_until(history_.given() - std::min(history_.given(), waiting));
    }
    next_trim_ = history_.size() + kTrimStep;
}

// --- what is known of the peer
// ------------------------------------------------------------------------------

void Session::on_routes(std::span<const std::byte> payload) {
    wire::Routes routes;
    std::memcpy(&routes, payload.data(), sizeof(routes));
    secret_ = routes.secret;
    peers_.clear();
    for (payload = payload.subspan(sizeof(routes)); payload.size() >= sizeof(wire::Route);
         payload = payload.subspan(sizeof(wire::Route))) {
        wire::Route route;
        std::memcpy(&route, payload.data(), sizeof(route));
        const auto device = DeviceAddress::read(route.device);
        if (device && route.port != 0) peers_.push_back({*device, route.port});
    }
}

Way Session::present() const {
    SocketAddress own, peer;
    if (getsockname(channel_.socket(), own.data(), &own.length) != 0 ||
        getpeername(channel_.socket(), peer.data(), &peer.length) != 0) {
        return {};
    }
    return {IpAddress::of(*own.data()), IpAddress::of(*peer.data())};
}

/** Is that nobody else's address? One that only a router reaches may be. */
bool Session::is_near(const Course& course) const {
    const NetworkDevice& device = course.from->device();
    return device.address.shares_prefix(course.to.ip, device.prefix) ||
           Way{device.address, course.to.ip} == home_;
}

/** The present one first, then those without a router between. */
std::vector<Session::Course> Session::courses(bool with_present) const {
    std::vector<Course> found;
    const auto add = [&](const DeviceAddress& device, uint16_t port) {
        for (TcpInterface* member : interface_.family()) {
            if (!member->is_link_up() || !member->reaches(device)) continue;
            const Way way{member->device().address, device.ip};
            if (way != way_ || with_present) found.push_back({member, device, port});
        }
    };
    for (const Peer& peer : peers_) add(peer.device, peer.port);
    if (peers_.empty() && link_.target()) {
        add(link_.target()->device, link_.target()->listener.port);
    }
    std::ranges::stable_sort(found, {}, [this](const Course& course) {
        if (Way{course.from->device().address, course.to.ip} == way_) return 0;
        return is_near(course) ? 1 : 2;
    });
    return found;
}

// --- trouble
// ------------------------------------------------------------------------------

void Session::set_phase(Phase phase, ucs::Duration span) {
    phase_ = phase;
    deadline_ = ucs::deadline(now(), span);
    if (!TimerHook::is_linked()) interface_.add_timer(*this);
}

void Session::drop_attempt() {
    candidate_.reset();
    phase_ = Phase::kSteady;
    if (TimerHook::is_linked()) TimerHook::unlink();
}

void Session::suspect(const char* why) {
    const ucs::Time time = now();
    if (is_over_ || !channel_.is_open()) return;
    watch();
    if (trouble_since_ == ucs::kNever) {
        trouble_since_ = time;
        if (phase_ == Phase::kConnecting && is_going_home_) drop_attempt();
    }
    if (phase_ != Phase::kSteady || time < next_try_) return;
    if (try_next(false)) {
        ucs::log_diag("{}: {} on the way to {:016x}: another is tried", interface_.device().name,
                      why, link_.peer());
    } else {
        next_try_ = time + kRetry;
    }
}

void Session::broken(int error) {
    const ucs::Time time = now();
    if (trouble_since_ == ucs::kNever) trouble_since_ = time;
    if (error == ETIMEDOUT) {
        const ucs::Duration patience = user_timeout(interface_.config());
        if (patience != ucs::kForever) {
            trouble_since_ = std::min(trouble_since_, time - patience + kGrace);
        }
    }
    ucs::log_diag("{}: the connection to {:016x} broke: {}", interface_.device().name, link_.peer(),
                  error == 0 ? "closed" : std::strerror(error));
    tries_ = 0;
    was_refused_ = false;
    // One that is on its way goes on.
    if (phase_ == Phase::kSteady) set_phase(Phase::kPausing, ucs::Duration(0));
}

void Session::on_carrier(const NetworkDevice& device, bool is_up) {
    if (is_over_) return;
    next_try_ = next_home_ = now();
    if (is_up) {
        home_tries_ = 0;
        turn_ = 0;
        if (phase_ == Phase::kPausing) set_phase(Phase::kPausing, ucs::Duration(0));
    } else if (way_.local == device.address) {
        suspect("no link");
    } else if (phase_ == Phase::kConnecting && trying_.from->device().index == device.index) {
        attempt_failed(ENETDOWN);
    }
}

void Session::check(ucs::Time now) {
    if (!channel_.is_open()) return;
    bool is_idle = is_home_, is_stuck = false;
    ucs::Duration patience = kAnswerTime;
    trim();
    for (unsigned i = 0; i < Link::kMaxChannels; ++i) {
        const Channel* channel = link_.existing(i);
        if (channel == nullptr || under_way(channel->socket()) == 0) continue;
        is_idle = false;
        ucs::Duration round_trip{};
        if (!is_silent(channel->socket(), &round_trip)) continue;
        is_stuck = true;
        patience = std::max(patience, 2 * round_trip);
    }
    if (!is_stuck) silent_since_ = ucs::kNever;
    if (is_stuck && silent_since_ == ucs::kNever) silent_since_ = now;
    if (history_.size() > 0) is_idle = false;
    if (is_stuck) {
        if (now - silent_since_ >= patience) suspect("no answer");
    } else if (interface_.is_link_up() || !is_home_) {
        trouble_since_ = ucs::kNever;
    } else {
        suspect("no link");
    }
    if (is_over_) return;
    if (is_idle && phase_ == Phase::kSteady) {
        WatchHook::unlink();
    } else if (!is_home_ && phase_ == Phase::kSteady && now >= next_home_) {
        try_home(now);
    }
}

// --- another connection
// ------------------------------------------------------------------------------

bool Session::try_next(bool with_present) {
    const std::vector<Course> list = courses(with_present);
    if (list.empty()) return false;
    is_going_home_ = false;
    connect(list[turn_ % list.size()]);
    return true;
}

/** One of the two ends sees to it. */
void Session::try_home(ucs::Time now) {
    next_home_ = now + doubled(kRetry, home_tries_, kLongestRetry);
    if (interface_.id() > link_.peer() || !interface_.is_link_up()) return;
    const auto found =
        std::ranges::find(peers_, home_.remote, [](const Peer& peer) { return peer.device.ip; });
    if (found == peers_.end()) return;
    ++home_tries_;
    is_going_home_ = true;
    connect({&interface_, found->device, found->port});
}

Descriptor Session::Course::start(const Config& config, int* cause) const {
    const NetworkDevice& device = from->device();
    const SocketAddress address(to.ip, port, device.index);
    return start_connect(device, address, from->is_on_link(to), config, cause);
}

void Session::connect(const Course& course) {
    trying_ = course;
    int cause = 0;
    candidate_ = course.start(interface_.config(), &cause);
    if (!candidate_ || !interface_.watch(candidate_.get(), *this, EPOLLOUT, true)) {
        attempt_failed(cause);
        return;
    }
    const unsigned rounds = is_going_home_ ? 0 : tries_ / 4;
    set_phase(Phase::kConnecting, doubled(kConnectTime, rounds, kLongestConnectTime));
}

void Session::attempt_failed(int error) {
    drop_attempt();
    ucs::log_debug("{}: no way to {:016x} by {}: {}", interface_.device().name, link_.peer(),
                   trying_.to.ip.text(), std::strerror(error));
    const ucs::Time time = now();
    if (is_going_home_ && channel_.is_open()) return;
    ++tries_;
    ++turn_;
    was_refused_ |= error == ECONNREFUSED && is_near(trying_);
    if (channel_.is_open()) {
        next_try_ = time + doubled(kRetry, tries_, kLongestRetry);
        watch();
        return;
    }
    const size_t count = std::max<size_t>(courses(true).size(), 1);
    const ucs::Duration patience = user_timeout(interface_.config());
    if (was_refused_ && tries_ >= count) {
        link_.fail(UCS_ERR_CONNECTION_RESET);
    } else if (patience != ucs::kForever && time - trouble_since_ >= patience) {
        link_.fail(UCS_ERR_ENDPOINT_TIMEOUT);
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
        case Phase::kGreeting:
            // The peer's program may be busy for long; its kernel is not.
            if (is_silent(candidate_.get())) {
                attempt_failed(ETIMEDOUT);
            } else {
                set_phase(Phase::kGreeting, kGreetingCheck);
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
    } else if (phase_ == Phase::kGreeting) {
        greeted();
    }
    return 1;
}

void Session::connected() {
    if (const int error = pending_error(candidate_.get()); error != 0) {
        attempt_failed(error);
        return;
    }
    if (!is_connected(candidate_.get())) return;  // an event of the attempt before
    if (channel_.is_open()) channel_.hand_over();
    if (is_over_ || channel_.is_open()) return;
    wire::Hello hello = link_.hello();
    hello.flags = wire::kCanResume | wire::kResumes;
    hello.receiver = link_.peer();
    hello.secret = peers_.empty() ? link_.target()->listener.secret : secret_;
    hello.peer_link = link_.peer_number();
    hello.attempt = ++attempt_;
    hello.received = channel_.received();
    if (::send(candidate_.get(), &hello, sizeof(hello), MSG_NOSIGNAL) != sizeof(hello) ||
        !interface_.watch(candidate_.get(), *this, EPOLLIN, false)) {
        attempt_failed(ECONNRESET);
        return;
    }
    welcome_received_ = 0;
    set_phase(Phase::kGreeting, kGreetingCheck);
}

void Session::greeted() {
    auto* bytes = reinterpret_cast<std::byte*>(&welcome_);
    const ssize_t got =
        recv(candidate_.get(), bytes + welcome_received_, sizeof(welcome_) - welcome_received_, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) {
        attempt_failed(got == 0 ? ECONNRESET : errno);
        return;
    }
    welcome_received_ += static_cast<size_t>(got);
    if (welcome_received_ < sizeof(welcome_)) return;
    const bool is_sound = welcome_.magic == wire::kMagic && welcome_.version == wire::kVersion;
    if (is_sound && welcome_.answer == wire::Answer::kWelcome) {
        if (!history_.replay_from(welcome_.received)) {
            link_.fail(UCS_ERR_IO_ERROR);
            return;
        }
        trusted_at_ = 0;
        peer_attempt_ = std::max(peer_attempt_, welcome_.attempt);
        go_on(std::move(candidate_), false);
        if (is_over_) return;
        // The peer keeps all until it knows that its welcome has come.
        const wire::Frame here{0, wire::FrameType::kHere, 0, wire::kMark};
        const iovec piece{const_cast<wire::Frame*>(&here), sizeof(here)};
        channel_.send({&piece, 1}, sizeof(here));
    } else if (is_sound && welcome_.answer == wire::Answer::kYield) {
        drop_attempt();
        set_phase(Phase::kYielded, kYieldTime);
    } else if (is_sound && welcome_.answer == wire::Answer::kStale) {
        attempt_failed(EAGAIN);
    } else {
        link_.fail(UCS_ERR_CONNECTION_RESET);
    }
}

wire::Answer Session::judge(const wire::Hello& hello) const {
    if (hello.attempt <= peer_attempt_) return wire::Answer::kStale;
    const bool stays = phase_ == Phase::kGreeting && interface_.id() < hello.sender;
    return stays ? wire::Answer::kYield : wire::Answer::kWelcome;
}

void Session::accept(const wire::Hello& hello, Descriptor socket, bool is_new) {
    drop_attempt();
    if (channel_.is_open()) channel_.hand_over();
    if (is_over_ || channel_.is_open()) return;
    peer_attempt_ = hello.attempt;
    if (!history_.replay_from(hello.received)) {
        link_.fail(UCS_ERR_IO_ERROR);
        return;
    }
    wire::Welcome welcome{};
    welcome.magic = wire::kMagic;
    welcome.version = wire::kVersion;
    welcome.answer = wire::Answer::kWelcome;
    welcome.max_frame = static_cast<uint32_t>(interface_.max_message());
    welcome.link = link_.number();
    welcome.received = channel_.received();
    welcome.flags = wire::kCanResume | wire::kResumes;
    welcome.attempt = attempt_;
    trusted_at_ = channel_.received() + 1;
    if (::send(socket.get(), &welcome, sizeof(welcome), MSG_NOSIGNAL) == sizeof(welcome)) {
        go_on(std::move(socket), is_new);
    } else {
        broken(ECONNRESET);
    }
}

void Session::go_on(Descriptor socket, bool is_new) {
    drop_attempt();
    tries_ = turn_ = home_tries_ = 0;
    was_refused_ = false;
    trouble_since_ = ucs::kNever;
    next_try_ = next_home_ = now() + 2 * kRetry;
    channel_.resume(std::move(socket), is_new);
    if (is_over_) return;
    const Way before = std::exchange(way_, present());
    is_home_ = way_ == home_;
    const auto member =
        std::ranges::find(interface_.family(), way_.local,
                          [](const TcpInterface* each) { return each->device().address; });
    const auto peer =
        std::ranges::find(peers_, way_.remote, [](const Peer& each) { return each.device.ip; });
    if (member == interface_.family().end() || peer == peers_.end()) {
        course_.from = nullptr;
    } else {
        course_ = {*member, peer->device, peer->port};
    }
    ucs::log_diag("{}: messages to {:016x} go from {} to {} now", interface_.device().name,
                  link_.peer(), way_.local.text(), way_.remote.text());
    watch();
    if (way_ != before) link_.drop_bulk();
}

}  // namespace uct::tcp
