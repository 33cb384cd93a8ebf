// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstring>
#include <random>

#include "unit/ucp/cluster.h"
#include "unit/ucp/region.h"

namespace ucp::test {
namespace {

constexpr size_t kInitiator = 0;
constexpr size_t kBatchTarget = 1;

struct Notified {
    uint64_t sender;
    uint64_t value;
};

// A worker with memory and a peer with memory.
class Pair {
  public:
    explicit Pair(size_t length, const Cluster::Options& options = {})
        : cluster(2, options),
          local(cluster.context(kInitiator), length),
          remote(cluster.context(kBatchTarget), length) {
        remote.open(endpoint());
        EXPECT_EQ(ucpx_worker_set_notify_handler(cluster.worker(kBatchTarget), on_notified, this),
                  UCS_OK);
    }
    ~Pair() {
        // The key goes before the worker that it was opened for.
        remote.close();
    }

    ucp_ep_h endpoint() { return cluster.endpoint(kInitiator, kBatchTarget); }
    ucpx_piece_t piece(size_t local_offset, size_t remote_offset, size_t length) {
        return {local.bytes.data() + local_offset, remote.address(remote_offset), length,
                local.memory, remote.key};
    }
    // Pieces of random length, in another order at the peer than here.
    std::vector<ucpx_piece_t> scattered(size_t count, size_t longest, uint64_t seed) {
        std::mt19937_64 random(seed);
        std::vector<size_t> lengths(count);
        for (size_t& length : lengths) length = random() % (longest + 1);
        std::vector<size_t> order(count);
        for (size_t i = 0; i < count; ++i) order[i] = i;
        std::ranges::shuffle(order, random);
        std::vector<ucpx_piece_t> pieces(count);
        size_t here = 0;
        for (size_t i = 0; i < count; ++i) {
            pieces[i] = piece(here, 0, lengths[i]);
            here += lengths[i];
        }
        size_t there = 0;
        for (const size_t i : order) {
            pieces[i].remote_addr = remote.address(there);
            there += lengths[i];
        }
        EXPECT_LE(here, local.bytes.size());
        return pieces;
    }
    ucs_status_ptr_t start(bool is_put, const std::vector<ucpx_piece_t>& pieces,
                           std::optional<uint64_t> notification = {},
                           const ucp_request_param_t& param = kNothing) {
        return start_batch(endpoint(), is_put, pieces, notification, param);
    }
    void expect_equal(const std::vector<ucpx_piece_t>& pieces) const {
        for (size_t i = 0; i < pieces.size(); ++i) ASSERT_TRUE(is_equal(pieces[i])) << i;
    }

    Cluster cluster;
    Region local;
    Region remote;
    std::vector<Notified> notified;
    std::function<void(uint64_t)> on_notification;

