// SPDX-License-Identifier: BSD-3-Clause

// What a connection brings. Headers and messages go through a receive buffer; the payload of puts
// and get replies goes straight to its place, apart from what came in together with its header.
// While such payload comes, no more is read behind it than the next header can be long, so that the
// next payload does not take the way through the buffer either.

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "ucs/type/bits.h"
#include "uct/base/am.h"
#include "uct/tcp/channel.h"
#include "uct/tcp/frames.h"
#include "uct/tcp/responder.h"
#include "uct/tcp/tcp_interface.h"

namespace uct::tcp {

namespace {

/** Payload from this size on makes the next one likely: its header is read alone. */
constexpr uint64_t kBulk = 4096;

}  // namespace

unsigned Channel::receive() {
    unsigned count = 0;
    size_t brought = 0;
    for (unsigned polls = link_.interface().config().max_poll; polls > 0 && is_open(); --polls) {
        bool full = false;
        const bool lands = payload_.active && payload_.left > 0 && !payload_.dropped;
        const ssize_t got = lands && buffered() == 0 ? read_in_place(&full) : read_some(&full);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) break;
        if (got <= 0) {
            ended(got == 0 ? 0 : errno);
            return count + 1;
        }
        brought += static_cast<size_t>(got);
        count += 1 + parse();
        if (!full) break;
    }
    if (count > 0 && is_open()) {
        // The kernel acknowledges more than a segment at once. Whoever holds the socket's lock does
        // so first: that is to be the sender's processor, not who waits for the next message.
        const bool is_short = brought <= segment_;
        link_.interface().set_hot(is_short || payload_.active ? this : nullptr, payload_.active);
    }
    return count;
}

/**
 * Room behind what is buffered.
 * @param ahead  bytes of the stream that do not lie in the buffer, or belong to no frame there, and
 *               come before the next frame: frames are to be aligned as they are in the stream
 * @return false without memory
 */
bool Channel::prepare_buffer(uint64_t ahead, size_t* limit) {
    ReceivePool& pool = link_.interface().receive_pool();
    const size_t capacity = pool.capacity();
    if (input_ == nullptr) {
        input_ = pool.take();
        if (input_ == nullptr) return false;
    }
    const auto place = [&](size_t start) {
        input_begin_ = input_end_ = ucs::align_up(start, wire::kAlignment) + wire::padding(ahead);
    };
    if (buffered() == 0) place(input_->references == 1 ? 0 : input_end_);
    // The rest of a frame must fit behind its beginning. Kept messages stay where they are.
    if (input_end_ > capacity - capacity / 4 && input_begin_ >= wire::kAlignment) {
        ReceiveBuffer* to = input_;
        if (input_->references > 1) {
            to = pool.take();
            if (to == nullptr) return false;
        }
        const size_t length = buffered(), start = input_begin_ % wire::kAlignment;
        std::memmove(to->data() + start, input_->data() + input_begin_, length);
        if (to != input_) pool.release(std::exchange(input_, to));
        input_begin_ = start;
        input_end_ = start + length;
    }
    *limit = bulk_expected_ && buffered() == 0
                 ? std::min(capacity, input_end_ + wire::kMaxFixed + wire::kAlignment)
                 : capacity;
    return true;
}

ssize_t Channel::read_some(bool* full) {
    size_t limit;
    if (!prepare_buffer(payload_.active ? payload_.left + payload_.padding : 0, &limit)) {
        errno = ENOMEM;
        return -1;
    }
    const size_t room = limit - input_end_;
    const ssize_t got = recv(socket_.get(), input_->data() + input_end_, room, 0);
    if (got > 0) {
        received_ += static_cast<size_t>(got);
        input_end_ += static_cast<size_t>(got);
        *full = static_cast<size_t>(got) == room;
    } else if (buffered() == 0) {
        drop_buffer();
    }
    return got;
}

