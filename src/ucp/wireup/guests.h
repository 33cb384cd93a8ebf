// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "ucp/runtime/interface_set.h"
#include "ucp/select/worker_address.h"
#include "uct/api/guests.h"

namespace ucp::wireup {

// Clients of a listener that have proved nothing, as there is no key (docs/design/interface.md,
// "Clients and servers"): over which transports they are served, and what they are told.
//
// A guest is reached over shared memory, where the kernel sees to it that both ends are one user's,
// if it called from this host; else over one pair of interfaces that knows guests (uct::GuestHost).
class Guests {
  public:
    explicit Guests(InterfaceSet& interfaces) : interfaces_(interfaces) {}

    // Is there a transport that can tell guests from others? Without one they are taken as peers.
    bool can_host() const;
    // Is that worker one?
    bool contains(uint64_t worker) const { return guests_.contains(worker); }

    // Leave of what a guest says to be reached by what may be used.
    // @param is_near  it has called from this host
    void restrict(WorkerAddress& guest, bool is_near) const;
    // Let him in by all that restrict() has left; nothing if he is here already.
    ucs_status_t invite(const WorkerAddress& guest);
    // That interface and that of his are what he and this worker have between them; no other of his
    // invitations stands.
    void settle(const WorkerAddress& guest, unsigned interface, const AddressEntry& entry);
    // Nothing came of it, or nothing is left of him.
    void end(uint64_t worker);

    // What the guest is to connect to, as settled. @param address  the own one, in full
    void admit(uint64_t worker, AddressEntry& own, unsigned interface,
               std::vector<std::byte>* storage) const;
    // Is an own transport one by which a settled guest reaches this worker?
    bool is_way(uint64_t worker, unsigned interface) const;

    // The own address of an interface, for a host: without what lets others in.
    bool conceal(unsigned interface, AddressEntry& own, std::vector<std::byte>* storage) const;

  private:
    struct Invitation {
        unsigned interface;
        std::vector<std::byte> device, address;  // the guest's
        std::vector<std::byte> own;              // what he connects to

        uct::RemoteAddress guest() const { return {device, address, {}}; }
    };
    struct Guest {
        std::vector<Invitation> invitations;
        uct::DeviceType type = uct::DeviceType::kNetwork;  // of the way, when it is settled
        unsigned interface = 0;
    };

    uct::GuestHost* host(unsigned interface) const;
    bool is_known_kind(const AddressEntry& entry) const;
    void end(const Invitation& invitation);

    InterfaceSet& interfaces_;
    std::unordered_map<uint64_t, Guest> guests_;  // by the worker's uuid
};

}  // namespace ucp::wireup
