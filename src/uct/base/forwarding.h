// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>

#include "uct/api/interface.h"
#include "uct/base/refusing_endpoint.h"

// What lies between a worker and a transport, and changes messages on their way: one that does
// derives from these, and says what it does otherwise than the transport.
namespace uct {

// An interface over another one. Its endpoints are ForwardingEndpoints.
class ForwardingInterface : public Interface {
  public:
    ucs_status_t get_device_address(std::span<std::byte> address) const override {
        return inner_->get_device_address(address);
    }
    ucs_status_t get_interface_address(std::span<std::byte> address) const override {
        return inner_->get_interface_address(address);
    }
    bool is_reachable(const RemoteAddress& remote) const override {
        return inner_->is_reachable(remote);
    }
    unsigned progress() override { return inner_->progress(); }
    const Interest& interest() const override { return inner_->interest(); }
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

    void add(const Endpoint& inner, Endpoint& outer) { endpoints_[&inner] = &outer; }
    void remove(const Endpoint& inner) { endpoints_.erase(&inner); }

  protected:
    // @param params  what the worker gives
    explicit ForwardingInterface(const InterfaceParams& params) : params_(params) {}
    // What the transport below is to be opened with. @param table  of handlers, outlives it
    InterfaceParams below(const AmTable& table) {
        return {params_.clock,
                params_.random,
                table,
                failed,
                this,
                params_.worker_id,
                params_.estimated_endpoints,
                params_.config,
                params_.copy_threads};
    }
    const AmTable& am_table() const { return params_.am_table; }
    // It is open: its attributes are this one's, to be changed.
    void adopt(std::unique_ptr<Interface> inner) {
        inner_ = std::move(inner);
        attributes_ = inner_->attributes();
    }
    template <typename Outer, typename Self>
    static ucs_status_t create_endpoint_of(Self& self, const RemoteAddress& remote,
                                           std::unique_ptr<Endpoint>* endpoint) {
        std::unique_ptr<Endpoint> inner;
        const ucs_status_t status = self.inner_->create_endpoint(remote, &inner);
        if (status == UCS_OK) *endpoint = std::make_unique<Outer>(self, std::move(inner));
        return status;
    }

  private:
    static void failed(void* arg, Endpoint* inner, ucs_status_t status) {
        const auto& self = *static_cast<ForwardingInterface*>(arg);
        const auto found = self.endpoints_.find(inner);
        if (found != self.endpoints_.end())
            self.params_.error_handler(self.params_.error_arg, found->second, status);
    }

    const InterfaceParams params_;
    std::unordered_map<const Endpoint*, Endpoint*> endpoints_;  // of this by those below
    std::unique_ptr<Interface> inner_;
};

// An endpoint over another one, as far as it moves no data: that is refused.
class ForwardingEndpoint : public RefusingEndpoint {
  public:
    ~ForwardingEndpoint() override { interface_.remove(*inner_); }

    ucs_status_t fence() override { return inner_->fence(); }
    ucs_status_t flush(Completion* completion) override { return inner_->flush(completion); }
    ucs_status_t check(Completion* completion) override { return inner_->check(completion); }
    ucs_status_t pending_add(Pending* pending) override { return inner_->pending_add(pending); }
    void pending_remove(Pending* pending) override { inner_->pending_remove(pending); }
    bool is_connected(const RemoteAddress& remote) const override {
        return inner_->is_connected(remote);
    }
    ucs_status_t get_address(std::span<std::byte> address) const override {
        return inner_->get_address(address);
    }
    ucs_status_t connect(const RemoteAddress& remote) override { return inner_->connect(remote); }
    void set_peer(uint64_t worker) override { inner_->set_peer(worker); }
    void set_receive_gate(ReceiveGate* gate) override { inner_->set_receive_gate(gate); }

  protected:
    ForwardingEndpoint(ForwardingInterface& interface, std::unique_ptr<Endpoint> inner)
        : interface_(interface), inner_(std::move(inner)) {
        interface_.add(*inner_, *this);
    }
    Endpoint& inner() { return *inner_; }

  private:
    ForwardingInterface& interface_;
    std::unique_ptr<Endpoint> inner_;
};

}  // namespace uct
