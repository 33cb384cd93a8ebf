// SPDX-License-Identifier: BSD-3-Clause

// Worker addresses come from outside: what was cut short or changed on its way is refused, by what
// reads them and by the calls of programs.

#include "ucp/select/worker_address.h"

#include <gtest/gtest.h>

#include <charconv>
#include <cstring>
#include <string_view>

#include "ucs/log/log.h"
#include "unit/ucp/cluster.h"
#include "unit/ucs/log/log_capture.h"

namespace ucp::test {
namespace {

using Packed = std::vector<std::byte>;

constexpr size_t kLengthAt = 4, kChecksumAt = 8, kCheckedAt = 12, kDevicesAt = 13;
constexpr size_t kLongest = 64 * 1024;  // what a length field may claim
constexpr std::byte kBeyond{0xa5};      // what lies behind an address

// What whoever knows the format can do to a damaged address: make length and checksum right.
Packed repaired(Packed packed) {
    const auto length = static_cast<uint32_t>(packed.size());
    std::memcpy(packed.data() + kLengthAt, &length, sizeof(length));
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t at = kCheckedAt; at < packed.size(); ++at) {
        hash = (hash ^ std::to_integer<uint8_t>(packed[at])) * 0x100000001b3u;
    }
    const auto checksum = static_cast<uint32_t>(hash ^ (hash >> 32));
    std::memcpy(packed.data() + kChecksumAt, &checksum, sizeof(checksum));
    return packed;
}

ucs_status_t unpack(const Packed& packed) {
    WorkerAddress address;
    return unpack_address(packed, &address);
}

// A real worker's address, and the calls of a program that are given one.
class Addresses : public testing::Test {
  protected:
    Addresses() {
        const auto address = cluster_.inner(1).address();
        packed_.assign(address.begin(), address.end());
    }

    // Programs give no length: the field in the address may claim all that is readable here.
    ucs_status_t connect(const Packed& packed) {
        Packed padded = packed;
        padded.resize(packed.size() + kLongest, kBeyond);
        ucp_ep_params_t params{};
        params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        params.address = reinterpret_cast<const ucp_address_t*>(padded.data());
        ucp_ep_h endpoint = nullptr;
        const ucs_status_t status = ucp_ep_create(cluster_.worker(0), &params, &endpoint);
        if (status != UCS_OK) return status;
        ucp_request_param_t force{};
        force.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        force.flags = UCP_EP_CLOSE_FLAG_FORCE;
        const ucs_status_t closed = cluster_.finish(ucp_ep_close_nbx(endpoint, &force));
        EXPECT_EQ(closed, UCS_OK);
        return closed;
    }
    ucs_status_t query(const Packed& packed) {
        Packed padded = packed;
        padded.resize(packed.size() + kLongest, kBeyond);
        ucp_worker_address_attr_t attr{};
        attr.field_mask = UCP_WORKER_ADDRESS_ATTR_FIELD_UID;
        return ucp_worker_address_query(reinterpret_cast<ucp_address_t*>(padded.data()), &attr);
    }

