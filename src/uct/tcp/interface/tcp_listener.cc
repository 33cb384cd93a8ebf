// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/interface/tcp_listener.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

#include "ucs/log/log.h"
#include "uct/tcp/network/options.h"

namespace uct::tcp {

namespace {

constexpr std::string_view kLeft = "it left without a word";
constexpr int kAcceptsPerTurn = 16;
constexpr ucs::Duration kPause = std::chrono::milliseconds(100);
constexpr ucs::Duration kBetweenComplaints = std::chrono::seconds(10);

}  // namespace

unsigned ServerHandshake::on_event(uint32_t events) {
    if (is_over()) return 0;
    try {
        authenticated_ ? negotiate() : hear();
    } catch (const std::bad_alloc&) {
        if (!is_over()) refuse("there is no memory for it");
    }
    return 1;
}

// Hello, and the proof.
void ServerHandshake::hear() {
    const bool proves = challenge_.has_value();
    auto* bytes = proves ? proof_.data() : reinterpret_cast<std::byte*>(&hello_);
    const size_t length = proves ? sizeof(proof_) : sizeof(hello_);
    const ssize_t got = stream_.receive(bytes + received_, length - received_);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    received_ += static_cast<size_t>(std::max<ssize_t>(got, 0));
    if (got <= 0) {
        refuse(kLeft);
    } else if (!proves) {
        on_hello();
    } else if (received_ == length) {
        on_proof();
    }
}

void ServerHandshake::on_hello() {
    if (received_ >= sizeof(hello_.magic) && hello_.magic != wire::kMagic) {
        refuse("it speaks another protocol");
        return;
    }
    if (received_ < sizeof(wire::Preamble)) return;
    const uint16_t version = wire::common_version(hello_.version, hello_.oldest);
    if (version == 0) {
        send_challenge(wire::kVersion, wire::Answer::kOtherVersion);
        listener_.note_mismatch(
            stream_.peer(),
            fmt::format("speaks versions {} to {} of the protocol and this library {} to {}: it is "
                        "refused; use one version of the library everywhere",
                        hello_.oldest, hello_.version, wire::kOldestVersion, wire::kVersion));
        refuse("it has another version");
        return;
    }
    if (received_ < sizeof(hello_)) return;
    if (listener_.rail().relative(hello_.receiver) == nullptr) {
        refuse("it does not know this worker's address");
    } else if (hello_.sender == 0 || hello_.association == 0 ||
               hello_.connection >= wire::kMaxConnections) {
        refuse("its greeting is malformed");
    } else if (const bool encrypts = (hello_.flags & wire::kEncrypts) != 0;
               encrypts != (listener_.rail().encryption() != nullptr)) {
        send_challenge(version, encrypts ? wire::Answer::kInClear : wire::Answer::kEncrypted);
        listener_.note_mismatch(
            stream_.peer(),
            fmt::format("{} and this worker {}: it is refused; UCX_TCP_ENCRYPT must be the same "
                        "everywhere",
                        encrypts ? "encrypts" : "does not encrypt",
                        encrypts ? "does not" : "does"));
        refuse("one end alone encrypts");
    } else if (!send_challenge(version, wire::Answer::kProve)) {
        refuse(kLeft);
    }
    received_ = 0;
}

bool ServerHandshake::send_challenge(uint16_t version, wire::Answer answer) {
    challenge_.emplace();
    challenge_->magic = wire::kMagic;
    challenge_->version = version;
    challenge_->oldest = wire::kOldestVersion;
    challenge_->answer = answer;
    challenge_->nonce = ucs::net::new_nonce();
    return stream_.say(*challenge_);
}

// Whoever it is: without a seal.
void ServerHandshake::reply(wire::Answer answer) {
    wire::Welcome welcome = AuthenticatedPeer::answer(answer);
    welcome.version = challenge_->version;
    stream_.say(welcome);
}

void ServerHandshake::on_proof() {
    // A session may come by the listener of another interface of its worker.
    Rail& own = listener_.rail();
    Rail* receiver = own.relative(hello_.receiver);
    if (receiver == nullptr) {
        refuse("it does not know this worker's address");
        return;
    }
    const std::optional<wire::Key> known = receiver->key_for(hello_);
    if (!known) {
        reply(wire::Answer::kUnknown);
        refuse("it knows of a session that is over");
        return;
    }
    if (!ucs::net::are_equal(proof_, wire::client_proof(*known, hello_, *challenge_))) {
        reply(wire::Answer::kNoProof);
        refuse("it does not know this worker's secret, or has another UCX_TCP_JOB_KEY");
        return;
    }
    authenticated_.emplace(*known, hello_, *challenge_);
    if (own.encryption() != nullptr) {
        encrypt(own.encryption());
    } else {
        admit();
    }
}

void ServerHandshake::encrypt(std::shared_ptr<TlsContext> encryption) {
    if (!authenticated_->send(stream_, AuthenticatedPeer::answer(wire::Answer::kEncrypt))) {
        refuse(kLeft);
    } else if (!stream_.encrypt(std::move(encryption), Tls::Side::kListens,
                                authenticated_->encryption_key())) {
        refuse("there is no memory for its encryption");
    }
}

void ServerHandshake::negotiate() {
    switch (stream_.tls()->negotiate()) {
        case Tls::State::kUnderWay:
            break;
        case Tls::State::kStands:
            admit();
            break;
        case Tls::State::kBroken:
            refuse(kLeft);
            break;
        case Tls::State::kRefused:
            refuse(fmt::format("no encryption is agreed on ({})", stream_.tls()->reason()));
            break;
    }
}

// By the interface that it asks for.
void ServerHandshake::admit() {
    Rail& own = listener_.rail();
    Rail* const receiver = own.relative(hello_.receiver);
    if (receiver == nullptr) {
        refuse("it does not know this worker's address");
        return;
    }
    const bool is_new = receiver != &own;
    if (is_new) listener_.events().stop_watching(stream_.descriptor());
    receiver->welcome(*authenticated_, std::move(stream_), is_new);
    refuse("");
}

void ServerHandshake::refuse(std::string_view why) {
    if (stream_) {
        const SocketAddress peer = stream_.peer();
        ucs::log_diag("{}: {} is refused: {}", listener_.rail().device().name,
                      peer.is_known() ? peer.ip().text() : "somebody", why);
        stream_.close();
    }
    listener_.note_over();
}

TcpListener::~TcpListener() {
    close();
}

ucs_status_t TcpListener::open() {
    std::string error;
    socket_ = open_listener(rail_.device(), rail_.config(), rail_.random()(), &port_, &error);
    if (!socket_) {
        ucs::log_error("{}", error);
        return UCS_ERR_BUSY;
    }
    return events_.watch(socket_.descriptor(), *this, EPOLLIN, true) ? UCS_OK : UCS_ERR_IO_ERROR;
}

void TcpListener::close() {
    socket_.close();
    handshakes_.clear_and_dispose([](ServerHandshake* handshake) { delete handshake; });
    count_ = 0;
}

unsigned TcpListener::on_event(uint32_t events) {
    unsigned count = 0;
    for (; count < kAcceptsPerTurn; ++count) {
        Socket accepted;
        if (socket_.accept(&accepted) == UCS_OK) {
            accept_one(std::move(accepted));
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            pause(errno);
        }
        if (errno != ECONNABORTED && errno != EINTR) break;
    }
    return count;
}

void TcpListener::accept_one(Socket socket) {
    if (count_ >= rail_.config().max_handshakes) {
        for (ServerHandshake& oldest : handshakes_) {
            if (oldest.is_over()) continue;
            oldest.refuse("too many others knock");
            break;
        }
    }
    tune(socket, rail_.config());
    auto* made = new (std::nothrow) ServerHandshake(
        *this, std::move(socket), ucs::deadline(rail_.now(), rail_.config().hello_timeout));
    if (made == nullptr) {
        ucs::log_warn("{}: no memory for who connects", rail_.device().name);
        return;  // who finds the connection closed tries again
    }
    handshakes_.push_back(*made);
    ++count_;
    if (!events_.watch(made->descriptor(), *made, EPOLLIN, true)) {
        made->refuse("it cannot be watched");
    } else {
        made->on_event(EPOLLIN);  // most have said Hello by now
    }
}

void TcpListener::pause(int cause) {
    const ucs::Time now = rail_.now();
    const bool is_news = now >= next_complaint_;
    if (is_news) next_complaint_ = now + kBetweenComplaints;
    ucs::log(is_news ? ucs::LogLevel::kWarn : ucs::LogLevel::kDiag,
             "{}: no connection can be accepted for the moment ({}): raise the limit of open "
             "files",
             rail_.device().name, std::strerror(cause));
    events_.watch(socket_.descriptor(), *this, 0, false);
    resume_at_ = now + kPause;
    errno = cause;
}

ucs::Time TcpListener::next_deadline() const {
    ucs::Time next = resume_at_;
    for (const ServerHandshake& handshake : handshakes_) {
        if (handshake.is_over()) continue;
        next = std::min(next, handshake.deadline());
        break;
    }
    return next;
}

void TcpListener::on_deadline(ucs::Time now) {
    if (now >= resume_at_) {
        resume_at_ = ucs::kNever;
        events_.watch(socket_.descriptor(), *this, EPOLLIN, false);
    }
    for (ServerHandshake& handshake : handshakes_) {
        if (handshake.deadline() > now) break;
        if (!handshake.is_over()) handshake.refuse("it has not said who it is in time");
    }
}

void TcpListener::note_mismatch(const SocketAddress& peer, const std::string& what) {
    // Once: who asks again is told the same.
    const auto level = has_told_mismatch_ ? ucs::LogLevel::kDiag : ucs::LogLevel::kWarn;
    has_told_mismatch_ = true;
    ucs::log(level, "{}: {} {}", rail_.device().name,
             peer.is_known() ? peer.ip().text() : "somebody", what);
}

void TcpListener::note_over() {
    has_over_ = true;
    --count_;
}

void TcpListener::reap() {
    if (!has_over_) return;
    has_over_ = false;
    handshakes_.remove_and_dispose_if(
        [](const ServerHandshake& handshake) { return handshake.is_over(); },
        [](ServerHandshake* handshake) { delete handshake; });
}

}  // namespace uct::tcp
