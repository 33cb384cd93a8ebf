// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/network/tls.h"

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

#include "ucs/net/socket.h"

namespace uct::tcp {

namespace {

// TLS_AES_128_GCM_SHA256: every TLS 1.3 has it, and its hash goes with keys of 32 bytes.
constexpr const char* kSuite = "TLS_AES_128_GCM_SHA256";
constexpr std::array<unsigned char, 2> kSuiteNumber{0x13, 0x01};
// What the key is called in the handshake. Each connection has another, so it needs no name.
constexpr std::string_view kIdentity = "swiftlane";
// Read from the kernel at once.
constexpr size_t kReadAhead = 2 * TlsContext::kRecord;
// Of a record with its frame, and messages of the protocol before it.
constexpr size_t kBacklog = TlsContext::kRecord + 2048;
// Pieces of one call.
constexpr size_t kMaxRecordPieces = 64;

// The program may use OpenSSL too: what it has in the thread's list of errors stays as it is.
class OwnErrors {
  public:
    OwnErrors() { ERR_set_mark(); }
    ~OwnErrors() { ERR_pop_to_mark(); }
    OwnErrors(const OwnErrors&) = delete;
};

// The part [offset, offset + length) of pieces. @return how many pieces, at most `part` has
size_t cut_record(std::span<const iovec> pieces, size_t offset, size_t length,
                  std::span<iovec> part) {
    size_t used = 0;
    for (const iovec& piece : pieces) {
        if (length == 0 || used == part.size()) break;
        if (offset >= piece.iov_len) {
            offset -= piece.iov_len;
            continue;
        }
        const size_t taken = std::min(piece.iov_len - offset, length);
        part[used++] = {static_cast<std::byte*>(piece.iov_base) + offset, taken};
        length -= taken;
        offset = 0;
    }
    return used;
}

size_t length_of(std::span<const iovec> pieces) {
    size_t length = 0;
    for (const iovec& piece : pieces) length += piece.iov_len;
    return length;
}

enum class Direction : bool { kGather, kScatter };

// Between contiguous memory and pieces. @return bytes; -1 and EFAULT if the pieces are not there
ssize_t copy(Direction direction, std::byte* contiguous, std::span<const iovec> pieces,
             Tls::BufferOwner owner) {
    const size_t length = length_of(pieces);
    if (owner == Tls::BufferOwner::kUsers && length > 0) {
        // The system call finds out whether the program's memory is still mapped.
        const iovec here{contiguous, length};
        const ssize_t moved =
            direction == Direction::kGather
                ? process_vm_readv(getpid(), &here, 1, pieces.data(), pieces.size(), 0)
                : process_vm_writev(getpid(), &here, 1, pieces.data(), pieces.size(), 0);
        if (moved >= 0 || errno == EFAULT) return moved;
        // The call is forbidden here (seccomp): a program that unmaps memory of an operation gets
        // SIGSEGV from the copy below.
    }
    for (const iovec& piece : pieces) {
        if (piece.iov_len == 0) continue;
        direction == Direction::kGather ? std::memcpy(contiguous, piece.iov_base, piece.iov_len)
                                        : std::memcpy(piece.iov_base, contiguous, piece.iov_len);
        contiguous += piece.iov_len;
    }
    return static_cast<ssize_t>(length);
}

// OpenSSL allocates for each record, and fails the connection for good if it gets nothing. So it is
// called only if a larger allocation succeeds first.
bool has_memory() {
    constexpr size_t kEnough = 1024;
    void* volatile tried = std::malloc(kEnough);  // else it is left out
    std::free(tried);
    return tried != nullptr;
}

SSL_SESSION* session_with(SSL* connection, const wire::Key& key) {
    SSL_SESSION* made = SSL_SESSION_new();
    if (made == nullptr) return nullptr;
    const SSL_CIPHER* suite = SSL_CIPHER_find(connection, kSuiteNumber.data());
    if (suite != nullptr &&
        SSL_SESSION_set1_master_key(made, reinterpret_cast<const unsigned char*>(key.data()),
                                    key.size()) == 1 &&
        SSL_SESSION_set_cipher(made, suite) == 1 &&
        SSL_SESSION_set_protocol_version(made, TLS1_3_VERSION) == 1) {
        return made;
    }
    SSL_SESSION_free(made);
    return nullptr;
}

const wire::Key& key_of(SSL* connection) {
    return *static_cast<const wire::Key*>(SSL_get_app_data(connection));
}

int give_key(SSL* connection, const EVP_MD*, const unsigned char** identity, size_t* length,
             SSL_SESSION** session) {
    *identity = reinterpret_cast<const unsigned char*>(kIdentity.data());
    *length = kIdentity.size();
    *session = session_with(connection, key_of(connection));
    return *session != nullptr ? 1 : 0;
}

int find_key(SSL* connection, const unsigned char* identity, size_t length, SSL_SESSION** session) {
    const bool is_ours =
        std::string_view(reinterpret_cast<const char*>(identity), length) == kIdentity;
    *session = is_ours ? session_with(connection, key_of(connection)) : nullptr;
    return 1;
}

}  // namespace

// --- what connections share

void TlsContext::Free::operator()(ssl_ctx_st* context) const {
    SSL_CTX_free(context);
}

TlsContext::TlsContext(uint64_t records_per_key)
    : records_per_key_(records_per_key), room_(new (std::nothrow) std::byte[kRecord]) {
    const OwnErrors errors;
    std::unique_ptr<ssl_ctx_st, Free> made(SSL_CTX_new(TLS_method()));
    SSL_CTX* const context = made.get();
    if (context == nullptr || SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_ciphersuites(context, kSuite) != 1 ||
        SSL_CTX_set_num_tickets(context, 0) != 1) {
        return;
    }
    SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
    SSL_CTX_clear_options(context, SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
#ifdef SSL_OP_IGNORE_UNEXPECTED_EOF
    // A peer that leaves says so by a frame: an end of the stream without that is a failure anyway.
    SSL_CTX_set_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF);
#endif
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_read_ahead(context, 1);
    SSL_CTX_set_default_read_buffer_len(context, kReadAhead);
    SSL_CTX_set_psk_use_session_callback(context, give_key);
    SSL_CTX_set_psk_find_session_callback(context, find_key);
    context_ = std::move(made);
}

// --- between OpenSSL and the socket

namespace {

ssize_t put_bytes(int descriptor, const void* bytes, size_t length) {
    return ucs::net::Socket::to_end(
        [&] { return ::send(descriptor, bytes, length, MSG_NOSIGNAL); });
}

}  // namespace

struct Tls::SocketBio {
    static Tls& of(BIO* way) { return *static_cast<Tls*>(BIO_get_data(way)); }

