// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "softhca/model/fault.h"
#include "softhca/model/model.h"

// The emulated adapters' own interface, beside the verbs interface that they serve: fabrics inside
// one process on a virtual clock, for unit tests and simulations. docs/design/softhca.md has an
// example.
namespace softhca {

// What one adapter grants. Defaults from SOFTHCA_MAX_* (docs/emulated-adapter.md).
struct Limits {
    uint32_t max_qp = 262144;
    uint32_t max_cq = 65536;
    uint32_t max_srq = 65536;
    uint32_t max_mr = 262144;
    uint32_t max_qp_wr = 32768;
    uint32_t max_srq_wr = 32767;
    uint32_t max_cqe = 4194303;
    uint32_t max_sge = 30;
    uint32_t max_inline = 512;
    uint32_t max_rd_atomic = 16;
    uint32_t obeys_memlock = 0;  // 1: what processes register counts against RLIMIT_MEMLOCK
    static Limits from_environment();
};

// What a node's adapters did so far.
struct Counters {
    uint64_t doorbells = 0;
    uint64_t wqes = 0;
    uint64_t cqes = 0;
    uint64_t messages = 0;  // that reached their responder
    uint64_t bytes = 0;     // payload of those
    uint64_t rnr = 0;
    uint64_t dci_switches = 0;
    uint64_t requester_misses = 0;
    uint64_t responder_misses = 0;
    uint64_t retransmissions = 0;
};

// Memory that is registered.
struct RegisteredMemory {
    const void* address;
    uint64_t length;
    uint32_t access;  // ibv_access_flags, as they were asked for
};

class VirtualFabricImpl;

// Many nodes in one process; each node is a host with its adapters. Time stands still but for
// step(), advance_to() and run_until_idle(). Not thread-safe: one thread drives a fabric. The same
// calls with the same seed give the same events at the same times.
class VirtualFabric {
  public:
    static constexpr uint64_t kNever = ~uint64_t{0};

    struct Options {
        unsigned nodes = 2;
        unsigned devices_per_node = 1;
        unsigned ports_per_device = 1;
        Model model = Model::from_environment();
        Limits limits = Limits::from_environment();
        FaultPlan faults = {};
    };

    VirtualFabric();
    explicit VirtualFabric(const Options& options);
    // Close every device and free every device list first.
    ~VirtualFabric();
    VirtualFabric(VirtualFabric&&) = delete;

    // ibv_get_device_list gives the devices of this fabric's current node from now on. A new
    // fabric is made current; without one, devices are those of the host-wide fabric.
    void make_current();
    void set_current_node(unsigned node);
    unsigned num_nodes() const;

    // Virtual time in nanoseconds.
    uint64_t now() const;
    // When something happens next; kNever if nothing is under way.
    uint64_t next_event_time() const;
    // Runs all events up to `time`, then sets the clock to it.
    void advance_to(uint64_t time);
    // Runs the next event. @return false if there is none.
    bool step();
    void run_until_idle();
    // A poll that finds nothing runs the next event: a program that spins on its CQ makes the
    // time pass, and unit tests need no scheduler.
    void set_auto_advance(bool on);

    // Called whenever a CQ of a node gets an entry or an event is raised, from inside step().
    void on_activity(std::function<void(unsigned node)> callback);

    // CPU time in nanoseconds that verbs calls of a node cost since it was last taken. While it is
    // not taken, what the node posts leaves that much later than now().
    uint64_t take_cpu_time(unsigned node);
    // Adds the caller's own work to the node's CPU time.
    void charge_cpu(unsigned node, uint64_t nanoseconds);

    // The node's adapters stop for good: peers see retries exceeded, its own calls do nothing.
    void kill_node(unsigned node);
    // The node's adapters fail: as kill_node, and each tells its programs
    // (IBV_EVENT_DEVICE_FATAL).
    void fail_devices(unsigned node);
    // All ports of a node, or one of them (counted over its devices, from 0), go down or up. A
    // port raises IBV_EVENT_PORT_ERR or IBV_EVENT_PORT_ACTIVE.
    void set_link(unsigned node, bool up);
    void set_port(unsigned node, unsigned port, bool up);

    void set_faults(const FaultPlan& plan);
    // Moves a QP to the error state as if its adapter had failed it.
    void kill_qp(uint32_t qp_num);

    Counters counters(unsigned node) const;
    Counters total() const;
    // Of all nodes.
    std::vector<RegisteredMemory> registered() const;
    // A hash over every event so far, with its time: equal for equal runs.
    uint64_t trace_hash() const;

  private:
    std::shared_ptr<VirtualFabricImpl> impl_;
};

}  // namespace softhca
