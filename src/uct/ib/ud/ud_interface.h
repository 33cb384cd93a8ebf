// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "ucs/runtime/runtime.h"
#include "ucs/sys/descriptor.h"
#include "uct/base/pending_queue.h"
#include "uct/ib/base/ib_interface.h"
#include "uct/ib/ud/ud_peer.h"

namespace uct::ib::ud {

// ud_verbs as the domain of an adapter opens it.
extern const Transport ud_verbs;

// Makes a worker's names of others: nobody finds an address that gets another's name.
struct NameKey {
    const uint64_t key = ucs::unique_id();
};

// ud_verbs: reliable messages to any number of interfaces over one queue pair (docs/design/ud.md).
//
// Peers are found by name, in packets of those that know us, or by address. What has to happen at a
// time is in a tree ordered by it; each peer is there once, at the latest at its connection's
// deadline.
class UdInterface final : public IbInterface, public SendQueueOwner {
  public:
    static ucs_status_t open(IbDomain& domain, const TransportConfig& config,
                             const ucs::config::Source& source, const InterfaceParams& params,
                             std::unique_ptr<Interface>* interface);
    ~UdInterface() override;

    ucs_status_t get_interface_address(std::span<std::byte> address) const override;
    bool is_reachable(const RemoteAddress& remote) const override;
    ucs_status_t create_endpoint(const RemoteAddress& remote,
                                 std::unique_ptr<Endpoint>* endpoint) override;
    ucs_status_t flush(Completion* completion) override;
    int event_fd() const override { return events_.get(); }
    uint64_t retransmissions() const override { return retransmissions_; }
    // Owed acknowledgements leave first: whoever sleeps does not keep others waiting.
    ucs_status_t arm() override;
    ucs::Time next_deadline() const override;
    uint64_t name_of(const RemoteAddress& remote) const override;

    // --- for peers and endpoints ---
    const Settings& settings() const { return settings_; }
    const Hello& hello() const { return hello_; }
    ucs::Time clock() const { return params_.clock.now(); }
    SendQueue& queue() { return *queue_; }
    PendingQueue& pending() { return pending_; }
    void count_retransmission() { ++retransmissions_; }
    ucs::ObjectPool<AcknowledgementWaiter>& waiters() { return waiters_; }
    // Packets that a peer keeps before it refuses more.
    uint32_t backlog_limit() const { return backlog_limit_; }

    // For what fits into a work request; null if there is no memory.
    Packet* short_packet() { return make(*short_packets_); }
    // For the longest message.
    Packet* packet() { return make(*packets_); }
    bool has_packets(size_t count) { return packets_->reserve(packets_->in_use() + count); }
    WorkRequest request_to(const PeerTarget& target) const {
        WorkRequest request(Opcode::kSend);
        request.target = {target.handle, target.address.number};
        request.remote_key = target.address.key;
        return request;
    }

    static std::byte* grh_in(ReceiveBuffer* buffer) { return buffer->at(kReceiveFront + 4); }
    static std::byte* packet_in(ReceiveBuffer* buffer) { return buffer->at(kReceiveFront + kGrh); }
    void recycle(ReceiveBuffer* buffer) { receives_.recycle(buffer); }
    bool may_hold() const { return held_ < max_held_; }
    void count_held(int change) { held_ += change; }

    void transmit_later(UdPeer& peer);
    // The connection's deadline may have come nearer.
    void reschedule(UdPeer& peer);
    void endpoint_gone(UdPeer& peer);

  private:
    static constexpr size_t kGrh = sizeof(ibv_grh);
    // Behind the GRH and the header the payload is aligned to 8 bytes.
    static constexpr size_t kReceiveFront = ReceiveBuffer::kPayloadOffset + 4;
    static_assert((kReceiveFront + kGrh + Header::kLength) % 8 == 0);
    static_assert(sizeof(HeldBuffer) <= kGrh - 4);
    static constexpr uint32_t kSlots = 1u << 20;  // of peers; the rest of a name tells generations

    struct TargetHash {
        size_t operator()(const PeerTarget& target) const;
    };
    struct TargetOf {
        using type = PeerTarget;
        const PeerTarget& operator()(const UdPeer& peer) const { return peer.target(); }
    };
    using ByTarget =
        boost::intrusive::unordered_set<UdPeer, boost::intrusive::key_of_value<TargetOf>,
                                        boost::intrusive::hash<TargetHash>,
                                        boost::intrusive::power_2_buckets<true>>;
    struct DeadlineOf {
        using type = ucs::Time;
        ucs::Time operator()(const UdPeer& peer) const { return peer.scheduled(); }
    };
    using ByDeadline =
        boost::intrusive::multiset<UdPeer, boost::intrusive::key_of_value<DeadlineOf>>;

    UdInterface(IbDomain& domain, const TransportConfig& config, const Settings& settings,
                const InterfaceParams& params);
    ucs_status_t open_queue_pair();
    bool open_events();
    void set_message_limits(uint32_t max_inline);
    Packet* make(ucs::MemoryPool& pool) {
        void* memory = pool.allocate();
        return memory == nullptr ? nullptr : ::new (memory) Packet(pool);
    }

    uint64_t name_of(const PortAddress& port, const UdAddress& address) const;
    void received(const ibv_wc& completion, ReceiveBuffer* buffer) override;
    bool after_poll() override;
    void on_completed(SendQueue& queue) override {}
    void on_failed(SendQueue& queue, uint32_t index, ucs_status_t status) override;
    void signal_rest(SendQueue& queue) override {}
    void device_gone() override;

    UdPeer* find(const Header& header, const ibv_wc& completion, const std::byte* grh);
    UdPeer* peer_at(const PortAddress& port, const UdAddress& address);
    UdPeer* peer_named(uint32_t name) const;
    uint32_t add_name(UdPeer* peer);
    void remove_name(uint32_t name);
    uint64_t new_start();
    void grow_table();
    void make_room_for_peer();
    void fail(UdPeer& peer, ucs_status_t status);
    void run_timers();
    void run_timer(UdPeer& peer, ucs::Time now);
    void transmit_ready();
    void end_failed();

    Settings settings_;
    Hello hello_;
    uint32_t backlog_limit_ = 0;
    int held_ = 0, max_held_ = 0;
    uint64_t last_start_ = 0;
    uint64_t retransmissions_ = 0;
    std::unique_ptr<ucs::MemoryPool> short_packets_;
    std::unique_ptr<RegisteredChunks> packet_chunks_;
    std::unique_ptr<ucs::MemoryPool> packets_;
    ucs::ObjectPool<AcknowledgementWaiter> waiters_{"acknowledgement waiters"};
    std::unique_ptr<SendQueue> queue_;
    PendingQueue pending_;
    ucs::Descriptor events_, alarm_;  // the completion channel or the alarm; the next deadline

    std::vector<UdPeer*> names_;
    std::vector<uint32_t> generations_;
    std::vector<uint32_t> free_names_;
    size_t bucket_count_ = 16;
    std::unique_ptr<ByTarget::bucket_type[]> buckets_;
    ByTarget by_target_;
    const std::shared_ptr<NameKey> name_key_;
    ByDeadline by_deadline_;
    std::vector<UdPeer*> ready_;
    std::vector<UdPeer*> due_;     // of this call
    std::vector<UdPeer*> failed_;  // to be ended
    UdPeer* ending_ = nullptr;     // its endpoints hear of it just now
    ucs::Time next_warning_{};     // when a restarted queue pair is worth a line again
};

}  // namespace uct::ib::ud
