// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include "ucp/runtime/gate.h"
#include "ucp/runtime/interface_set.h"
#include "ucs/sys/time.h"
#include "ucs/type/status.h"

namespace ucp {

// Sleeping until a worker has something to do: one descriptor over those of its transports, of its
// connections by socket address, of a timer for what is due later, and of signal().
//
// arm() and the sleep do not race: what happens between them leaves the descriptor readable, and
// what had happened before makes arm() say UCS_ERR_BUSY. What a call of another thread leaves to
// progress, or to a time before the timer's, leaves it readable as well. Which events the program
// wants to wake up for is not told apart: it may wake up for nothing.
class Wakeup final : public Gate::Sleeper {
  public:
    // An event set of the program's own that is to report this worker.
    struct External {
        int epoll = -1;             // -1: none
        void* user_data = nullptr;  // what it reports
        bool edge = false;          // only what is new
    };

    // Whose sleep it is.
    class Source {
      public:
        // Work put aside for the next progress, whatever the transports have.
        virtual bool has_work() const = 0;
        // When there is work that only time brings; kNever if none.
        virtual ucs::Time next_deadline() const = 0;
        virtual ucs::Time now() const = 0;
        // The next progress looks at what it looks at only now and then.
        virtual void look_soon() = 0;
        // Whether progress has found anything since this was last asked.
        virtual bool take_progressed() = 0;
        // Connections by socket address have something to do. Asks the system.
        virtual bool has_callers() const = 0;

      protected:
        ~Source() = default;
    };

    // @return UCS_ERR_UNSUPPORTED if a transport in use cannot wake anybody; UCS_ERR_IO_ERROR
    static ucs_status_t create(Source& source, Gate& gate, InterfaceSet& interfaces,
                               const External& external, std::unique_ptr<Wakeup>* wakeup);
    ~Wakeup();
    Wakeup(const Wakeup&) = delete;

    int descriptor() const { return poll_; }
    // Wake up when this one is readable as well.
    ucs_status_t watch(int descriptor);
    // @return UCS_ERR_BUSY if something is there already: progress first. Once also if progress has
    //         found anything since the last call: its requests may be complete, and the program has
    //         not looked at them yet.
    ucs_status_t arm();
    // Sleep until the descriptor is readable.
    ucs_status_t wait() const;
    // Make the descriptor readable once. Any thread.
    ucs_status_t signal() const;
    void look_at_call() override;

  private:
    Wakeup(Source& source, Gate& gate, InterfaceSet& interfaces)
        : source_(source), gate_(gate), interfaces_(interfaces) {}
    void set_timer();

    Source& source_;
    Gate& gate_;
    InterfaceSet& interfaces_;
    int poll_ = -1;
    int signal_ = -1;
    int timer_ = -1;
    ucs::Time deadline_{};  // that the timer was set to
    int external_ = -1;
};

}  // namespace ucp
