// SPDX-License-Identifier: BSD-3-Clause

// Endpoints alike share one configuration, which says by what lanes each role and memory type goes.

#include "ucp/endpoint/configuration.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "ucp/select/worker_address.h"
#include "ucs/log/log.h"
#include "ucs/memory/detector.h"
#include "ucs/type/bits.h"
#include "unit/ucp/proto/cluster.h"
#include "unit/ucs/log/log_capture.h"

namespace ucp::test {
namespace {

// The address of another worker behind the same transports.
std::vector<std::byte> address_of(const std::vector<std::byte>& packed, uint64_t uuid,
                                  float bandwidth_factor = 1) {
    WorkerAddress address;
    EXPECT_EQ(unpack_address(packed, &address), UCS_OK);
    address.uuid = uuid;
    for (AddressEntry& entry : address.entries) entry.bandwidth *= bandwidth_factor;
    return pack_address(address);
}

Endpoint& connect(Worker& worker, const std::vector<std::byte>& address) {
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    params.address = reinterpret_cast<const ucp_address_t*>(address.data());
    Endpoint* endpoint = nullptr;
    EXPECT_EQ(worker.create_endpoint(params, &endpoint), UCS_OK);
    return *endpoint;
}

TEST(EndpointConfiguration, IsSharedByEndpointsAlike) {
    Cluster cluster;
    Worker& worker = cluster.a.worker();
    const std::vector<std::byte>& packed = cluster.b().worker().address();
    const EndpointConfiguration* shared = &cluster.endpoint().configuration();
    for (uint64_t uuid = 1; uuid <= 100; ++uuid) {
        EXPECT_EQ(&connect(worker, address_of(packed, uuid)).configuration(), shared);
    }
}

TEST(EndpointConfiguration, DiffersWhereThePeersDeviceIsSlower) {
    Cluster cluster;
    Worker& worker = cluster.a.worker();
    const std::vector<std::byte>& packed = cluster.b().worker().address();
    const std::vector<std::byte> slow_address = address_of(packed, 1, 0.25F);
    const std::vector<std::byte> fast_address = address_of(packed, 2, 4);
    const Endpoint& slow = connect(worker, slow_address);
    EXPECT_NE(&slow.configuration(), &cluster.endpoint().configuration());
    EXPECT_LT(slow.configuration().lanes().bandwidth,
              cluster.endpoint().configuration().lanes().bandwidth);
    // A faster one is as fast as this end.
    const Endpoint& fast = connect(worker, fast_address);
    EXPECT_EQ(&fast.configuration(), &cluster.endpoint().configuration());
}

TEST(EndpointConfiguration, GoesWithItsLastEndpoint) {
    Cluster cluster;
    ConfigurationSet set;
    const InterfaceSet& interfaces = cluster.a.worker().interfaces();
    const DomainSet& domains = cluster.a.context().domains();
    const SelectionRules rules;
    EndpointLanes lanes = cluster.endpoint().configuration().lanes();
    ConfigurationRef first = set.intern(interfaces, domains, rules, lanes);
    EXPECT_EQ(set.intern(interfaces, domains, rules, lanes), first);
    lanes.domains.remote = 77;
    const ConfigurationRef second = set.intern(interfaces, domains, rules, lanes);
    EXPECT_NE(second, first);
    EXPECT_EQ(set.size(), 2u);
    first.reset();
    lanes.domains.remote = 78;
    const ConfigurationRef third = set.intern(interfaces, domains, rules, lanes);
    EXPECT_EQ(set.size(), 2u);
}

TEST(EndpointConfiguration, IsPrintedOnceIfTheUserAsksForIt) {
    Cluster cluster;
    ConfigurationSet set;
    SelectionRules rules;
    const EndpointLanes& lanes = cluster.endpoint().configuration().lanes();
    const auto intern = [&] {
        return set.intern(cluster.a.worker().interfaces(), cluster.a.context().domains(), rules,
                          lanes);
    };
    const ucs::LogCapture log(ucs::LogLevel::kError);
    intern();
    EXPECT_TRUE(log.entries().empty());
    rules.is_shown = true;
    set = {};
    const ConfigurationRef shown = intern();
    EXPECT_EQ(intern(), shown);
    ASSERT_EQ(log.entries().size(), 1u);
    for (const char* part : {"messages", "active message", "rendezvous", "the next best"}) {
        EXPECT_TRUE(log.contains(part)) << part << "\n" << log.entries().front().text;
    }
}

TEST(EndpointConfiguration, NamesTheLanesOfEveryRole) {
    Settings settings;
    settings.lanes = LaneMode::kDynamic;
    Cluster cluster(settings);
    const EndpointConfiguration& configuration = cluster.endpoint().configuration();
    for (size_t role = 0; role < kRoles; ++role) {
        const LaneUse& use = configuration.use(static_cast<LaneRole>(role), UCS_MEMORY_TYPE_HOST);
        EXPECT_EQ(use.scalable, configuration.lanes().scalable);
        EXPECT_EQ(use.dedicated, configuration.lanes().dedicated);
    }
    EXPECT_EQ(configuration.use(LaneRole::kMessages, UCS_MEMORY_TYPE_HOST).service,
              Service::kDirect);
    // It is the lane that copies here, not this processor.
    EXPECT_EQ(configuration.in_place().longest_put, 0u);
    EXPECT_EQ(configuration.in_place().longest_get, 0u);
    EXPECT_FALSE(configuration.in_place().has_atomics);
    // Nothing here copies AMD's memory.
    EXPECT_EQ(configuration.use(LaneRole::kMessages, UCS_MEMORY_TYPE_ROCM).service, Service::kNone);
    char* text = nullptr;
    size_t length = 0;
    FILE* stream = open_memstream(&text, &length);
    ucp_ep_print_info(cluster.ep, stream);
    fclose(stream);
    const std::string printed(text, length);
    std::free(text);
    const std::string name = configuration.scalable().transport;
    for (const char* part : {"messages", "put, get", "atomics", "no lane serves", "rocm"}) {
        EXPECT_NE(printed.find(part), std::string::npos) << part << "\n" << printed;
    }
    EXPECT_NE(printed.find(name), std::string::npos) << printed;
}

// Devices of which each reads the others' memory.
class ReadableMemory final : public ucs::MemoryDetector {
  public:
    bool detect(const void*, size_t, ucs::MemoryInfo&) const override { return false; }
    uint64_t types() const override {
        return UCS_BIT(UCS_MEMORY_TYPE_CUDA) | UCS_BIT(UCS_MEMORY_TYPE_CUDA_MANAGED);
    }
    uint64_t readable_types() const override { return UCS_BIT(UCS_MEMORY_TYPE_CUDA); }
};

TEST(EndpointConfiguration, SaysWhereDevicesReadEachOthersMemory) {
    ReadableMemory devices;
    ucs::register_memory_detector(devices);
    const auto how = [](uct::DeviceType lane, RndvScheme scheme, ucs_memory_type_t type) {
        Settings settings;
        settings.fabric.device_type = lane;
        settings.scheme = scheme;
        Cluster cluster(settings);
        const EndpointConfiguration& made = cluster.endpoint().configuration();
        const bool is_direct = made.describe_protocols("").find("direct") != std::string::npos;
        const Service service = made.use(LaneRole::kMessages, type).service;
        EXPECT_EQ(made.use(LaneRole::kRemoteMemory, type).service, service);
        // The table of protocols and the table of lanes say the same.
        if (type == UCS_MEMORY_TYPE_CUDA) {
            EXPECT_EQ(service == Service::kByDevices, is_direct);
            for (const auto operation : {select::Operation::kPut, select::Operation::kGet}) {
                const select::Protocol protocol =
                    made.protocols(false).find(operation, select::BufferClass::kContiguous,
                                               select::RemoteClass::kDescribed, 100);
                EXPECT_EQ(protocol,
                          is_direct ? select::Protocol::kDirect : select::Protocol::kByMessages);
            }
        }
        return service;
    };
    constexpr auto kHost = uct::DeviceType::kSharedMemory;
    constexpr auto kCuda = UCS_MEMORY_TYPE_CUDA;
    EXPECT_EQ(how(kHost, RndvScheme::kAuto, kCuda), Service::kByDevices);
    EXPECT_EQ(how(kHost, RndvScheme::kAm, kCuda), Service::kStaged);
    EXPECT_EQ(how(kHost, RndvScheme::kAuto, UCS_MEMORY_TYPE_CUDA_MANAGED), Service::kStaged);
    EXPECT_EQ(how(uct::DeviceType::kNetwork, RndvScheme::kAuto, kCuda), Service::kStaged);
    ucs::runtime().memory_detectors.reset();
}

// --- buffers declared to be of a type that no lane serves ---

ucp_request_param_t declared(ucs_memory_type_t type) {
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    params.memory_type = type;
    return params;
}

class DeclaredMemory : public testing::Test {
  protected:
    // The call failed at once, and the log says so in one line.
    void expect_unsupported(ucs_status_ptr_t result) {
        EXPECT_EQ(UCS_PTR_RAW_STATUS(result), UCS_ERR_UNSUPPORTED);
        if (UCS_PTR_IS_PTR(result)) ucp_request_free(result);
        const auto lines = log_.entries();
        ASSERT_EQ(lines.size(), ++lines_);
        EXPECT_NE(lines.back().text.find("rocm"), std::string::npos) << lines.back().text;
    }

