// SPDX-License-Identifier: BSD-3-Clause
#include <array>

#include "ucp/mem/memory.h"
#include "ucp/mem/packed_key.h"
#include "ucp/proto/rma/rma.h"
#include "uct/self/self_interface.h"
#include "unit/ucp/proto/cluster.h"
#include "unit/ucp/remote_key.h"
#include "unit/ucs/log/log_capture.h"

namespace ucp::test {
namespace {

// Mapped memory of b, and a's key to it.
class Target {
  public:
    Target(Cluster& cluster, void* address, size_t length,
           unsigned prot = UCP_MEM_MAP_PROT_REMOTE_READ | UCP_MEM_MAP_PROT_REMOTE_WRITE)
        : context_(wrap(&cluster.b().context())) {
        memory = map_memory(context_, address, length, prot);
        key = key_for(cluster.ep, context_, memory);
    }
    ~Target() {
        if (key != nullptr) ucp_rkey_destroy(key);
        EXPECT_EQ(ucp_mem_unmap(context_, memory), UCS_OK);
    }
    Target(const Target&) = delete;
    Target& operator=(const Target&) = delete;

    // Have a key that names no memory instead.
    void make_anonymous(ucp_ep_h endpoint) {
        ucp_rkey_destroy(key);
        const std::byte zeros[kAnonymousKey]{};
        EXPECT_EQ(ucp_ep_rkey_unpack(endpoint, zeros, &key), UCS_OK);
    }

    ucp_mem_h memory = nullptr;
    ucp_rkey_h key = nullptr;

