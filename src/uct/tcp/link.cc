// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/link.h"

#include <algorithm>
#include <utility>

#include "uct/base/gather.h"
#include "uct/tcp/frames.h"
#include "uct/tcp/tcp_endpoint.h"
#include "uct/tcp/tcp_interface.h"

namespace uct::tcp {

Link::Link(TcpInterface& interface, uint64_t peer, uint32_t number, bool mapped)
    : interface_(interface),
      peer_(peer),
      number_(number),
      mapped_(mapped),
      usable_(static_cast<uint8_t>(interface.config().connections)) {
    fence_done_.link = this;
    fence_done_.callback = [](Completion* self) {
        static_cast<FenceDone*>(self)->link->fence_passed();
    };
}

Link::~Link() {
    for (RemoteOperation* operation : operations_) {
        if (operation != nullptr) interface_.operations().destroy(operation);
    }
}

Channel& Link::channel(unsigned index) {
    if (!channels_[index]) channels_[index] = std::make_unique<Channel>(*this, index);
    return *channels_[index];
}

Channel& Link::bulk_channel() {
    if (usable_ == 1) return channel(0);
    // The least to send; among equals in turn.
    Channel* best = nullptr;
    for (unsigned i = 0; i < usable_ - 1u; ++i) {
        Channel& candidate = channel(1 + (next_bulk_ + i) % (usable_ - 1u));
        if (best == nullptr || candidate.queue().bytes() < best->queue().bytes()) best = &candidate;
    }
    next_bulk_ = static_cast<uint8_t>(best->index() % (usable_ - 1u));
    return *best;
}

bool Link::keeps_pieces() const {
    if (live_session_ != nullptr) return true;
    if (channels_[0] != nullptr && channels_[0]->is_open()) return false;
    return (interface_.session_flags() & wire::kManyWays) != 0;
}

// --- endpoints
// ------------------------------------------------------------------------------

void Link::add(TcpEndpoint& endpoint) {
    endpoints_.push_back(endpoint);
}

void Link::room_made() {
    for (TcpEndpoint& endpoint : endpoints_) interface_.pending().schedule(endpoint);
}

void Link::forget(const TcpEndpoint* endpoint, ucs_status_t status) {
    OutputList items;
    std::vector<Completion*> waiting;
    bool made_room = false;
    for (auto& channel : channels_) {
        if (channel == nullptr) continue;
        const bool was_full = !channel->has_room();
        channel->queue().forget(endpoint, items);
        made_room |= was_full && channel->has_room();
    }
    for (RemoteOperation* operation : operations_) {
        if (operation == nullptr || operation->owner != endpoint || operation->abandoned) continue;
        operation->abandoned = true;
        if (operation->completion != nullptr) waiting.push_back(operation->completion);
    }
    release_unasked(items);
    if (made_room) room_made();
    complete_all(interface_.output_pools(), items, status);
    for (Completion* completion : waiting) completion->complete(status);
}

bool Link::has_chains_of(const TcpEndpoint* endpoint) const {
    return std::ranges::any_of(operations_, [&](const RemoteOperation* operation) {
        return operation != nullptr && operation->chained && operation->owner == endpoint &&
               !operation->abandoned;
    });
}

bool Link::has_outstanding() const {
    return operation_count_ > 0 || std::ranges::any_of(channels_, [](const auto& channel) {
               return channel != nullptr && !channel->queue().empty();
           });
}

bool Link::is_idle() const {
    return std::ranges::all_of(channels_, [](const auto& channel) {
        return channel == nullptr || channel->state() == Channel::State::kIdle;
    });
}

wire::Hello Link::hello() const {
    wire::Hello hello{};
    hello.magic = wire::kMagic;
    hello.version = wire::kVersion;
    hello.sender = interface_.id();
    hello.job_key = interface_.job_key();
    hello.max_frame = static_cast<uint32_t>(interface_.max_message());
    hello.link = number();
    hello.bulk_epoch = bulk_epoch_;
    return hello;
}

// --- the session
// ------------------------------------------------------------------------------

void Link::begin_session(bool accepted) {
    session_ = std::make_unique<Session>(*this, channel(0));
    live_session_ = session_.get();
    session_->begin(accepted);
}

// --- the end
// ------------------------------------------------------------------------------

bool Link::begin_anew() {
    const auto depends = [](const RemoteOperation* operation) {
        return operation != nullptr && operation->is_cut && !operation->abandoned;
    };
    const auto is_open = [](const auto& channel) {
        return channel != nullptr && channel->is_open();
    };
    if (std::ranges::any_of(operations_, depends) || std::ranges::any_of(channels_, is_open)) {
        return false;
    }
    end_cut_chains(bulk_epoch_);
    number_ = interface_.new_link_number();
    peer_number_ = 0;
    for (auto& channel : channels_) {
        if (channel == nullptr) continue;
        channel->close();
        if (!channel->queue().empty()) channel->want_output();
    }
    return true;
}

void Link::fail(ucs_status_t status) {
    if (is_failed()) return;
    status_ = status;
    interface_.unmap(*this);
    interface_.look_at_links();
    OutputList items;
    std::vector<Completion*> waiting;
    if (live_session_ != nullptr) live_session_->stop();
    for (auto& channel : channels_) {
        if (channel == nullptr) continue;
        channel->close();
        channel->queue().take_all(items);
    }
    for (RemoteOperation*& operation : operations_) {
        if (operation == nullptr) continue;
        if (!operation->abandoned && operation->completion != nullptr) {
            waiting.push_back(operation->completion);
        }
        interface_.operations().destroy(std::exchange(operation, nullptr));
    }
    operation_count_ = first_free_ = 0;
    // Handlers and completions may destroy any endpoint, and make new ones on a link of their own.
    for (auto next = endpoints_.begin(); next != endpoints_.end();) {
        TcpEndpoint& endpoint = *next;
        if (!endpoint.set_failed(status)) {
            ++next;
            continue;
        }
        interface_.report_failure(endpoint, status);
        next = endpoints_.begin();
    }
    complete_all(interface_.output_pools(), items, status);
    for (Completion* completion : waiting) completion->complete(status);
}

void Link::channel_ended(Channel& ended, ucs_status_t status, bool peer_left) {
    const bool is_bulk = ended.index() > 0 && !peer_left;
    if (is_bulk && !ended.has_plain()) {
        // Chains are tried again elsewhere. What the peer asked for it has given up.
        drop_output(ended);
        if (ended.has_one_sided()) drop_bulk();
        interface_.look_at_links();
        room_made();
        return;
    }
    // Who leaves on a bulk connection says the same on the first, unless that is being made anew.
    const bool is_stranded =
        ended.index() > 0 && live_session_ != nullptr && live_session_->is_moving();
    if (live_session_ != nullptr && (ended.index() == 0 || is_stranded)) live_session_->stop();
    if (!peer_left || has_outstanding() || is_stranded) {
        if (channels_[0] != nullptr) channels_[0]->drain();
        fail(status);
        return;
    }
    // The peer's program was through with it: what it had not read it did not want.
    for (auto& channel : channels_) {
        if (channel != nullptr) channel->acknowledged = channel->one_sided;
    }
    interface_.look_at_links();
    room_made();
}

bool Link::cut() {
    if (is_failed()) return true;
    if (live_session_ != nullptr && usable_ > 1) {
        // Nothing but chains may be written late, and they are on connections of their own.
        drop_bulk(true);
        return false;
    }
    // What a session keeps for another connection is thrown away with it.
    const bool keeps =
        live_session_ != nullptr && (live_session_->is_moving() || !channels_[0]->is_settled());
    if (live_session_ != nullptr) live_session_->stop();
    const bool is_clean =
        !keeps && !has_outstanding() && std::ranges::none_of(channels_, [](const auto& channel) {
            return channel != nullptr &&
                   (channel->has_one_sided() || channel->has_bytes_under_way());
        });
    for (auto& channel : channels_) {
        if (channel != nullptr) channel->abort();
    }
    // The peer must not take this link's next connections for those that it may still have.
    number_ = interface_.new_link_number();
    peer_number_ = bulk_epoch_ = 0;
    if (is_clean) {
        interface_.look_at_links();
        // Whoever waited for the connection that was being made waits for another.
        const auto waits = [](const TcpEndpoint& endpoint) {
            return !endpoint.PendingQueue::Group::empty();
        };
        if (std::ranges::any_of(endpoints_, waits)) channel(0).want_output();
    } else {
        fail(UCS_ERR_CONNECTION_RESET);
    }
    return true;
}

void Link::abandon() {
    if (usable_ > 1) {
        drop_bulk();
        return;
    }
    for (auto& channel : channels_) {
        if (channel != nullptr) channel->abort();
    }
    fail(UCS_ERR_CANCELED);
}

void Link::connect_failed(Channel& channel, ucs_status_t status) {
    Channel* first = channels_[0].get();
    if (channel.index() > 0 && live_session_ != nullptr && status != UCS_ERR_REJECTED &&
        status != UCS_ERR_NO_MEMORY) {
        live_session_->suspect("no connection");
        drop_bulk();
        return;
    }
    if (channel.index() > 0 && first != nullptr && first->is_open()) {
        give_up(channel);
    } else {
        fail(status);
    }
}

void Link::give_up(Channel& channel) {
    Channel& first = *channels_[0];
    usable_ = std::min(usable_, static_cast<uint8_t>(channel.index()));
    if (channel.has_one_sided()) fenced_ |= 1u;
    for (RemoteOperation* operation : operations_) {
        if (operation == nullptr) continue;
        if (operation->chained && operation->channel == channel.index()) operation->channel = 0;
        const auto bit = static_cast<uint8_t>(1u << channel.index());
        if ((operation->waiting & bit) == 0) continue;
        // It asks on the first, perhaps once more.
        if ((operation->waiting & 1u) != 0) ++operation->again;
        operation->waiting = static_cast<uint8_t>((operation->waiting & ~bit) | 1u);
    }
    first.one_sided += channel.one_sided - channel.acknowledged;
    channel.acknowledged = channel.one_sided;
    first.queue().splice(channel.queue());
    if (!first.queue().empty()) first.want_output();
    room_made();
}

void Link::leave() {
    for (auto& channel : channels_) {
        if (channel != nullptr) channel->leave();
    }
}

bool Link::lingers() {
    bool any = false;
    for (auto& channel : channels_) any |= channel != nullptr && channel->lingers();
    return any;
}

void Link::end_output() {
    for (auto& channel : channels_) {
        if (channel != nullptr) channel->end_output();
    }
}

}  // namespace uct::tcp