    static int read(BIO* way, char* bytes, int room) {
        Tls& tls = of(way);
        BIO_clear_retry_flags(way);
        errno = EAGAIN;
        const ssize_t got =
            tls.may_read_ ? recv(tls.descriptor_, bytes, static_cast<size_t>(room), 0) : -1;
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
            tls.has_blocked_ = true;
            BIO_set_retry_read(way);
        } else if (got < 0) {
            tls.cause_ = errno;
        } else if (got == 0) {
            tls.is_ended_ = true;
        }
        // One read a call: epoll tells of what is left and of what comes.
        tls.may_read_ = false;
        return static_cast<int>(got);
    }

    // Takes all bytes and keeps what the socket does not: else OpenSSL would have to be called
    // again with the same ones.
    static int write(BIO* way, const char* bytes, int length) {
        Tls& tls = of(way);
        BIO_clear_retry_flags(way);
        const auto wanted = static_cast<size_t>(length);
        size_t taken = 0;
        if (tls.backlog() == 0) {
            const ssize_t put = put_bytes(tls.descriptor_, bytes, wanted);
            const bool is_gone = put < 0 && (errno == EPIPE || errno == ECONNRESET);
            if (is_gone) {
                // There may still be something to read: the failure is reported at its end.
                tls.is_mute_ = true;
                return -1;
            }
            taken = static_cast<size_t>(std::max<ssize_t>(put, 0));
        }
        return tls.keep(bytes + taken, wanted - taken) ? length : -1;
    }

    static long control(BIO* way, int command, long, void*) {
        if (command == BIO_CTRL_EOF) return of(way).is_ended_ ? 1 : 0;
        return command == BIO_CTRL_FLUSH ? 1 : 0;
    }