    Cluster cluster_{2};
    Packed packed_;
};

TEST_F(Addresses, AreReadAsTheyWerePacked) {
    WorkerAddress address;
    ASSERT_EQ(unpack_address(packed_, &address), UCS_OK);
    EXPECT_EQ(address.uuid, cluster_.uuid(1));
    EXPECT_EQ(address.entries.size(), 2u);
    EXPECT_EQ(pack_address(address), packed_);
    EXPECT_EQ(packed_address_length(packed_.data()), packed_.size());
    EXPECT_EQ(repaired(packed_), packed_);
    EXPECT_EQ(connect(packed_), UCS_OK);
    EXPECT_EQ(query(packed_), UCS_OK);
    // What lies behind an address is not its own.
    Packed longer = packed_;
    longer.resize(longer.size() + 9, std::byte{0xff});
    EXPECT_EQ(unpack(longer), UCS_OK);
}

TEST_F(Addresses, EveryTruncationIsRefused) {
    for (size_t length = 0; length < packed_.size(); ++length) {
        // An allocation of just that size lets a sanitizer see reads past the end.
        const Packed cut(packed_.begin(), packed_.begin() + length);
        EXPECT_EQ(unpack(cut), UCS_ERR_INVALID_ADDR) << length;
        EXPECT_EQ(connect(cut), UCS_ERR_INVALID_ADDR) << length;
        EXPECT_EQ(query(cut), UCS_ERR_INVALID_ADDR) << length;
        if (length < kCheckedAt) continue;
        const Packed whole = repaired(cut);
        EXPECT_EQ(unpack(whole), UCS_ERR_INVALID_ADDR) << length;
        EXPECT_EQ(connect(whole), UCS_ERR_INVALID_ADDR) << length;
    }
    Packed longer = packed_;
    longer.push_back({});
    EXPECT_EQ(unpack(repaired(longer)), UCS_ERR_INVALID_ADDR);
}

TEST_F(Addresses, EveryFlippedBitIsRefused) {
    for (size_t bit = 0; bit < packed_.size() * 8; ++bit) {
        Packed flipped = packed_;
        flipped[bit / 8] ^= std::byte{1} << (bit % 8);
        EXPECT_EQ(unpack(flipped), UCS_ERR_INVALID_ADDR) << bit;
        EXPECT_EQ(connect(flipped), UCS_ERR_INVALID_ADDR) << bit;
        EXPECT_EQ(query(flipped), UCS_ERR_INVALID_ADDR) << bit;
    }
}

// The checksum guards against accidents only. With a right one an address is taken or refused, but
// it is the caller's endpoint alone that suffers.
TEST_F(Addresses, AFlippedBitUnderARightChecksumHarmsNobodyElse) {
    for (size_t bit = kCheckedAt * 8; bit < packed_.size() * 8; ++bit) {
        Packed flipped = packed_;
        flipped[bit / 8] ^= std::byte{1} << (bit % 8);
        const ucs_status_t status = connect(repaired(flipped));
        EXPECT_TRUE(status == UCS_OK || status == UCS_ERR_INVALID_ADDR ||
                    status == UCS_ERR_UNREACHABLE || status == UCS_ERR_REJECTED)
            << bit << ": " << ucs_status_string(status);
    }
    EXPECT_EQ(connect(packed_), UCS_OK);
}

// Two devices, one of them with two transports: every kind of field.
Packed of_two_devices() {
    static const std::byte device[] = {std::byte{1}, std::byte{2}};
    static const std::byte interface[] = {std::byte{3}, std::byte{4}, std::byte{5}};
    WorkerAddress address;
    address.uuid = 77;
    address.host = 5;
    address.name = "name";
    for (const uint8_t domain : {0, 0, 1}) {
        AddressEntry& entry = address.entries.emplace_back();
        entry.kind = kind_of("any");
        entry.domain = domain;
        entry.bandwidth = 1e9;
        entry.latency = 1e-6f;
        entry.overhead = 1e-7f;
        entry.device = device;
        entry.interface = interface;
    }
    return pack_address(address);
}

// Two versions of the library understand each other's addresses, or refuse them: what a version
// has written is kept here, and not made anew by the library that is tested.
constexpr std::string_view kRecordedVersion4 =
    "534c5741610000000c6e358e040204004d0000000000000005000000000000006e616d6500020000"
    "020201024df0292c6e4e8635d73300030304054df0292c6e4e8635d7330003030405010200000201"
    "01024df0292c6e4e8635d7330003030405";
constexpr std::string_view kRecordedVersion3 =
    "534c574161000000d464bc7d030204004d0000000000000005000000000000006e616d6500020000"
    "020201024df0292c6e4e8635d73300030304054df0292c6e4e8635d7330003030405010200000201"
    "01024df0292c6e4e8635d7330003030405";

Packed recorded(std::string_view digits) {
    Packed bytes(digits.size() / 2);
    for (size_t at = 0; at < bytes.size(); ++at) {
        unsigned value = 0;
        std::from_chars(&digits[2 * at], &digits[2 * at] + 2, value, 16);
        bytes[at] = static_cast<std::byte>(value);
    }
    return bytes;
}

TEST(RecordedAddresses, OfVersion4AreRead) {
    const Packed packed = recorded(kRecordedVersion4);
    EXPECT_EQ(of_two_devices(), packed);
    WorkerAddress address;
    ASSERT_EQ(unpack_address(packed, &address), UCS_OK);
    EXPECT_EQ(address.uuid, 77u);
    EXPECT_EQ(address.host, 5u);
    EXPECT_EQ(address.name, "name");
    EXPECT_FALSE(address.has_checksums);
    ASSERT_EQ(address.entries.size(), 3u);
    EXPECT_EQ(address.entries[2].domain, 1u);
    EXPECT_EQ(address.entries[2].interface.size(), 3u);
    EXPECT_EQ(address.entries[2].bandwidth, wire_cost(1e9));
}

TEST_F(Addresses, OfVersion3AreRefusedInOneLine) {
    const Packed packed = recorded(kRecordedVersion3);
    EXPECT_EQ(repaired(packed), packed);
    ucs::LogCapture log(ucs::LogLevel::kWarn);
    EXPECT_EQ(connect(packed), UCS_ERR_INVALID_ADDR);
    ASSERT_EQ(log.entries().size(), 1u);
    EXPECT_TRUE(log.contains("both ends must run the same library"));
}

struct BadField {
    const char* name;
    size_t offset;
    std::byte value;
};

// Each of these has a right length and checksum.
TEST(AddressFields, OutOfRangeAreRefused) {
    constexpr size_t kFirstDevice = 32 + 4, kFirstTransport = kFirstDevice + 6 + 2;
    const BadField fields[] = {
        {"version", 12, std::byte{5}},
        {"fewer devices", kDevicesAt, std::byte{1}},
        {"more devices", kDevicesAt, std::byte{3}},
        {"longer name", 14, std::byte{255}},
        {"features", 15, std::byte{2}},
        {"device type", kFirstDevice + 1, std::byte{200}},
        {"distance below zero", kFirstDevice + 3, std::byte{0x80}},
        {"longer device", kFirstDevice + 4, std::byte{255}},
        {"no transports", kFirstDevice + 5, std::byte{0}},
        {"more transports", kFirstDevice + 5, std::byte{255}},
        {"bandwidth below zero", kFirstTransport + 5, std::byte{0xce}},
        {"latency without end", kFirstTransport + 7, std::byte{0xff}},
        {"flags", kFirstTransport + 10, std::byte{4}},
        {"longer interface", kFirstTransport + 11, std::byte{255}},
        {"shorter interface", kFirstTransport + 11, std::byte{2}},
    };
    const Packed good = of_two_devices();
    ASSERT_EQ(unpack(good), UCS_OK);
    ASSERT_EQ(repaired(good), good);
    for (const BadField& field : fields) {
        Packed bad = good;
        ASSERT_NE(bad[field.offset], field.value) << field.name;
        bad[field.offset] = field.value;
        EXPECT_EQ(unpack(repaired(bad)), UCS_ERR_INVALID_ADDR) << field.name;
    }
    Packed nobody = good;
    std::memset(nobody.data() + 16, 0, 8);
    EXPECT_EQ(unpack(repaired(nobody)), UCS_ERR_INVALID_ADDR);
}

}  // namespace
}  // namespace ucp::test
