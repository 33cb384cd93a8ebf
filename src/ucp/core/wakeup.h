// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include "ucs/time.h"
#include "ucs/type/status.h"

namespace ucp {

class Worker;

/** Sleeping until a worker has something to do: one descriptor over those of its transports. */
class Wakeup {
  public:
    /** @return UCS_ERR_UNSUPPORTED if a transport in use cannot wake anybody; UCS_ERR_IO_ERROR */
    static ucs_status_t create(Worker& worker, std::unique_ptr<Wakeup>* wakeup);
    ~Wakeup();
    Wakeup(const Wakeup&) = delete;
    Wakeup& operator=(const Wakeup&) = delete;

    int descriptor() const { return poll_; }
    /** @return UCS_ERR_BUSY if something is there already: progress first */
    ucs_status_t arm();
    /** Sleep until the descriptor is readable, or the worker's next deadline. */
    ucs_status_t wait(ucs::Duration limit) const;
    /** Make the descriptor readable once. Any thread. */
    ucs_status_t signal() const;

  private:
    explicit Wakeup(Worker& worker) : worker_(worker) {}

    Worker& worker_;
    int poll_ = -1;
    int signal_ = -1;
};

}  // namespace ucp
