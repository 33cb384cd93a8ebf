// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>

#include "softhca/support.h"

// Devices with several ports.
namespace softhca::test {
namespace {

VirtualFabric::Options two_ports() {
    VirtualFabric::Options options;
    options.nodes = 2;
    options.ports_per_device = 2;
    options.model = Model::instant();
    return options;
}

class Ports : public VirtualTest {
  protected:
    Ports() : VirtualTest(two_ports()) {}
    ibv_port_attr port(unsigned node, uint8_t number) {
        ibv_port_attr attr{};
        EXPECT_EQ(ibv_query_port(host(node).context, number, &attr), 0);
        return attr;
    }
    // An RC connection of two hosts between their ports of that number.
    void join_on(uint8_t number, QueuePair& a, QueuePair& b) {
        a.connect(port(1, number).lid, b.qp->qp_num, {.port = number});
        b.connect(port(0, number).lid, a.qp->qp_num, {.port = number});
    }
};

TEST_F(Ports, EachHasALidAndAGidOfItsOwn) {
    ibv_device_attr attr{};
    ASSERT_EQ(ibv_query_device(host(0).context, &attr), 0);
    EXPECT_EQ(attr.phys_port_cnt, 2);
    EXPECT_NE(port(0, 1).lid, port(0, 2).lid);
    EXPECT_NE(port(0, 2).lid, port(1, 1).lid);
    ibv_gid gids[2];
    for (uint8_t i = 0; i < 2; ++i) {
        ASSERT_EQ(ibv_query_gid(host(0).context, uint8_t(i + 1), 0, &gids[i]), 0);
    }
    EXPECT_NE(gids[0].global.interface_id, gids[1].global.interface_id);
    ibv_gid_entry table[4];
    ASSERT_EQ(ibv_query_gid_table(host(0).context, table, 4, 0), 2);
    EXPECT_EQ(table[1].port_num, 2u);
    EXPECT_EQ(table[1].gid.global.interface_id, gids[1].global.interface_id);
    ibv_port_attr none;
    EXPECT_EQ(ibv_query_port(host(0).context, 0, &none), EINVAL);
    EXPECT_EQ(ibv_query_port(host(0).context, 3, &none), EINVAL);
}

TEST_F(Ports, AQueuePairStaysOnItsPort) {
    QueuePair qp(host(0));
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 2;
    const int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    ASSERT_EQ(ibv_modify_qp(qp.qp, &attr, init), 0);
    attr = {};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_4096;
    attr.ah_attr.dlid = port(1, 2).lid;
    attr.ah_attr.port_num = 1;
    const int rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    EXPECT_EQ(ibv_modify_qp(qp.qp, &attr, rtr), EINVAL) << "packets would leave by the other";
    attr.ah_attr.port_num = 2;
    EXPECT_EQ(ibv_modify_qp(qp.qp, &attr, rtr), 0);
}

TEST_F(Ports, OneThatIsDownStopsItsOwnTrafficAndSaysWhichItIs) {
    Buffer source(host(0), 8), target(host(1), 8);
    QueuePair a1(host(0)), b1(host(1)), a2(host(0)), b2(host(1));
    join_on(1, a1, b1);
    join_on(2, a2, b2);
    fabric_.set_port(0, 0, false);
    EXPECT_EQ(port(0, 1).state, IBV_PORT_DOWN);
    EXPECT_EQ(port(0, 2).state, IBV_PORT_ACTIVE);
    const auto event = host(0).async_event();
    ASSERT_TRUE(event);
    EXPECT_EQ(event->event_type, IBV_EVENT_PORT_ERR);
    EXPECT_EQ(event->element.port_num, 1);
    EXPECT_FALSE(host(1).async_event());

    const auto write = [&](QueuePair& qp) {
        EXPECT_EQ(qp.rdma(IBV_WR_RDMA_WRITE, 1, source.all(), target.addr(), target.mr->rkey), 0);
        run();
        const auto wc = host(0).poll();
        return wc ? wc->status : IBV_WC_GENERAL_ERR;
    };
    EXPECT_EQ(write(a1), IBV_WC_RETRY_EXC_ERR);
    EXPECT_EQ(write(a2), IBV_WC_SUCCESS);

    fabric_.set_port(0, 1, false);
    ASSERT_TRUE(host(0).async_event());
    fabric_.set_port(0, 1, true);
    const auto back = host(0).async_event();
    ASSERT_TRUE(back);
    EXPECT_EQ(back->event_type, IBV_EVENT_PORT_ACTIVE);
    EXPECT_EQ(back->element.port_num, 2);
    EXPECT_EQ(write(a2), IBV_WC_SUCCESS);
}

}  // namespace
}  // namespace softhca::test
