// SPDX-License-Identifier: BSD-3-Clause

// The interface's corners: keep-alive, changed endpoints, names, memory that travels, values that
// depend on the version that a program was compiled for.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "ucp/context/context.h"
#include "uct/self/self_interface.h"
#include "unit/ucp/cluster.h"

namespace ucp::test {
namespace {

struct Failures {
    unsigned count = 0;
    ucs_status_t status = UCS_OK;

    static void note(void* arg, ucp_ep_h, ucs_status_t status) {
        auto& self = *static_cast<Failures*>(arg);
        ++self.count;
        self.status = status;
    }
    ucp_ep_params_t params(ucp_err_handling_mode_t mode) {
        ucp_ep_params_t params{};
        params.field_mask = UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
        params.err_mode = mode;
        params.err_handler = {note, this};
        return params;
    }
};

TEST(Keepalive, FindsADeadPeerOfAnIdleEndpoint) {
    Cluster::Options options;
    options.config.keepalive_interval = std::chrono::microseconds(500);
    options.config.keepalive_endpoints = 1;
    Cluster cluster(4, options);
    Failures peer[4], silent;
    for (size_t other : {1, 2, 3}) {
        cluster.connect(0, other, peer[other].params(UCP_ERR_HANDLING_MODE_PEER));
    }
    cluster.connect(0, 2, silent.params(UCP_ERR_HANDLING_MODE_NONE));
    cluster.steps(5000);
    EXPECT_EQ(peer[1].count + peer[2].count + peer[3].count, 0u);
    cluster.kill(2);
    ASSERT_TRUE(cluster.until([&] { return peer[2].count != 0; }));
    EXPECT_NE(peer[2].status, UCS_OK);
    cluster.steps(5000);
    EXPECT_EQ(peer[2].count, 1u);
    EXPECT_EQ(peer[1].count + peer[3].count + silent.count, 0u);
}

// Who has closed its endpoint by force has nothing to answer with, until it is greeted again.
TEST(Keepalive, EndsSendsWhoseReceiverHasClosedItsEndpoint) {
    for (const size_t length : {size_t{100}, size_t{1'000'000}}) {
        for (const bool is_early : {false, true}) {
            SCOPED_TRACE(testing::Message() << length << " bytes, closed before: " << is_early);
            Cluster::Options options;
            options.config.keepalive_interval = std::chrono::microseconds(500);
            options.config.keepalive_endpoints = 1;
            Cluster cluster(2, options);
            Failures peer;
            const ucp_ep_h endpoint =
                cluster.connect(0, 1, peer.params(UCP_ERR_HANDLING_MODE_PEER));
            const ucp_ep_h back = cluster.endpoint(1, 0);
            uint64_t number = 1;
            cluster.finish(ucp_tag_send_nbx(endpoint, &number, sizeof(number), 1, &kNothing));
            cluster.steps(100);
            ucp_request_param_t force{};
            force.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
            force.flags = UCP_EP_CLOSE_FLAG_FORCE;
            const auto close = [&] {
                cluster.finish(ucp_ep_close_nbx(back, &force));
                cluster.forget(1, 0);
                cluster.steps(10);
            };
            const auto sent = pattern(length, 4);
            std::vector<uint8_t> received(length);
            if (is_early) close();
            const ucs_status_ptr_t sending =
                ucp_tag_send_sync_nbx(endpoint, sent.data(), length, 2, &kNothing);
            ASSERT_TRUE(UCS_PTR_IS_PTR(sending));
            cluster.steps(100);
            if (!is_early) close();
            const ucs_status_t taken = cluster.finish(ucp_tag_recv_nbx(
                cluster.worker(1), received.data(), length, 2, UINT64_MAX, &kNothing));
            // Both ends say the same of it.
            EXPECT_EQ(cluster.finish(sending), taken);
            EXPECT_TRUE(taken == UCS_OK || taken == UCS_ERR_CONNECTION_RESET) << taken;
            if (taken == UCS_OK) {
                EXPECT_EQ(received, sent);
            }
            EXPECT_EQ(peer.count, 0u);
        }
    }
}

TEST(Keepalive, CanBeTurnedOff) {
    Cluster::Options options;
    options.config.keepalive_interval = std::chrono::microseconds(500);
    options.config.keepalive_endpoints = 0;
    Cluster cluster(2, options);
    Failures peer;
    cluster.connect(0, 1, peer.params(UCP_ERR_HANDLING_MODE_PEER));
    cluster.kill(1);
    cluster.steps(5000);
    EXPECT_EQ(peer.count, 0u);
}

TEST(Endpoint, ModifyChangesTheHandlerAndNothingElse) {
    Cluster cluster(2);
    Failures first, second;
    const ucp_ep_h endpoint = cluster.connect(0, 1, first.params(UCP_ERR_HANDLING_MODE_PEER));
    ucp_ep_params_t change = second.params(UCP_ERR_HANDLING_MODE_NONE);
    EXPECT_EQ(UCS_PTR_STATUS(ucp_ep_modify_nb(endpoint, &change)), UCS_ERR_INVALID_PARAM);
    change = second.params(UCP_ERR_HANDLING_MODE_PEER);
    change.field_mask |= UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    EXPECT_EQ(UCS_PTR_STATUS(ucp_ep_modify_nb(endpoint, &change)), UCS_ERR_INVALID_PARAM);
    change.field_mask &= ~uint64_t{UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    EXPECT_EQ(ucp_ep_modify_nb(endpoint, &change), nullptr);
    cluster.kill(1);
    uint64_t number = 1;
    cluster.finish(ucp_tag_send_sync_nbx(endpoint, &number, sizeof(number), 1, &kNothing));
    ASSERT_TRUE(cluster.until([&] { return second.count != 0; }));
    EXPECT_EQ(first.count, 0u);
}

TEST(Endpoint, FailoverPromisesWhatPeerDoes) {
    Cluster cluster(2);
    Failures peer;
    const ucp_ep_h endpoint = cluster.connect(0, 1, peer.params(UCP_ERR_HANDLING_MODE_FAILOVER));
    ucp_ep_params_t change = peer.params(UCP_ERR_HANDLING_MODE_PEER);
    EXPECT_EQ(ucp_ep_modify_nb(endpoint, &change), nullptr);
    cluster.kill(1);
    uint64_t number = 1;
    cluster.finish(ucp_tag_send_sync_nbx(endpoint, &number, sizeof(number), 1, &kNothing));
    EXPECT_TRUE(cluster.until([&] { return peer.count != 0; }));
}

TEST(Endpoint, TellsItsUserData) {
    Cluster cluster(2);
    int mine = 0;
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_USER_DATA;
    params.user_data = &mine;
    ucp_ep_attr_t attr{};
    attr.field_mask = UCP_EP_ATTR_FIELD_USER_DATA;
    ASSERT_EQ(ucp_ep_query(cluster.connect(0, 1, params), &attr), UCS_OK);
    EXPECT_EQ(attr.user_data, &mine);
    ASSERT_EQ(ucp_ep_query(cluster.connect(0, 1), &attr), UCS_OK);
    EXPECT_EQ(attr.user_data, nullptr);
}

TEST(Endpoint, HasItsName) {
    Cluster cluster(2);
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_NAME;
    params.name = "to the neighbour";
    ucp_ep_attr_t attr{};
    attr.field_mask = UCP_EP_ATTR_FIELD_NAME;
    ASSERT_EQ(ucp_ep_query(cluster.connect(0, 1, params), &attr), UCS_OK);
    EXPECT_STREQ(attr.name, "to the neighbour");
    ASSERT_EQ(ucp_ep_query(cluster.connect(0, 1), &attr), UCS_OK);
    EXPECT_NE(attr.name[0], '\0');
}

// A context as a program makes it that was compiled for a version of the interface.
class Program {
  public:
    explicit Program(unsigned minor, uint64_t features = UCP_FEATURE_TAG) {
        ucp_config_t* config = nullptr;
        EXPECT_EQ(ucp_config_read(nullptr, nullptr, &config), UCS_OK);
        EXPECT_EQ(ucp_config_modify(config, "TLS", "self"), UCS_OK);
        ucp_params_t params{};
        params.field_mask = UCP_PARAM_FIELD_FEATURES;
        params.features = features;
        EXPECT_EQ(ucp_init_version(1, minor, &params, config, &context), UCS_OK);
        ucp_config_release(config);
    }
    ~Program() { ucp_cleanup(context); }

    ucs_status_t map(unsigned type, ucp_mem_h* memory) {
        ucp_mem_map_params_t params{};
        params.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS |
                            UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
        params.length = 5000;
        params.flags = UCP_MEM_MAP_ALLOCATE;
        params.memory_type = static_cast<ucs_memory_type_t>(type);
        return ucp_mem_map(context, &params, memory);
    }
    void unmap(ucp_mem_h memory) { EXPECT_EQ(ucp_mem_unmap(context, memory), UCS_OK); }

    ucp_context_h context = nullptr;
};

TEST(Version, WithoutCudaTheDeviceFeatureIsTakenAndOffersNoCounters) {
    Program program(UCP_API_MINOR, UCP_FEATURE_TAG | UCP_FEATURE_DEVICE);
    ucp_context_attr_t attr{};
    attr.field_mask = UCP_ATTR_FIELD_DEVICE_COUNTER_SIZE;
    attr.device_counter_size = 7;
    ASSERT_EQ(ucp_context_query(program.context, &attr), UCS_OK);
    EXPECT_EQ(attr.device_counter_size, 0u);
}

TEST(Version, UnknownMemoryIsWhatTheProgramsVersionSays) {
    struct {
        unsigned minor, type;
        ucs_status_t status;
    } const kRows[] = {
        {13, 0, UCS_OK},
        {13, 5, UCS_OK},
        {13, 1, UCS_ERR_UNSUPPORTED},
        {15, 5, UCS_OK},
        {16, 5, UCS_ERR_UNSUPPORTED},
        {16, 6, UCS_OK},
        {17, 6, UCS_ERR_UNSUPPORTED},
        {17, 9, UCS_OK},
        {20, 9, UCS_OK},
        {21, 9, UCS_ERR_UNSUPPORTED},
        {21, 10, UCS_OK},
        {22, 10, UCS_OK},
        {16, 0, UCS_OK},
        {16, 1, UCS_ERR_UNSUPPORTED},
    };
    for (const auto& row : kRows) {
        Program program(row.minor);
        ucp_mem_h memory = nullptr;
        EXPECT_EQ(program.map(row.type, &memory), row.status) << row.minor << ", " << row.type;
        if (memory != nullptr) program.unmap(memory);
    }
}

ucs_status_t pack_exported(ucp_mem_h memory, std::vector<char>* bytes) {
    ucp_memh_pack_params_t params{};
    params.field_mask = UCP_MEMH_PACK_PARAM_FIELD_FLAGS;
    params.flags = UCP_MEMH_PACK_FLAG_EXPORT;
    void* buffer = nullptr;
    size_t size = 0;
    const ucs_status_t status = ucp_memh_pack(memory, &params, &buffer, &size);
    if (status != UCS_OK) return status;
    bytes->assign(static_cast<char*>(buffer), static_cast<char*>(buffer) + size);
    ucp_memh_buffer_release(buffer, nullptr);
    return UCS_OK;
}

ucs_status_t import(ucp_context_h context, const std::vector<char>& bytes, ucp_mem_h* memory) {
    ucp_mem_map_params_t params{};
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_EXPORTED_MEMH_BUFFER;
    params.exported_memh_buffer = bytes.data();
    return ucp_mem_map(context, &params, memory);
}

void* address_of(ucp_mem_h memory) {
    ucp_mem_attr_t attr{};
    attr.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_LENGTH;
    EXPECT_EQ(ucp_mem_query(memory, &attr), UCS_OK);
    EXPECT_EQ(attr.length, 5000u);
    return attr.address;
}

constexpr uint64_t kExporting = UCP_FEATURE_TAG | UCP_FEATURE_EXPORTED_MEMH;

TEST(ExportedMemory, IsTheSameInAnotherProcess) {
    Program program(16, kExporting);
    ucp_mem_h memory = nullptr;
    ASSERT_EQ(program.map(0, &memory), UCS_OK);
    std::vector<char> bytes;
    ASSERT_EQ(pack_exported(memory, &bytes), UCS_OK);
    std::strcpy(static_cast<char*>(address_of(memory)), "from the parent");
    const pid_t child = fork();
    if (child == 0) {
        Program other(16, kExporting);
        ucp_mem_h imported = nullptr;
        if (import(other.context, bytes, &imported) != UCS_OK) _exit(1);
        auto* text = static_cast<char*>(address_of(imported));
        if (text == address_of(memory) || std::strcmp(text, "from the parent") != 0) _exit(2);
        std::strcpy(text, "from the child");
        other.unmap(imported);
        _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(WEXITSTATUS(status), 0);
    EXPECT_STREQ(static_cast<char*>(address_of(memory)), "from the child");
    program.unmap(memory);
}

TEST(ExportedMemory, BadBytesAndOtherMemoryAreRefused) {
    Program program(16, kExporting), plain(16);
    ucp_mem_h memory = nullptr, imported = nullptr;
    ASSERT_EQ(program.map(0, &memory), UCS_OK);
    std::vector<char> bytes;
    ASSERT_EQ(pack_exported(memory, &bytes), UCS_OK);
    for (size_t place = 0; place < bytes.size(); ++place) {
        auto changed = bytes;
        changed[place] = static_cast<char>(changed[place] ^ 0x40);
        if (import(program.context, changed, &imported) != UCS_OK) continue;
        // The length may have become another that there is; nothing else may be changed.
        EXPECT_GE(place, bytes.size() - 8);
        program.unmap(imported);
    }
    program.unmap(memory);
    EXPECT_EQ(import(program.context, bytes, &imported), UCS_ERR_UNREACHABLE) << "it is gone";
    ASSERT_EQ(plain.map(0, &memory), UCS_OK);
    EXPECT_EQ(pack_exported(memory, &bytes), UCS_ERR_UNSUPPORTED);
    plain.unmap(memory);
}

TEST(Hints, OfASendChangeNothingThatTheProgramSees) {
    Cluster cluster(2);
    for (const uint32_t flag : {UCP_OP_ATTR_FLAG_FAST_CMPL, UCP_OP_ATTR_FLAG_MULTI_SEND}) {
        for (const size_t length : {size_t{8}, size_t{200000}}) {
            const auto sent = pattern(length, flag);
            std::vector<uint8_t> received(length);
            ucp_request_param_t hint{};
            hint.op_attr_mask = flag;
            const ucs_status_ptr_t sending =
                ucp_tag_send_nbx(cluster.endpoint(0, 1), sent.data(), sent.size(), 3, &hint);
            EXPECT_EQ(cluster.finish(ucp_tag_recv_nbx(cluster.worker(1), received.data(), length, 3,
                                                      UINT64_MAX, &kNothing)),
                      UCS_OK);
            EXPECT_EQ(cluster.finish(sending), UCS_OK);
            EXPECT_EQ(received, sent);
        }
    }
}

TEST(Hints, MemoryMappedWithoutWaitingIsMappedAtOnce) {
    Cluster cluster(1);
    std::vector<std::byte> memory(8192);
    ucp_mem_map_params_t params{};
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                        UCP_MEM_MAP_PARAM_FIELD_FLAGS;
    params.address = memory.data();
    params.length = memory.size();
    params.flags = UCP_MEM_MAP_NONBLOCK;
    ucp_mem_h handle = nullptr;
    ASSERT_EQ(ucp_mem_map(cluster.context(0), &params, &handle), UCS_OK);
    void* key = nullptr;
    size_t length = 0;
    EXPECT_EQ(ucp_rkey_pack(cluster.context(0), handle, &key, &length), UCS_OK);
    EXPECT_GT(length, 0u);
    ucp_rkey_buffer_release(key);
    EXPECT_EQ(ucp_mem_unmap(cluster.context(0), handle), UCS_OK);
}

TEST(Hints, OfAWorkerAreTaken) {
    Cluster cluster(1);
    ucp_worker_params_t params{};
    params.field_mask = UCP_WORKER_PARAM_FIELD_CPU_MASK | UCP_WORKER_PARAM_FIELD_EVENTS;
    UCS_CPU_SET(0, &params.cpu_mask);
    params.events = UCP_WAKEUP_TAG_RECV;
    ucp_worker_h worker = nullptr;
    ASSERT_EQ(ucp_worker_create(cluster.context(0), &params, &worker), UCS_OK);
    ucp_worker_destroy(worker);
}

TEST(Hints, OfAContextAreTaken) {
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_TAG_SENDER_MASK |
                        UCP_PARAM_FIELD_ESTIMATED_NUM_PPN;
    params.features = UCP_FEATURE_TAG;
    params.tag_sender_mask = 0xffff;
    params.estimated_num_ppn = 64;
    ucp_context_h context = nullptr;
    ASSERT_EQ(ucp_init(&params, nullptr, &context), UCS_OK);
    ucp_cleanup(context);
}

TEST(Cancel, LeavesASendToItsEnd) {
    Cluster cluster(2);
    const uint64_t number = 11;
    uint64_t got = 0;
    const ucs_status_ptr_t sending =
        ucp_tag_send_sync_nbx(cluster.endpoint(0, 1), &number, sizeof(number), 4, &kNothing);
    ASSERT_TRUE(UCS_PTR_IS_PTR(sending));
    ucp_request_cancel(cluster.worker(0), sending);
    cluster.steps(100);
    EXPECT_EQ(ucp_request_check_status(sending), UCS_INPROGRESS);
    EXPECT_EQ(cluster.finish(
                  ucp_tag_recv_nbx(cluster.worker(1), &got, sizeof(got), 4, UINT64_MAX, &kNothing)),
              UCS_OK);
    EXPECT_EQ(cluster.finish(sending), UCS_OK);
    EXPECT_EQ(got, number);
}

}  // namespace
}  // namespace ucp::test
