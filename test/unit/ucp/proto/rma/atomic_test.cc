// SPDX-License-Identifier: BSD-3-Clause
#include <tuple>

#include "ucp/proto/rma/rma.h"
#include "unit/ucp/proto/cluster.h"
#include "unit/ucp/remote_key.h"

namespace ucp::test {
namespace {

constexpr uint32_t kMessages = uct::kAmShort | uct::kAmBcopy | uct::kCheckPeer;
constexpr uint8_t kEveryOp = 0x3f;
constexpr uint8_t kSwapOnly = static_cast<uint8_t>(uct::AtomicOp::kCompareSwap);
constexpr uint8_t kAddAndSwap = kSwapOnly | static_cast<uint8_t>(uct::AtomicOp::kAdd);

struct Device {
    const char* name;
    uint32_t capabilities;
    uint8_t ops32, ops64;
    AtomicMode mode = AtomicMode::kGuess;
};

const Device kDevices[] = {
    {"every_op", kMessages | uct::kAtomicDevice, kEveryOp, kEveryOp},
    {"like_mlx5", kMessages | uct::kAtomicDevice, 0, kAddAndSwap},
    {"swap_only", kMessages | uct::kAtomicDevice, 0, kSwapOnly},
    {"none", kMessages, 0, 0},
    {"every_op_of_the_cpu", kMessages | uct::kAtomicDevice, kEveryOp, kEveryOp, AtomicMode::kCpu},
};

class Atomics : public testing::TestWithParam<Device> {
  protected:
    static Settings settings() {
        Settings settings;
        settings.fabric.capabilities =
            GetParam().capabilities | uct::kPutShort | uct::kPutBcopy | uct::kGetBcopy;
        settings.fabric.atomic32_ops = GetParam().ops32;
        settings.fabric.atomic64_ops = GetParam().ops64;
        settings.fabric.no_resource_probability = 0.2;
        settings.atomics = GetParam().mode;
        return settings;
    }

    Atomics() : cluster_(settings()) {
        context_ = wrap(&cluster_.b().context());
        memory_ = map_memory(context_, words_, sizeof(words_));
        key_ = key_for(cluster_.ep, context_, memory_);
    }
    ~Atomics() override {
        ucp_rkey_destroy(key_);
        ucp_mem_unmap(context_, memory_);
    }

    uint64_t address(size_t byte) const { return reinterpret_cast<uintptr_t>(words_) + byte; }
    uint64_t load(size_t byte, size_t size) const {
        uint64_t value = 0;
        std::memcpy(&value, reinterpret_cast<const uint8_t*>(words_) + byte, size);
        return value;
    }

