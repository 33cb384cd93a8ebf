// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "uct/api/guests.h"
#include "uct/tcp/interface/association_table.h"
#include "uct/tcp/interface/tcp_listener.h"

namespace uct::tcp {

// One network interface as one worker uses it: a listener, and an Association with each peer's
// interface.
//
// All sockets are in one epoll set, which is also the event descriptor. While an answer is due, the
// connection that brought the last message is read directly, a number of times before the set is
// asked again: that saves a system call on the way of each message. Such looks keep a distance:
// each takes the socket's lock, and its memory from the processor that carries the answer there.
// Otherwise the set is asked alone, as reading takes the lock: who is sent many messages would hold
// up their sender, and who is sent long ones would acknowledge them before it reads them. An
// interface on which nothing happens costs its worker's other transports next to nothing: it looks
// ever so often only.
//
// Connections, associations and handshakes are freed at the end of progress() only, so that
// completions and handlers may do what they like.
class TcpInterface final : public Interface, public GuestHost, public Rail {
  public:
    static constexpr std::string_view kTransport = "tcp";
    static constexpr TransportDeclaration kDeclaration{
        kTransport, DeviceType::kNetwork, Reach::kInterface,
        kAmShort | kAmBcopy | kAmZcopy | kPutShort | kPutBcopy | kPutZcopy | kPutChain | kGetBcopy |
            kGetZcopy | kGetChain | kJoinedChain | kConnectable | kAtomicCpu | kCheckPeer |
            kEventFd};

    static ucs_status_t open(RegionTable& regions, const NetworkDevice& device,
                             const Config& config, const InterfaceParams& params,
                             std::unique_ptr<Interface>* interface);
    ~TcpInterface() override;

    ucs_status_t get_device_address(std::span<std::byte> address) const override;
    ucs_status_t get_interface_address(std::span<std::byte> address) const override;
    bool is_reachable(const RemoteAddress& remote) const override {
        return read_target(remote).has_value();
    }
    ucs_status_t create_endpoint(const RemoteAddress& remote,
                                 std::unique_ptr<Endpoint>* endpoint) override;
    // All that this interface has with that one; null: it is not reached.
    Association* associate(const RemoteAddress& remote);
    unsigned progress() override;
    void look_soon() override {
        be_alert();
        hot_looks_ = 0;
        next_look_ = {};
    }
    ucs_status_t flush(Completion* completion) override { return associations_.flush(completion); }
    ucs_status_t cut_off(const RemoteAddress& remote, uint64_t number) override;
    uint64_t name_of(const RemoteAddress& remote) const override;
    bool is_link_up() const override { return has_carrier(); }
    bool is_at(const ucs::net::IpAddress& address) const override {
        return device().address == address;
    }
    GuestHost* guest_host() override { return this; }
    ucs_status_t guest_address(std::span<std::byte> address) const override;
    ucs_status_t invite(const RemoteAddress& guest, std::span<std::byte> address) override;
    void end_invitation(const RemoteAddress& guest) override;
    int event_fd() const override { return events_.descriptor(); }
    ucs_status_t arm() override {
        attention_.bursts.settle();
        return events_.arm(next_deadline(), now()) ? UCS_OK : UCS_ERR_BUSY;
    }
    ucs::Time next_deadline() const override {
        return std::min(listener_.next_deadline(), events_.next_deadline());
    }

    // --- of the other rails of the worker ---

    void welcome(const AuthenticatedPeer& peer, SocketStream stream, bool is_new) override {
        associations_.welcome(peer, std::move(stream), is_new);
    }
    std::optional<wire::Key> key_for(const wire::Hello& hello) const override {
        return associations_.key_for(hello);
    }
    void on_carrier(const NetworkDevice& device, bool is_up) override;

    // --- for tests ---

    // All connections end without a word, as when the process dies.
    void abandon();
    size_t open_connections() const;
    // Of the open connections of that index, one for each association.
    std::vector<int> sockets(unsigned connection) const;
    size_t handshakes() const { return listener_.handshakes(); }

  private:
    // Looks at the hot connection alone, between two looks at the whole set.
    static constexpr unsigned kHotLooks = 2;
    // From a look for an answer that found nothing to the next.
    static constexpr ucs::Duration kLookSpacing = std::chrono::nanoseconds(500);
    // And one in so many calls looks whatever the clock says: a simulation's may stand still.
    static constexpr unsigned kMostCallsWithoutLook = 16;
    // How long it rests between looks, with connections and without.
    static constexpr ucs::Duration kRest = std::chrono::microseconds(10);
    static constexpr ucs::Duration kLongRest = std::chrono::microseconds(100);
    // While it rests, only one in so many progress calls reads the clock.
    static constexpr unsigned kRestCalls = 4;
    // And one in so many looks whatever the clock says: a simulation's may stand still.
    static constexpr unsigned kMostRestCalls = 4096;
    static_assert(kMostRestCalls % kRestCalls == 0);

    TcpInterface(RegionTable& regions, const NetworkDevice& device, const Config& config,
                 const InterfaceParams& params);
    void fill_attributes();
    unsigned poll();
    unsigned look();
    void be_alert() { attention_.empty_polls = 0; }
    bool rests();
    void run_timers();
    void linger();
    std::optional<Association::Target> read_target(const RemoteAddress& remote) const;

    Buffers buffers_;
    EventLoop events_;
    Attention attention_;
    TcpListener listener_;
    AssociationTable associations_;
    unsigned hot_looks_ = 0;
    unsigned calls_without_look_ = 0;
    ucs::Time next_look_{};
    unsigned rest_calls_ = 0;
    ucs::Time next_poll_{};
};

}  // namespace uct::tcp
