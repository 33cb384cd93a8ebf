// SPDX-License-Identifier: BSD-3-Clause

// Shared memory between processes: access within bounds, and peers that are killed.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

#include "uct/sm/component.h"
#include "uct/sm/outbox.h"
#include "uct/sm/sm_domain.h"
#include "unit/uct/base/copy_group.h"
#include "unit/uct/child.h"
#include "unit/uct/world.h"

namespace {

unsigned system_copies = 0;
unsigned openings = 0;

ssize_t count(long number, pid_t pid, const iovec* here, unsigned long here_count,
              const iovec* there, unsigned long there_count, unsigned long flags) {
    ++system_copies;
    return syscall(number, pid, here, here_count, there, there_count, flags);
}

}  // namespace

// In place of the C library's: these are counted.
extern "C" ssize_t process_vm_readv(pid_t pid, const iovec* here, unsigned long here_count,
                                    const iovec* there, unsigned long there_count,
                                    unsigned long flags) noexcept {
    return count(SYS_process_vm_readv, pid, here, here_count, there, there_count, flags);
}
extern "C" ssize_t process_vm_writev(pid_t pid, const iovec* here, unsigned long here_count,
                                     const iovec* there, unsigned long there_count,
                                     unsigned long flags) noexcept {
    return count(SYS_process_vm_writev, pid, here, here_count, there, there_count, flags);
}
extern "C" int open(const char* path, int flags, ...) {
    ++openings;
    va_list rest;
    va_start(rest, flags);
    const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : mode_t{0};
    va_end(rest);
    return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

namespace uct::test {
namespace {

using namespace uct::sm;

constexpr size_t kLarge = 1000 * 4096;

struct Board {
    std::byte device[64], interface[64], key[128], mapped_key[128], large_key[128];
    uint64_t address, mapped_address, large_address;
    uint64_t word = 0;
};

const TransportCase kFifo{"sm_fifo", "sm_fifo"};

// What a child does to be a peer: memory of both kinds, and a queue.
Peer& offer(Board& board) {
    static ucs::VirtualClock clock;
    static Peer* peer = new Peer(sm::component(), kFifo, 7, clock, {});
    const auto keep = [](std::byte* to, const std::vector<std::byte>& bytes) {
        std::copy(bytes.begin(), bytes.end(), to);
    };
    keep(board.device, peer->device_address());
    keep(board.interface, peer->interface_address());
    auto* own = new uint64_t[1024]();
    void* allocated = nullptr;
    if (peer->domain->allocate_memory(8192, nullptr, false, &allocated) != UCS_OK) _exit(1);
    MemoryHandle* handle;
    const size_t length = peer->domain->attributes().remote_key_length;
    peer->domain->register_memory(own, 8192, PeerRights::kAll, &handle);
    peer->domain->pack_remote_key(handle, {board.key, length});
    peer->domain->register_memory(allocated, 8192, PeerRights::kAll, &handle);
    peer->domain->pack_remote_key(handle, {board.mapped_key, length});
    board.address = reinterpret_cast<uintptr_t>(own);
    board.mapped_address = reinterpret_cast<uintptr_t>(allocated);
    auto* large = new std::byte[kLarge]();
    peer->domain->register_memory(large, kLarge, PeerRights::kAll, &handle);
    peer->domain->pack_remote_key(handle, {board.large_key, length});
    board.large_address = reinterpret_cast<uintptr_t>(large);
    return *peer;
}

class SmProcesses : public testing::Test {
  protected:
    explicit SmProcesses(bool makes_progress = false)
        : board(shared<Board>()),
          child([this, makes_progress] {
              Peer& peer = offer(board);
              if (!makes_progress) return;
              std::thread([&peer] {
                  peer.interface->progress();
                  // As a worker, which sees by this alone that there is something to copy.
                  for (;;) {
                      if (peer.interface->interest().is_met()) peer.interface->progress();
                  }
              }).detach();
          }),
          near(sm::component(), kFifo, 1, clock, {}) {
        const InterfaceAttributes& attributes = near.interface->attributes();
        remote = {{board.device, attributes.device_address_length},
                  {board.interface, attributes.interface_address_length},
                  {}};
        EXPECT_EQ(near.interface->create_endpoint(remote, &endpoint), UCS_OK);
    }
    ~SmProcesses() override {
        endpoint.reset();
        child.kill();
        child.reap();
        munmap(&board, sizeof(board));
    }
    RemoteKey unpack(const std::byte* packed) {
        RemoteKey key = 0;
        EXPECT_EQ(near.domain->unpack_remote_key(
                      {packed, near.domain->attributes().remote_key_length}, &key),
                  UCS_OK);
        return key;
    }

    Board& board;
    Child child;
    ucs::VirtualClock clock;
    Peer near;
    RemoteAddress remote;
    std::unique_ptr<Endpoint> endpoint;
};

TEST_F(SmProcesses, MemoryOfBothKindsIsReadAndWrittenWithinItsBounds) {
    for (const bool is_mapped : {false, true}) {
        const RemoteKey key = unpack(is_mapped ? board.mapped_key : board.key);
        const uint64_t address = is_mapped ? board.mapped_address : board.address;
        if (key == kInvalidRemoteKey) continue;  // the kernel lets nobody at the other's memory
        EXPECT_EQ(near.domain->has_atomics(key), is_mapped);
        EXPECT_EQ(near.domain->remote_pointer(key, address) != nullptr, is_mapped);
        uint64_t value = 1234567, got = 0;
        EXPECT_EQ(endpoint->put_short(&value, 8, address + 8184, key), UCS_OK);
        const Iov piece{&got, 8, nullptr};
        EXPECT_EQ(endpoint->get_zcopy({&piece, 1}, address + 8184, key, nullptr), UCS_OK);
        EXPECT_EQ(got, value);
        EXPECT_EQ(endpoint->put_short(&value, 8, address + 8185, key), UCS_ERR_INVALID_ADDR);
        EXPECT_EQ(endpoint->put_short(&value, 8, address - 8, key), UCS_ERR_INVALID_ADDR);
        EXPECT_EQ(endpoint->get_zcopy({&piece, 1}, ~uint64_t{0} - 3, key, nullptr),
                  UCS_ERR_INVALID_ADDR);
        const ucs_status_t added =
            endpoint->atomic(AtomicOp::kAdd, 8, 3, 0, &got, address + 8184, key, nullptr);
        EXPECT_EQ(added, is_mapped ? UCS_OK : UCS_ERR_UNSUPPORTED);
        if (is_mapped) {
            EXPECT_EQ(got, value);
        }
        near.domain->release_remote_key(key);
    }
}

TEST_F(SmProcesses, ManyPiecesTakeOneCallOfTheSystem) {
    constexpr size_t kPiece = 4096, kCount = kLarge / kPiece;
    const RemoteKey key = unpack(board.large_key);
    if (key == kInvalidRemoteKey) GTEST_SKIP() << "the kernel lets nobody at the other's memory";
    std::vector<char> source(kLarge), target(kLarge);
    for (size_t i = 0; i < kLarge; ++i) source[i] = static_cast<char>(i * 7 + i / kPiece);
    std::vector<ChainPiece> pieces;
    for (size_t i = 0; i < kCount; ++i) {
        pieces.push_back({source.data() + i * kPiece, kPiece, nullptr,
                          board.large_address + (kCount - 1 - i) * kPiece, key});
    }
    const auto copy_all = [&](bool is_put) {
        system_copies = 0;
        for (size_t done = 0; done < kCount;) {
            const std::span<const ChainPiece> rest = std::span(pieces).subspan(done);
            const ssize_t taken = is_put ? endpoint->put_pieces(rest) : endpoint->get_pieces(rest);
            if (taken < 0) return static_cast<ucs_status_t>(taken);
            if (taken == 0) near.interface->progress();
            done += static_cast<size_t>(taken);
        }
        return UCS_OK;
    };
    EXPECT_EQ(copy_all(true), UCS_OK);
    EXPECT_LE(system_copies, 2u);
    for (size_t i = 0; i < kCount; ++i) pieces[i].local = target.data() + i * kPiece;
    EXPECT_EQ(copy_all(false), UCS_OK);
    EXPECT_LE(system_copies, 2u);
    EXPECT_EQ(target, source);

    // Each piece is held to the range of its own key, and to what is mapped here.
    const uint64_t good = pieces[300].remote;
    pieces[300].remote = board.large_address + kLarge - kPiece + 1;
    std::ranges::fill(target, 'x');
    EXPECT_EQ(copy_all(false), UCS_ERR_INVALID_ADDR);
    EXPECT_TRUE(std::equal(target.begin(), target.begin() + 300 * kPiece, source.begin()));
    EXPECT_EQ(target[300 * kPiece], 'x');
    pieces[300].remote = good;
    pieces[300].local = nullptr;
    EXPECT_EQ(copy_all(false), UCS_ERR_INVALID_ADDR);
    EXPECT_EQ(target[301 * kPiece], 'x');
    near.domain->release_remote_key(key);
}

TEST_F(SmProcesses, AKeyThatNamesTheReaderItselfOpensNothing) {
    const size_t length = near.domain->attributes().remote_key_length;
    PackedRegion forged;
    std::memcpy(&forged, board.key, sizeof(forged));
    forged.pid = static_cast<uint32_t>(getpid());
    forged.start_time = Process::self().start_time;
    std::byte packed[sizeof(forged)];
    RemoteKey key = 0;
    std::memcpy(packed, &forged, sizeof(forged));
    EXPECT_EQ(near.domain->unpack_remote_key({packed, length}, &key), UCS_OK);
    EXPECT_EQ(key, kInvalidRemoteKey);
    // Shared memory of the reader's that is as long as a table, with what others have written.
    std::unique_ptr<SharedSegment> segment;
    ASSERT_EQ(SharedSegment::create(KeyTable::kSlots * sizeof(KeySlot), nullptr, false, &segment),
              UCS_OK);
    uint64_t secret = 42;
    auto* slots = reinterpret_cast<KeySlot*>(segment->base());
    slots[3].number = 77;
    slots[3].grant = {reinterpret_cast<uintptr_t>(&secret), 8, 0, 0, 0, PeerRights::kAll};
    forged.slot = 3;
    forged.number = 77;
    forged.table = segment->name().nonce;
    forged.table_descriptor = segment->name().descriptor;
    std::memcpy(packed, &forged, sizeof(forged));
    EXPECT_EQ(near.domain->unpack_remote_key({packed, length}, &key), UCS_OK);
    EXPECT_EQ(key, kInvalidRemoteKey);
}

TEST_F(SmProcesses, AKeyWithAnotherNumberOpensNothing) {
    const size_t length = near.domain->attributes().remote_key_length;
    PackedRegion forged;
    std::memcpy(&forged, board.key, sizeof(forged));
    std::byte packed[sizeof(forged)];
    for (const uint64_t number : {uint64_t{0}, forged.number + 1}) {
        forged.number = number;
        std::memcpy(packed, &forged, sizeof(forged));
        RemoteKey key = 0;
        EXPECT_EQ(near.domain->unpack_remote_key({packed, length}, &key), UCS_OK);
        EXPECT_EQ(key, kInvalidRemoteKey);
    }
}

class SmJointCopies : public SmProcesses {
  protected:
    SmJointCopies() : SmProcesses(true) {}
    // @return UCS_INPROGRESS: it does not end
    ucs_status_t copy(CopyDirection direction, std::vector<char>& bytes, RemoteKey key) {
        const Iov piece{bytes.data(), bytes.size(), nullptr};
        Done done;
        const ucs_status_t status =
            direction == CopyDirection::kPut
                ? endpoint->put_zcopy({&piece, 1}, board.large_address, key, &done)
                : endpoint->get_zcopy({&piece, 1}, board.large_address, key, &done);
        if (status != UCS_INPROGRESS) return status;
        for (int i = 0; i < 10'000'000 && !done.is_done; ++i) near.interface->progress();
        return done.is_done ? done.status : UCS_INPROGRESS;
    }
};

TEST_F(SmJointCopies, AreDoneByBothProcesses) {
    const RemoteKey key = unpack(board.large_key);
    if (key == kInvalidRemoteKey) GTEST_SKIP() << "the kernel lets nobody at the other's memory";
    std::vector<char> source(kLarge), target(kLarge);
    system_copies = 0;
    constexpr unsigned kRounds = 20;
    for (unsigned round = 0; round < kRounds; ++round) {
        for (size_t i = 0; i < kLarge; ++i) source[i] = static_cast<char>(i * 7 + i / 4096 + round);
        ASSERT_EQ(copy(CopyDirection::kPut, source, key), UCS_OK);
        ASSERT_EQ(copy(CopyDirection::kGet, target, key), UCS_OK);
        ASSERT_TRUE(source == target) << "round " << round;
    }
    constexpr unsigned kChunks = 2 * kRounds * kLarge / (128 * 1024);
    EXPECT_LT(system_copies, kChunks) << "the peer did nothing";
    near.domain->release_remote_key(key);
}

TEST_F(SmJointCopies, FailWithThePeerWheneverItDies) {
    const RemoteKey key = unpack(board.large_key);
    if (key == kInvalidRemoteKey) GTEST_SKIP() << "the kernel lets nobody at the other's memory";
    std::vector<char> bytes(kLarge);
    std::thread killer([&] {
        usleep(20'000);
        child.kill();
    });
    ucs_status_t status = UCS_OK;
    while (status == UCS_OK) status = copy(CopyDirection::kGet, bytes, key);
    EXPECT_EQ(status, UCS_ERR_ENDPOINT_TIMEOUT);
    killer.join();
    near.domain->release_remote_key(key);
}

TEST_F(SmProcesses, ADeadPeerFailsItsEndpoint) {
    EXPECT_EQ(endpoint->check(nullptr), UCS_OK);
    child.kill();  // and a zombie still
    EXPECT_EQ(endpoint->check(nullptr), UCS_ERR_ENDPOINT_TIMEOUT);
    EXPECT_EQ(endpoint->am_short(1, 0, nullptr, 0), UCS_ERR_ENDPOINT_TIMEOUT);
    EXPECT_TRUE(near.failures.empty());
    near.interface->progress();
    ASSERT_EQ(near.failures.size(), 1u);
    EXPECT_EQ(near.failures[0].endpoint, endpoint.get());
    EXPECT_EQ(near.failures[0].status, UCS_ERR_ENDPOINT_TIMEOUT);
}

TEST_F(SmProcesses, ADeadPeerIsFoundWithoutAQuestion) {
    child.kill();
    for (int i = 0; i < 5000 && near.failures.empty(); ++i) {
        clock.advance(std::chrono::milliseconds(1));
        near.interface->progress();
    }
    EXPECT_EQ(near.failures.size(), 1u);
}

TEST_F(SmProcesses, WhoWaitsForRoomAtADeadPeerLeavesTheQueue) {
    ucs_status_t status = UCS_OK;
    while (status == UCS_OK) status = endpoint->am_short(1, 0, nullptr, 0);
    ASSERT_EQ(status, UCS_ERR_NO_RESOURCE);
    Pending pending([](Pending*) { return UCS_ERR_NO_RESOURCE; });
    ASSERT_EQ(endpoint->pending_add(&pending), UCS_OK);
    near.interface->progress();
    EXPECT_TRUE(pending.is_queued());
    child.kill();
    endpoint->check(nullptr);
    EXPECT_FALSE(pending.is_queued());
}

// Neither at a peer that is sent to, nor at one that sends.
TEST(SmWatch, ALookAtALivingPeerOpensNoFile) {
    const int self = static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0u));
    if (self < 0) GTEST_SKIP() << "the kernel has no descriptors of processes";
    close(self);
    ucs::VirtualClock clock;
    Peer near(sm::component(), kFifo, 1, clock, {});
    const auto device = near.device_address(), interface = near.interface_address();
    Board& board = shared<Board>();
    Child child([&] {
        offer(board);
        static Peer* peer = new Peer(sm::component(), kFifo, 8, clock, {});
        static std::unique_ptr<Endpoint> theirs;
        if (peer->interface->create_endpoint({device, interface, {}}, &theirs) != UCS_OK ||
            theirs->am_short(1, 0, nullptr, 0) != UCS_OK)
            _exit(1);
    });
    std::unique_ptr<Endpoint> endpoint;
    openings = 0;
    const InterfaceAttributes& attributes = near.interface->attributes();
    ASSERT_EQ(
        near.interface->create_endpoint({{board.device, attributes.device_address_length},
                                         {board.interface, attributes.interface_address_length},
                                         {}},
                                        &endpoint),
        UCS_OK);
    EXPECT_GT(openings, 0u) << "who opens files goes another way";
    near.interface->progress();
    ASSERT_EQ(near.received.size(), 1u);
    // Three seconds: each place for a sender has its turn.
    const auto look = [&] {
        for (int i = 0; i < 30; ++i) {
            clock.advance(std::chrono::milliseconds(100));
            for (int count = 0; count < 1100; ++count) near.interface->progress();
        }
    };
    openings = 0;
    look();
    EXPECT_EQ(openings, 0u);
    EXPECT_TRUE(near.failures.empty());
    child.kill();
    look();
    EXPECT_EQ(near.failures.size(), 1u);
    endpoint.reset();
    child.reap();
    munmap(&board, sizeof(board));
}

// A process may be stopped anywhere: here by itself, where it writes a message into a queue.
TEST(SmStopped, ASenderThatIsStoppedWithinAMessageStopsNobodyElse) {
    ucs::VirtualClock clock;
    Peer near(sm::component(), kFifo, 1, clock, {}), other(sm::component(), kFifo, 2, clock, {});
    const auto device = near.device_address(), interface = near.interface_address();
    const RemoteAddress remote{device, interface, {}};
    std::unique_ptr<Endpoint> endpoint;
    ASSERT_EQ(other.interface->create_endpoint(remote, &endpoint), UCS_OK);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        Peer peer(sm::component(), kFifo, 3, clock, {});
        std::unique_ptr<Endpoint> theirs;
        if (peer.interface->create_endpoint(remote, &theirs) != UCS_OK) _exit(1);
        const auto pack = [](void* to, void*) {
            raise(SIGSTOP);
            std::memset(to, 's', 500);
            return size_t{500};
        };
        const bool is_sent = theirs->am_bcopy(9, pack, nullptr) == 500 &&
                             theirs->am_short(10, 0, nullptr, 0) == UCS_OK;
        pause();
        _exit(is_sent ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
    ASSERT_TRUE(WIFSTOPPED(status));
    // A second passes.
    const auto run = [&] {
        for (int i = 0; i < 10; ++i) {
            clock.advance(std::chrono::milliseconds(100));
            for (int count = 0; count < 1100; ++count) near.interface->progress();
        }
    };
    uint64_t sent = 0;
    for (int round = 0; round < 50; ++round) {
        for (int count = 0; count < 100; ++count, ++sent) {
            if (endpoint->am_short(1, sent, nullptr, 0) == UCS_ERR_NO_RESOURCE) break;
        }
        run();
        ASSERT_EQ(near.received.size(), sent) << round;
    }
    EXPECT_GT(sent, 1000u);
    EXPECT_EQ(kill(child, SIGCONT), 0);
    for (int round = 0; round < 1000 && near.received.size() < sent + 2; ++round) {
        run();
        usleep(1000);
    }
    ASSERT_EQ(near.received.size(), sent + 2);
    EXPECT_EQ(near.received[sent].id, 9);
    EXPECT_EQ(near.received[sent].data, std::string(500, 's'));
    EXPECT_EQ(near.received[sent + 1].id, 10);
    for (uint64_t number = 0; number < sent; ++number)
        EXPECT_EQ(std::memcmp(near.received[number].data.data(), &number, 8), 0);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
}

// Killed behind the reservation that told it of the sleeper.
TEST(SmStopped, ASenderThatIsKilledBeforeItsSignalLeavesItToTheNext) {
    ucs::VirtualClock clock;
    Peer near(sm::component(), kFifo, 1, clock, {}), other(sm::component(), kFifo, 2, clock, {});
    const auto device = near.device_address(), interface = near.interface_address();
    std::unique_ptr<Endpoint> endpoint;
    ASSERT_EQ(other.interface->create_endpoint({device, interface, {}}, &endpoint), UCS_OK);
    ASSERT_EQ(endpoint->am_short(1, 0, nullptr, 0), UCS_OK);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        const auto name = SegmentName::read(interface);
        std::unique_ptr<Outbox> queue;
        bool sleeps = false;
        if (Outbox::open(*name, Outbox::Kind::kManySenders, {7, 7, 7}, &queue) != UCS_OK ||
            !queue->announce())
            _exit(1);
        raise(SIGSTOP);
        if (queue->reserve(false, &sleeps) != Outbox::kFull && sleeps) raise(SIGKILL);
        _exit(1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
    ASSERT_TRUE(WIFSTOPPED(status));
    while (near.interface->arm() != UCS_OK) near.interface->progress();
    ASSERT_EQ(kill(child, SIGCONT), 0);
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    pollfd entry{near.interface->event_fd(), POLLIN, 0};
    EXPECT_EQ(poll(&entry, 1, 0), 0);
    ASSERT_EQ(endpoint->am_short(2, 0, nullptr, 0), UCS_OK);
    EXPECT_EQ(poll(&entry, 1, 0), 1) << "the receiver sleeps over a message";
}

TEST(SmHosts, OtherNamespacesAndUsersAreNotReached) {
    ucs::VirtualClock clock;
    Peer near(sm::component(), kFifo, 1, clock, {}), far(sm::component(), kFifo, 2, clock, {});
    const auto interface = far.interface_address();
    for (const size_t place : {size_t{0}, size_t{8}, size_t{16}}) {
        auto device = far.device_address();
        EXPECT_TRUE(near.interface->is_reachable({device, interface, {}}));
        device[place] ^= std::byte{1};
        EXPECT_FALSE(near.interface->is_reachable({device, interface, {}}));
    }
}

TEST(SmKeys, WithoutSingleCopyOnlyMappedMemoryHasOne) {
    Board& board = shared<Board>();
    Child child([&] { offer(board); });
    Config config;
    ucs::config::Source source;
    std::string error;
    ASSERT_EQ(source.modify("SM_SINGLE_COPY", "n", error), UCS_OK);
    ASSERT_EQ(load_config(&source, &config), UCS_OK);
    EXPECT_FALSE(config.joint_copies) << "the partner's part is a single copy, too";
    SmDomain domain(config);
    RemoteKey key = 0;
    const size_t length = domain.attributes().remote_key_length;
    EXPECT_EQ(domain.unpack_remote_key({board.key, length}, &key), UCS_OK);
    EXPECT_EQ(key, kInvalidRemoteKey);
    EXPECT_EQ(domain.unpack_remote_key({board.mapped_key, length}, &key), UCS_OK);
    EXPECT_NE(key, kInvalidRemoteKey);
    domain.release_remote_key(key);
    child.kill();
    child.reap();
}

}  // namespace
}  // namespace uct::test