  private:
    static void on_notified(void* self, uint64_t sender, uint64_t value) {
        auto& pair = *static_cast<Pair*>(self);
        pair.notified.push_back({sender, value});
        if (pair.on_notification) pair.on_notification(value);
    }
};

struct Ability {
    const char* name;
    uint32_t capabilities;
};
constexpr uint32_t kMessages = uct::kAmShort | uct::kAmBcopy | uct::kCheckPeer;
constexpr Ability kAbilities[] = {
    {"one_sided", kMessages | uct::kPutShort | uct::kPutBcopy | uct::kPutZcopy | uct::kGetBcopy |
                      uct::kGetZcopy},
    {"emulated", kMessages},
    {"chains", kMessages | uct::kPutShort | uct::kPutBcopy | uct::kPutZcopy | uct::kGetBcopy |
                   uct::kGetZcopy | uct::kPutChain | uct::kGetChain},
    {"ordered_chains", kMessages | uct::kPutShort | uct::kPutBcopy | uct::kPutZcopy |
                           uct::kGetBcopy | uct::kGetZcopy | uct::kPutChain | uct::kGetChain |
                           uct::kOrderedChain},
    {"pieces", kMessages | uct::kPutShort | uct::kPutBcopy | uct::kPutZcopy | uct::kGetBcopy |
                   uct::kGetZcopy | uct::kPieces},
};

Cluster::Options options_of(const Ability& ability, uint64_t seed, double trouble) {
    Cluster::Options options;
    options.fabric.capabilities = ability.capabilities;
    options.fabric.no_resource_probability = trouble;
    options.fabric.stall_probability = trouble;
    options.fabric.seed = seed;
    return options;
}

class Batch : public testing::TestWithParam<Ability> {
  protected:
    static Cluster::Options options(uint64_t seed, double trouble = 0.1) {
        return options_of(GetParam(), seed, trouble);
    }
};
TEST_P(Batch, ThousandsOfPiecesLandWhereTheyBelong) {
    Pair pair(3 << 20, options(1));
    const auto pieces = pair.scattered(3000, 2000, 2);
    pair.local.fill(3);
    ASSERT_EQ(pair.cluster.finish(pair.start(true, pieces)), UCS_OK);
    pair.expect_equal(pieces);
    std::fill(pair.local.bytes.begin(), pair.local.bytes.end(), 0);
    ASSERT_EQ(pair.cluster.finish(pair.start(false, pieces)), UCS_OK);
    pair.expect_equal(pieces);
    EXPECT_NE(pair.remote.bytes, std::vector<uint8_t>(pair.remote.bytes.size()));
}

TEST(BatchOfCopies, TakesManyPiecesACallAndLongOnesByThemselves) {
    Cluster::Options options;
    options.fabric.capabilities = kAbilities[4].capabilities;
    options.fabric.pieces_at_once = 1000;
    Pair pair(8 << 20, options);
    pair.local.fill(3);
    const auto& counters = pair.cluster.fabric.counters(uct::mock::Kind::kScalable);
    std::vector<ucpx_piece_t> pieces;
    for (size_t i = 0; i < 1000; ++i) pieces.push_back(pair.piece(i * 4096, i * 4096, 4096));
    ASSERT_EQ(pair.cluster.finish(pair.start(true, pieces)), UCS_OK);
    pair.expect_equal(pieces);
    EXPECT_LE(counters.copies, 2u);
    EXPECT_EQ(counters.put, 0u);
    EXPECT_EQ(counters.am, 0u);

    const size_t far = 5 << 20;
    pieces = {pair.piece(far, far, 100), pair.piece(far + 100, far + 100, 100000),
              pair.piece(far + 100100, far + 100100, 1000)};
    ASSERT_EQ(pair.cluster.finish(pair.start(true, pieces, 5)), UCS_OK);
    pair.expect_equal(pieces);
    EXPECT_GT(counters.put, 0u);
    ASSERT_TRUE(pair.cluster.until([&] { return pair.notified.size() == 1; }));
}

TEST(BatchOfCopies, TheFirstPieceThatIsRefusedEndsIt) {
    Cluster::Options options;
    options.fabric.capabilities = kAbilities[4].capabilities;
    Pair pair(1 << 20, options);
    pair.local.fill(3);
    Region other(pair.cluster.context(kBatchTarget), 4096);
    other.open(pair.endpoint());
    other.unmap();
    for (const bool is_put : {true, false}) {
        std::vector<ucpx_piece_t> pieces;
        for (size_t i = 0; i < 100; ++i) pieces.push_back(pair.piece(i * 4096, i * 4096, 4096));
        pieces[70].rkey = other.key;
        pieces[70].remote_addr = other.address();
        EXPECT_EQ(pair.cluster.finish(pair.start(is_put, pieces, 5)), UCS_ERR_REJECTED);
        EXPECT_TRUE(pair.notified.empty());
        for (size_t i = 0; i < 70; ++i) ASSERT_TRUE(is_equal(pieces[i]));
        EXPECT_FALSE(is_equal(pieces[71]));
        pair.local.fill(4);
    }
    other.close();
}

// The pieces as UCX's interface takes them.
struct List {
    explicit List(const std::vector<ucpx_piece_t>& pieces) {
        for (const ucpx_piece_t& piece : pieces) {
            buffers.push_back(piece.local_addr);
            lengths.push_back(piece.length);
            handles.push_back(piece.memh);
            addresses.push_back(piece.remote_addr);
            keys.push_back(piece.rkey);
        }
        local.field_mask = UCP_DT_LOCAL_SGL_FIELD_BUFFERS | UCP_DT_LOCAL_SGL_FIELD_LENGTHS |
                           UCP_DT_LOCAL_SGL_FIELD_MEMHS;
        local.buffers = buffers.data();
        local.lengths = lengths.data();
        local.memhs = handles.data();
        remote.field_mask = UCP_DT_REMOTE_SGL_FIELD_REMOTE_ADDRS | UCP_DT_REMOTE_SGL_FIELD_LENGTHS |
                            UCP_DT_REMOTE_SGL_FIELD_RKEYS;
        remote.remote_addrs = addresses.data();
        remote.lengths = lengths.data();
        remote.rkeys = keys.data();
        param.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REMOTE_DATATYPE |
                             UCP_OP_ATTR_FIELD_REMOTE | UCP_OP_ATTR_FIELD_REMOTE_COUNT;
        param.datatype = param.remote_datatype = ucp_dt_make_sgl();
        param.remote = &remote;
        param.remote_count = pieces.size();
    }
    ucs_status_ptr_t start(ucp_ep_h endpoint, bool is_put) {
        return is_put ? ucp_put_nbx(endpoint, &local, buffers.size(), UCP_REMOTE_ADDR_INVALID,
                                    UCP_RKEY_INVALID, &param)
                      : ucp_get_nbx(endpoint, &local, buffers.size(), UCP_REMOTE_ADDR_INVALID,
                                    UCP_RKEY_INVALID, &param);
    }

