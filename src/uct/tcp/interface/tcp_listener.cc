// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/interface/tcp_listener.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ucs/log/log.h"
#include "uct/tcp/network/options.h"

namespace uct::tcp {

namespace {

constexpr int kAcceptsPerTurn = 16;
constexpr ucs::Duration kPause = std::chrono::milliseconds(100);

/** Neither the time taken nor the result says how much of the secret was right. */
bool equal_secrets(const wire::Secret& a, const wire::Secret& b) {
    return ((a[0] ^ b[0]) | (a[1] ^ b[1])) == 0;
}

}  // namespace

unsigned Handshake::on_event(uint32_t events) {
    if (is_over()) return 0;
    auto* bytes = reinterpret_cast<std::byte*>(&hello_);
    const ssize_t got = socket_.receive(bytes + received_, sizeof(hello_) - received_);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (got <= 0) {
        refuse("it left without a word");
        return 1;
    }
    received_ += static_cast<size_t>(got);
    if (received_ >= sizeof(hello_.magic) && hello_.magic != wire::kMagic) {
        refuse("it speaks another protocol");
        return 1;
    }
    if (received_ < sizeof(hello_)) return 1;
    // A session may come by the listener of another interface of its worker.
    Rail& own = listener_.rail();
    Rail* receiver = own.relative(hello_.receiver);
    if (hello_.version != wire::kVersion) {
        refuse("it has another version");
    } else if (receiver == nullptr || !equal_secrets(hello_.secret, receiver->secret())) {
        refuse("it does not know this worker's address");
    } else if (hello_.job_key != own.job_key()) {
        refuse("it has another UCX_TCP_JOB_KEY");
    } else if (hello_.sender == 0 || hello_.association == 0 ||
               hello_.connection >= wire::kMaxConnections) {
        refuse("its greeting is malformed");
    } else {
        const bool is_new = receiver != &own;
        if (is_new) listener_.events().stop_watching(socket_.descriptor());
        receiver->welcome(hello_, std::move(socket_), is_new);
        refuse("");
    }
    return 1;
}

void Handshake::refuse(const char* why) {
    if (socket_) {
        const SocketAddress peer = socket_.peer();
        ucs::log_diag("{}: {} is refused: {}", listener_.rail().device().name,
                      peer.is_known() ? peer.ip().text() : "somebody", why);
        socket_.close();
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
    handshakes_.clear_and_dispose([](Handshake* handshake) { delete handshake; });
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
        for (Handshake& oldest : handshakes_) {
            if (oldest.is_over()) continue;
            oldest.refuse("too many others knock");
            break;
        }
    }
    tune(socket, rail_.config());
    auto* made = new Handshake(*this, std::move(socket),
                               ucs::deadline(rail_.now(), rail_.config().hello_timeout));
    handshakes_.push_back(*made);
    ++count_;
    if (!events_.watch(made->descriptor(), *made, EPOLLIN, true)) {
        made->refuse("it cannot be watched");
    } else {
        made->on_event(EPOLLIN);  // most have said Hello by now
    }
}

void TcpListener::pause(int cause) {
    ucs::log_warn(
        "{}: no connection can be accepted for the moment ({}): raise the limit of open "
        "files",
        rail_.device().name, std::strerror(cause));
    events_.watch(socket_.descriptor(), *this, 0, false);
    resume_at_ = rail_.now() + kPause;
    errno = cause;
}

ucs::Time TcpListener::next_deadline() const {
    ucs::Time next = resume_at_;
    for (const Handshake& handshake : handshakes_) {
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
    for (Handshake& handshake : handshakes_) {
        if (handshake.deadline() > now) break;
        if (!handshake.is_over()) handshake.refuse("it has not said who it is in time");
    }
}

void TcpListener::note_over() {
    has_over_ = true;
    --count_;
}

void TcpListener::reap() {
    if (!has_over_) return;
    has_over_ = false;
    handshakes_.remove_and_dispose_if(
        [](const Handshake& handshake) { return handshake.is_over(); },
        [](Handshake* handshake) { delete handshake; });
}

}  // namespace uct::tcp
