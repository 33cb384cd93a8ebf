// SPDX-License-Identifier: BSD-3-Clause

// Memory of GPUs at the emulated adapter, between processes and within one. What is not there when
// its completion is seen, or never arrives, is found by reading all of it.

#include "softhca/adapter/gpu_memory.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cuda/device.h"
#include "softhca/host/process.h"
#include "softhca/support.h"
#include "ucs/memory/pages.h"
#include "ucs/type/bits.h"

namespace softhca::test {
namespace {

using cuda_test::Kind;
using GpuBuffer = cuda_test::Buffer;

constexpr size_t kBytes = 300'000;  // several letters of the mailbox

struct Info {
    uint16_t lid;
    uint32_t qpn;
    uint64_t addr;
    uint32_t rkey;
};

// A registration of part of a buffer.
class Region {
  public:
    Region(Host& host, const GpuBuffer& buffer, unsigned access = kAllAccess)
        : buffer_(buffer), mr(ibv_reg_mr(host.pd, buffer.data(), buffer.length(), access)) {}
    ~Region() {
        if (mr != nullptr) {
            EXPECT_EQ(ibv_dereg_mr(mr), 0);
        }
    }
    Region(const Region&) = delete;
    Region& operator=(const Region&) = delete;

    uint64_t addr() const { return reinterpret_cast<uint64_t>(buffer_.data()); }
    ibv_sge sge(size_t offset, size_t length) const {
        return {addr() + offset, static_cast<uint32_t>(length), mr->lkey};
    }

  private:
    const GpuBuffer& buffer_;

  public:
    ibv_mr* const mr;
};

// One end of a connection, with registered memory on a device.
struct Side {
    explicit Side(int device, Kind kind = Kind::kDevice, size_t length = kBytes) {
        (void)cuda_test::use_device(device % cuda_test::device_count());
        buffer.emplace(kind, length);
        region.emplace(host, *buffer);
        EXPECT_NE(region->mr, nullptr);
    }
    Info info() const { return {host.lid, rc.qp->qp_num, region->addr(), region->mr->rkey}; }
    void connect(const Info& peer) {
        rc.connect(peer.lid, peer.qpn, Wiring{.rnr_retry = 7, .retry_cnt = 7, .timeout = 14});
    }
    ibv_wc wait() {
        for (;;) {
            if (const std::optional<ibv_wc> wc = host.poll()) return *wc;
        }
    }