    static const BIO_METHOD* method() {
        static BIO_METHOD* const made = [] {
            BIO_METHOD* method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "swiftlane connection");
            if (method == nullptr) return method;
            BIO_meth_set_read(method, read);
            BIO_meth_set_write(method, write);
            BIO_meth_set_ctrl(method, control);
            return method;
        }();
        return made;
    }
};

bool Tls::keep(const char* bytes, size_t length) {
    if (length == 0) return true;
    if (length > kBacklog - backlog_end_) return false;
    std::memcpy(backlog_.get() + backlog_end_, bytes, length);
    backlog_end_ += length;
    return true;
}

bool Tls::flush() {
    while (backlog() > 0) {
        const ssize_t put = put_bytes(descriptor_, backlog_.get() + backlog_begin_, backlog());
        if (put <= 0) return false;
        backlog_begin_ += static_cast<size_t>(put);
    }
    backlog_begin_ = backlog_end_ = 0;
    return true;
}

// --- a connection

void Tls::Free::operator()(ssl_st* connection) const {
    SSL_free(connection);
}

Tls::~Tls() {
    OPENSSL_cleanse(key_.data(), key_.size());
}

std::unique_ptr<Tls> Tls::begin(std::shared_ptr<TlsContext> context, int descriptor, Side side,
                                const wire::Key& key) {
    const OwnErrors errors;
    std::unique_ptr<Tls> made(new (std::nothrow) Tls(std::move(context), descriptor, key));
    if (made == nullptr || SocketBio::method() == nullptr) return nullptr;
    made->backlog_.reset(new (std::nothrow) std::byte[kBacklog]);
    if (made->backlog_ == nullptr) return nullptr;
    BIO* const way = BIO_new(SocketBio::method());
    made->connection_.reset(SSL_new(made->context_->get()));
    SSL* const connection = made->connection_.get();
    if (way == nullptr || connection == nullptr) {
        BIO_free(way);
        return nullptr;
    }
    BIO_set_data(way, made.get());
    BIO_set_init(way, 1);
    SSL_set_bio(connection, way, way);
    if (SSL_set_app_data(connection, &made->key_) != 1) return nullptr;
    if (side == Side::kConnects) {
        // A server that offers a certificate in place of the key is refused: no authority is
        // trusted.
        SSL_set_verify(connection, SSL_VERIFY_PEER, nullptr);
        SSL_set_connect_state(connection);
    } else {
        SSL_set_accept_state(connection);
    }
    return made;
}

// A record, or a part of one, is lost: the peer could read nothing that follows.
void Tls::break_off() {
    if (std::exchange(is_mute_, true)) return;
    shutdown(descriptor_, SHUT_RDWR);
}

// Why the last call did not work, as an errno. @return 0: the peer has closed the connection
int Tls::failure() const {
    if (cause_ != 0) return cause_;
    if (is_ended_) return 0;
    // Not SSL_get_error(): in a handshake it says "wants to read" of messages that OpenSSL refuses,
    // too.
    if (has_blocked_) return EAGAIN;
    return ERR_GET_REASON(ERR_peek_last_error()) == ERR_R_MALLOC_FAILURE ? ENOMEM : EBADMSG;
}

Tls::State Tls::negotiate() {
    const OwnErrors errors;
    may_read_ = true;
    has_blocked_ = false;
    SSL* const connection = connection_.get();
    const int result = SSL_do_handshake(connection);
    // Not by a certificate: both have the key.
    if (result == 1 && SSL_session_reused(connection) == 1 && backlog() == 0) {
        OPENSSL_cleanse(key_.data(), key_.size());
        return State::kStands;
    }
    const int cause = result == 1 ? EBADMSG : is_mute_ ? ECONNRESET : failure();
    if (cause == EAGAIN) return backlog() == 0 ? State::kUnderWay : State::kBroken;
    errno = cause;
    if (cause != EBADMSG) return State::kBroken;
    const char* why = ERR_reason_error_string(ERR_peek_last_error());
    reason_ = why != nullptr ? why : "no reason";
    return State::kRefused;
}

bool Tls::write(const std::byte* bytes, size_t length) {
    const OwnErrors errors;
    SSL* const connection = connection_.get();
    bool is_done = true;
    if (records_ >= context_->records_per_key()) {
        is_done = SSL_key_update(connection, SSL_KEY_UPDATE_NOT_REQUESTED) == 1;
        records_ = 0;
    }
    ++records_;
    is_done = is_done &&
              SSL_write(connection, bytes, static_cast<int>(length)) == static_cast<int>(length);
    if (!is_done) break_off();
    return is_done;
}

