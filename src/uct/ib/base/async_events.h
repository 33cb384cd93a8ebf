// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <mutex>
#include <vector>

namespace uct::ib {

// Something that an adapter tells without being asked.
struct AsyncEvent {
    enum class Kind : uint8_t {
        kPortDown,
        kPortUp,
        kQueuePair,  // one has failed
        kQueue,      // a completion queue or a shared receive queue has failed
        kDevice,     // the adapter is gone
    };
    Kind kind;
    uint32_t queue_pair = 0;
    const void* queue = nullptr;  // to compare: it may be destroyed by now
};

// Events for one interface, which looks when it progresses. AsyncEvents puts in and takes out,
// under its lock.
class EventBox {
  public:
    ~EventBox();
    // A descriptor that is readable while something is in the box; made when first asked for.
    int fd();

    void put(const AsyncEvent& event);
    // All that is in it.
    std::vector<AsyncEvent> take();

  private:
    std::vector<AsyncEvent> events_;
    int fd_ = -1;
};

// Reads the events of an opened adapter and hands each to every interface on its port.
//
// There is no thread for it: whichever interface looks first reads for all; each finds its own in
// its box. May be called from the threads of several workers.
class AsyncEvents {
  public:
    // Events of the adapter's other ports are left out.
    AsyncEvents(ibv_context* context, uint8_t port);

    void subscribe(EventBox& box);
    void unsubscribe(EventBox& box);
    // What has happened to the box's interface since the last call; no wait.
    std::vector<AsyncEvent> take(EventBox& box);
    int fd() const { return context_->async_fd; }

  private:
    void read_all();

    ibv_context* const context_;
    const uint8_t port_;
    std::mutex mutex_;
    std::vector<EventBox*> boxes_;
};

}  // namespace uct::ib
