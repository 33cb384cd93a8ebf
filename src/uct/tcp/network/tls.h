// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "uct/tcp/wire/proof.h"

struct bio_st;
struct ssl_ctx_st;
struct ssl_st;

namespace uct::tcp {

// What the encrypted connections of an interface share. One thread at a time.
class TlsContext {
  public:
    // A record holds at most so many bytes (RFC 8446, 5.1).
    static constexpr size_t kRecord = 16384;
    // Records that are sent with one key: AES-GCM is good for 2^24.5 of full size (RFC 8446, 5.5).
    static constexpr uint64_t kRecordsPerKey = uint64_t{1} << 24;

    explicit TlsContext(uint64_t records_per_key = kRecordsPerKey);

    // False without memory, or if the library has no TLS 1.3 with AES.
    bool is_ready() const { return context_ != nullptr && room_ != nullptr; }
    uint64_t records_per_key() const { return records_per_key_; }
    ssl_ctx_st* get() const { return context_.get(); }
    // For one record, while a call lasts.
    std::byte* room() const { return room_.get(); }

  private:
    struct Free {
        void operator()(ssl_ctx_st* context) const;
    };

    const uint64_t records_per_key_;
    std::unique_ptr<ssl_ctx_st, Free> context_;
    std::unique_ptr<std::byte[]> room_;
};

// TLS 1.3 on one connection (RFC 8446): the ends prove to each other that they have the same key,
// agree on others that nobody can find from it later, and read and write with those. There are no
// certificates, no tickets and no early data.
//
// What the kernel does not take of a record is kept here, as a record that has begun cannot be
// taken back. A record that is not what was sent ends the connection. Some 80 KB of memory, all
// before the connection stands.
class Tls {
  public:
    enum class Side : uint8_t { kConnects, kListens };
    // @return null without memory
    static std::unique_ptr<Tls> begin(std::shared_ptr<TlsContext> context, int descriptor,
                                      Side side, const wire::Key& key);
    ~Tls();
    Tls(const Tls&) = delete;

    enum class State : uint8_t {
        kUnderWay,
        kStands,
        kBroken,   // the connection ended; errno says why, 0: it was closed
        kRefused,  // the ends do not belong together: reason() says why
    };
    // Go on with the handshake: it has begun, or something can be read.
    State negotiate();
    const std::string& reason() const { return reason_; }

    // Whose memory is read or written.
    enum class BufferOwner : uint8_t {
        kOurs,   // it is there
        kUsers,  // it may be unmapped: that is EFAULT, as from the kernel
    };
    // As the system's calls. What is not a record of the peer's is EBADMSG, from then on. ENOBUFS:
    // there is no memory, and nothing has happened yet; it may be tried again.
    ssize_t send(std::span<const iovec> pieces, BufferOwner owner);
    ssize_t receive(std::span<const iovec> pieces, BufferOwner owner);
    // The next receive() does not ask the kernel: it gives what has been read already.
    void hold_reading() { is_held_ = true; }
    // Has something been read that receive() has not given yet? It may be half a record.
    bool has_unread() const;

    // Bytes that the kernel has not taken yet.
    size_t backlog() const { return backlog_end_ - backlog_begin_; }
    // @return whether it has taken all
    bool flush();

  private:
    struct Free {
        void operator()(ssl_st* connection) const;
    };
    // Between OpenSSL and the socket.
    struct SocketBio;

    Tls(std::shared_ptr<TlsContext> context, int descriptor, const wire::Key& key)
        : context_(std::move(context)), descriptor_(descriptor), key_(key) {}
    bool keep(const char* bytes, size_t length);
    bool write(const std::byte* bytes, size_t length);
    ssize_t read(void* bytes, size_t room);
    ssize_t place(std::span<const iovec> to, size_t length);
    ssize_t place_rest(std::span<const iovec> to, BufferOwner owner);
    int failure() const;
    void break_off();

    const std::shared_ptr<TlsContext> context_;
    const int descriptor_;
    wire::Key key_;  // until the handshake is over
    std::unique_ptr<ssl_st, Free> connection_;
    bool may_read_ = true;      // in this call
    bool is_held_ = false;      // not in the next one
    bool has_blocked_ = false;  // it has found nothing to read
    bool is_mute_ = false;      // nothing can be sent any more
    bool is_ended_ = false;     // the peer has closed the connection
    int cause_ = 0;             // of its end, as the kernel says
    uint64_t records_ = 0;      // with this key
    size_t backlog_begin_ = 0, backlog_end_ = 0;
    std::unique_ptr<std::byte[]> backlog_;
    std::vector<std::byte> rest_;  // what found its place unmapped
    std::string reason_;
};

}  // namespace uct::tcp
