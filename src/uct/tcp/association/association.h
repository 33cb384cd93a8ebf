// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <boost/intrusive/list.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "uct/tcp/association/context.h"
#include "uct/tcp/association/session.h"
#include "uct/tcp/association/tcp_connection.h"
#include "uct/tcp/wire/address.h"

namespace uct::tcp {

using UserHook =
    boost::intrusive::list_base_hook<boost::intrusive::tag<struct UserTag>,
                                     boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;

// Who sends over an association, and may wait for room there: an endpoint.
class AssociationUser : public PendingQueue::Group, public UserHook {
  public:
    // Nothing can be sent any more. May destroy any user of the association.
    // @return false if the user knew it: nothing was done
    virtual bool on_association_failed(ucs_status_t status) = 0;
    // The peer refused an operation of this user alone: it breaks the rules of memory access.
    virtual void on_refused() = 0;

    // Among the users of the association; on the wire.
    uint32_t name() const { return name_; }
    void set_name(uint32_t name) { name_ = name; }

  protected:
    ~AssociationUser() = default;

  private:
    uint32_t name_ = 0;
};

using AssociationHook =
    boost::intrusive::list_base_hook<boost::intrusive::tag<struct AssociationTag>,
                                     boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;

// All that two interfaces have between them, whatever the number of endpoints: up to 8 connections,
// the operations that wait for the peer's answer.
//
// Messages, small writes and atomics keep to connection 0 and so keep their order; large reads and
// writes take the other connections, so that messages never wait behind them.
class Association final : public AssociationHook, public Watched {
  public:
    static constexpr unsigned kMaxConnections = wire::kMaxConnections;

    // @param mapped  whether the interface finds it by the peer's id
    Association(const AssociationContext& context, uint64_t peer, bool mapped);
    ~Association();
    Association(const Association&) = delete;

    Rail& rail() const { return context_.rail; }
    EventLoop& events() const { return context_.events; }
    Buffers& buffers() const { return context_.buffers; }
    Attention& attention() const { return context_.attention; }
    AssociationOwner& owner() const { return context_.owner; }
    uint64_t peer() const { return peer_; }
    // Whom its messages are from.
    PeerIdentity& identity() { return identity_; }
    // Tells this association from earlier and later ones of the interface; never 0.
    uint32_t number() const { return number_; }
    // The peer's; 0 until it is known.
    uint32_t peer_number() const { return peer_number_; }
    void set_peer_number(uint32_t number) { peer_number_ = number; }
    // Does it acknowledge bursts? @param flags  of wire::Flag
    bool answers_bursts() const { return answers_bursts_; }
    void set_peer_flags(uint32_t flags) { answers_bursts_ = (flags & wire::kAnswersBursts) != 0; }
    bool is_mapped() const { return mapped_; }
    bool is_failed() const { return status_ != UCS_OK; }
    ucs_status_t status() const { return status_; }

    // The peer is a guest: it connects, and is never called. One connection has to do.
    bool is_guest() const { return is_guest_; }
    void set_guest() {
        is_guest_ = true;
        usable_ = 1;
    }
    // What the peer says is read and thrown away: it is not invited any more.
    bool is_shut() const { return is_shut_; }
    void set_shut(bool is_shut) { is_shut_ = is_shut; }
    // Nobody listens to the peer.
    bool is_deaf() const { return is_shut_ || context_.rail.is_leaving(); }

    // Where the peer listens; known from the first endpoint on.
    struct Target {
        DeviceAddress device;
        ListenerAddress listener;
    };
    const std::optional<Target>& target() const { return target_; }
    void set_target(const Target& target) { target_ = target; }

    TcpConnection& connection(unsigned index);
    TcpConnection* existing(unsigned index) const { return connections_[index].get(); }
    // The connection for the next large piece of a chain: that with the least to send.
    TcpConnection& bulk_connection();
    // The same for what is of no chain, and in a session has to survive its connection.
    TcpConnection& piece_connection() { return keeps_pieces() ? connection(0) : bulk_connection(); }

    // --- operations that the peer answers ---

