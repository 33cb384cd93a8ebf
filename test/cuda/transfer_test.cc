// SPDX-License-Identifier: BSD-3-Clause

// Every operation between every pair of memory kinds, through the library as it is installed. Which
// transport: UCX_TLS, as transfers.sh sets it.

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cuda/device.h"
#include "ucp/api/ucp.h"
#include "ucp/api/ucpx.h"

namespace {

using cuda_test::Buffer;
using cuda_test::Kind;

constexpr uint64_t kTransferFeatures =
    UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_STREAM | UCP_FEATURE_RMA | UCP_FEATURE_AMO64;

struct Side {
    Side() {
        ucp_config_t* config = nullptr;
        EXPECT_EQ(ucp_config_read(nullptr, nullptr, &config), UCS_OK);
        ucp_params_t params{};
        params.field_mask = UCP_PARAM_FIELD_FEATURES;
        params.features = kTransferFeatures;
        EXPECT_EQ(ucp_init(&params, config, &context), UCS_OK);
        ucp_config_release(config);
        const ucp_worker_params_t worker_params{};
        EXPECT_EQ(ucp_worker_create(context, &worker_params, &worker), UCS_OK);
    }
    ~Side() {
        ucp_worker_destroy(worker);
        ucp_cleanup(context);
    }
    std::string address() const {
        ucp_address_t* bytes = nullptr;
        size_t length = 0;
        EXPECT_EQ(ucp_worker_get_address(worker, &bytes, &length), UCS_OK);
        std::string copy(reinterpret_cast<const char*>(bytes), length);
        ucp_worker_release_address(worker, bytes);
        return copy;
    }
    ucp_ep_h connect(const std::string& to) {
        ucp_ep_params_t params{};
        params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        params.address = reinterpret_cast<const ucp_address_t*>(to.data());
        ucp_ep_h made = nullptr;
        EXPECT_EQ(ucp_ep_create(worker, &params, &made), UCS_OK);
        return made;
    }

    ucp_context_h context = nullptr;
    ucp_worker_h worker = nullptr;
};

// Two workers of this process, or one that speaks to itself.
class TransferTest : public ::testing::Test {
  protected:
    static void SetUpTestSuite() {
        cuda_test::use_device(0);
        if (!library_has_cuda()) return;
        const char* const transports = std::getenv("UCX_TLS");
        first = new Side;
        const bool alone = transports != nullptr && std::string(transports) == "self";
        second = alone ? first : new Side;
        there = first->connect(second->address());
        back = alone ? there : second->connect(first->address());
    }
    static void TearDownTestSuite() {
        if (first == nullptr) return;
        const ucp_request_param_t plain{};
        (void)wait(ucp_ep_close_nbx(there, &plain));
        if (back != there) (void)wait(ucp_ep_close_nbx(back, &plain));
        if (second != first) delete second;
        delete first;
    }
    void SetUp() override {
        if (first == nullptr) {
            GTEST_SKIP() << "the library finds no CUDA module: run test/cuda/transfers.sh in the "
                            "build folder, which says where it is";
        }
        cuda_test::use_device(0);
    }

    static bool library_has_cuda() {
        const Side side;
        ucp_context_attr_t attributes{};
        attributes.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
        return ucp_context_query(side.context, &attributes) == UCS_OK &&
               (attributes.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA)) != 0;
    }

    static void progress() {
        ucp_worker_progress(first->worker);
        if (second != first) ucp_worker_progress(second->worker);
    }
    static ucs_status_t wait(ucs_status_ptr_t operation) {
        if (!UCS_PTR_IS_PTR(operation)) return UCS_PTR_RAW_STATUS(operation);
        while (ucp_request_check_status(operation) == UCS_INPROGRESS) progress();
        const ucs_status_t status = ucp_request_check_status(operation);
        ucp_request_free(operation);
        return status;
    }
    static ucs_status_t flush() {
        const ucp_request_param_t plain{};
        return wait(ucp_ep_flush_nbx(there, &plain));
    }

    // For each pair of kinds and each length: `transfer` moves `source` to `target`.
    static void for_all(const std::function<void(Buffer& source, Buffer& target)>& transfer,
                        std::span<const size_t> lengths = kLengths) {
        uint32_t seed = 0;
        constexpr Kind kFew[] = {Kind::kHeap, Kind::kDevice};
        for (const size_t length : lengths) {
            // Every pair with a message that goes at once and one that is announced.
            const bool all = length == 8 || length == 70000;
            const std::span<const Kind> kinds =
                all ? std::span<const Kind>(cuda_test::kAllKinds) : kFew;
            for (const Kind from : kinds) {
                for (const Kind to : kinds) {
                    SCOPED_TRACE(std::string(cuda_test::name_of(from)) + " to " +
                                 cuda_test::name_of(to) + ", " + std::to_string(length));
                    Buffer source(from, length);
                    Buffer target(to, length + 64);
                    target.fill(~++seed);
                    source.fill(seed);
                    transfer(source, target);
                    ASSERT_TRUE(target.holds(seed, 0, length));
                    ASSERT_TRUE(target.holds(~seed, length, 64)) << "written past the end";
                    ASSERT_FALSE(HasFatalFailure());
                }
            }
        }
    }

    struct Mapped {
        Mapped(Side& side, ucp_ep_h from, void* address, size_t length) : side(side) {
            ucp_mem_map_params_t params{};
            params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
            params.address = address;
            params.length = length;
            EXPECT_EQ(ucp_mem_map(side.context, &params, &memory), UCS_OK);
            unpack(from);
        }
        void unpack(ucp_ep_h from) {
            void* bytes = nullptr;
            size_t size = 0;
            EXPECT_EQ(ucp_rkey_pack(side.context, memory, &bytes, &size), UCS_OK);
            EXPECT_EQ(ucp_ep_rkey_unpack(from, bytes, &key), UCS_OK);
            ucp_rkey_buffer_release(bytes);
        }
        ~Mapped() {
            ucp_rkey_destroy(key);
            ucp_mem_unmap(side.context, memory);
        }
        Side& side;
        ucp_mem_h memory = nullptr;
        ucp_rkey_h key = nullptr;
    };

