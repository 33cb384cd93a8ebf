// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "ucp/mem/invalidations.h"

namespace ucp {

/**
 * Sees to it that invalidations hear of all memory that goes, and of forks: from libucm, if that is
 * there, and it can. A program that links parts of the library without it has no events.
 */
class MemoryEvents {
  public:
    MemoryEvents() = default;
    ~MemoryEvents();
    MemoryEvents(const MemoryEvents&) = delete;
    MemoryEvents& operator=(const MemoryEvents&) = delete;

    /** @return false: there are no events, and nothing is remembered truly */
    bool report_to(Invalidations& invalidations);

  private:
    Invalidations* invalidations_ = nullptr;
};

}  // namespace ucp