    Cluster cluster_;
    const ucp_request_param_t rocm_ = declared(UCS_MEMORY_TYPE_ROCM);
    std::vector<uint8_t> buffer_ = std::vector<uint8_t>(100000, 1);
    size_t lines_ = 0;
    ucs::LogCapture log_{ucs::LogLevel::kError};
};

TEST_F(DeclaredMemory, OfATypeThatNothingServesIsRefusedByEveryMessage) {
    ucp_worker_h worker = cluster_.a.handle();
    for (const size_t length : {size_t{8}, size_t{3000}, buffer_.size()}) {
        expect_unsupported(ucp_tag_send_nbx(cluster_.ep, buffer_.data(), length, 1, &rocm_));
        expect_unsupported(ucp_tag_send_sync_nbx(cluster_.ep, buffer_.data(), length, 1, &rocm_));
        expect_unsupported(ucp_tag_recv_nbx(worker, buffer_.data(), length, 1, 0, &rocm_));
        expect_unsupported(
            ucp_am_send_nbx(cluster_.ep, 1, nullptr, 0, buffer_.data(), length, &rocm_));
        expect_unsupported(ucp_stream_send_nbx(cluster_.ep, buffer_.data(), length, &rocm_));
        size_t received = 0;
        expect_unsupported(
            ucp_stream_recv_nbx(cluster_.ep, buffer_.data(), length, &received, &rocm_));
    }
}

TEST_F(DeclaredMemory, OfPiecesIsRefusedWhereverTheEmptyOnesAre) {
    ucp_dt_iov_t pieces[] = {{nullptr, 0}, {buffer_.data(), 100}, {nullptr, 0}};
    ucp_request_param_t params = rocm_;
    params.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
    params.datatype = ucp_dt_make_iov();
    expect_unsupported(ucp_tag_send_nbx(cluster_.ep, pieces, 3, 1, &params));
}

TEST_F(DeclaredMemory, OfATypeThatNothingServesIsRefusedByPutsAndGets) {
    std::vector<uint8_t> target(buffer_.size(), 2);
    const auto address = reinterpret_cast<uintptr_t>(target.data());
    ucp_context_h owner = wrap(&cluster_.b().context());
    ucp_mem_map_params_t map{};
    map.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    map.address = target.data();
    map.length = target.size();
    ucp_mem_h memory = nullptr;
    ASSERT_EQ(ucp_mem_map(owner, &map, &memory), UCS_OK);
    void* packed = nullptr;
    size_t size = 0;
    ASSERT_EQ(ucp_rkey_pack(owner, memory, &packed, &size), UCS_OK);
    ucp_rkey_h key = nullptr;
    ASSERT_EQ(ucp_ep_rkey_unpack(cluster_.ep, packed, &key), UCS_OK);
    ucp_rkey_buffer_release(packed);
    for (const size_t length : {size_t{8}, size_t{3000}, buffer_.size()}) {
        expect_unsupported(ucp_put_nbx(cluster_.ep, buffer_.data(), length, address, key, &rocm_));
        expect_unsupported(ucp_get_nbx(cluster_.ep, buffer_.data(), length, address, key, &rocm_));
    }
    EXPECT_EQ(target, std::vector<uint8_t>(buffer_.size(), 2));
    ucp_rkey_destroy(key);
    EXPECT_EQ(ucp_mem_unmap(owner, memory), UCS_OK);
}

}  // namespace
}  // namespace ucp::test
