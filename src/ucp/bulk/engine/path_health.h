// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "ucp/bulk/engine/path.h"
#include "ucp/bulk/schedule/rules.h"

namespace ucp::bulk {

class PathTable;
class Poster;
class Revocation;
class TransferTable;

// What becomes of paths: errors, silence, lost links, waiting, probes, their end.
class PathHealth {
  public:
    PathHealth(const Rules& rules, const ucs::Clock& clock, PathTable& paths,
               TransferTable& transfers, Poster& poster, Revocation& revocation)
        : rules_(rules),
          clock_(clock),
          paths_(paths),
          transfers_(transfers),
          poster_(poster),
          revocation_(revocation) {}

    // What completions, messages and removals have noted in the paths is handled.
    void handle_events(PathGroup& group);
    // What only time tells.
    void check(PathGroup& group, ucs::Time now);
    // Idle paths are asked whether they are well, as it does not show.
    void probe_idle(PathGroup& group);
    // The endpoint has failed: nothing but its lane is left, and only what that carries.
    void drop_paths(PathGroup& group, ucs_status_t status);

  private:
    void fail(Path& path, ucs_status_t status);
    void back_off(Path& path, ucs::Time now);
    void make_anew(Path& path, ucs::Time now);
    bool is_silent(Path& path, ucs::Time now);
    static bool others_went_on(const Path& path);

    const Rules& rules_;
    const ucs::Clock& clock_;
    PathTable& paths_;
    TransferTable& transfers_;
    Poster& poster_;
    Revocation& revocation_;
};

}  // namespace ucp::bulk
