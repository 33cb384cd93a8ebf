// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "uct/api/interface.h"

// Cutting off a path that has failed: the messages, and what their receiver has to remember.
namespace ucp::bulk {

#pragma pack(push, 1)

/** kBulkCut: nothing of that path may be written any more. Addresses follow, for a rail. */
struct CutMessage {
    uint64_t from;    //!< uuid of the worker that posted on the path
    uint64_t number;  //!< counts up in that worker
    uint64_t name;    //!< of a strand's end
    uint8_t is_strand;
    uint8_t device_length;            //!< address of the sender's device,
    uint8_t interface_length;         //!< of its interface,
    uint8_t target_device_length;     //!< of the receiver's device,
    uint8_t target_interface_length;  //!< and of its interface
};

/** kBulkCutDone */
struct CutDoneMessage {
    uint64_t from;    //!< uuid of the worker that has cut
    uint64_t number;  //!< of the CUT
};

#pragma pack(pop)

/** A CUT that has been checked. */
struct Cut {
    CutMessage header{};
    std::span<const std::byte> device, interface, target_device, target_interface;

    uct::RemoteAddress sender() const { return {device, interface, {}}; }
};
/** Bytes from outside. @return false unless the lengths fit the message */
bool parse_cut(std::span<const std::byte> bytes, Cut* cut);
/** The lengths in the header are those of the spans. */
std::vector<std::byte> pack_cut(const Cut& cut);

/**
 * Which CUTs of rails were carried out. One that comes again, by another path or late, is answered
 * and not carried out again: the path may have been made anew by then.
 */
class CutRecord {
  public:
    bool is_done(const Cut& cut) const;
    void done(const Cut& cut);

  private:
    static uint64_t key(const Cut& cut);

    std::unordered_map<uint64_t, uint64_t> last_;  //!< number by peer and path
};

}  // namespace ucp::bulk
