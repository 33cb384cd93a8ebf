// SPDX-License-Identifier: BSD-3-Clause

// Lists of memory for kernels, and kernels that use them, between two workers of this process or
// one that speaks to itself; which transport: UCX_TLS, as transfers.sh sets it. On the stand-in the
// kernels' code is compiled for the host.

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cuda/device.h"
#include "cuda/job_runner.h"
#include "cuda/worker.h"
#include "ucp/api/device/ucp_host.h"

namespace {

using cuda_test::Buffer;
using cuda_test::DeviceJob;
using cuda_test::Exposed;
using cuda_test::JobRunner;
using cuda_test::Kind;
using cuda_test::Worker;

constexpr uint64_t kFeatures = UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_DEVICE;
constexpr size_t kCounter = sizeof(uint64_t);

using Element = ucp_device_mem_list_elem_t;

ucp_device_mem_list_params_t params_of(const std::vector<Element>& elements, ucp_worker_h worker) {
    ucp_device_mem_list_params_t params{};
    params.field_mask =
        UCP_DEVICE_MEM_LIST_PARAMS_FIELD_ELEMENTS | UCP_DEVICE_MEM_LIST_PARAMS_FIELD_ELEMENT_SIZE |
        UCP_DEVICE_MEM_LIST_PARAMS_FIELD_NUM_ELEMENTS | UCP_DEVICE_MEM_LIST_PARAMS_FIELD_WORKER;
    params.element_size = sizeof(Element);
    params.num_elements = elements.size();
    params.worker = worker;
    params.elements = elements.data();
    return params;
}

Element local(ucp_mem_h memory, void* address = nullptr) {
    Element element{};
    element.field_mask =
        UCP_DEVICE_MEM_LIST_ELEM_FIELD_MEMH | UCP_DEVICE_MEM_LIST_ELEM_FIELD_LOCAL_ADDR;
    element.memh = memory;
    element.local_addr = address;
    return element;
}

Element remote(ucp_ep_h endpoint, ucp_rkey_h key, const void* address = nullptr) {
    Element element{};
    element.field_mask = UCP_DEVICE_MEM_LIST_ELEM_FIELD_EP | UCP_DEVICE_MEM_LIST_ELEM_FIELD_RKEY |
                         UCP_DEVICE_MEM_LIST_ELEM_FIELD_REMOTE_ADDR;
    element.ep = endpoint;
    element.rkey = key;
    element.remote_addr = reinterpret_cast<uintptr_t>(address);
    return element;
}

class MemoryListTest : public ::testing::Test {
  protected:
    void SetUp() override {
        cuda_test::use_device(0);
        first = std::make_unique<Worker>(UCS_THREAD_MODE_SINGLE, kFeatures);
        if (counter_size() == 0)
            GTEST_SKIP() << "run test/cuda/transfers.sh, which says where the CUDA module is";
        const char* const transports = std::getenv("UCX_TLS");
        const std::string name = transports == nullptr ? "" : transports;
        if (name != "self") other = std::make_unique<Worker>(UCS_THREAD_MODE_SINGLE, kFeatures);
        is_within_host = name == "self" || name == "sm";
        there = first->connect(second());
    }
    void TearDown() override {
        cuda_test::use_device(0);
        if (there == nullptr) return;
        ucp_request_param_t params{};
        params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        params.flags = UCP_EP_CLOSE_FLAG_FORCE;
        const ucs_status_ptr_t closed = ucp_ep_close_nbx(there, &params);
        if (!UCS_PTR_IS_PTR(closed)) return;
        while (ucp_request_check_status(closed) == UCS_INPROGRESS) progress();
        ucp_request_free(closed);
    }
    void progress() const {
        ucp_worker_progress(first->worker);
        if (other != nullptr) ucp_worker_progress(other->worker);
    }
    Worker& second() { return other != nullptr ? *other : *first; }
    size_t counter_size() const {
        ucp_context_attr_t attributes{};
        attributes.field_mask = UCP_ATTR_FIELD_DEVICE_COUNTER_SIZE;
        EXPECT_EQ(ucp_context_query(first->context, &attributes), UCS_OK);
        return attributes.device_counter_size;
    }
    std::unique_ptr<Exposed> expose(const Buffer& buffer) {
        return std::make_unique<Exposed>(second(), there, buffer.data(), buffer.length());
    }
    ucs_status_t make_local(const std::vector<Element>& elements,
                            ucp_device_local_mem_list_h* list) const {
        const ucp_device_mem_list_params_t params = params_of(elements, first->worker);
        return ucp_device_local_mem_list_create(&params, list);
    }
    static ucs_status_t make_remote(const std::vector<Element>& elements,
                                    ucp_device_remote_mem_list_h* list) {
        const ucp_device_mem_list_params_t params = params_of(elements, nullptr);
        return ucp_device_remote_mem_list_create(&params, list);
    }
    void set_up_counter(const Buffer& buffer) {
        const ucp_device_counter_params_t none{};
        ASSERT_EQ(ucp_device_counter_init(second().worker, &none, buffer.data()), UCS_OK);
    }
    uint64_t count(const Buffer& buffer) {
        const ucp_device_counter_params_t none{};
        return ucp_device_counter_read(second().worker, &none, buffer.data());
    }