ssize_t Channel::read_in_place(bool* full) {
    size_t limit;
    bulk_expected_ = true;
    if (!prepare_buffer(payload_.padding, &limit)) {
        errno = ENOMEM;
        return -1;
    }
    std::array<iovec, ReferringOutput::kMaxPieces + 1> pieces;
    ssize_t got = 0;
    size_t wanted = 0;
    const size_t tail = input_end_;
    {
        Landing landing(link_, payload_.is_put ? &payload_.put : nullptr, payload_.operation);
        size_t count = landing.find(payload_.offset, payload_.left, pieces.data());
        if (count == 0) {
            payload_.dropped = true;
        } else {
            pieces[count++] = {input_->data() + tail, limit - tail};
            for (size_t i = 0; i < count; ++i) wanted += pieces[i].iov_len;
            msghdr message{};
            message.msg_iov = pieces.data();
            message.msg_iovlen = count;
            got = recvmsg(socket_.get(), &message, 0);
        }
    }
    if (payload_.dropped) return read_some(full);
    if (got <= 0) return got;
    received_ += static_cast<size_t>(got);
    *full = static_cast<size_t>(got) == wanted;
    const auto landed = std::min<uint64_t>(static_cast<uint64_t>(got), payload_.left);
    payload_.left -= landed;
    payload_.offset += landed;
    input_begin_ = tail;
    input_end_ = tail + (static_cast<size_t>(got) - landed);
    return got;
}

void Channel::drop_buffer() {
    if (input_ != nullptr) link_.interface().receive_pool().release(input_);
    input_ = nullptr;
    input_begin_ = input_end_ = 0;
}

unsigned Channel::parse() {
    unsigned count = 0;
    while (is_open()) {
        if (payload_.active) {
            if (!take_payload()) break;
            ++count;
            continue;
        }
        if (buffered() < sizeof(wire::Frame)) break;
        const auto frame = read_as<wire::Frame>(input_->data() + input_begin_);
        if (!wire::is_sound(frame, link_.interface().max_message())) {
            violation("a malformed frame");
            return count;
        }
        if (!take_frame(frame)) break;
        ++count;
    }
    if (buffered() == 0) drop_buffer();
    return count;
}

/** @return false if the frame is not all here */
bool Channel::take_frame(const wire::Frame& frame) {
    const size_t padding = wire::padding(frame.length);
    const std::byte* start = input_->data() + input_begin_;
    if (frame.type == wire::FrameType::kMessage) {
        const size_t length = sizeof(frame) + frame.length + padding;
        if (buffered() < length) return false;
        deliver(frame);
        return true;
    }
    if (frame.type == wire::FrameType::kRoutes) {
        if (buffered() < sizeof(frame) + frame.length) return false;
        input_begin_ += sizeof(frame) + frame.length;
        if (Session* session = link_.session()) {
            session->on_routes({start + sizeof(frame), frame.length});
        }
        return true;
    }
    const size_t header = sizeof(frame) + wire::shape_of(frame.type).fixed;
    if (buffered() < header) return false;
    input_begin_ += header;
    if (wire::shape_of(frame.type).payload) {
        begin_payload(frame, start + sizeof(frame));
    } else {
        handle(frame, start + sizeof(frame));
    }
    return true;
}

void Channel::deliver(const wire::Frame& frame) {
    TcpInterface& interface = link_.interface();
    ReceivePool& pool = interface.receive_pool();
    std::byte* data = input_->data() + input_begin_ + sizeof(frame);
    input_begin_ += sizeof(frame) + frame.length + wire::padding(frame.length);
    bulk_expected_ = false;
    if (frame.id >= kMaxAmId) {
        violation("a message of no kind");
        return;
    }
    if (interface.is_leaving()) return;
    // The buffer stays while the handler runs, even if the handler ends the connection.
    ReceiveBuffer* buffer = input_;
    ++buffer->references;
    ReceiveDescriptor* descriptor = pool.descriptor(buffer);
    if (dispatch_am(interface.am_table(), frame.id, data, frame.length, descriptor)) pool.keep();
    pool.release(buffer);
}

