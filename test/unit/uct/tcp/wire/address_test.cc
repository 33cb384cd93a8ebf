// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/wire/address.h"

#include <gtest/gtest.h>

#include <vector>

#include "common/hex.h"

namespace uct::tcp {
namespace {

DeviceAddress device() {
    DeviceAddress address;
    address.ip.version = 4;
    address.ip.bytes = {10, 9, 0, 1};
    address.loopback = true;
    address.place = 0x1122334455667788;
    return address;
}

ListenerAddress listener() {
    return {4000, 0x99, {1, 2}};
}

template <typename Address>
std::vector<std::byte> written(const Address& address) {
    std::vector<std::byte> bytes(Address::kLength);
    address.write(bytes);
    return bytes;
}

TEST(TcpAddresses, AreReadAsTheyWereWritten) {
    EXPECT_EQ(DeviceAddress::read(written(device())), device());
    EXPECT_EQ(ListenerAddress::read(written(listener())), listener());
}

TEST(TcpAddresses, RecordedOnesOfVersion3AreRead) {
    const std::string recorded_device = "04010a0900010000000000000000000000008877665544332211",
                      recorded_listener =
                          "a00f0000990000000000000001000000000000000200000000000000";
    EXPECT_EQ(ucs::test::hex_of(written(device())), recorded_device);
    EXPECT_EQ(ucs::test::hex_of(written(listener())), recorded_listener);
    EXPECT_EQ(DeviceAddress::read(ucs::test::bytes_of_hex(recorded_device)), device());
    EXPECT_EQ(ListenerAddress::read(ucs::test::bytes_of_hex(recorded_listener)), listener());
}

TEST(TcpAddresses, OfAnotherLengthAreNone) {
    for (const size_t length : {DeviceAddress::kLength - 1, DeviceAddress::kLength + 1}) {
        std::vector<std::byte> bytes = written(device());
        bytes.resize(length);
        EXPECT_EQ(DeviceAddress::read(bytes), std::nullopt);
    }
    std::vector<std::byte> bytes = written(listener());
    bytes.pop_back();
    EXPECT_EQ(ListenerAddress::read(bytes), std::nullopt);
    EXPECT_EQ(DeviceAddress::read({}), std::nullopt);
}

TEST(TcpAddresses, ThatLeadNowhereAreNone) {
    DeviceAddress nowhere = device();
    nowhere.ip.bytes = {};
    EXPECT_EQ(DeviceAddress::read(written(nowhere)), std::nullopt);
    DeviceAddress strange = device();
    strange.ip.version = 5;
    EXPECT_EQ(DeviceAddress::read(written(strange)), std::nullopt);
    std::vector<std::byte> flags = written(device());
    flags[1] = std::byte{2};
    EXPECT_EQ(DeviceAddress::read(flags), std::nullopt) << "a flag that this version lacks";

    ListenerAddress portless = listener();
    portless.port = 0;
    EXPECT_EQ(ListenerAddress::read(written(portless)), std::nullopt);
    ListenerAddress nameless = listener();
    nameless.id = 0;
    EXPECT_EQ(ListenerAddress::read(written(nameless)), std::nullopt);
    std::vector<std::byte> filled = written(listener());
    filled[2] = std::byte{1};
    EXPECT_EQ(ListenerAddress::read(filled), std::nullopt);
}

}  // namespace
}  // namespace uct::tcp