    // Bytes of the middle of one buffer to the middle of another one.
    void put(JobRunner& runner, ucs_device_level_t level, Buffer& from, Buffer& to) {
        constexpr size_t kBefore = 24, kThere = 40;
        const size_t length = from.length() - 2 * kThere;
        Buffer counter(Kind::kDevice, 2 * kCounter);
        counter.fill(1);
        from.fill(2);
        to.fill(3);
        set_up_counter(counter);
        const auto source = std::make_unique<Exposed>(*first, there, from.data(), from.length());
        const auto target = expose(to);
        const auto word = expose(counter);
        DeviceJob job;
        ASSERT_EQ(make_local({local(source->memory, from.data() + kBefore)}, &job.local), UCS_OK);
        ASSERT_EQ(make_remote({remote(there, target->key, to.data() + 8), remote(there, word->key)},
                              &job.remote),
                  UCS_OK);
        job.target_offset = kThere - 8;
        job.source_offset = 1;
        job.length = length;
        runner.begin(level, job);
        while (!runner.is_done()) std::this_thread::yield();
        EXPECT_EQ(runner.result().errors, 0u);
        EXPECT_EQ(count(counter), 1u);
        EXPECT_TRUE(to.holds(3, 0, kThere));
        EXPECT_TRUE(to.holds(2, kThere, length, kBefore + 1 - kThere));
        EXPECT_TRUE(to.holds(3, kThere + length, to.length() - kThere - length));
        ucp_device_mem_list_release(job.local);
        ucp_device_mem_list_release(job.remote);
    }

