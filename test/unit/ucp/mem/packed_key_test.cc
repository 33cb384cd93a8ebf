// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/mem/packed_key.h"

#include <algorithm>
#include <cstddef>

#include "common/hex.h"
#include "ucp/mem/memory.h"
#include "ucp/mem/remote_memory.h"
#include "ucp/select/worker_address.h"
#include "unit/ucp/proto/cluster.h"
#include "unit/ucs/log/log_capture.h"

namespace ucp::test {
namespace {

class PackedKeys : public testing::Test {
  protected:
    PackedKeys() {
        EXPECT_EQ(
            Memory::create(cluster_.b().context().domains(), memory_, sizeof(memory_), &mapped_),
            UCS_OK);
        packed_.resize(packed_key_size(*mapped_));
        pack_key(*mapped_, packed_);
    }
    ~PackedKeys() override { Memory::destroy(mapped_); }

    ucs_status_t parse(std::span<const std::byte> bytes) {
        PackedKey key;
        return PackedKey::parse(bytes, &key);
    }

    Cluster cluster_;
    char memory_[100];
    Memory* mapped_ = nullptr;
    std::vector<std::byte> packed_;
};

TEST_F(PackedKeys, TellWhatTheyAreFor) {
    PackedKey key;
    ASSERT_EQ(PackedKey::parse(packed_.data(), &key), UCS_OK);
    EXPECT_EQ(key.header().address, reinterpret_cast<uintptr_t>(memory_));
    EXPECT_EQ(key.header().length, sizeof(memory_));
    EXPECT_FALSE(key.find(0, cluster_.b().context().domains()[0].kind).empty());
    EXPECT_TRUE(key.find(0, 12345).empty());
    EXPECT_TRUE(key.find(9, cluster_.b().context().domains()[0].kind).empty());
}

// As an announcement has them, which says itself where the memory is.
TEST_F(PackedKeys, EntriesAloneOpenTheSame) {
    std::vector<std::byte> entries(packed_entries_size(*mapped_));
    ASSERT_EQ(entries.size() + sizeof(PackedKeyHeader), packed_.size());
    pack_entries(*mapped_, entries);
    PackedKey whole, key;
    ASSERT_EQ(PackedKey::parse(packed_, &whole), UCS_OK);
    ASSERT_EQ(PackedKey::parse_entries(entries, 0x1000, 100, &key), UCS_OK);
    EXPECT_EQ(key.header().address, 0x1000u);
    EXPECT_EQ(key.header().length, 100u);
    const uint32_t kind = cluster_.b().context().domains()[0].kind;
    EXPECT_TRUE(std::ranges::equal(key.find(0, kind), whole.find(0, kind)));
    EXPECT_FALSE(key.find(0, kind).empty());

    const std::span<const std::byte> bytes = entries;
    EXPECT_EQ(PackedKey::parse_entries({}, 0x1000, 100, &key), UCS_ERR_INVALID_ADDR);
    EXPECT_EQ(PackedKey::parse_entries(bytes, UINT64_MAX, 2, &key), UCS_ERR_INVALID_ADDR);
    for (const size_t cut : {size_t{1}, entries.size() - 1}) {
        EXPECT_EQ(PackedKey::parse_entries(bytes.first(entries.size() - cut), 0x1000, 100, &key),
                  UCS_ERR_INVALID_ADDR);
    }
    entries[offsetof(PackedKeyEntry, length)] = std::byte{0};
    EXPECT_EQ(PackedKey::parse_entries(entries, 0x1000, 100, &key), UCS_ERR_INVALID_ADDR);
}

// A key of version 1, of one domain; made from the layout, with the checksum of that version.
TEST(RecordedKeys, OfVersion1AreRead) {
    constexpr std::string_view kRecorded =
        "534c524b5a38034e010001003a000000887766554433221109000000000000000010000000000000"
        "640000000000000002040d0c0b0aa1a2a3a4";
    const std::vector<std::byte> bytes = ucs::test::bytes_of_hex(kRecorded);
    PackedKey key;
    ASSERT_EQ(PackedKey::parse(bytes.data(), &key), UCS_OK);
    EXPECT_EQ(key.header().version, 1);
    EXPECT_EQ(key.header().identity, 0x1122334455667788u);
    EXPECT_EQ(key.header().region, 9u);
    EXPECT_EQ(key.header().address, 0x1000u);
    EXPECT_EQ(key.header().length, 100u);
    EXPECT_EQ(ucs::test::hex_of(key.find(2, 0x0a0b0c0d)), "a1a2a3a4");
    // The next version's would be refused.
    std::vector<std::byte> later = bytes;
    later[8] = std::byte{2};
    EXPECT_EQ(PackedKey::parse(later.data(), &key), UCS_ERR_INVALID_ADDR);
}

// A sender on the same host may write into its message while it is read.
TEST_F(PackedKeys, AreHeldToTheirBoundsWhateverTheyBecome) {
    const uint32_t kind = cluster_.b().context().domains()[0].kind;
    for (size_t place = sizeof(PackedKeyHeader); place < packed_.size(); ++place) {
        for (const int value : {0, 1, 0x7f, 0xff}) {
            std::vector<std::byte> bytes = packed_;
            PackedKey key;
            ASSERT_EQ(PackedKey::parse(bytes, &key), UCS_OK);
            bytes[place] = static_cast<std::byte>(value);
            for (const unsigned domain : {0u, 1u, 127u, 255u}) {
                const std::span<const std::byte> found = key.find(domain, kind);
                if (found.empty()) continue;
                ASSERT_GE(found.data(), bytes.data());
                ASSERT_LE(found.data() + found.size(), bytes.data() + bytes.size()) << place;
            }
        }
    }
}

TEST_F(PackedKeys, EveryTruncationIsRefused) {
    for (size_t length = 0; length < packed_.size(); ++length) {
        // An allocation of just that size lets a sanitizer see reads past the end.
        const std::vector<std::byte> cut(packed_.begin(), packed_.begin() + length);
        EXPECT_EQ(parse(cut), UCS_ERR_INVALID_ADDR) << length;
    }
    std::vector<std::byte> longer = packed_;
    longer.push_back({});
    EXPECT_EQ(parse(longer), UCS_ERR_INVALID_ADDR);
}

TEST_F(PackedKeys, EveryFlippedBitIsRefused) {
    for (size_t bit = 0; bit < packed_.size() * 8; ++bit) {
        std::vector<std::byte> flipped = packed_;
        flipped[bit / 8] ^= std::byte{1} << (bit % 8);
        EXPECT_EQ(parse(flipped), UCS_ERR_INVALID_ADDR) << bit;
    }
}

TEST_F(PackedKeys, UnpackOnAnEndpoint) {
    ucp_rkey_h key = nullptr, same = nullptr;
    ASSERT_EQ(ucp_ep_rkey_unpack(cluster_.ep, packed_.data(), &key), UCS_OK);
    ASSERT_EQ(ucp_ep_rkey_unpack(cluster_.ep, packed_.data(), &same), UCS_OK);
    const ucp_rkey_compare_params_t params{};
    int result = 7;
    EXPECT_EQ(ucp_rkey_compare(cluster_.a.handle(), key, same, &params, &result), UCS_OK);
    EXPECT_EQ(result, 0);
    EXPECT_EQ(ucp_rkey_compare(cluster_.a.handle(), key, same, nullptr, &result),
              UCS_ERR_INVALID_PARAM);
    void* pointer = nullptr;
    EXPECT_EQ(ucp_rkey_ptr(key, reinterpret_cast<uintptr_t>(memory_), &pointer),
              UCS_ERR_UNREACHABLE);
    Memory* other = nullptr;
    ASSERT_EQ(Memory::create(cluster_.b().context().domains(), memory_, 50, &other), UCS_OK);
    std::vector<std::byte> packed(packed_key_size(*other));
    pack_key(*other, packed);
    ucp_rkey_h different = nullptr;
    ASSERT_EQ(ucp_ep_rkey_unpack(cluster_.ep, packed.data(), &different), UCS_OK);
    int reverse = 0;
    EXPECT_EQ(ucp_rkey_compare(cluster_.a.handle(), key, different, &params, &result), UCS_OK);
    EXPECT_EQ(ucp_rkey_compare(cluster_.a.handle(), different, key, &params, &reverse), UCS_OK);
    EXPECT_NE(result, 0);
    EXPECT_EQ(result, -reverse);
    Memory::destroy(other);
    for (ucp_rkey_h each : {key, same, different}) ucp_rkey_destroy(each);

    ucs::LogCapture log;
    packed.back() ^= std::byte{1};
    EXPECT_EQ(ucp_ep_rkey_unpack(cluster_.ep, packed.data(), &key), UCS_ERR_INVALID_ADDR);
    EXPECT_TRUE(log.contains("have changed"));
    packed[0] ^= std::byte{1};
    EXPECT_EQ(ucp_ep_rkey_unpack(cluster_.ep, packed.data(), &key), UCS_ERR_INVALID_ADDR);
    EXPECT_TRUE(log.contains("not one of this library's"));
    EXPECT_EQ(ucp_ep_rkey_unpack(cluster_.ep, nullptr, &key), UCS_ERR_INVALID_PARAM);
}

TEST_F(PackedKeys, ZerosAreAKeyOfNoMemoryDomain) {
    // As long as UCX's shortest key, so that a sanitizer sees reads past the end.
    std::vector<std::byte> zeros(kAnonymousKey);
    ucp_rkey_h key = nullptr;
    ASSERT_EQ(ucp_ep_rkey_unpack(cluster_.ep, zeros.data(), &key), UCS_OK);
    void* pointer = nullptr;
    EXPECT_EQ(ucp_rkey_ptr(key, reinterpret_cast<uintptr_t>(memory_), &pointer),
              UCS_ERR_UNREACHABLE);
    ucp_rkey_destroy(key);
    // In a message it says nothing.
    EXPECT_EQ(parse(zeros), UCS_ERR_INVALID_ADDR);
    zeros.resize(sizeof(PackedKeyHeader));
    EXPECT_EQ(parse(zeros), UCS_ERR_INVALID_ADDR);
    zeros[8] = std::byte{1};
    EXPECT_EQ(ucp_ep_rkey_unpack(cluster_.ep, zeros.data(), &key), UCS_ERR_INVALID_ADDR);
}

TEST(RemoteKeyPointer, LeadsToMemoryOfTheSameContext) {
    Settings settings;
    settings.loopback = true;
    Cluster cluster(settings);
    char memory[100];
    Memory* mapped = nullptr;
    ASSERT_EQ(Memory::create(cluster.a.context().domains(), memory, sizeof(memory), &mapped),
              UCS_OK);
    std::vector<std::byte> packed(packed_key_size(*mapped));
    pack_key(*mapped, packed);
    ucp_rkey_h key = nullptr;
    ASSERT_EQ(ucp_ep_rkey_unpack(cluster.ep, packed.data(), &key), UCS_OK);
    void* pointer = nullptr;
    EXPECT_EQ(ucp_rkey_ptr(key, reinterpret_cast<uintptr_t>(memory) + 10, &pointer), UCS_OK);
    EXPECT_EQ(pointer, memory + 10);
    EXPECT_EQ(ucp_rkey_ptr(key, reinterpret_cast<uintptr_t>(memory) + 101, &pointer),
              UCS_ERR_INVALID_ADDR);
    ucp_rkey_destroy(key);
    Memory::destroy(mapped);
}

}  // namespace
}  // namespace ucp::test
