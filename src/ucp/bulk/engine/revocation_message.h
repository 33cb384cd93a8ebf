// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "uct/api/interface.h"

// The revocation of a path that has failed: the messages, and what their receiver has to remember.
namespace ucp::bulk {

#pragma pack(push, 1)

/** kBulkRevoke: nothing of that path may be written any more. Addresses follow, for a rail. */
struct RevokeHeader {
    uint64_t from;    //!< uuid of the worker that posted on the path
    uint64_t number;  //!< counts up in that worker
    uint64_t name;    //!< of a queue pair
    uint8_t is_queue_pair;
    uint8_t device_length;            //!< address of the sender's device,
    uint8_t interface_length;         //!< of its interface,
    uint8_t target_device_length;     //!< of the receiver's device,
    uint8_t target_interface_length;  //!< and of its interface
};

/** kBulkRevokeDone */
struct RevokeDoneMessage {
    uint64_t from;    //!< uuid of the worker that has revoked the path
    uint64_t number;  //!< of the REVOKE
};

#pragma pack(pop)

/** A REVOKE that has been checked. */
struct RevokeMessage {
    RevokeHeader header{};
    std::span<const std::byte> device, interface, target_device, target_interface;

    uct::RemoteAddress sender() const { return {device, interface, {}}; }
};
/** Bytes from outside. @return false unless the lengths fit the message */
bool parse_revoke(std::span<const std::byte> bytes, RevokeMessage* message);
/** The lengths in the header are those of the spans. */
std::vector<std::byte> pack_revoke(const RevokeMessage& message);

/**
 * Which REVOKEs of rails were carried out. One that comes again, by another path or late, is
 * answered and not carried out again: the path may have been made anew by then.
 */
class RevocationRecord {
  public:
    bool is_done(const RevokeMessage& message) const;
    void done(const RevokeMessage& message);

  private:
    static uint64_t key(const RevokeMessage& message);

    std::unordered_map<uint64_t, uint64_t> last_;  //!< number by peer and path
};

}  // namespace ucp::bulk
