// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/mem/registration_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "ucp/context/context.h"
#include "ucs/memory/pages.h"
#include "ucs/type/bits.h"

namespace ucp::test {
namespace {

struct FakeHandle : uct::MemoryHandle {
    uintptr_t begin, end;
    uct::PeerRights rights;
};

// Counts, and refuses what it is told to.
class FakeDomain : public uct::MemoryDomain {
  public:
    const uct::MemoryDomainAttributes& attributes() const override { return attributes_; }
    ucs_status_t register_memory(void* address, size_t length, uct::PeerRights rights,
                                 uct::MemoryHandle** handle) override {
        if (is_forbidden(reinterpret_cast<uintptr_t>(address), length)) return UCS_ERR_IO_ERROR;
        if (registered.size() >= limit || length > longest) return UCS_ERR_NO_MEMORY;
        auto* made = new FakeHandle;
        made->begin = reinterpret_cast<uintptr_t>(address);
        made->end = made->begin + length;
        made->rights = rights;
        registered.push_back(made);
        *handle = made;
        return UCS_OK;
    }
    ucs_status_t register_device_memory(void* address, size_t length, uct::PeerRights rights,
                                        uct::MemoryHandle** handle) override {
        ++of_devices;
        return register_memory(address, length, rights, handle);
    }
    void deregister_memory(uct::MemoryHandle* handle) override {
        std::erase(registered, static_cast<FakeHandle*>(handle));
        delete static_cast<FakeHandle*>(handle);
    }
    void pack_remote_key(const uct::MemoryHandle*, std::span<std::byte>) const override {}
    ucs_status_t unpack_remote_key(std::span<const std::byte>, uct::RemoteKey*) override {
        return UCS_ERR_UNSUPPORTED;
    }
    ucs_status_t open_interface(std::string_view, const uct::InterfaceParams&,
                                std::unique_ptr<uct::Interface>*) override {
        return UCS_ERR_UNSUPPORTED;
    }

    size_t limit = SIZE_MAX;
    size_t longest = SIZE_MAX;
    uintptr_t forbidden = 0;  // an address that cannot be registered
    std::vector<FakeHandle*> registered;
    unsigned of_devices = 0;  // that were made of memory of a device

  private:
    bool is_forbidden(uintptr_t address, size_t length) const {
        return forbidden - address < length;
    }

    uct::MemoryDomainAttributes attributes_{.can_register = true,
                                            .device_types = UCS_BIT(UCS_MEMORY_TYPE_CUDA)};
};

// Knows the numbers of the allocations that are there.
class DetectedDevice final : public ucs::MemoryDetector {
  public:
    bool detect(const void*, size_t, ucs::MemoryInfo&) const override { return false; }
    bool is_freed(uint64_t allocation, uint64_t) override {
        return !allocations.contains(allocation);
    }

    std::set<uint64_t> allocations;
};

class RegistrationCaching : public testing::Test {
  protected:
    static constexpr uintptr_t kBase = 0x100000000;

    RegistrationCaching() {
        for (int i = 0; i < 2; ++i)
            domains_.push_back({nullptr, "fake", std::make_unique<FakeDomain>(), 0});
    }
    ~RegistrationCaching() override {
        cache_.reset();
        EXPECT_TRUE(fake(0).registered.empty());
        EXPECT_TRUE(fake(1).registered.empty());
    }
    FakeDomain& fake(unsigned i) { return static_cast<FakeDomain&>(*domains_[i].memory); }
    RegistrationCache& cache() {
        if (!cache_) cache_ = std::make_unique<RegistrationCache>(domains_, limits_);
        return *cache_;
    }
    static const void* at(double page) {
        return reinterpret_cast<const void*>(
            kBase + static_cast<uintptr_t>(page * double(ucs::page_size())));
    }
    static size_t bytes(double pages) {
        return static_cast<size_t>(pages * double(ucs::page_size()));
    }
    // A transfer: whether it made no new region.
    bool use(double page, double pages, unsigned domain = 0) {
        const uint64_t before = cache().statistics().made;
        CachedRegion* const region = cache().get(at(page), bytes(pages));
        EXPECT_NE(cache().handle(*region, domain), nullptr);
        cache().put(*region);
        return cache().statistics().made == before;
    }
    // The same of memory of the device, in an allocation of pages that begins at another one.
    bool use_of_device(double page, double pages, uint64_t allocation, double base,
                       double pages_of_all) {
        device_.allocations.insert(allocation);
        const ucs::MemoryInfo found{.type = UCS_MEMORY_TYPE_CUDA,
                                    .base = at(base),
                                    .length = bytes(pages_of_all),
                                    .allocation = allocation,
                                    .owner = &device_};
        const uint64_t before = cache().statistics().made;
        CachedRegion* const region = cache().get(at(page), bytes(pages), found);
        EXPECT_NE(cache().handle(*region, 0), nullptr);
        cache().put(*region);
        return cache().statistics().made == before;
    }
    void unmap(double page, double pages) {
        const auto begin = reinterpret_cast<uintptr_t>(at(page));
        cache().invalidations().push(begin, begin + bytes(pages));
    }

