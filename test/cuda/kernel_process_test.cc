// SPDX-License-Identifier: BSD-3-Clause

// Kernels of two processes of a host that communicate with each other (scenes.h).

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "cuda/device.h"
#include "cuda/job_runner.h"
#include "cuda/scenes.h"
#include "ucp/api/device/ucp_host.h"
#include "ucp/api/ucpx.h"

namespace {

using cuda_test::Buffer;
using cuda_test::DeviceJob;
using cuda_test::JobResult;
using cuda_test::JobRunner;
using cuda_test::Kind;
using cuda_test::require;
using cuda_test::require_ok;
using cuda_test::Scene;
using cuda_test::Side;
using cuda_test::Stream;
using Clock = std::chrono::steady_clock;

constexpr size_t kCounter = sizeof(uint64_t);

template <size_t kCount>
ucp_device_mem_list_params_t params_of(const ucp_device_mem_list_elem_t (&elements)[kCount]) {
    ucp_device_mem_list_params_t params{};
    params.field_mask = UCP_DEVICE_MEM_LIST_PARAMS_FIELD_ELEMENTS |
                        UCP_DEVICE_MEM_LIST_PARAMS_FIELD_ELEMENT_SIZE |
                        UCP_DEVICE_MEM_LIST_PARAMS_FIELD_NUM_ELEMENTS;
    params.element_size = sizeof(elements[0]);
    params.num_elements = kCount;
    params.elements = elements;
    return params;
}

// Of one piece of memory of the other process.
ucs_status_t make_list(const Side& side, const Side::Remote& there,
                       ucp_device_remote_mem_list_h* list) {
    ucp_device_mem_list_elem_t element[1]{};
    element[0].field_mask = UCP_DEVICE_MEM_LIST_ELEM_FIELD_EP | UCP_DEVICE_MEM_LIST_ELEM_FIELD_RKEY;
    element[0].ep = side.endpoint;
    element[0].rkey = there.key;
    const ucp_device_mem_list_params_t params = params_of(element);
    return ucp_device_remote_mem_list_create(&params, list);
}

// What the kernels of one process need to speak to those of the other one.
class Talk {
  public:
    // @param noise  bytes that other blocks have for themselves; at least 1
    Talk(Side& side, Kind kind, size_t length, size_t noise = 1)
        : sent(kind, length),
          taken(Kind::kDevice, length),
          arrived(kind, ucpx_device_numbered_size(length)),
          counter(kind, kCounter),
          noise_from(Kind::kDevice, noise),
          noise_to(Kind::kDevice, noise) {
        ucp_device_mem_list_elem_t here[2]{}, there[3]{};
        const auto expose = [&](const Buffer& buffer, ucp_device_mem_list_elem_t* mine,
                                ucp_device_mem_list_elem_t* theirs) {
            const Side::Remote other = side.expose(buffer.data(), buffer.length());
            if (mine != nullptr) {
                mine->field_mask = UCP_DEVICE_MEM_LIST_ELEM_FIELD_MEMH;
                mine->memh = side.exposed();
            }
            if (theirs != nullptr) {
                theirs->field_mask =
                    UCP_DEVICE_MEM_LIST_ELEM_FIELD_EP | UCP_DEVICE_MEM_LIST_ELEM_FIELD_RKEY;
                theirs->ep = side.endpoint;
                theirs->rkey = other.key;
            }
        };
        expose(sent, &here[0], nullptr);
        expose(arrived, nullptr, &there[0]);
        expose(counter, nullptr, &there[1]);
        expose(noise_from, &here[1], nullptr);
        expose(noise_to, nullptr, &there[2]);
        job.rank = static_cast<uint32_t>(side.rank);
        ucp_device_mem_list_params_t params = params_of(here);
        params.field_mask |= UCP_DEVICE_MEM_LIST_PARAMS_FIELD_WORKER;
        params.worker = side.worker;
        require_ok(ucp_device_local_mem_list_create(&params, &job.local), "a list of memory here");
        params = params_of(there);
        require_ok(ucp_device_remote_mem_list_create(&params, &job.remote),
                   "a list of memory there");
        job.length = length;
        job.sent = reinterpret_cast<uint8_t*>(sent.data());
        job.taken = reinterpret_cast<uint8_t*>(taken.data());
        job.arrived = reinterpret_cast<const uint8_t*>(arrived.data());
        job.counted = reinterpret_cast<uint64_t*>(counter.data());
    }
    ~Talk() {
        ucp_device_mem_list_release(job.local);
        ucp_device_mem_list_release(job.remote);
    }
    Talk(const Talk&) = delete;
    Talk& operator=(const Talk&) = delete;

