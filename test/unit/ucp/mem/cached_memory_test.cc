// SPDX-License-Identifier: BSD-3-Clause
// The registration cache as operations use it, in a process whose memory events the test makes.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <thread>

#include "ucm/api/ucm.h"
#include "ucp/mem/memory.h"
#include "unit/ucp/proto/cluster.h"

namespace {

// Stands for libucm.
struct Events {
    bool are_to_be_had = true;
    std::vector<std::pair<ucm_event_callback_t, void*>> handlers;

    void unmap(const void* address, size_t size) {
        ucm_event_t event{};
        event.vm_unmapped = {const_cast<void*>(address), size};
        for (const auto& [callback, arg] : handlers) callback(UCM_EVENT_VM_UNMAPPED, &event, arg);
    }
} events;

}  // namespace

ucs_status_t ucm_set_event_handler(int kinds, int, ucm_event_callback_t callback, void* arg) {
    if (!events.are_to_be_had || kinds != UCM_EVENT_VM_UNMAPPED) return UCS_ERR_UNSUPPORTED;
    events.handlers.emplace_back(callback, arg);
    return UCS_OK;
}

void ucm_unset_event_handler(int, ucm_event_callback_t callback, void* arg) {
    std::erase(events.handlers, std::pair(callback, arg));
}

namespace ucp::test {
namespace {

class CachedMemory : public testing::Test {
  protected:
    ~CachedMemory() override { events.are_to_be_had = true; }

    const RegistrationCache::Statistics& statistics(Cluster& cluster) {
        return cluster.a.context().domains().registrations()->statistics();
    }
    void use(Cluster& cluster) {
        Memory* memory = nullptr;
        ASSERT_EQ(Memory::create_on_demand(cluster.a.context().domains(), buffer_, sizeof(buffer_),
                                           uct::PeerRights::kNone, &memory),
                  UCS_OK);
        EXPECT_NE(memory->handle(0), nullptr);
        Memory::destroy(memory);
    }
    static constexpr unsigned kLocal = UCP_MEM_MAP_PROT_LOCAL_READ | UCP_MEM_MAP_PROT_LOCAL_WRITE;

    ucp_mem_h map(Cluster& cluster, void* address, size_t length, unsigned flags = 0,
                  unsigned prot = kLocal) {
        ucp_mem_map_params_t params{};
        params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                            UCP_MEM_MAP_PARAM_FIELD_FLAGS | UCP_MEM_MAP_PARAM_FIELD_PROT;
        params.prot = prot;
        params.address = address;
        params.length = length;
        params.flags = flags;
        ucp_mem_h memory = nullptr;
        EXPECT_EQ(ucp_mem_map(wrap(&cluster.a.context()), &params, &memory), UCS_OK);
        return memory;
    }
    void unmap(Cluster& cluster, ucp_mem_h memory) {
        EXPECT_EQ(ucp_mem_unmap(wrap(&cluster.a.context()), memory), UCS_OK);
    }
    static ucs_status_t open(ucs::config::Ternary enable, bool memory_events = true) {
        Config config;
        std::string error;
        EXPECT_EQ(kConfigTable.load(ucs::config::Source(), config, error), UCS_OK) << error;
        config.registration_cache = enable;
        config.memory_events = memory_events;
        ucp_params_t params{};
        params.field_mask = UCP_PARAM_FIELD_FEATURES;
        params.features = UCP_FEATURE_TAG;
        std::unique_ptr<Context> context;
        const ucs_status_t status = Context::create(params, config, {}, &context);
        has_cache = context != nullptr && context->domains().registrations() != nullptr;
        return status;
    }

