// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/queues/region_table.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace uct::tcp
