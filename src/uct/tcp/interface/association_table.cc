// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/interface/association_table.h"

#include <utility>

#include "ucs/log/log.h"
#include "ucs/runtime/runtime.h"
#include "uct/base/completion_group.h"

namespace uct::tcp {

Association& AssociationTable::make(uint64_t peer, bool mapped) {
    auto* made = new Association(context_, peer, mapped);
    if (guests_.contains(peer)) made->set_guest();
    associations_.push_back(*made);
    if (mapped) by_peer_.emplace(peer, made);
    return *made;
}

Association& AssociationTable::to(uint64_t peer) {
    const auto found = by_peer_.find(peer);
    return found != by_peer_.end() ? *found->second : make(peer, true);
}

uint32_t AssociationTable::new_association_number() {
    if (++last_number_ == 0) ++last_number_;
    return last_number_;
}

void AssociationTable::unmap(Association& association) {
    if (!association.is_mapped()) return;
    const auto found = by_peer_.find(association.peer());
    if (found != by_peer_.end() && found->second == &association) by_peer_.erase(found);
}

// --- guests

ucs_status_t AssociationTable::invite(uint64_t guest, wire::Secret* secret) {
    const auto known = guests_.find(guest);
    if (known != guests_.end()) {
        *secret = known->second;
        return UCS_OK;
    }
    // One that was invited before, and has not left yet, comes back.
    const auto found = by_peer_.find(guest);
    const bool is_other = found != by_peer_.end() && !found->second->is_guest();
    if (is_other || guest == context_.rail.id()) return UCS_ERR_REJECTED;
    *secret = {ucs::unique_id(), ucs::unique_id()};
    guests_.emplace(guest, *secret);
    if (found != by_peer_.end()) found->second->set_shut(false);
    return UCS_OK;
}

void AssociationTable::end_invitation(uint64_t guest) {
    guests_.erase(guest);
    const auto found = by_peer_.find(guest);
    if (found != by_peer_.end()) found->second->set_shut(true);
}

void AssociationTable::cut_off(uint64_t peer) {
    for (Association& association : associations_) {
        if (association.peer() != peer) continue;
        const uint32_t number = association.peer_number();
        if (association.cut() && number != 0) cut_off_[peer] = number;
    }
}

ucs_status_t AssociationTable::flush(Completion* completion) {
    CompletionGroup* all = CompletionGroup::start(completion);
    for (Association& association : associations_) {
        if (association.is_failed()) continue;
        Completion* one = all->add();
        const ucs_status_t status = association.flush(nullptr, one);
        if (status == UCS_INPROGRESS) continue;
        all->cancel();
        if (status == UCS_OK) continue;
        all->abandon();
        return status;
    }
    return all->finish();
}

void AssociationTable::reap() {
    if (!has_changed_) return;
    has_changed_ = false;
    for (auto next = associations_.begin(); next != associations_.end();) {
        Association& association = *next++;
        if (association.has_users() || !association.is_idle()) continue;
        unmap(association);
        delete &association;
    }
}

void AssociationTable::clear() {
    associations_.clear_and_dispose([](Association* association) { delete association; });
    by_peer_.clear();
}

// --- handshakes

wire::Answer AssociationTable::answer_to(const wire::Hello& hello) {
    if (hello.max_frame != context_.rail.max_message()) {
        ucs::log_error(
            "{}: a peer sends messages of another size: UCX_TCP_RX_SEG_SIZE must be the "
            "same everywhere",
            context_.rail.device().name);
        return wire::Answer::kMismatch;
    }
    const auto cut = cut_off_.find(hello.sender);
    if (cut != cut_off_.end() && hello.association <= cut->second) return wire::Answer::kCutOff;
    const auto known = by_peer_.find(hello.sender);
    if (hello.sender == context_.rail.id() || known == by_peer_.end())
        return wire::Answer::kWelcome;
    Association& association = *known->second;
    TcpConnection& connection = association.connection(hello.connection);
    if (association.peer_number() != 0 && association.peer_number() != hello.association) {
        // The peer began anew. What it still sent before counts; what waits for it is lost.
        if (TcpConnection* first = association.existing(0)) first->drain();
        connection.drain();
        if (!association.is_failed()) association.fail(UCS_ERR_CONNECTION_RESET);
        return wire::Answer::kWelcome;
    }
    if (Session* session = association.session(); hello.connection == 0 && session != nullptr) {
        if (session->may_begin_again()) return wire::Answer::kWelcome;
        if (association.is_failed()) return wire::Answer::kCutOff;
    }
    if (hello.connection > 0 && association.peer_number() != 0) {
        if (ucs::is_before(hello.bulk_epoch, association.bulk_epoch())) return wire::Answer::kStale;
        if (hello.bulk_epoch != association.bulk_epoch()) association.end_bulk(hello.bulk_epoch);
        if (association.is_failed()) return wire::Answer::kCutOff;
    }
    // Open: the peer made this attempt before it knew of the connection that stands.
    return connection.is_open() || !connection.must_yield_to(hello.sender) ? wire::Answer::kYield
                                                                           : wire::Answer::kWelcome;
}

// The one whose session goes on, or null.
Association* AssociationTable::resumed_by(const wire::Hello& hello) const {
    const auto known = by_peer_.find(hello.sender);
    if (known == by_peer_.end()) return nullptr;
    Association& association = *known->second;
    const bool is_meant = association.session() != nullptr && hello.connection == 0 &&
                          association.number() == hello.peer_association &&
                          association.peer_number() == hello.association;
    return is_meant ? &association : nullptr;
}

std::optional<wire::Key> AssociationTable::key_for(const wire::Hello& hello) const {
    if ((hello.flags & wire::kResumes) == 0) {
        const auto guest = guests_.find(hello.sender);
        return context_.rail.key_of(guest == guests_.end() ? context_.rail.secret()
                                                           : guest->second);
    }
    const Association* association = resumed_by(hello);
    if (association == nullptr) return std::nullopt;
    return association->session_key();
}

void AssociationTable::resume(const AuthenticatedPeer& peer, SocketStream stream, bool is_new) {
    const wire::Hello& hello = peer.hello;
    Association* association = resumed_by(hello);
    Session* session = association == nullptr ? nullptr : association->session();
    const wire::Answer answer = session == nullptr ? wire::Answer::kUnknown : session->judge(hello);
    if (answer == wire::Answer::kWelcome) {
        session->accept(peer, std::move(stream), is_new);
    } else {
        peer.send(stream, AuthenticatedPeer::answer(answer));
    }
    look_at_associations();
}

void AssociationTable::welcome(const AuthenticatedPeer& peer, SocketStream stream, bool is_new) {
    const wire::Hello& hello = peer.hello;
    if ((hello.flags & wire::kResumes) != 0) {
        resume(peer, std::move(stream), is_new);
        return;
    }
    if (context_.rail.is_leaving()) return;
    wire::Welcome welcome = AuthenticatedPeer::answer(answer_to(hello));
    welcome.connection = hello.connection;
    welcome.max_frame = static_cast<uint32_t>(context_.rail.max_message());
    Association* association = nullptr;
    if (welcome.answer == wire::Answer::kWelcome) {
        // What this worker sends to itself arrives on an association of its own.
        association =
            hello.sender == context_.rail.id() ? &make(hello.sender, false) : &to(hello.sender);
        if (association->peer_number() == 0) association->set_bulk_epoch(hello.bulk_epoch);
        association->set_peer_number(hello.association);
        association->set_peer_flags(hello.flags);
        if (hello.connection == 0) association->set_session_key(peer.session_key());
        welcome.association = association->number();
        // Sessions look for other ways to the peer, and guests are never called.
        const bool has_session = association->is_mapped() && !association->is_guest();
        if (has_session) welcome.flags |= context_.rail.session_flags();
    }
    const bool sent = peer.send(stream, welcome);
    Session* session =
        association != nullptr && hello.connection == 0 ? association->session() : nullptr;
    if (sent && session != nullptr) {
        session->begin_again(std::move(stream), is_new);
    } else if (sent && association != nullptr) {
        const bool resumes = hello.connection == 0 && association->is_mapped() &&
                             !association->is_guest() &&
                             context_.rail.keeps_sessions_with(static_cast<uint8_t>(hello.flags));
        association->connection(hello.connection).adopt(std::move(stream), is_new, resumes);
    }
    look_at_associations();
}

}  // namespace uct::tcp
