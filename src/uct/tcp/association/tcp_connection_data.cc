// SPDX-License-Identifier: BSD-3-Clause

// What a connection sends and brings. Headers and messages go through a receive buffer; the payload
// of puts and get replies goes straight to its place, apart from what came in together with its
// header. While such payload comes, no more is read behind it than the next header can be long, so
// that the next payload does not take the way through the buffer either.

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "ucs/log/log.h"
#include "ucs/type/bits.h"
#include "uct/base/am.h"
#include "uct/tcp/association/association.h"
#include "uct/tcp/association/responder.h"
#include "uct/tcp/association/tcp_connection.h"
#include "uct/tcp/wire/format.h"

namespace uct::tcp {

namespace {

// Pieces of one call.
constexpr size_t kMaxPieces = 64;
// Payload from this size on makes the next one likely: its header is read alone.
constexpr uint64_t kBulk = 4096;

// Cuts pieces to the first `most` bytes.
// @param count  out: pieces that these bytes take
// @return the bytes of these pieces
template <typename Count>
size_t cut(std::span<iovec> pieces, size_t most, Count* count) {
    size_t bytes = 0;
    *count = 0;
    for (iovec& piece : pieces) {
        piece.iov_len = std::min(piece.iov_len, most - bytes);
        bytes += piece.iov_len;
        ++*count;
        if (bytes == most) break;
    }
    return bytes;
}

}  // namespace

// --- what it sends

// @return bytes that the kernel took. An error of the connection is seen when it is read next; if
// the program's memory could not be read that is noted, for the next transmit_queue()
size_t TcpConnection::transmit(std::span<const iovec> pieces) {
    association_.attention().on_sent();
    const ssize_t taken = stream_.tls() == nullptr ? stream_.send(pieces) : encrypt(pieces);
    if (taken <= 0) [[unlikely]] {
        has_faulted_ |= taken < 0 && errno == EFAULT;
        return 0;
    }
    given_ += static_cast<size_t>(taken);
    incoming_.on_sent();
    if (Session* session = association_.session(); session != nullptr) {
        if (index_ == 0) session->sent(pieces, static_cast<size_t>(taken));
        if (!session->is_watched()) session->watch();
    } else if (!association_.is_watched()) {
        association_.watch();
    }
    return static_cast<size_t>(taken);
}

// Encrypted bytes that the kernel does not take at once are kept.
// @return as SocketStream::send()
ssize_t TcpConnection::encrypt(std::span<const iovec> pieces) {
    // What waits in the queue may refer to the user's memory.
    const auto owner = queue_.empty() ? Tls::BufferOwner::kOurs : Tls::BufferOwner::kUsers;
    const ssize_t taken = stream_.send(pieces, owner);
    if (stream_.backlog() > 0) want_output();
    return taken;
}

bool TcpConnection::is_replaying() const {
    const Session* session = association_.session();
    return index_ == 0 && session != nullptr && session->history().is_replaying();
}

// @return whether the kernel has all that the last connection did not bring to the peer
bool TcpConnection::replay() {
    History& history = association_.session()->history();
    while (history.is_replaying()) {
        std::array<iovec, kMaxPieces> pieces;
        const size_t count = history.gather(pieces);
        const ssize_t taken = stream_.send(std::span(pieces).first(count));
        if (taken <= 0) return false;
        given_ += static_cast<size_t>(taken);
        history.replayed(static_cast<size_t>(taken));
    }
    return true;
}

void TcpConnection::want_output() {
    if (state_ == State::kIdle) {
        start();
    } else if (is_open()) {
        watch(EPOLLIN | EPOLLOUT);
    }
}

void TcpConnection::send(std::span<const iovec> pieces, size_t length,
                         const AssociationUser* owner) {
    size_t taken = 0;
    if (is_open() && queue_.empty() && !is_replaying()) [[likely]] {
        taken = transmit(pieces);
        if (taken == length) [[likely]]
            return;
    }
    if (queue_.append(pieces, taken, owner)) {
        want_output();
    } else {
        output_lost();
    }
}

void TcpConnection::output_lost() {
    ucs::log_error("{}: no memory for what goes to {:016x}: its connection ends",
                   association_.rail().device().name, association_.peer());
    has_lost_output_ = true;
    fail_later(UCS_ERR_NO_MEMORY);
}

ucs_status_t TcpConnection::send(ReferringOutput* operation) {
    if (is_open() && queue_.empty() && !is_replaying()) {
        std::array<iovec, ReferringOutput::kMaxPieces + 2> pieces;
        queue_.append(operation);
        const int count = queue_.gather(pieces, nullptr);
        OutputList done;
        queue_.consume(transmit({pieces.data(), static_cast<size_t>(count)}), done);
        if (!done.empty()) {
            association_.buffers().output.destroy(operation);
            return UCS_OK;
        }
    } else {
        queue_.append(operation);
    }
    want_output();
    return UCS_INPROGRESS;
}

void TcpConnection::send_queued(bool was_empty) {
    if (was_empty && is_open()) {
        transmit_queue(association_.attention().turn);
    } else {
        want_output();
    }
}

void TcpConnection::transmit_queue(size_t& turn) {
    if (!stream_.flush() || (is_replaying() && !replay())) {
        watch(EPOLLIN | EPOLLOUT);
        return;
    }
    OutputPools& pools = association_.buffers().output;
    OutputList done;
    const bool was_full = !has_room();
    while (!queue_.empty() && turn > 0) {
        std::array<iovec, kMaxPieces> pieces;
        // Memory that peers read may be deregistered by other threads: not while the kernel copies.
        std::optional<RegionTable::Reader> regions;
        if (queue_.has_replies()) regions.emplace(association_.buffers().regions);
        int count = queue_.gather(pieces, regions ? &*regions : nullptr);
        if (count < 0) {
            regions.reset();
            complete_all(pools, done, UCS_OK);
            if (is_open()) violation("memory was deregistered while it was read");
            return;
        }
        const size_t wanted = cut({pieces.data(), static_cast<size_t>(count)}, turn, &count);
        const size_t taken = transmit({pieces.data(), static_cast<size_t>(count)});
        turn -= std::min(turn, taken);
        queue_.consume(taken, done);
        if (has_faulted_) [[unlikely]] {
            complete_all(pools, done, UCS_OK);
            if (is_open()) drop_unreadable();
            return;
        }
        if (taken < wanted) break;
    }
    watch_as_needed();
    if (was_full && has_room()) association_.room_made();
    complete_all(pools, done, UCS_OK);
}

// The program has unmapped memory of an operation: that fails, with its endpoint, and what others
// send goes on. If a part of it has reached the peer, or the peer waits for it as an answer,
// nothing can follow in the stream: the association fails.
void TcpConnection::drop_unreadable() {
    has_faulted_ = false;
    ReferringOutput* gone = queue_.find_unreadable();
    if (gone == nullptr) {
        want_output();
        return;
    }
    ucs::log_error("{}: memory of an operation under way was unmapped: the operation fails",
                   association_.rail().device().name);
    const AssociationUser* owner = gone->owner;
    if (gone->sent > 0 || gone->key != 0 || owner == nullptr) {
        close();
        association_.fail(UCS_ERR_IO_ERROR);
        return;
    }
    OutputList removed;
    queue_.remove(*gone);
    removed.push_back(*gone);
    want_output();
    association_.room_made();
    association_.refuse(*owner);
    complete_all(association_.buffers().output, removed, UCS_ERR_IO_ERROR);
}

// --- what it brings

unsigned TcpConnection::receive(size_t& turn) {
    unsigned count = 0;
    size_t brought = 0;
    if (std::exchange(is_interrupted_, false)) [[unlikely]]
        count += parse();
    unsigned polls = association_.rail().config().max_poll;
    while (is_open() && turn > 0) {
        bool full = false;
        const bool lands = payload_.active && payload_.left > 0 && !payload_.dropped;
        const ssize_t got =
            lands && buffered() == 0 ? read_in_place(turn, &full) : read_some(turn, &full);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) break;
        if (got <= 0) [[unlikely]] {
            if (got < 0 && errno == ENOBUFS) {
                read_later();
                break;
            }
            ended(got == 0 ? 0 : errno);
            return count + 1;
        }
        brought += static_cast<size_t>(got);
        turn -= std::min(turn, static_cast<size_t>(got));
        count += 1 + parse();
        if (full && polls > 1) {
            --polls;
        } else if (!must_read_on()) {
            break;
        }
    }
    if (brought > 0 && is_open() && incoming_.is_under_way()) [[unlikely]]
        incoming_.on_read(association_.rail().now());
    // epoll does not tell of bytes that have left the kernel and are still to be decrypted.
    if (turn == 0 && is_open() && stream_.has_unread()) read_later();
    if (count > 0 && is_open()) {
        // More than a segment is acknowledged at once, by whoever holds the socket's lock when it
        // comes: that should be the processor that delivers the packets, not the receiver that
        // waits for the next message.
        const bool is_short = brought <= segment_;
        association_.attention().set_hot(is_short || payload_.active ? this : nullptr,
                                         payload_.active);
    }
    return count;
}