    static constexpr size_t kLengths[] = {1, 8, 3000, 70000, 600003};
    static Side *first, *second;
    static ucp_ep_h there, back;
    const ucp_request_param_t plain{};
};

Side* TransferTest::first = nullptr;
Side* TransferTest::second;
ucp_ep_h TransferTest::there;
ucp_ep_h TransferTest::back;

uint64_t address_of(const Buffer& buffer) {
    return reinterpret_cast<uintptr_t>(buffer.data());
}

TEST_F(TransferTest, TheContextKnowsTheTypes) {
    ucp_context_attr_t attributes{};
    attributes.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
    ASSERT_EQ(ucp_context_query(first->context, &attributes), UCS_OK);
    EXPECT_EQ(attributes.memory_types, UCS_BIT(UCS_MEMORY_TYPE_HOST) |
                                           UCS_BIT(UCS_MEMORY_TYPE_CUDA) |
                                           UCS_BIT(UCS_MEMORY_TYPE_CUDA_MANAGED));
}

TEST_F(TransferTest, TagMessages) {
    for_all([&](Buffer& source, Buffer& target) {
        ucs_status_ptr_t receive =
            ucp_tag_recv_nbx(second->worker, target.data(), source.length(), 5, ~0ul, &plain);
        ucs_status_ptr_t send = ucp_tag_send_nbx(there, source.data(), source.length(), 5, &plain);
        ASSERT_EQ(wait(send), UCS_OK);
        ASSERT_EQ(wait(receive), UCS_OK);
    });
}

TEST_F(TransferTest, TagMessagesThatNobodyExpects) {
    for_all([&](Buffer& source, Buffer& target) {
        ucs_status_ptr_t send =
            ucp_tag_send_sync_nbx(there, source.data(), source.length(), 6, &plain);
        ucp_tag_recv_info_t info;
        while (ucp_tag_probe_nb(second->worker, 6, ~0ul, 0, &info) == nullptr) progress();
        ucs_status_ptr_t receive =
            ucp_tag_recv_nbx(second->worker, target.data(), source.length(), 6, ~0ul, &plain);
        ASSERT_EQ(wait(receive), UCS_OK);
        ASSERT_EQ(wait(send), UCS_OK);
    });
}

struct Arrived {
    ucp_worker_h worker;
    Buffer* target;
    size_t length;
    bool is_done = false;
    ucs_status_t status = UCS_OK;
};

TEST_F(TransferTest, ActiveMessages) {
    Arrived arrived{second->worker, nullptr, 0};
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                         UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = 3;
    handler.arg = &arrived;
    handler.cb = [](void* arg, const void*, size_t, void* data, size_t length,
                    const ucp_am_recv_param_t* param) -> ucs_status_t {
        auto& told = *static_cast<Arrived*>(arg);
        if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) {
            told.status = length == told.length ? UCS_OK : UCS_ERR_MESSAGE_TRUNCATED;
            namespace abi = uct::cuda::abi;
            if (is_on_device(told.target->kind())) {
                if (cuda_test::driver().copy(address_of(*told.target),
                                             reinterpret_cast<uintptr_t>(data),
                                             length) != abi::kSuccess)
                    told.status = UCS_ERR_IO_ERROR;
            } else {
                std::memcpy(told.target->data(), data, length);
            }
            told.is_done = true;
            return UCS_OK;
        }
        ucp_request_param_t receive{};
        receive.op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
        receive.user_data = arg;
        receive.cb.recv_am = [](void* request, ucs_status_t status, size_t, void* user) {
            static_cast<Arrived*>(user)->status = status;
            static_cast<Arrived*>(user)->is_done = true;
            ucp_request_free(request);
        };
        (void)ucp_am_recv_data_nbx(told.worker, data, told.target->data(), told.length, &receive);
        return UCS_INPROGRESS;
    };
    ASSERT_EQ(ucp_worker_set_am_recv_handler(second->worker, &handler), UCS_OK);
    for (const unsigned flags : {0u, unsigned{UCP_AM_SEND_FLAG_RNDV}}) {
        ucp_request_param_t params{};
        params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        params.flags = flags;
        for_all([&](Buffer& source, Buffer& target) {
            arrived.target = &target;
            arrived.length = source.length();
            arrived.is_done = false;
            const uint64_t header = 77;
            const ucs_status_t sent = wait(ucp_am_send_nbx(
                there, 3, &header, sizeof(header), source.data(), source.length(), &params));
            while (sent == UCS_OK && !arrived.is_done) progress();
            arrived.target = nullptr;
            ASSERT_EQ(sent, UCS_OK);
            ASSERT_EQ(arrived.status, UCS_OK);
        });
    }
}

TEST_F(TransferTest, Streams) {
    ucp_request_param_t whole{};
    whole.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    whole.flags = UCP_STREAM_RECV_FLAG_WAITALL;
    for_all([&](Buffer& source, Buffer& target) {
        size_t length = 0;
        ucs_status_ptr_t receive =
            ucp_stream_recv_nbx(back, target.data(), source.length(), &length, &whole);
        ASSERT_EQ(wait(ucp_stream_send_nbx(there, source.data(), source.length(), &plain)), UCS_OK);
        ASSERT_EQ(wait(receive), UCS_OK);
    });
}

