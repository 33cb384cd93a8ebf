// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "unit/uct/world.h"

namespace uct::test {

// The adapters under a World. One implementation is linked into each program: the soft adapter's
// virtual fabric (uct_test), or the first real adapter of this host (uct_device_test), through
// which all peers reach each other by loopback.
class Adapter {
  public:
    // `ports` of each device: of the soft adapter alone, as what a real one has is as it is.
    static std::unique_ptr<Adapter> open(unsigned nodes, unsigned ports);
    // Is there an adapter that the transport can use?
    static bool serves(const std::string& transport);

    virtual ~Adapter() = default;
    // Devices that are looked for belong to this node from now on.
    virtual void select(unsigned node) {}
    // Timers of the tests, made long enough for the adapter.
    virtual Settings patient(Settings settings) const { return settings; }
    // Let things happen; `events` is what the peers have just found.
    virtual void step(ucs::VirtualClock& clock, unsigned events) = 0;
    // Is nothing under way, so that time may go on to whatever waits for it?
    virtual bool is_idle() = 0;
    // How many calls of step() a test may wait, for one that it asks for.
    virtual int patience() const { return 1; }
    // @return whether peers notice by themselves; false: the peer's objects must go
    virtual bool kill(unsigned node) { return false; }
    // Messages so far that found no receive buffer.
    virtual uint64_t receivers_not_ready() = 0;
    // From now on that share of the packets vanishes, others are late. Real adapters lose none.
    virtual void lose_packets(double share, uint64_t seed) {}
    virtual softhca::VirtualFabric* fabric() { return nullptr; }
};

}  // namespace uct::test