// There was no memory to decrypt what has come. The kernel may have nothing more to tell of it, as
// with early input.
void TcpConnection::read_later() {
    has_early_input_ = true;
    watch_as_needed();
}

// Whether there are decrypted bytes to be handled before the next wait: epoll does not tell of
// them.
bool TcpConnection::must_read_on() {
    if (!is_open() || !stream_.has_unread()) return false;
    stream_.tls()->hold_reading();
    return true;
}

// Room behind what is buffered.
// @param ahead  bytes of the stream that do not lie in the buffer, or belong to no frame there, and
//               come before the next frame: frames are to be aligned as they are in the stream
// @return false without memory
bool TcpConnection::prepare_buffer(uint64_t ahead, size_t* limit) {
    ReceivePool& pool = association_.buffers().receive;
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
        StreamBuffer* to = input_;
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

ssize_t TcpConnection::read_some(size_t most, bool* full) {
    size_t limit;
    if (!prepare_buffer(payload_.active ? payload_.left + payload_.padding : 0, &limit)) {
        errno = ENOMEM;
        return -1;
    }
    const size_t room = std::min(limit - input_end_, most);
    const ssize_t got = stream_.receive(input_->data() + input_end_, room);
    if (got > 0) {
        received_ += static_cast<size_t>(got);
        input_end_ += static_cast<size_t>(got);
        *full = static_cast<size_t>(got) == room;
    } else if (buffered() == 0) {
        drop_buffer();
    }
    return got;
}

ssize_t TcpConnection::read_in_place(size_t most, bool* full) {
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
        Landing landing(association_, payload_.is_put ? &payload_.put : nullptr,
                        payload_.operation);
        size_t count = landing.find(payload_.offset, payload_.left, pieces.data());
        if (count == 0) {
            payload_.dropped = true;
        } else {
            pieces[count++] = {input_->data() + tail, limit - tail};
            wanted = cut(std::span(pieces).first(count), most, &count);
            got = stream_.receive(std::span(pieces).first(count), Tls::BufferOwner::kUsers);
        }
    }
    if (got < 0 && errno == EFAULT) drop_payload();
    if (payload_.dropped) return is_open() ? read_some(most, full) : got;
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

void TcpConnection::drop_buffer() {
    if (input_ != nullptr) association_.buffers().receive.release(input_);
    input_ = nullptr;
    input_begin_ = input_end_ = 0;
}

unsigned TcpConnection::parse() {
    unsigned count = 0;
    while (is_open()) {
        if (payload_.active) {
            if (!take_payload()) break;
            ++count;
            continue;
        }
        if (buffered() < sizeof(wire::FrameHeader)) break;
        const auto frame = read_as<wire::FrameHeader>(input_->data() + input_begin_);
        if (!wire::is_sound(frame, association_.rail().max_message())) {
            violation("a malformed frame");
            return count;
        }
        if (!take_frame(frame)) break;
        ++count;
    }
    if (buffered() == 0) drop_buffer();
    return count;
}

// @return false if the frame is not all here
bool TcpConnection::take_frame(const wire::FrameHeader& frame) {
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
        if (Session* session = association_.session()) {
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

void TcpConnection::deliver(const wire::FrameHeader& frame) {
    const Rail& rail = association_.rail();
    ReceivePool& pool = association_.buffers().receive;
    std::byte* data = input_->data() + input_begin_ + sizeof(frame);
    input_begin_ += sizeof(frame) + frame.length + wire::padding(frame.length);
    bulk_expected_ = false;
    incoming_.on_message(frame.mark);
    if (frame.id >= kMaxAmId) {
        violation("a message of no kind");
        return;
    }
    if (association_.is_deaf()) return;
    // The buffer stays while the handler runs, even if the handler ends the connection.
    StreamBuffer* buffer = input_;
    ++buffer->references;
    ReceiveDescriptor* descriptor = pool.descriptor(buffer);
    try {
        if (dispatch_am_from(rail.am_table(), association_.identity(), frame.id, data, frame.length,
                             descriptor)) {
            pool.keep();
        }
    } catch (...) {
        // The frames behind this one are handled in the next progress.
        pool.release(buffer);
        is_interrupted_ = is_open();
        if (is_interrupted_) association_.attention().set_hot(this, true);
        throw;
    }
    pool.release(buffer);
    if (association_.identity().is_over) [[unlikely]] {
        close();
        association_.fail(UCS_ERR_EXCEEDS_LIMIT);
    }
}

void TcpConnection::begin_payload(const wire::FrameHeader& frame, const std::byte* fixed) {
    payload_ = {};
    payload_.left = frame.length - wire::shape_of(frame.type).fixed;
    payload_.padding = wire::padding(frame.length);
    if (frame.type == wire::FrameType::kPut) {
        payload_.is_put = true;
        payload_.put = read_as<wire::Put>(fixed);
        if (association_.is_deaf()) {
            payload_.dropped = true;
        } else if (!Landing(association_, &payload_.put, 0).covers(payload_.left)) {
            payload_.dropped = true;
            refuse(*this, payload_.put.endpoint, wire::kNoOperation);
        }
    } else {
        payload_.operation = read_as<wire::Reply>(fixed).operation;
        const RemoteOperation* operation = association_.find_operation(payload_.operation);
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

// The place of the payload has gone: the operation fails, the rest is read and thrown away.
void TcpConnection::drop_payload() {
    payload_.dropped = true;
    if (payload_.is_put) {
        refuse(*this, payload_.put.endpoint, wire::kNoOperation);
    } else if (RemoteOperation* operation = association_.find_operation(payload_.operation)) {
        association_.finish_operation(*operation, UCS_ERR_IO_ERROR);
    }
}

// Moves what is buffered to its place. @return false if nothing is
bool TcpConnection::take_payload() {
    if (payload_.left > 0 && buffered() > 0) {
        const size_t part = std::min<uint64_t>(payload_.left, buffered());
        if (!payload_.dropped) {
            std::array<iovec, ReferringOutput::kMaxPieces> pieces;
            Landing landing(association_, payload_.is_put ? &payload_.put : nullptr,
                            payload_.operation);
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

void TcpConnection::finish_payload() {
    payload_.active = false;
    if (payload_.is_put) return;
    if (RemoteOperation* operation = association_.find_operation(payload_.operation)) {
        association_.finish_operation(*operation, UCS_OK);
    }
}

void TcpConnection::handle(const wire::FrameHeader& frame, const std::byte* fixed) {
    if (association_.is_deaf() && frame.type != wire::FrameType::kLeave) return;
    switch (frame.type) {
        case wire::FrameType::kGet:
            answer_get(*this, association_, read_as<wire::Get>(fixed));
            break;
        case wire::FrameType::kAtomic:
            answer_atomic(*this, association_, read_as<wire::Atomic>(fixed));
            break;
        case wire::FrameType::kFlush:
            answer_flush(*this, read_as<wire::Reply>(fixed));
            break;
        case wire::FrameType::kAtomicReply:
            if (!on_atomic_reply(association_, read_as<wire::AtomicReply>(fixed))) {
                violation("an answer that nobody asked for");
            }
            break;
        case wire::FrameType::kFlushReply:
            if (!on_flush_reply(association_, read_as<wire::Reply>(fixed), index_)) {
                violation("an answer that nobody asked for");
            }
            break;
        case wire::FrameType::kRefused:
            on_refused(association_, read_as<wire::Refused>(fixed));
            break;
        case wire::FrameType::kCut:
            association_.on_cut(read_as<wire::Cut>(fixed).epoch);
            break;
        case wire::FrameType::kCutDone:
            association_.on_cut_done(read_as<wire::Cut>(fixed).epoch);
            break;
        case wire::FrameType::kLeave:
            peer_left_ = true;
            break;
        default:
            break;
    }
    // Answers are bounded by what a well-behaved peer has outstanding at a time.
    constexpr size_t kMostAnswers = 4096;
    const size_t most = kMostAnswers + association_.rail().config().tx_queue_len;
    if (is_open() && queue_.size() > most) violation("it asks and does not listen");
}

}  // namespace uct::tcp
