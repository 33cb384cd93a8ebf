// SPDX-License-Identifier: BSD-3-Clause

// Transfers whose length does not fit in 32 bits, if there is memory for them (BULK_LARGE_MIB).

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "system/soft_world.h"
#include "unit/ucp/region.h"

namespace ucp::test {
namespace {

// Long memory that is the same few pages over and over: it takes no more than one period.
class Repeated {
  public:
    // No divisor of 4 GiB: who loses the upper half of an offset reads other bytes.
    static constexpr size_t kPeriod = (1 << 20) + 4096;

    explicit Repeated(size_t length) : length_((length + kPeriod - 1) / kPeriod * kPeriod) {
        const int file = memfd_create("repeated", MFD_CLOEXEC);
        EXPECT_EQ(ftruncate(file, kPeriod), 0);
        start_ = static_cast<uint8_t*>(
            mmap(nullptr, length_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        for (size_t offset = 0; offset < length_; offset += kPeriod) {
            EXPECT_NE(mmap(start_ + offset, kPeriod, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                           file, 0),
                      MAP_FAILED);
        }
        close(file);
    }
    ~Repeated() { munmap(start_, length_); }
    Repeated(const Repeated&) = delete;

    void fill(uint64_t seed) { std::ranges::copy(pattern(kPeriod, seed), start_); }
    uint8_t* data() const { return start_; }

  private:
    size_t length_;
    uint8_t* start_;
};

// Memory that is there as far as it was written, and zero.
class Blank {
  public:
    explicit Blank(size_t length)
        : length_(length),
          start_(static_cast<uint8_t*>(mmap(nullptr, length, PROT_READ | PROT_WRITE,
                                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {}
    ~Blank() { munmap(start_, length_); }
    Blank(const Blank&) = delete;
    uint8_t* data() const { return start_; }

  private:
    size_t length_;
    uint8_t* start_;
};

// Memory of the second worker with the first one's key to it.
class Exposed {
  public:
    Exposed(Cluster& cluster, uint8_t* start, size_t length) : context_(cluster.context(1)) {
        ucp_mem_map_params_t params{};
        params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
        params.address = start;
        params.length = length;
        EXPECT_EQ(ucp_mem_map(context_, &params, &memory_), UCS_OK);
        void* packed = nullptr;
        size_t size = 0;
        EXPECT_EQ(ucp_rkey_pack(context_, memory_, &packed, &size), UCS_OK);
        EXPECT_EQ(ucp_ep_rkey_unpack(cluster.endpoint(0, 1), packed, &key), UCS_OK);
        ucp_rkey_buffer_release(packed);
    }
    ~Exposed() {
        ucp_rkey_destroy(key);
        EXPECT_EQ(ucp_mem_unmap(context_, memory_), UCS_OK);
    }
    Exposed(const Exposed&) = delete;

    ucp_rkey_h key = nullptr;

  private:
    ucp_context_h context_;
    ucp_mem_h memory_ = nullptr;
};

enum class Way { kPut, kGet, kMessage };

class BulkLarge : public testing::TestWithParam<Way> {};

TEST_P(BulkLarge, EveryByteComesToItsPlace) {
    const char* mebibytes = std::getenv("BULK_LARGE_MIB");
    const size_t length =
        ((mebibytes != nullptr ? std::strtoull(mebibytes, nullptr, 10) : 16) << 20) + 12345;
    const Blank target(length);
    Repeated source(length);
    source.fill(7);
    SoftWorld::Options options;
    options.traffic.workers = 2;
    SoftWorld world(options);
    Cluster& cluster = world.cluster;
    const ucp_ep_h endpoint = cluster.endpoint(0, 1);
    ASSERT_EQ(ucpx_ep_lanes_request(endpoint, UCPX_LANE_POLICY_DEDICATED), UCS_OK);
    ASSERT_TRUE(
        cluster.until([&] { return cluster.lane_state(endpoint) == UCPX_LANE_STATE_ESTABLISHED; }));

    const auto number = [](const uint8_t* start) { return reinterpret_cast<uintptr_t>(start); };
    std::vector<ucs_status_ptr_t> operations;
    std::unique_ptr<Exposed> exposed;
    if (GetParam() == Way::kPut) {
        exposed = std::make_unique<Exposed>(cluster, target.data(), length);
        operations = {ucp_put_nbx(endpoint, source.data(), length, number(target.data()),
                                  exposed->key, &kNothing)};
    } else if (GetParam() == Way::kGet) {
        exposed = std::make_unique<Exposed>(cluster, source.data(), length);
        operations = {ucp_get_nbx(endpoint, target.data(), length, number(source.data()),
                                  exposed->key, &kNothing)};
    } else {
        operations = {
            ucp_tag_recv_nbx(cluster.worker(1), target.data(), length, 1, 1, &kNothing),
            ucp_tag_send_nbx(endpoint, source.data(), length, 1, &kNothing),
        };
    }
    for (const ucs_status_ptr_t operation : operations) {
        ASSERT_TRUE(UCS_PTR_IS_PTR(operation));
        ASSERT_TRUE(cluster.until(
            [&] { return ucp_request_check_status(operation) != UCS_INPROGRESS; }, 1u << 30));
        EXPECT_EQ(cluster.finish(operation), UCS_OK);
    }
    EXPECT_GE(world.wire.fabric().total().bytes, length);
    for (size_t offset = 0; offset < length; offset += Repeated::kPeriod) {
        const size_t part = std::min(length - offset, Repeated::kPeriod);
        ASSERT_EQ(std::memcmp(target.data() + offset, source.data(), part), 0) << offset;
    }
}

std::string name_of(const testing::TestParamInfo<Way>& info) {
    switch (info.param) {
        case Way::kPut:
            return "put";
        case Way::kGet:
            return "get";
        default:
            return "message";
    }
}

INSTANTIATE_TEST_SUITE_P(Ways, BulkLarge, testing::Values(Way::kPut, Way::kGet, Way::kMessage),
                         name_of);

}  // namespace
}  // namespace ucp::test
