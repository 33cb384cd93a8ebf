// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/association/session.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "ucs/log/log.h"
#include "uct/tcp/association/association.h"
#include "uct/tcp/wire/format.h"

namespace uct::tcp {

namespace {

using std::chrono::milliseconds;

// It is looked after so often.
constexpr ucs::Duration kWatch = milliseconds(25);
// So often at most it is looked for hosts that are gone.
constexpr ucs::Duration kDropInterval = milliseconds(200);
// An answer to what was sent again may still be on its way: so long, or two round trips.
constexpr ucs::Duration kAnswerTime = milliseconds(50);
// After the kernel has given a connection up, other ways have so long.
constexpr ucs::Duration kGrace = milliseconds(2000);

}  // namespace

Session::Session(Association& association, TcpConnection& connection)
    : association_(association),
      connection_(connection),
      rail_(association.rail()),
      patience_(user_timeout(rail_.config())),
      history_(association.buffers().output) {}

ucs::Time Session::now() const {
    return rail_.now();
}

bool Session::is_moving() const {
    return !is_over_ && !connection_.is_open();
}

bool Session::has_all_arrived() {
    trim();
    return connection_.is_open() && history_.size() == 0;
}

void Session::watch() {
    if (!WatchHook::is_linked() && !is_over_) association_.events().look_after(*this);
}

void Session::begin(bool accepted) {
    was_accepted_ = accepted;
    trusted_at_ = accepted ? 1 : 0;
    present_ = home_ = addresses();
    struct {
        wire::FrameHeader frame;
        std::array<wire::Route, wire::kMaxRoutes> list;
    } message{};
    size_t count = 0;
    const auto add = [&](const Rail& member) {
        if (count == message.list.size()) return;
        wire::Route& route = message.list[count++];
        member.device_address().write(route.device);
        route.port = member.port();
    };
    add(rail_);
    for (const Rail* member : rail_.rails()) {
        const bool helps = member != &rail_ && !member->device().loopback;
        if (helps && !rail_.device().loopback) add(*member);
    }
    const size_t payload = count * sizeof(wire::Route);
    message.frame = {static_cast<uint32_t>(payload), wire::FrameType::kRoutes, 0, wire::kMark};
    const iovec piece{&message, sizeof(message.frame) + payload};
    connection_.send({&piece, 1}, piece.iov_len);
}

bool Session::may_begin_again() {
    if (!was_accepted_ || connection_.received() > 0) return false;
    if (connection_.is_open()) connection_.hand_over();
    if (is_over_) return false;
    if (connection_.received() == 0) return true;
    broken(0);
    return false;
}

void Session::begin_again(SocketStream stream, bool is_new) {
    if (connection_.received() == 0 && history_.replay_from(0)) {
        go_on(std::move(stream), is_new);
    } else {
        association_.fail(UCS_ERR_IO_ERROR);
    }
}

void Session::stop() {
    if (std::exchange(is_over_, true)) return;
    drop_attempt();
    if (WatchHook::is_linked()) WatchHook::unlink();
    association_.session_over();
}

// --- sending

void Session::trim() {
    forget_all_but(connection_.in_doubt());
}

// @param waiting  so many of the last bytes may not be with the peer's kernel
void Session::forget_all_but(uint64_t waiting) {
    // Until the peer has sent something here, its end may be one that nobody reads.
    if (connection_.received() >= trusted_at_ && connection_.is_open())
        history_.forget_until(history_.given() - std::min(history_.given(), waiting));
    next_trim_ = history_.size() + kTrimStep;
}

// --- what is known of the peer

void Session::on_routes(std::span<const std::byte> payload) {
    std::vector<Peer> told;
    for (; payload.size() >= sizeof(wire::Route); payload = payload.subspan(sizeof(wire::Route))) {
        wire::Route route;
        std::memcpy(&route, payload.data(), sizeof(route));
        const auto device = DeviceAddress::read(route.device);
        if (device && route.port != 0) told.push_back({*device, route.port});
    }
    if (!told.empty()) peers_ = std::move(told);
}

AddressPair Session::addresses() const {
    return {connection_.socket().local().ip(), connection_.socket().peer().ip()};
}

// Is that nobody else's address? One that only a router reaches may be.
bool Session::is_near(const Course& course) const {
    const NetworkDevice& device = course.from->device();
    return device.address.shares_prefix(course.to.ip, device.prefix) ||
           AddressPair{device.address, course.to.ip} == home_;
}

// The present one first, then those without a router between.
std::vector<Session::Course> Session::courses(bool with_present) const {
    std::vector<Course> found;
    const auto add = [&](const DeviceAddress& device, uint16_t port) {
        for (Rail* member : rail_.rails()) {
            if (!member->has_carrier() || !member->reaches(device)) continue;
            const AddressPair pair{member->device().address, device.ip};
            if (pair != present_ || with_present) found.push_back({member, device, port});
        }
    };
    for (const Peer& peer : peers_) add(peer.device, peer.port);
    if (peers_.empty() && association_.target()) {
        add(association_.target()->device, association_.target()->listener.port);
    }
    std::ranges::stable_sort(found, {}, [this](const Course& course) {
        if (AddressPair{course.from->device().address, course.to.ip} == present_) return 0;
        return is_near(course) ? 1 : 2;
    });
    return found;
}

// --- trouble

void Session::set_phase(Phase phase, ucs::Duration span) {
    phase_ = phase;
    deadline_ = ucs::deadline(now(), span);
    if (!TimerHook::is_linked()) association_.events().add_timer(*this);
}

void Session::drop_attempt() {
    candidate_.close();
    phase_ = Phase::kSteady;
    if (TimerHook::is_linked()) TimerHook::unlink();
}

void Session::suspect(const char* why) {
    const ucs::Time time = now();
    if (is_over_ || !connection_.is_open()) return;
    watch();
    const bool is_new = !trouble_.is_running();
    trouble_.look(time, patience_);
    if (is_new && phase_ == Phase::kConnecting && is_going_home_) drop_attempt();
    if (phase_ != Phase::kSteady || time < next_try_) return;
    if (try_next(false)) {
        ucs::log_diag("{}: {} on the way to {:016x}: another is tried", rail_.device().name, why,
                      association_.peer());
    } else {
        next_try_ = time + kRetry;
    }
}

void Session::broken(int error, ucs::Duration silence) {
    trouble_.look(now(), patience_);
    if (patience_ != ucs::kForever) trouble_.at_least(std::min(silence, patience_ - kGrace));
    watch();
    ucs::log_diag("{}: the connection to {:016x} broke: {}", rail_.device().name,
                  association_.peer(), error == 0 ? "closed" : std::strerror(error));
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
        if (phase_ == Phase::kSteady && connection_.is_open()) trouble_.over();
        if (phase_ == Phase::kPausing) set_phase(Phase::kPausing, ucs::Duration(0));
    } else if (present_.local == device.address) {
        suspect("no link");
    } else if (phase_ == Phase::kConnecting && trying_.from->device().index == device.index) {
        attempt_failed(ENETDOWN);
    }
}

