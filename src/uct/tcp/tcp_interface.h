// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <boost/intrusive/list.hpp>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "uct/api/interface.h"
#include "uct/base/pending_queue.h"
#include "uct/tcp/address.h"
#include "uct/tcp/carrier.h"
#include "uct/tcp/channel.h"
#include "uct/tcp/config.h"
#include "uct/tcp/family.h"
#include "uct/tcp/link.h"
#include "uct/tcp/listener.h"
#include "uct/tcp/network.h"
#include "uct/tcp/region_table.h"

namespace uct::tcp {

class TcpEndpoint;

/**
 * One network interface as one worker uses it: a listener, and a Link to each peer's interface.
 *
 * All sockets are in one epoll set, which is also the event descriptor. While an answer is due, the
 * connection that brought the last message is read directly, for a number of progress calls, before
 * the set is asked again: that saves a system call on the way of each message. Otherwise the set is
 * asked alone, as reading takes the socket's lock: who is sent many messages would hold up their
 * sender, and who is sent long ones would acknowledge them before it reads them. An interface on
 * which nothing happens costs its worker's other transports next to nothing: it looks ever so often
 * only.
 *
 * Connections, links and handshakes are freed at the end of progress() only, so that completions
 * and handlers may do what they like.
 */
class TcpInterface final : public Interface {
  public:
    /** Pieces that one large operation is cut into, at most. */
    static constexpr size_t kMaxParts = 16;

    static ucs_status_t open(RegionTable& regions, const NetworkDevice& device,
                             const Config& config, const InterfaceParams& params,
                             std::unique_ptr<Interface>* interface);
    ~TcpInterface() override;

    ucs_status_t get_device_address(std::span<std::byte> address) const override;
    ucs_status_t get_interface_address(std::span<std::byte> address) const override;
    bool is_reachable(const RemoteAddress& remote) const override;
    ucs_status_t create_endpoint(const RemoteAddress& remote,
                                 std::unique_ptr<Endpoint>* endpoint) override;
    unsigned progress() override;
    void look_soon() override {
        be_alert();
        hot_polls_ = 0;
    }
    ucs_status_t flush(Completion* completion) override;
    ucs_status_t cut_off(const RemoteAddress& remote, uint64_t number) override;
    bool is_link_up() const override { return carrier_.is_up(); }
    int event_fd() const override { return poll_.get(); }
    ucs_status_t arm() override;
    ucs::Time next_deadline() const override;

    // --- for channels, links, endpoints and the listener ---

    const Config& config() const { return config_; }
    const NetworkDevice& device() const { return device_; }
    ucs::Time now() const { return params_.clock.now(); }
    ucs::Random& random() { return params_.random; }
    const AmTable& am_table() const { return params_.am_table; }
    uint64_t id() const { return address_.id; }
    const wire::Secret& secret() const { return address_.secret; }
    uint64_t job_key() const { return job_key_; }
    uint64_t place() const { return place_; }
    uint16_t port() const { return address_.port; }
    DeviceAddress own_device_address() const { return {device_.address, device_.loopback, place_}; }
    /** All of this worker. */
    std::span<TcpInterface* const> family() const { return family_->members; }
    /** The one of that id among them, or null. */
    TcpInterface* relative(uint64_t id) const;
    bool reaches(const DeviceAddress& device) const;
    /** Is that another host of this device's own network? */
    bool is_on_link(const DeviceAddress& device) const;
    /** wire::Flag of this interface. */
    uint8_t session_flags() const;
    bool keeps_sessions_with(uint8_t peer_flags) const;
    /** It goes: what comes is read, so that sessions go on, and thrown away. */
    bool is_leaving() const { return is_leaving_; }
    /** The longest message, without its frame header. */
    size_t max_message() const { return receive_pool_.capacity() - sizeof(wire::Frame); }

    RegionTable& regions() { return regions_; }
    ReceivePool& receive_pool() { return receive_pool_; }
    OutputPools& output_pools() { return output_pools_; }
    ucs::ObjectPool<RemoteOperation>& operations() { return operations_; }
    std::byte* staging() { return staging_.get(); }
    PendingQueue& pending() { return pending_; }

    bool watch(int socket, EventTarget& target, uint32_t events, bool is_new);
    /** Something is sent: an answer may come soon. */
    void on_sent() {
        be_alert();
        is_answer_due_ = true;
    }
    void stop_watching(int socket);
    void add_timer(Timer& timer) { timers_.push_back(timer); }
    /** Look after the session from time to time, until it leaves the list. */
    void watch(Session& session) { watched_.push_back(session); }
    /**
     * The connection that may bring the next message.
     * @param channel  null: rather ask epoll
     * @param more     its message is not complete
     */
    void set_hot(Channel* channel, bool more) {
        hot_ = channel;
        is_answer_due_ = more;
    }
    void forget_hot(const Channel* channel) {
        if (hot_ == channel) hot_ = nullptr;
    }

