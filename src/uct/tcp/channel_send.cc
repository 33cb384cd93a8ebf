// SPDX-License-Identifier: BSD-3-Clause

// What a connection sends.

#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <optional>

#include "uct/tcp/channel.h"
#include "uct/tcp/tcp_interface.h"

namespace uct::tcp {

namespace {

constexpr size_t kMaxPieces = 64;

}  // namespace

/** @return bytes that the kernel took; errors come to light when the socket is read */
size_t Channel::transmit(std::span<const iovec> pieces) {
    link_.interface().on_sent();
    ssize_t taken;
    if (pieces.size() == 1) {
        taken = ::send(socket_.get(), pieces[0].iov_base, pieces[0].iov_len, MSG_NOSIGNAL);
    } else {
        msghdr message{};
        message.msg_iov = const_cast<iovec*>(pieces.data());
        message.msg_iovlen = pieces.size();
        taken = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
    }
    if (taken <= 0) return 0;
    if (Session* session = link_.session(); session != nullptr) {
        if (index_ == 0) session->sent(pieces, static_cast<size_t>(taken));
        if (!session->is_watched()) session->watch();
    }
    return static_cast<size_t>(taken);
}

bool Channel::is_replaying() const {
    const Session* session = link_.session();
    return index_ == 0 && session != nullptr && session->history().is_replaying();
}

/** @return whether the kernel has all that the last connection did not bring to the peer */
bool Channel::replay() {
    History& history = link_.session()->history();
    while (history.is_replaying()) {
        std::array<iovec, kMaxPieces> pieces;
        msghdr message{};
        message.msg_iov = pieces.data();
        message.msg_iovlen = history.gather(pieces);
        const ssize_t taken = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
        if (taken <= 0) return false;
        history.replayed(static_cast<size_t>(taken));
    }
    return true;
}

void Channel::want_output() {
    if (state_ == State::kIdle) {
        start();
    } else if (is_open()) {
        watch(EPOLLIN | EPOLLOUT);
    }
}

void Channel::send(std::span<const iovec> pieces, size_t length, const TcpEndpoint* owner) {
    size_t taken = 0;
    if (is_open() && queue_.empty() && !is_replaying()) [[likely]] {
        taken = transmit(pieces);
        if (taken == length) [[likely]]
            return;
    }
    if (!queue_.append(pieces, taken, owner)) fail_later(UCS_ERR_NO_MEMORY);
    want_output();
}

ucs_status_t Channel::send(ReferringOutput* operation) {
    if (is_open() && queue_.empty() && !is_replaying()) {
        std::array<iovec, ReferringOutput::kMaxPieces + 2> pieces;
        queue_.append(operation);
        const int count = queue_.gather(pieces, nullptr);
        OutputList done;
        queue_.consume(transmit({pieces.data(), static_cast<size_t>(count)}), done);
        if (!done.empty()) {
            link_.interface().output_pools().destroy(operation);
            return UCS_OK;
        }
    } else {
        queue_.append(operation);
    }
    want_output();
    return UCS_INPROGRESS;
}

void Channel::send_queued(bool was_empty) {
    if (was_empty && is_open()) {
        transmit_queue();
    } else {
        want_output();
    }
}

void Channel::transmit_queue() {
    if (is_replaying() && !replay()) {
        watch(EPOLLIN | EPOLLOUT);
        return;
    }
    OutputPools& pools = link_.interface().output_pools();
    OutputList done;
    const bool was_full = !has_room();
    while (!queue_.empty()) {
        std::array<iovec, kMaxPieces> pieces;
        // Memory that peers read may be deregistered by other threads: not while the kernel copies.
        std::optional<RegionTable::Reader> regions;
        if (queue_.has_replies()) regions.emplace(link_.interface().regions());
        const int count = queue_.gather(pieces, regions ? &*regions : nullptr);
        if (count < 0) {
            regions.reset();
            complete_all(pools, done, UCS_OK);
            if (is_open()) violation("memory was deregistered while it was read");
            return;
        }
        size_t wanted = 0;
        for (int i = 0; i < count; ++i) wanted += pieces[static_cast<size_t>(i)].iov_len;
        const size_t taken = transmit({pieces.data(), static_cast<size_t>(count)});
        queue_.consume(taken, done);
        if (taken < wanted) break;
    }
    watch(EPOLLIN | (queue_.empty() ? 0u : EPOLLOUT));
    if (was_full && has_room()) link_.room_made();
    complete_all(pools, done, UCS_OK);
}

}  // namespace uct::tcp
