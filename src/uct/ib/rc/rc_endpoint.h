// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>

#include "uct/ib/base/operations.h"
#include "uct/ib/rc/rc_interface.h"

namespace uct::ib {

class RcEndpoint final : public Operations<RcEndpoint>,
                         private SendQueueOwner,
                         public PendingQueue::Group {
  public:
    // `qp` is in the init state.
    RcEndpoint(RcInterface& interface, QpPtr qp, const QpAddress& local);
    ~RcEndpoint() override;

    ucs_status_t fence() override;
    ucs_status_t flush(Completion* completion) override;
    ucs_status_t pending_add(Pending* pending) override;
    void pending_remove(Pending* pending) override;
    bool is_connected(const RemoteAddress& remote) const override;
    ucs_status_t get_address(std::span<std::byte> address) const override;
    ucs_status_t connect(const RemoteAddress& remote) override;
    void set_peer(uint64_t worker) override { peer_ = {.worker = worker, .is_lane = true}; }
    void set_receive_gate(ReceiveGate* gate) override;
    ssize_t put_chain_immediate(std::span<const ChainPiece> pieces, uint32_t value,
                                Completion* completion) override;
    void deliver_immediates(uint8_t id, uint64_t tag) override { immediates_ = {id, tag}; }

    // --- for Operations ---
    RcInterface& interface() { return interface_; }
    SendQueue* acquire(ucs_status_t* status) {
        if (status_ != UCS_OK) [[unlikely]] {
            *status = status_;
            return nullptr;
        }
        if (!queue_->has_room()) [[unlikely]] {
            *status = no_room();
            return nullptr;
        }
        return &*queue_;
    }
    SendQueue* acquire_message(ucs_status_t* status) {
        SendQueue* queue = acquire(status);
        if (credits_ <= 0 && queue != nullptr) [[unlikely]] {
            *status = wait_for_grant();
            return nullptr;
        }
        return queue;
    }
    // A message begins with its id and with what flow control adds.
    static constexpr size_t kFront = 1;
    struct __attribute__((packed)) Front {
        uint8_t first;
        uint64_t header;
    };
    static Front plain_front(uint8_t id, uint64_t header) { return {id, header}; }
    Front front(uint8_t id, uint64_t header) const {
        return {static_cast<uint8_t>(id | message_flags()), header};
    }
    void write_front(std::byte* to, uint8_t id) const {
        *to = static_cast<std::byte>(id | message_flags());
    }
    uint8_t message_flags() const {
        if (credits_ > soft_ && !owes_grant_) [[likely]]
            return 0;
        return flags_slow();
    }
    void message_posted() {
        if (owes_grant_ && (flags_slow() & am_header::kGrant) != 0) owes_grant_ = false;
        credits_ -= used_per_message_;
    }
    bool post(SendQueue& queue, WorkRequest& request, SendOperation* operation) {
        if (fence_next_) [[unlikely]] {
            request.fenced = true;
            fence_next_ = false;
        }
        return queue.post(request, operation);
    }
    ssize_t post_chain(SendQueue& queue, Opcode opcode, std::span<const ChainPiece> pieces,
                       SendOperation& operation, const uint32_t* immediate) {
        return queue.post_chain(opcode, pieces, {}, operation, immediate);
    }
    // A queue that is not connected or failed has no plain room, and credits are above the soft
    // threshold always if there is no flow control.
    SendQueue* plain_queue() {
        if (credits_ > soft_ && !owes_grant_ && !fence_next_ && queue_->has_plain_room()) [[likely]]
            return &*queue_;
        return nullptr;
    }
    bool post_plain(SendQueue& queue, std::span<const ibv_data_buf, 2> pieces) {
        credits_ -= used_per_message_;
        return queue.post_plain(nullptr, pieces);
    }
    static constexpr bool keeps_requests() { return false; }

    // --- for the interface ---
    // Could a waiting element send, as far as this endpoint goes?
    bool has_own_room() const { return queue_->has_own_room(); }
    bool waits_for_grant() const { return waits_for_grant_; }
    ReceiveGate* gate() const { return gate_; }
    PeerIdentity& peer() { return peer_; }
    // What the peer's immediates become: messages of this id, with this tag.
    struct Immediates {
        uint8_t id;
        uint64_t tag;
    };
    const std::optional<Immediates>& immediates() const { return immediates_; }
    void granted();
    void grant_with_next_message() { owes_grant_ = true; }
    // Send a grant now, or as soon as there is room.
    void grant_now();
    // Ask again for a grant that does not come; finds a dead peer.
    void ask_again();

  private:
    void on_completed(SendQueue& queue) override;
    void on_failed(SendQueue& queue, uint32_t index, ucs_status_t status) override;
    void signal_rest(SendQueue& queue) override { queue.signal({}); }

    ucs_status_t no_room();
    ucs_status_t wait_for_grant();
    uint8_t flags_slow() const;
    bool send_control(uint8_t header);
    void stop_waiting();

    RcInterface& interface_;
    std::optional<SendQueue> queue_;
    ucs_status_t status_ = UCS_ERR_NOT_CONNECTED;
    bool fence_next_ : 1 = false;
    bool owes_grant_ : 1 = false;
    bool waits_for_grant_ = false;
    int credits_;
    const int soft_, hard_;
    const int used_per_message_;  // 1; 0 without flow control
    ReceiveGate* gate_ = nullptr;
    PeerIdentity peer_;
    std::optional<Immediates> immediates_;
    const QpAddress local_;
    QpAddress remote_;
    PortAddress remote_port_;
};

}  // namespace uct::ib
