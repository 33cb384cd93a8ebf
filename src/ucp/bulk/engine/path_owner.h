// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>

#include "ucp/mem/remote_memory.h"
#include "ucs/type/status.h"

namespace uct {
class Endpoint;
}

// Rails are the engine's own affair; queue pairs that somebody else makes and owns come and go by
// Engine::add_path() and remove_path(), and their owner learns of their fate by these calls.
namespace ucp {

class Endpoint;

namespace bulk {

// What chains are posted on: a handle, until PathOwner::path_gone().
class Path;

struct PathParams {
    uct::Endpoint* transport;  // connected; alive until path_failed() or path_gone()
    unsigned interface;        // index of the worker's interface that it belongs to
    DomainPair domains;        // for registrations and remote keys
    double weight = 1;         // of the device's bandwidth, as long as no rate is measured
    uint64_t name = 0;         // by which the peer's owner knows its queue pair, for revocation
};

// Who made a path. Called from Worker::progress(), never within a call of a transport; may destroy
// the transport endpoint, add and remove paths.
class PathOwner {
  public:
    // An error, or silence while other paths went on. Destroy the transport endpoint before this
    // returns. The engine has the peer revoke the path, then calls path_gone().
    virtual void path_failed(Path& path, ucs_status_t status) = 0;
    // The handle ends with this call: nothing is under way after remove_path(), or the peer has
    // revoked a failed path, or the endpoint is no more. Destroy the transport endpoint if it is
    // still there.
    virtual void path_gone(Path& path) = 0;

  protected:
    ~PathOwner() = default;
};

// Who makes queue pairs for all endpoints of a worker. Called as a PathOwner is.
class QueuePairProvider {
  public:
    // Bulk transfers of the endpoint have begun.
    virtual void wanted(Endpoint& endpoint) = 0;
    // The peer has given up a path and wants this end of it destroyed, so that nothing of it is
    // written here any more, however late. Also for names that are no longer known.
    // @param peer  uuid; there need not be an endpoint to it
    virtual void revoke_queue_pair(uint64_t peer, uint64_t name) = 0;
    // Transport endpoints, some of them perhaps of queue pairs that are no paths.
    virtual void transports_failed(std::span<const uct::Endpoint* const> transports) = 0;

  protected:
    ~QueuePairProvider() = default;
};

}  // namespace bulk
}  // namespace ucp
