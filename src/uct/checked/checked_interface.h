// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>

#include "uct/api/interface.h"
#include "uct/checked/checked_messages.h"

namespace uct {

class CheckedEndpoint;

/**
 * A transport whose messages bear a checksum, which the receiver compares before anybody sees them
 * (UCX_CHECKSUM, docs/design/checksums.md). Both ends must be of this kind.
 *
 * It lets through messages alone. Nothing runs at the target of a put, a get or an atomic by an
 * adapter or through shared memory, and so nothing could look at the bytes: whoever uses the
 * interface asks the peer's processor by messages instead.
 */
class CheckedInterface final : public Interface {
  public:
    /** What is below it, opened with what the worker gives its interfaces. */
    using Open = std::function<ucs_status_t(const InterfaceParams&, std::unique_ptr<Interface>*)>;
    /** @return as `open`; UCS_ERR_UNSUPPORTED: the transport's messages have no room */
    static ucs_status_t create(const InterfaceParams& params, const Open& open,
                               CheckedMessages& messages, std::unique_ptr<Interface>* interface);

    ucs_status_t get_device_address(std::span<std::byte> address) const override {
        return inner_->get_device_address(address);
    }
    ucs_status_t get_interface_address(std::span<std::byte> address) const override {
        return inner_->get_interface_address(address);
    }
    bool is_reachable(const RemoteAddress& remote) const override {
        return inner_->is_reachable(remote);
    }
    ucs_status_t create_endpoint(const RemoteAddress& remote,
                                 std::unique_ptr<Endpoint>* endpoint) override;
    unsigned progress() override {
        messages_.polled(attributes_);
        return inner_->progress();
    }
    void look_soon() override { inner_->look_soon(); }
    uint64_t name_of(const RemoteAddress& remote) const override { return inner_->name_of(remote); }
    ucs::Time next_deadline() const override { return inner_->next_deadline(); }
    ucs_status_t cut_off(const RemoteAddress& remote, uint64_t number) override {
        return inner_->cut_off(remote, number);
    }
    uint64_t retransmissions() const override { return inner_->retransmissions(); }
    bool is_link_up() const override { return inner_->is_link_up(); }
    GuestHost* guest_host() override { return inner_->guest_host(); }
    ucs_status_t flush(Completion* completion) override { return inner_->flush(completion); }
    int event_fd() const override { return inner_->event_fd(); }
    ucs_status_t arm() override { return inner_->arm(); }

    // --- for its endpoints ---

    void add(const Endpoint& inner, CheckedEndpoint& outer) { endpoints_[&inner] = &outer; }
    void remove(const Endpoint& inner) { endpoints_.erase(&inner); }
    bool admits(uint8_t id, const void* data, size_t length) {
        return messages_.admits(id, data, length);
    }

  private:
    CheckedInterface(const InterfaceParams& params, CheckedMessages& messages)
        : params_(params), messages_(messages) {}
    ucs_status_t adopt();
    static void failed(void* self, Endpoint* inner, ucs_status_t status);

    const InterfaceParams params_;
    CheckedMessages& messages_;
    std::unordered_map<const Endpoint*, CheckedEndpoint*> endpoints_;
    std::unique_ptr<Interface> inner_;
};

}  // namespace uct
