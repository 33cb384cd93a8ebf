// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <memory>

#include "uct/sm/message.h"
#include "uct/sm/sm_endpoint.h"

namespace uct::sm {

// The scalable transport: one queue a receiver, into which all its peers send.
class FifoInterface final : public SmInterface {
  public:
    static constexpr TransportDeclaration kDeclaration{"sm_fifo", DeviceType::kSharedMemory,
                                                       Reach::kInterface, kCapabilities, kWords};

    // @param keys  of the domain, whose memory peers may offer it copies for; they outlive this
    static ucs_status_t open(const Config& config, const InterfaceParams& params,
                             const KeyTable& keys, std::unique_ptr<Interface>* interface);

    ucs_status_t get_interface_address(std::span<std::byte> address) const override;
    bool is_reachable(const RemoteAddress& remote) const override;
    ucs_status_t create_endpoint(const RemoteAddress& remote,
                                 std::unique_ptr<Endpoint>* endpoint) override;
    unsigned progress() override;
    uint64_t name_of(const RemoteAddress& remote) const override;

  private:
    FifoInterface(const Config& config, const InterfaceParams& params, const KeyTable& keys);
    [[gnu::noinline]] unsigned help();
    [[gnu::noinline]] unsigned take_among_holes();
    // take(deliver, announced) takes messages from the queue.
    template <typename Take>
    unsigned hand_over(Take take);
    void announced(uint32_t place, std::span<const std::byte> who);
    ucs_status_t fall_asleep() override;
    void wake_up() override { inbox_->disarm(); }
    void look_after_queues() override { inbox_->look_after_senders(); }
    bool awaits_late() const override { return inbox_->has_holes(); }
    unsigned take_late() override;

    const KeyTable& keys_;
    JointCopyPartner partner_;
    std::unique_ptr<Inbox> inbox_;
    std::unique_ptr<PeerIdentity[]> senders_;             // by place in the queue
    uint32_t places_ = 0;                                 // of senders
    std::map<uint64_t, std::weak_ptr<Outbox>> outboxes_;  // of peers, by the segment's nonce
};

// A peer's shared queue; endpoints to one peer have one view of it.
class FifoEndpoint final : public SmEndpoint {
  public:
    FifoEndpoint(SmInterface& interface, std::shared_ptr<Outbox> outbox)
        : SmEndpoint(interface), outbox_(std::move(outbox)) {}

    ucs_status_t am_short(uint8_t id, uint64_t header, const void* payload,
                          uint32_t length) override;
    ssize_t am_bcopy(uint8_t id, PackCallback pack, void* arg) override;
    ucs_status_t am_zcopy(uint8_t id, std::span<const std::byte> header, std::span<const Iov> iov,
                          Completion* completion) override;
    bool is_connected(const RemoteAddress& remote) const override;

    bool has_room() override { return outbox_->has_room(); }

  private:
    Outbox* outbox() override { return outbox_.get(); }
    [[gnu::noinline]] ucs_status_t am_short_slow(uint8_t id, uint64_t header, const void* payload,
                                                 uint32_t length);
    // write(destination) -> bytes, into a buffer of the receiver. @return bytes or an error
    template <typename Write>
    ssize_t send(uint8_t id, Write write);

    const std::shared_ptr<Outbox> outbox_;
};

}  // namespace uct::sm
