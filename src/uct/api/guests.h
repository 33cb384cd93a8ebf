// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <span>

#include "ucs/net/address.h"
#include "uct/api/interface.h"

namespace uct {

// A scalable interface that lets in guests: peers that share no secret with it and shall learn
// none.
//
// A host invites a guest by name, and gives it an address that admits this guest alone. The guest
// connects; the host never does: its endpoints to the guest wait for the guest's connection. What
// the guest says of where it is stays unused.
class GuestHost {
  public:
    virtual ~GuestHost() = default;

    // Is that the address of this interface in the network?
    virtual bool is_at(const ucs::net::IpAddress& address) const = 0;
    // The own address for a host: a name alone, which lets nobody in.
    virtual ucs_status_t guest_address(std::span<std::byte> address) const = 0;
    // @param guest    what guest_address() gave at the other end
    // @param address  interface_address_length bytes, for the guest. It is the same as long as the
    //                 guest is invited
    // @return UCS_ERR_REJECTED: a peer that is no guest, or this interface, has that name
    virtual ucs_status_t invite(const RemoteAddress& guest, std::span<std::byte> address) = 0;
    // Nothing that the guest sends is taken any more, and its address is void.
    virtual void end_invitation(const RemoteAddress& guest) = 0;
};

}  // namespace uct
