// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "ucp/wireup/socket.h"
#include "ucs/time.h"

namespace ucp {
class Worker;
}

namespace ucp::wireup {

class Caller;
class Connection;
class ConnectionManager;
class Listener;

/** A socket that the manager watches, from watch() until the object goes. */
class Watched {
  public:
    explicit Watched(ConnectionManager& manager) : manager_(manager) {}
    virtual ~Watched() { ignore(); }
    Watched(const Watched&) = delete;
    Watched& operator=(const Watched&) = delete;

    /** Something can be read, or written; the object may go in this call. */
    virtual void ready() = 0;

  protected:
    /** @param writing  also tell when something can be written */
    ucs_status_t watch(bool writing);
    void ignore();

    ConnectionManager& manager_;
    Socket socket_;

  private:
    friend class ConnectionManager;
    uint64_t id_ = 0;  //!< 0: not watched
};

/**
 * Listeners and connections of a worker, driven by its progress.
 *
 * A small server over TCP: it carries worker addresses between programs that know of each other by
 * socket address only, and tells either of the other's end. Messages never go this way: endpoints
 * are made from the addresses as any others.
 *
 * Thread rule: the worker's.
 */
class ConnectionManager {
  public:
    static ucs_status_t create(Worker& worker, std::unique_ptr<ConnectionManager>* manager);
    /** Endpoints, and so their connections, are gone. */
    ~ConnectionManager();

    Worker& worker() const { return worker_; }
    /** Readable when there is something to do. */
    int descriptor() const { return poll_; }
    /** Something to do, readable or not. */
    bool has_work() const;

    /** @param is_quiet  the transports had nothing in this round of progress */
    unsigned progress(ucs::Time now, bool is_quiet);

    // --- for the objects that it watches ---

    /** Somebody called a listener: he has some time to say who he is. */
    void add_caller(Listener& listener, Socket socket);
    void drop_caller(Caller& caller);
    void drop_callers_of(const Listener& listener);
    /** The peer has gone: messages that it had sent before are taken first. */
    void end_later(Connection& connection);
    void forget(Connection& connection);
    void add(Listener& listener) { listeners_.push_back(&listener); }
    void remove(Listener& listener);

  private:
    friend class Watched;

    explicit ConnectionManager(Worker& worker);

    Worker& worker_;
    int poll_ = -1;
    uint64_t last_id_ = 0;
    std::unordered_map<uint64_t, Watched*> watched_;
    std::vector<std::unique_ptr<Caller>> callers_;
    std::vector<Connection*> ending_;
    bool is_looking_ = false;  //!< this round of progress looks everywhere, for their sake
    std::vector<Listener*> listeners_;
};

}  // namespace ucp::wireup
