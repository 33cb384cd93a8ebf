// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/lanes/messages.h"

#include <algorithm>
#include <new>
#include <type_traits>

#include "ucs/type/names.h"

namespace ucp::lanes {
namespace {

constexpr std::size_t kHeaderSize = 4;

// Writer and Reader share one interface, so that one description of the layouts serves both ways.
// A Writer without a buffer only counts.
class Writer {
  public:
    explicit Writer(std::uint8_t* out) : out_(out) {}

    template <typename T>
    void integer(const T& value) {
        static_assert(std::is_unsigned_v<T>);
        if (out_ != nullptr) {
            for (std::size_t i = 0; i < sizeof(T); ++i) {
                out_[size_ + i] = static_cast<std::uint8_t>(value >> (8 * i));
            }
        }
        size_ += sizeof(T);
    }

    void bytes(const std::vector<std::uint8_t>& value) {
        integer(static_cast<std::uint16_t>(value.size()));
        if (out_ != nullptr) std::copy(value.begin(), value.end(), out_ + size_);
        size_ += value.size();
    }

    std::size_t size() const { return size_; }

  private:
    std::uint8_t* out_;
    std::size_t size_ = 0;
};

class Reader {
  public:
    explicit Reader(std::span<const std::uint8_t> in) : in_(in) {}

    template <typename T>
    void integer(T& value) {
        static_assert(std::is_unsigned_v<T>);
        value = 0;
        if (!take(sizeof(T))) return;
        for (std::size_t i = 0; i < sizeof(T); ++i) {
            value = static_cast<T>(value | static_cast<T>(static_cast<T>(in_[at_ + i]) << (8 * i)));
        }
        at_ += sizeof(T);
    }

    void bytes(std::vector<std::uint8_t>& value) {
        std::uint16_t length = 0;
        integer(length);
        if (length > kMaxLaneAddress || !take(length)) {
            good_ = false;
            return;
        }
        const auto bytes = in_.subspan(at_, length);
        at_ += length;
        try {
            value.assign(bytes.begin(), bytes.end());
        } catch (const std::bad_alloc&) {
            value.clear();
        }
    }

    bool complete() const { return good_ && at_ == in_.size(); }

  private:
    bool take(std::size_t length) {
        good_ = good_ && in_.size() - at_ >= length;
        return good_;
    }

    std::span<const std::uint8_t> in_;
    std::size_t at_ = 0;
    bool good_ = true;
};

template <typename Stream, typename E>
void enumeration(Stream& stream, E& value) {
    auto raw = static_cast<std::uint8_t>(value);
    stream.integer(raw);
    if constexpr (std::is_same_v<Stream, Reader>) value = static_cast<E>(raw);
}

template <typename Stream, typename R>
void rank(Stream& stream, R& value) {
    stream.integer(value.score);
    stream.integer(value.id.low);
    stream.integer(value.id.high);
    stream.integer(value.id.connection);
}

// The layouts: what follows the header of each type, in order.
template <typename Stream, typename M>
void layout(Stream& stream, M& message) {
    if (message.type == MessageType::kScore) {
        stream.integer(message.local);
        return;
    }
    stream.integer(message.epoch);
    switch (message.type) {
        case MessageType::kRequest:
            stream.integer(message.local);
            stream.integer(message.estimate);
            rank(stream, message.floor);
            stream.integer(message.kept);
            break;
        case MessageType::kAccept:
            stream.integer(message.local);
            stream.integer(message.kept);
            break;
        case MessageType::kDeny:
            stream.integer(message.local);
            enumeration(stream, message.deny);
            rank(stream, message.floor);
            break;
        case MessageType::kWithdraw:
            enumeration(stream, message.withdraw);
            break;
        case MessageType::kLane:
            stream.integer(message.window);
            stream.bytes(message.address);
            break;
        default:
            break;
    }
}

bool in_range(const Message& message) {
    if (message.type != MessageType::kScore && message.epoch == 0) return false;
    if (message.local > kMaxLocalScore || message.estimate > kMaxScore) return false;
    if (message.floor.score > kMaxFloor || message.floor.id.low > message.floor.id.high) {
        return false;
    }
    if (message.deny < DenyReason::kBusy || message.deny > DenyReason::kRefused) return false;
    if (message.withdraw < WithdrawReason::kNoLane || message.withdraw > WithdrawReason::kPolicy) {
        return false;
    }
    return message.address.size() <= kMaxLaneAddress;
}

}  // namespace

const char* name(MessageType type) {
    static constexpr const char* kNames[] = {
        "none", "SCORE",    "REQUEST", "ACCEPT",    "DENY",    "WITHDRAW", "LANE", "READY",
        "MARK", "MARK_ACK", "DMARK",   "DMARK_ACK", "FLUSHED", "PING",     "PONG", "GONE"};
    return ucs::name_in<kLastMessageType>(kNames, type);
}

const char* name(DenyReason reason) {
    static constexpr const char* kNames[] = {"unknown", "busy", "outranked", "refused"};
    return ucs::name_in<DenyReason::kRefused>(kNames, reason);
}

const char* name(WithdrawReason reason) {
    static constexpr const char* kNames[] = {"unknown", "no lane", "no answer", "closing",
                                             "policy"};
    return ucs::name_in<WithdrawReason::kPolicy>(kNames, reason);
}

std::size_t encoded_size(const Message& message) {
    Writer counter(nullptr);
    layout(counter, message);
    return kHeaderSize + counter.size();
}

std::size_t encode(const Message& message, std::span<std::uint8_t> out) {
    const std::size_t size = encoded_size(message);
    if (size > out.size() || message.address.size() > kMaxLaneAddress) return 0;
    Writer writer(out.data());
    writer.integer(kProtocolVersion);
    writer.integer(static_cast<std::uint8_t>(message.type));
    writer.integer(static_cast<std::uint16_t>(size - kHeaderSize));
    layout(writer, message);
    return size;
}

ucs_status_t decode(std::span<const std::uint8_t> in, Message& message) {
    if (in.size() < kHeaderSize) return UCS_ERR_INVALID_PARAM;
    const auto type = static_cast<MessageType>(in[1]);
    const std::size_t length = in[2] | static_cast<std::size_t>(in[3]) << 8;
    if (in[0] != kProtocolVersion || type < MessageType::kScore || type > kLastMessageType ||
        length != in.size() - kHeaderSize) {
        return UCS_ERR_INVALID_PARAM;
    }
    message = Message{};
    message.type = type;
    Reader reader(in.subspan(kHeaderSize));
    layout(reader, message);
    return reader.complete() && in_range(message) ? UCS_OK : UCS_ERR_INVALID_PARAM;
}

}  // namespace ucp::lanes