ssize_t Tls::send(std::span<const iovec> pieces, BufferOwner owner) {
    if (is_mute_ || !flush()) {
        errno = is_mute_ ? EPIPE : EAGAIN;
        return -1;
    }
    const size_t length = length_of(pieces);
    size_t sent = 0;
    while (sent < length && backlog() == 0) {
        std::array<iovec, kMaxRecordPieces> part;
        const size_t count = cut_record(pieces, sent, TlsContext::kRecord, part);
        const auto* from = static_cast<const std::byte*>(part[0].iov_base);
        auto taken = static_cast<ssize_t>(part[0].iov_len);
        if (count > 1 || owner == BufferOwner::kUsers) {
            from = context_->room();
            const std::span<const iovec> all = std::span(part).first(count);
            taken = copy(Direction::kGather, context_->room(), all, owner);
            // All or nothing: of a frame that cannot be completed no part is sent.
            if (taken >= 0 && static_cast<size_t>(taken) < length_of(all)) {
                errno = EFAULT;
                taken = -1;
            }
        }
        if (taken > 0 && !has_memory()) {
            errno = ENOBUFS;
            taken = -1;
        } else if (taken > 0 && !write(from, static_cast<size_t>(taken))) {
            errno = EPIPE;
            taken = -1;
        }
        if (taken <= 0) return sent > 0 ? static_cast<ssize_t>(sent) : taken;
        sent += static_cast<size_t>(taken);
    }
    return static_cast<ssize_t>(sent);
}

ssize_t Tls::read(void* bytes, size_t room) {
    if (!has_memory()) {
        errno = ENOBUFS;
        return -1;
    }
    const OwnErrors errors;
    has_blocked_ = false;
    const int got =
        SSL_read(connection_.get(), bytes, static_cast<int>(std::min<size_t>(room, INT_MAX)));
    if (got > 0) return got;
    errno = failure();
    return errno == 0 ? 0 : -1;
}

bool Tls::has_unread() const {
    return !rest_.empty() || SSL_has_pending(connection_.get()) == 1;
}

// Copies decrypted bytes to the program's memory; those that cannot be copied are kept.
// @return as copy()
ssize_t Tls::place(std::span<const iovec> to, size_t length) try {
    std::byte* const room = context_->room();
    const ssize_t placed = copy(Direction::kScatter, room, to, BufferOwner::kUsers);
    const auto done = static_cast<size_t>(std::max<ssize_t>(placed, 0));
    if (done < length) {
        const int cause = errno;
        rest_.assign(room + done, room + length);
        errno = cause;
    }
    return placed;
} catch (const std::bad_alloc&) {
    cause_ = errno = ENOMEM;
    return -1;
}

ssize_t Tls::place_rest(std::span<const iovec> to, BufferOwner owner) {
    const ssize_t placed = copy(Direction::kScatter, rest_.data(), to, owner);
    if (placed > 0) rest_.erase(rest_.begin(), rest_.begin() + placed);
    return placed;
}

ssize_t Tls::receive(std::span<const iovec> pieces, BufferOwner owner) {
    may_read_ = !std::exchange(is_held_, false);
    const size_t length = length_of(pieces);
    size_t received = 0;
    while (received < length) {
        std::array<iovec, kMaxRecordPieces> part;
        const auto next = [&](size_t most) {
            return std::span<const iovec>(part).first(cut_record(pieces, received, most, part));
        };
        ssize_t got;
        if (!rest_.empty()) {
            got = place_rest(next(rest_.size()), owner);
        } else if (owner == BufferOwner::kOurs) {
            const iovec& piece = next(length)[0];
            got = read(piece.iov_base, piece.iov_len);
        } else {
            got = read(context_->room(), std::min(TlsContext::kRecord, length - received));
            if (got > 0) {
                const auto count = static_cast<size_t>(got);
                got = place(next(count), count);
            }
        }
        if (got <= 0) return received > 0 ? static_cast<ssize_t>(received) : got;
        received += static_cast<size_t>(got);
    }
    return static_cast<ssize_t>(received);
}

}  // namespace uct::tcp