TEST_F(TransferTest, Puts) {
    for_all([&](Buffer& source, Buffer& target) {
        const Mapped mapped(*second, there, target.data(), target.length());
        ASSERT_EQ(wait(ucp_put_nbx(there, source.data(), source.length(), address_of(target),
                                   mapped.key, &plain)),
                  UCS_OK);
        ASSERT_EQ(flush(), UCS_OK);
    });
}

TEST_F(TransferTest, Gets) {
    for_all([&](Buffer& source, Buffer& target) {
        const Mapped mapped(*second, there, source.data(), source.length());
        ASSERT_EQ(wait(ucp_get_nbx(there, target.data(), source.length(), address_of(source),
                                   mapped.key, &plain)),
                  UCS_OK);
    });
}

// A range of memory in pieces of many lengths, one of them empty.
std::vector<ucpx_piece_t> cut(std::byte* local, ucp_mem_h memory, uint64_t remote, ucp_rkey_h key,
                              size_t length) {
    constexpr size_t kLengths[] = {1, 64, 999, 0, 20000, 70001, 4096};
    std::vector<ucpx_piece_t> pieces;
    for (size_t at = 0; at < length; at += pieces.back().length) {
        const size_t next = std::min(kLengths[pieces.size() % std::size(kLengths)], length - at);
        pieces.push_back({local + at, remote + at, next, memory, key});
    }
    return pieces;
}

// Batches, and what the peer is told of them.
class BatchTest : public TransferTest {
  protected:
    void SetUp() override {
        TransferTest::SetUp();
        if (IsSkipped()) return;
        ASSERT_EQ(ucpx_worker_set_notification_handler(
                      second->worker,
                      [](void* arg, const ucpx_notification_t* notification) {
                          *static_cast<uint64_t*>(arg) = notification->value;
                      },
                      &told),
                  UCS_OK);
    }
    void TearDown() override {
        if (!IsSkipped())
            (void)ucpx_worker_set_notification_handler(second->worker, nullptr, nullptr);
    }
    static ucpx_batch_t batch_of(const std::vector<ucpx_piece_t>& pieces) {
        ucpx_batch_t batch{};
        batch.pieces = pieces.data();
        batch.num_pieces = pieces.size();
        batch.entry_size = sizeof(ucpx_piece_t);
        return batch;
    }
    // The bytes are there when the peer is told, or when the batch has ended if it is not.
    void put(const std::vector<ucpx_piece_t>& pieces, bool is_told) {
        ucpx_batch_t batch = batch_of(pieces);
        if (!is_told) {
            ASSERT_EQ(wait(ucpx_put_batch_nbx(there, &batch, &plain)), UCS_OK);
            return;
        }
        batch.field_mask = UCPX_BATCH_FIELD_NOTIFICATION;
        batch.notification = ++number;
        ucs_status_ptr_t request = ucpx_put_batch_nbx(there, &batch, &plain);
        while (told != number) progress();
        if (!is_done(request)) pending = request;
    }
    // What was still under way when the peer was told.
    void end() { ASSERT_EQ(wait(std::exchange(pending, nullptr)), UCS_OK); }
    static bool is_done(ucs_status_ptr_t request) {
        EXPECT_FALSE(UCS_PTR_IS_ERR(request));
        return !UCS_PTR_IS_PTR(request);
    }

    static constexpr size_t kLong[] = {70000, 600003};
    uint64_t told = 0, number = 0;
    ucs_status_ptr_t pending = nullptr;
};

TEST_F(BatchTest, Puts) {
    bool is_told = false;
    for_all(
        [&](Buffer& source, Buffer& target) {
            const Mapped mine(*first, back, source.data(), source.length());
            const Mapped mapped(*second, there, target.data(), target.length());
            is_told = !is_told;
            ASSERT_NO_FATAL_FAILURE(put(
                cut(source.data(), mine.memory, address_of(target), mapped.key, source.length()),
                is_told));
            const auto bytes = target.bytes(), wanted = source.bytes();
            EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), bytes.begin()))
                << "told too early";
            ASSERT_NO_FATAL_FAILURE(end());
        },
        kLong);
}

TEST_F(BatchTest, Gets) {
    for_all(
        [&](Buffer& source, Buffer& target) {
            const Mapped mine(*first, back, target.data(), target.length());
            const Mapped mapped(*second, there, source.data(), source.length());
            const std::vector<ucpx_piece_t> pieces =
                cut(target.data(), mine.memory, address_of(source), mapped.key, source.length());
            const ucpx_batch_t batch = batch_of(pieces);
            ASSERT_EQ(wait(ucpx_get_batch_nbx(there, &batch, &plain)), UCS_OK);
        },
        kLong);
}

// What the adapter does not take of the pieces' memory goes otherwise.
TEST_F(BatchTest, OfMemoryThatTheAdapterRefuses) {
    if (cuda_test::is_real()) GTEST_SKIP() << "by injected faults";
    constexpr size_t kLength = 300000;
    Buffer here(Kind::kDevice, kLength), far(Kind::kDevice, kLength);
    for (const bool is_here : {true, false}) {
        cuda_test::set_faults(is_here ? "cuMemGetHandleForAddressRange:801" : "");
        const Mapped mine(*first, back, here.data(), kLength);
        cuda_test::set_faults(is_here ? "" : "cuMemGetHandleForAddressRange:801");
        const Mapped theirs(*second, there, far.data(), kLength);
        cuda_test::set_faults("");
        const std::vector<ucpx_piece_t> pieces =
            cut(here.data(), mine.memory, address_of(far), theirs.key, kLength);
        here.fill(1);
        far.clear();
        ASSERT_NO_FATAL_FAILURE(put(pieces, is_here));
        EXPECT_TRUE(far.holds(1));
        ASSERT_NO_FATAL_FAILURE(end());
        here.clear();
        const ucpx_batch_t batch = batch_of(pieces);
        ASSERT_EQ(wait(ucpx_get_batch_nbx(there, &batch, &plain)), UCS_OK);
        EXPECT_TRUE(here.holds(1));
    }
}