  private:
    ucp_context_h context_;
};

uint64_t remote_address(const void* pointer) {
    return reinterpret_cast<uintptr_t>(pointer);
}

struct Ability {
    const char* name;
    uint32_t capabilities;
    bool is_emulated;
};

constexpr uint32_t kMessagesAlone = uct::kAmShort | uct::kAmBcopy | uct::kCheckPeer;
const Ability kAbilities[] = {
    {"all",
     kMessagesAlone | uct::kPutShort | uct::kPutBcopy | uct::kPutZcopy | uct::kGetBcopy |
         uct::kGetZcopy | uct::kAtomicDevice,
     false},
    {"copy", kMessagesAlone | uct::kPutBcopy | uct::kGetBcopy, false},
    {"zero_copy", kMessagesAlone | uct::kPutZcopy | uct::kGetZcopy, false},
    {"emulated", kMessagesAlone, true},
};

class OneSided : public testing::TestWithParam<Ability> {
  protected:
    static Settings settings(uint64_t seed) {
        Settings settings;
        settings.fabric.capabilities = GetParam().capabilities;
        settings.fabric.no_resource_probability = 0.2;
        settings.fabric.stall_probability = 0.05;
        settings.fabric.seed = seed;
        return settings;
    }
};

constexpr size_t kLengths[] = {0, 1, 8, 64, 65, 1024, 1025, 16384, 40000, 262145};

TEST_P(OneSided, PutArrivesByTheFlush) {
    for (const size_t length : kLengths) {
        SCOPED_TRACE(length);
        Cluster cluster(settings(length + 1));
        const Bytes source = pattern(length, length);
        Bytes memory(length + 16);
        Target target(cluster, memory.data(), memory.size());
        const ucp_request_param_t param{};
        EXPECT_EQ(cluster.wait(ucp_put_nbx(cluster.ep, source.data(), length,
                                           remote_address(memory.data()) + 8, target.key, &param)),
                  UCS_OK);
        EXPECT_EQ(cluster.flush(), UCS_OK);
        EXPECT_TRUE(std::equal(source.begin(), source.end(), memory.begin() + 8));
        EXPECT_EQ(memory[7], 0);
        EXPECT_EQ(memory[length + 8], 0);
    }
}

TEST_P(OneSided, ImplicitOperationsEndWithTheFlush) {
    Cluster cluster(settings(5));
    std::vector<Bytes> sources, results;
    Bytes memory(400000);
    Target target(cluster, memory.data(), memory.size());
    uint64_t offset = 0;
    for (const size_t length : kLengths) {
        sources.push_back(pattern(length, length));
        const ucs_status_t status = ucp_put_nbi(cluster.ep, sources.back().data(), length,
                                                remote_address(memory.data()) + offset, target.key);
        EXPECT_TRUE(status == UCS_OK || status == UCS_INPROGRESS);
        offset += length;
    }
    EXPECT_EQ(cluster.flush(), UCS_OK);
    offset = 0;
    for (const size_t length : kLengths) {
        results.emplace_back(length);
        const ucs_status_t status = ucp_get_nbi(cluster.ep, results.back().data(), length,
                                                remote_address(memory.data()) + offset, target.key);
        EXPECT_TRUE(status == UCS_OK || status == UCS_INPROGRESS);
        offset += length;
    }
    EXPECT_EQ(cluster.flush(), UCS_OK);
    EXPECT_EQ(results, sources);
}

TEST_P(OneSided, GetWithAndWithoutHandle) {
    for (const size_t length : kLengths) {
        SCOPED_TRACE(length);
        Cluster cluster(settings(length + 2));
        Bytes memory = pattern(length + 16, length);
        Target target(cluster, memory.data(), memory.size());
        for (const bool with_handle : {false, true}) {
            Bytes result(length);
            ucp_mem_map_params_t map{};
            map.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
            map.address = result.data();
            map.length = length;
            ucp_mem_h local = nullptr;
            ucp_request_param_t param{};
            if (with_handle && length > 0) {
                ASSERT_EQ(ucp_mem_map(wrap(&cluster.a.context()), &map, &local), UCS_OK);
                param.op_attr_mask = UCP_OP_ATTR_FIELD_MEMH;
                param.memh = local;
            }
            EXPECT_EQ(
                cluster.wait(ucp_get_nbx(cluster.ep, result.data(), length,
                                         remote_address(memory.data()) + 3, target.key, &param)),
                UCS_OK);
            EXPECT_TRUE(std::equal(result.begin(), result.end(), memory.begin() + 3));
            if (local != nullptr) ucp_mem_unmap(wrap(&cluster.a.context()), local);
        }
    }
}

TEST_P(OneSided, OlderCallsAndFourMebibytes) {
    Cluster cluster(settings(9));
    const Bytes source = pattern(size_t{4} << 20, 1);
    Bytes memory(source.size()), result(source.size());
    Target target(cluster, memory.data(), memory.size());
    int calls = 0;
    static int* counter;
    counter = &calls;
    const ucp_send_callback_t count = [](void*, ucs_status_t status) {
        EXPECT_EQ(status, UCS_OK);
        ++*counter;
    };
    EXPECT_EQ(cluster.wait(ucp_put_nb(cluster.ep, source.data(), source.size(),
                                      remote_address(memory.data()), target.key, count)),
              UCS_OK);
    EXPECT_EQ(cluster.flush(), UCS_OK);
    EXPECT_EQ(cluster.wait(ucp_get_nb(cluster.ep, result.data(), result.size(),
                                      remote_address(memory.data()), target.key, count)),
              UCS_OK);
    EXPECT_TRUE(result == source);
    EXPECT_EQ(calls, 2);
    counter = nullptr;
}

TEST_P(OneSided, AnonymousKeysReachWhatWasPublished) {
    Cluster cluster(settings(10));
    const Bytes source = pattern(40000, 3);
    Bytes memory(40001), other(100), result(source.size());
    Target target(cluster, memory.data(), memory.size());
    Target second(cluster, other.data(), other.size());
    target.make_anonymous(cluster.ep);
    const ucp_request_param_t param{};
    EXPECT_EQ(cluster.wait(ucp_put_nbx(cluster.ep, source.data(), source.size(),
                                       remote_address(memory.data()) + 1, target.key, &param)),
              UCS_OK);
    EXPECT_EQ(memory[0], 0);
    EXPECT_TRUE(std::equal(source.begin(), source.end(), memory.begin() + 1));
    EXPECT_EQ(cluster.wait(ucp_get_nbx(cluster.ep, result.data(), result.size(),
                                       remote_address(memory.data()) + 1, target.key, &param)),
              UCS_OK);
    EXPECT_EQ(result, source);
    // Memory of another registration as well: only the address says what is meant.
    alignas(8) uint64_t word = 40;
    Target counter(cluster, &word, sizeof(word));
    uint64_t before = 0;
    const ucs_status_ptr_t add =
        ucp_atomic_fetch_nb(cluster.ep, UCP_ATOMIC_FETCH_OP_FADD, 2, &before, sizeof(before),
                            remote_address(&word), target.key, [](void*, ucs_status_t) {});
    EXPECT_EQ(cluster.wait(add), UCS_OK);
    EXPECT_EQ(before, 40);
    EXPECT_EQ(word, 42);
}

INSTANTIATE_TEST_SUITE_P(Abilities, OneSided, testing::ValuesIn(kAbilities),
                         [](const auto& info) { return info.param.name; });

TEST(OneSidedErrors, ArgumentsAreChecked) {
    Cluster cluster;
    Bytes memory(64), local(64);
    Target target(cluster, memory.data(), memory.size());
    ucp_request_param_t param{};
    const auto put_result = [&](const void* buffer, ucp_rkey_h key) {
        return UCS_PTR_RAW_STATUS(
            ucp_put_nbx(cluster.ep, buffer, 8, remote_address(memory.data()), key, &param));
    };
    EXPECT_EQ(put_result(nullptr, target.key), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(put_result(local.data(), nullptr), UCS_ERR_INVALID_PARAM);
    param.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
    param.datatype = ucp_dt_make_iov();
    EXPECT_EQ(put_result(local.data(), target.key), UCS_ERR_INVALID_PARAM);
}

TEST(OneSidedErrors, EmulationStaysInsideWhatIsMapped) {
    ucs::LogCapture log;
    for (const bool is_put : {true, false}) {
        for (const int wrong : {0, 1, 2}) {
            Settings settings;
            settings.fabric.capabilities = kMessagesAlone;
            Cluster cluster(settings);
            Bytes memory(64), local(64, 1);
            const unsigned prot =
                wrong == 2 ? (is_put ? UCP_MEM_MAP_PROT_REMOTE_READ : UCP_MEM_MAP_PROT_REMOTE_WRITE)
                           : UCP_MEM_MAP_PROT_REMOTE_READ | UCP_MEM_MAP_PROT_REMOTE_WRITE;
            Target target(cluster, memory.data(), memory.size(), prot);
            const uint64_t address = remote_address(memory.data()) + (wrong == 0   ? 1
                                                                      : wrong == 1 ? uint64_t(-1)
                                                                                   : 0);
            const ucp_request_param_t param{};
            const ucs_status_ptr_t operation =
                is_put ? ucp_put_nbx(cluster.ep, local.data(), 64, address, target.key, &param)
                       : ucp_get_nbx(cluster.ep, local.data(), 64, address, target.key, &param);
            EXPECT_EQ(cluster.wait(operation), UCS_ERR_INVALID_ADDR);
            EXPECT_EQ(memory, Bytes(64));
            EXPECT_EQ(local, Bytes(64, 1));
            cluster.step();
            EXPECT_TRUE(cluster.endpoint().is_failed());
        }
    }
}

TEST(OneSidedErrors, AnonymousKeysReachNothingElse) {
    enum class Memory { kNeverMapped, kNoRight, kBesideMapped, kNeverPacked, kUnmapped };
    ucs::LogCapture log;
    for (const Memory wrong : {Memory::kNeverMapped, Memory::kNoRight, Memory::kBesideMapped,
                               Memory::kNeverPacked, Memory::kUnmapped}) {
        SCOPED_TRACE(static_cast<int>(wrong));
        Cluster cluster;
        Bytes memory(64), local(8, 1);
        std::optional<Target> target;
        target.emplace(cluster, memory.data(), 32,
                       wrong == Memory::kNoRight ? UCP_MEM_MAP_PROT_REMOTE_READ
                                                 : UCP_MEM_MAP_PROT_REMOTE_WRITE);
        target->make_anonymous(cluster.ep);
        const ucp_context_h context = wrap(&cluster.b().context());
        ucp_mem_h unpacked = nullptr;
        ucp_rkey_h key = std::exchange(target->key, nullptr);
        uint64_t address = remote_address(memory.data());
        if (wrong == Memory::kBesideMapped) address += 25;
        if (wrong == Memory::kNeverMapped) address += 40;
        if (wrong == Memory::kUnmapped) target.reset();
        if (wrong == Memory::kNeverPacked) {
            ucp_mem_map_params_t params{};
            params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
            address += 40;
            params.address = reinterpret_cast<void*>(address);
            params.length = 8;
            ASSERT_EQ(ucp_mem_map(context, &params, &unpacked), UCS_OK);
        }
        const ucp_request_param_t param{};
        EXPECT_EQ(cluster.wait(ucp_put_nbx(cluster.ep, local.data(), 8, address, key, &param)),
                  UCS_ERR_INVALID_ADDR);
        EXPECT_EQ(memory, Bytes(64));
        ucp_rkey_destroy(key);
        if (unpacked != nullptr) ucp_mem_unmap(context, unpacked);
    }
}

TEST(OneSidedErrors, DeadPeerEndsEmulatedOperations) {
    ucs::LogCapture log;
    Settings settings;
    settings.fabric.capabilities = kMessagesAlone;
    Cluster cluster(settings);
    Bytes memory(100000), local(100000);
    Target target(cluster, memory.data(), memory.size());
    const ucp_request_param_t param{};
    const ucs_status_ptr_t operation = ucp_get_nbx(
        cluster.ep, local.data(), local.size(), remote_address(memory.data()), target.key, &param);
    ASSERT_TRUE(UCS_PTR_IS_PTR(operation));
    for (int i = 0; i < 60; ++i) cluster.step();
    cluster.fabric().kill(cluster.b().worker().uuid());
    cluster.endpoint().scalable()->check(nullptr);
    EXPECT_LT(cluster.wait(operation), 0);
}

// A worker of a process alone, with an endpoint to itself and a key to its own memory.
class Loopback : public testing::Test {
  protected:
    void map(void* address, size_t length) {
        ucp_mem_map_params_t params{};
        params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
        params.address = address;
        params.length = length;
        ASSERT_EQ(ucp_mem_map(wrap(&node_.context()), &params, &memory_), UCS_OK);
        void* packed = nullptr;
        size_t size = 0;
        ASSERT_EQ(ucp_rkey_pack(wrap(&node_.context()), memory_, &packed, &size), UCS_OK);
        ASSERT_EQ(ucp_ep_rkey_unpack(self_, packed, &key_), UCS_OK);
        ucp_rkey_buffer_release(packed);
    }
    void TearDown() override {
        ucp_rkey_destroy(key_);
        EXPECT_EQ(ucp_mem_unmap(wrap(&node_.context()), memory_), UCS_OK);
    }

    const ucs::VirtualClock clock_;
    Node node_{Settings{}, uct::self::component(), clock_, 5};
    const ucp_ep_h self_ = node_.connect(node_);
    ucp_mem_h memory_ = nullptr;
    ucp_rkey_h key_ = nullptr;
};

// A program that waits for a word by getting it, and is the one that its peers wait for.
TEST_F(Loopback, WhatIsDoneAtOnceComesToProgressNowAndThen) {
    alignas(8) uint64_t word = 42;
    ASSERT_NO_FATAL_FAILURE(map(&word, sizeof(word)));
    int at_once = 0, later = 0;
    for (int i = 0; i < 640; ++i) {
        uint64_t found = 0;
        const ucp_request_param_t none{};
        const ucs_status_ptr_t operation =
            i % 2 == 0
                ? ucp_get_nbx(self_, &found, sizeof(found), remote_address(&word), key_, &none)
                : ucp_atomic_fetch_nb(self_, UCP_ATOMIC_FETCH_OP_FADD, 0, &found, sizeof(found),
                                      remote_address(&word), key_, [](void*, ucs_status_t) {});
        if (!UCS_PTR_IS_PTR(operation)) {
            ++at_once;
        } else {
            ++later;
            EXPECT_EQ(ucp_request_check_status(operation), UCS_INPROGRESS);
            ucp_worker_progress(node_.handle());
            EXPECT_EQ(ucp_request_check_status(operation), UCS_OK);
            ucp_request_free(operation);
        }
        EXPECT_EQ(found, 42u);
    }
    EXPECT_EQ(later, 10);
    EXPECT_EQ(at_once, 630);
}

TEST_F(Loopback, WithWhatTellsNothingNobodyWaits) {
    alignas(8) uint64_t word = 0;
    ASSERT_NO_FATAL_FAILURE(map(&word, sizeof(word)));
    const uint64_t one = 1;
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
    param.datatype = ucp_dt_make_contig(sizeof(one));
    for (uint64_t i = 1; i <= 200; ++i) {
        EXPECT_EQ(ucp_atomic_op_nbx(self_, UCP_ATOMIC_OP_ADD, &one, 1, remote_address(&word), key_,
                                    &param),
                  nullptr);
        EXPECT_EQ(word, i);
    }
}

TEST_F(Loopback, AFlushWaitsForWhatIsUnderWayAndForNothingElse) {
    Bytes memory(64 << 20), local(64 << 20);
    ASSERT_NO_FATAL_FAILURE(map(memory.data(), memory.size()));
    const ucp_request_param_t none{};
    const Endpoint& endpoint = unwrap(self_);
    EXPECT_TRUE(endpoint.is_flushed());
    EXPECT_EQ(ucp_worker_flush_nbx(node_.handle(), &none), nullptr);
    EXPECT_EQ(ucp_ep_flush_nbx(self_, &none), nullptr);

    const ucs_status_ptr_t get =
        ucp_get_nbx(self_, local.data(), local.size(), remote_address(memory.data()), key_, &none);
    ASSERT_TRUE(UCS_PTR_IS_PTR(get)) << "longer than a turn";
    EXPECT_FALSE(endpoint.is_flushed());
    const ucs_status_ptr_t of_endpoint = ucp_ep_flush_nbx(self_, &none);
    const ucs_status_ptr_t of_worker = ucp_worker_flush_nbx(node_.handle(), &none);
    ASSERT_TRUE(UCS_PTR_IS_PTR(of_endpoint));
    ASSERT_TRUE(UCS_PTR_IS_PTR(of_worker));
    while (ucp_request_check_status(of_worker) == UCS_INPROGRESS ||
           ucp_request_check_status(of_endpoint) == UCS_INPROGRESS) {
        ucp_worker_progress(node_.handle());
    }
    EXPECT_EQ(ucp_request_check_status(get), UCS_OK);
    EXPECT_TRUE(endpoint.is_flushed());
    for (const ucs_status_ptr_t request : {get, of_endpoint, of_worker}) ucp_request_free(request);

    ucp_request_param_t later{};
    later.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    const ucs_status_ptr_t asked_for = ucp_ep_flush_nbx(self_, &later);
    ASSERT_TRUE(UCS_PTR_IS_PTR(asked_for)) << "a request also of what is done";
    while (ucp_request_check_status(asked_for) == UCS_INPROGRESS)
        ucp_worker_progress(node_.handle());
    ucp_request_free(asked_for);
}

TEST_F(Loopback, AFlushWaitsForWhatThePeerHasToAnswer) {
    uint64_t word = 0;
    ASSERT_NO_FATAL_FAILURE(map(&word, sizeof(word)));
    Endpoint& endpoint = unwrap(self_);
    const ucp_request_param_t none{};
    EXPECT_EQ(ucp_worker_flush_nbx(node_.handle(), &none), nullptr);
    const uint32_t operation = endpoint.remote_operation_started();
    EXPECT_FALSE(endpoint.is_flushed());
    const ucs_status_ptr_t flush = ucp_worker_flush_nbx(node_.handle(), &none);
    ASSERT_TRUE(UCS_PTR_IS_PTR(flush));
    for (int i = 0; i < 10; ++i) ucp_worker_progress(node_.handle());
    EXPECT_EQ(ucp_request_check_status(flush), UCS_INPROGRESS);
    endpoint.remote_operation_finished(operation);
    ucp_worker_progress(node_.handle());
    EXPECT_EQ(ucp_request_check_status(flush), UCS_OK);
    ucp_request_free(flush);
    EXPECT_TRUE(endpoint.is_flushed());
}

}  // namespace
}  // namespace ucp::test
