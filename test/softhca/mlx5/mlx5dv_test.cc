// SPDX-License-Identifier: BSD-3-Clause
#include <infiniband/mlx5dv.h>

#include <cerrno>

#include "softhca/support.h"

namespace softhca::test {
namespace {

class Mlx5 : public VirtualTest {
  protected:
    Mlx5() { fabric_.set_current_node(0); }
    ibv_context* context() { return host(0).context; }
};

TEST_F(Mlx5, TellsOfADeviceWhatIsAskedForAndNothingElse) {
    mlx5dv_context device{};
    device.comp_mask = MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS | MLX5DV_CONTEXT_MASK_SWP;
    ASSERT_EQ(mlx5dv_query_device(context(), &device), 0);
    EXPECT_EQ(device.comp_mask, uint64_t{MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS})
        << "what the emulation lacks is not said to be there";
    EXPECT_EQ(device.num_lag_ports, 1);
    EXPECT_EQ(device.dci_streams_caps.max_log_num_concurent, 0);

    device = {};
    device.comp_mask = MLX5DV_CONTEXT_MASK_DCI_STREAMS;
    ASSERT_EQ(mlx5dv_query_device(context(), &device), 0);
    EXPECT_GT(device.dci_streams_caps.max_log_num_concurent, 0);
}

TEST_F(Mlx5, ItsClockIsTheFabrics) {
    for (const uint64_t now : {5000, 70000}) {
        fabric_.advance_to(now);
        mlx5dv_clock_info info{};
        ASSERT_EQ(mlx5dv_get_clock_info(context(), &info), 0);
        EXPECT_EQ(mlx5dv_ts_to_ns(&info, now), now);
        EXPECT_EQ(mlx5dv_ts_to_ns(&info, now + 300), now + 300);
    }
}

TEST_F(Mlx5, KnowsItsPortsAlone) {
    mlx5dv_port port{};
    EXPECT_EQ(mlx5dv_query_port(context(), 1, &port), 0);
    EXPECT_EQ(mlx5dv_query_port(context(), 0, &port), EINVAL);
    EXPECT_EQ(mlx5dv_query_port(context(), 2, &port), EINVAL);
}

TEST_F(Mlx5, WhatAProgramAsksForAtTheOpeningIsRefusedIfItIsNotThere) {
    ibv_device** list = ibv_get_device_list(nullptr);
    mlx5dv_context_attr attributes{};
    attributes.flags = MLX5DV_CONTEXT_FLAGS_DEVX;
    errno = 0;
    EXPECT_EQ(mlx5dv_open_device(list[0], &attributes), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    attributes.flags = 0;
    ibv_context* opened = mlx5dv_open_device(list[0], &attributes);
    ASSERT_NE(opened, nullptr);
    EXPECT_EQ(ibv_close_device(opened), 0);
    ibv_free_device_list(list);
}

}  // namespace
}  // namespace softhca::test
