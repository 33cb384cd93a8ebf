// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "ucs/sys/descriptor.h"
#include "uct/api/interface.h"
#include "uct/tcp/events/event_loop.h"
#include "uct/tcp/network/client_handshake.h"
#include "uct/tcp/network/config.h"
#include "uct/tcp/network/device.h"
#include "uct/tcp/wire/address.h"
#include "uct/tcp/wire/format.h"

namespace uct::tcp {

// Whether a device has a link, as the kernel tells all who listen when it
// changes. Where nobody may listen, it has one.
class Carrier final : public EventTarget {
  public:
    explicit Carrier(const NetworkDevice& device) : device_(device) {}

    // @return whether there is a socket to watch
    bool open();
    int socket() const { return socket_.get(); }
    bool is_up() const { return is_up_; }
    // Has it changed since the last question?
    bool take_change() { return std::exchange(changed_, false); }

    unsigned on_event(uint32_t events) override;

  private:
    void ask();

    const NetworkDevice& device_;
    bool is_up_ = true;
    bool changed_ = false;
    ucs::Descriptor socket_;
};

class Rail;

// The rails of one worker, which take each other's place. Used on the worker's thread.
struct RailSet {
    std::vector<Rail*> members;
};

// A device as one worker uses it: who that is to others, and where it gets.
class Rail {
  public:
    Rail(const NetworkDevice& device, const Config& config, const InterfaceParams& params);
    Rail(const Rail&) = delete;

    const Config& config() const { return config_; }
    const NetworkDevice& device() const { return device_; }
    const ucs::Clock& clock() const { return params_.clock; }
    ucs::Time now() const { return clock().now(); }
    ucs::Random& random() const { return params_.random; }
    const AmTable& am_table() const { return params_.am_table; }
    void report_failure(Endpoint& endpoint, ucs_status_t status) const {
        params_.error_handler(params_.error_arg, &endpoint, status);
    }

    uint64_t id() const { return address_.id; }
    const wire::Secret& secret() const { return address_.secret; }
    // What peers of the listener with that secret share.
    wire::Key key_of(const wire::Secret& secret) const {
        return wire::key_of(secret, config_.job_key);
    }
    uint64_t place() const { return place_; }
    uint16_t port() const { return address_.port; }
    void set_port(uint16_t port) { address_.port = port; }
    const ListenerAddress& listener_address() const { return address_; }
    DeviceAddress device_address() const { return {device_.address, device_.loopback, place_}; }
    // Null: connections are in clear.
    const std::shared_ptr<TlsContext>& encryption() const { return encryption_; }
    // The longest message, without its frame header.
    size_t max_message() const { return max_message_; }

    bool reaches(const DeviceAddress& device) const;
    // Links have changed.
    void forget_routes() { routes_.forget(); }
    // Is that another host of this device's own network?
    bool is_on_link(const DeviceAddress& device) const;
    Carrier& carrier() { return carrier_; }
    bool has_carrier() const { return carrier_.is_up(); }

    // All of this worker.
    std::span<Rail* const> rails() const { return rails_->members; }
    // The one of that id among them, or null.
    Rail* relative(uint64_t id) const;
    // wire::Flag of this one.
    uint8_t session_flags() const;
    bool keeps_sessions_with(uint8_t peer_flags) const;
    // It goes: what comes is read, so that sessions go on, and thrown away.
    bool is_leaving() const { return is_leaving_; }

    // --- what the rails of a worker tell each other ---

    // Somebody is of the job: the connection is this one's.
    // @param is_new  another rail has watched the socket so far
    virtual void welcome(const AuthenticatedPeer& peer, SocketStream stream, bool is_new) = 0;
    // The key that the sender of a Hello is to know. @return nothing: there is no such session
    virtual std::optional<wire::Key> key_for(const wire::Hello& hello) const = 0;
    // A device of this worker has lost its link, or has it back.
    virtual void on_carrier(const NetworkDevice& device, bool is_up) = 0;

  protected:
    ~Rail();
    void begin_to_leave() { is_leaving_ = true; }
    void leave_set();

  private:
    const NetworkDevice device_;
    const Config config_;
    const InterfaceParams params_;
    const uint64_t place_;
    const size_t max_message_;
    const std::shared_ptr<TlsContext> encryption_;
    ListenerAddress address_;
    Carrier carrier_;
    mutable Routes routes_;
    bool is_leaving_ = false;
    const std::shared_ptr<RailSet> rails_;
};

}  // namespace uct::tcp