    bool has_operation_room(size_t count = 1) const { return operation_room() >= count; }
    // @param owner null: the association's own. Null without memory.
    RemoteOperation* start_operation(RemoteOperation::Kind kind, const AssociationUser* owner,
                                     Completion* completion);
    RemoteOperation* find_operation(uint32_t name);
    // The peer has answered.
    void finish_operation(RemoteOperation& operation, ucs_status_t status);
    // The peer is asked only where it alone knows: of one-sided operations. Messages are done when
    // the kernel has them.
    // @return UCS_OK if nothing is outstanding; UCS_INPROGRESS; UCS_ERR_NO_RESOURCE
    ucs_status_t flush(const AssociationUser* owner, Completion* completion);
    // A question and an answer on connection 0, whatever is outstanding.
    ucs_status_t probe(const AssociationUser* owner, Completion* completion) {
        return ask(owner, completion, true);
    }
    // @return false if that connection was not asked
    bool on_flush_reply(RemoteOperation& operation, unsigned connection);
    // For a kFlush frame that the caller sends behind puts on one connection.
    RemoteOperation* start_put_chain(const AssociationUser* owner, Completion* completion,
                                     unsigned connection);
    // What it covers is all that its connection has been given.
    void end_chain(RemoteOperation& operation);
    size_t operation_room() const;
    // Take back one that has not been sent.
    void cancel_operation(RemoteOperation& operation) { release(operation); }

    void fence();
    // May a one-sided operation go to that connection now?
    // @return UCS_OK; UCS_ERR_NO_RESOURCE: the answer is on its way; UCS_ERR_NO_MEMORY: it could
    //         not be asked for, and nothing tells when it can
    ucs_status_t passes_fence(const TcpConnection& connection) {
        return passes_fence_to(1u << connection.index());
    }
    // The same for pieces, whichever connections they take.
    ucs_status_t pieces_pass_fence() {
        return passes_fence_to(keeps_pieces() || usable_ == 1 ? 1u : (1u << usable_) - 2);
    }

    // --- endpoints ---

    // @return its name
    uint32_t add(AssociationUser& user);
    AssociationUser* find_user(uint32_t name);
    // That user alone fails, if it is still here: an operation of it broke the rules.
    void refuse(const AssociationUser& user);
    bool has_users() const { return !users_.empty(); }
    // Something that endpoints may wait for has come.
    void room_made() {
        for (AssociationUser& user : users_) context_.attention.pending.schedule(user);
    }
    // All operations of `endpoint` end now, and no memory of its user is referred to any more.
    void forget(const AssociationUser* endpoint, ucs_status_t status);
    bool is_idle() const;
    // Does that endpoint leave bulk transfers behind that have not ended?
    bool has_chains_of(const AssociationUser* endpoint) const;

    // --- its session ---

    // What both ends have shared since the first connection was made.
    const wire::Key& session_key() const { return session_key_; }
    void set_session_key(const wire::Key& key) { session_key_ = key; }

    // Null if there is none: what breaks is broken.
    Session* session() const { return live_session_; }
    // @param accepted  over a connection that the peer has made
    void begin_session(bool accepted);
    void session_over() { live_session_ = nullptr; }

    // --- silence of the peer's host: looked for by the session, or here ---

    // Something was sent: look after its answers.
    void watch() {
        if (patience_ != ucs::kForever) context_.events.look_after(*this);
    }
    bool is_watched() const { return WatchHook::is_linked(); }
    void check(ucs::Time now) override;
    // End the connections on which nothing was answered for too long.
    void drop_silent(ucs::Time now);

    // --- its bulk connections: all but the first ---

    // What every handshake of a connection says, of whatever connection or session.
    wire::Hello hello() const;

    // Which generation of them counts.
    uint32_t bulk_epoch() const { return bulk_epoch_; }
    void set_bulk_epoch(uint32_t epoch) { bulk_epoch_ = epoch; }
    // How long one of a session may take to be made. Another way may be better, unless several
    // attempts show that there is none: who posted their chains tries again only so often.
    ucs::Duration bulk_connect_time() const {
        constexpr ucs::Duration kFirst = std::chrono::milliseconds(500);
        return kFirst * (1 << std::min(bulk_failures_, 5u));
    }
    void bulk_connected() { bulk_failures_ = 0; }
    // They carry nothing more. Their chains end with UCS_ERR_UNREACHABLE, once the peer can write
    // nothing of them any more.
    // @param always  although there are none: those that are on their way come too late
    void drop_bulk(bool always = false);
    // The peer has dropped them.
    void end_bulk(uint32_t epoch);
    void on_cut(uint32_t epoch);
    void on_cut_done(uint32_t epoch) {
        if (!ucs::is_before(bulk_epoch_, epoch)) end_cut_chains(epoch);
    }

