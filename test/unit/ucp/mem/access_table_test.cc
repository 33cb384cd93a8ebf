// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/mem/domain_set.h"

#include <vector>

#include "ucp/mem/memory.h"
#include "unit/ucp/proto/cluster.h"

namespace ucp::test {
namespace {

class PublishedMemory : public testing::Test {
  protected:
    ~PublishedMemory() override {
        for (ucp_mem_h memory : mapped_) ucp_mem_unmap(wrap(&cluster_.a.context()), memory);
    }
    // Bytes [begin, end) of the buffer, published. @return the name
    uint64_t publish(size_t begin, size_t end, unsigned prot) {
        ucp_mem_map_params_t params{};
        params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                            UCP_MEM_MAP_PARAM_FIELD_PROT;
        params.address = bytes_.data() + begin;
        params.length = end - begin;
        params.prot = prot;
        ucp_mem_h memory = nullptr;
        EXPECT_EQ(ucp_mem_map(wrap(&cluster_.a.context()), &params, &memory), UCS_OK);
        mapped_.push_back(memory);
        const uint64_t name = table_.add(unwrap(memory));
        EXPECT_EQ(table_.publish(unwrap(memory)), UCS_OK);
        EXPECT_EQ(table_.publish(unwrap(memory)), UCS_OK);
        return name;
    }
    bool reaches(size_t begin, size_t length, unsigned prot = kRead) const {
        const auto address = reinterpret_cast<uintptr_t>(bytes_.data()) + begin;
        return table_.access(0, 0, address, length, prot) != nullptr;
    }

    static constexpr unsigned kRead = UCP_MEM_MAP_PROT_LOCAL_READ | UCP_MEM_MAP_PROT_REMOTE_READ;
    static constexpr unsigned kWrite = UCP_MEM_MAP_PROT_LOCAL_WRITE | UCP_MEM_MAP_PROT_REMOTE_WRITE;
    Cluster cluster_;
    AccessTable table_{7};
    std::vector<std::byte> bytes_{100000};
    std::vector<ucp_mem_h> mapped_;
};

TEST_F(PublishedMemory, IsReachedAsAWhole) {
    publish(1000, 2000, kRead);
    publish(5000, 6000, kRead);
    EXPECT_TRUE(reaches(1000, 1000));
    EXPECT_TRUE(reaches(5999, 1));
    EXPECT_FALSE(reaches(999, 2));
    EXPECT_FALSE(reaches(1999, 2));
    EXPECT_FALSE(reaches(3000, 1));
    EXPECT_FALSE(reaches(1000, 4500));
    EXPECT_FALSE(reaches(1000, 8, kWrite));
}

// One that begins nearer to the address need not be the one that holds it.
TEST_F(PublishedMemory, MayOverlap) {
    const uint64_t whole = publish(0, 100000, kRead);
    for (size_t begin = 1000; begin < 50000; begin += 1000) publish(begin, begin + 10, kWrite);
    const uint64_t again = publish(0, 100000, kRead);
    EXPECT_TRUE(reaches(49005, 4, kWrite));
    EXPECT_TRUE(reaches(49005, 4));
    EXPECT_TRUE(reaches(99999, 1));
    EXPECT_FALSE(reaches(99999, 1, kWrite));
    table_.remove(whole);
    EXPECT_TRUE(reaches(49005, 40000));
    table_.remove(again);
    EXPECT_FALSE(reaches(49005, 4));
    EXPECT_TRUE(reaches(49005, 4, kWrite));
}

}  // namespace
}  // namespace ucp::test
