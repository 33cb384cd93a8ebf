// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <vector>

#include "uct/api/interface.h"
#include "uct/base/am.h"
#include "uct/ib/base/ib_domain.h"
#include "uct/ib/base/receive_queue.h"
#include "uct/ib/base/send_queue.h"

namespace uct::ib {

// First byte of an active message: its id, and what flow control adds. Messages of flow control
// alone carry one of the combinations below and no id.
namespace am_header {
inline constexpr uint8_t kIdMask = 0x1f;
inline constexpr uint8_t kFlagMask = 0xe0;
inline constexpr uint8_t kSoftRequest = 0x20;  // grant with your next message
inline constexpr uint8_t kHardRequest = 0x40;  // grant now
inline constexpr uint8_t kGrant = 0x80;        // send a whole window again
inline constexpr uint8_t kPureRequest = 0xc0;  // a hard request without a message
inline constexpr uint8_t kPureGrant = 0xe0;    // a grant without a message
}  // namespace am_header

// What the interfaces of rc, dc and ud share: queues, buffers, address handles, polling.
class IbInterface : public Interface {
  public:
    ~IbInterface() override;

    ucs_status_t get_device_address(std::span<std::byte> address) const override;
    unsigned progress() override;
    int event_fd() const override;
    ucs_status_t arm() override;
    bool is_link_up() const override { return is_link_up_; }

    IbDomain& domain() const { return domain_; }
    Device& device() const { return domain_.device(); }
    const Device::Path& path() const { return path_; }
    const TransportConfig& config() const { return config_; }
    // Pieces of memory of one work request: UCX_IB_TX_MIN_SGE.
    unsigned max_sge() const { return config_.tx_min_sge; }
    const InterfaceParams& params() const { return params_; }
    CompletionCredits& credits() { return credits_; }
    ibv_cq* send_cq() const { return send_cq_.get(); }
    ibv_cq* receive_cq() const { return receive_cq_.get(); }
    ibv_srq* srq() const { return receives_.srq(); }
    uint32_t max_inline() const { return max_inline_; }
    unsigned moderation() const { return moderation_; }
    // Work requests of a send queue, without its reserve.
    unsigned queue_depth() const { return config_.tx_queue_len - SendQueue::kReserve; }
    // Take arrived messages out of the completion queue, for the next progress(): the driver drops
    // those of a queue pair that is reset or destroyed, and their buffers with them.
    void keep_receives();
    bool has_kept_receives() const { return !kept_receives_.empty(); }
    // No message of that queue pair is delivered any more, of those kept.
    void drop_kept(uint32_t qp_number);

    BounceBuffer* bounce_buffer() { return static_cast<BounceBuffer*>(take(*bounce_)); }
    ucs::MemoryPool& bounce_pool() { return *bounce_; }
    ucs::MemoryPool& operation_pool() { return *operations_; }
    SendOperation* operation() { return static_cast<SendOperation*>(take(*operations_)); }

    // A pool is empty, and there is no memory for more.
    // @return UCS_ERR_NO_RESOURCE: what is under way gives some back when it is complete, which
    //         will be known; UCS_ERR_NO_MEMORY: nothing is
    ucs_status_t none_left(const ucs::MemoryPool& pool);
    // Since none_left() no completion has come: who waits for room waits for one.
    bool waits_for_objects() const { return waits_for_objects_; }

    // Completions with the token reach the queue until remove_queue().
    uint32_t add_queue(SendQueue& queue);
    void remove_queue(uint32_t token);

    // Send credits ran out: let unsignalled work requests everywhere give theirs back.
    void reclaim_credits();

    // The address handle of a remote port if there is one; null: nobody connected there yet.
    ibv_ah* find_address_handle(const PortAddress& remote) const;
    // The address handle of a remote port, made when first asked for; null on failure.
    ibv_ah* address_handle(const PortAddress& remote);

    void report_failure(Endpoint* endpoint, ucs_status_t status) {
        params_.error_handler(params_.error_arg, endpoint, status);
    }

    // State of flow control that all endpoints of an interface share.
    int credit_window() const { return window_; }
    int hard_threshold() const { return hard_; }
    int soft_threshold() const { return soft_; }

  protected:
    IbInterface(IbDomain& domain, const TransportDeclaration& transport,
                const TransportConfig& config, const InterfaceParams& params);
    // What the device writes into a receive buffer, and where.
    struct ReceiveLayout {
        size_t front;
        size_t bytes;
    };
    ucs_status_t open_queues() {
        return open_queues({ReceiveBuffer::kPayloadOffset - 1, config_.segment_size});
    }
    ucs_status_t open_queues(const ReceiveLayout& layout);
    // @param max_inline  bytes that a send queue of these takes inline, from a queue made to see
    // @param front       of a message, before what the user sends
    void set_limits(uint32_t max_inline, size_t front = 1);

    // A message arrived in the buffer; a peer that is none of ours may have sent no byte.
    virtual void received(const ibv_wc& completion, ReceiveBuffer* buffer) = 0;
    // Make the arrival of immediate data the arrival of the message that it stands for, which is
    // written into its buffer. Without bytes it is dropped.
    virtual void become_message(ibv_wc& completion) { completion.byte_len = 0; }
    // The adapter does no more: end all endpoints.
    virtual void device_gone();
    // After polling: serve who waits, ask for grants again.
    // @return true: it should be called again, though no completion may come before
    virtual bool after_poll() = 0;

    // Is it time to ask again for grants that did not come?
    bool is_request_due();

    IbDomain& domain_;
    TransportConfig config_;
    const InterfaceParams params_;
    Device::Path path_;
    ReceiveQueue receives_;
    SenderPlace sender_;       // cleared when all that was found is handled
    bool sends_only_ = false;  // its queue pairs receive nothing

  private:
    void* take(ucs::MemoryPool& pool) { return pool.allocate(); }
    void signal_all();
    unsigned poll_receives();
    void take(const ibv_wc* completions, int count);
    unsigned poll_sends();
    void arrived(const ibv_wc& completion);
    void arrived_otherwise(const ibv_wc& completion, ReceiveBuffer* buffer);
    void completed(const ibv_wc& completion);

    void look_for_events();
    void handle(const AsyncEvent& event);
    void queue_pair_failed(uint32_t number);
    int open_event_fd() const;

    static constexpr unsigned kMaxPoll = 64;
    // Calls of progress() for each look at the adapter's events: a look is a system call.
    static constexpr unsigned kEventInterval = 1024;
    static constexpr uint32_t kSlotMask = 0xfffff;

    unsigned moderation_;
    uint32_t max_inline_ = 0;
    int window_, hard_, soft_;
    unsigned until_events_ = kEventInterval;
    ucs::Time next_request_{};
    CompletionCredits credits_;
    bool reclaiming_ = false;
    bool waits_for_objects_ = false;
    bool is_link_up_ = true;  // as the events that were looked at say
    std::unique_ptr<RegisteredChunks> bounce_chunks_;
    std::unique_ptr<ucs::MemoryPool> bounce_, operations_;
    mutable EventBox events_;
    std::vector<AsyncEvent> kept_events_;  // for the next progress()
    mutable int event_fd_ = -1;            // made when first asked for: many never are
    ChannelPtr channel_;
    CqPtr send_cq_, receive_cq_;
    std::vector<SendQueue*> queues_;
    std::vector<uint32_t> tokens_;
    std::vector<uint32_t> free_slots_;
    std::map<PortAddress, AhPtr> handles_;
    std::vector<ibv_wc> kept_sends_, kept_receives_;  // for the next progress()
};

}  // namespace uct::ib
