// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include "ucs/time.h"
#include "ucs/type/status.h"

namespace ucp {

class Worker;

/**
 * Sleeping until a worker has something to do: one descriptor over those of its transports, of its
 * connections by socket address, of a timer for what is due later, and of signal().
 *
 * arm() and the sleep do not race: what happens between them leaves the descriptor readable, and
 * what had happened before makes arm() say UCS_ERR_BUSY. Which events the program wants to wake up
 * for is not told apart: it may wake up for nothing.
 */
class Wakeup {
  public:
    /** An event set of the program's own that is to report this worker. */
    struct External {
        int epoll = -1;             //!< -1: none
        void* user_data = nullptr;  //!< what it reports
        bool edge = false;          //!< only what is new
    };

    /** @return UCS_ERR_UNSUPPORTED if a transport in use cannot wake anybody; UCS_ERR_IO_ERROR */
    static ucs_status_t create(Worker& worker, const External& external,
                               std::unique_ptr<Wakeup>* wakeup);
    ~Wakeup();
    Wakeup(const Wakeup&) = delete;
    Wakeup& operator=(const Wakeup&) = delete;

    int descriptor() const { return poll_; }
    /** Wake up when this one is readable as well. */
    ucs_status_t watch(int descriptor);
    /** @return UCS_ERR_BUSY if something is there already: progress first */
    ucs_status_t arm();
    /** Sleep until the descriptor is readable. */
    ucs_status_t wait() const;
    /** Make the descriptor readable once. Any thread. */
    ucs_status_t signal() const;

  private:
    explicit Wakeup(Worker& worker) : worker_(worker) {}
    void set_timer();

    Worker& worker_;
    int poll_ = -1;
    int signal_ = -1;
    int timer_ = -1;
    int external_ = -1;
};

}  // namespace ucp
