// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/link.h"

#include <algorithm>
#include <utility>

#include "uct/base/gather.h"
#include "uct/tcp/frames.h"
#include "uct/tcp/tcp_endpoint.h"
#include "uct/tcp/tcp_interface.h"

namespace uct::tcp {

namespace {

// The peer bounds its answers by this; the link's own flushes have some room more. Slots are named
// by one byte.
constexpr size_t kMostOperations = 224, kMostSlots = 256;
constexpr unsigned kSlotBits = 8;
static_assert(kMostSlots <= 1u << kSlotBits);

}  // namespace

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

// --- operations that the peer answers
// ------------------------------------------------------------------------------

bool Link::has_operation_room(size_t count) const {
    return operation_room() >= count;
}

size_t Link::operation_room() const {
    return kMostOperations - std::min(kMostOperations, operation_count_);
}

RemoteOperation* Link::start_operation(RemoteOperation::Kind kind, const TcpEndpoint* owner,
                                       Completion* completion) {
    size_t slot = first_free_;
    while (slot < operations_.size() && operations_[slot] != nullptr) ++slot;
    if (slot == kMostSlots) return nullptr;
    RemoteOperation* made = interface_.operations().create(kind);
    if (made == nullptr) return nullptr;
    if (slot == operations_.size()) operations_.push_back(nullptr);
    operations_[slot] = made;
    first_free_ = slot + 1;
    ++operation_count_;
    made->name = ++serial_ << kSlotBits | static_cast<uint32_t>(slot);
    if (made->name == wire::kNoOperation) made->name = ++serial_ << kSlotBits | slot;
    made->owner = owner;
    made->completion = completion;
    return made;
}

RemoteOperation* Link::find_operation(uint32_t name) {
    const size_t slot = name & ((1u << kSlotBits) - 1);
    if (slot >= operations_.size()) return nullptr;
    RemoteOperation* found = operations_[slot];
    return found != nullptr && found->name == name ? found : nullptr;
}

void Link::release(RemoteOperation& operation) {
    const size_t slot = operation.name & ((1u << kSlotBits) - 1);
    operations_[slot] = nullptr;
    first_free_ = std::min(first_free_, slot);
    interface_.operations().destroy(&operation);
    if (operation_count_-- == kMostOperations) room_made();
}

void Link::finish_operation(RemoteOperation& operation, ucs_status_t status) {
    // The peer handles what comes on a connection in order: an answer answers all before it.
    for (auto& channel : channels_) {
        if (channel == nullptr) continue;
        channel->acknowledged =
            std::max(channel->acknowledged, operation.covered[channel->index()]);
    }
    Completion* completion = operation.abandoned ? nullptr : operation.completion;
    const bool unpacks = operation.kind == RemoteOperation::Kind::kGetCopy && status == UCS_OK &&
                         !operation.abandoned;
    if (unpacks) {
        operation.unpack(operation.unpack_argument, operation.copy.get(), operation.length);
    }
    release(operation);
    if (completion != nullptr) completion->complete(status);
}

ucs_status_t Link::ask(const TcpEndpoint* owner, Completion* completion, bool probe) {
    if (owner != nullptr && !has_operation_room()) return UCS_ERR_NO_RESOURCE;
    RemoteOperation* operation = start_operation(RemoteOperation::Kind::kFlush, owner, completion);
    if (operation == nullptr) return UCS_ERR_NO_RESOURCE;
    if (probe) channel(0);
    for (auto& channel : channels_) {
        if (channel == nullptr) continue;
        operation->covered[channel->index()] = channel->one_sided;
        if (!channel->has_one_sided() && !(probe && channel->index() == 0)) continue;
        operation->waiting |= static_cast<uint8_t>(1u << channel->index());
        struct {
            wire::Frame frame;
            wire::Reply flush;
        } message{{sizeof(wire::Reply), wire::FrameType::kFlush, 0, wire::kMark},
                  {operation->name, 0}};
        const iovec piece{&message, sizeof(message)};
        channel->send({&piece, 1}, sizeof(message));
    }
    return UCS_INPROGRESS;
}

ucs_status_t Link::flush(const TcpEndpoint* owner, Completion* completion) {
    const auto asks = [](const auto& channel) {
        return channel != nullptr && channel->has_one_sided();
    };
    const auto waits = [](const auto& channel) {
        return channel != nullptr && !channel->has_one_sided() && !channel->is_settled();
    };
    const bool needs_peer = std::ranges::any_of(channels_, asks);
    if (std::ranges::none_of(channels_, waits)) {
        return needs_peer ? ask(owner, completion, false) : UCS_OK;
    }
    Gather* parts = Gather::start(completion);
    for (auto& channel : channels_) {
        if (!waits(channel) || channel->queue().append_marker(owner, parts->add())) continue;
        parts->cancel();
        parts->abandon();
        return UCS_ERR_NO_RESOURCE;
    }
    if (needs_peer) {
        const ucs_status_t status = ask(owner, parts->add(), false);
        if (status != UCS_INPROGRESS) {
            parts->cancel();
            parts->abandon();
            return status;
        }
    }
    return parts->finish();
}

ucs_status_t Link::probe(const TcpEndpoint* owner, Completion* completion) {
    return ask(owner, completion, true);
}

RemoteOperation* Link::start_put_chain(const TcpEndpoint* owner, Completion* completion,
                                       unsigned channel) {
    RemoteOperation* made = start_operation(RemoteOperation::Kind::kFlush, owner, completion);
    if (made == nullptr) return nullptr;
    made->chained = true;
    made->channel = static_cast<uint8_t>(channel);
    made->waiting = static_cast<uint8_t>(1u << channel);
    return made;
}

bool Link::on_flush_reply(RemoteOperation& operation, unsigned channel) {
    const auto bit = static_cast<uint8_t>(1u << channel);
    if ((operation.waiting & bit) == 0) return false;
    operation.waiting &= static_cast<uint8_t>(~bit);
    if (operation.waiting == 0) finish_operation(operation, UCS_OK);
    return true;
}

void Link::fence() {
    for (const auto& channel : channels_) {
        if (channel == nullptr || !channel->has_one_sided()) continue;
        fenced_ |= static_cast<uint8_t>(1u << channel->index());
    }
}

bool Link::passes_fence(const Channel& target) {
    if (fenced_ == 0) [[likely]]
        return true;
    for (const auto& channel : channels_) {
        if (channel == nullptr || channel->has_one_sided()) continue;
        fenced_ &= static_cast<uint8_t>(~(1u << channel->index()));
    }
    if ((fenced_ & ~(1u << target.index())) == 0) return true;
    if (!fencing_) {
        fence_done_.count = 1;
        fencing_ = ask(nullptr, &fence_done_, false) == UCS_INPROGRESS;
    }
    return false;
}

void Link::fence_passed() {
    fencing_ = false;
    room_made();
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

// --- the session
// ------------------------------------------------------------------------------

void Link::begin_session() {
    session_ = std::make_unique<Session>(*this, channel(0));
    live_session_ = session_.get();
    session_->begin();
}

// --- bulk connections
// ------------------------------------------------------------------------------

bool Link::has_bulk() const {
    const auto carries = [](const auto& channel) {
        return channel != nullptr && channel->index() > 0 &&
               (channel->state() != Channel::State::kIdle || channel->has_one_sided());
    };
    return std::ranges::any_of(channels_, carries);
}

void Link::drop_output(Channel& channel) {
    OutputList items;
    channel.take_output(items);
    complete_all(interface_.output_pools(), items, UCS_ERR_UNREACHABLE);
}

void Link::send_cut(wire::FrameType type, uint32_t epoch) {
    const auto head = head_of(type, wire::Cut{epoch, 0}, 0);
    const iovec piece{const_cast<Head<wire::Cut>*>(&head), sizeof(head)};
    channel(0).send({&piece, 1}, sizeof(head));
}

void Link::drop_bulk(bool always) {
    if (is_failed() || (!always && !has_bulk())) return;
    end_bulk(bulk_epoch_ + 1);
    if (!is_failed()) send_cut(wire::FrameType::kCut, bulk_epoch_);
}

void Link::end_bulk(uint32_t epoch) {
    const auto has_plain = [](const auto& channel) {
        return channel != nullptr && channel->index() > 0 && channel->has_plain();
    };
    if (std::ranges::any_of(channels_, has_plain)) {
        channels_[0]->drain();
        fail(UCS_ERR_CONNECTION_RESET);
        return;
    }
    bulk_epoch_ = epoch;
    OutputList items;
    for (auto& channel : channels_) {
        if (channel == nullptr || channel->index() == 0) continue;
        channel->abort();
        channel->take_output(items);
        channel->acknowledged = channel->one_sided;
    }
    // Nothing is written here any more, so gets are over. Of puts the peer may have something.
    std::vector<RemoteOperation*> over;
    for (RemoteOperation* operation : operations_) {
        if (operation == nullptr || operation->is_cut) continue;
        if (operation->chained && operation->channel > 0) {
            if (operation->kind == RemoteOperation::Kind::kFlush) {
                operation->is_cut = true;
                operation->epoch = epoch;
            } else {
                over.push_back(operation);
            }
        } else if (operation->kind == RemoteOperation::Kind::kFlush &&
                   (operation->waiting & ~1u) != 0) {
            operation->waiting &= 1u;
            if (operation->waiting == 0) over.push_back(operation);
        }
    }
    finish_all(over);
    complete_all(interface_.output_pools(), items, UCS_ERR_UNREACHABLE);
    room_made();
}

void Link::end_cut_chains(uint32_t epoch) {
    std::vector<RemoteOperation*> over;
    for (RemoteOperation* operation : operations_) {
        if (operation != nullptr && operation->is_cut && operation->epoch <= epoch) {
            over.push_back(operation);
        }
    }
    finish_all(over);
}

/** Completions may do what they like, but for the list: nothing of it is released twice. */
void Link::finish_all(const std::vector<RemoteOperation*>& over) {
    std::vector<std::pair<Completion*, ucs_status_t>> ended;
    for (RemoteOperation* operation : over) {
        const ucs_status_t status = operation->chained ? UCS_ERR_UNREACHABLE : UCS_OK;
        if (!operation->abandoned && operation->completion != nullptr) {
            ended.emplace_back(operation->completion, status);
        }
        release(*operation);
    }
    for (const auto& [completion, status] : ended) completion->complete(status);
}

void Link::on_cut(uint32_t epoch) {
    if (epoch > bulk_epoch_) end_bulk(epoch);
    if (is_failed()) return;
    end_cut_chains(epoch);
    if (!is_failed()) send_cut(wire::FrameType::kCutDone, epoch);
}

void Link::on_cut_done(uint32_t epoch) {
    if (epoch <= bulk_epoch_) end_cut_chains(epoch);
}

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

// --- the end
// ------------------------------------------------------------------------------

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
    if (live_session_ != nullptr) live_session_->stop();
    if (!peer_left || has_outstanding()) {
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
    if (live_session_ != nullptr) live_session_->stop();
    const bool is_clean =
        !has_outstanding() && std::ranges::none_of(channels_, [](const auto& channel) {
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
        const auto bit = static_cast<uint8_t>(1u << channel.index());
        if ((operation->waiting & bit) == 0) continue;
        // It asks once more on the first.
        operation->waiting = static_cast<uint8_t>((operation->waiting & ~bit) | 1u);
        if (operation->channel == channel.index()) operation->channel = 0;
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