// Pieces of host memory and of a device's, to either, in one batch.
TEST_F(BatchTest, OfSeveralKindsOfMemory) {
    constexpr size_t kLength = 300000;
    Buffer host(Kind::kHeap, kLength), device(Kind::kDevice, kLength);
    Buffer there_host(Kind::kHeap, 2 * kLength), there_device(Kind::kDevice, 2 * kLength);
    const Mapped mine(*first, back, host.data(), kLength);
    const Mapped mine_too(*first, back, device.data(), kLength);
    const Mapped far(*second, there, there_host.data(), 2 * kLength);
    const Mapped far_too(*second, there, there_device.data(), 2 * kLength);
    for (uint32_t seed = 1; seed < 9; ++seed) {
        host.fill(seed);
        device.fill(100 + seed);
        there_host.clear();
        there_device.clear();
        std::vector<std::vector<ucpx_piece_t>> parts{
            cut(host.data(), mine.memory, address_of(there_host), far.key, kLength),
            cut(device.data(), mine_too.memory, address_of(there_host) + kLength, far.key, kLength),
            cut(host.data(), mine.memory, address_of(there_device), far_too.key, kLength),
            cut(device.data(), mine_too.memory, address_of(there_device) + kLength, far_too.key,
                kLength)};
        std::vector<ucpx_piece_t> pieces;
        for (size_t i = 0; i < parts.front().size(); ++i) {
            for (const auto& part : parts) pieces.push_back(part[i]);
        }
        ASSERT_NO_FATAL_FAILURE(put(pieces, seed % 2 == 0));
        for (const Buffer* target : {&there_host, &there_device}) {
            EXPECT_TRUE(target->holds(seed, 0, kLength));
            EXPECT_TRUE(target->holds(100 + seed, kLength, kLength, size_t{0} - kLength));
        }
        ASSERT_NO_FATAL_FAILURE(end());
        // And back.
        const auto hosts = host.bytes(), devices = device.bytes();
        host.clear();
        device.clear();
        pieces.clear();
        for (size_t i = 0; i < parts.front().size(); ++i) {
            pieces.push_back(parts[0][i]);
            pieces.push_back(parts[3][i]);
        }
        const ucpx_batch_t batch = batch_of(pieces);
        ASSERT_EQ(wait(ucpx_get_batch_nbx(there, &batch, &plain)), UCS_OK);
        EXPECT_TRUE(host.bytes() == hosts);
        EXPECT_TRUE(device.bytes() == devices);
    }
}

bool is_over(const std::string& some) {
    const char* const transports = std::getenv("UCX_TLS");
    return transports != nullptr && std::string(transports).find(some) != std::string::npos;
}

uint64_t registrations() {
    return cuda_test::calls_of("cuMemGetHandleForAddressRange");
}

// The adapters move the bytes.
class ByAdapterTest : public TransferTest {
  protected:
    void SetUp() override {
        TransferTest::SetUp();
        if (!is_over("dc_") && !is_over("rc_")) GTEST_SKIP() << "no adapters";
        // The endpoints know each other.
        uint64_t word = 0;
        ucs_status_ptr_t receive = ucp_tag_recv_nbx(second->worker, &word, 8, 1, ~0ul, &plain);
        ASSERT_EQ(wait(ucp_tag_send_nbx(there, &word, 8, 1, &plain)), UCS_OK);
        ASSERT_EQ(wait(receive), UCS_OK);
        ASSERT_EQ(flush(), UCS_OK);
    }
    static ucs_status_t wait_here(ucs_status_ptr_t operation) {
        if (!UCS_PTR_IS_PTR(operation)) return UCS_PTR_RAW_STATUS(operation);
        const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        ucs_status_t status = UCS_INPROGRESS;
        while (status == UCS_INPROGRESS && std::chrono::steady_clock::now() < until) {
            ucp_worker_progress(first->worker);
            status = ucp_request_check_status(operation);
        }
        if (status == UCS_INPROGRESS) (void)wait(operation);  // the peer's processor acts
        if (status != UCS_INPROGRESS) ucp_request_free(operation);
        return status;
    }
};

TEST_F(ByAdapterTest, PutsAndGetsNeedNobodyAtTheTarget) {
    if (!is_over("dc_")) GTEST_SKIP() << "lanes come and go, in agreement with the target";
    uint32_t seed = 0;
    for (const size_t length : {size_t{16}, size_t{5000}, size_t{40000}, size_t{3000000}}) {
        for (const auto& [here, far] :
             {std::pair(Kind::kDevice, Kind::kDevice), std::pair(Kind::kDevice, Kind::kHeap),
              std::pair(Kind::kHeap, Kind::kDevice), std::pair(Kind::kVirtual, Kind::kPool)}) {
            SCOPED_TRACE(std::string(cuda_test::name_of(here)) + " and " + cuda_test::name_of(far) +
                         ", " + std::to_string(length));
            Buffer mine(here, length), theirs(far, length);
            const Mapped target(*second, there, theirs.data(), length);
            const Mapped own(*first, back, mine.data(), length);
            ucp_request_param_t registered{};
            registered.op_attr_mask = UCP_OP_ATTR_FIELD_MEMH;
            registered.memh = own.memory;
            mine.fill(++seed);
            ASSERT_EQ(wait_here(ucp_put_nbx(there, mine.data(), length, address_of(theirs),
                                            target.key, &registered)),
                      UCS_OK);
            ASSERT_EQ(wait_here(ucp_ep_flush_nbx(there, &plain)), UCS_OK);
            ASSERT_TRUE(theirs.holds(seed));
            theirs.fill(++seed);
            ASSERT_EQ(wait_here(ucp_get_nbx(there, mine.data(), length, address_of(theirs),
                                            target.key, &registered)),
                      UCS_OK);
            ASSERT_TRUE(mine.holds(seed));
            if (length < 40000) continue;
            // Registered for the operation alone.
            mine.fill(++seed);
            ASSERT_EQ(wait_here(ucp_put_nbx(there, mine.data(), length, address_of(theirs),
                                            target.key, &plain)),
                      UCS_OK);
            ASSERT_EQ(wait_here(ucp_ep_flush_nbx(there, &plain)), UCS_OK);
            ASSERT_TRUE(theirs.holds(seed));
        }
    }
}