    std::unique_ptr<Worker> first, other;
    ucp_ep_h there = nullptr;
    bool is_within_host = false;
};

TEST_F(MemoryListTest, CountersAreWords) {
    EXPECT_EQ(counter_size(), kCounter);
}

TEST_F(MemoryListTest, KernelsOfEachLevelPutAndCount) {
    if (!is_within_host) GTEST_SKIP() << "no device reaches the memory of this transport's peers";
    JobRunner runner;
    for (int level = UCS_DEVICE_LEVEL_THREAD; level <= UCS_DEVICE_LEVEL_GRID; ++level) {
        for (const size_t length : {size_t{81}, size_t{96}, size_t{5003}, size_t{200000}}) {
            SCOPED_TRACE(
                std::string(ucs_device_level_name(static_cast<ucs_device_level_t>(level))) + ", " +
                std::to_string(length));
            Buffer from(Kind::kDevice, length), to(Kind::kDevice, length);
            ASSERT_NO_FATAL_FAILURE(put(runner, static_cast<ucs_device_level_t>(level), from, to));
        }
    }
}

TEST_F(MemoryListTest, KernelsPutFromAndToAllKindsOfMemoryThatTheirDeviceReaches) {
    if (!is_within_host) GTEST_SKIP() << "no device reaches the memory of this transport's peers";
    JobRunner runner;
    for (const Kind kind : cuda_test::kAllKinds) {
        SCOPED_TRACE(cuda_test::name_of(kind));
        if (kind == Kind::kHeap) continue;
        Buffer other_side(Kind::kDevice, 5000), memory(kind, 5000);
        ASSERT_NO_FATAL_FAILURE(put(runner, UCS_DEVICE_LEVEL_BLOCK, memory, other_side));
        // What the stand-in's kernels write to host memory is lost.
        if (!cuda_test::is_real() && !cuda_test::is_on_device(kind)) continue;
        ASSERT_NO_FATAL_FAILURE(put(runner, UCS_DEVICE_LEVEL_BLOCK, other_side, memory));
    }
}

TEST_F(MemoryListTest, KernelsPutToTheOtherDeviceOfTheProcess) {
    if (!is_within_host) GTEST_SKIP() << "no device reaches the memory of this transport's peers";
    if (cuda_test::device_count() < 2) GTEST_SKIP() << "one device";
    cuda_test::use_device(1);
    Buffer to(Kind::kDevice, 5000);
    cuda_test::use_device(0);
    Buffer from(Kind::kDevice, 5000);
    JobRunner runner;
    ASSERT_NO_FATAL_FAILURE(put(runner, UCS_DEVICE_LEVEL_WARP, from, to));
}

TEST_F(MemoryListTest, AListKnowsItsLength) {
    if (!is_within_host) GTEST_SKIP() << "no device reaches the memory of this transport's peers";
    Buffer memory(Kind::kDevice, 100);
    const auto exposed = expose(memory);
    const Element one = remote(there, exposed->key);
    ucp_device_remote_mem_list_h list = nullptr;
    // The first of three is left out.
    ASSERT_EQ(make_remote({{}, one, one}, &list), UCS_OK);
    EXPECT_EQ(ucp_device_get_mem_list_length(list), 3u);
    ucp_device_mem_list_release(list);
    EXPECT_EQ(ucp_device_get_mem_list_length(list), 0u);
    ucp_device_mem_list_release(list);  // nothing happens
    EXPECT_EQ(make_remote({{}, {}}, &list), UCS_ERR_INVALID_PARAM);
}

TEST_F(MemoryListTest, CallersOfOtherVersionsHaveElementsOfTheirSize) {
    if (!is_within_host) GTEST_SKIP() << "no device reaches the memory of this transport's peers";
    struct Later {
        Element element;
        uint64_t later_field;
    };
    Buffer memory(Kind::kDevice, 100);
    const auto exposed = expose(memory);
    const std::vector<Later> elements(3, Later{remote(there, exposed->key), ~0ul});
    ucp_device_mem_list_params_t params = params_of({}, nullptr);
    params.element_size = sizeof(Later);
    params.num_elements = elements.size();
    params.elements = &elements.front().element;
    ucp_device_remote_mem_list_h list = nullptr;
    ASSERT_EQ(ucp_device_remote_mem_list_create(&params, &list), UCS_OK);
    ucp_device_mem_list_release(list);
}

TEST_F(MemoryListTest, WhatIsMissingIsRefused) {
    Buffer memory(Kind::kDevice, 100);
    const auto exposed = expose(memory);
    ucp_device_local_mem_list_h locals = nullptr;
    ucp_device_remote_mem_list_h remotes = nullptr;
    const std::vector<Element> elements{local(exposed->memory)};
    for (const uint64_t missing :
         {UCP_DEVICE_MEM_LIST_PARAMS_FIELD_ELEMENTS, UCP_DEVICE_MEM_LIST_PARAMS_FIELD_ELEMENT_SIZE,
          UCP_DEVICE_MEM_LIST_PARAMS_FIELD_NUM_ELEMENTS, UCP_DEVICE_MEM_LIST_PARAMS_FIELD_WORKER}) {
        ucp_device_mem_list_params_t params = params_of(elements, first->worker);
        params.field_mask &= ~missing;
        EXPECT_EQ(ucp_device_local_mem_list_create(&params, &locals), UCS_ERR_INVALID_PARAM);
    }
    ucp_device_mem_list_params_t params = params_of(elements, first->worker);
    params.element_size = 0;
    EXPECT_EQ(ucp_device_local_mem_list_create(&params, &locals), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(make_local({}, &locals), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(make_local({{}}, &locals), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(make_local({local(exposed->memory, memory.data() + 101)}, &locals),
              UCS_ERR_INVALID_PARAM);
    Element longer = local(exposed->memory);
    longer.field_mask |= UCP_DEVICE_MEM_LIST_ELEM_FIELD_LENGTH;
    longer.length = 101;
    EXPECT_EQ(make_local({longer}, &locals), UCS_ERR_INVALID_PARAM);

    EXPECT_EQ(make_remote({}, &remotes), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(make_remote({remote(nullptr, exposed->key)}, &remotes), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(make_remote({remote(there, nullptr)}, &remotes), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(make_remote({remote(there, exposed->key, memory.data() + 101)}, &remotes),
              UCS_ERR_INVALID_ADDR);
    longer = remote(there, exposed->key, memory.data() + 1);
    longer.field_mask |= UCP_DEVICE_MEM_LIST_ELEM_FIELD_LENGTH;
    longer.length = 100;
    EXPECT_EQ(make_remote({longer}, &remotes), UCS_ERR_INVALID_ADDR);
    EXPECT_EQ(locals, nullptr);
    EXPECT_EQ(remotes, nullptr);
}

TEST_F(MemoryListTest, WhatTheDeviceDoesNotReachIsRefused) {
    Buffer heap(Kind::kHeap, 5000), memory(Kind::kDevice, 5000);
    const auto of_heap = expose(heap), of_memory = expose(memory);
    ucp_device_local_mem_list_h locals = nullptr;
    ucp_device_remote_mem_list_h remotes = nullptr;
    EXPECT_EQ(make_local({local(of_heap->memory)}, &locals), UCS_ERR_UNSUPPORTED);
    EXPECT_EQ(make_remote({remote(there, of_heap->key)}, &remotes), UCS_ERR_UNSUPPORTED);
    const ucs_status_t expected = is_within_host ? UCS_OK : UCS_ERR_UNSUPPORTED;
    ASSERT_EQ(make_remote({remote(there, of_memory->key)}, &remotes), expected);
    ucp_device_mem_list_release(remotes);
    // One of many is enough.
    remotes = nullptr;
    EXPECT_EQ(make_remote({remote(there, of_memory->key), remote(there, of_heap->key)}, &remotes),
              UCS_ERR_UNSUPPORTED);
    EXPECT_EQ(remotes, nullptr);
}

TEST_F(MemoryListTest, AKeyOfMemoryThatIsGoneIsRefused) {
    if (!is_within_host) GTEST_SKIP() << "no device reaches the memory of this transport's peers";
    auto memory = std::make_unique<Buffer>(Kind::kDevice, 5000);
    const auto exposed = expose(*memory);
    memory.reset();
    ucp_device_remote_mem_list_h list = nullptr;
    EXPECT_EQ(make_remote({remote(there, exposed->key)}, &list), UCS_ERR_INVALID_PARAM);
}

TEST_F(MemoryListTest, AListIsForTheDeviceThatIsCurrent) {
    Buffer memory(Kind::kDevice, 100);
    const auto exposed = expose(memory);
    ucp_device_local_mem_list_h list = nullptr;
    (void)cuda_test::driver().context_set(nullptr);
    EXPECT_EQ(make_local({local(exposed->memory)}, &list), UCS_ERR_NO_DEVICE);
    cuda_test::use_device(cuda_test::device_count() - 1);
    ASSERT_EQ(make_local({local(exposed->memory)}, &list), UCS_OK);
    ucp_device_mem_list_release(list);
}

TEST_F(MemoryListTest, TheFeatureMustBeAskedFor) {
    const Worker plain(UCS_THREAD_MODE_SINGLE);
    Buffer memory(Kind::kDevice, 100);
    const Exposed exposed(const_cast<Worker&>(plain), there, memory.data(), memory.length());
    const std::vector<Element> elements{local(exposed.memory)};
    const ucp_device_mem_list_params_t params = params_of(elements, plain.worker);
    ucp_device_local_mem_list_h list = nullptr;
    EXPECT_EQ(ucp_device_local_mem_list_create(&params, &list), UCS_ERR_UNSUPPORTED);
}

TEST_F(MemoryListTest, NoMemoryOfTheDeviceIsLost) {
    if (cuda_test::is_real()) GTEST_SKIP() << "faults are injected on the stand-in only";
    Buffer memory(Kind::kDevice, 100);
    const auto exposed = expose(memory);
    ucp_device_local_mem_list_h list = nullptr;
    cuda_test::set_faults("cuMemAllocAsync:2");
    EXPECT_EQ(make_local({local(exposed->memory)}, &list), UCS_ERR_NO_MEMORY);
    cuda_test::set_faults("");
    const uint64_t freed = cuda_test::calls_of("cuMemFreeAsync");
    const uint64_t allocated = cuda_test::calls_of("cuMemAllocAsync");
    for (int i = 0; i < 10; ++i) {
        ASSERT_EQ(make_local({local(exposed->memory)}, &list), UCS_OK);
        ucp_device_mem_list_release(list);
    }
    EXPECT_EQ(cuda_test::calls_of("cuMemAllocAsync"), allocated + 10);
    EXPECT_EQ(cuda_test::calls_of("cuMemFreeAsync"), freed + 10);
}

TEST_F(MemoryListTest, CountersLieInMemoryOfAnyKind) {
    for (const Kind kind : cuda_test::kAllKinds) {
        SCOPED_TRACE(cuda_test::name_of(kind));
        Buffer memory(kind, 2 * kCounter);
        memory.fill(9);
        EXPECT_NE(count(memory), 0u);
        ASSERT_NO_FATAL_FAILURE(set_up_counter(memory));
        EXPECT_EQ(count(memory), 0u);
        EXPECT_TRUE(memory.holds(9, kCounter, kCounter));
    }
}

TEST_F(MemoryListTest, CountersAreAlignedAndInTheirMemory) {
    Buffer memory(Kind::kDevice, 4 * kCounter);
    const Exposed half(second(), there, memory.data(), 2 * kCounter);
    ucp_device_counter_params_t params{};
    params.field_mask = UCP_DEVICE_COUNTER_PARAMS_FIELD_MEMH;
    params.memh = half.memory;
    ucp_worker_h worker = second().worker;
    EXPECT_EQ(ucp_device_counter_init(worker, &params, memory.data() + kCounter), UCS_OK);
    EXPECT_EQ(ucp_device_counter_init(worker, &params, memory.data() + 4), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(ucp_device_counter_init(worker, &params, nullptr), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(ucp_device_counter_init(worker, &params, memory.data() + 2 * kCounter),
              UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(ucp_device_counter_read(worker, &params, memory.data() + kCounter), 0u);
    EXPECT_EQ(ucp_device_counter_read(worker, &params, memory.data() + 2 * kCounter), UINT64_MAX);
}

}  // namespace
