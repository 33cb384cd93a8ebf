// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "ucp/proto/stream/stream.h"
#include "ucp/wireup/connector.h"
#include "ucs/net/socket.h"
#include "ucs/sys/random.h"
#include "ucs/sys/time.h"

namespace ucp::wireup {

class Caller;
class Connection;
class ConnectionManager;
class Listener;
struct ConnectionRequest;

// A socket that the manager watches, from watch() until the object goes.
class WatchedSocket {
  public:
    explicit WatchedSocket(ConnectionManager& manager) : manager_(manager) {}
    virtual ~WatchedSocket() { ignore(); }
    WatchedSocket(const WatchedSocket&) = delete;

    // Something can be read, or written; the object may go in this call.
    virtual void ready() = 0;
    // There was no memory for that: what it stands for ends, and nothing else.
    virtual void out_of_memory() = 0;

  protected:
    // @param writing  also tell when something can be written
    ucs_status_t watch(bool writing);
    void ignore();

    ConnectionManager& manager_;
    ucs::net::Socket socket_;

  private:
    uint64_t id_ = 0;  // 0: not watched
};

// Listeners and connections of a worker, driven by its progress.
//
// A small server over TCP: it carries worker addresses between programs that know of each other by
// socket address only, and tells either of the other's end. Messages never go this way: endpoints
// are made from the addresses as any others.
//
// Thread rule: the worker's.
class ConnectionManager {
  public:
    struct Services {
        Connector& connector;
        Streams& streams;
        Gate& gate;
        ucs::Random& random;
        const ucs::Clock& clock;
        uint64_t client_id;   // from ucp_worker_params_t
        std::string job_key;  // UCX_TCP_JOB_KEY
    };

    static ucs_status_t create(const Services& services,
                               std::unique_ptr<ConnectionManager>* manager);
    // Endpoints, and so their connections, are gone.
    ~ConnectionManager();

    const Services& services() const { return services_; }
    Gate& gate() const { return services_.gate; }
    // Readable when there is something to do.
    int descriptor() const { return poll_; }
    // Something to do, readable or not.
    bool has_work() const;

    // @param is_quiet  the transports had nothing in this round of progress
    // @param look      set if the next round is to look at every transport, and here again
    unsigned progress(ucs::Time now, bool is_quiet, bool* look);

    // ucp_ep_create() with a socket address: call the server.
    ucs_status_t call(const ucp_ep_params_t& params, Endpoint** endpoint);
    // ucp_ep_create() with a connection request, which is consumed.
    ucs_status_t accept(std::unique_ptr<ConnectionRequest> request, Endpoint** endpoint);

    // --- for the objects that it watches ---

    // Somebody called a listener: he has some time to say who he is.
    void add_caller(Listener& listener, ucs::net::Socket socket);
    // Somebody is not heard: say why, once in a while.
    void refuse(const ucs::net::Socket& caller, std::string_view why);
    // Of strangers: a warning once in a while, else a line at level diag.
    void complain(const std::string& text);
    void drop_caller(Caller& caller);
    void drop_callers_of(const Listener& listener);
    // The peer has gone: messages that it had sent before are taken first.
    void end_later(Connection& connection);
    void forget(Connection& connection) { std::erase(ending_, &connection); }
    void add(Listener& listener) { listeners_.push_back(&listener); }
    void remove(Listener& listener) { std::erase(listeners_, &listener); }

    // --- for WatchedSocket ---

    // @param id  0: not watched yet
    ucs_status_t watch(WatchedSocket& watched, int descriptor, bool writing, uint64_t* id);
    void ignore(int descriptor, uint64_t id);

  private:
    explicit ConnectionManager(const Services& services);
    void serve(uint64_t id, WatchedSocket& watched);
    template <typename Begin>
    ucs_status_t connect(Endpoint& endpoint, Begin begin);

    const Services services_;
    int poll_ = -1;
    void make_room_for(const Caller& newcomer);

    uint64_t last_id_ = 0;
    std::unordered_map<uint64_t, WatchedSocket*> watched_;
    std::vector<std::unique_ptr<Caller>> callers_;
    std::vector<Connection*> ending_;
    ucs::Time next_complaint_{};
    bool is_looking_ = false;  // this round of progress looks everywhere, for their sake
    std::vector<Listener*> listeners_;
};

}  // namespace ucp::wireup