    DetectedDevice device_;
    std::vector<Domain> domains_;
    RegistrationCache::Limits limits_;
    std::unique_ptr<RegistrationCache> cache_;
};

TEST_F(RegistrationCaching, IsFoundAgainByWhatItCovers) {
    EXPECT_FALSE(use(1.25, 1.5));
    EXPECT_TRUE(use(1.25, 1.5));
    EXPECT_TRUE(use(1, 2));
    EXPECT_TRUE(use(2.5, 0.25));
    EXPECT_FALSE(use(3, 1));
    EXPECT_FALSE(use(0, 1));
    EXPECT_EQ(cache().regions(), 3u);
    EXPECT_EQ(cache().bytes(), bytes(4));
}

TEST_F(RegistrationCaching, MemoryOfADeviceIsFoundByItsAllocation) {
    EXPECT_FALSE(use_of_device(1.25, 1, 7, 0, 8));
    EXPECT_TRUE(use_of_device(1.25, 1, 7, 0, 8));
    EXPECT_FALSE(use_of_device(1.5, 3, 7, 0, 8));  // more of it: one region
    EXPECT_EQ(cache().regions(), 1u);
    EXPECT_EQ(fake(0).of_devices, 2u);
    // Freed, and something else lies there now.
    device_.allocations.erase(7);
    EXPECT_FALSE(use_of_device(1.25, 1, 8, 0, 4));
    EXPECT_TRUE(use_of_device(1.25, 1, 8, 0, 4));
    EXPECT_EQ(cache().regions(), 1u);
    EXPECT_EQ(cache().statistics().invalidated, 1u);
    EXPECT_EQ(fake(0).registered.size(), 1u);
}

TEST_F(RegistrationCaching, NothingBesideADevicesAllocationIsRegistered) {
    EXPECT_FALSE(use_of_device(1.25, 1, 7, 1.125, 1.25));
    const FakeHandle& handle = *fake(0).registered.front();
    EXPECT_EQ(handle.begin, reinterpret_cast<uintptr_t>(at(1.125)));
    EXPECT_EQ(handle.end, reinterpret_cast<uintptr_t>(at(2.375)));
    EXPECT_FALSE(use_of_device(2.5, 0.25, 8, 2.375, 1));
    EXPECT_TRUE(use_of_device(1.25, 1, 7, 1.125, 1.25));
}

TEST_F(RegistrationCaching, MemoryOfADeviceThatWasFreedIsLetGoWithoutALookup) {
    constexpr uint64_t kAllocations = 200;
    EXPECT_FALSE(use(-10, 1));
    for (uint64_t i = 0; i < kAllocations; ++i)
        EXPECT_FALSE(use_of_device(double(2 * i), 1, i + 1, double(2 * i), 1));
    for (uint64_t i = 0; i < kAllocations; i += 2) device_.allocations.erase(i + 1);
    for (unsigned i = 0; i < 10; ++i) cache().collect_freed();
    EXPECT_EQ(fake(0).registered.size(), kAllocations / 2 + 1);
    for (uint64_t i = 1; i < kAllocations; i += 2)
        EXPECT_TRUE(use_of_device(double(2 * i), 1, i + 1, double(2 * i), 1));
    EXPECT_TRUE(use(-10, 1));
    // In use: with its last user.
    const ucs::MemoryInfo found{.type = UCS_MEMORY_TYPE_CUDA,
                                .base = at(2),
                                .length = bytes(1),
                                .allocation = 2,
                                .owner = &device_};
    CachedRegion* const region = cache().get(at(2), bytes(1), found);
    device_.allocations.erase(2);
    for (unsigned i = 0; i < 10; ++i) cache().collect_freed();
    EXPECT_EQ(fake(0).registered.size(), kAllocations / 2 + 1);
    cache().put(*region);
    EXPECT_EQ(fake(0).registered.size(), kAllocations / 2);
}

TEST_F(RegistrationCaching, OnlyTheDomainThatIsAskedRegisters) {
    use(0, 1, 0);
    EXPECT_EQ(fake(0).registered.size(), 1u);
    EXPECT_EQ(fake(1).registered.size(), 0u);
    EXPECT_TRUE(use(0, 1, 1));
    EXPECT_EQ(fake(1).registered.size(), 1u);
}

TEST_F(RegistrationCaching, OverlappedRegionsBecomeOne) {
    use(0, 2);
    use(4, 2);
    EXPECT_FALSE(use(1, 4));
    EXPECT_EQ(cache().regions(), 1u);
    EXPECT_EQ(cache().bytes(), bytes(6));
    EXPECT_TRUE(use(0, 6));
    EXPECT_EQ(fake(0).registered.size(), 1u);
}

TEST_F(RegistrationCaching, AnOverlappedRegionInUseStaysForItsUser) {
    CachedRegion* const first = cache().get(at(0), bytes(2));
    ASSERT_NE(cache().handle(*first, 0), nullptr);
    EXPECT_FALSE(use(1, 2));
    EXPECT_EQ(fake(0).registered.size(), 2u);
    cache().put(*first);
    EXPECT_EQ(fake(0).registered.size(), 1u);
}

TEST_F(RegistrationCaching, UnmappedMemoryIsNotFound) {
    use(0, 4);
    use(10, 1);
    unmap(2, 1);
    EXPECT_TRUE(use(10, 1));
    EXPECT_EQ(fake(0).registered.size(), 1u);
    EXPECT_FALSE(use(0, 1));
    EXPECT_EQ(cache().statistics().invalidated, 1u);
}

TEST_F(RegistrationCaching, UnmappedMemoryIsLetGoWithoutALookup) {
    use(0, 1);
    CachedRegion* const held = cache().get(at(10), bytes(1));
    EXPECT_NE(cache().handle(*held, 0), nullptr);
    unmap(0, 20);
    cache().collect();
    EXPECT_EQ(cache().regions(), 0u);
    EXPECT_EQ(fake(0).registered.size(), 1u);
    cache().put(*held);
    EXPECT_TRUE(fake(0).registered.empty());
}

TEST_F(RegistrationCaching, WhatIsUnmappedInUseLivesUntilItsLastUserLetsGo) {
    CachedRegion* const first = cache().get(at(0), bytes(1));
    CachedRegion* const second = cache().get(at(0), bytes(1));
    ASSERT_EQ(first, second);
    uct::MemoryHandle* const old = cache().handle(*first, 0);
    unmap(0, 1);
    CachedRegion* const third = cache().get(at(0), bytes(1));
    EXPECT_NE(third, first);
    EXPECT_NE(cache().handle(*third, 0), old);
    EXPECT_EQ(cache().handle(*second, 0), old);
    cache().put(*first);
    EXPECT_EQ(fake(0).registered.size(), 2u);
    cache().put(*second);
    EXPECT_EQ(fake(0).registered.size(), 1u);
    cache().put(*third);
    EXPECT_TRUE(use(0, 1));
}

TEST_F(RegistrationCaching, MoreUnmappingThanIsNotedForgetsAll) {
    use(0, 1);
    use(5000, 1);
    for (int i = 0; i < 1000; ++i) unmap(10 + i, 1);
    EXPECT_FALSE(use(5000, 1));
    EXPECT_FALSE(use(0, 1));
    EXPECT_TRUE(use(0, 1));
}

TEST_F(RegistrationCaching, EverythingCanBeForgotten) {
    use(0, 1);
    cache().invalidations().push_all();
    EXPECT_FALSE(use(0, 1));
}

TEST_F(RegistrationCaching, TheLeastRecentlyUsedGoesWhenThereAreTooMany) {
    limits_.regions = 2;
    use(0, 1);
    use(10, 1);
    EXPECT_TRUE(use(0, 1));
    use(20, 1);
    EXPECT_TRUE(use(0, 1));
    EXPECT_FALSE(use(10, 1));
    EXPECT_EQ(cache().statistics().evicted, 2u);
}

TEST_F(RegistrationCaching, TheLimitOfBytesHolds) {
    limits_.bytes = bytes(4);
    use(0, 2);
    use(10, 2);
    use(20, 1);
    EXPECT_LE(cache().bytes(), bytes(4));
    EXPECT_TRUE(use(10, 2));
    EXPECT_FALSE(use(0, 2));
    // Too much for the cache: for this once.
    EXPECT_FALSE(use(30, 5));
    EXPECT_FALSE(use(30, 5));
    EXPECT_LE(cache().bytes(), bytes(4));
}

TEST_F(RegistrationCaching, WhatIsInUseIsNotEvicted) {
    limits_.regions = 1;
    CachedRegion* const held = cache().get(at(0), bytes(1));
    EXPECT_NE(cache().handle(*held, 0), nullptr);
    EXPECT_FALSE(use(10, 1));
    EXPECT_FALSE(use(10, 1));
    EXPECT_EQ(fake(0).registered.size(), 1u);
    cache().put(*held);
    EXPECT_TRUE(use(0, 1));
}

TEST_F(RegistrationCaching, UnusedRegistrationsMakeWayForADeviceThatIsFull) {
    use(0, 1);
    use(10, 1);
    fake(0).limit = 2;
    EXPECT_FALSE(use(20, 1));
    EXPECT_EQ(cache().regions(), 1u);
    CachedRegion* const held = cache().get(at(20), bytes(1));
    fake(0).limit = 1;
    CachedRegion* const refused = cache().get(at(30), bytes(1));
    EXPECT_EQ(cache().handle(*refused, 0), nullptr);
    fake(0).limit = 2;
    EXPECT_NE(cache().handle(*refused, 0), nullptr);
    cache().put(*refused);
    cache().put(*held);
}

TEST_F(RegistrationCaching, MemoryThatCannotBeRegisteredLeavesTheRestAlone) {
    use(0, 1);
    fake(0).forbidden = reinterpret_cast<uintptr_t>(at(11));
    CachedRegion* const refused = cache().get(at(10), bytes(2));
    EXPECT_EQ(cache().handle(*refused, 0), nullptr);
    cache().put(*refused);
    EXPECT_TRUE(use(0, 1));
    EXPECT_FALSE(use(10, 1));  // not the region that was refused
    EXPECT_TRUE(use(10, 1));
}

TEST_F(RegistrationCaching, DistrustedMemoryIsNotUsedAgain) {
    CachedRegion* const region = cache().get(at(0), bytes(1));
    EXPECT_NE(cache().handle(*region, 0), nullptr);
    cache().put_for_good(*region);
    EXPECT_TRUE(fake(0).registered.empty());
    EXPECT_FALSE(use(0, 1));
}

TEST_F(RegistrationCaching, WhatPeersMayReadIsARegistrationOfItsOwn) {
    CachedRegion* const region = cache().get(at(0), bytes(1));
    uct::MemoryHandle* const own = cache().handle(*region, 0);
    uct::MemoryHandle* const shared = cache().handle(*region, 0, uct::PeerRights::kRead);
    ASSERT_NE(own, shared);
    EXPECT_EQ(static_cast<FakeHandle*>(own)->rights, uct::PeerRights::kNone);
    EXPECT_EQ(static_cast<FakeHandle*>(shared)->rights, uct::PeerRights::kRead);
    EXPECT_EQ(cache().handle(*region, 0), own);
    EXPECT_EQ(cache().handle(*region, 0, uct::PeerRights::kRead), shared);
    cache().put_for_good(*region);
    EXPECT_TRUE(fake(0).registered.empty());
}

// What docs/design/memory.md counts instructions of.
TEST_F(RegistrationCaching, ManyRegionsAreFoundInTurn) {
    constexpr int kRegions = 1000;
    for (int i = 0; i < kRegions; ++i) use(2 * i, 1);
    for (int i = 0; i < 10 * kRegions; ++i) ASSERT_TRUE(use(2 * (i * 7 % kRegions), 1));
    EXPECT_EQ(cache().regions(), size_t{kRegions});
}

// Against a model: every page has an age, a registration remembers the ages of its pages, and
// what is found must have the present ones.
TEST_F(RegistrationCaching, RandomOrderFindsNothingStale) {
    limits_ = {.regions = 8, .bytes = bytes(40)};
    constexpr unsigned kPages = 64;
    std::vector<unsigned> age(kPages, 0);
    std::map<uct::MemoryHandle*, std::vector<unsigned>> ages;
    std::vector<std::pair<CachedRegion*, unsigned>> held;
    std::mt19937 random(7);
    const auto page_of = [](uintptr_t address) { return (address - kBase) / ucs::page_size(); };
    for (int round = 0; round < 50000; ++round) {
        const unsigned first = random() % kPages;
        const unsigned count = 1 + random() % std::min(kPages - first, 12u);
        switch (random() % 4) {
            case 0:
                for (unsigned i = first; i < first + count; ++i) ++age[i];
                unmap(first, count);
                break;
            case 1:
                if (!held.empty()) {
                    const size_t which = random() % held.size();
                    cache().put(*held[which].first);
                    held.erase(held.begin() + static_cast<ptrdiff_t>(which));
                }
                break;
            default: {
                CachedRegion* const region = cache().get(at(first), bytes(count));
                ASSERT_LE(page_of(region->begin), first);
                ASSERT_GE(page_of(region->end), first + count);
                const bool is_new = region->handles[0] == nullptr;
                auto* const handle = cache().handle(*region, 0);
                ASSERT_NE(handle, nullptr);
                if (is_new) {
                    ages[handle].assign(
                        age.begin() + static_cast<ptrdiff_t>(page_of(region->begin)),
                        age.begin() + static_cast<ptrdiff_t>(page_of(region->end)));
                }
                for (unsigned i = first; i < first + count; ++i)
                    ASSERT_EQ(ages[handle][i - page_of(region->begin)], age[i]);
                if (random() % 4 == 0 && held.size() < 4) {
                    held.emplace_back(region, 0u);
                } else {
                    cache().put(*region);
                }
            }
        }
        ASSERT_LE(cache().regions(), 8u);
        ASSERT_LE(cache().bytes(), bytes(40));
    }
    EXPECT_GT(cache().statistics().found, 1000u);
    for (auto& [region, unused] : held) cache().put(*region);
}

// Threads that unmap, each its page, beside one that looks up.
TEST_F(RegistrationCaching, ALookupSeesEveryUnmappingThatHasReturned) {
    constexpr unsigned kThreads = 4;
    constexpr unsigned kRounds = 3000;
    std::array<std::atomic<unsigned>, kThreads> begun{}, ended{};
    std::atomic<bool> stop{false};
    cache();
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < kThreads; ++i) {
        threads.emplace_back([&, i] {
            while (!stop) {
                ++begun[i];
                unmap(100.0 * i, 1);
                ++ended[i];
                std::this_thread::yield();
            }
        });
    }
    std::map<uct::MemoryHandle*, unsigned> begun_before;
    for (unsigned round = 0; round < kRounds; ++round) {
        const unsigned i = round % kThreads;
        const unsigned number = ended[i];
        CachedRegion* const region = cache().get(at(100.0 * i), bytes(1));
        const bool is_new = region->handles[0] == nullptr;
        uct::MemoryHandle* const handle = cache().handle(*region, 0);
        if (is_new) begun_before[handle] = begun[i];
        // An unmapping that began after the registration and ended before the lookup was seen.
        ASSERT_GE(begun_before[handle], number);
        cache().put(*region);
        if (round % 16 == 0) std::this_thread::yield();
    }
    stop = true;
    for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace ucp::test
