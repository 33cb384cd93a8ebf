// SPDX-License-Identifier: BSD-3-Clause
#include "system/soft_wire.h"
#include "unit/ucp/runtime/sender_wires.h"

namespace ucp::test {

std::vector<SenderWire> sender_wires() {
    const auto adapters = [] {
        return std::make_unique<SoftWire>(3, softhca::Model(), softhca::FaultPlan(),
                                          SoftWire::Variables());
    };
    return {{"dc_mlx5", adapters, false, {"dc_mlx5", "rc_mlx5"}},
            {"ud_verbs", adapters, false, {"ud_verbs", "rc_verbs"}},
            {"rc_mlx5", adapters, true, {"dc_mlx5", "rc_mlx5"}},
            {"rc_verbs", adapters, true, {"ud_verbs", "rc_verbs"}}};
}

}  // namespace ucp::test
