// SPDX-License-Identifier: BSD-3-Clause
#include "system/soft_wire.h"
#include "unit/ucp/runtime/sender_wires.h"

namespace ucp::test {

std::vector<SenderWire> sender_wires() {
    const auto adapters = [](unsigned per_node) {
        return [per_node] {
            return std::make_unique<SoftWire>(3, softhca::Model(), softhca::FaultPlan(),
                                              SoftWire::Variables(), per_node);
        };
    };
    return {{"dc_mlx5", adapters(2), false, {"dc_mlx5", "rc_mlx5"}},
            {"ud_verbs", adapters(2), false, {"ud_verbs", "rc_verbs"}},
            {"rc_mlx5", adapters(1), true, {"dc_mlx5", "rc_mlx5"}},
            {"rc_verbs", adapters(1), true, {"ud_verbs", "rc_verbs"}}};
}

}  // namespace ucp::test