    static inline bool has_cache = false;
    char buffer_[100];
};

TEST_F(CachedMemory, IsThereIfEventsAre) {
    using ucs::config::Ternary;
    EXPECT_EQ(open(Ternary::kTry), UCS_OK);
    EXPECT_TRUE(has_cache);
    EXPECT_EQ(open(Ternary::kYes), UCS_OK);
    EXPECT_TRUE(has_cache);
    EXPECT_EQ(open(Ternary::kNo), UCS_OK);
    EXPECT_FALSE(has_cache);
    EXPECT_TRUE(events.handlers.empty());
}

TEST_F(CachedMemory, IsNeverThereWithoutEvents) {
    using ucs::config::Ternary;
    EXPECT_EQ(open(Ternary::kTry, false), UCS_OK);
    EXPECT_FALSE(has_cache);
    events.are_to_be_had = false;
    EXPECT_EQ(open(Ternary::kTry), UCS_OK);
    EXPECT_FALSE(has_cache);
    EXPECT_EQ(open(Ternary::kYes), UCS_ERR_UNSUPPORTED);
}

TEST_F(CachedMemory, BuffersStayRegisteredUntilTheyGo) {
    Cluster cluster;
    use(cluster);
    use(cluster);
    EXPECT_EQ(statistics(cluster).made, 1u);
    EXPECT_EQ(statistics(cluster).found, 1u);
    events.unmap(buffer_, sizeof(buffer_));
    use(cluster);
    EXPECT_EQ(statistics(cluster).made, 2u);
}

TEST_F(CachedMemory, WhatIsUnmappedIsLetGoByAWorkerThatOnlyWaits) {
    Cluster cluster;
    use(cluster);
    EXPECT_EQ(cluster.a.context().domains().registrations()->regions(), 1u);
    events.unmap(buffer_, sizeof(buffer_));
    for (int i = 0; i < 100; ++i) ucp_worker_progress(cluster.a.handle());
    EXPECT_EQ(cluster.a.context().domains().registrations()->regions(), 0u);
}

TEST_F(CachedMemory, MemoryIsMappedAgainWithoutARegistration) {
    Cluster cluster;
    const ucp_mem_h first = map(cluster, buffer_, sizeof(buffer_));
    const ucp_mem_h second = map(cluster, buffer_, sizeof(buffer_));
    EXPECT_EQ(unwrap(first).handle(0), unwrap(second).handle(0));
    EXPECT_NE(unwrap(first).handle(0), nullptr);
    unmap(cluster, first);
    unmap(cluster, second);
    unmap(cluster, map(cluster, buffer_, sizeof(buffer_)));
    use(cluster);
    EXPECT_EQ(statistics(cluster).made, 1u);
    EXPECT_EQ(statistics(cluster).found, 3u);
}

TEST_F(CachedMemory, AHandleKeepsItsRegistrationWhateverBecomesOfTheMemory) {
    Cluster cluster;
    const ucp_mem_h old = map(cluster, buffer_, sizeof(buffer_));
    uct::MemoryHandle* const before = unwrap(old).handle(0);
    events.unmap(buffer_, sizeof(buffer_));
    const ucp_mem_h anew = map(cluster, buffer_, sizeof(buffer_));
    EXPECT_EQ(unwrap(old).handle(0), before);
    EXPECT_NE(unwrap(anew).handle(0), before);
    unmap(cluster, old);
    EXPECT_EQ(cluster.a.context().domains().registrations()->regions(), 1u);
    unmap(cluster, anew);
}

TEST_F(CachedMemory, MemoryOfTheLibraryIsRegisteredForItsHandleAlone) {
    Cluster cluster;
    const ucp_mem_h memory = map(cluster, nullptr, 10000, UCP_MEM_MAP_ALLOCATE);
    EXPECT_NE(unwrap(memory).handle(0), nullptr);
    EXPECT_EQ(cluster.a.context().domains().registrations()->regions(), 0u);
    unmap(cluster, memory);
}

TEST_F(CachedMemory, AForkForgetsAll) {
    Cluster cluster;
    use(cluster);
    const pid_t child = fork();
    if (child == 0) _exit(0);
    waitpid(child, nullptr, 0);
    use(cluster);
    EXPECT_EQ(statistics(cluster).made, 2u);
}

TEST_F(CachedMemory, ABufferThatAPeerMayStillReadIsForNobodyElse) {
    Cluster cluster;
    Memory* memory = nullptr;
    ASSERT_EQ(Memory::create_on_demand(cluster.a.context().domains(), buffer_, sizeof(buffer_),
                                       uct::PeerRights::kRead, &memory),
              UCS_OK);
    EXPECT_NE(memory->handle(0), nullptr);
    memory->distrust();
    Memory::destroy(memory);
    EXPECT_EQ(cluster.a.context().domains().registrations()->regions(), 0u);
}

TEST_F(CachedMemory, WhatAPeerMayWriteIsNeverKept) {
    Cluster cluster;
    Memory* memory = nullptr;
    ASSERT_EQ(Memory::create_on_demand(cluster.a.context().domains(), buffer_, sizeof(buffer_),
                                       uct::PeerRights::kWrite, &memory),
              UCS_OK);
    EXPECT_NE(memory->handle(0), nullptr);
    EXPECT_EQ(cluster.a.context().domains().registrations()->regions(), 0u);
    Memory::destroy(memory);
    const ucp_mem_h mapped =
        map(cluster, buffer_, sizeof(buffer_), 0, kLocal | UCP_MEM_MAP_PROT_REMOTE_READ);
    EXPECT_NE(unwrap(mapped).handle(0), nullptr);
    EXPECT_EQ(cluster.a.context().domains().registrations()->regions(), 0u);
    unmap(cluster, mapped);
}

// Workers of several threads share the context: each would wait for all others at one in some ten
// looks.
TEST_F(CachedMemory, WhatIsCollectedWithoutNeedTakesNoLock) {
    DomainSet domains;
    domains.set_options({.is_shared = true});
    ASSERT_TRUE(domains.open_cache({.regions = 8, .bytes = 1 << 20}, true));
    std::promise<void> is_locked, is_done;
    std::thread other([&] {
        const DomainLock lock(domains);
        domains.collect(ucs::Time{});  // for memory that devices have freed: seldom
        is_locked.set_value();
        EXPECT_EQ(is_done.get_future().wait_for(std::chrono::seconds(10)),
                  std::future_status::ready);
    });
    is_locked.get_future().wait();
    domains.collect(ucs::Time{});
    is_done.set_value();
    other.join();
}

}  // namespace
}  // namespace ucp::test
