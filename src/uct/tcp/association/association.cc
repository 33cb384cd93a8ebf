// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/association/association.h"

#include <algorithm>
#include <utility>

#include "uct/base/completion_group.h"
#include "uct/tcp/wire/format.h"

namespace uct::tcp {

namespace {

// How an operation ends whose bulk connections are cut: those of chains are tried again on another
// path.
ucs_status_t status_of_cut(const RemoteOperation& operation) {
    return operation.chained ? UCS_ERR_UNREACHABLE : UCS_OK;
}

}  // namespace

Association::Association(const AssociationContext& context, uint64_t peer, bool mapped)
    : context_(context),
      patience_(user_timeout(context.rail.config())),
      peer_(peer),
      identity_{.name = peer_name(NameKind::kTcp, peer)},
      number_(context.owner.new_association_number()),
      mapped_(mapped),
      usable_(static_cast<uint8_t>(context.rail.config().connections)) {
    fence_done_.association = this;
    fence_done_.callback = [](Completion* self) {
        static_cast<FenceDone*>(self)->association->fence_passed();
    };
}

Association::~Association() {
    for (RemoteOperation* operation : operations_) {
        if (operation != nullptr) context_.buffers.operations.destroy(operation);
    }
}

TcpConnection& Association::connection(unsigned index) {
    if (!connections_[index]) connections_[index] = std::make_unique<TcpConnection>(*this, index);
    return *connections_[index];
}

TcpConnection& Association::bulk_connection() {
    if (usable_ == 1) return connection(0);
    // The one with least to send; equals take turns.
    TcpConnection* best = nullptr;
    for (unsigned i = 0; i < usable_ - 1u; ++i) {
        TcpConnection& candidate = connection(1 + (next_bulk_ + i) % (usable_ - 1u));
        if (best == nullptr || candidate.queue().bytes() < best->queue().bytes()) best = &candidate;
    }
    next_bulk_ = static_cast<uint8_t>(best->index() % (usable_ - 1u));
    return *best;
}

bool Association::keeps_pieces() const {
    if (live_session_ != nullptr) return true;
    if (connections_[0] != nullptr && connections_[0]->is_open()) return false;
    return (context_.rail.session_flags() & wire::kManyWays) != 0;
}

// --- endpoints

uint32_t Association::add(AssociationUser& user) {
    users_.push_back(user);
    do {
        if (++last_name_ == wire::kNobody) {
            has_reused_names_ = true;
            ++last_name_;
        }
    } while (has_reused_names_ && find_user(last_name_) != nullptr);
    user.set_name(last_name_);
    return last_name_;
}

AssociationUser* Association::find_user(uint32_t name) {
    const auto found = std::ranges::find(users_, name, &AssociationUser::name);
    return found == users_.end() ? nullptr : &*found;
}

void Association::refuse(const AssociationUser& user) {
    const auto found =
        std::ranges::find_if(users_, [&](const AssociationUser& each) { return &each == &user; });
    if (found != users_.end()) found->on_refused();
}
void Association::forget(const AssociationUser* endpoint, ucs_status_t status) {
    OutputList items;
    bool made_room = false;
    for (auto& connection : connections_) {
        if (connection == nullptr) continue;
        const bool was_full = !connection->has_room();
        connection->queue().forget(endpoint, items);
        made_room |= was_full && connection->has_room();
    }
    for (RemoteOperation* operation : operations_) {
        if (operation == nullptr || operation->owner != endpoint || operation->abandoned) continue;
        operation->abandoned = true;
    }
    // A completion may begin and end others.
    for (size_t slot = 0; slot < operations_.size(); ++slot) {
        RemoteOperation* const operation = operations_[slot];
        if (operation == nullptr || operation->owner != endpoint || !operation->abandoned) continue;
        Completion* const completion = std::exchange(operation->completion, nullptr);
        if (completion != nullptr) completion->complete(status);
    }
    release_unasked(items);
    if (made_room) room_made();
    complete_all(context_.buffers.output, items, status);
}

bool Association::has_chains_of(const AssociationUser* endpoint) const {
    return std::ranges::any_of(operations_, [&](const RemoteOperation* operation) {
        return operation != nullptr && operation->chained && operation->owner == endpoint &&
               !operation->abandoned;
    });
}

bool Association::has_outstanding() const {
    return operation_count_ > 0 || std::ranges::any_of(connections_, [](const auto& connection) {
               return connection != nullptr && !connection->queue().empty();
           });
}

bool Association::is_idle() const {
    return std::ranges::all_of(connections_, [](const auto& connection) {
        return connection == nullptr || connection->state() == TcpConnection::State::kIdle;
    });
}

wire::Hello Association::hello() const {
    wire::Hello hello{};
    hello.magic = wire::kMagic;
    hello.version = wire::kVersion;
    hello.oldest = wire::kOldestVersion;
    hello.sender = context_.rail.id();
    hello.max_frame = static_cast<uint32_t>(context_.rail.max_message());
    hello.association = number();
    hello.bulk_epoch = bulk_epoch_;
    hello.flags = wire::kAnswersBursts;
    return hello;
}

// --- the session

void Association::begin_session(bool accepted) {
    session_ = std::make_unique<Session>(*this, connection(0));
    live_session_ = session_.get();
    session_->begin(accepted);
}

// --- silence

void Association::check(ucs::Time now) {
    // Often enough to be in time, seldom enough to cost nothing beside the traffic.
    constexpr ucs::Duration kOftenest = std::chrono::milliseconds(25);
    constexpr ucs::Duration kSeldomest = std::chrono::seconds(1);
    next_check_ = now + std::clamp(patience_ / 8, kOftenest, kSeldomest);
    drop_silent(now);
    const bool waits = std::ranges::any_of(connections_, [now](const auto& connection) {
        return connection != nullptr && connection->look(now).is_awaited;
    });
    if (is_watched() && (!waits || live_session_ != nullptr)) WatchHook::unlink();
}

void Association::drop_silent(ucs::Time now) {
    for (const auto& connection : connections_) {
        if (connection != nullptr) connection->drop_if_silent(now, patience_);
    }
}

// --- the end

bool Association::begin_anew() {
    const auto depends = [](const RemoteOperation* operation) {
        return operation != nullptr && operation->is_cut && !operation->abandoned;
    };
    const auto is_open = [](const auto& connection) {
        return connection != nullptr && connection->is_open();
    };
    if (std::ranges::any_of(operations_, depends) || std::ranges::any_of(connections_, is_open)) {
        return false;
    }
    end_cut_chains(bulk_epoch_);
    number_ = context_.owner.new_association_number();
    peer_number_ = 0;
    for (auto& connection : connections_) {
        if (connection == nullptr) continue;
        connection->close();
        if (!connection->queue().empty()) connection->want_output();
    }
    return true;
}

void Association::fail(ucs_status_t status) {
    if (is_failed()) return;
    status_ = status;
    context_.owner.unmap(*this);
    context_.owner.look_at_associations();
    OutputList items;
    OperationList ended;
    if (live_session_ != nullptr) live_session_->stop();
    for (auto& connection : connections_) {
        if (connection == nullptr) continue;
        connection->close();
        connection->queue().take_all(items);
    }
    for (RemoteOperation* operation : operations_) {
        if (operation != nullptr) take_out(*operation, ended);
    }
    // Handlers and completions may destroy any endpoint, and make new ones on another association.
    for (auto next = users_.begin(); next != users_.end();) {
        next = next->on_association_failed(status) ? users_.begin() : std::next(next);
    }
    complete_all(context_.buffers.output, items, status);
    end_all(ended, [status](const RemoteOperation&) { return status; });
}

void Association::connection_ended(TcpConnection& ended, ucs_status_t status, bool peer_left) {
    const bool is_bulk = ended.index() > 0 && !peer_left;
    if (is_bulk && !ended.has_plain()) {
        // Chains of this end are tried again on another path; answers to the peer's are dropped, as
        // it has given them up.
        drop_output(ended);
        if (ended.has_one_sided()) drop_bulk();
        context_.owner.look_at_associations();
        room_made();
        return;
    }
    // A peer that leaves on a bulk connection leaves on the first one, too, unless that is being
    // made anew: then this is all that is heard of it.
    const bool is_stranded =
        ended.index() > 0 && live_session_ != nullptr && live_session_->is_moving();
    if (live_session_ != nullptr && (ended.index() == 0 || is_stranded)) live_session_->stop();
    if (!peer_left || has_outstanding() || is_stranded) {
        if (connections_[0] != nullptr) connections_[0]->drain();
        fail(status);
        return;
    }
    // The peer left in good order: what it has not acknowledged it did not need.
    for (auto& connection : connections_) {
        if (connection != nullptr) connection->acknowledged = connection->one_sided;
    }
    context_.owner.look_at_associations();
    room_made();
}

bool Association::cut() {
    if (is_failed()) return true;
    if (live_session_ != nullptr && usable_ > 1) {
        // Only chains may be written late, and these have connections of their own.
        drop_bulk(true);
        return false;
    }
    // Does the session keep anything for its next connection? It is lost with the session.
    const bool keeps =
        live_session_ != nullptr && (live_session_->is_moving() || !connections_[0]->is_settled());
    if (live_session_ != nullptr) live_session_->stop();
    const bool is_clean = !keeps && !has_outstanding() &&
                          std::ranges::none_of(connections_, [](const auto& connection) {
                              return connection != nullptr && (connection->has_one_sided() ||
                                                               connection->has_bytes_under_way());
                          });
    for (auto& connection : connections_) {
        if (connection != nullptr) connection->abort();
    }
    // A new number, so that the peer tells the next connections from the old ones that it may still
    // have.
    number_ = context_.owner.new_association_number();
    peer_number_ = 0;
    bulk_epoch_ = ucs::first_number();
    if (is_clean) {
        context_.owner.look_at_associations();
        // Users that waited for the connection that was being made need another one.
        const auto waits = [](const AssociationUser& user) { return !user.empty(); };
        if (std::ranges::any_of(users_, waits)) connection(0).want_output();
    } else {
        fail(UCS_ERR_CONNECTION_RESET);
    }
    return true;
}

void Association::abandon() {
    if (usable_ > 1) {
        drop_bulk();
        return;
    }
    for (auto& connection : connections_) {
        if (connection != nullptr) connection->abort();
    }
    fail(UCS_ERR_CANCELED);
}

void Association::connect_failed(TcpConnection& connection, ucs_status_t status) {
    TcpConnection* first = connections_[0].get();
    if (connection.index() > 0 && live_session_ != nullptr && status != UCS_ERR_REJECTED &&
        status != UCS_ERR_NO_MEMORY) {
        ++bulk_failures_;
        live_session_->suspect("no connection");
        drop_bulk();
        return;
    }
    if (connection.index() > 0 && first != nullptr && first->is_open()) {
        give_up(connection);
    } else {
        fail(status);
    }
}

void Association::give_up(TcpConnection& connection) {
    TcpConnection& first = *connections_[0];
    usable_ = std::min(usable_, static_cast<uint8_t>(connection.index()));
    if (connection.has_one_sided()) fenced_ |= 1u;
    for (RemoteOperation* operation : operations_) {
        if (operation == nullptr) continue;
        if (operation->chained && operation->connection == connection.index())
            operation->connection = 0;
        const auto bit = static_cast<uint8_t>(1u << connection.index());
        if ((operation->waiting & bit) == 0) continue;
        // The answer is asked for on the first connection, perhaps for the second time.
        if ((operation->waiting & 1u) != 0) ++operation->again;
        operation->waiting = static_cast<uint8_t>((operation->waiting & ~bit) | 1u);
    }
    first.one_sided += connection.one_sided - connection.acknowledged;
    connection.acknowledged = connection.one_sided;
    first.queue().splice(connection.queue());
    if (!first.queue().empty()) first.want_output();
    room_made();
}

void Association::leave() {
    for (auto& connection : connections_) {
        if (connection != nullptr) connection->leave();
    }
}

bool Association::lingers() {
    bool any = false;
    for (auto& connection : connections_) any |= connection != nullptr && connection->lingers();
    return any;
}

void Association::end_output() {
    for (auto& connection : connections_) {
        if (connection != nullptr) connection->end_output();
    }
}

// --- the connections that carry chains alone, and may be cut while messages go on

bool Association::has_bulk() const {
    const auto carries = [](const auto& connection) {
        return connection != nullptr && connection->index() > 0 &&
               (connection->state() != TcpConnection::State::kIdle || connection->has_one_sided());
    };
    return std::ranges::any_of(connections_, carries);
}

void Association::drop_output(TcpConnection& connection) {
    OutputList items;
    connection.take_output(items);
    complete_all(context_.buffers.output, items, UCS_ERR_UNREACHABLE);
}

void Association::send_cut(wire::FrameType type, uint32_t epoch) {
    const auto head = head_of(type, wire::Cut{epoch, 0}, 0);
    const iovec piece{const_cast<Head<wire::Cut>*>(&head), sizeof(head)};
    connection(0).send({&piece, 1}, sizeof(head));
}

void Association::drop_bulk(bool always) {
    if (is_failed() || (!always && !has_bulk())) return;
    end_bulk(bulk_epoch_ + 1);
    if (!is_failed()) send_cut(wire::FrameType::kCut, bulk_epoch_);
}

void Association::end_bulk(uint32_t epoch) {
    const auto has_plain = [](const auto& connection) {
        return connection != nullptr && connection->index() > 0 && connection->has_plain();
    };
    if (std::ranges::any_of(connections_, has_plain)) {
        if (connections_[0] != nullptr) connections_[0]->drain();
        fail(UCS_ERR_CONNECTION_RESET);
        return;
    }
    bulk_epoch_ = epoch;
    OutputList items;
    for (auto& connection : connections_) {
        if (connection == nullptr || connection->index() == 0) continue;
        connection->abort();
        connection->take_output(items);
        connection->acknowledged = connection->one_sided;
    }
    // Gets are over: nothing is written to memory here any more. Of puts the peer may have a part.
    OperationList over;
    for (RemoteOperation* operation : operations_) {
        if (operation == nullptr || operation->is_cut) continue;
        if (operation->chained && operation->connection > 0) {
            if (operation->kind == RemoteOperation::Kind::kFlush) {
                operation->is_cut = true;
                operation->epoch = epoch;
            } else {
                take_out(*operation, over);
            }
        } else if (operation->kind == RemoteOperation::Kind::kFlush &&
                   (operation->waiting & ~1u) != 0) {
            operation->waiting &= 1u;
            if (operation->waiting == 0) take_out(*operation, over);
        }
    }
    end_all(over, status_of_cut);
    complete_all(context_.buffers.output, items, UCS_ERR_UNREACHABLE);
    room_made();
}

void Association::end_cut_chains(uint32_t epoch) {
    OperationList over;
    for (RemoteOperation* operation : operations_) {
        if (operation != nullptr && operation->is_cut && !ucs::is_before(epoch, operation->epoch)) {
            take_out(*operation, over);
        }
    }
    end_all(over, status_of_cut);
}

void Association::on_cut(uint32_t epoch) {
    if (ucs::is_before(bulk_epoch_, epoch)) end_bulk(epoch);
    if (is_failed()) return;
    end_cut_chains(epoch);
    if (!is_failed()) send_cut(wire::FrameType::kCutDone, epoch);
}
}  // namespace uct::tcp