    Host host;
    QueuePair rc{host, {.depth = 256}};
    std::optional<GpuBuffer> buffer;
    std::optional<Region> region;
};

class AdapterGpu : public ::testing::Test {
  protected:
    std::map<std::string, std::string> environment(const char* ways = "all") const {
        return {{"SOFTHCA_FABRIC", "gpu" + std::to_string(getpid())}, {"SOFTHCA_GPU", ways}};
    }
    static void introduce(Process& a, Process& b) {
        const auto of_a = a.wire.get<Info>();
        const auto of_b = b.wire.get<Info>();
        a.wire.put(of_b);
        b.wire.put(of_a);
    }
    // Carries words between the two until the first of them has said that it is over.
    static void relay(Process& a, Process& b) {
        while (a.wire.get<bool>()) {
            b.wire.put(true);
            a.wire.put(b.wire.get<bool>());
        }
        b.wire.put(false);
    }
    // Two processes that know of each other, until the receiver has said that it is over.
    void run_both(const std::function<void(Wire&)>& receiver,
                  const std::function<void(Wire&)>& sender) {
        Process a(environment(), receiver);
        Process b(environment(), sender);
        introduce(a, b);
        relay(a, b);
        a.expect_success();
        b.expect_success();
    }
    // In a process of its own, which may use CUDA and adapters as none has before.
    void alone(const std::function<void()>& body, const char* ways = "all") {
        Process process(environment(ways), [&](Wire&) { body(); });
        process.expect_success();
    }
};

int rounds() {
    const char* const text = std::getenv("ADAPTER_TEST_ROUNDS");
    return text != nullptr ? std::atoi(text) : (cuda_test::is_real() ? 100'000 : 300);
}

// Each round the whole of a buffer on one GPU goes in pieces to one on the other, the last with an
// immediate; the round is the immediate, and tells the bytes.
TEST_F(AdapterGpu, EveryByteIsThereWhenTheImmediateIsSeen) {
    static constexpr size_t kLength = 20'000, kPieces = 7;
    const int all = rounds();
    auto receiver = [=](Wire& wire) {
        Side side(1, Kind::kDevice, kLength);
        wire.put(side.info());
        side.connect(wire.get<Info>());
        int wrong = 0;
        for (int round = 0; round < all; ++round) {
            ASSERT_EQ(side.rc.post_recv(1, {0, 0, 0}), 0);
            wire.put(true);  // the sender may write
            const ibv_wc wc = side.wait();
            ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
            ASSERT_EQ(wc.imm_data, static_cast<uint32_t>(round));
            wrong += side.buffer->holds(static_cast<uint32_t>(round)) ? 0 : 1;
            ASSERT_TRUE(wire.get<bool>());
        }
        wire.put(false);
        EXPECT_EQ(wrong, 0) << "of " << all << " immediates came before all of their bytes";
        std::printf("%d immediates, %d before all of their bytes\n", all, wrong);
    };
    auto sender = [](Wire& wire) {
        Side side(0, Kind::kDevice, kLength);
        wire.put(side.info());
        const auto peer = wire.get<Info>();
        side.connect(peer);
        for (uint32_t round = 0; wire.get<bool>(); ++round) {
            side.buffer->fill(round);
            for (size_t piece = 0; piece < kPieces; ++piece) {
                const size_t first = piece * kLength / kPieces;
                const size_t end = (piece + 1) * kLength / kPieces;
                const bool is_last = piece + 1 == kPieces;
                ASSERT_EQ(
                    side.rc.rdma(is_last ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE, piece,
                                 side.region->sge(first, end - first), peer.addr + first, peer.rkey,
                                 is_last ? IBV_SEND_SIGNALED : 0, round),
                    0);
            }
            ASSERT_EQ(side.wait().status, IBV_WC_SUCCESS);
            wire.put(true);
        }
    };
    run_both(receiver, sender);
}

// The kind of memory at the sender and at the receiver.
class AdapterKinds : public AdapterGpu,
                     public ::testing::WithParamInterface<std::tuple<Kind, Kind>> {};

TEST_P(AdapterKinds, AllKindsOfTraffic) {
    const auto [mine, theirs] = GetParam();
    auto receiver = [theirs = theirs](Wire& wire) {
        Side side(1, theirs);
        wire.put(side.info());
        side.connect(wire.get<Info>());
        for (const size_t bytes : {size_t{8}, size_t{2000}, kBytes}) {
            side.buffer->clear();
            ASSERT_EQ(side.rc.post_recv(bytes, side.region->sge(0, kBytes)), 0);
            wire.put(true);
            const ibv_wc wc = side.wait();
            EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
            EXPECT_EQ(wc.byte_len, bytes);
            EXPECT_TRUE(side.buffer->holds(1, 0, bytes));
            EXPECT_TRUE(bytes == kBytes || side.buffer->bytes()[bytes] == std::byte{0});
            ASSERT_TRUE(wire.get<bool>());
        }
        side.buffer->fill(2);
        wire.put(true);
        ASSERT_TRUE(wire.get<bool>());  // it has been read, and a word changed
        auto changed = side.buffer->bytes();
        uint64_t word = 0, before = 0;
        std::memcpy(&word, changed.data() + 64, sizeof(word));
        for (size_t i = 0; i < sizeof(before); ++i) {
            const auto byte = GpuBuffer::expected(2, 64 + i);
            std::memcpy(reinterpret_cast<char*>(&before) + i, &byte, 1);
        }
        EXPECT_EQ(word, before + 5);
        wire.put(false);
    };
    auto sender = [mine = mine](Wire& wire) {
        Side side(0, mine);
        wire.put(side.info());
        const auto peer = wire.get<Info>();
        side.connect(peer);
        for (const size_t bytes : {size_t{8}, size_t{2000}, kBytes}) {
            side.buffer->fill(1);
            ASSERT_TRUE(wire.get<bool>());
            ASSERT_EQ(side.rc.send(bytes, side.region->sge(0, bytes)), 0);
            EXPECT_EQ(side.wait().status, IBV_WC_SUCCESS);
            wire.put(true);
        }
        ASSERT_TRUE(wire.get<bool>());
        side.rc.rdma(IBV_WR_RDMA_READ, 1, side.region->sge(0, kBytes), peer.addr, peer.rkey);
        EXPECT_EQ(side.wait().status, IBV_WC_SUCCESS);
        EXPECT_TRUE(side.buffer->holds(2));
        side.rc.atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 2, side.region->sge(0, 8), peer.addr + 64,
                       peer.rkey, 5);
        EXPECT_EQ(side.wait().status, IBV_WC_SUCCESS);
        EXPECT_TRUE(side.buffer->holds(2, 0, 8, 64)) << "the old value";
        wire.put(true);
        EXPECT_FALSE(wire.get<bool>());
    };
    run_both(receiver, sender);
}

INSTANTIATE_TEST_SUITE_P(All, AdapterKinds,
                         ::testing::Values(std::tuple(Kind::kDevice, Kind::kDevice),
                                           std::tuple(Kind::kDevice, Kind::kHeap),
                                           std::tuple(Kind::kHeap, Kind::kDevice),
                                           std::tuple(Kind::kPool, Kind::kPool),
                                           std::tuple(Kind::kVirtual, Kind::kSharedPool),
                                           std::tuple(Kind::kPinned, Kind::kVirtual)),
                         [](const auto& info) {
                             return std::string(name_of(std::get<0>(info.param))) + "_to_" +
                                    name_of(std::get<1>(info.param));
                         });

TEST_F(AdapterGpu, WithinAProcessAndBetweenDevices) {
    alone([] {
        Side a(0), b(1);
        (void)cuda_test::use_device(0);
        join(a.rc, b.rc);
        a.buffer->fill(4);
        ASSERT_EQ(b.rc.post_recv(1, {0, 0, 0}), 0);
        ASSERT_EQ(a.rc.rdma(IBV_WR_RDMA_WRITE_WITH_IMM, 1, a.region->sge(0, kBytes),
                            b.region->addr(), b.region->mr->rkey),
                  0);
        EXPECT_EQ(b.wait().status, IBV_WC_SUCCESS);
        EXPECT_TRUE(b.buffer->holds(4));
        ASSERT_EQ(b.rc.post_recv(2, b.region->sge(0, 100)), 0);
        a.buffer->fill(5);
        ASSERT_EQ(a.rc.send(2, a.region->sge(0, 100)), 0);
        EXPECT_EQ(b.wait().status, IBV_WC_SUCCESS);
        EXPECT_TRUE(b.buffer->holds(5, 0, 100));
        EXPECT_TRUE(b.buffer->holds(4, 100, kBytes - 100));
    });
}

TEST_F(AdapterGpu, WhatCanBeRegistered) {
    alone([] {
        Host host;
        GpuBuffer heap_before(Kind::kHeap, 100);
        const Region before(host, heap_before);
        EXPECT_NE(before.mr, nullptr) << "no CUDA in use yet";
        (void)cuda_test::use_device(0);
        for (const Kind kind : cuda_test::kAllKinds) {
            GpuBuffer buffer(kind, 5000);
            const Region region(host, buffer);
            EXPECT_EQ(region.mr != nullptr, kind != Kind::kManaged) << name_of(kind);
            if (region.mr == nullptr) {
                EXPECT_EQ(errno, EFAULT);
            }
        }
        GpuBuffer buffer(Kind::kVirtual, 5000);  // 2 MiB in truth
        EXPECT_EQ(ibv_reg_mr(host.pd, buffer.data(), (2 << 20) + 1, kAllAccess), nullptr);
        EXPECT_EQ(errno, EFAULT) << "past the end of it";
        ibv_mr* const mr = ibv_reg_mr(host.pd, buffer.data(), 5000, kAllAccess);
        GpuBuffer heap(Kind::kHeap, 5000);
        EXPECT_NE(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, heap.data(), 100, 0),
                  0);
        EXPECT_EQ(errno, EOPNOTSUPP);
        EXPECT_EQ(ibv_dereg_mr(mr), 0);
    });
}

// A dma-buf of an allocation, and where in it the buffer begins.
std::pair<int, uint64_t> dma_buf_of(const GpuBuffer& buffer) {
    const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    const auto first = reinterpret_cast<uint64_t>(buffer.data()) / page * page;
    const auto end =
        (reinterpret_cast<uint64_t>(buffer.data()) + buffer.length() + page - 1) / page * page;
    int fd = -1;
    EXPECT_EQ(cuda_test::driver().memory_get_handle(&fd, first, end - first,
                                                    uct::cuda::abi::kRangeDmaBuf, 0),
              0);
    return {fd, reinterpret_cast<uint64_t>(buffer.data()) - first};
}

TEST_F(AdapterGpu, DmaBufs) {
    alone(
        [] {
            Side a(0, Kind::kHeap), b(0, Kind::kHeap);
            join(a.rc, b.rc);
            GpuBuffer buffer(Kind::kDevice, 5000);
            const auto iova = reinterpret_cast<uint64_t>(buffer.data());
            EXPECT_EQ(ibv_reg_mr(b.host.pd, buffer.data(), 5000, kAllAccess), nullptr)
                << "as without nvidia-peermem";
            const auto [fd, offset] = dma_buf_of(buffer);
            const auto refused = [&, offset = offset](int descriptor, size_t length,
                                                      uint64_t where) {
                errno = 0;
                EXPECT_EQ(
                    ibv_reg_dmabuf_mr(b.host.pd, offset, length, where, descriptor, kAllAccess),
                    nullptr);
                return errno;
            };
            EXPECT_EQ(refused(-1, 5000, iova), EBADF);
            EXPECT_EQ(refused(fd, 5000, a.region->addr()), EOPNOTSUPP) << "of the host";
            EXPECT_EQ(refused(fd, size_t{1} << 40, iova), EINVAL) << "past the end of it";
            EXPECT_EQ(refused(fd, 0, iova), EINVAL);
            ibv_mr* const mr = ibv_reg_dmabuf_mr(b.host.pd, offset, 5000, iova, fd, kAllAccess);
            ASSERT_NE(mr, nullptr);
            close(fd);
            a.buffer->fill(6);
            ASSERT_EQ(a.rc.rdma(IBV_WR_RDMA_WRITE, 1, a.region->sge(0, 5000), iova, mr->rkey), 0);
            EXPECT_EQ(a.wait().status, IBV_WC_SUCCESS);
            EXPECT_TRUE(buffer.holds(6));
            EXPECT_EQ(ibv_dereg_mr(mr), 0);
        },
        "dmabuf");
    alone(
        [] {
            Host host;
            (void)cuda_test::use_device(0);
            GpuBuffer buffer(Kind::kDevice, 5000);
            EXPECT_EQ(ibv_reg_mr(host.pd, buffer.data(), 5000, kAllAccess), nullptr);
            EXPECT_EQ(errno, EFAULT);
            EXPECT_EQ(ibv_reg_dmabuf_mr(host.pd, 0, 5000, 0, -1, kAllAccess), nullptr);
            EXPECT_EQ(errno, EOPNOTSUPP);
        },
        "none");
}

// A registration ends with its memory, whatever lies at the address then.
TEST_F(AdapterGpu, FreedMemory) {
    for (const bool is_remote : {false, true}) {
        alone([=] {
            Side a(0, Kind::kDevice, 5000), b(0, Kind::kDevice, 5000);
            join(a.rc, b.rc);
            Side& freed = is_remote ? b : a;
            const auto address = freed.region->addr();
            freed.buffer.reset();
            // The next of that size gets the same address.
            GpuBuffer next(Kind::kDevice, 5000);
            if (reinterpret_cast<uint64_t>(next.data()) != address)
                GTEST_SKIP() << "the driver chose another address";
            ASSERT_EQ(a.rc.rdma(IBV_WR_RDMA_WRITE, 1, a.region->sge(0, 5000), b.region->addr(),
                                b.region->mr->rkey),
                      0);
            EXPECT_EQ(a.wait().status, is_remote ? IBV_WC_REM_ACCESS_ERR : IBV_WC_LOC_PROT_ERR);
            for (const std::byte byte : next.bytes()) ASSERT_EQ(byte, std::byte{0});
        });
    }
}

// Memory of the host that is pinned where memory of a GPU was is found by its own registration.
TEST_F(AdapterGpu, PinnedMemoryWhereMemoryOfAGpuWas) {
    if (cuda_test::is_real()) GTEST_SKIP() << "the driver's addresses are its own";
    alone([] {
        Side a(0, Kind::kDevice, 5000), b(0, Kind::kDevice, kBytes);
        join(a.rc, b.rc);
        a.buffer->fill(3);
        // Whole pages of it.
        const uint64_t page = ucs::page_size();
        const uint64_t begin = ucs::align_up(b.region->addr(), page);
        const uint64_t length = ucs::align_down(b.region->addr() + kBytes, page) - begin;
        b.buffer.reset();
        void* const pinned = mmap(reinterpret_cast<void*>(begin), length, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        ASSERT_NE(pinned, MAP_FAILED);
        ASSERT_EQ(cuda_test::driver().host_register(pinned, length, 0), uct::cuda::abi::kSuccess);
        ibv_mr* const mr = ibv_reg_mr(b.host.pd, pinned, length, kAllAccess);
        ASSERT_NE(mr, nullptr);
        ASSERT_EQ(a.rc.rdma(IBV_WR_RDMA_WRITE, 1, a.region->sge(0, 5000), begin, mr->rkey), 0);
        EXPECT_EQ(a.wait().status, IBV_WC_SUCCESS);
        EXPECT_EQ(std::memcmp(pinned, a.buffer->bytes().data(), 5000), 0);
        EXPECT_EQ(ibv_dereg_mr(mr), 0);
    });
}

// The driver fails in the middle: nobody is told that the bytes are there.
TEST_F(AdapterGpu, AFailingDeviceIsAnErrorOfTheOperation) {
    if (cuda_test::is_real()) GTEST_SKIP() << "by injected faults";
    alone([] {
        Side a(0, Kind::kDevice, 5000), b(0, Kind::kHeap, 5000);
        join(a.rc, b.rc);
        ASSERT_EQ(b.rc.post_recv(1, {0, 0, 0}), 0);
        cuda_test::set_faults("run:700");
        ASSERT_EQ(a.rc.rdma(IBV_WR_RDMA_WRITE_WITH_IMM, 1, a.region->sge(0, 5000), b.region->addr(),
                            b.region->mr->rkey),
                  0);
        EXPECT_NE(a.wait().status, IBV_WC_SUCCESS);
        while (const std::optional<ibv_wc> wc = b.host.poll()) {
            EXPECT_NE(wc->status, IBV_WC_SUCCESS);
        }
    });
}

}  // namespace
}  // namespace softhca::test
