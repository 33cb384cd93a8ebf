// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/base/address.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "common/hex.h"

namespace uct::ib {
namespace {

template <typename Address>
std::string written(const Address& address) {
    std::vector<std::byte> bytes(Address::kLength);
    address.write(bytes);
    return ucs::test::hex_of(bytes);
}

template <typename Address>
std::string read_and_written(const std::string& digits) {
    const auto address = Address::read(ucs::test::bytes_of_hex(digits));
    return address ? written(*address) : "refused";
}

// What workers of addresses of version 3 have written, and what is written today.
TEST(IbAddresses, RecordedOnesAreRead) {
    const PortAddress port{.mtu = 5, .lid = 7, .gid = {0xfe, 0x80, 1}};
    const std::string recorded_port = "01050700fe800100000000000000000000000000";
    EXPECT_EQ(written(port), recorded_port);
    EXPECT_EQ(PortAddress::read(ucs::test::bytes_of_hex(recorded_port)), port);

    DctAddress target{.number = 0x123456, .key = {}};
    std::ranges::fill(target.key, std::byte{0xab});
    const std::string recorded_target =
        "d2563412abababababababababababababababababababababababababababababababab";
    EXPECT_EQ(written(target), recorded_target);
    EXPECT_EQ(read_and_written<DctAddress>(recorded_target), recorded_target);

    const QpAddress queue_pair{.number = 0x123456, .packet_number = 0x654321, .max_rd_atomic = 16};
    const std::string recorded_queue_pair = "a156341221436510";
    EXPECT_EQ(written(queue_pair), recorded_queue_pair);
    EXPECT_EQ(read_and_written<QpAddress>(recorded_queue_pair), recorded_queue_pair);
}

}  // namespace
}  // namespace uct::ib
