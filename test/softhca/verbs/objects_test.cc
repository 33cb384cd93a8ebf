// SPDX-License-Identifier: BSD-3-Clause
#include <sys/mman.h>

#include "softhca/support.h"

// Devices, regions, QP attributes, limits.
namespace softhca::test {
namespace {

class Objects : public VirtualTest {};

TEST_F(Objects, DevicesLookLikeAConnectX) {
    VirtualFabric::Options options = instant();
    options.devices_per_node = 2;
    VirtualFabric fabric(options);
    fabric.set_current_node(1);
    int count = 0;
    ibv_device** list = ibv_get_device_list(&count);
    ASSERT_EQ(count, 2);
    EXPECT_STREQ(ibv_get_device_name(list[1]), "mlx5_1");
    EXPECT_TRUE(mlx5dv_is_supported(list[0]));
    EXPECT_NE(ibv_get_device_guid(list[0]), ibv_get_device_guid(list[1]));
    ibv_context* context = ibv_open_device(list[1]);
    ibv_free_device_list(list);
    EXPECT_STREQ(context->device->name, "mlx5_1") << "a context outlives the list";
    ibv_device_attr_ex attr;
    ASSERT_EQ(ibv_query_device_ex(context, nullptr, &attr), 0);
    EXPECT_EQ(attr.orig_attr.vendor_id, 0x2c9u);
    EXPECT_EQ(attr.orig_attr.vendor_part_id, 4129u);
    EXPECT_EQ(attr.orig_attr.atomic_cap, IBV_ATOMIC_HCA);
    ibv_port_attr port;
    EXPECT_NE(ibv_query_port(context, 2, &port), 0);
    ASSERT_EQ(ibv_query_port(context, 1, &port), 0);
    EXPECT_EQ(port.lid, 4);
    EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
    ibv_gid gid;
    ASSERT_EQ(ibv_query_gid(context, 1, 0, &gid), 0);
    EXPECT_EQ(gid.raw[0], 0xfe);
    EXPECT_NE(ibv_query_gid(context, 1, 9, &gid), 0);
    EXPECT_EQ(ibv_close_device(context), 0);
    fabric_.make_current();
}

TEST_F(Objects, IovaIsWhatPeersAddress) {
    QueuePair a(host(0));
    QueuePair b(host(1));
    join(a, b);
    Buffer mine(host(0), 16, kAllAccess, 'i');
    std::vector<char> memory(64);
    ibv_mr* mr = ibv_reg_mr_iova2(host(1).pd, memory.data(), 64, 0x1000, kAllAccess);
    ASSERT_NE(mr, nullptr);
    a.rdma(IBV_WR_RDMA_WRITE, 1, mine.all(), 0x1000 + 48, mr->rkey);
    run();
    EXPECT_EQ(host(0).poll()->status, IBV_WC_SUCCESS);
    EXPECT_EQ(memory[47], 0);
    EXPECT_EQ(memory[48], 'i');
    a.rdma(IBV_WR_RDMA_WRITE, 2, mine.all(), 0x1000 - 1, mr->rkey);
    run();
    EXPECT_EQ(host(0).poll()->status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(Objects, RegistrationChecksItsArguments) {
    char byte = 0;
    EXPECT_EQ(ibv_reg_mr(host(0).pd, &byte, 1, IBV_ACCESS_REMOTE_WRITE), nullptr);
    EXPECT_EQ(errno, EINVAL) << "remote writing needs local writing";
    void* hole = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(hole, 4096);
    EXPECT_EQ(ibv_reg_mr(host(0).pd, hole, 4096, IBV_ACCESS_LOCAL_WRITE), nullptr);
    EXPECT_EQ(errno, EFAULT);
    ibv_mr* empty = ibv_reg_mr(host(0).pd, &byte, 0, IBV_ACCESS_LOCAL_WRITE);
    ASSERT_NE(empty, nullptr);
    EXPECT_EQ(ibv_dereg_mr(empty), 0);
}

TEST_F(Objects, ReregisterKeepsTheKey) {
    QueuePair a(host(0));
    QueuePair b(host(1));
    join(a, b);
    Buffer mine(host(0), 8, kAllAccess, 'r');
    Buffer theirs(host(1), 8, IBV_ACCESS_LOCAL_WRITE);
    const uint32_t before = theirs.mr->rkey;
    ASSERT_EQ(ibv_rereg_mr(theirs.mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAllAccess),
              0);
    EXPECT_EQ(theirs.mr->rkey, before);
    a.rdma(IBV_WR_RDMA_WRITE, 1, mine.all(), theirs.addr(), theirs.mr->rkey);
    run();
    EXPECT_EQ(host(0).poll()->status, IBV_WC_SUCCESS);
    EXPECT_EQ(ibv_rereg_mr(theirs.mr, 1 << 10, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
}

TEST_F(Objects, AWindowLeadsToAPartOfItsRegion) {
    QueuePair a(host(0));
    QueuePair b(host(1));
    join(a, b);
    Buffer mine(host(0), 8, kAllAccess, 'w');
    Buffer theirs(host(1), 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    ibv_mw* window = ibv_alloc_mw(host(1).pd, IBV_MW_TYPE_2);
    ASSERT_NE(window, nullptr);
    ibv_send_wr bind{};
    bind.opcode = IBV_WR_BIND_MW;
    bind.send_flags = IBV_SEND_SIGNALED;
    bind.bind_mw.mw = window;
    bind.bind_mw.rkey = ibv_inc_rkey(window->rkey);
    bind.bind_mw.bind_info = {theirs.mr, theirs.addr(8), 8, IBV_ACCESS_REMOTE_WRITE};
    ASSERT_EQ(b.post(bind), 0);
    run();
    const auto bound = host(1).poll();
    ASSERT_TRUE(bound);
    EXPECT_EQ(bound->status, IBV_WC_SUCCESS);
    EXPECT_EQ(bound->opcode, IBV_WC_BIND_MW);
    EXPECT_EQ(ibv_dereg_mr(theirs.mr), EBUSY) << "a window is bound to it";
    a.rdma(IBV_WR_RDMA_WRITE, 1, mine.all(), theirs.addr(8), bind.bind_mw.rkey);
    run();
    EXPECT_EQ(host(0).poll()->status, IBV_WC_SUCCESS);
    EXPECT_EQ(theirs.bytes[8], 'w');
    a.rdma(IBV_WR_RDMA_WRITE, 2, mine.all(), theirs.addr(9), bind.bind_mw.rkey);
    run();
    EXPECT_EQ(host(0).poll()->status, IBV_WC_REM_ACCESS_ERR) << "past its end";
    EXPECT_EQ(ibv_dealloc_mw(window), 0);
}

TEST_F(Objects, DeviceMemoryIsReachedByCopiesAndRegions) {
    QueuePair a(host(0));
    QueuePair b(host(1));
    join(a, b);
    Buffer mine(host(0), 8, kAllAccess, 'm');
    ibv_alloc_dm_attr attr{64, 0, 0};
    ibv_dm* dm = ibv_alloc_dm(host(1).context, &attr);
    ASSERT_NE(dm, nullptr);
    ibv_mr* mr =
        ibv_reg_dm_mr(host(1).pd, dm, 16, 16,
                      IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(ibv_free_dm(dm), EBUSY) << "a region is on it";
    a.rdma(IBV_WR_RDMA_WRITE, 1, mine.all(), 4, mr->rkey);
    run();
    EXPECT_EQ(host(0).poll()->status, IBV_WC_SUCCESS);
    char out[4];
    EXPECT_EQ(ibv_memcpy_from_dm(out, dm, 20, 4), 0);
    EXPECT_EQ(out[0], 'm');
    EXPECT_EQ(ibv_memcpy_from_dm(out, dm, 21, 4), EINVAL) << "words only";
    EXPECT_EQ(ibv_memcpy_from_dm(out, dm, 64, 4), EFAULT);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(ibv_free_dm(dm), 0);
}

TEST_F(Objects, TransitionsNeedTheirAttributes) {
    QueuePair a(host(0));
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    const int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    EXPECT_EQ(ibv_modify_qp(a.qp, &attr, init & ~IBV_QP_ACCESS_FLAGS), EINVAL);
    EXPECT_EQ(ibv_modify_qp(a.qp, &attr, init | IBV_QP_QKEY), EINVAL);
    attr.port_num = 2;
    EXPECT_EQ(ibv_modify_qp(a.qp, &attr, init), EINVAL);
    attr.port_num = 1;
    ASSERT_EQ(ibv_modify_qp(a.qp, &attr, init), 0);
    attr = {};
    attr.qp_state = IBV_QPS_RTS;
    EXPECT_EQ(ibv_modify_qp(a.qp, &attr,
                            IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
              EINVAL)
        << "not past RTR";
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_4096;
    attr.ah_attr.dlid = 1;
    attr.ah_attr.port_num = 1;
    attr.max_dest_rd_atomic = 17;
    const int rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    EXPECT_EQ(ibv_modify_qp(a.qp, &attr, rtr), EINVAL) << "more than the device has";
    attr.max_dest_rd_atomic = 16;
    EXPECT_EQ(ibv_modify_qp(a.qp, &attr, rtr & ~IBV_QP_DEST_QPN), EINVAL);
    attr.path_mtu = ibv_mtu(6);
    EXPECT_EQ(ibv_modify_qp(a.qp, &attr, rtr), EINVAL);
    attr.path_mtu = IBV_MTU_1024;
    ASSERT_EQ(ibv_modify_qp(a.qp, &attr, rtr), 0);
    EXPECT_EQ(a.state(), IBV_QPS_RTR);
    ibv_qp_init_attr created;
    ASSERT_EQ(ibv_query_qp(a.qp, &attr, IBV_QP_PATH_MTU, &created), 0);
    EXPECT_EQ(attr.path_mtu, IBV_MTU_1024);
    EXPECT_EQ(attr.cap.max_send_wr, 64u);
    EXPECT_EQ(created.qp_type, IBV_QPT_RC);
}

TEST_F(Objects, LimitsAreKept) {
    VirtualFabric::Options options = instant();
    options.limits.max_qp = 2;
    options.limits.max_mr = 1;
    VirtualFabric fabric(options);
    {
        Host lonely;
        QueuePair one(lonely);
        QueuePair two(lonely);
        ibv_qp_init_attr attr{};
        attr.send_cq = attr.recv_cq = lonely.cq;
        attr.qp_type = IBV_QPT_RC;
        attr.cap = {1, 1, 1, 1, 0};
        EXPECT_EQ(ibv_create_qp(lonely.pd, &attr), nullptr);
        EXPECT_EQ(errno, ENOMEM);
        attr.cap.max_inline_data = 100000;
        EXPECT_EQ(ibv_create_qp(lonely.pd, &attr), nullptr);
        EXPECT_EQ(errno, EINVAL);
        Buffer first(lonely, 8);
        char byte = 0;
        EXPECT_EQ(ibv_reg_mr(lonely.pd, &byte, 1, 0), nullptr);
        EXPECT_EQ(errno, ENOMEM);
    }
    fabric_.make_current();
}

TEST_F(Objects, NumbersAreNotReusedAtOnce) {
    uint32_t first = 0;
    {
        QueuePair a(host(0));
        first = a.qp->qp_num;
    }
    QueuePair b(host(0));
    EXPECT_NE(b.qp->qp_num, first);
    EXPECT_LT(b.qp->qp_num, 1u << 24);
}

TEST_F(Objects, ParentDomainStandsForItsPd) {
    ibv_td_init_attr td_attr{};
    ibv_td* td = ibv_alloc_td(host(0).context, &td_attr);
    ASSERT_NE(td, nullptr);
    ibv_parent_domain_init_attr attr{};
    attr.pd = host(0).pd;
    attr.td = td;
    ibv_pd* parent = ibv_alloc_parent_domain(host(0).context, &attr);
    ASSERT_NE(parent, nullptr);
    std::swap(host(0).pd, parent);
    {
        QueuePair a(host(0));
        std::swap(host(0).pd, parent);
        Buffer buffer(host(0), 16);
        a.connect(host(0).lid, a.qp->qp_num);
        a.post_recv(1, buffer.sge(0, 8));
        a.send(2, buffer.sge(8, 8));
        run();
        for (const ibv_wc& wc : host(0).poll_all()) EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    }
    EXPECT_EQ(ibv_dealloc_pd(parent), 0);
    EXPECT_EQ(ibv_dealloc_td(td), 0);
}

}  // namespace
}  // namespace softhca::test
