// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <vector>

#include "uct/sm/message.h"
#include "uct/sm/sm_endpoint.h"

namespace uct::sm {

class RingInterface;

// The receiving end of a pair's queue. Outlives its endpoint until what has arrived is taken.
struct RingInbox {
    std::unique_ptr<Inbox> queue;
    PeerIdentity peer;  // who sends here
    ReceiveGate* gate = nullptr;
    uint64_t gated_from = 0;  // messages taken when the gate was set
    bool is_orphan = false;   // its endpoint is gone
};

// The dedicated transport: a queue with one sender and one receiver in each direction.
class RingInterface final : public SmInterface {
  public:
    static constexpr TransportDeclaration kDeclaration{"sm_ring", DeviceType::kSharedMemory,
                                                       Reach::kEndpoint, kCapabilities, kWords};

    static ucs_status_t open(const Config& config, const InterfaceParams& params,
                             std::unique_ptr<Interface>* interface);
    ~RingInterface() override;

    bool is_reachable(const RemoteAddress& remote) const override;
    ucs_status_t create_endpoint(const RemoteAddress& remote,
                                 std::unique_ptr<Endpoint>* endpoint) override;
    unsigned progress() override;

    // --- for endpoints ---
    size_t segment_size() const { return config_.segment_size; }
    void abandon(RingInbox& inbox);

  private:
    RingInterface(const Config& config, const InterfaceParams& params);
    ucs_status_t make_queue(bool is_filled, std::unique_ptr<Inbox>* queue) const;
    unsigned take_messages(size_t index, size_t* bytes);
    ucs_status_t fall_asleep() override;
    void wake_up() override;
    void drop_orphans();
    // There is another queue, or one less.
    void await_messages() { interest_.await(watches_, control::kNumberMask); }

    // For the first endpoints: to make one takes the system some 50 us, which messages would wait
    // for. Where the program expects no more peers than there are, they have all of their pages.
    std::vector<std::unique_ptr<Inbox>> spares_;
    std::vector<std::unique_ptr<RingInbox>> inboxes_;
    // Of each of them: all are looked at in each progress, which takes a line of each queue and no
    // other memory but this.
    std::vector<AwaitedWord> watches_;
    size_t first_ = 0;  // the queue that the next progress looks at first; none: the first one
    bool has_orphans_ = false;
};

class RingEndpoint final : public SmEndpoint {
  public:
    RingEndpoint(RingInterface& interface, RingInbox& inbox)
        : SmEndpoint(interface), ring_interface_(interface), inbox_(inbox) {
        status_ = UCS_ERR_NOT_CONNECTED;
    }
    ~RingEndpoint() override { ring_interface_.abandon(inbox_); }

    ucs_status_t am_short(uint8_t id, uint64_t header, const void* payload,
                          uint32_t length) override;
    ssize_t am_bcopy(uint8_t id, PackCallback pack, void* arg) override;
    ucs_status_t am_zcopy(uint8_t id, std::span<const std::byte> header, std::span<const Iov> iov,
                          Completion* completion) override;
    ucs_status_t get_address(std::span<std::byte> address) const override;
    ucs_status_t connect(const RemoteAddress& remote) override;
    bool is_connected(const RemoteAddress& remote) const override;
    void set_peer(uint64_t worker) override;
    void set_receive_gate(ReceiveGate* gate) override;

    bool has_room() override {
        return (next_ != limit_ && area_.has_room(area_tail_)) || make_room(true) == UCS_OK;
    }

  private:
    Outbox* outbox() override { return outbox_.get(); }
    void stop() override { limit_ = next_; }
    bool has_lost() const override { return outbox_->has_lost(next_); }
    // Look again how far the receiver is. @return UCS_ERR_NO_RESOURCE, or why nothing is sent
    ucs_status_t make_room(bool for_long);
    void look_at_area();
    // The next long message reaches into memory that nobody has touched.
    [[gnu::noinline]] void touch_ahead();
    // If all long messages are consumed, the next one lies at the start of the area.
    [[gnu::noinline]] void try_begin_anew();
    [[gnu::noinline]] ucs_status_t am_short_slow(uint8_t id, uint64_t header, const void* payload,
                                                 uint32_t length);
    template <typename Write>
    ssize_t send(uint8_t id, Write write);
    void publish(Outbox& outbox, Slot& slot, uint64_t number, uint64_t word) {
        slot.control.store(word, std::memory_order_release);
        next_ = number + 1;
        // No fence between the two: a receiver that goes to sleep puts one into all its senders.
        std::atomic_signal_fence(std::memory_order_seq_cst);
        if (outbox.sleeps()) [[unlikely]]
            outbox.wake();
    }

    std::unique_ptr<Outbox> outbox_;
    uint64_t next_ = ucs::first_number();  // number of the next message
    uint64_t limit_ =
        next_;         // up to here, exclusive, there is room; next_ while nothing may be sent
    Area area_{0, 0};  // of long messages
    uint64_t area_tail_ = 0;
    size_t touched_ = 0;       // bytes of the area, from its start, whose pages are there
    bool keeps_up_ = false;    // the last try to begin anew succeeded
    uint64_t from_start_ = 0;  // kFromStart if the next long message shall say so
    RingInterface& ring_interface_;
    RingInbox& inbox_;
};

}  // namespace uct::sm
