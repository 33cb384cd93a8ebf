// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <cstring>
#include <optional>
#include <vector>

#include "softhca/softhca.h"

// Helpers shared by the tests of the emulated adapter: a host with its objects, memory that is
// registered, queue pairs that are connected.
namespace softhca::test {

constexpr unsigned kAllAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr uint64_t kDcKey = 0x1234567890abcdef;

// One device opened, with a PD, a CQ and an SRQ.
struct Host {
    explicit Host(int cqe = 1023) {
        ibv_device** list = ibv_get_device_list(nullptr);
        context = ibv_open_device(list[0]);
        ibv_free_device_list(list);
        pd = ibv_alloc_pd(context);
        cq = ibv_create_cq(context, cqe, nullptr, nullptr, 0);
        ibv_srq_init_attr attr{nullptr, {1024, 4, 0}};
        srq = ibv_create_srq(pd, &attr);
        ibv_port_attr port;
        EXPECT_EQ(ibv_query_port(context, 1, &port), 0);
        lid = port.lid;
    }
    ~Host() {
        EXPECT_EQ(ibv_destroy_srq(srq), 0);
        EXPECT_EQ(ibv_destroy_cq(cq), 0);
        EXPECT_EQ(ibv_dealloc_pd(pd), 0);
        EXPECT_EQ(ibv_close_device(context), 0);
    }
    Host(const Host&) = delete;
    Host& operator=(const Host&) = delete;

    std::optional<ibv_wc> poll() {
        ibv_wc wc{};
        return ibv_poll_cq(cq, 1, &wc) == 1 ? std::optional(wc) : std::nullopt;
    }
    std::vector<ibv_wc> poll_all() {
        std::vector<ibv_wc> all;
        while (std::optional<ibv_wc> wc = poll()) all.push_back(*wc);
        return all;
    }
    std::optional<ibv_async_event> async_event();

    ibv_context* context = nullptr;
    ibv_pd* pd = nullptr;
    ibv_cq* cq = nullptr;
    ibv_srq* srq = nullptr;
    uint16_t lid = 0;
};

// Registered memory.
struct Buffer {
    Buffer(Host& host, size_t size, unsigned access = kAllAccess, char fill = 0)
        : bytes(size, fill), mr(ibv_reg_mr(host.pd, bytes.data(), size, access)) {
        EXPECT_NE(mr, nullptr);
    }
    ~Buffer() {
        if (mr != nullptr) {
            EXPECT_EQ(ibv_dereg_mr(mr), 0);
        }
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    uint64_t addr(size_t offset = 0) const { return reinterpret_cast<uint64_t>(&bytes[offset]); }
    ibv_sge sge(size_t offset, size_t length) const {
        return {addr(offset), uint32_t(length), mr->lkey};
    }
    ibv_sge all() const { return sge(0, bytes.size()); }
    uint64_t& word(size_t index) { return reinterpret_cast<uint64_t*>(bytes.data())[index]; }

    std::vector<char> bytes;
    ibv_mr* mr;
};

struct QpOptions {
    ibv_qp_type type = IBV_QPT_RC;
    bool use_srq = false;
    uint32_t depth = 64;
    int sig_all = 0;
    uint32_t max_inline = 64;
    std::optional<mlx5dv_dc_type> dc = {};
    std::optional<mlx5dv_dci_streams> streams = {};
};

// How to bring a QP up.
struct Wiring {
    uint8_t rnr_retry = 0;
    uint8_t retry_cnt = 1;
    uint8_t timeout = 1;
    uint8_t rd_atomic = 16;
    uint8_t min_rnr_timer = 1;
    unsigned access = kAllAccess;
    uint8_t port = 1;
};

struct QueuePair {
    QueuePair(Host& host, const QpOptions& options = {});
    ~QueuePair() {
        if (qp != nullptr) {
            EXPECT_EQ(ibv_destroy_qp(qp), 0);
        }
    }
    QueuePair(QueuePair&& other) noexcept
        : host(other.host), qp(std::exchange(other.qp, nullptr)) {}

    ibv_qp_ex* ex() const { return ibv_qp_to_qp_ex(qp); }
    int modify(ibv_qp_state state);
    ibv_qp_state state() const;
    void connect(uint16_t dlid, uint32_t dest_qpn, const Wiring& wiring = {});
    int post_recv(uint64_t id, const ibv_sge& sge);
    int post(ibv_send_wr& wr) {
        ibv_send_wr* bad = nullptr;
        return ibv_post_send(qp, &wr, &bad);
    }
    int send(uint64_t id, ibv_sge sge, unsigned flags = IBV_SEND_SIGNALED);
    int rdma(ibv_wr_opcode opcode, uint64_t id, ibv_sge sge, uint64_t remote, uint32_t rkey,
             unsigned flags = IBV_SEND_SIGNALED, uint32_t imm = 0);
    int atomic(ibv_wr_opcode opcode, uint64_t id, ibv_sge sge, uint64_t remote, uint32_t rkey,
               uint64_t compare_add, uint64_t swap = 0);

    Host& host;
    ibv_qp* qp;
};

int post_srq(Host& host, uint64_t id, const ibv_sge& sge);

// Brings both ends of an RC (or UC) connection up.
void join(QueuePair& a, QueuePair& b, const Wiring& wiring = {});

// DC: a target bound to the host's SRQ and CQ, an initiator, and addresses between them.
QueuePair make_dct(Host& host, const Wiring& wiring = {});
QueuePair make_dci(Host& host, const Wiring& wiring = {},
                   std::optional<mlx5dv_dci_streams> streams = {});
struct Address {
    Address(Host& host, uint16_t dlid) {
        ibv_ah_attr attr{};
        attr.dlid = dlid;
        attr.port_num = 1;
        ah = ibv_create_ah(host.pd, &attr);
    }
    ~Address() { ibv_destroy_ah(ah); }
    Address(const Address&) = delete;
    Address& operator=(const Address&) = delete;
    ibv_ah* ah;
};

// Two nodes on a fabric of their own, everything free of cost unless the options say otherwise.
class VirtualTest : public ::testing::Test {
  protected:
    static VirtualFabric::Options instant(unsigned nodes = 2) {
        VirtualFabric::Options options;
        options.nodes = nodes;
        options.model = Model::instant();
        return options;
    }
    explicit VirtualTest(const VirtualFabric::Options& options = instant()) : fabric_(options) {
        for (unsigned node = 0; node < options.nodes; ++node) {
            fabric_.set_current_node(node);
            hosts_.push_back(std::make_unique<Host>());
        }
    }
    void run() { fabric_.run_until_idle(); }
    Host& host(unsigned node) { return *hosts_[node]; }

    VirtualFabric fabric_;
    std::vector<std::unique_ptr<Host>> hosts_;
};

}  // namespace softhca::test
