// SPDX-License-Identifier: BSD-3-Clause
#include <cstring>
#include <functional>
#include <utility>

#include "unit/uct/world.h"

namespace uct::test {
namespace {

class RemoteMemory : public testing::TestWithParam<TransportCase> {
  protected:
    RemoteMemory()
        : world(GetParam()),
          endpoint(world.connect(0, 1)),
          near(world.peer(0)),
          far(world.peer(reaches_others(GetParam().transport) ? 1 : 0)) {}

    // Wait for the operation that returned `status`.
    void finish(ucs_status_t status, Waiter& waiter) {
        if (status == UCS_INPROGRESS) {
            world.until([&] { return waiter.done; });
            EXPECT_EQ(waiter.status, UCS_OK);
        } else {
            EXPECT_EQ(status, UCS_OK);
        }
    }

    World world;
    Endpoint& endpoint;
    Peer& near;
    Peer& far;
};

TEST_P(RemoteMemory, PutWritesExactlyWhatWasGiven) {
    const OperationLimits limits = near.interface->attributes().put;
    const size_t copied = std::min<size_t>(limits.max_bcopy, 8192);
    Buffer target(far, 70000, '.');
    Buffer source(near, 65536);
    const RemoteKey key = target.key_for(near);
    const std::string content = pattern(65536, 1);
    std::memcpy(source.data(), content.data(), content.size());
    std::string expected(70000, '.');

    const size_t small = std::min<size_t>(limits.max_short, 64);
    EXPECT_EQ(
        endpoint.put_short(content.data(), static_cast<uint32_t>(small), target.address() + 3, key),
        UCS_OK);
    expected.replace(3, small, content, 0, small);

    std::string part = content.substr(100, copied);
    EXPECT_EQ(endpoint.put_bcopy(
                  [](void* destination, void* arg) {
                      const auto& text = *static_cast<std::string*>(arg);
                      std::memcpy(destination, text.data(), text.size());
                      return text.size();
                  },
                  &part, target.address() + 101, key),
              static_cast<ssize_t>(copied));
    expected.replace(101, copied, part);

    const size_t large = std::min<size_t>(limits.max_zcopy, 60000);
    const Iov iov[] = {source.iov(0, 1000), source.iov(5000, large - 1000)};
    Waiter waiter;
    finish(endpoint.put_zcopy(iov, target.address() + 9001, key, &waiter), waiter);
    expected.replace(9001, 1000, content, 0, 1000);
    expected.replace(10001, large - 1000, content, 5000, large - 1000);
    EXPECT_EQ(flush(world, endpoint), UCS_OK);
    EXPECT_EQ(target.text(), expected);
}

TEST_P(RemoteMemory, GetBringsTheBytes) {
    const OperationLimits limits = near.interface->attributes().get;
    Buffer source(far, 70000);
    const std::string content = pattern(70000, 2);
    std::memcpy(source.data(), content.data(), content.size());
    Buffer target(near, 70000, '.');
    const RemoteKey key = source.key_for(near);

    for (const size_t length : {size_t{1}, std::min<size_t>(limits.max_bcopy, 8192)}) {
        std::string got;
        Waiter waiter;
        finish(endpoint.get_bcopy(
                   [](void* arg, const void* data, size_t size) {
                       static_cast<std::string*>(arg)->assign(static_cast<const char*>(data), size);
                   },
                   &got, length, source.address() + 5, key, &waiter),
               waiter);
        EXPECT_EQ(got, content.substr(5, length));
    }
    const size_t large = std::min<size_t>(limits.max_zcopy, 60000);
    const Iov iov[] = {target.iov(1, 500), target.iov(1000, large - 500)};
    Waiter waiter;
    finish(endpoint.get_zcopy(iov, source.address() + 11, key, &waiter), waiter);
    std::string expected(70000, '.');
    expected.replace(1, 500, content, 11, 500);
    expected.replace(1000, large - 500, content, 511, large - 500);
    EXPECT_EQ(target.text(), expected);
}

TEST_P(RemoteMemory, AtomicsReturnTheOldValue) {
    Buffer target(far, 64);
    const RemoteKey key = target.key_for(near);
    const auto word = [&] {
        uint64_t value;
        std::memcpy(&value, target.data(), 8);
        return value;
    };
    uint64_t old = 99;
    Waiter add, swap, miss;
    finish(endpoint.atomic(AtomicOp::kAdd, 8, 5, 0, &old, target.address(), key, &add), add);
    EXPECT_EQ(old, 0u);
    finish(endpoint.atomic(AtomicOp::kCompareSwap, 8, 70, 5, &old, target.address(), key, &swap),
           swap);
    EXPECT_EQ(old, 5u);
    finish(endpoint.atomic(AtomicOp::kCompareSwap, 8, 1, 5, &old, target.address(), key, &miss),
           miss);
    EXPECT_EQ(old, 70u);
    EXPECT_EQ(word(), 70u);
    EXPECT_GE(endpoint.atomic(AtomicOp::kAdd, 8, 1, 0, nullptr, target.address(), key, nullptr), 0);
    EXPECT_EQ(flush(world, endpoint), UCS_OK);
    EXPECT_EQ(word(), 71u);
}

TEST_P(RemoteMemory, RegistrationsReachToWholeWords) {
    // An atomic on the word that holds the last odd bytes of a registration works.
    std::vector<uint64_t> words(4);
    MemoryHandle* handle;
    ASSERT_EQ(far.domain->register_memory(reinterpret_cast<char*>(words.data()) + 9, 2,
                                          PeerRights::kAll, &handle),
              UCS_OK);
    std::vector<std::byte> packed(far.domain->attributes().remote_key_length);
    far.domain->pack_remote_key(handle, packed);
    RemoteKey key;
    ASSERT_EQ(near.domain->unpack_remote_key(packed, &key), UCS_OK);
    near.keys.push_back(key);
    uint64_t old;
    Waiter waiter;
    finish(endpoint.atomic(AtomicOp::kAdd, 8, 3, 0, &old, reinterpret_cast<uintptr_t>(&words[1]),
                           key, &waiter),
           waiter);
    EXPECT_EQ(words[1], 3u);
    far.domain->deregister_memory(handle);
}

TEST(RemoteRights, EndWhereTheRegistrationDoes) {
    enum class Access { kPut, kGet, kAtomic };
    struct Case {
        const char* name;
        PeerRights rights;
        Access access;
        ptrdiff_t offset;  // from the start of what is registered, 4000 bytes long
        bool is_deregistered = false;
    };
    const Case cases[] = {
        {"put to what may be read", PeerRights::kRead, Access::kPut, 0},
        {"get from what may be written", PeerRights::kWrite, Access::kGet, 0},
        {"atomic on what may be read", PeerRights::kRead, Access::kAtomic, 0},
        {"put before", PeerRights::kWrite, Access::kPut, -1},
        {"put far before", PeerRights::kAll, Access::kPut, -1024},
        {"put behind", PeerRights::kWrite, Access::kPut, 3993},
        {"get before", PeerRights::kRead, Access::kGet, -1},
        {"get behind", PeerRights::kRead, Access::kGet, 3993},
        {"put to what is deregistered", PeerRights::kAll, Access::kPut, 0, true},
        {"get from what is deregistered", PeerRights::kAll, Access::kGet, 0, true},
    };
    for (const TransportCase& transport : transports_where(has_remote_memory)) {
        // The only peer over self is this process, which reaches its memory anyway.
        if (!reaches_others(transport.transport)) continue;
        for (const Case& each : cases) {
            SCOPED_TRACE(transport.label + ": " + each.name);
            World world(transport);
            Endpoint& endpoint = world.connect(0, 1);
            Peer &near = world.peer(0), &far = world.peer(1);
            Buffer memory(far, 8192, '.', PeerRights::kNone);
            Buffer target(far, memory, 2048, 4000, each.rights);
            Buffer local(near, 8, '!', PeerRights::kNone);
            const RemoteKey key = target.key_for(near);
            const uint64_t address = memory.address() + 2048 + static_cast<uint64_t>(each.offset);
            if (each.is_deregistered) target.deregister();
            const Iov piece[] = {local.iov(0, 8)};
            uint64_t old = 0;
            Waiter waiter;
            ucs_status_t status = UCS_OK;
            if (each.access == Access::kPut) {
                status = endpoint.put_zcopy(piece, address, key, &waiter);
            } else if (each.access == Access::kGet) {
                status = endpoint.get_zcopy(piece, address, key, &waiter);
            } else {
                status = endpoint.atomic(AtomicOp::kAdd, 8, 1, 0, &old, address, key, &waiter);
            }
            if (status == UCS_INPROGRESS) {
                world.until([&] { return waiter.done; });
                status = waiter.status;
            }
            if (status == UCS_OK && near.failures.empty()) status = flush(world, endpoint);
            EXPECT_TRUE(status < 0 || !near.failures.empty()) << status;
            EXPECT_EQ(memory.text(), std::string(8192, '.'));
            EXPECT_EQ(local.text(), std::string(8, '!'));
        }
    }
}

TEST_P(RemoteMemory, FlushCoversWhatWasPostedWithoutCompletion) {
    Buffer target(far, 8 * 300);
    const RemoteKey key = target.key_for(near);
    for (uint64_t i = 0; i < 300; ++i) {
        ucs_status_t status;
        world.until([&] {
            status = endpoint.put_short(&i, 8, target.address() + 8 * i, key);
            return status != UCS_ERR_NO_RESOURCE;
        });
        ASSERT_EQ(status, UCS_OK);
        if (i % 50 == 0) {
            ASSERT_EQ(endpoint.fence(), UCS_OK);
        }
    }
    EXPECT_EQ(flush(world, endpoint), UCS_OK);
    for (uint64_t i = 0; i < 300; ++i) {
        uint64_t value;
        std::memcpy(&value, target.data() + 8 * i, 8);
        ASSERT_EQ(value, i);
    }
    EXPECT_EQ(endpoint.flush(nullptr), UCS_OK);
}

TEST_P(RemoteMemory, InterfaceFlushCoversAllEndpoints) {
    Endpoint& second = world.connect(0, 1);
    Buffer target(far, 16);
    const RemoteKey key = target.key_for(near);
    const uint64_t value = 42;
    EXPECT_EQ(endpoint.put_short(&value, 8, target.address(), key), UCS_OK);
    EXPECT_EQ(second.put_short(&value, 8, target.address() + 8, key), UCS_OK);
    Waiter waiter;
    finish(near.interface->flush(&waiter), waiter);
    EXPECT_EQ(std::memcmp(target.data(), &value, 8), 0);
    EXPECT_EQ(std::memcmp(target.data() + 8, &value, 8), 0);
}

TEST_P(RemoteMemory, MalformedKeysAreRefused) {
    Buffer target(far, 64);
    const size_t length = far.domain->attributes().remote_key_length;
    RemoteKey key;
    EXPECT_EQ(near.domain->unpack_remote_key({}, &key), UCS_ERR_INVALID_PARAM);
    const std::vector<std::byte> zeros(length), longer(length + 1);
    EXPECT_EQ(near.domain->unpack_remote_key(zeros, &key), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(near.domain->unpack_remote_key(longer, &key), UCS_ERR_INVALID_PARAM);
}

// Where the processor that asks does the copies: long ones take several calls of progress.
class LocalCopies : public RemoteMemory {
  protected:
    static constexpr size_t kLong = 4 << 20;

    Buffer target{far, kLong + 64, '.'};
    Buffer source{near, kLong, '!'};
    const RemoteKey key = target.key_for(near);
    const Iov all[1] = {source.iov(0, kLong)};
};

// Of programs that run the suite over adapters alone there is no such transport.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LocalCopies);

TEST_P(LocalCopies, NoOperationOvertakesAFence) {
    Waiter put, swap;
    ASSERT_EQ(endpoint.put_zcopy(all, target.address(), key, &put), UCS_INPROGRESS);
    ASSERT_EQ(endpoint.fence(), UCS_OK);
    const uint64_t flag = 1;
    uint64_t old = 0;
    EXPECT_EQ(endpoint.put_short(&flag, 8, target.address() + kLong, key), UCS_ERR_NO_RESOURCE);
    EXPECT_EQ(endpoint.atomic(AtomicOp::kAdd, 8, 1, 0, &old, target.address() + kLong, key, &swap),
              UCS_ERR_NO_RESOURCE);
    EXPECT_EQ(endpoint.put_zcopy(all, target.address(), key, &swap), UCS_ERR_NO_RESOURCE);
    // Who waits is served when the copy is done.
    struct Wait : Pending {
        explicit Wait(std::function<ucs_status_t()> call)
            : Pending([](Pending* self) { return static_cast<Wait*>(self)->post(); }),
              post(std::move(call)) {}
        std::function<ucs_status_t()> post;
    } wait([&] {
        EXPECT_TRUE(put.done);
        return endpoint.put_short(&flag, 8, target.address() + kLong, key);
    });
    ASSERT_EQ(endpoint.pending_add(&wait), UCS_OK);
    world.until([&] { return target.data()[kLong] == 1; });
    EXPECT_EQ(target.text().substr(0, kLong), source.text());
}

TEST_P(LocalCopies, FlushWaitsAndDestructionCancels) {
    Waiter put, flushed, second;
    ASSERT_EQ(endpoint.put_zcopy(all, target.address(), key, &put), UCS_INPROGRESS);
    ASSERT_EQ(endpoint.flush(&flushed), UCS_INPROGRESS);
    EXPECT_EQ(near.interface->flush(nullptr), UCS_INPROGRESS);
    near.interface->progress();
    EXPECT_FALSE(flushed.done);
    world.until([&] { return flushed.done; });
    EXPECT_TRUE(put.done);
    EXPECT_EQ(target.text().substr(0, kLong), source.text());

    ASSERT_EQ(endpoint.put_zcopy(all, target.address(), key, &second), UCS_INPROGRESS);
    world.destroy(endpoint);
    EXPECT_EQ(second.status, UCS_ERR_CANCELED);
    source.data()[kLong - 1] = '?';
    world.progress_some(100);
    EXPECT_EQ(target.data()[kLong - 1], '!');
}

TEST_P(LocalCopies, RangesAreCheckedBeforeAnythingIsCopied) {
    Waiter put;
    if (!reaches_others(GetParam().transport)) GTEST_SKIP() << "reaches all its memory anyway";
    EXPECT_EQ(endpoint.put_zcopy(all, target.address() + 65, key, &put), UCS_ERR_INVALID_ADDR);
    EXPECT_EQ(target.text(), std::string(kLong + 64, '.'));
}

TEST_P(LocalCopies, EndWithTheRegistration) {
    if (!reaches_others(GetParam().transport)) GTEST_SKIP() << "reaches all its memory anyway";
    Waiter put;
    ASSERT_EQ(endpoint.put_zcopy(all, target.address(), key, &put), UCS_INPROGRESS);
    target.deregister();
    world.until([&] { return put.done; });
    EXPECT_EQ(put.status, UCS_ERR_INVALID_ADDR);
    EXPECT_EQ(target.data()[kLong - 1], '.');
}

TEST_P(LocalCopies, NobodyFallsAsleepOverThem) {
    Waiter put;
    ASSERT_EQ(endpoint.put_zcopy(all, target.address(), key, &put), UCS_INPROGRESS);
    if (can_wake(GetParam().transport)) {
        EXPECT_EQ(near.interface->arm(), UCS_ERR_BUSY);
    } else {
        EXPECT_NE(near.interface->progress(), 0u);
    }
    // The call in which a copy ends tells it.
    unsigned last = 0;
    while (!put.done) last = near.interface->progress();
    EXPECT_EQ(last, 1u);
}

bool copies_itself(const std::string& transport) {
    return is_shared_memory(transport) || transport == "self";
}

TEST_P(LocalCopies, TheMemoryOfAWorkerThatHasGoneInPeaceFailsTheEndpoint) {
    // Its process may go on: that of a peer within the same process does.
    if (!is_shared_memory(GetParam().transport)) GTEST_SKIP() << "is no shared memory";
    World world(GetParam(), 2);
    Endpoint& endpoint = world.connect(0, 1);
    Buffer target(world.peer(1), 64, '.');
    const RemoteKey key = target.key_for(world.peer(0));
    const uint64_t value = 1;
    EXPECT_EQ(endpoint.put_short(&value, 8, target.address() + 60, key), UCS_ERR_INVALID_ADDR);
    EXPECT_EQ(endpoint.put_short(&value, 8, target.address(), key), UCS_OK);
    target.deregister();
    EXPECT_EQ(endpoint.put_short(&value, 8, target.address(), key), UCS_ERR_INVALID_ADDR);
    if (is_dedicated(GetParam().transport)) world.destroy(world.other_end(endpoint));
    world.peer(1).runs = false;
    world.peer(1).interface.reset();
    const Iov piece = {const_cast<uint64_t*>(&value), 8, nullptr};
    EXPECT_EQ(endpoint.put_zcopy({&piece, 1}, target.address(), key, nullptr),
              UCS_ERR_ENDPOINT_TIMEOUT);
    world.until([&] { return world.peer(0).failures.size() == 1; });
    EXPECT_EQ(world.peer(0).failures[0].status, UCS_ERR_ENDPOINT_TIMEOUT);
}

INSTANTIATE_TEST_SUITE_P(Uct, LocalCopies, testing::ValuesIn(transports_where(copies_itself)),
                         case_name);

INSTANTIATE_TEST_SUITE_P(Uct, RemoteMemory, testing::ValuesIn(transports_where(has_remote_memory)),
                         case_name);

}  // namespace
}  // namespace uct::test
