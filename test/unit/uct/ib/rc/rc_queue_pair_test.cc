// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/rc/rc_queue_pair.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "softhca/softhca.h"
#include "ucs/config/source.h"
#include "uct/ib/component.h"
#include "uct/ib/rc/rc_interface.h"

namespace uct::ib::test {
namespace {

// Queue pairs on a port of the soft adapter, with a path MTU of 2048 and settings of their own.
class RcQueuePairs : public testing::Test {
  protected:
    void SetUp() override {
        ASSERT_EQ(Device::open(Device::find_all().at(0), &device), UCS_OK);
        ucs::config::Source source;
        std::string error;
        const std::pair<const char*, const char*> settings[] = {
            {"IB_PATH_MTU", "2048"}, {"RC_RETRY_COUNT", "3"}, {"RC_RNR_RETRY_COUNT", "5"}};
        for (const auto& [name, value] : settings)
            ASSERT_EQ(source.modify(name, value, error), UCS_OK) << error;
        ASSERT_EQ(rc_verbs.config.load(source, config, error), UCS_OK) << error;
        ASSERT_EQ(device->make_path(config, &path), UCS_OK);
        domain.reset(ibv_alloc_pd(device->context()));
        queue.reset(ibv_create_cq(device->context(), 16, nullptr, nullptr, 0));
    }
    QpPtr make() {
        ibv_qp_init_attr initial{};
        initial.send_cq = initial.recv_cq = queue.get();
        initial.qp_type = IBV_QPT_RC;
        initial.cap = {4, 4, 1, 1, 0};
        QpPtr qp(ibv_create_qp(domain.get(), &initial));
        EXPECT_NE(qp, nullptr);
        EXPECT_TRUE(initialize_rc(qp.get(), *device, path));
        return qp;
    }
    // To itself. @param mtu  of the other end
    bool connect(const QpPtr& qp, ibv_mtu mtu) {
        PortAddress remote = path.address;
        remote.mtu = static_cast<uint8_t>(mtu);
        const QpAddress self{qp->qp_num, 1, 4};
        return connect_rc(qp.get(), {*device, path, config, remote, self, self});
    }
    static ibv_qp_attr attributes_of(const QpPtr& qp) {
        ibv_qp_attr attributes{};
        ibv_qp_init_attr initial{};
        EXPECT_EQ(ibv_query_qp(qp.get(), &attributes,
                               IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_RETRY_CNT |
                                   IBV_QP_RNR_RETRY | IBV_QP_ACCESS_FLAGS,
                               &initial),
                  0);
        return attributes;
    }

    softhca::VirtualFabric fabric;
    std::unique_ptr<Device> device;
    TransportConfig config{};
    Device::Path path{};
    DomainPtr domain;
    CqPtr queue;
};

TEST_F(RcQueuePairs, GoByTheSmallerPathMtuOfBothEnds) {
    for (const ibv_mtu theirs : {IBV_MTU_512, IBV_MTU_4096}) {
        const QpPtr qp = make();
        ASSERT_TRUE(connect(qp, theirs));
        EXPECT_EQ(attributes_of(qp).path_mtu, std::min(theirs, IBV_MTU_2048));
    }
}

TEST_F(RcQueuePairs, SendOnlyOnceTheyAreConnected) {
    const QpPtr qp = make();
    EXPECT_EQ(attributes_of(qp).qp_state, IBV_QPS_INIT);
    EXPECT_NE(attributes_of(qp).qp_access_flags & IBV_ACCESS_REMOTE_WRITE, 0u);
    ASSERT_TRUE(connect(qp, IBV_MTU_4096));
    EXPECT_EQ(attributes_of(qp).qp_state, IBV_QPS_RTS);
    EXPECT_EQ(attributes_of(qp).retry_cnt, 3);
    EXPECT_EQ(attributes_of(qp).rnr_retry, 5);
    EXPECT_FALSE(connect(qp, IBV_MTU_4096)) << "it is connected already";
}

}  // namespace
}  // namespace uct::ib::test