// Announced data is read by the receiver's adapter, or written by the sender's: either registers.
TEST_F(ByAdapterTest, AnnouncedDataIsNotStaged) {
    if (cuda_test::is_real()) GTEST_SKIP() << "counts calls of the stand-in";
    for (const auto& [from, to] :
         {std::pair(Kind::kDevice, Kind::kDevice), std::pair(Kind::kDevice, Kind::kHeap),
          std::pair(Kind::kHeap, Kind::kDevice)}) {
        constexpr size_t kLength = 3'000'000;
        Buffer source(from, kLength), target(to, kLength);
        source.fill(3);
        const uint64_t before = registrations();
        ucs_status_ptr_t receive =
            ucp_tag_recv_nbx(second->worker, target.data(), kLength, 7, ~0ul, &plain);
        ASSERT_EQ(wait(ucp_tag_send_nbx(there, source.data(), kLength, 7, &plain)), UCS_OK);
        ASSERT_EQ(wait(receive), UCS_OK);
        EXPECT_TRUE(target.holds(3));
        const unsigned ends = unsigned{is_on_device(from)} + unsigned{is_on_device(to)};
        EXPECT_EQ(registrations() - before, ends);
    }
}

// A buffer that came without a handle stays registered, and what takes its place does not.
TEST_F(ByAdapterTest, BuffersStayRegisteredUntilTheyAreFreed) {
    if (cuda_test::is_real()) GTEST_SKIP() << "counts calls of the stand-in";
    constexpr size_t kLength = 300'000;
    Buffer target(Kind::kDevice, kLength);
    const Mapped mapped(*second, there, target.data(), kLength);
    for (const Kind kind :
         {Kind::kDevice, Kind::kPool, Kind::kSharedPool, Kind::kVirtual, Kind::kSharedVirtual}) {
        for (uint32_t round = 1; round <= 3; ++round) {
            SCOPED_TRACE(std::string(cuda_test::name_of(kind)) + " " + std::to_string(round));
            Buffer source(kind, kLength);
            const uint64_t before = registrations();
            for (uint32_t i = 0; i < 10; ++i) {
                source.fill(round * 100 + i);
                ASSERT_EQ(wait(ucp_put_nbx(there, source.data(), kLength, address_of(target),
                                           mapped.key, &plain)),
                          UCS_OK);
                ASSERT_EQ(flush(), UCS_OK);
                ASSERT_TRUE(target.holds(round * 100 + i));
            }
            // Once by each adapter that has a part in it.
            EXPECT_LE(registrations() - before, 4u);
            EXPECT_GE(registrations() - before, 1u);
        }
    }
}

