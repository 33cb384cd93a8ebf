// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "uct/api/interface.h"
#include "uct/api/memory_domain.h"

// A pair of transports for tests of the protocol layer: "mock_dc" (scalable) and "mock_rc"
// (dedicated) on devices "mock0" and so on, with faults from a seed. Chains are not among the usual
// capabilities.
//
// Every endpoint's messages keep their order; different endpoints overtake each other. Remote
// memory access happens in the fabric, whether or not the target runs. Everything is a function of
// the seed and of the order of the calls.
namespace uct::mock {

enum class Kind : uint8_t { kScalable, kDedicated };

struct Config {
    uint64_t seed = 1;

    // What delays are measured with. Empty: steps, one for each call of any Interface::progress().
    // A virtual clock gives its time in any unit; delays are in the same.
    std::function<uint64_t()> time = {};
    uint64_t max_delay = 16;       // each endpoint draws its own usual delay, up to this
    double stall_probability = 0;  // of one packet taking `stall_delay` more
    uint64_t stall_delay = 200;

    double no_resource_probability = 0;  // of an operation meeting UCS_ERR_NO_RESOURCE at random
    // Of such a refusal ending at any call, as where another process makes room.
    double sudden_room_probability = 0;
    uint64_t without_memory = 0;        // a bit for each id whose am_bcopy() finds none
    unsigned transmit_depth = 32;       // unacknowledged operations of one endpoint
    bool flush_takes_room = false;      // as an operation, if any is unacknowledged
    size_t receive_buffers = SIZE_MAX;  // of one interface, kept ones included
    unsigned pieces_at_once = 32;       // that one call copies (kPieces)
    unsigned poll_batch = 16;           // events handled by one call of progress()
    size_t max_dedicated = SIZE_MAX;    // dedicated endpoints of one interface
    // Dedicated endpoints of all processes that each device says it has room for. The default: none
    // of them is counted.
    size_t room_for_dedicated = SIZE_MAX;

    OperationLimits am{64, 1024, 4096, 4, 64};
    OperationLimits put{64, 1024, 16384, 4, 0};
    OperationLimits get{0, 1024, 16384, 4, 0};
    DeviceType device_type = DeviceType::kNetwork;
    uint32_t capabilities = kAmShort | kAmBcopy | kAmZcopy | kPutShort | kPutBcopy | kPutZcopy |
                            kGetBcopy | kGetZcopy | kAtomicDevice | kCheckPeer;
    uint8_t atomic32_ops = 0;
    uint8_t atomic64_ops =
        static_cast<uint8_t>(AtomicOp::kAdd) | static_cast<uint8_t>(AtomicOp::kCompareSwap);
    double bandwidth = 12e9;  // bytes per second that an interface says it has
    double latency = 600e-9;  // seconds, the same
    unsigned devices = 1;     // mock0 and so on, each with both
    bool are_ports = false;   // they are of one adapter: mock0:1 and so on
    bool scalable = true;     // list mock_dc
    bool dedicated = true;    // list mock_rc
};

// What went over all endpoints of one kind.
struct Counters {
    uint64_t am = 0, put = 0, get = 0, atomic = 0, check = 0;
    uint64_t am_short = 0;  // of am
    uint64_t chains = 0;    // of puts and gets
    uint64_t copies = 0;    // calls that copied pieces (kPieces)
    uint64_t cut_off = 0;   // packets that came after their endpoint was cut off
    uint64_t bytes = 0;
    uint64_t delivered = 0;       // active messages that reached a handler or a gate
    uint64_t held = 0;            // of these, those that a closed gate took
    uint64_t no_resource = 0;     // operations refused for want of room
    uint64_t early = 0;           // packets that reached an endpoint before its connect()
    uint64_t lost = 0;            // messages that a destroyed endpoint took with it
    uint64_t failed = 0;          // endpoints that reported an error
    uint64_t endpoints = 0;       // alive now
    uint64_t made = 0;            // endpoints, ever
    uint64_t peak_endpoints = 0;  // the most that one interface ever had at a time
};

// An active message or one-sided operation about to take effect at its target.
struct PacketEvent {
    Kind kind;
    uint64_t source_worker;
    uint64_t target_worker;
    int am_id;  // -1: not an active message
    size_t length;
    unsigned device;  // of the source
    uint64_t number;  // of this event in the fabric's life, from 0
};

struct FabricState;

// All mock interfaces that can reach each other. Outlives the contexts that use it.
class Fabric {
  public:
    explicit Fabric(Config config = {});
    ~Fabric();
    Fabric(const Fabric&) = delete;
    Fabric& operator=(const Fabric&) = delete;

    // For a context's list of components, or uct::add_component().
    Component& component();

    // The worker stops: its packets vanish, and what is sent to it fails. By
    // InterfaceParams::worker_id.
    void kill(uint64_t worker_id);
    enum class Device : uint8_t {
        kWell,
        kBroken,    // packets from it fail, and so do its endpoints
        kRefusing,  // the peers' memory refuses what comes from it
        kSilent,    // packets from it and their acknowledgements wait until it is well again
    };
    void set_device(unsigned device, Device state);
    // What Interface::is_link_up() says.
    void set_link(unsigned device, bool is_up);
    // Packets between the two workers fail from now on.
    void cut(uint64_t worker_a, uint64_t worker_b);
    // Called before each packet takes effect; may kill() and cut().
    void observe(std::function<void(const PacketEvent&)> observer);

    // No packet and no completion is under way anywhere.
    bool idle() const;
    // Time at which the next packet arrives, or UINT64_MAX: for schedulers of a virtual clock.
    uint64_t next_arrival() const;
    const Counters& counters(Kind kind) const;
    // Live dedicated endpoints of a worker now.
    size_t dedicated_endpoints(uint64_t worker_id) const;

    // Change the fault rates of a running fabric.
    Config& config();

  private:
    std::unique_ptr<FabricState> state_;
};

}  // namespace uct::mock