    // --- what becomes of it ---

    // Everything fails; endpoints are reported.
    void fail(ucs_status_t status);
    // A connection ended: in good order if the peer said that it leaves, nothing outstanding.
    void connection_ended(TcpConnection& connection, ucs_status_t status, bool peer_left);
    // The peer knows nothing of this association's connections any more.
    // @return false if anything that was sent depends on them
    bool begin_anew();
    // Without the first connection nothing works; without another things are slower.
    void connect_failed(TcpConnection& connection, ucs_status_t status);
    // Nothing that the peer has sent is handled any more. Endpoints stay whole if nothing of theirs
    // was under way.
    // @return whether the peer's messages are cut off too; in a session its chains alone are
    bool cut();
    // Nobody needs it, and its connections may be stuck: the next endpoint is to begin anew.
    void abandon();
    // The interface goes: what waits is still sent, nothing is received.
    void leave();
    // Are there bytes that would be lost if the association went now? Carries on with sending
    // them.
    bool lingers();
    void end_output();

  private:
    using Users = boost::intrusive::list<AssociationUser, boost::intrusive::base_hook<UserHook>,
                                         boost::intrusive::constant_time_size<false>>;

    struct FenceDone : Completion {
        Association* association = nullptr;
    };

    // Is there a session for large operations, or may connection 0 bring one when it opens?
    bool keeps_pieces() const;
    ucs_status_t ask(const AssociationUser* owner, Completion* completion, bool probe);
    bool ride(RemoteOperation& flush, const TcpConnection& connection);
    void answer_riders(uint32_t name, unsigned connection);
    void give_up(TcpConnection& connection);
    bool has_outstanding() const;
    bool has_bulk() const;
    void drop_output(TcpConnection& connection);
    void send_cut(wire::FrameType type, uint32_t epoch);
    void end_cut_chains(uint32_t epoch);
    void take_out(const RemoteOperation& operation);
    void take_out(RemoteOperation& operation, OperationList& ended) {
        take_out(operation);
        ended.push_back(operation);
    }
    // Completions may do what they like, but for the list: it is the caller's.
    template <typename StatusOf>
    void end_all(OperationList& ended, StatusOf status_of) {
        while (!ended.empty()) {
            RemoteOperation& operation = ended.front();
            ended.pop_front();
            Completion* const completion = operation.abandoned ? nullptr : operation.completion;
            const ucs_status_t status = status_of(operation);
            context_.buffers.operations.destroy(&operation);
            if (completion != nullptr) completion->complete(status);
        }
    }
    // Their frames are not sent: the questions among them get no answer.
    void release_unasked(OutputList& dropped);
    // @param targets  bit i: it may take connection i
    ucs_status_t passes_fence_to(unsigned targets);
    void fence_passed();
    void release(RemoteOperation& operation);

    const AssociationContext context_;
    const ucs::Duration patience_;  // user_timeout()
    const uint64_t peer_;
    PeerIdentity identity_;
    uint32_t number_;
    uint32_t peer_number_ = 0;
    const bool mapped_;
    bool is_guest_ = false;
    bool is_shut_ = false;
    uint8_t usable_;  // connections that may be used
    uint8_t next_bulk_ = 0;
    uint8_t fenced_ = 0;    // bit i: connection i has one-sided operations before the fence
    bool fencing_ = false;  // a flush for the fence is under way
    ucs_status_t status_ = UCS_OK;
    uint32_t bulk_epoch_ = ucs::first_number();
    unsigned bulk_failures_ = 0;  // since one was made
    uint32_t serial_ = 0;
    size_t operation_count_ = 0;
    size_t first_free_ = 0;  // no slot before it is free
    std::optional<Target> target_;
    std::array<std::unique_ptr<TcpConnection>, kMaxConnections> connections_;
    std::unique_ptr<Session> session_;
    wire::Key session_key_{};
    Session* live_session_ = nullptr;  // until it is over
    std::vector<RemoteOperation*> operations_;
    FenceDone fence_done_;
    Users users_;
    uint32_t last_name_ = ucs::first_number();
    bool has_reused_names_ = false;
    bool answers_bursts_ = false;
};

}  // namespace uct::tcp
