// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/datastruct/slot_table.h"

#include <gtest/gtest.h>

#include <vector>

namespace ucs {
namespace {

using Table = SlotTable<int>;

TEST(SlotTable, FindsWhatItHolds) {
    Table table;
    int a = 1, b = 2;
    const Table::Handle first = table.insert(a), second = table.insert(b);
    EXPECT_EQ(table.find(first), &a);
    EXPECT_EQ(table.find(second), &b);
    EXPECT_EQ(table.size(), 2u);
}

TEST(SlotTable, AnOldNameFindsNothingThoughItsSlotIsInUse) {
    Table table;
    int a = 1, b = 2;
    const Table::Handle old = table.insert(a);
    EXPECT_TRUE(table.erase(old));
    EXPECT_FALSE(table.erase(old));
    const Table::Handle fresh = table.insert(b);
    EXPECT_EQ(fresh.index, old.index);
    EXPECT_EQ(table.find(old), nullptr);
    EXPECT_EQ(table.find(fresh), &b);
}

TEST(SlotTable, ForgedNamesFindNothing) {
    Table table;
    int a = 1;
    table.erase(table.insert(a));
    EXPECT_EQ(table.find({}), nullptr);
    for (uint32_t generation = 0; generation < 3; ++generation) {
        EXPECT_EQ(table.find({0, generation}), nullptr);
    }
    EXPECT_EQ(table.find({12345, 0}), nullptr);
}

TEST(SlotTable, ANamePacksIntoAWord) {
    const Table::Handle handle{7, 0x80000001};
    EXPECT_EQ(Table::Handle::unpack(handle.packed()), handle);
}

TEST(SlotTable, VisitsInOrderAndMayEraseMeanwhile) {
    Table table;
    std::vector<int> values{10, 11, 12, 13};
    for (int& value : values) table.insert(value);
    std::vector<int> seen;
    table.for_each([&](Table::Handle handle, int& value) {
        seen.push_back(value);
        table.erase(handle);
    });
    EXPECT_EQ(seen, values);
    EXPECT_EQ(table.size(), 0u);
}

}  // namespace
}  // namespace ucs