    /** The Hello was right: its connection goes to the link that it names. */
    void welcome(const wire::Hello& hello, Descriptor socket, bool is_new);
    void handshake_over() { listener_.note_over(); }
    Link& link_to(uint64_t peer);
    void unmap(Link& link);
    uint32_t new_link_number();
    /** Look at the link after this batch of events: it may be gone. */
    void look_at_links() { links_changed_ = true; }
    void report_failure(TcpEndpoint& endpoint, ucs_status_t status);

    uint32_t add_endpoint(TcpEndpoint& endpoint);
    void remove_endpoint(uint32_t name) { endpoints_.erase(name); }
    TcpEndpoint* find_endpoint(uint32_t name) const;

    // --- for tests ---

    /** All connections end without a word, as when the process dies. */
    void abandon();
    size_t open_channels() const;
    /** Of the open connections of that index, one for each link. */
    std::vector<int> sockets(unsigned channel) const;
    size_t handshakes() const { return listener_.handshakes(); }

  private:
    /** Progress calls that read the hot connection alone, between two looks at the whole set. */
    static constexpr unsigned kHotPolls = 4;
    /** After so many looks that found nothing the interface rests, unless something is sent. */
    static constexpr unsigned kRestless = 2000;
    /** How long it rests between looks, with connections and without. */
    static constexpr ucs::Duration kRest = std::chrono::microseconds(10);
    static constexpr ucs::Duration kLongRest = std::chrono::microseconds(100);
    /** While it rests, only one in so many progress calls reads the clock. */
    static constexpr unsigned kRestCalls = 4;
    /** And one in so many looks whatever the clock says: a simulation's may stand still. */
    static constexpr unsigned kMostRestCalls = 4096;
    static_assert(kMostRestCalls % kRestCalls == 0);
    /** Sessions that are watched are looked at so often; one in so many calls reads the clock. */
    static constexpr ucs::Duration kWatch = std::chrono::milliseconds(25);
    static constexpr unsigned kWatchCalls = 64;

    TcpInterface(RegionTable& regions, const NetworkDevice& device, const Config& config,
                 const InterfaceParams& params);
    void fill_attributes();
    unsigned poll();
    void be_alert() { empty_polls_ = 0; }
    bool rests();
    void run_timers();
    Link& make_link(uint64_t peer, bool mapped);
    wire::Answer answer_to(const wire::Hello& hello);
    void resume(const wire::Hello& hello, Descriptor socket, bool is_new);
    void check_sessions();
    void linger();
    void on_carrier(const NetworkDevice& device, bool is_up);
    void reap();
    std::optional<Link::Target> read_target(const RemoteAddress& remote) const;

    RegionTable& regions_;
    const NetworkDevice device_;
    const Config config_;
    InterfaceParams params_;
    const uint64_t place_;
    uint64_t job_key_ = 0;
    ListenerAddress address_;

    ReceivePool receive_pool_;
    OutputPools output_pools_;
    ucs::ObjectPool<RemoteOperation> operations_;
    std::unique_ptr<std::byte[]> staging_;

    Descriptor poll_;
    Descriptor alarm_;  //!< wakes a sleeper for what is due
    Listener listener_;
    Carrier carrier_;
    Channel* hot_ = nullptr;
    unsigned hot_polls_ = 0;
    bool is_answer_due_ = false;  //!< nothing has come since something was sent
    unsigned rest_calls_ = 0;
    unsigned empty_polls_ = kRestless;
    ucs::Time next_poll_{};
    bool links_changed_ = false;
    bool is_leaving_ = false;
    unsigned watch_calls_ = 0;
    ucs::Time next_watch_{};

    const std::shared_ptr<Family> family_;
    TimerList timers_;
    WatchList watched_;
    boost::intrusive::list<Link, boost::intrusive::base_hook<LinkHook>,
                           boost::intrusive::constant_time_size<false>>
        links_;
    std::unordered_map<uint64_t, Link*> by_peer_;
    std::unordered_map<uint64_t, uint32_t> cut_off_;  //!< by peer: its last link that was cut
    std::unordered_map<uint32_t, TcpEndpoint*> endpoints_;
    uint32_t next_endpoint_ = 0;
    uint32_t next_link_ = 0;
    PendingQueue pending_;
};

}  // namespace uct::tcp
