// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "ucp/mem/remote_memory.h"
#include "ucs/type/status.h"

namespace uct {
class Endpoint;
}

// The ways of bulk between this worker and a peer. Rails are the engine's own affair; queue pairs
// that somebody else makes and owns (strands) come and go by these calls: worker.bulk().add_path().
namespace ucp {

class Endpoint;

namespace bulk {

/** A path that the engine posts on: a handle, until PathOwner::path_gone(). */
class Path;

struct PathParams {
    uct::Endpoint* transport;  //!< connected; alive until path_failed() or path_gone()
    unsigned interface;        //!< Worker::interface() that it belongs to
    DomainPair domains;        //!< for registrations and remote keys
    double weight = 1;         //!< of the device's bandwidth, as long as no rate is measured
    uint64_t name = 0;         //!< by which the peer's owner knows its end, if it is to be cut off
};

/**
 * Who made a path. Called from Worker::progress(), never within a call of a transport; may destroy
 * the transport endpoint, add and remove paths.
 */
class PathOwner {
  public:
    /**
     * An error, or silence while other paths went on. Destroy the transport endpoint before this
     * returns. The engine has the peer cut off its end (cut_end() there), then calls path_gone().
     */
    virtual void path_failed(Path& path, ucs_status_t status) = 0;
    /**
     * The handle ends with this call: nothing is under way after remove_path(), or the peer has cut
     * off a failed one, or the endpoint is no more. Destroy the transport endpoint if it is still
     * there.
     */
    virtual void path_gone(Path& path) = 0;
    /**
     * The peer has given up a path and wants this end of it destroyed, so that nothing of it is
     * written here any more, however late. Also for names that are no longer known.
     * @param peer  uuid; there need not be an endpoint to it
     */
    virtual void cut_end(uint64_t peer, uint64_t name) = 0;

  protected:
    ~PathOwner() = default;
};

}  // namespace bulk
}  // namespace ucp
