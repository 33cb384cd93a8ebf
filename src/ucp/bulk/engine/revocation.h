// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ucp/bulk/engine/path_group.h"
#include "ucp/bulk/engine/revocation_message.h"
#include "ucp/endpoint/endpoint_table.h"

namespace ucp {

namespace bulk {

class PathTable;

/**
 * Has peers promise that nothing of a failed path is written to their memory any more (REVOKE), and
 * keeps that promise for peers' paths (REVOKE_DONE).
 */
class Revocation {
  public:
    /** @param patience  with a peer that does not answer */
    Revocation(InterfaceSet& interfaces, EndpointTable& endpoints, PathTable& paths,
               RunQueue& run_queue, ucs::Duration patience);

    /** The path has failed. */
    void begin(Path& path, ucs::Time now);
    /** Ask the peer, by all ways: for the first time or again. */
    void ask(Path& path, ucs::Time now);
    /** What peers have asked for. Never within a call of a transport: it may be destroyed. */
    void carry_out_requests();
    /** Messages that found no room on a rail. */
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
    std::vector<std::vector<std::byte>> requests_;  //!< of peers
    RevocationRecord record_;
    uint64_t last_ = 0;  //!< number of the last begun here
};

}  // namespace bulk
}  // namespace ucp
