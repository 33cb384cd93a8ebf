// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <cerrno>
#include <chrono>
#include <fstream>
#include <vector>

#include "common/dev_shm.h"
#include "softhca/adapter/segment.h"
#include "softhca/host/process.h"

namespace softhca::test {
namespace {

constexpr size_t kBytes = 256 * 1024;
// A peer may still be on its way up, or have no receive yet.
constexpr Wiring kPatient{.rnr_retry = 7, .retry_cnt = 7, .timeout = 18};

struct Info {
    uint16_t lid;
    uint32_t qpn;
    uint32_t dctn;
    uint32_t rkey;
    uint64_t addr;
};

// A process's side of a connection: one RC QP, one DCT, one buffer.
struct Side {
    Side() : rc(host), dct(make_dct(host)), dci(make_dci(host)), buffer(host, kBytes) {}
    Info info() const {
        return {host.lid, rc.qp->qp_num, dct.qp->qp_num, buffer.mr->rkey, buffer.addr()};
    }
    void connect(const Info& peer, const Wiring& wiring = kPatient) {
        rc.connect(peer.lid, peer.qpn, wiring);
    }
    // Polls until a completion comes; ten seconds at most.
    ibv_wc wait() {
        const auto start = std::chrono::steady_clock::now();
        while (std::chrono::steady_clock::now() - start < std::chrono::seconds(10)) {
            if (const auto wc = host.poll()) return *wc;
            sched_yield();
        }
        ADD_FAILURE() << "no completion";
        return {};
    }
    Host host;
    QueuePair rc;
    QueuePair dct;
    QueuePair dci;
    Buffer buffer;
};

class HostWide : public ::testing::TestWithParam<bool> {
  protected:
    std::map<std::string, std::string> environment() const {
        std::map<std::string, std::string> result{{"SOFTHCA_FABRIC", name_}};
        if (GetParam()) result["SOFTHCA_NO_CMA"] = "1";
        return result;
    }
    std::string path() const {
        return "/dev/shm/softhca-" + std::to_string(getuid()) + "-" + name_;
    }
    bool file_there() const { return access(path().c_str(), F_OK) == 0; }
    // Swaps two participants' addresses.
    static std::pair<Info, Info> introduce(Process& a, Process& b) {
        const auto of_a = a.wire.get<Info>();
        const auto of_b = b.wire.get<Info>();
        a.wire.put(of_b);
        b.wire.put(of_a);
        return {of_a, of_b};
    }
    std::string name_ = "test" + std::to_string(getpid());
};

TEST_P(HostWide, AllKindsOfTrafficBetweenTwoProcesses) {
    auto receiver = [](Wire& wire) {
        Side side;
        wire.put(side.info());
        side.connect(wire.get<Info>());
        for (const size_t bytes : {size_t{8}, size_t{2000}, size_t{100000}}) {
            side.rc.post_recv(bytes, side.buffer.sge(0, kBytes));
            wire.put(true);
            const ibv_wc wc = side.wait();
            EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
            EXPECT_EQ(wc.wr_id, bytes);
            EXPECT_EQ(wc.byte_len, bytes);
            EXPECT_EQ(side.buffer.bytes[0], 's');
            EXPECT_EQ(side.buffer.bytes[bytes - 1], 's');
            EXPECT_EQ(side.buffer.bytes[bytes], 0);
            side.buffer.bytes.assign(kBytes, 0);
        }
        side.buffer.word(1) = 40;
        wire.put(true);
        wire.get<bool>();
        EXPECT_EQ(side.buffer.bytes[1000], 'w');
        EXPECT_EQ(side.buffer.bytes[100999], 'w');
        EXPECT_EQ(side.buffer.word(1), 42u);
    };
    auto sender = [](Wire& wire) {
        Side side;
        wire.put(side.info());
        const auto peer = wire.get<Info>();
        side.connect(peer);
        side.buffer.bytes.assign(kBytes, 's');
        for (const size_t bytes : {size_t{8}, size_t{2000}, size_t{100000}}) {
            wire.get<bool>();
            side.rc.send(bytes, side.buffer.sge(0, bytes));
            EXPECT_EQ(side.wait().status, IBV_WC_SUCCESS);
        }
        wire.get<bool>();
        side.buffer.bytes.assign(kBytes, 'w');
        side.rc.rdma(IBV_WR_RDMA_WRITE, 1, side.buffer.sge(0, 100000), peer.addr + 1000, peer.rkey);
        EXPECT_EQ(side.wait().status, IBV_WC_SUCCESS);
        side.rc.atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 2, side.buffer.sge(0, 8), peer.addr + 8,
                       peer.rkey, 2);
        EXPECT_EQ(side.wait().status, IBV_WC_SUCCESS);
        EXPECT_EQ(side.buffer.word(0), 40u);
        side.rc.rdma(IBV_WR_RDMA_READ, 3, side.buffer.sge(0, 16), peer.addr, peer.rkey);
        EXPECT_EQ(side.wait().status, IBV_WC_SUCCESS);
        EXPECT_EQ(side.buffer.word(1), 42u);
        wire.put(true);
    };
    Process a(environment(), receiver);
    Process b(environment(), sender);
    introduce(a, b);
    for (int i = 0; i < 4; ++i) b.wire.put(a.wire.get<bool>());
    a.wire.put(b.wire.get<bool>());
    a.expect_success();
    b.expect_success();
    EXPECT_FALSE(file_there()) << "the last one removes the segment";
}

TEST_P(HostWide, ComesTogetherUnderALimitOfAddressSpace) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "sanitizers take terabytes; test/softhca/programs.sh has a limit too";
#endif
    Process a(environment(), [](Wire& wire) {
        const rlimit limit{rlim_t{8} << 30, rlim_t{8} << 30};  // of what is 64 GiB elsewhere
        ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
        Side side;
        wire.put(side.info());
        side.connect(wire.get<Info>());
        side.rc.post_recv(1, side.buffer.sge(0, kBytes));
        wire.put(true);
        EXPECT_EQ(side.wait().status, IBV_WC_SUCCESS);
        EXPECT_EQ(side.buffer.bytes[7], 's');
        wire.get<bool>();
    });
    const auto of_a = a.wire.get<Info>();
    Process b(environment(), [](Wire& wire) {
        Side side;
        wire.put(side.info());
        side.connect(wire.get<Info>());
        side.buffer.bytes.assign(kBytes, 's');
        wire.get<bool>();
        side.rc.send(1, side.buffer.sge(0, 8));
        EXPECT_EQ(side.wait().status, IBV_WC_SUCCESS);
        wire.put(true);
    });
    a.wire.put(b.wire.get<Info>());
    b.wire.put(of_a);
    b.wire.put(a.wire.get<bool>());
    a.wire.put(b.wire.get<bool>());
    a.expect_success();
    b.expect_success();
}

