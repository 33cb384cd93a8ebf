// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/queues/region_table.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>

namespace uct::tcp {
namespace {

TEST(TcpRegions, AreReachedWithinTheirBoundsAndRightsUntilTheyGo) {
    RegionTable table;
    alignas(8) std::byte memory[64];
    Region* region = table.add(memory + 1, 40, PeerRights::kRead);
    const uint64_t key = region->key;
    const auto start = reinterpret_cast<uintptr_t>(memory + 1);
    const auto finds = [&](uint64_t name, uint64_t address, size_t length, PeerRights wanted) {
        return RegionTable::Reader(table).find(name, address, length, wanted) != nullptr;
    };
    EXPECT_TRUE(finds(key, start, 40, PeerRights::kRead));
    EXPECT_TRUE(finds(key, start + 40, 0, PeerRights::kRead));
    EXPECT_FALSE(finds(key, start, 41, PeerRights::kRead));
    EXPECT_FALSE(finds(key, start - 1, 1, PeerRights::kRead));
    EXPECT_FALSE(finds(key, start + 41, ~size_t{0}, PeerRights::kRead)) << "no sum may wrap";
    EXPECT_FALSE(finds(key, start, 40, PeerRights::kAll));
    EXPECT_FALSE(finds(key + 1, start, 40, PeerRights::kRead));
    table.remove(region);
    EXPECT_FALSE(finds(key, start, 40, PeerRights::kRead));
    // What atomics may work on reaches to whole words.
    region = table.add(memory + 1, 40, PeerRights::kAll);
    EXPECT_TRUE(finds(region->key, start - 1, 48, PeerRights::kAll));
    EXPECT_FALSE(finds(region->key, start - 1, 49, PeerRights::kAll));
    table.remove(region);
}

// Somebody reads at any time, as where several threads move bytes.
class Relay {
  public:
    Relay(RegionTable& table, const Region& region) : table_(table), region_(region) { next(); }
    // Another reader begins before the last one ends.
    void next() {
        std::optional<RegionTable::Reader>& reader = readers_[++count_ % 2];
        reader.emplace(table_);
        EXPECT_NE(reader->find(region_.key, region_.start, 1, PeerRights::kRead), nullptr);
        readers_[(count_ + 1) % 2].reset();
    }

  private:
    RegionTable& table_;
    const Region& region_;
    std::optional<RegionTable::Reader> readers_[2];
    size_t count_ = 0;
};

TEST(TcpRegions, ComeWhileOthersAreRead) {
    RegionTable table;
    std::byte memory[64];
    Region* const read = table.add(memory, sizeof(memory), PeerRights::kRead);
    Region* other = nullptr;
    {
        const Relay relay(table, *read);
        other = table.add(memory, 8, PeerRights::kRead);
    }
    table.remove(other);
    table.remove(read);
}

TEST(TcpRegions, GoWhenThoseWhoReadThemHaveEndedWhoeverBeginsMeanwhile) {
    RegionTable table;
    std::byte memory[64];
    Region* const stays = table.add(memory, sizeof(memory), PeerRights::kRead);
    for (unsigned round = 0; round < 4; ++round) {
        Region* const goes = table.add(memory, 8, PeerRights::kRead);
        const uint64_t key = goes->key;
        std::optional<RegionTable::Reader> first(table);
        ASSERT_NE(first->find(key, goes->start, 8, PeerRights::kRead), nullptr);
        std::atomic<bool> is_gone{false};
        std::thread remover([&] {
            table.remove(goes);
            is_gone = true;
        });
        const auto is_found = [&] {
            return RegionTable::Reader(table).find(key, reinterpret_cast<uintptr_t>(memory), 8,
                                                   PeerRights::kRead) != nullptr;
        };
        while (is_found()) std::this_thread::yield();
        {
            Relay others(table, *stays);
            EXPECT_FALSE(is_gone) << "somebody reads it";
            first.reset();
            for (unsigned count = 0; !is_gone && count < 1'000'000; ++count) {
                others.next();
                std::this_thread::yield();
            }
            EXPECT_TRUE(is_gone);
        }
        remover.join();
    }
    table.remove(stays);
}

}  // namespace
}  // namespace uct::tcp
