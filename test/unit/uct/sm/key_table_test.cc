// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/key_table.h"

#include <gtest/gtest.h>

#include <set>
#include <span>
#include <utility>

#include "ucs/runtime/runtime.h"

namespace uct::sm {
namespace {

// Counts how often it is asked; zeros among what it gives.
class Asked final : public ucs::Entropy {
  public:
    uint64_t draw() override {
        ++times;
        return next_++ % 5;
    }
    void fill(std::span<uint64_t> words) override {
        ++times;
        for (uint64_t& word : words) word = next_ % 5 == 0 ? (++next_, 0) : next_++;
    }
    unsigned times = 0;

  private:
    uint64_t next_ = 0;
};

class KeyTableTest : public testing::Test {
  protected:
    KeyTableTest() : before_(std::exchange(ucs::runtime().entropy, &asked)) {}
    ~KeyTableTest() override { ucs::runtime().entropy = before_; }

    const Grant grant{4096, 64, 0, 0, 0, PeerRights::kRead};
    Asked asked;
    KeyTable table;

  private:
    ucs::Entropy* const before_;
};

// To ask the system takes as long as a short message, and each announced message has a key.
TEST_F(KeyTableTest, NumbersAreDrawnAhead) {
    table.remove(table.add(grant));
    asked.times = 0;
    std::set<uint64_t> numbers;
    constexpr unsigned kKeys = 200;
    for (unsigned i = 0; i < kKeys; ++i) {
        const KeyTable::Key key = table.add(grant);
        EXPECT_NE(key.number, 0u);
        numbers.insert(key.number);
        table.remove(key);
    }
    EXPECT_EQ(numbers.size(), kKeys);
    EXPECT_LT(asked.times, kKeys / 10);
}

TEST_F(KeyTableTest, AKeyIsGoodUntilItIsRemoved) {
    const KeyTable::Key key = table.add(grant);
    ASSERT_NE(table.segment(), nullptr);
    const KeySlot* slots = KeyTable::slots(table.segment()->base(), table.segment()->size());
    ASSERT_NE(slots, nullptr);
    Grant found{};
    EXPECT_TRUE(read_grant(slots[key.slot], key.number, &found));
    EXPECT_EQ(found.address, grant.address);
    EXPECT_FALSE(read_grant(slots[key.slot], key.number + 1, &found));
    table.remove(key);
    EXPECT_FALSE(read_grant(slots[key.slot], key.number, &found));
}

TEST_F(KeyTableTest, PeersMayCopyWithinARangeAndItsRights) {
    EXPECT_EQ(table.board(), nullptr);
    const KeyTable::Key key = table.add(grant);
    ASSERT_NE(table.board(), nullptr);
    EXPECT_EQ(table.board()->open, 0u);
    const auto allows = [&](uint64_t address, uint64_t length,
                            CopyDirection direction = CopyDirection::kGet) {
        JointCopyTerms terms{};
        terms.remote = address;
        terms.length = length;
        terms.key = key.number;
        terms.key_slot = key.slot;
        terms.direction = direction;
        return table.allows(terms);
    };
    EXPECT_TRUE(allows(4096, 64));
    EXPECT_TRUE(allows(4100, 60));
    EXPECT_FALSE(allows(4100, 61));
    EXPECT_FALSE(allows(4095, 1));
    EXPECT_FALSE(allows(4100, UINT64_MAX - 10));
    EXPECT_FALSE(allows(4096, 64, CopyDirection::kPut)) << "it may be read alone";
    JointCopyTerms nowhere{};
    nowhere.key = key.number;
    nowhere.key_slot = KeyTable::kSlots;
    EXPECT_FALSE(table.allows(nowhere));
    table.remove(key);
    EXPECT_FALSE(allows(4096, 64));
}

}  // namespace
}  // namespace uct::sm
