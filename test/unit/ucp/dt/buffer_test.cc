// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/dt/buffer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "unit/ucp/pattern.h"

namespace {

using ucp::Packer;
using ucp::Unpacker;
using ucp::test::pattern;

// Splits a byte vector into pieces of random lengths, empty ones among them.
std::vector<ucp_dt_iov_t> pieces_of(std::vector<uint8_t>& bytes, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<ucp_dt_iov_t> iov;
    for (size_t offset = 0; offset < bytes.size();) {
        size_t length = std::min<size_t>(random() % 40, bytes.size() - offset);
        iov.push_back({length ? bytes.data() + offset : nullptr, length});
        offset += length;
    }
    iov.push_back({nullptr, 0});
    return iov;
}

// A generic datatype that stores every byte inverted and counts its states.
struct Inverter {
    struct State {
        Inverter* owner;
        uint8_t* buffer;
        size_t length;
    };
    static void* start_pack(void* context, const void* buffer, size_t count) {
        auto* self = static_cast<Inverter*>(context);
        ++self->open;
        return new State{self, static_cast<uint8_t*>(const_cast<void*>(buffer)), count};
    }
    static void* start_unpack(void* context, void* buffer, size_t count) {
        return start_pack(context, buffer, count);
    }
    static size_t packed_size(void* state) { return static_cast<State*>(state)->length; }
    static size_t pack(void* state, size_t offset, void* to, size_t room) {
        auto* self = static_cast<State*>(state);
        size_t length = std::min({room, self->length - offset, size_t{100}});
        for (size_t i = 0; i < length; ++i)
            static_cast<uint8_t*>(to)[i] = ~self->buffer[offset + i];
        return length;
    }
    static ucs_status_t unpack(void* state, size_t offset, const void* from, size_t length) {
        auto* self = static_cast<State*>(state);
        if (self->owner->refuse) return UCS_ERR_NO_MEMORY;
        for (size_t i = 0; i < length; ++i)
            self->buffer[offset + i] = ~static_cast<const uint8_t*>(from)[i];
        return UCS_OK;
    }
    static void finish(void* state) {
        --static_cast<State*>(state)->owner->open;
        delete static_cast<State*>(state);
    }
    ucp_datatype_t create() {
        ucp_generic_dt_ops_t ops = {start_pack, start_unpack, packed_size, pack, unpack, finish};
        ucp_datatype_t type = 0;
        EXPECT_EQ(ucp::create_generic_datatype(ops, this, &type), UCS_OK);
        return type;
    }
    int open = 0;
    bool refuse = false;
};

TEST(Buffer, ContigResumesAtAnyOffset) {
    std::vector<uint8_t> source = pattern(1000, 1);
    Packer packer;
    ASSERT_EQ(packer.open(source.data(), 250, ucp_dt_make_contig(4)), UCS_OK);
    EXPECT_EQ(packer.length(), 1000u);
    std::vector<uint8_t> out(1000);
    for (size_t offset : {600u, 0u, 300u}) {
        size_t want = offset == 600 ? 400 : 300;
        EXPECT_EQ(packer.pack(offset, out.data() + offset, want), want);
    }
    EXPECT_EQ(packer.pack(990, out.data() + 990, 500), 10u);
    EXPECT_EQ(packer.pack(1000, out.data(), 500), 0u);
    EXPECT_EQ(out, source);
    packer.close();
}

class IovSeeds : public testing::TestWithParam<unsigned> {};

TEST_P(IovSeeds, RandomOffsetsOnBothSides) {
    std::mt19937 random(GetParam());
    std::vector<uint8_t> source = pattern(2000, GetParam());
    std::vector<uint8_t> target(2000);
    std::vector<ucp_dt_iov_t> from = pieces_of(source, GetParam());
    std::vector<ucp_dt_iov_t> to = pieces_of(target, GetParam() + 1000);
    Packer packer;
    Unpacker unpacker;
    ASSERT_EQ(packer.open(from.data(), from.size(), UCP_DATATYPE_IOV), UCS_OK);
    ASSERT_EQ(unpacker.open(to.data(), to.size(), UCP_DATATYPE_IOV), UCS_OK);
    ASSERT_EQ(packer.length(), 2000u);
    std::vector<size_t> starts;
    for (size_t offset = 0; offset < 2000; offset += 50) starts.push_back(offset);
    std::shuffle(starts.begin(), starts.end(), random);
    for (size_t offset : starts) {
        uint8_t fragment[50];
        ASSERT_EQ(packer.pack(offset, fragment, sizeof(fragment)), 50u);
        ASSERT_EQ(unpacker.unpack(offset, fragment, 50), UCS_OK);
    }
    EXPECT_EQ(source, target);

    for (int i = 0; i < 50; ++i) {
        size_t offset = random() % 2000, want = random() % (2000 - offset + 1), filled = 0;
        uct::Iov pieces[4];
        size_t described = packer.gather(offset, want, pieces, &filled);
        ASSERT_LE(described, want);
        ASSERT_TRUE(described == want || filled == 4);
        for (size_t piece = 0; piece < filled; ++piece) {
            ASSERT_GT(pieces[piece].length, 0u);
            ASSERT_EQ(
                std::memcmp(pieces[piece].buffer, source.data() + offset, pieces[piece].length), 0);
            offset += pieces[piece].length;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Seeds, IovSeeds, testing::Range(1u, 17u));

TEST(Buffer, EmptyBuffersOfEveryClass) {
    Packer packer;
    uint8_t byte = 0;
    size_t filled = 9;
    EXPECT_EQ(packer.open(nullptr, 0, ucp_dt_make_contig(1)), UCS_OK);
    EXPECT_EQ(packer.pack(0, &byte, 1), 0u);
    EXPECT_EQ(packer.gather(0, 5, {}, &filled), 0u);
    EXPECT_EQ(filled, 0u);
    EXPECT_EQ(packer.open(nullptr, 0, UCP_DATATYPE_IOV), UCS_OK);
    EXPECT_EQ(packer.pack(0, &byte, 1), 0u);
    EXPECT_EQ(packer.open(nullptr, 77, ucp_dt_make_contig(0)), UCS_OK);
    EXPECT_EQ(packer.length(), 0u);
    Unpacker unpacker;
    ASSERT_EQ(unpacker.open(nullptr, 0, UCP_DATATYPE_IOV), UCS_OK);
    EXPECT_EQ(unpacker.unpack(0, &byte, 0), UCS_OK);
    EXPECT_EQ(unpacker.unpack(0, &byte, 1), UCS_ERR_MESSAGE_TRUNCATED);
}

TEST(Buffer, RefusesWhatItCannotDescribe) {
    Packer packer;
    uint8_t byte = 0;
    EXPECT_EQ(packer.open(nullptr, 1, ucp_dt_make_contig(1)), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(packer.open(&byte, SIZE_MAX, ucp_dt_make_contig(8)), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(packer.open(&byte, 1, UCP_DATATYPE_STRIDED), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(packer.open(nullptr, 3, UCP_DATATYPE_IOV), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(packer.open(&byte, 1, UCP_DATATYPE_GENERIC), UCS_ERR_INVALID_PARAM);
    ucp_dt_iov_t holes[] = {{nullptr, 4}};
    EXPECT_EQ(packer.open(holes, 1, UCP_DATATYPE_IOV), UCS_ERR_INVALID_PARAM);
    ucp_dt_iov_t huge[] = {{&byte, SIZE_MAX}, {&byte, 2}};
    EXPECT_EQ(packer.open(huge, 2, UCP_DATATYPE_IOV), UCS_ERR_INVALID_PARAM);
}

TEST(Buffer, TruncationStoresWhatFits) {
    std::vector<uint8_t> source = pattern(64, 1);
    std::vector<uint8_t> target(40);
    std::vector<ucp_dt_iov_t> to = pieces_of(target, 3);
    Unpacker unpacker;
    ASSERT_EQ(unpacker.open(to.data(), to.size(), UCP_DATATYPE_IOV), UCS_OK);
    EXPECT_EQ(unpacker.unpack(0, source.data(), 30), UCS_OK);
    EXPECT_EQ(unpacker.unpack(30, source.data() + 30, 34), UCS_ERR_MESSAGE_TRUNCATED);
    EXPECT_EQ(unpacker.unpack(SIZE_MAX, source.data(), 2), UCS_ERR_MESSAGE_TRUNCATED);
    EXPECT_TRUE(std::equal(target.begin(), target.end(), source.begin()));
}

TEST(Buffer, GenericKeepsStateUntilClosed) {
    Inverter inverter;
    ucp_datatype_t type = inverter.create();
    std::vector<uint8_t> source = pattern(1000, 1), target(1000);
    Packer packer;
    Unpacker unpacker;
    ASSERT_EQ(packer.open(source.data(), source.size(), type), UCS_OK);
    ASSERT_EQ(unpacker.open(target.data(), target.size(), type), UCS_OK);
    EXPECT_EQ(inverter.open, 2);
    for (size_t offset = 0; offset < packer.length();) {
        uint8_t fragment[300];
        size_t packed = packer.pack(offset, fragment, sizeof(fragment));
        ASSERT_GT(packed, 0u);
        EXPECT_EQ(fragment[0], static_cast<uint8_t>(~source[offset]));
        ASSERT_EQ(unpacker.unpack(offset, fragment, packed), UCS_OK);
        offset += packed;
    }
    EXPECT_EQ(source, target);
    EXPECT_EQ(unpacker.unpack(999, source.data(), 2), UCS_ERR_MESSAGE_TRUNCATED);
    inverter.refuse = true;
    EXPECT_EQ(unpacker.unpack(0, source.data(), 2), UCS_ERR_NO_MEMORY);
    packer.close();
    unpacker.close();
    EXPECT_EQ(inverter.open, 0);
    size_t packed_size = 0;
    EXPECT_EQ(ucp::query_datatype(type, source.data(), 10, &packed_size), UCS_OK);
    EXPECT_EQ(packed_size, 10u);
    EXPECT_EQ(inverter.open, 0);
    ucp::destroy_datatype(type);
}

TEST(Datatype, NeedsAllCallbacks) {
    ucp_generic_dt_ops_t ops = {Inverter::start_pack, Inverter::start_unpack, nullptr,
                                Inverter::pack,       Inverter::unpack,       Inverter::finish};
    ucp_datatype_t type = 0;
    EXPECT_EQ(ucp::create_generic_datatype(ops, nullptr, &type), UCS_ERR_INVALID_PARAM);
}

}  // namespace
