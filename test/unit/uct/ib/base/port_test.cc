// SPDX-License-Identifier: BSD-3-Clause

// What of a port is used: GID, partition, path MTU, service level, traffic class.

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>

#include "softhca/softhca.h"
#include "ucs/config/source.h"
#include "uct/ib/base/device.h"
#include "uct/ib/component.h"
#include "uct/ib/rc/rc_interface.h"
#include "unit/uct/world.h"

namespace uct::ib::test {
namespace {

ibv_gid_entry entry(uint32_t index, uint32_t type, std::array<uint8_t, 16> gid) {
    ibv_gid_entry made{};
    made.gid_index = index;
    made.gid_type = type;
    std::copy(gid.begin(), gid.end(), made.gid.raw);
    return made;
}

constexpr std::array<uint8_t, 16> kIpv4 = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 9, 0, 1};
constexpr std::array<uint8_t, 16> kGlobal = {0xfd, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
constexpr std::array<uint8_t, 16> kLocal = {0xfe, 0x80, 0, 0,    0,    0, 0, 0,
                                            2,    0,    0, 0xff, 0xfe, 0, 0, 1};

TEST(PortTables, TheGidOfAnIpv4AddressAndRoceV2IsPreferred) {
    const ibv_gid_entry table[] = {
        entry(0, IBV_GID_TYPE_ROCE_V1, kLocal),  entry(1, IBV_GID_TYPE_ROCE_V2, kLocal),
        entry(2, IBV_GID_TYPE_ROCE_V1, kGlobal), entry(3, IBV_GID_TYPE_ROCE_V2, kGlobal),
        entry(4, IBV_GID_TYPE_ROCE_V1, kIpv4),   entry(5, IBV_GID_TYPE_ROCE_V2, kIpv4)};
    EXPECT_EQ(preferred_gid(table)->gid_index, 5u);
}

TEST(PortTables, WithoutIpv4AGlobalAddressIsPreferredToALinkLocalOne) {
    const ibv_gid_entry table[] = {entry(0, IBV_GID_TYPE_ROCE_V2, kLocal),
                                   entry(1, IBV_GID_TYPE_ROCE_V2, kGlobal),
                                   entry(2, IBV_GID_TYPE_ROCE_V2, kGlobal)};
    EXPECT_EQ(preferred_gid(table)->gid_index, 1u) << "the first of equals";
}

TEST(PortTables, RoceV1IsTakenWhereThereIsNothingElse) {
    const ibv_gid_entry table[] = {entry(0, IBV_GID_TYPE_ROCE_V1, kLocal),
                                   entry(1, IBV_GID_TYPE_ROCE_V1, kIpv4)};
    EXPECT_EQ(preferred_gid(table)->gid_index, 1u);
    const ibv_gid_entry mixed[] = {entry(0, IBV_GID_TYPE_ROCE_V1, kIpv4),
                                   entry(1, IBV_GID_TYPE_ROCE_V2, kLocal)};
    EXPECT_EQ(preferred_gid(mixed)->gid_index, 1u) << "v2 of any address before v1";
    EXPECT_EQ(preferred_gid({}), nullptr);
}

// What an adapter writes before a datagram: a GRH.
std::array<std::byte, 40> grh_from(const std::array<uint8_t, 16>& source) {
    std::array<std::byte, 40> written{};
    written[0] = std::byte{0x60};
    std::memcpy(&written[8], source.data(), source.size());
    return written;
}

TEST(PortTables, ADatagramIsFromThePortThatItsHeaderNames) {
    PortAddress port;
    port.ethernet = true;
    std::copy(kGlobal.begin(), kGlobal.end(), port.gid.begin());
    EXPECT_TRUE(port.is_source(0, grh_from(kGlobal)));
    EXPECT_FALSE(port.is_source(0, grh_from(kIpv4)));
    EXPECT_FALSE(port.is_source(0, {}));
    std::copy(kIpv4.begin(), kIpv4.end(), port.gid.begin());
    EXPECT_FALSE(port.is_source(0, grh_from(kGlobal)));
    // RoCE v2: an IPv4 header at the end. Soft-RoCE gives it no checksum within its own host.
    std::array<std::byte, 40> routed{};
    routed[20] = std::byte{0x45};
    std::memcpy(&routed[32], &kIpv4[12], 4);
    EXPECT_TRUE(port.is_source(0, routed));
    routed[35] = std::byte{2};
    EXPECT_FALSE(port.is_source(0, routed));
}

TEST(PortTables, APartitionIsFoundByItsKeyWhateverTheMembership) {
    const uint16_t table[] = {0xffff, 0x0000, 0x1234, 0x8042};
    EXPECT_EQ(find_partition(table, {}), 0);
    EXPECT_EQ(find_partition(table, 0x7fff), 0);
    EXPECT_EQ(find_partition(table, 0x9234), 2);
    EXPECT_EQ(find_partition(table, 0x42), 3);
    EXPECT_EQ(find_partition(table, 0x43), std::nullopt);
    const uint16_t empty_first[] = {0, 0x8001};
    EXPECT_EQ(find_partition(empty_first, {}), 1) << "0 is no key";
    EXPECT_EQ(find_partition({}, {}), 0);
}

// A port of the soft adapter and what a transport would use of it.
class Ports : public testing::Test {
  protected:
    void SetUp() override { ASSERT_EQ(Device::open(Device::find_all().at(0), &device), UCS_OK); }
    ucs_status_t load(const uct::test::Settings& settings, TransportConfig* config) {
        ucs::config::Source source;
        std::string error;
        for (const auto& [name, value] : settings) {
            if (source.modify(name, value, error) != UCS_OK) return UCS_ERR_INVALID_PARAM;
        }
        return rc_verbs.config.load(source, *config, error);
    }
    ucs_status_t path_of(const uct::test::Settings& settings, Device::Path* path) {
        TransportConfig config{};
        const ucs_status_t status = load(settings, &config);
        return status == UCS_OK ? device->make_path(config, path) : status;
    }

    softhca::VirtualFabric fabric;
    std::unique_ptr<Device> device;
};

TEST_F(Ports, ServiceLevelTrafficClassAndHopLimitReachThePackets) {
    Device::Path path{};
    ASSERT_EQ(path_of({{"IB_SL", "5"}, {"IB_TRAFFIC_CLASS", "106"}, {"IB_HOP_LIMIT", "7"}}, &path),
              UCS_OK);
    PortAddress remote = path.address;
    remote.gid[0] ^= 0x40;  // of another subnet: packets have a GRH on InfiniBand too
    const ibv_ah_attr attributes = device->ah_attributes(path, remote);
    EXPECT_EQ(attributes.sl, 5);
    EXPECT_EQ(attributes.is_global, 1);
    EXPECT_EQ(attributes.grh.traffic_class, 106);
    EXPECT_EQ(attributes.grh.hop_limit, 7);
    EXPECT_EQ(attributes.grh.sgid_index, path.gid_index);
}

TEST_F(Ports, WhatThePortLacksIsAnError) {
    Device::Path path{};
    EXPECT_EQ(path_of({{"IB_GID_INDEX", "0"}, {"IB_PKEY", "0x7fff"}}, &path), UCS_OK);
    EXPECT_EQ(path.gid_index, 0);
    EXPECT_EQ(path.pkey_index, 0);
    EXPECT_EQ(path_of({{"IB_GID_INDEX", "6"}}, &path), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(path_of({{"IB_PKEY", "0x1234"}}, &path), UCS_ERR_INVALID_PARAM);
}

TEST_F(Ports, ThePathMtuIsTheSmallerOfWhatIsAskedForAndWhatThePortCan) {
    Device::Path path{};
    ASSERT_EQ(path_of({}, &path), UCS_OK);
    EXPECT_EQ(path.mtu, device->port_attributes().active_mtu);
    ASSERT_EQ(path_of({{"IB_PATH_MTU", "1024"}}, &path), UCS_OK);
    EXPECT_EQ(path.mtu, IBV_MTU_1024);
    EXPECT_EQ(path.address.mtu, IBV_MTU_1024) << "the other end must hear of it";
}

}  // namespace
}  // namespace uct::ib::test