void Session::note_heard(ucs::Time now) {
    for (unsigned i = 0; i < Association::kMaxConnections; ++i) {
        if (TcpConnection* connection = association_.existing(i)) connection->note_heard(now);
    }
}

// How things are with what was sent. It is not asked again before an answer that is awaited can be
// missed, and not while the peer is heard: many sessions that are busy cost few calls of the
// system.
// @return whether nothing is left to look after
bool Session::ask_kernel(ucs::Time now) {
    bool is_idle = is_home_, is_stuck = false;
    silence_patience_ = kAnswerTime;
    ucs::Duration quiet{};
    for (unsigned i = 0; i < Association::kMaxConnections; ++i) {
        TcpConnection* connection = association_.existing(i);
        if (connection == nullptr) continue;
        const Answers answers = connection->look(now);
        if (connection == &connection_) {
            if (answers.was_asked || !answers.is_awaited) {
                forget_all_but(answers.bytes);
            } else if (history_.size() >= kKeptUnasked) {
                trim();
            }
        }
        if (!answers.is_awaited) continue;
        is_idle = false;
        quiet = std::max(quiet, answers.quiet);
        if (!answers.is_silent) continue;
        is_stuck = true;
        silence_patience_ = std::max(silence_patience_, 2 * answers.round_trip);
    }
    if (!is_stuck) silent_since_ = ucs::kNever;
    if (is_stuck && silent_since_ == ucs::kNever) silent_since_ = now;
    is_idle = is_idle && history_.size() == 0;
    // What is sent from now on can be missed no sooner than so.
    next_question_ = is_stuck ? now : now + std::max(Answers::kSilence - quiet, kWatch);
    return is_idle;
}

void Session::check(ucs::Time now) {
    next_check_ = now + kWatch;
    note_heard(now);
    if (trouble_.is_running()) trouble_.look(now, patience_);
    // One answer of the kernel tells of silence and of what has arrived.
    const bool is_asked = now >= next_question_ || !connection_.is_open();
    if (is_asked && now >= next_drop_) {
        next_drop_ = now + std::min(kDropInterval, patience_ / 8);
        association_.drop_silent(now);
    }
    if (is_over_ || !connection_.is_open()) return;
    const bool is_idle = is_asked && ask_kernel(now);
    if (silent_since_ != ucs::kNever) {
        if (now - silent_since_ >= silence_patience_) suspect("no answer");
    } else if (rail_.has_carrier() || !is_home_) {
        trouble_.over();
    } else {
        suspect("no link");
    }
    if (is_over_) return;
    if (is_idle && phase_ == Phase::kSteady) {
        trouble_.over();
        WatchHook::unlink();
    } else if (!is_home_ && phase_ == Phase::kSteady && now >= next_home_) {
        try_home(now);
    }
}

}  // namespace uct::tcp
