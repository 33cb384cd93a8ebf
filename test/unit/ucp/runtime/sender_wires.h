// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "unit/ucp/cluster.h"

namespace ucp::test {

// A transport by which three workers know whom messages are from.
struct SenderWire {
    std::string name;
    std::function<std::unique_ptr<Wire>()> make;
    bool has_lanes = false;               // what is sent goes by a dedicated lane
    std::vector<std::string> transports;  // for UCX_TLS; empty: all
};

// Those of the program that these tests are part of.
std::vector<SenderWire> sender_wires();

inline Cluster::Options options_for(const SenderWire& kind, Wire& wire) {
    Cluster::Options options;
    options.wire = &wire;
    if (!kind.transports.empty()) options.config.transports = {false, kind.transports};
    return options;
}

// The two have a lane, each end of it in use.
inline void join_by_lane(Cluster& cluster, size_t one, size_t other) {
    for (const auto& [from, to] : {std::pair(one, other), std::pair(other, one)}) {
        EXPECT_EQ(ucpx_ep_lanes_request(cluster.endpoint(from, to), UCPX_LANE_POLICY_DEDICATED),
                  UCS_OK);
    }
    EXPECT_TRUE(cluster.until([&] {
        return cluster.lane_state(cluster.endpoint(one, other)) == UCPX_LANE_STATE_ESTABLISHED &&
               cluster.lane_state(cluster.endpoint(other, one)) == UCPX_LANE_STATE_ESTABLISHED;
    }));
}

}  // namespace ucp::test
