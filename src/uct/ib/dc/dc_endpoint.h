// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "uct/ib/base/operations.h"
#include "uct/ib/dc/dc_interface.h"

namespace uct::ib {

// One peer as seen over DC. There may be very many: everything that can be shared is.
class DcEndpoint final : public Operations<DcEndpoint>, public PendingQueue::Group {
  public:
    DcEndpoint(DcInterface& interface, const DcTarget& target, const DcTokens& tokens,
               bool is_internal);
    ~DcEndpoint() override;

    ucs_status_t fence() override;
    ucs_status_t flush(Completion* completion) override;
    ucs_status_t pending_add(Pending* pending) override;
    void pending_remove(Pending* pending) override;
    bool is_connected(const RemoteAddress& remote) const override;

    // --- for Operations ---
    DcInterface& interface() { return interface_; }
    SendQueue* acquire(ucs_status_t* status) {
        if (status_ != UCS_OK) [[unlikely]] {
            *status = status_;
            return nullptr;
        }
        DciPool& pool = interface_.pool();
        Dci* dci = dci_ != DciPool::kNone ? &pool.at(dci_) : pool.find_free();
        if (dci == nullptr || !dci->queue.has_room() || pool.is_over_quota(*dci)) [[unlikely]] {
            *status = no_room(dci);
            return nullptr;
        }
        return &dci->queue;
    }
    SendQueue* acquire_message(ucs_status_t* status) {
        if (credits_ <= 0) [[unlikely]] {
            *status = wait_for_grant();
            return nullptr;
        }
        return acquire(status);
    }
    // A message begins with its sender's token and its id.
    static constexpr size_t kFront = sizeof(uint64_t);
    struct Front {
        uint64_t token;  // with the id in the highest byte
        uint64_t header;
    };
    Front plain_front(uint8_t id, uint64_t header) const { return {with_id(id), header}; }
    Front front(uint8_t id, uint64_t header) const { return plain_front(id, header); }
    void write_front(std::byte* to, uint8_t id) const {
        const uint64_t token = with_id(id);
        std::memcpy(to, &token, sizeof(token));
    }
    void message_posted() {
        if (has_flow_control_ && --credits_ <= interface_.hard_threshold()) [[unlikely]] {
            request_grant();
        }
    }
    bool post(SendQueue& queue, WorkRequest& request, SendOperation* operation);
    ssize_t post_chain(SendQueue& queue, Opcode opcode, std::span<const ChainPiece> pieces,
                       SendOperation& operation, const uint32_t* immediate);
    // The initiator must be this endpoint's already. A failed endpoint has no credits.
    SendQueue* plain_queue() {
        if (credits_ <= 0 || dci_ == DciPool::kNone || fence_next_) [[unlikely]]
            return nullptr;
        DciPool& pool = interface_.pool();
        Dci& dci = pool.at(dci_);
        // As long as initiators are left nobody waits for one, and no owner has to give way.
        if (pool.is_special() || !dci.queue.has_plain_room()) [[unlikely]]
            return nullptr;
        return &dci.queue;
    }
    bool post_plain(SendQueue& queue, std::span<const ibv_data_buf, 2> pieces) {
        if (!queue.post_plain(&target_, pieces)) [[unlikely]]
            return false;
        ++Dci::of(queue).used;
        last_ = queue.posted();
        message_posted();
        return true;
    }
    bool keeps_requests() { return interface_.pool().is_shared(); }

    // --- for the pool and the interface ---
    uint16_t dci() const { return dci_; }
    void set_dci(uint16_t index) {
        dci_ = index;
        has_chain_ = false;
    }
    const DcTarget& target() const { return target_; }
    // Of the messages that the peer sends.
    uint64_t incoming_token() const { return incoming_; }
    void set_last(uint32_t index) { last_ = index; }
    bool waits_for_grant() const { return waits_for_grant_; }
    bool has_own_room() const;
    // No operation will succeed any more; reported once.
    void fail(ucs_status_t status);
    void granted();
    void ask_again();
    // Send a message of flow control, which begins with room for the token; it needs no credit.
    // @return false if there is no room
    template <typename Message>
    bool send_control(Message message) {
        static_assert(sizeof(message.token) == sizeof(token_));
        message.token = with_id(Message::kHeader);
        return send_control(&message, sizeof(message));
    }

  private:
    uint64_t with_id(uint8_t id) const { return token_ | uint64_t{id} << DcTokens::kBits; }
    bool send_control(const void* message, size_t length);
    ucs_status_t no_room(Dci* dci);
    ucs_status_t wait_for_grant();
    void request_grant();

    DcInterface& interface_;
    DcTarget target_;
    uint64_t token_;           // DcTokens::outgoing
    uint64_t incoming_;        // DcTokens::incoming
    uint32_t last_ = 0;        // number of the last work request, on its initiator
    uint32_t last_chain_ = 0;  // likewise of a chain, while has_chain_
    int16_t credits_;
    uint16_t dci_;
    ucs_status_t status_ = UCS_OK;
    bool has_flow_control_ : 1;
    bool is_internal_ : 1;
    bool waits_for_grant_ : 1 = false;
    bool fence_next_ : 1 = false;
    bool has_chain_ : 1 = false;  // one was posted since the endpoint got its initiator
    uint64_t grant_ = 0;          // id of the request that is under way
};
static_assert(sizeof(DcEndpoint) <= 104);

}  // namespace uct::ib