    std::vector<void*> buffers;
    std::vector<size_t> lengths;
    std::vector<ucp_mem_h> handles;
    std::vector<uint64_t> addresses;
    std::vector<ucp_rkey_h> keys;
    ucp_dt_local_sgl_t local{};
    ucp_dt_remote_sgl_t remote{};
    ucp_request_param_t param{};
};

TEST_P(Batch, ListsOfPutAndGetDoTheSame) {
    Pair pair(1 << 20, options(1));
    const auto pieces = pair.scattered(500, 4000, 2);
    for (const bool has_handles : {true, false}) {
        List list(pieces);
        if (!has_handles) list.local.field_mask &= ~uint64_t{UCP_DT_LOCAL_SGL_FIELD_MEMHS};
        pair.local.fill(3);
        std::fill(pair.remote.bytes.begin(), pair.remote.bytes.end(), 0);
        ASSERT_EQ(pair.cluster.finish(list.start(pair.endpoint(), true)), UCS_OK);
        pair.expect_equal(pieces);
        std::fill(pair.local.bytes.begin(), pair.local.bytes.end(), 0);
        ASSERT_EQ(pair.cluster.finish(list.start(pair.endpoint(), false)), UCS_OK);
        pair.expect_equal(pieces);
        EXPECT_NE(pair.remote.bytes, std::vector<uint8_t>(pair.remote.bytes.size()));
    }
}

TEST_P(Batch, ListsThatDoNotFitAreRefused) {
    Pair pair(1 << 16, options(1, 0));
    const auto pieces = pair.scattered(4, 1000, 2);
    const auto result = [&](auto change) {
        List list(pieces);
        change(list);
        return pair.cluster.finish(list.start(pair.endpoint(), true));
    };
    EXPECT_EQ(result([](List&) {}), UCS_OK);
    EXPECT_EQ(result([](List& list) { list.param.remote_count = 3; }), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(result([](List& list) { list.param.remote = nullptr; }), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(result([](List& list) { list.param.remote_datatype = ucp_dt_make_contig(1); }),
              UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(result([](List& list) { list.param.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE; }),
              UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(result([](List& list) { list.keys[1] = nullptr; }), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(result([](List& list) { list.addresses[1] += 1 << 20; }), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(result([](List& list) { list.local.field_mask = UCP_DT_LOCAL_SGL_FIELD_BUFFERS; }),
              UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(result([](List& list) { list.remote.field_mask = UCP_DT_REMOTE_SGL_FIELD_RKEYS; }),
              UCS_ERR_INVALID_PARAM);
    std::vector<size_t> shorter(4, 1);
    EXPECT_EQ(result([&](List& list) { list.remote.lengths = shorter.data(); }),
              UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(result([](List& list) { list.local.field_mask |= UCP_DT_LOCAL_SGL_FIELD_COUNTS; }),
              UCS_ERR_UNSUPPORTED);
    // Of messages lists are no datatype.
    List list(pieces);
    EXPECT_EQ(UCS_PTR_STATUS(ucp_tag_send_nbx(pair.endpoint(), &list.local, 4, 1, &list.param)),
              UCS_ERR_INVALID_PARAM);
}

TEST_P(Batch, PiecesOutOfBoundsAreRefusedBeforeAnythingIsPosted) {
    constexpr size_t kLength = 1 << 16;
    constexpr size_t kPieces = 8;
    constexpr size_t kPiece = kLength / kPieces;
    Pair pair(kLength, options(1, 0));
    pair.local.fill(1);
    const auto wrong = [&](unsigned kind, ucpx_piece_t piece) {
        switch (kind) {
            case 0:
                piece.local_addr = pair.local.bytes.data() + kLength - kPiece + 1;
                break;
            case 1:
                piece.local_addr = pair.local.bytes.data() - 1;
                break;
            case 2:
                piece.remote_addr = pair.remote.address(kLength - kPiece + 1);
                break;
            case 3:
                piece.remote_addr = pair.remote.address() - 1;
                break;
            case 4:
                piece.length = SIZE_MAX;
                break;
            case 5:
                piece.memh = nullptr;
                break;
            case 6:
                piece.rkey = nullptr;
                break;
            case 7:  // nothing is moved, and yet
                piece.remote_addr = pair.remote.address(kLength + 1);
                piece.length = 0;
                break;
        }
        return piece;
    };
    for (const bool is_put : {true, false}) {
        for (size_t position = 0; position < kPieces; ++position) {
            for (unsigned kind = 0; kind < 8; ++kind) {
                std::vector<ucpx_piece_t> pieces;
                for (size_t i = 0; i < kPieces; ++i) {
                    pieces.push_back(pair.piece(i * kPiece, i * kPiece, kPiece));
                }
                pieces[position] = wrong(kind, pieces[position]);
                EXPECT_EQ(UCS_PTR_STATUS(pair.start(is_put, pieces, 1)), UCS_ERR_INVALID_PARAM)
                    << position << " " << kind;
            }
        }
    }
    pair.cluster.steps(1000);
    EXPECT_EQ(pair.remote.bytes, std::vector<uint8_t>(kLength));
    EXPECT_EQ(pair.local.bytes, pattern(kLength, 1));
    EXPECT_TRUE(pair.notified.empty());
    const auto& counters = pair.cluster.fabric.counters(uct::mock::Kind::kScalable);
    EXPECT_EQ(counters.put + counters.get + counters.am, 0u);
}

TEST_P(Batch, MemoryOfAnotherContextIsRefused) {
    Pair pair(4096, options(1, 0));
    ucpx_piece_t piece = pair.piece(0, 0, 64);
    piece.local_addr = pair.remote.bytes.data();
    piece.memh = pair.remote.memory;
    EXPECT_EQ(UCS_PTR_STATUS(pair.start(true, {piece})), UCS_ERR_INVALID_PARAM);
}

TEST_P(Batch, EmptyPiecesMoveNothingAndNotifyAllTheSame) {
    Pair pair(4096, options(1, 0));
    pair.local.fill(1);
    EXPECT_EQ(pair.cluster.finish(pair.start(true, {})), UCS_OK);
    EXPECT_EQ(
        pair.cluster.finish(pair.start(true, {pair.piece(4096, 0, 0), pair.piece(0, 4096, 0)}, 7)),
        UCS_OK);
    ASSERT_TRUE(pair.cluster.until([&] { return !pair.notified.empty(); }));
    EXPECT_EQ(pair.notified[0].value, 7u);
    EXPECT_EQ(pair.notified[0].sender, pair.cluster.uuid(kInitiator));
    EXPECT_EQ(pair.remote.bytes, std::vector<uint8_t>(4096));
    ASSERT_EQ(pair.cluster.finish(pair.start(true, {pair.piece(0, 0, 0), pair.piece(0, 8, 64)})),
              UCS_OK);
    EXPECT_TRUE(is_equal(pair.piece(0, 8, 64)));
}

TEST_P(Batch, ANotificationOvertakesNoByte) {
    constexpr size_t kBatches = 12;
    constexpr size_t kArea = 1 << 16;
    Pair pair(kBatches * kArea, options(5, 0.3));
    pair.local.fill(9);
    std::vector<std::vector<ucpx_piece_t>> batches(kBatches);
    for (size_t i = 0; i < kBatches; ++i) {
        for (size_t offset = 0; offset < kArea; offset += 4096) {
            batches[i].push_back(
                pair.piece(i * kArea + offset, i * kArea + kArea - 4096 - offset, 4096));
        }
    }
    pair.on_notification = [&](uint64_t value) { pair.expect_equal(batches[value]); };
    std::vector<ucs_status_ptr_t> requests;
    for (size_t i = 0; i < kBatches; ++i) requests.push_back(pair.start(true, batches[i], i));
    for (const ucs_status_ptr_t request : requests) {
        EXPECT_EQ(pair.cluster.finish(request), UCS_OK);
    }
    ASSERT_TRUE(pair.cluster.until([&] { return pair.notified.size() == kBatches; }));
}

TEST_P(Batch, PayloadsComeOnceAndBehindTheBytesWhateverWaits) {
    constexpr size_t kBatches = 100, kArea = 1 << 12;
    Pair pair(kBatches * kArea, options(7, 0.3));
    pair.local.fill(9);
    const auto length = [](uint64_t value) { return value % 7 * 3000; };
    std::vector<uint64_t> told;
    struct Listener {
        Pair& pair;
        std::function<void(const ucpx_notification_t&)> listen;
    } listener{pair, [&](const ucpx_notification_t& notification) {
                   const uint64_t value = notification.value;
                   told.push_back(value);
                   const auto* const bytes = static_cast<const uint8_t*>(notification.payload);
                   EXPECT_EQ(std::vector(bytes, bytes + notification.payload_length),
                             pattern(length(value), value));
                   pair.expect_equal({pair.piece(value * kArea, value * kArea, kArea)});
               }};
    const auto listen = [](void* arg, const ucpx_notification_t* notification) {
        static_cast<Listener*>(arg)->listen(*notification);
    };
    EXPECT_EQ(ucpx_worker_set_notify_handler(pair.cluster.worker(kBatchTarget), nullptr, nullptr),
              UCS_OK);
    std::vector<ucs_status_ptr_t> requests;
    for (size_t i = 0; i < kBatches; ++i) {
        requests.push_back(start_telling(pair.endpoint(), true,
                                         {pair.piece(i * kArea, i * kArea, kArea)}, i,
                                         pattern(length(i), i)));
        pair.cluster.steps(20);
    }
    pair.cluster.steps(3000);
    EXPECT_TRUE(told.empty());
    EXPECT_LT(pair.cluster.inner(kBatchTarget).notifier().kept(), kBatches / 2);
    EXPECT_EQ(
        ucpx_worker_set_notification_handler(pair.cluster.worker(kBatchTarget), listen, &listener),
        UCS_OK);
    for (const ucs_status_ptr_t request : requests) EXPECT_EQ(pair.cluster.finish(request), UCS_OK);
    ASSERT_TRUE(pair.cluster.until([&] { return told.size() == kBatches; }));
    std::ranges::sort(told);
    for (size_t i = 0; i < kBatches; ++i) EXPECT_EQ(told[i], i);
}

TEST_P(Batch, TheEndOfAPutMeansThatItsBytesAreThere) {
    Pair pair(1 << 18, options(6, 0.3));
    pair.local.fill(4);
    const auto pieces = pair.scattered(100, 2000, 5);
    struct Check {
        Pair& pair;
        const std::vector<ucpx_piece_t>& pieces;
        unsigned calls = 0;
    } check{pair, pieces};
    ucp_request_param_t param{};
    param.op_attr_mask =
        UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    param.user_data = &check;
    param.cb.send = [](void*, ucs_status_t status, void* arg) {
        auto& check = *static_cast<Check*>(arg);
        EXPECT_EQ(status, UCS_OK);
        ++check.calls;
        check.pair.expect_equal(check.pieces);
    };
    EXPECT_EQ(pair.cluster.finish(pair.start(true, pieces, {}, param)), UCS_OK);
    EXPECT_EQ(check.calls, 1u);
}

class BatchFailure : public testing::TestWithParam<Ability> {};

TEST_P(BatchFailure, AtAnyPacketEndsItOnceWithTheErrorAndWithoutNotification) {
    constexpr size_t kPieces = 24;
    constexpr size_t kPiece = 3000;
    for (const bool is_put : {true, false}) {
        for (uint64_t packet = 0;; ++packet) {
            SCOPED_TRACE(packet);
            Pair pair(kPieces * kPiece, options_of(GetParam(), packet + 1, 0.05));
            uint64_t seen = 0;
            pair.cluster.fabric.observe([&](const uct::mock::PacketEvent&) {
                if (seen++ == packet) {
                    pair.cluster.fabric.cut(pair.cluster.uuid(kInitiator),
                                            pair.cluster.uuid(kBatchTarget));
                }
            });
            std::vector<ucpx_piece_t> pieces;
            for (size_t i = 0; i < kPieces; ++i) {
                pieces.push_back(pair.piece(i * kPiece, i * kPiece, kPiece));
            }
            struct Ends {
                unsigned calls = 0;
                ucs_status_t status = UCS_OK;
            } ends;
            ucp_request_param_t param{};
            param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                                 UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
            param.user_data = &ends;
            param.cb.send = [](void*, ucs_status_t status, void* arg) {
                auto& ends = *static_cast<Ends*>(arg);
                ++ends.calls;
                ends.status = status;
            };
            const ucs_status_t status = pair.cluster.finish(pair.start(is_put, pieces, 1, param));
            pair.cluster.steps(300);
            EXPECT_EQ(ends.calls, 1u);
            EXPECT_EQ(ends.status, status);
            if (status != UCS_OK) {
                EXPECT_TRUE(pair.notified.empty());
                continue;
            }
            EXPECT_GT(seen, kPieces);
            break;  // all went before the cut
        }
    }
}

TEST_P(Batch, EntriesOfALaterHeaderAreRead) {
    struct Longer {
        ucpx_piece_t piece;
        uint64_t more[3];
    };
    Pair pair(4096, options(1, 0));
    pair.local.fill(1);
    std::vector<Longer> entries;
    for (size_t i = 0; i < 8; ++i)
        entries.push_back({pair.piece(i * 512, i * 512, 512), {1, 2, 3}});
    ucpx_batch_t batch{};
    batch.pieces = &entries[0].piece;
    batch.num_pieces = entries.size();
    batch.entry_size = sizeof(Longer);
    EXPECT_EQ(pair.cluster.finish(ucpx_put_batch_nbx(pair.endpoint(), &batch, &kNothing)), UCS_OK);
    EXPECT_EQ(pair.remote.bytes, pair.local.bytes);
    batch.entry_size = sizeof(ucpx_piece_t) - 1;
    EXPECT_EQ(UCS_PTR_STATUS(ucpx_put_batch_nbx(pair.endpoint(), &batch, &kNothing)),
              UCS_ERR_INVALID_PARAM);
}

TEST_P(Batch, ManyRequestsAreTestedInOneCall) {
    Pair pair(1 << 16, options(1, 0));
    std::vector<ucs_status_ptr_t> requests{nullptr, UCS_STATUS_PTR(UCS_ERR_CANCELED)};
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    for (size_t i = 0; i < 14; ++i) {
        requests.push_back(
            pair.start(i % 2 == 0, {pair.piece(i * 4096, i * 4096, 4096)}, {}, param));
    }
    std::vector<ucs_status_t> statuses(requests.size(), UCS_ERR_LAST);
    EXPECT_EQ(ucpx_request_test_batch(requests.data(), requests.size(), statuses.data()), 2u);
    EXPECT_EQ(statuses[0], UCS_OK);
    EXPECT_EQ(statuses[1], UCS_ERR_CANCELED);
    EXPECT_TRUE(std::all_of(statuses.begin() + 2, statuses.end(),
                            [](ucs_status_t status) { return status == UCS_INPROGRESS; }));
    ASSERT_TRUE(pair.cluster.until([&] {
        return ucpx_request_test_batch(requests.data(), requests.size(), nullptr) ==
               requests.size();
    }));
    EXPECT_EQ(ucpx_request_test_batch(requests.data(), requests.size(), statuses.data()),
              requests.size());
    EXPECT_TRUE(std::all_of(statuses.begin() + 2, statuses.end(),
                            [](ucs_status_t status) { return status == UCS_OK; }));
    EXPECT_EQ(ucpx_request_test_batch(nullptr, 0, nullptr), 0u);
    for (size_t i = 2; i < requests.size(); ++i) ucp_request_free(requests[i]);
}

INSTANTIATE_TEST_SUITE_P(Transports, BatchFailure,
                         testing::Values(kAbilities[0], kAbilities[2], kAbilities[3]),
                         [](const auto& info) { return std::string(info.param.name); });
INSTANTIATE_TEST_SUITE_P(Transports, Batch, testing::ValuesIn(kAbilities),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ucp::test