void Channel::begin_payload(const wire::Frame& frame, const std::byte* fixed) {
    payload_ = {};
    payload_.left = frame.length - wire::shape_of(frame.type).fixed;
    payload_.padding = wire::padding(frame.length);
    if (frame.type == wire::FrameType::kPut) {
        payload_.is_put = true;
        payload_.put = read_as<wire::Put>(fixed);
        if (link_.interface().is_leaving()) {
            payload_.dropped = true;
        } else if (!Landing(link_, &payload_.put, 0).covers(payload_.left)) {
            payload_.dropped = true;
            refuse(*this, payload_.put.endpoint, wire::kNoOperation);
        }
    } else {
        payload_.operation = read_as<wire::Reply>(fixed).operation;
        const RemoteOperation* operation = link_.find_operation(payload_.operation);
        const bool is_get =
            operation != nullptr && (operation->kind == RemoteOperation::Kind::kGet ||
                                     operation->kind == RemoteOperation::Kind::kGetCopy);
        if (!is_get || operation->length != payload_.left) {
            violation("an answer that nobody asked for");
            return;
        }
        payload_.dropped = operation->abandoned;
    }
    payload_.active = true;
    bulk_expected_ = payload_.left >= kBulk;
}

/** Moves what is buffered to its place. @return false if nothing is */
bool Channel::take_payload() {
    if (payload_.left > 0 && buffered() > 0) {
        const size_t part = std::min<uint64_t>(payload_.left, buffered());
        if (!payload_.dropped) {
            std::array<iovec, ReferringOutput::kMaxPieces> pieces;
            Landing landing(link_, payload_.is_put ? &payload_.put : nullptr, payload_.operation);
            const size_t count = landing.find(payload_.offset, part, pieces.data());
            const std::byte* from = input_->data() + input_begin_;
            for (size_t i = 0; i < count; ++i) {
                std::memcpy(pieces[i].iov_base, from, pieces[i].iov_len);
                from += pieces[i].iov_len;
            }
            payload_.dropped = count == 0;
        }
        input_begin_ += part;
        payload_.left -= part;
        payload_.offset += part;
    }
    if (payload_.left > 0) return false;
    const size_t skipped = std::min(payload_.padding, buffered());
    input_begin_ += skipped;
    payload_.padding -= skipped;
    if (payload_.padding > 0) return false;
    finish_payload();
    return true;
}

void Channel::finish_payload() {
    payload_.active = false;
    if (payload_.is_put) return;
    if (RemoteOperation* operation = link_.find_operation(payload_.operation)) {
        link_.finish_operation(*operation, UCS_OK);
    }
}

void Channel::handle(const wire::Frame& frame, const std::byte* fixed) {
    if (link_.interface().is_leaving() && frame.type != wire::FrameType::kLeave) return;
    switch (frame.type) {
        case wire::FrameType::kGet:
            answer_get(*this, link_, read_as<wire::Get>(fixed));
            break;
        case wire::FrameType::kAtomic:
            answer_atomic(*this, link_, read_as<wire::Atomic>(fixed));
            break;
        case wire::FrameType::kFlush:
            answer_flush(*this, read_as<wire::Reply>(fixed));
            break;
        case wire::FrameType::kAtomicReply:
            if (!on_atomic_reply(link_, read_as<wire::AtomicReply>(fixed))) {
                violation("an answer that nobody asked for");
            }
            break;
        case wire::FrameType::kFlushReply:
            if (!on_flush_reply(link_, read_as<wire::Reply>(fixed), index_)) {
                violation("an answer that nobody asked for");
            }
            break;
        case wire::FrameType::kRefused:
            on_refused(link_, read_as<wire::Refused>(fixed));
            break;
        case wire::FrameType::kCut:
            link_.on_cut(read_as<wire::Cut>(fixed).epoch);
            break;
        case wire::FrameType::kCutDone:
            link_.on_cut_done(read_as<wire::Cut>(fixed).epoch);
            break;
        case wire::FrameType::kLeave:
            peer_left_ = true;
            break;
        default:
            break;
    }
    // Answers are bounded by what a well-behaved peer has outstanding at a time.
    constexpr size_t kMostAnswers = 4096;
    const size_t most = kMostAnswers + link_.interface().config().tx_queue_len;
    if (is_open() && queue_.size() > most) violation("it asks and does not listen");
}

}  // namespace uct::tcp
