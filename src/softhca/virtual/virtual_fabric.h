// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <list>
#include <queue>
#include <unordered_map>

#include "softhca/adapter/requester.h"

namespace softhca {

// A cache of contexts in an adapter: least recently used goes.
class ContextCache {
  public:
    explicit ContextCache(size_t capacity = 0) : capacity_(capacity) {}
    // @return true on a hit; afterwards the context is cached.
    bool touch(uint64_t context);

  private:
    size_t capacity_;
    std::list<uint64_t> order_;
    std::unordered_map<uint64_t, std::list<uint64_t>::iterator> where_;
};

// A message under way. Payload is what the adapter read when it sent it: it may land after its
// sender is gone.
struct Message {
    RequestMessage request{};
    GatherList gather;
    std::vector<char> payload;
    iovec payload_iov{};
    uint32_t position = 0;
    uint32_t epoch = 0;
    uint64_t sent = 0;
    Reply reply = Reply::kAck;
    bool lost = false;   // on the wire
    bool stray = false;  // a datagram that keeps no order
};

// The in-process fabric: records in private memory, requests executed by timed events. Times are
// picoseconds inside, as one byte on a 400 Gb/s link is 20 of them.
class VirtualFabricImpl : public Fabric, public std::enable_shared_from_this<VirtualFabricImpl> {
  public:
    explicit VirtualFabricImpl(const VirtualFabric::Options& options);
    ~VirtualFabricImpl() override;

    // The one that programs see; null: none.
    static std::shared_ptr<VirtualFabricImpl>& current();

    std::vector<Device> devices() override;
    unsigned num_ports() const override { return unsigned(ports_.size()) - 1; }
    uint16_t lid_of_guid(uint64_t guid) const override;
    uint64_t guid_of_lid(uint16_t lid) const override {
        return lid > 0 && lid < ports_.size() ? kGuidBase + lid : 0;
    }
    bool port_up(uint16_t lid) const override {
        return nodes_[ports_[lid].node].alive && ports_[lid].up;
    }
    bool reachable(uint16_t from, uint16_t to) const override {
        return to != 0 && to < ports_.size() && port_up(from) && port_up(to);
    }
    bool local(Owner) const override { return true; }
    uint64_t now_ns() const override { return now_ / kPs; }
    bool carries_payload() const override { return false; }
    AccessResult move(Owner, iovec* mine, int num_mine, iovec* theirs, int num_theirs,
                      bool write) override;
    AccessResult atomic(Owner, uint64_t addr, bool compare, uint64_t compare_add, uint64_t swap,
                        uint64_t* old) override;
    void doorbell(Qp& qp, uint32_t posted) override;
    void before_poll(Cq&) override {}
    void after_poll(Cq& cq, int polled) override;
    void charge_recv_post(Context& context, uint32_t posted) override;
    void cq_activity(CqRecord& cq, bool event) override;
    void raised_events(Owner, uint16_t lid) override;
    void qp_failed(QpRecord& qp) override;
    void quiesce(Qp& qp) override;
    void drain_region(uint32_t) override {}
    std::atomic<uint32_t>* hold_region(uint32_t) override { return nullptr; }

    bool step();
    void advance_to(uint64_t ns);
    uint64_t next_event_ns() const {
        return events_.empty() ? VirtualFabric::kNever : (events_.top().time + kPs - 1) / kPs;
    }

    static constexpr uint64_t kPs = 1000;

    struct Node {
        uint64_t cpu = 0;
        bool alive = true;
    };
    struct Port {
        unsigned node = 0;
        bool up = true;
        uint64_t tx_free = 0;
        uint64_t rx_free = 0;
        uint64_t egress_free = 0;
        uint64_t ingress_free = 0;
        ContextCache requesters;
        ContextCache responders;
        Counters counters;
    };

    Node& node_of(uint16_t lid) { return nodes_[ports_[lid].node]; }
    unsigned ports_per_node() const {
        return options_.devices_per_node * options_.ports_per_device;
    }
    void set_port(uint16_t lid, bool up);
    void fail_devices(unsigned node);

    VirtualFabric::Options options_;
    std::vector<Node> nodes_;
    std::vector<Port> ports_;  // by LID
    unsigned current_node_ = 0;
    bool auto_advance_ = false;
    std::function<void(unsigned)> activity_;
    uint64_t now_ = 0;
    uint64_t hash_ = 0xcbf29ce484222325;

  private:
    enum class Kind : uint8_t { kTransmit, kArrive, kDeliver, kReply, kRetry };
    struct Event {
        uint64_t time;
        uint64_t sequence;
        Kind kind;
        uint32_t qpn;
        uint32_t epoch;
        Message* message;
        bool operator>(const Event& other) const {
            return time != other.time ? time > other.time : sequence > other.sequence;
        }
    };

    static uint64_t ps(double ns) { return uint64_t(ns * kPs); }
    uint64_t serialisation(uint16_t lid, uint64_t bytes, bool dc) const;
    void charge(uint16_t lid, double ns) { node_of(lid).cpu += ps(ns); }
    void schedule(uint64_t time, Kind kind, uint32_t qpn, Message* message = nullptr,
                  uint32_t epoch = 0);
    void schedule_transmit(Qp& qp, uint64_t time);
    Qp* qp_of(uint32_t qpn) {
        return segment.find_qp(qpn) != nullptr ? qps.get(segment.index_of(qpn)) : nullptr;
    }
    Message* new_message();
    void free_message(Message* message) { free_.push_back(message); }

    bool may_start(Qp& qp, const Wqe& wqe);
    void transmit(Qp& qp);
    void send(Qp& qp, const Wqe& wqe, const GatherList& gather, uint64_t start);
    void launch(Qp& qp, Message* message, uint64_t end);
    void duplicate(Qp& qp, const Message& original, uint64_t end);
    void arrive(Message* message);
    void deliver(Message* message);
    void lose(Message* message);
    void back_off(Qp& qp, uint32_t position, uint64_t wait, Reply reason);
    void retry(Qp& qp, uint32_t epoch);
    void reply(Message* message);
    void complete_done(Qp& qp);
    uint64_t reply_time(const Message& message);

    std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
    uint64_t sequence_ = 0;
    std::vector<std::unique_ptr<Message>> messages_;
    std::vector<Message*> free_;
};

}  // namespace softhca