TEST_P(HostWide, WithoutRoomInDevShmThereAreNoAdapters) {
    for (const unsigned kibibytes : {0u, 16u}) {
        Process a(environment(), [kibibytes](Wire& wire) {
            const bool is_there = ucs::test::mount_dev_shm(kibibytes);
            wire.put(is_there);
            if (!is_there) return;
            int count = -1;
            ibv_free_device_list(ibv_get_device_list(&count));
            EXPECT_EQ(count, 0);
        });
        if (!a.wire.get<bool>()) GTEST_SKIP() << "needs the right to mount";
        a.expect_success();
    }
}

// It fills up: an error at the call, and what there is works on.
TEST_P(HostWide, AFullDevShmIsAnErrorAtTheCall) {
    Process a(environment(), [](Wire& wire) {
        const bool is_there = ucs::test::mount_dev_shm(8192);
        wire.put(is_there);
        if (!is_there) return;
        Side side;
        side.rc.connect(side.host.lid, side.rc.qp->qp_num);
        std::vector<ibv_cq*> others;
        do {
            others.push_back(ibv_create_cq(side.host.context, 1000, nullptr, nullptr, 0));
        } while (others.back() != nullptr && others.size() < 100'000);
        EXPECT_EQ(others.back(), nullptr);
        EXPECT_EQ(errno, ENOMEM);
        EXPECT_GT(others.size(), 1u);
        side.rc.post_recv(1, side.buffer.sge(0, 8));
        side.rc.send(2, side.buffer.sge(8, 8));
        EXPECT_EQ(side.wait().status, IBV_WC_SUCCESS);
        EXPECT_EQ(side.wait().status, IBV_WC_SUCCESS);
    });
    if (!a.wire.get<bool>()) GTEST_SKIP() << "needs the right to mount";
    a.expect_success();
}

TEST_P(HostWide, ReceivePostedLate) {
    Process a(environment(), [](Wire& wire) {
        Side side;
        wire.put(side.info());
        side.connect(wire.get<Info>());
        wire.get<bool>();
        side.rc.post_recv(1, side.buffer.all());
        EXPECT_EQ(side.wait().status, IBV_WC_SUCCESS);
    });
    Process b(environment(), [](Wire& wire) {
        Side side;
        wire.put(side.info());
        side.connect(wire.get<Info>());
        side.rc.send(1, side.buffer.sge(0, 8));
        EXPECT_FALSE(side.host.poll());
        wire.put(true);
        // No more calls: the service thread alone has to deliver it.
        wire.get<bool>();
        EXPECT_EQ(side.wait().status, IBV_WC_SUCCESS);
    });
    introduce(a, b);
    a.wire.put(b.wire.get<bool>());
    a.expect_success();
    b.wire.put(true);
    b.expect_success();
}

TEST_P(HostWide, CompletionChannelWakesASleeper) {
    Process a(environment(), [](Wire& wire) {
        Side side;
        ibv_comp_channel* channel = ibv_create_comp_channel(side.host.context);
        ibv_cq* cq = ibv_create_cq(side.host.context, 16, &side, channel, 0);
        std::swap(side.host.cq, cq);
        {
            QueuePair qp(side.host);
            Info info = side.info();
            info.qpn = qp.qp->qp_num;
            wire.put(info);
            const auto peer = wire.get<Info>();
            qp.connect(peer.lid, peer.qpn, kPatient);
            qp.post_recv(1, side.buffer.all());
            EXPECT_EQ(ibv_req_notify_cq(side.host.cq, 0), 0);
            wire.put(true);
            ibv_cq* woken = nullptr;
            void* context = nullptr;
            pollfd event{channel->fd, POLLIN, 0};
            EXPECT_EQ(::poll(&event, 1, 10000), 1);
            EXPECT_EQ(ibv_get_cq_event(channel, &woken, &context), 0);
            EXPECT_EQ(woken, side.host.cq);
            EXPECT_EQ(context, &side);
            ibv_ack_cq_events(woken, 1);
            EXPECT_EQ(side.wait().status, IBV_WC_SUCCESS);
        }
        std::swap(side.host.cq, cq);
        EXPECT_EQ(ibv_destroy_cq(cq), 0);
        EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
    });
    Process b(environment(), [](Wire& wire) {
        Side side;
        wire.put(side.info());
        side.connect(wire.get<Info>());
        wire.get<bool>();
        side.rc.send(1, side.buffer.sge(0, 8));
        EXPECT_EQ(side.wait().status, IBV_WC_SUCCESS);
        wire.get<bool>();
    });
    introduce(a, b);
    b.wire.put(a.wire.get<bool>());
    a.expect_success();
    b.wire.put(true);
    b.expect_success();
}

// The service thread flushes while the program sleeps: telling the CQ's channel is part of that.
TEST_P(HostWide, AQueueThatFailsWhileItWaitsWakesASleeper) {
    Process a(environment(), [](Wire&) {
        Side side;
        ibv_comp_channel* channel = ibv_create_comp_channel(side.host.context);
        ibv_cq* cq = ibv_create_cq(side.host.context, 16, &side, channel, 0);
        std::swap(side.host.cq, cq);
        {
            QueuePair waits(side.host);
            waits.connect(side.host.lid, side.rc.qp->qp_num, kPatient);
            side.rc.connect(side.host.lid, waits.qp->qp_num, kPatient);
            EXPECT_EQ(ibv_req_notify_cq(side.host.cq, 0), 0);
            waits.send(1, side.buffer.sge(0, 8));  // no receive is there
            side.rc.rdma(IBV_WR_RDMA_WRITE, 2, side.buffer.sge(0, 8), 0, ~side.buffer.mr->rkey);
            pollfd event{channel->fd, POLLIN, 0};
            EXPECT_EQ(::poll(&event, 1, 10000), 1);
            ibv_cq* woken = nullptr;
            void* context = nullptr;
            EXPECT_EQ(ibv_get_cq_event(channel, &woken, &context), 0);
            ibv_ack_cq_events(woken, 1);
            EXPECT_EQ(side.wait().status, IBV_WC_WR_FLUSH_ERR);
        }
        std::swap(side.host.cq, cq);
        EXPECT_EQ(ibv_destroy_cq(cq), 0);
        EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
    });
    a.expect_success();
}

TEST_P(HostWide, KilledPeerExceedsRetries) {
    Process a(environment(), [](Wire& wire) {
        Side side;
        wire.put(side.info());
        side.connect(wire.get<Info>());
        for (int i = 0; i < 8; ++i) {
            post_srq(side.host, 1, side.buffer.all());
            side.rc.post_recv(1, side.buffer.all());
        }
        wire.put(true);
        wire.get<bool>();
    });
    Process b(environment(), [](Wire& wire) {
        Side side;
        wire.put(side.info());
        const auto peer = wire.get<Info>();
        side.connect(peer);
        wire.get<bool>();
        side.rc.send(1, side.buffer.sge(0, 8), 0);
        EXPECT_EQ(side.wait().status, IBV_WC_RETRY_EXC_ERR);
        QueuePair writer(side.host);
        writer.connect(peer.lid, peer.qpn);
        writer.rdma(IBV_WR_RDMA_WRITE, 2, side.buffer.sge(0, 8), peer.addr, peer.rkey);
        EXPECT_EQ(side.wait().status, IBV_WC_RETRY_EXC_ERR);
    });
    introduce(a, b);
    a.wire.get<bool>();
    a.kill_unreaped();
    b.wire.put(true);
    b.expect_success();
    EXPECT_FALSE(file_there()) << "the survivor is the last one";
}

TEST_P(HostWide, PeersKilledInFullFlightHarmNobody) {
    Process target(environment(), [](Wire& wire) {
        Side side;
        for (int i = 0; i < 512; ++i) post_srq(side.host, 1, side.buffer.sge(0, 4096));
        wire.put(side.info());
        uint64_t total = 0;
        // Serves until the hundred messages of the last, well-behaved sender are here.
        uint32_t last = 0;
        uint32_t from_last = 0;
        const auto start = std::chrono::steady_clock::now();
        while (from_last < 100 &&
               std::chrono::steady_clock::now() - start < std::chrono::seconds(20)) {
            const auto wc = side.host.poll();
            if (!wc) {
                sched_yield();
                continue;
            }
            EXPECT_EQ(wc->status, IBV_WC_SUCCESS);
            ++total;
            post_srq(side.host, 1, side.buffer.sge(0, 4096));
            if (wc->src_qp != last) from_last = 0;
            last = wc->src_qp;
            if (wc->byte_len == 100) ++from_last;
        }
        EXPECT_EQ(from_last, 100u);
        EXPECT_GT(total, 100u);
    });
    const auto peer = target.wire.get<Info>();
    auto post = [peer](Side& side, Address& address, size_t bytes) {
        ibv_qp_ex* ex = side.dci.ex();
        ibv_wr_start(ex);
        ex->wr_flags = IBV_SEND_SIGNALED;
        ibv_wr_send(ex);
        mlx5dv_wr_set_dc_addr(mlx5dv_qp_ex_from_ibv_qp_ex(ex), address.ah, peer.dctn, kDcKey);
        ibv_wr_set_sge(ex, side.buffer.mr->lkey, side.buffer.addr(), uint32_t(bytes));
        EXPECT_EQ(ibv_wr_complete(ex), 0);
    };
    for (unsigned round = 0; round < 12; ++round) {
        Process victim(environment(), [&](Wire& wire) {
            Side side;
            QueuePair dci = make_dci(side.host, {.rnr_retry = 7});
            std::swap(side.dci.qp, dci.qp);
            Address address(side.host, peer.lid);
            for (unsigned i = 0;; ++i) {
                post(side, address, i % 2 == 0 ? 8 : 4000);
                side.wait();
                if (i == 50) wire.put(true);
            }
        });
        victim.wire.get<bool>();
        // Let it come to a different point each time.
        for (unsigned spin = 0; spin < 1000 * round; ++spin) __builtin_ia32_pause();
        victim.kill_unreaped();
    }
    Process good(environment(), [&](Wire&) {
        Side side;
        QueuePair dci = make_dci(side.host, {.rnr_retry = 7});
        std::swap(side.dci.qp, dci.qp);
        Address address(side.host, peer.lid);
        for (int i = 0; i < 100; ++i) {
            post(side, address, 100);
            EXPECT_EQ(side.wait().status, IBV_WC_SUCCESS);
        }
    });
    good.expect_success();
    target.expect_success();
    EXPECT_FALSE(file_there());
}

TEST_P(HostWide, StaleSegmentIsLaidOutAnew) {
    {
        Process a(environment(), [](Wire& wire) {
            Side side;
            wire.put(true);
            wire.get<bool>();
        });
        a.wire.get<bool>();
        a.kill_unreaped();
    }
    EXPECT_TRUE(file_there());
    const int fd = open(path().c_str(), O_RDWR);
    ASSERT_EQ(ftruncate(fd, 4096), 0);  // and damaged on top
    close(fd);
    Process b(environment(), [](Wire&) {
        Side side;
        side.rc.connect(side.host.lid, side.rc.qp->qp_num);
        side.rc.post_recv(1, side.buffer.sge(0, 8));
        side.rc.send(2, side.buffer.sge(8, 8));
        side.wait();
        side.wait();
    });
    b.expect_success();
    EXPECT_FALSE(file_there());
}

// Does a process wait for a lock of a file?
bool waits_for_a_lock(pid_t pid) {
    std::ifstream locks("/proc/locks");
    const std::string waiter = " -> FLOCK  ADVISORY  WRITE " + std::to_string(pid) + ' ';
    for (std::string line; std::getline(locks, line);) {
        if (line.find(waiter) != std::string::npos) return true;
    }
    return false;
}

// Whoever holds the file's lock lays the file out anew if nobody lives there. One that were dead
// before it has given back what it had would take that from others.
TEST_P(HostWide, WhoLeavesLivesUntilItHasTheLock) {
    Process leaving(environment(), [](Wire& wire) {
        Side side;
        wire.put(true);
        wire.get<bool>();
    });
    leaving.wire.get<bool>();
    const int fd = open(path().c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    ASSERT_EQ(flock(fd, LOCK_EX), 0);
    Segment segment;
    SegmentLayout layout;
    struct stat file {};
    ASSERT_EQ(fstat(fd, &file), 0);
    while (Segment::bytes(layout) > uint64_t(file.st_size)) layout.arena_bytes /= 2;
    ASSERT_TRUE(segment.map_file(fd, layout, false));
    const Owner owner{0, uint16_t(segment.proc(0).generation.load())};
    leaving.wire.put(true);
    const auto start = std::chrono::steady_clock::now();
    while (!waits_for_a_lock(leaving.pid())) {
        ASSERT_LT(std::chrono::steady_clock::now() - start, std::chrono::minutes(1));
        sched_yield();
    }
    EXPECT_FALSE(segment.dead(owner));
    flock(fd, LOCK_UN);
    leaving.expect_success();
    EXPECT_TRUE(segment.dead(owner));
    EXPECT_FALSE(file_there());
    close(fd);
}

INSTANTIATE_TEST_SUITE_P(Copying, HostWide, ::testing::Bool(), [](const auto& info) {
    return std::string(info.param ? "ServiceThread" : "ProcessVm");
});

// Does the kernel let this process write into another's memory?
bool may_write_to_others() {
    Process child({}, [](Wire& wire) {
        static char byte;
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
        wire.put(&byte);
        wire.get<bool>();
    });
    char mine = 'x';
    const iovec from{&mine, 1}, to{child.wire.get<char*>(), 1};
    const bool may = process_vm_writev(child.pid(), &from, 1, &to, 1, 0) == 1;
    child.wire.put(true);
    child.expect_success();
    return may;
}

// One-sided operations do not need the target: it is stopped.
TEST(HostWideStopped, WriteLandsInAStoppedProcess) {
    if (!may_write_to_others()) GTEST_SKIP() << "a service thread of the stopped one has to write";
    const std::map<std::string, std::string> environment{
        {"SOFTHCA_FABRIC", "stopped" + std::to_string(getpid())}};
    Process a(environment, [](Wire& wire) {
        Side side;
        wire.put(side.info());
        side.connect(wire.get<Info>());
        wire.put(true);
        wire.get<bool>();
        EXPECT_EQ(side.buffer.bytes[0], 'w');
    });
    Process b(environment, [](Wire& wire) {
        Side side;
        side.buffer.bytes.assign(kBytes, 'w');
        wire.put(side.info());
        const auto peer = wire.get<Info>();
        side.connect(peer);
        wire.get<bool>();
        side.rc.rdma(IBV_WR_RDMA_WRITE, 1, side.buffer.sge(0, 8), peer.addr, peer.rkey);
        EXPECT_EQ(side.wait().status, IBV_WC_SUCCESS);
        wire.put(true);
    });
    const auto of_a = a.wire.get<Info>();
    const auto of_b = b.wire.get<Info>();
    a.wire.put(of_b);
    a.wire.get<bool>();
    a.signal(SIGSTOP);
    b.wire.put(of_a);
    b.wire.put(true);
    b.wire.get<bool>();
    b.expect_success();
    a.signal(SIGCONT);
    a.wire.put(true);
    a.expect_success();
}

}  // namespace
}  // namespace softhca::test
