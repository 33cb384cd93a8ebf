// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "ucp/bulk/engine/path.h"
#include "ucp/endpoint/endpoint_table.h"
#include "uct/api/interface.h"

// The revocation of a path that has failed: the messages, and what their receiver has to remember.
namespace ucp::bulk {

#pragma pack(push, 1)

// kBulkRevoke: nothing of that path may be written any more. Addresses follow, for a rail.
struct RevokeHeader {
    uint64_t from;    // uuid of the worker that posted on the path
    uint64_t number;  // counts up in that worker
    uint64_t name;    // of a queue pair
    uint8_t is_queue_pair;
    uint8_t device_length;            // address of the sender's device,
    uint8_t interface_length;         // of its interface,
    uint8_t target_device_length;     // of the receiver's device,
    uint8_t target_interface_length;  // and of its interface
};

// kBulkRevokeDone
struct RevokeDoneMessage {
    uint64_t from;    // uuid of the worker that has revoked the path
    uint64_t number;  // of the REVOKE
};

#pragma pack(pop)

// A REVOKE that has been checked.
struct RevokeMessage {
    RevokeHeader header{};
    std::span<const std::byte> device, interface, target_device, target_interface;

    uct::RemoteAddress sender() const { return {device, interface, {}}; }
};
// Bytes from outside. @return false unless the lengths fit the message
bool parse_revoke(std::span<const std::byte> bytes, RevokeMessage* message);
// The lengths in the header are those of the spans.
std::vector<std::byte> pack_revoke(const RevokeMessage& message);

// Which REVOKEs of rails were carried out. One that comes again, by another path or late, is
// answered and not carried out again: the path may have been made anew by then.
class RevocationRecord {
  public:
    bool is_done(const RevokeMessage& message) const;
    void done(const RevokeMessage& message) { last_[key(message)] = message.header.number; }

  private:
    static uint64_t key(const RevokeMessage& message);

    std::unordered_map<uint64_t, uint64_t> last_;  // number by peer and path
};

class PathTable;

// Has peers promise that nothing of a failed path is written to their memory any more (REVOKE), and
// keeps that promise for peers' paths (REVOKE_DONE).
class Revocation {
  public:
    // @param patience  with a peer that does not answer
    Revocation(InterfaceSet& interfaces, EndpointTable& endpoints, PathTable& paths,
               RunQueue& run_queue, ucs::Duration patience);

    // The path has failed.
    void begin(Path& path, ucs::Time now);
    // Ask the peer, by all ways: for the first time or again.
    void ask(Path& path, ucs::Time now);
    // What peers have asked for. Never within a call of a transport: it may be destroyed.
    void carry_out_requests();
    // Messages that found no room on a rail.
    void send_held(PathGroup& group);

  private:
    bool is_senders(const uct::Interface& interface, const RevokeMessage& message) const;
    void carry_out(std::span<const std::byte> message);
    void send_everywhere(Endpoint& endpoint, AmId id, std::span<const std::byte> message);
    void send_on(Path& rail, AmId id, std::span<const std::byte> message);
    static ucs_status_t on_revoke(void* self, void* data, size_t length,
                                  uct::ReceiveDescriptor* descriptor);
    static ucs_status_t on_revoke_done(void* self, void* data, size_t length,
                                       uct::ReceiveDescriptor* descriptor);

    InterfaceSet& interfaces_;
    EndpointTable& endpoints_;
    PathTable& paths_;
    RunQueue& run_queue_;
    const ucs::Duration patience_;
    std::vector<std::vector<std::byte>> requests_;  // of peers
    RevocationRecord record_;
    uint64_t last_ = 0;  // number of the last begun here
};

}  // namespace ucp::bulk
