// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <set>
#include <utility>
#include <vector>

#include "unit/ucp/cluster.h"

namespace ucp::test {

inline sockaddr_storage loopback(int family) {
    sockaddr_storage storage{};
    if (family == AF_INET) {
        auto* in = reinterpret_cast<sockaddr_in*>(&storage);
        in->sin_family = AF_INET;
        in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    } else {
        auto* in = reinterpret_cast<sockaddr_in6*>(&storage);
        in->sin6_family = AF_INET6;
        in->sin6_addr = in6addr_loopback;
    }
    return storage;
}

inline ucs_sock_addr_t as_parameter(const sockaddr_storage& address) {
    return {reinterpret_cast<const sockaddr*>(&address),
            static_cast<socklen_t>(address.ss_family == AF_INET ? sizeof(sockaddr_in)
                                                                : sizeof(sockaddr_in6))};
}

// One side's endpoint, and what its error callback has said.
struct ConnectionEnd {
    ucp_ep_h endpoint = nullptr;
    ucs_status_t error = UCS_OK;
    unsigned errors = 0;

    ConnectionEnd() { all().insert(this); }
    ~ConnectionEnd() { all().erase(this); }
    ConnectionEnd(const ConnectionEnd&) = delete;
    ConnectionEnd& operator=(const ConnectionEnd&) = delete;

    ucp_ep_params_t params() {
        ucp_ep_params_t params{};
        params.field_mask = UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
        params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
        params.err_handler.arg = this;
        params.err_handler.cb = [](void* arg, ucp_ep_h endpoint, ucs_status_t status) {
            if (!all().contains(arg)) return;  // its test is over, and its worker goes
            auto& side = *static_cast<ConnectionEnd*>(arg);
            EXPECT_EQ(endpoint, side.endpoint);
            side.error = status;
            ++side.errors;
        };
        return params;
    }

  private:
    static std::set<const void*>& all() {
        static std::set<const void*> ends;
        return ends;
    }
};

// Worker 0 listens.
class Server {
  public:
    explicit Server(Cluster& cluster, int family = AF_INET) : cluster_(cluster) {
        const sockaddr_storage where = loopback(family);
        ucp_listener_params_t params{};
        params.field_mask =
            UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
        params.sockaddr = as_parameter(where);
        params.conn_handler = {[](ucp_conn_request_h request, void* arg) {
                                   static_cast<Server*>(arg)->requests.push_back(request);
                               },
                               this};
        EXPECT_EQ(ucp_listener_create(cluster.worker(0), &params, &listener_), UCS_OK);
        ucp_listener_attr_t attr{};
        attr.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
        EXPECT_EQ(ucp_listener_query(listener_, &attr), UCS_OK);
        address = attr.sockaddr;
    }
    ~Server() { stop(); }
    void stop() {
        if (listener_ != nullptr) ucp_listener_destroy(std::exchange(listener_, nullptr));
    }

    void call(ConnectionEnd& client, size_t from = 1, unsigned flags = 0) {
        ucp_ep_params_t params = client.params();
        params.field_mask |= UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR;
        params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER | flags;
        params.sockaddr = as_parameter(address);
        ASSERT_EQ(ucp_ep_create(cluster_.worker(from), &params, &client.endpoint), UCS_OK);
    }
    ucp_conn_request_h next_request() {
        EXPECT_TRUE(cluster_.until([&] { return !requests.empty(); }));
        if (requests.empty()) return nullptr;
        const ucp_conn_request_h request = requests.front();
        requests.erase(requests.begin());
        return request;
    }
    void accept(ConnectionEnd& server, size_t at = 0) {
        ucp_ep_params_t params = server.params();
        params.field_mask |= UCP_EP_PARAM_FIELD_CONN_REQUEST;
        params.conn_request = next_request();
        ASSERT_NE(params.conn_request, nullptr);
        ASSERT_EQ(ucp_ep_create(cluster_.worker(at), &params, &server.endpoint), UCS_OK);
    }
    ucp_listener_h listener() const { return listener_; }

    sockaddr_storage address{};
    std::vector<ucp_conn_request_h> requests;

  private:
    Cluster& cluster_;
    ucp_listener_h listener_ = nullptr;
};

}  // namespace ucp::test