    alignas(8) uint64_t words_[8] = {};
    Cluster cluster_;
    ucp_context_h context_ = nullptr;
    ucp_mem_h memory_ = nullptr;
    ucp_rkey_h key_ = nullptr;
};

TEST_P(Atomics, EveryOperationOnBothSizes) {
    std::mt19937_64 random(7);
    for (int round = 0; round < 200; ++round) {
        const size_t size = random() % 2 ? 4 : 8;
        const size_t byte = random() % (sizeof(words_) / size) * size;
        const uint64_t mask = size == 4 ? 0xffffffffu : ~uint64_t{0};
        const auto op = static_cast<ucp_atomic_op_t>(random() % UCP_ATOMIC_OP_LAST);
        const uint64_t before = load(byte, size);
        uint64_t neighbours[8];
        std::memcpy(neighbours, words_, sizeof(words_));
        uint64_t operand = random() & mask;
        if (op == UCP_ATOMIC_OP_CSWAP && random() % 2) operand = before;
        uint64_t reply = random() & mask;
        const uint64_t new_value = reply;
        const bool fetch = op == UCP_ATOMIC_OP_SWAP || op == UCP_ATOMIC_OP_CSWAP || random() % 2;
        ucp_request_param_t param{};
        param.op_attr_mask =
            UCP_OP_ATTR_FIELD_DATATYPE | (fetch ? UCP_OP_ATTR_FIELD_REPLY_BUFFER : 0);
        param.datatype = ucp_dt_make_contig(size);
        param.reply_buffer = &reply;
        ASSERT_EQ(cluster_.wait(
                      ucp_atomic_op_nbx(cluster_.ep, op, &operand, 1, address(byte), key_, &param)),
                  UCS_OK);
        ASSERT_EQ(cluster_.flush(), UCS_OK);
        uint64_t expected = before;
        switch (op) {
            case UCP_ATOMIC_OP_ADD:
                expected = (before + operand) & mask;
                break;
            case UCP_ATOMIC_OP_SWAP:
                expected = operand;
                break;
            case UCP_ATOMIC_OP_CSWAP:
                expected = before == operand ? new_value : before;
                break;
            case UCP_ATOMIC_OP_AND:
                expected = before & operand;
                break;
            case UCP_ATOMIC_OP_OR:
                expected = before | operand;
                break;
            case UCP_ATOMIC_OP_XOR:
                expected = before ^ operand;
                break;
            case UCP_ATOMIC_OP_LAST:
                break;
        }
        ASSERT_EQ(load(byte, size), expected) << "operation " << op << " of " << size << " bytes";
        ASSERT_TRUE(!fetch || (reply & mask) == before);
        std::memcpy(reinterpret_cast<uint8_t*>(neighbours) + byte, &expected, size);
        ASSERT_EQ(std::memcmp(neighbours, words_, sizeof(words_)), 0) << "a neighbour changed";
    }
}

// A word that the CPU updates as well must not be updated by the adapter.
TEST_P(Atomics, RunWhereTheModeSays) {
    ASSERT_EQ(ucp_atomic_post(cluster_.ep, UCP_ATOMIC_POST_OP_ADD, 1, 8, address(0), key_), UCS_OK);
    EXPECT_EQ(cluster_.flush(), UCS_OK);
    EXPECT_EQ(load(0, 8), 1u);
    const bool by_device = GetParam().mode != AtomicMode::kCpu && GetParam().ops64 != 0;
    EXPECT_EQ(cluster_.fabric().counters(uct::mock::Kind::kScalable).atomic != 0, by_device);
}

TEST_P(Atomics, ConcurrentPostsAllCount) {
    for (int i = 0; i < 36; ++i) {
        ASSERT_EQ(ucp_atomic_post(cluster_.ep, UCP_ATOMIC_POST_OP_ADD, 1, 4, address(0), key_),
                  UCS_OK);
        ASSERT_EQ(ucp_atomic_post(cluster_.ep, UCP_ATOMIC_POST_OP_ADD, 1, 4, address(4), key_),
                  UCS_OK);
        ASSERT_EQ(ucp_atomic_post(cluster_.ep, UCP_ATOMIC_POST_OP_XOR, 1u << (i % 32), 4,
                                  address(8), key_),
                  UCS_OK);
    }
    EXPECT_EQ(cluster_.flush(), UCS_OK);
    EXPECT_EQ(load(0, 4), 36u);
    EXPECT_EQ(load(4, 4), 36u);
    EXPECT_EQ(load(8, 4), 0xfffffff0u);  // bits 0 to 3 were flipped twice, others once
}

TEST_P(Atomics, FenceWaitsForLoops) {
    for (int round = 0; round < 20; ++round) {
        const uint64_t flag = static_cast<uint64_t>(round) + 1;
        ASSERT_EQ(ucp_atomic_post(cluster_.ep, UCP_ATOMIC_POST_OP_ADD, 1, 4, address(0), key_),
                  UCS_OK);
        cluster_.a.worker().fence();
        ASSERT_GE(ucp_put_nbi(cluster_.ep, &flag, sizeof(flag), address(16), key_), 0);
        ASSERT_TRUE(cluster_.until([&] { return load(16, 8) == flag; }));
        EXPECT_EQ(load(0, 4), flag);
    }
    EXPECT_EQ(cluster_.flush(), UCS_OK);
}

TEST_P(Atomics, ArgumentsAreChecked) {
    uint64_t value = 1, reply = 0;
    ucp_request_param_t param{};
    const auto result = [&](ucp_atomic_op_t op, uint64_t at) {
        return UCS_PTR_RAW_STATUS(ucp_atomic_op_nbx(cluster_.ep, op, &value, 1, at, key_, &param));
    };
    EXPECT_EQ(result(UCP_ATOMIC_OP_ADD, address(0)), UCS_ERR_INVALID_PARAM);  // no datatype
    param.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
    param.datatype = ucp_dt_make_contig(2);
    EXPECT_EQ(result(UCP_ATOMIC_OP_ADD, address(0)), UCS_ERR_INVALID_PARAM);
    param.datatype = ucp_dt_make_contig(8);
    EXPECT_EQ(result(UCP_ATOMIC_OP_ADD, address(4)), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(result(UCP_ATOMIC_OP_CSWAP, address(0)), UCS_ERR_INVALID_PARAM);  // no reply
    EXPECT_EQ(result(UCP_ATOMIC_OP_LAST, address(0)), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(UCS_PTR_RAW_STATUS(ucp_atomic_fetch_nb(cluster_.ep, UCP_ATOMIC_FETCH_OP_FADD, 1,
                                                     &reply, 3, address(0), key_, nullptr)),
              UCS_ERR_INVALID_PARAM);
}

INSTANTIATE_TEST_SUITE_P(Devices, Atomics, testing::ValuesIn(kDevices),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ucp::test
