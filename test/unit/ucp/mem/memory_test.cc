// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/mem/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "ucp/mem/packed_key.h"
#include "ucs/memory/pages.h"
#include "unit/ucp/proto/cluster.h"

namespace ucp::test {
namespace {

class MemoryMap : public testing::Test {
  protected:
    ucp_context_h context() { return wrap(&cluster_.a.context()); }
    ucs_status_t map(void* address, size_t length, unsigned flags, ucp_mem_h* memory,
                     ucs_memory_type_t type = UCS_MEMORY_TYPE_UNKNOWN) {
        ucp_mem_map_params_t params{};
        params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                            UCP_MEM_MAP_PARAM_FIELD_FLAGS | UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
        params.address = address;
        params.length = length;
        params.flags = flags;
        params.memory_type = type;
        return ucp_mem_map(context(), &params, memory);
    }

    Cluster cluster_;
};

TEST_F(MemoryMap, QueryTellsWhatWasMapped) {
    char buffer[100];
    ucp_mem_h memory = nullptr;
    ASSERT_EQ(map(buffer, sizeof(buffer), 0, &memory), UCS_OK);
    ucp_mem_attr_t attributes{};
    attributes.field_mask =
        UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_LENGTH | UCP_MEM_ATTR_FIELD_MEM_TYPE;
    attributes.mem_type = UCS_MEMORY_TYPE_UNKNOWN;
    EXPECT_EQ(ucp_mem_query(memory, &attributes), UCS_OK);
    EXPECT_EQ(attributes.address, buffer);
    EXPECT_EQ(attributes.length, sizeof(buffer));
    EXPECT_EQ(attributes.mem_type, UCS_MEMORY_TYPE_HOST);
    EXPECT_EQ(ucp_mem_unmap(context(), memory), UCS_OK);
}

TEST_F(MemoryMap, WithoutBytesHasNoAddress) {
    char buffer[100];
    ucp_mem_h memory = nullptr;
    ASSERT_EQ(map(buffer, 0, 0, &memory), UCS_OK);
    ucp_mem_attr_t attributes{};
    attributes.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_LENGTH;
    attributes.address = buffer;
    attributes.length = 1;
    EXPECT_EQ(ucp_mem_query(memory, &attributes), UCS_OK);
    EXPECT_EQ(attributes.address, nullptr);
    EXPECT_EQ(attributes.length, 0u);
    EXPECT_EQ(ucp_mem_unmap(context(), memory), UCS_OK);
}

TEST_F(MemoryMap, LockedMemoryIsThere) {
    constexpr size_t kPages = 16;
    ucp_mem_h memory = nullptr;
    EXPECT_EQ(
        map(nullptr, 100, UCP_MEM_MAP_ALLOCATE | UCP_MEM_MAP_LOCK | UCP_MEM_MAP_NONBLOCK, &memory),
        UCS_ERR_INVALID_PARAM);
    const size_t length = kPages * ucs::page_size();
    void* const pages =
        mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(pages, MAP_FAILED);
    ASSERT_EQ(map(pages, length, UCP_MEM_MAP_LOCK, &memory), UCS_OK);
    std::vector<unsigned char> present(kPages);
    ASSERT_EQ(mincore(pages, length, present.data()), 0);
    EXPECT_EQ(std::ranges::count_if(present, [](unsigned char page) { return (page & 1) != 0; }),
              static_cast<std::ptrdiff_t>(kPages));
    EXPECT_EQ(ucp_mem_unmap(context(), memory), UCS_OK);
    munmap(pages, length);
}

TEST_F(MemoryMap, AllocatesAndGivesBack) {
    ucp_mem_h memory = nullptr;
    ASSERT_EQ(map(nullptr, 100000, UCP_MEM_MAP_ALLOCATE, &memory), UCS_OK);
    void* address = unwrap(memory).address();
    ASSERT_NE(address, nullptr);
    std::memset(address, 1, 100000);
    EXPECT_EQ(ucp_mem_unmap(context(), memory), UCS_OK);
    // What was given back may be anybody's by now, a sanitizer's for one: a place of our own.
    void* place = mmap(nullptr, 100000, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(place, MAP_FAILED);
    ASSERT_EQ(map(place, 100000, UCP_MEM_MAP_ALLOCATE | UCP_MEM_MAP_FIXED, &memory), UCS_OK);
    EXPECT_EQ(unwrap(memory).address(), place);
    EXPECT_EQ(*static_cast<char*>(place), 0);
    EXPECT_EQ(ucp_mem_unmap(context(), memory), UCS_OK);
}

TEST_F(MemoryMap, EmptyMemoryHasAHandleAndAKey) {
    ucp_mem_h memory = nullptr;
    ASSERT_EQ(map(nullptr, 0, 0, &memory), UCS_OK);
    void* packed = nullptr;
    size_t size = 0;
    EXPECT_EQ(ucp_memh_pack(memory, nullptr, &packed, &size), UCS_OK);
    ucp_rkey_h key = nullptr;
    EXPECT_EQ(ucp_ep_rkey_unpack(cluster_.back, packed, &key), UCS_OK);
    ucp_rkey_destroy(key);
    ucp_memh_buffer_release(packed, nullptr);
    EXPECT_EQ(ucp_mem_unmap(context(), memory), UCS_OK);
}

TEST_F(MemoryMap, RefusesWhatCannotBe) {
    char buffer[100];
    ucp_mem_h memory = nullptr;
    EXPECT_EQ(map(nullptr, 100, 0, &memory), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(map(buffer, 100, UCP_MEM_MAP_FIXED, &memory), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(map(buffer + 1, 100, UCP_MEM_MAP_FIXED | UCP_MEM_MAP_ALLOCATE, &memory),
              UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(map(nullptr, SIZE_MAX, UCP_MEM_MAP_ALLOCATE, &memory), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(map(buffer, 100, 1u << 20, &memory), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(map(buffer, 100, 0, &memory, UCS_MEMORY_TYPE_CUDA), UCS_ERR_UNSUPPORTED);
    const ucp_mem_map_params_t no_length{};
    EXPECT_EQ(ucp_mem_map(context(), &no_length, &memory), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(ucp_mem_unmap(context(), nullptr), UCS_ERR_INVALID_PARAM);
}

TEST_F(MemoryMap, AdviceStaysInside) {
    ucp_mem_h memory = nullptr;
    ASSERT_EQ(map(nullptr, 10000, UCP_MEM_MAP_ALLOCATE | UCP_MEM_MAP_NONBLOCK, &memory), UCS_OK);
    auto* start = static_cast<char*>(unwrap(memory).address());
    ucp_mem_advise_params_t params{7, start + 10, 9990, UCP_MADV_WILLNEED};
    EXPECT_EQ(ucp_mem_advise(context(), memory, &params), UCS_OK);
    params.length = 9991;
    EXPECT_EQ(ucp_mem_advise(context(), memory, &params), UCS_ERR_INVALID_PARAM);
    params = {7, start - 1, 5, UCP_MADV_NORMAL};
    EXPECT_EQ(ucp_mem_advise(context(), memory, &params), UCS_ERR_INVALID_PARAM);
    params = {3, start, 5, UCP_MADV_NORMAL};
    EXPECT_EQ(ucp_mem_advise(context(), memory, &params), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(ucp_mem_unmap(context(), memory), UCS_OK);
}

TEST_F(MemoryMap, RegionNamesDoNotOutliveTheMemory) {
    char buffer[100];
    DomainSet& owner = cluster_.a.context().domains();
    Memory* memory = nullptr;
    ASSERT_EQ(Memory::create(owner, buffer, sizeof(buffer), &memory), UCS_OK);
    const uint64_t name = memory->region(), identity = owner.regions().identity();
    const auto address = reinterpret_cast<uintptr_t>(buffer);
    const unsigned prot = UCP_MEM_MAP_PROT_REMOTE_WRITE;
    EXPECT_EQ(owner.regions().access(identity, name, address + 10, 90, prot), buffer + 10);
    EXPECT_EQ(owner.regions().access(identity, name, address + 10, 91, prot), nullptr);
    EXPECT_EQ(owner.regions().access(identity, name, address - 1, 1, prot), nullptr);
    EXPECT_EQ(owner.regions().access(identity, name, address, UINT64_MAX, prot), nullptr);
    EXPECT_EQ(owner.regions().access(identity + 1, name, address, 1, prot), nullptr);
    EXPECT_EQ(owner.regions().access(identity, 0, address, 1, prot), nullptr);
    Memory::destroy(memory);
    ASSERT_EQ(Memory::create(owner, buffer, sizeof(buffer), &memory), UCS_OK);
    EXPECT_EQ(owner.regions().access(identity, name, address, 1, prot), nullptr);
    Memory::destroy(memory);
}

TEST_F(MemoryMap, PrintInfoNamesTheDomains) {
    char* text = nullptr;
    size_t length = 0;
    FILE* stream = open_memstream(&text, &length);
    ucp_mem_print_info("64k", context(), stream);
    ucp_mem_print_info("many", context(), stream);
    fclose(stream);
    const std::string printed(text, length);
    std::free(text);
    EXPECT_NE(printed.find("65536 bytes"), std::string::npos);
    EXPECT_NE(printed.find("mock0"), std::string::npos);
    EXPECT_NE(printed.find("\"many\" is not a size"), std::string::npos);
}

}  // namespace
}  // namespace ucp::test