// Of one range of addresses: an allocation in the place of another one, and a buffer that lies in
// two of them.
TEST_F(ByAdapterTest, RegistrationsOfVirtualMemoryAreOfItsAllocations) {
    using cuda_test::VirtualRange;
    constexpr size_t kEach = VirtualRange::kEach;
    Buffer target(Kind::kDevice, 2 * kEach);
    const Mapped mapped(*second, there, target.data(), target.length());
    VirtualRange range(2);
    uint32_t seed = 0;
    const auto put = [&](size_t begin, size_t length) {
        range.fill(begin, length, ++seed);
        ASSERT_EQ(wait(ucp_put_nbx(there, range.at(begin), length, address_of(target), mapped.key,
                                   &plain)),
                  UCS_OK);
        ASSERT_EQ(flush(), UCS_OK);
        ASSERT_TRUE(target.holds(seed, 0, length));
    };
    range.map(0);
    for (int round = 0; round < 4; ++round) {
        range.map(1);
        ASSERT_NO_FATAL_FAILURE(put(0, kEach));
        ASSERT_NO_FATAL_FAILURE(put(1, 100'000));
        ASSERT_NO_FATAL_FAILURE(put(1, kEach));
        ASSERT_NO_FATAL_FAILURE(put(0, 2 * kEach));
        ASSERT_NO_FATAL_FAILURE(put(1, kEach));
        range.unmap(1);
    }
}

// Memory that the adapter does not take after all is staged, with no byte lost.
TEST_F(ByAdapterTest, WhatIsRefusedIsStaged) {
    if (cuda_test::is_real()) GTEST_SKIP() << "by injected faults";
    constexpr size_t kLength = 300'000;
    Buffer source(Kind::kDevice, kLength), target(Kind::kDevice, kLength);
    const Mapped mapped(*second, there, target.data(), kLength);
    // The first of each: of the put's source, of the sender and of the receiver.
    cuda_test::set_faults("cuMemGetHandleForAddressRange:801");
    source.fill(1);
    EXPECT_EQ(
        wait(ucp_put_nbx(there, source.data(), kLength, address_of(target), mapped.key, &plain)),
        UCS_OK);
    EXPECT_EQ(flush(), UCS_OK);
    EXPECT_TRUE(target.holds(1));
    source.fill(2);
    ucs_status_ptr_t receive =
        ucp_tag_recv_nbx(second->worker, target.data(), kLength, 7, ~0ul, &plain);
    EXPECT_EQ(wait(ucp_tag_send_nbx(there, source.data(), kLength, 7, &plain)), UCS_OK);
    EXPECT_EQ(wait(receive), UCS_OK);
    EXPECT_TRUE(target.holds(2));
    cuda_test::set_faults("");
}

// Puts and gets that the target's processor carries out.
class ByProcessorTest : public TransferTest {
  protected:
    void SetUp() override {
        TransferTest::SetUp();
        if (cuda_test::is_real()) GTEST_SKIP() << "by injected faults and counted calls";
        if (!is_over("tcp")) GTEST_SKIP() << "the target's processor acts over tcp";
        target = std::make_unique<Side>();
        to = first->connect(target->address());
    }
    void TearDown() override {
        if (to != nullptr) (void)finish(ucp_ep_close_nbx(to, &plain));
    }

    void progress_both() const {
        progress();
        ucp_worker_progress(target->worker);
    }
    ucs_status_t finish(ucs_status_ptr_t operation) const {
        ucs_status_t status =
            UCS_PTR_IS_PTR(operation) ? UCS_INPROGRESS : UCS_PTR_RAW_STATUS(operation);
        while (status == UCS_INPROGRESS) {
            progress_both();
            status = ucp_request_check_status(operation);
        }
        if (UCS_PTR_IS_PTR(operation)) ucp_request_free(operation);
        return status;
    }
    ucs_status_t put(const Buffer& from, const Buffer& there_, ucp_rkey_h key) const {
        const ucs_status_t status =
            finish(ucp_put_nbx(to, from.data(), from.length(), address_of(there_), key, &plain));
        return status != UCS_OK ? status : finish(ucp_ep_flush_nbx(to, &plain));
    }
    void connect_anew() {
        (void)finish(ucp_ep_close_nbx(to, &by_force));
        to = first->connect(target->address());
    }
    // Of a put into the device of so many bytes, each of which the device gets, and once.
    uint64_t copies_of_a_put(uint32_t seed) const {
        Buffer source(Kind::kHeap, kLength), there_(Kind::kDevice, kLength);
        const Mapped mapped(*target, to, there_.data(), kLength);
        source.fill(seed);
        const uint64_t before = cuda_test::calls_of("cuMemcpyAsync");
        EXPECT_EQ(put(source, there_, mapped.key), UCS_OK);
        const uint64_t copies = cuda_test::calls_of("cuMemcpyAsync") - before;
        EXPECT_TRUE(there_.holds(seed));
        return copies;
    }

    static constexpr size_t kLength = 1'000'000;
    // One for each 64 KiB or so; there is one for each message where no staging memory is left.
    static constexpr uint64_t kFew = 24;

    std::unique_ptr<Side> target;
    ucp_ep_h to = nullptr;
    const ucp_request_param_t by_force = [] {
        ucp_request_param_t params{};
        params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        params.flags = UCP_EP_CLOSE_FLAG_FORCE;
        return params;
    }();
};

// What it cannot read of its device is an error of the get.
TEST_F(ByProcessorTest, AGetThatTheTargetCannotReadFails) {
    Buffer source(Kind::kDevice, kLength), mine(Kind::kHeap, kLength);
    source.fill(1);
    const Mapped mapped(*target, to, source.data(), kLength);
    EXPECT_EQ(finish(ucp_get_nbx(to, mine.data(), kLength, address_of(source), mapped.key, &plain)),
              UCS_OK);
    EXPECT_TRUE(mine.holds(1));
    // In the middle: of several copies the third.
    cuda_test::set_faults("cuMemcpyAsync:1@3");
    EXPECT_NE(finish(ucp_get_nbx(to, mine.data(), kLength, address_of(source), mapped.key, &plain)),
              UCS_OK);
    cuda_test::set_faults("");
}

TEST_F(ByProcessorTest, APutIsNotCopiedMessageByMessage) {
    EXPECT_LT(copies_of_a_put(1), kFew);
}

// Each time what it holds is given back: the last put has staging memory.
TEST_F(ByProcessorTest, APutThatTheTargetCannotWriteFails) {
    Buffer source(Kind::kHeap, kLength), there_(Kind::kDevice, kLength);
    for (int round = 0; round < 40; ++round) {
        const Mapped mapped(*target, to, there_.data(), kLength);
        cuda_test::set_faults("cuMemcpyAsync:1@3");
        EXPECT_NE(put(source, there_, mapped.key), UCS_OK);
        cuda_test::set_faults("");
        connect_anew();
    }
    EXPECT_LT(copies_of_a_put(2), kFew);
}

// Of an initiator that goes in the middle of a put.
TEST_F(ByProcessorTest, PutsOfInitiatorsThatGoAreForgotten) {
    for (int round = 0; round < 40; ++round) {
        Buffer source(Kind::kHeap, kLength);
        Buffer there_(Kind::kDevice, kLength);
        {
            Side initiator;
            ucp_ep_h its = initiator.connect(target->address());
            const Mapped mapped(*target, its, there_.data(), kLength);
            const auto both = [&] {
                ucp_worker_progress(initiator.worker);
                ucp_worker_progress(target->worker);
            };
            const uint64_t before = cuda_test::calls_of("cuMemcpyAsync");
            ucs_status_ptr_t operation =
                ucp_put_nbx(its, source.data(), kLength, address_of(there_), mapped.key, &plain);
            while (cuda_test::calls_of("cuMemcpyAsync") == before) both();
            if (UCS_PTR_IS_PTR(operation)) ucp_request_free(operation);
            ucs_status_ptr_t close = ucp_ep_close_nbx(its, &by_force);
            while (UCS_PTR_IS_PTR(close) && ucp_request_check_status(close) == UCS_INPROGRESS)
                both();
            if (UCS_PTR_IS_PTR(close)) ucp_request_free(close);
            // Before its end the memory is taken back, or after it.
            for (int i = 0; round % 2 != 0 && i < 200; ++i) both();
        }
        for (int i = 0; i < 200; ++i) ucp_worker_progress(target->worker);
    }
    EXPECT_LT(copies_of_a_put(3), kFew);
}

TEST_F(TransferTest, PiecesOfSeveralKinds) {
    std::vector<std::unique_ptr<Buffer>> sources, targets;
    std::vector<ucp_dt_iov_t> from, to;
    constexpr size_t kKinds = std::size(cuda_test::kAllKinds);
    for (size_t i = 0; i < 30; ++i) {
        const size_t length = 1 + i * 711;
        sources.push_back(std::make_unique<Buffer>(cuda_test::kAllKinds[i % kKinds], length));
        targets.push_back(std::make_unique<Buffer>(cuda_test::kAllKinds[i / 4 % kKinds], length));
        sources.back()->fill(i);
        from.push_back({sources.back()->data(), length});
        to.push_back({targets.back()->data(), length});
    }
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
    params.datatype = ucp_dt_make_iov();
    for (int round = 0; round < 2; ++round) {
        ucs_status_ptr_t receive =
            ucp_tag_recv_nbx(second->worker, to.data(), to.size(), 9, ~0ul, &params);
        ASSERT_EQ(wait(ucp_tag_send_nbx(there, from.data(), from.size(), 9, &params)), UCS_OK);
        ASSERT_EQ(wait(receive), UCS_OK);
        for (size_t i = 0; i < from.size(); ++i) ASSERT_TRUE(targets[i]->holds(i)) << i;
    }
}

TEST_F(TransferTest, AMessageLongerThanTheBuffer) {
    for (const size_t length : {size_t{1000}, size_t{500000}}) {
        Buffer source(Kind::kDevice, length);
        Buffer target(Kind::kDevice, length);
        source.fill(1);
        target.fill(2);
        ucs_status_ptr_t receive =
            ucp_tag_recv_nbx(second->worker, target.data(), length / 2, 4, ~0ul, &plain);
        ASSERT_EQ(wait(ucp_tag_send_nbx(there, source.data(), length, 4, &plain)), UCS_OK);
        EXPECT_EQ(wait(receive), UCS_ERR_MESSAGE_TRUNCATED);
        EXPECT_TRUE(target.holds(2, length / 2, length / 2));
    }
}

TEST_F(TransferTest, ManyAtATime) {
    constexpr size_t kMessages = 200, kLength = 20000;
    std::vector<std::unique_ptr<Buffer>> sources, targets;
    std::vector<ucs_status_ptr_t> operations;
    for (size_t i = 0; i < kMessages; ++i) {
        sources.push_back(std::make_unique<Buffer>(Kind::kDevice, kLength));
        targets.push_back(std::make_unique<Buffer>(Kind::kDevice, kLength));
        sources.back()->fill(i);
        operations.push_back(
            ucp_tag_recv_nbx(second->worker, targets[i]->data(), kLength, i, ~0ul, &plain));
    }
    for (size_t i = 0; i < kMessages; ++i)
        operations.push_back(ucp_tag_send_nbx(there, sources[i]->data(), kLength, i, &plain));
    for (ucs_status_ptr_t operation : operations) ASSERT_EQ(wait(operation), UCS_OK);
    for (size_t i = 0; i < kMessages; ++i) ASSERT_TRUE(targets[i]->holds(i)) << i;
}

TEST_F(TransferTest, AtomicOperationsHaveTheirOperandsAnywhere) {
    for (const Kind kind : cuda_test::kAllKinds) {
        alignas(8) uint64_t word = 40;
        const Mapped mapped(*second, there, &word, sizeof(word));
        Buffer operand(kind, 8);
        Buffer result(kind, 8);
        operand.fill(3);
        uint64_t value = 0;
        std::memcpy(&value, operand.bytes().data(), 8);
        ucp_request_param_t params{};
        params.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER;
        params.datatype = ucp_dt_make_contig(8);
        params.reply_buffer = result.data();
        ASSERT_EQ(wait(ucp_atomic_op_nbx(there, UCP_ATOMIC_OP_ADD, operand.data(), 1,
                                         reinterpret_cast<uintptr_t>(&word), mapped.key, &params)),
                  UCS_OK);
        EXPECT_EQ(word, 40 + value) << cuda_test::name_of(kind);
        uint64_t old = 0;
        std::memcpy(&old, result.bytes().data(), 8);
        EXPECT_EQ(old, 40u) << cuda_test::name_of(kind);
    }
}

TEST_F(TransferTest, AtomicOperationsOnDeviceMemoryAreRefused) {
    Buffer target(Kind::kDevice, 8);
    const Mapped mapped(*second, there, target.data(), 8);
    const uint64_t one = 1;
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
    params.datatype = ucp_dt_make_contig(8);
    EXPECT_EQ(wait(ucp_atomic_op_nbx(there, UCP_ATOMIC_OP_ADD, &one, 1, address_of(target),
                                     mapped.key, &params)),
              UCS_ERR_UNSUPPORTED);
}

TEST_F(TransferTest, WhatIsDeclaredIsChecked) {
    Buffer device(Kind::kDevice, 100);
    Buffer host(Kind::kHeap, 100);
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    const auto send = [&](Buffer& buffer, ucs_memory_type_t type) {
        params.memory_type = type;
        return wait(ucp_tag_send_nbx(there, buffer.data(), 100, 1, &params));
    };
    EXPECT_EQ(send(host, UCS_MEMORY_TYPE_ROCM), UCS_ERR_UNSUPPORTED);
    EXPECT_EQ(send(host, UCS_MEMORY_TYPE_CUDA), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(send(device, UCS_MEMORY_TYPE_HOST), UCS_ERR_INVALID_PARAM);
    device.fill(1);
    params.memory_type = UCS_MEMORY_TYPE_CUDA;
    Buffer target(Kind::kDevice, 100);
    ucs_status_ptr_t receive =
        ucp_tag_recv_nbx(second->worker, target.data(), 100, 1, ~0ul, &params);
    EXPECT_EQ(send(device, UCS_MEMORY_TYPE_CUDA), UCS_OK);
    EXPECT_EQ(wait(receive), UCS_OK);
    EXPECT_TRUE(target.holds(1));
}

TEST_F(TransferTest, TheLibraryAllocatesDeviceMemory) {
    for (const ucs_memory_type_t type : {UCS_MEMORY_TYPE_CUDA, UCS_MEMORY_TYPE_CUDA_MANAGED}) {
        ucp_mem_map_params_t params{};
        params.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS |
                            UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
        params.length = 50000;
        params.flags = UCP_MEM_MAP_ALLOCATE;
        params.memory_type = type;
        ucp_mem_h memory = nullptr;
        ASSERT_EQ(ucp_mem_map(second->context, &params, &memory), UCS_OK);
        ucp_mem_attr_t attributes{};
        attributes.field_mask =
            UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_LENGTH | UCP_MEM_ATTR_FIELD_MEM_TYPE;
        ASSERT_EQ(ucp_mem_query(memory, &attributes), UCS_OK);
        EXPECT_EQ(attributes.mem_type, type);
        void* bytes = nullptr;
        size_t size = 0;
        ucp_rkey_h key = nullptr;
        ASSERT_EQ(ucp_rkey_pack(second->context, memory, &bytes, &size), UCS_OK);
        ASSERT_EQ(ucp_ep_rkey_unpack(there, bytes, &key), UCS_OK);
        ucp_rkey_buffer_release(bytes);
        Buffer source(Kind::kDevice, 50000);
        Buffer copy(Kind::kHeap, 50000);
        source.fill(4);
        const auto address = reinterpret_cast<uintptr_t>(attributes.address);
        ASSERT_EQ(wait(ucp_put_nbx(there, source.data(), 50000, address, key, &plain)), UCS_OK);
        ASSERT_EQ(flush(), UCS_OK);
        ASSERT_EQ(wait(ucp_get_nbx(there, copy.data(), 50000, address, key, &plain)), UCS_OK);
        EXPECT_TRUE(copy.holds(4));
        void* pointer = nullptr;
        EXPECT_NE(ucp_rkey_ptr(key, address, &pointer), UCS_OK) << "no processor reaches it";
        ucp_rkey_destroy(key);
        EXPECT_EQ(ucp_mem_unmap(second->context, memory), UCS_OK);
    }
    ucp_mem_map_params_t params{};
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS |
                        UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
    params.length = 100;
    params.flags = UCP_MEM_MAP_ALLOCATE;
    params.memory_type = UCS_MEMORY_TYPE_ROCM;
    ucp_mem_h memory = nullptr;
    EXPECT_EQ(ucp_mem_map(second->context, &params, &memory), UCS_ERR_UNSUPPORTED);
}

TEST_F(TransferTest, WhateverIsCurrent) {
    if (cuda_test::device_count() < 2) GTEST_SKIP() << "one device";
    cuda_test::use_device(1);
    Buffer source(Kind::kDevice, 100000);
    source.fill(5);
    cuda_test::use_device(0);
    Buffer target(Kind::kPool, 100000);
    ASSERT_EQ(cuda_test::driver().context_set(nullptr), uct::cuda::abi::kSuccess);
    ucs_status_ptr_t receive =
        ucp_tag_recv_nbx(second->worker, target.data(), 100000, 2, ~0ul, &plain);
    EXPECT_EQ(wait(ucp_tag_send_nbx(there, source.data(), 100000, 2, &plain)), UCS_OK);
    EXPECT_EQ(wait(receive), UCS_OK);
    cuda_test::use_device(0);
    EXPECT_TRUE(target.holds(5));
}

// Addresses that were host memory and are a device's now, and the other way.
TEST_F(TransferTest, AddressesThatAreUsedAgain) {
    for (int round = 0; round < 10; ++round) {
        for (const Kind kind : {Kind::kHeap, Kind::kDevice, Kind::kManaged, Kind::kVirtual}) {
            Buffer source(kind, 3 << 20);
            Buffer target(kind, 1000);
            source.fill(round);
            ucs_status_ptr_t receive =
                ucp_tag_recv_nbx(second->worker, target.data(), 1000, 2, ~0ul, &plain);
            ASSERT_EQ(wait(ucp_tag_send_nbx(there, source.data(), 1000, 2, &plain)), UCS_OK);
            ASSERT_EQ(wait(receive), UCS_OK);
            ASSERT_TRUE(target.holds(round));
        }
    }
}

// Last: the context of the device is of no more use.
TEST_F(TransferTest, ZADeviceThatFails) {
    if (cuda_test::is_real()) return;
    uct::cuda::abi::Context own = nullptr;
    ASSERT_EQ(cuda_test::driver().context_create(&own, 0, 0), uct::cuda::abi::kSuccess);
    Buffer source(Kind::kDevice, 100000);
    Buffer target(Kind::kHeap, 100000);
    cuda_test::set_faults("run:719");
    ucs_status_ptr_t receive =
        ucp_tag_recv_nbx(second->worker, target.data(), 100000, 8, ~0ul, &plain);
    EXPECT_NE(wait(ucp_tag_send_nbx(there, source.data(), 100000, 8, &plain)), UCS_OK);
    cuda_test::set_faults("");
    ucp_request_cancel(second->worker, receive);
    (void)wait(receive);
}

}  // namespace
