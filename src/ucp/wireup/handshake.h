// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ucs/net/mac.h"
#include "ucs/net/socket.h"

// How a client and a listener find out that they belong together (docs/design/interface.md,
// "Clients and servers"). All integers are little-endian.

namespace ucp::wireup {

inline constexpr uint32_t kHandshakeMagic = 0x53434c53;  // "SLCS"
// The versions of the protocol that this library speaks.
inline constexpr uint16_t kProtocol = 3;
inline constexpr uint16_t kOldestProtocol = 3;  // from here on clients connect, where no key is

// The client's first words. Magic and versions stand where they do in all versions from 2 on.
struct Call {
    uint32_t magic;
    uint16_t version;       // the newest that the client speaks
    uint16_t oldest;        // the oldest
    uint32_t capabilities;  // none yet; those that are not known are passed over
    uint8_t has_key;        // UCX_TCP_JOB_KEY is set
    uint8_t reserved[3];
    ucs::net::Nonce nonce;
};
static_assert(sizeof(Call) == 48);

enum class Verdict : uint8_t {
    kOpen = 1,      // neither end has a job key
    kProve,         // both have one: each proves it with all that it says from here on
    kKeyMissing,    // the listener alone has one
    kKeyUnknown,    // the client alone has one
    kOtherVersion,  // there is no version that both speak
};

// The listener's answer.
struct CallAnswer {
    uint32_t magic;
    uint16_t version;  // the one that counts; with kOtherVersion the newest
    uint16_t oldest;
    uint32_t capabilities;
    Verdict verdict;
    uint8_t reserved[3];
    ucs::net::Nonce nonce;
};
static_assert(sizeof(CallAnswer) == 48);

Call new_call(std::string_view job_key);
// The listener's answer to a call whose magic is right.
CallAnswer answer_to(const Call& call, std::string_view job_key);
// Does it come from a listener of this library's, of whatever version?
inline bool is_sound(const CallAnswer& answer) {
    return answer.magic == kHandshakeMagic && answer.verdict >= Verdict::kOpen &&
           answer.verdict <= Verdict::kOtherVersion;
}
// Why the two do not belong together; empty if they do.
std::string refusal(const CallAnswer& answer);

// Reads one message of fixed length, as it comes.
template <typename Message>
class MessageReader {
  public:
    // @return UCS_OK: it is all here; UCS_INPROGRESS; or the socket's error
    ucs_status_t read(ucs::net::Socket& socket) {
        while (have_ < sizeof(Message)) {
            auto* bytes = reinterpret_cast<std::byte*>(&message_);
            const ssize_t got = socket.read(bytes + have_, sizeof(Message) - have_);
            if (got == 0) return UCS_INPROGRESS;
            if (got < 0) return static_cast<ucs_status_t>(got);
            have_ += static_cast<size_t>(got);
        }
        return UCS_OK;
    }
    size_t have() const { return have_; }
    const Message& message() const { return message_; }

  private:
    Message message_{};
    size_t have_ = 0;
};

// What an end of a connection proves each of its frames with; nothing where there is no key.
class FrameSeal {
  public:
    enum class End : uint8_t { kClient, kServer };

    FrameSeal() = default;
    // Of a connection that began with these words.
    FrameSeal(End own, std::string_view job_key, const Call& call, const CallAnswer& answer);

    // Bytes behind each frame.
    size_t length() const { return is_used_ ? sizeof(ucs::net::Mac) : 0; }
    // Of the next frame that goes out.
    void append(std::vector<std::byte>& frame);
    // Is that the seal of the next frame that comes in?
    bool accepts(std::span<const std::byte> frame, std::span<const std::byte> seal);

  private:
    ucs::net::Mac of(End sender, uint64_t number, std::span<const std::byte> frame) const;

    bool is_used_ = false;
    End own_ = End::kClient;
    ucs::net::Mac key_{};
    uint64_t sent_ = 0, received_ = 0;
};

// What goes through the socket between a client and a server. All integers are little-endian.
//
//   client                          server
//   Call                      --->  (handshake.h)
//                             <---  CallAnswer: from here on each frame is proved, if there is a
//                             key
//   CONNECT (worker address)  --->  the program accepts or rejects
//   the endpoint is connected <---  ACCEPT (worker address), or REJECT
//   ...                             both keep the socket: its end is the peer's
//   BYE                       --->  either way: the endpoint was closed after a flush

enum class FrameKind : uint8_t { kConnect = 1, kAccept = 2, kReject = 3, kBye = 4 };

struct Frame {
    FrameKind kind{};
    bool has_client_id = false;
    uint64_t client_id = 0;
    uint64_t stream = 0;             // the sender's name for the byte stream that it receives
    std::vector<std::byte> address;  // the sender's worker address, packed
};

std::vector<std::byte> pack_frame(const Frame& frame);

// Puts frames together from what a socket gives. Nothing is stored before it was checked.
class FrameReader {
  public:
    // Read what is there, at most to the end of one frame.
    // @return UCS_OK: `frame` is filled; UCS_INPROGRESS; UCS_ERR_INVALID_PARAM: this is no frame;
    //         UCS_ERR_REJECTED: its seal is not the peer's; or the socket's error
    ucs_status_t read(ucs::net::Socket& socket, FrameSeal& seal, Frame* frame);

  private:
    size_t wanted(size_t seal) const;

    std::vector<std::byte> bytes_;
};

// Writes as much as the socket takes, the rest later.
class FrameWriter {
  public:
    void add(const Frame& frame, FrameSeal& seal);
    // Words of the handshake, which are not sealed.
    void add_bytes(std::span<const std::byte> bytes) {
        bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    }
    bool is_done() const { return offset_ == bytes_.size(); }
    // @return UCS_OK: all is written; UCS_INPROGRESS; or the socket's error
    ucs_status_t write(ucs::net::Socket& socket);

  private:
    std::vector<std::byte> bytes_;
    size_t offset_ = 0;
};

}  // namespace ucp::wireup