    // Both processes begin with counters at 0.
    JobResult run(Side& side, JobRunner& runner, ucs_device_level_t level) {
        const ucp_device_counter_params_t none{};
        require_ok(ucp_device_counter_init(side.worker, &none, counter.data()), "a counter");
        arrived.clear();
        side.meet();
        runner.begin(level, job);
        const auto patience = Clock::now() + std::chrono::seconds(60);
        while (!runner.is_done()) {
            side.progress();
            require(Clock::now() < patience, "the kernel hangs");
        }
        const JobResult done = runner.result();
        require(done.errors == 0, std::to_string(done.errors) + " errors of the kernel");
        side.meet();
        return done;
    }

    Buffer sent, taken, arrived, counter, noise_from, noise_to;
    DeviceJob job;
};

// --- the scenes ---

// On one device the processes take turns, milliseconds each: few rounds have to do.
bool has_links() {
    return cuda_test::is_real() && cuda_test::device_count() > 1;
}

void exchange(Side& side) {
    JobRunner runner;
    for (const Kind kind : {Kind::kDevice, Kind::kSharedVirtual, Kind::kSharedPool}) {
        // A pool is opened by processes on its device alone.
        if (kind == Kind::kSharedPool && cuda_test::device_count() > 1) continue;
        for (const size_t length : {size_t{8}, size_t{5003}, size_t{1} << 20}) {
            Talk talk(side, kind, length);
            talk.job.what = DeviceJob::What::kExchange;
            talk.job.rounds = has_links() ? 200 : 5;
            for (int level = UCS_DEVICE_LEVEL_THREAD; level <= UCS_DEVICE_LEVEL_GRID; ++level) {
                if (level == UCS_DEVICE_LEVEL_THREAD && length > 10000) continue;
                for (const uint64_t flags : {0, int{UCPX_DEVICE_FLAG_DEVICE_FENCE}}) {
                    talk.job.flags = flags;
                    (void)talk.run(side, runner, static_cast<ucs_device_level_t>(level));
                }
            }
            const ucp_device_counter_params_t none{};
            require(
                ucp_device_counter_read(side.worker, &none, talk.counter.data()) == talk.job.rounds,
                "the counter");
        }
    }
}

void exchange_numbered(Side& side) {
    JobRunner runner;
    for (const Kind kind : {Kind::kDevice, Kind::kSharedVirtual}) {
        for (const size_t length : {size_t{8}, size_t{5000}, size_t{1} << 16}) {
            Talk talk(side, kind, length);
            talk.job.what = DeviceJob::What::kNumbered;
            talk.job.rounds = has_links() ? 200 : 5;
            for (int level = UCS_DEVICE_LEVEL_THREAD; level <= UCS_DEVICE_LEVEL_GRID; ++level)
                (void)talk.run(side, runner, static_cast<ucs_device_level_t>(level));
        }
    }
}

// Without the fence before it the counter overtakes data, where links between devices are busy.
void exchange_beside_others(Side& side) {
    constexpr size_t kNoise = 2 << 20;
    JobRunner runner;
    for (const size_t length : {size_t{16}, size_t{512}, size_t{8192}, size_t{65536}}) {
        Talk talk(side, Kind::kDevice, length, kNoise);
        talk.job.what = DeviceJob::What::kExchange;
        talk.job.rounds = has_links() ? 3000 : 2;
        talk.job.noise = has_links() ? kNoise : 0;
        for (const uint64_t flags : {0, int{UCPX_DEVICE_FLAG_DEVICE_FENCE}}) {
            talk.job.flags = flags;
            (void)talk.run(side, runner, UCS_DEVICE_LEVEL_BLOCK);
        }
        talk.job.what = DeviceJob::What::kNumbered;
        (void)talk.run(side, runner, UCS_DEVICE_LEVEL_BLOCK);
    }
}

// Rank 0 makes lists of memory that rank 1 frees.
void hold_mappings(Side& side) {
    constexpr size_t kLength = 1 << 20;
    const auto opened = [] { return cuda_test::calls_of("cuIpcOpenMemHandle"); };
    const auto closed = [] { return cuda_test::calls_of("cuIpcCloseMemHandle"); };
    auto memory = std::make_unique<Buffer>(Kind::kDevice, kLength);
    memory->fill(1);
    const Side::Remote there = side.expose(memory->data(), kLength);
    if (side.rank == 1) {
        side.meet();
        memory.reset();
        // It looks for what was freed every 20 ms.
        const auto told = Clock::now() + std::chrono::milliseconds(100);
        while (Clock::now() < told) side.progress();
        side.meet();
        side.meet();
        return;
    }
    const uint64_t opened_before = opened(), closed_before = closed();
    ucp_device_remote_mem_list_h lists[2] = {};
    for (ucp_device_remote_mem_list_h& list : lists)
        require_ok(make_list(side, there, &list), "a list");
    // One mapping is enough for both.
    require(cuda_test::is_real() || opened() == opened_before + 1, "mappings that were opened");
    side.meet();
    side.meet();
    for (int i = 0; i < 1000; ++i) side.progress();
    ucp_device_mem_list_release(lists[0]);
    require(closed() == closed_before, "a mapping is closed that a list holds");
    ucp_device_mem_list_release(lists[1]);
    const auto patience = Clock::now() + std::chrono::seconds(10);
    while (!cuda_test::is_real() && closed() == closed_before) {
        side.progress();
        require(Clock::now() < patience, "a mapping is left behind");
    }
    side.meet();
}

void refuse(Side& side) {
    Buffer heap(Kind::kHeap, 5000), pool(Kind::kPool, 5000), memory(Kind::kDevice, 5000);
    Buffer pool_of_device(Kind::kSharedPool, 5000);
    ucp_device_remote_mem_list_h list = nullptr;
    std::vector<const Buffer*> unreached{&heap, &pool};
    if (cuda_test::device_count() > 1) unreached.push_back(&pool_of_device);
    for (const Buffer* buffer : unreached) {
        const Side::Remote there = side.expose(buffer->data(), buffer->length());
        require(make_list(side, there, &list) == UCS_ERR_UNSUPPORTED,
                std::string("a list of ") + name_of(buffer->kind()) + " memory");
    }
    const Side::Remote there = side.expose(memory.data(), memory.length());
    if (!cuda_test::is_real()) {
        cuda_test::set_faults("cuIpcOpenMemHandle:1");
        require(make_list(side, there, &list) == UCS_ERR_UNSUPPORTED, "what the driver refuses");
        cuda_test::set_faults("");
    }
    side.meet();
}

// With UCX_CUDA_MAPPINGS=1.
void take_the_only_mapping(Side& side) {
    Buffer first(Kind::kDevice, 3 << 20), second(Kind::kDevice, 3 << 20);
    const Side::Remote there = side.expose(first.data(), first.length());
    const Side::Remote there_too = side.expose(second.data(), second.length());
    ucp_device_remote_mem_list_h list = nullptr, other = nullptr;
    require_ok(make_list(side, there, &list), "the first list");
    require(make_list(side, there_too, &other) == UCS_ERR_NO_RESOURCE, "one too many");
    ucp_device_mem_list_release(list);
    require_ok(make_list(side, there_too, &other), "a list in the place of another one");
    ucp_device_mem_list_release(other);
    side.meet();
}

// Nothing is opened while a stream stands: the call comes back, and works later.
void stand_at_a_stop(Side& side) {
    Buffer memory(Kind::kDevice, 5000), message(Kind::kDevice, 100);
    const Side::Remote there = side.expose(memory.data(), memory.length());
    if (side.rank == 0) {
        const Stream stream;
        require_ok(ucpx_recv_on_stream(side.worker, side.endpoint, message.data(), 100, 1, ~0ul,
                                       stream.get(), nullptr),
                   "ucpx_recv_on_stream");
        ucp_device_remote_mem_list_h list = nullptr;
        require(make_list(side, there, &list) == UCS_ERR_NO_RESOURCE, "a list beside a stop");
        side.meet();
        side.run(stream);
        require_ok(make_list(side, there, &list), "a list when the stream has gone on");
        ucp_device_mem_list_release(list);
    } else {
        side.meet();
        const ucp_request_param_t plain{};
        require_ok(side.wait(ucp_tag_send_nbx(side.endpoint, message.data(), 100, 1, &plain)),
                   "send");
    }
    side.meet();
}

// Microseconds one way, of the best of some runs, as the device counts them.
double one_way(Side& side, JobRunner& runner, Talk& talk, ucs_device_level_t level) {
    const int runs = cuda_test::is_real() ? 5 : 1;
    double best = 0;
    for (int run = 0; run < runs; ++run) {
        const JobResult done = talk.run(side, runner, level);
        const double time =
            static_cast<double>(done.nanoseconds) / (2000.0 * (talk.job.rounds - 1));
        best = run == 0 ? time : std::min(best, time);
    }
    return best;
}

void time_messages(Side& side) {
    JobRunner runner;
    for (const size_t length : {size_t{8}, size_t{64}, size_t{4096}, size_t{65536}}) {
        Talk talk(side, Kind::kDevice, length);
        talk.job.rounds = has_links() ? 5000 : 5;
        talk.job.what = DeviceJob::What::kFlags;
        const double flag = one_way(side, runner, talk, UCS_DEVICE_LEVEL_THREAD);
        talk.job.what = DeviceJob::What::kNumberedMessages;
        const double numbered = one_way(side, runner, talk, UCS_DEVICE_LEVEL_WARP);
        if (side.rank == 0) {
            std::printf("%zu bytes in a numbered message, one way: warp %.2f us\n", length,
                        numbered);
        }
        talk.job.what = DeviceJob::What::kMessages;
        for (const uint64_t flags : {0, int{UCPX_DEVICE_FLAG_DEVICE_FENCE}}) {
            talk.job.flags = flags;
            const double thread =
                length > 4096 ? 0 : one_way(side, runner, talk, UCS_DEVICE_LEVEL_THREAD);
            const double warp = one_way(side, runner, talk, UCS_DEVICE_LEVEL_WARP);
            const double block = one_way(side, runner, talk, UCS_DEVICE_LEVEL_BLOCK);
            if (side.rank != 0) continue;
            std::printf(
                "%zu bytes put and a counter%s, one way: thread %.2f us, warp %.2f us, block "
                "%.2f us; a bare flag %.2f us\n",
                length, flags != 0 ? ", device's fence" : "", thread, warp, block, flag);
        }
    }
}

constexpr Scene kScenes[] = {
    {"Exchange", exchange},
    {"ExchangeOfNumberedMessages", exchange_numbered},
    {"ExchangeBesideOthers", exchange_beside_others},
    {"ListsHoldTheirMappings", hold_mappings},
    {"WhatNoDeviceReaches", refuse},
    {"OneMapping", take_the_only_mapping},
    {"BesideAStop", stand_at_a_stop},
    {"Times", time_messages},
};

class KernelProcessTest : public ::testing::TestWithParam<Scene> {};

TEST_P(KernelProcessTest, Goes) {
    const char* const mappings = std::getenv("UCX_CUDA_MAPPINGS");
    const bool has_one = mappings != nullptr && std::strcmp(mappings, "1") == 0;
    if (GetParam().play == take_the_only_mapping && !has_one)
        GTEST_SKIP() << "needs UCX_CUDA_MAPPINGS=1";
    cuda_test::play_both(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Scenes, KernelProcessTest, ::testing::ValuesIn(kScenes),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace

int main(int argc, char** argv) {  // NOLINT(bugprone-exception-escape)
    return cuda_test::run_scenes(argc, argv, kScenes);
}
