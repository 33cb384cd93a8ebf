// SPDX-License-Identifier: BSD-3-Clause
// Through the exported interface, as a runtime uses it.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>
#include <tuple>
#include <vector>

#include "ucm/api/ucm.h"

namespace {

constexpr int kVm = UCM_EVENT_VM_MAPPED | UCM_EVENT_VM_UNMAPPED;

struct Seen {
    ucm_event_type_t type;
    void* address;
    size_t size;

    bool operator==(const Seen&) const = default;
};

// Records what happens to address ranges.
class Recorder {
  public:
    explicit Recorder(int events = kVm, int priority = 0) : events_(events) {
        EXPECT_EQ(
            ucm_set_event_handler(events | UCM_EVENT_FLAG_NO_INSTALL, priority, callback, this),
            UCS_OK);
    }
    ~Recorder() { ucm_unset_event_handler(events_, callback, this); }

    std::vector<Seen> seen;

  private:
    static void callback(ucm_event_type_t type, ucm_event_t* event, void* arg) {
        static_cast<Recorder*>(arg)->seen.push_back(
            {type, event->vm_mapped.address, event->vm_mapped.size});
    }

    int events_;
};

size_t page() {
    return static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

void* map(size_t size) {
    return ucm_mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

TEST(MemoryEvents, ReportsOfARuntimeReachHandlers) {
    int memory = 0;
    Recorder recorder;
    ucm_vm_mmap(&memory, 4);
    ucm_vm_munmap(&memory, 4);
    EXPECT_EQ(recorder.seen, (std::vector<Seen>{{UCM_EVENT_VM_MAPPED, &memory, 4},
                                                {UCM_EVENT_VM_UNMAPPED, &memory, 4}}));
}

TEST(MemoryEvents, NothingIsReportedAfterUnset) {
    static int calls;
    calls = 0;
    const auto count = [](ucm_event_type_t, ucm_event_t*, void*) { ++calls; };
    ASSERT_EQ(ucm_set_event_handler(kVm | UCM_EVENT_FLAG_NO_INSTALL, 0, count, nullptr), UCS_OK);
    ucm_vm_munmap(&calls, 4);
    EXPECT_EQ(calls, 1);
    ucm_unset_event_handler(kVm, count, nullptr);
    ucm_vm_munmap(&calls, 4);
    EXPECT_EQ(calls, 1);
}

TEST(MemoryEvents, OnlyTheEventsUnsetAreTakenAway) {
    static int calls;
    calls = 0;
    const auto count = [](ucm_event_type_t, ucm_event_t*, void*) { ++calls; };
    ASSERT_EQ(ucm_set_event_handler(kVm | UCM_EVENT_FLAG_NO_INSTALL, 0, count, nullptr), UCS_OK);
    ucm_unset_event_handler(UCM_EVENT_VM_MAPPED, count, nullptr);
    ucm_vm_mmap(&calls, 4);
    EXPECT_EQ(calls, 0);
    ucm_vm_munmap(&calls, 4);
    EXPECT_EQ(calls, 1);
    ucm_unset_event_handler(kVm, count, nullptr);
}

TEST(MemoryEvents, HandlersRunInOrderOfPriority) {
    static std::vector<int> order;
    static int numbers[] = {-5, 3, 7};
    order.clear();
    const auto note = [](ucm_event_type_t, ucm_event_t*, void* arg) {
        order.push_back(*static_cast<int*>(arg));
    };
    for (const int i : {1, 0, 2}) {
        ASSERT_EQ(
            ucm_set_event_handler(kVm | UCM_EVENT_FLAG_NO_INSTALL, numbers[i], note, &numbers[i]),
            UCS_OK);
    }
    ucm_vm_munmap(&order, 1);
    EXPECT_EQ(order, (std::vector<int>{-5, 3, 7}));
    for (int& number : numbers) ucm_unset_event_handler(kVm, note, &number);
}

TEST(MemoryEvents, ExternalEventsAreASource) {
    constexpr int kEvent = UCM_EVENT_MEM_TYPE_FREE;  // nobody else reports it
    EXPECT_EQ(ucm_test_external_events(kEvent), UCS_ERR_UNSUPPORTED);
    EXPECT_EQ(ucm_test_events(kEvent), UCS_ERR_UNSUPPORTED);
    const auto ignore = [](ucm_event_type_t, ucm_event_t*, void*) {};
    EXPECT_EQ(ucm_set_event_handler(kEvent, 0, ignore, nullptr), UCS_ERR_UNSUPPORTED);
    ucm_set_external_event(kEvent);
    EXPECT_EQ(ucm_test_external_events(kEvent), UCS_OK);
    EXPECT_EQ(ucm_test_events(kEvent), UCS_OK);
    EXPECT_EQ(ucm_test_external_events(kEvent | UCM_EVENT_VM_MAPPED), UCS_ERR_UNSUPPORTED);
    EXPECT_EQ(ucm_set_event_handler(kEvent, 0, ignore, nullptr), UCS_OK);
    ucm_unset_event_handler(kEvent, ignore, nullptr);
    ucm_unset_external_event(kEvent);
    EXPECT_EQ(ucm_test_external_events(kEvent), UCS_ERR_UNSUPPORTED);
}

// Threads unmap while a handler comes and goes whose argument goes with it.
TEST(MemoryEvents, AfterUnsetNoThreadIsInsideTheHandler) {
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
        threads.emplace_back([&stop] {
            int memory = 0;
            while (!stop) {
                ucm_vm_munmap(&memory, sizeof(memory));
                std::this_thread::yield();
            }
        });
    }
    const auto count = [](ucm_event_type_t, ucm_event_t*, void* arg) {
        ++*static_cast<std::atomic<int>*>(arg);
    };
    for (int round = 0; round < 60; ++round) {
        auto calls = std::make_unique<std::atomic<int>>(0);
        ASSERT_EQ(ucm_set_event_handler(kVm | UCM_EVENT_FLAG_NO_INSTALL, 0, count, calls.get()),
                  UCS_OK);
        std::this_thread::yield();
        ucm_unset_event_handler(kVm, count, calls.get());
    }
    stop = true;
    for (std::thread& thread : threads) thread.join();
}

TEST(MemoryEvents, MappingAndUnmapping) {
    const size_t size = 2 * page();
    Recorder recorder;
    void* const memory = map(size);
    ASSERT_NE(memory, MAP_FAILED);
    std::memset(memory, 1, size);
    void* const moved = ucm_mremap(memory, size, 2 * size, MREMAP_MAYMOVE);
    ASSERT_NE(moved, MAP_FAILED);
    EXPECT_EQ(static_cast<char*>(moved)[size - 1], 1);
    EXPECT_EQ(ucm_madvise(moved, size, MADV_DONTNEED), 0);
    EXPECT_EQ(static_cast<char*>(moved)[0], 0);
    EXPECT_EQ(ucm_munmap(moved, 2 * size), 0);
    EXPECT_EQ(recorder.seen, (std::vector<Seen>{{UCM_EVENT_VM_MAPPED, memory, size},
                                                {UCM_EVENT_VM_UNMAPPED, memory, size},
                                                {UCM_EVENT_VM_MAPPED, moved, 2 * size},
                                                {UCM_EVENT_VM_UNMAPPED, moved, size},
                                                {UCM_EVENT_VM_UNMAPPED, moved, 2 * size}}));
}

TEST(MemoryEvents, MappingOverMemoryUnmapsIt) {
    void* const memory = map(page());
    ASSERT_NE(memory, MAP_FAILED);
    Recorder recorder;
    EXPECT_EQ(ucm_mmap(memory, page(), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
              memory);
    EXPECT_EQ(recorder.seen, (std::vector<Seen>{{UCM_EVENT_VM_UNMAPPED, memory, page()},
                                                {UCM_EVENT_VM_MAPPED, memory, page()}}));
    EXPECT_EQ(ucm_munmap(memory, page()), 0);
}

TEST(MemoryEvents, SharedMemorySegments) {
    const int id = shmget(IPC_PRIVATE, page(), 0600);
    ASSERT_NE(id, -1);
    Recorder recorder;
    void* const memory = ucm_shmat(id, nullptr, 0);
    EXPECT_EQ(shmctl(id, IPC_RMID, nullptr), 0);
    ASSERT_NE(memory, MAP_FAILED);
    EXPECT_EQ(ucm_shmdt(memory), 0);
    EXPECT_EQ(recorder.seen, (std::vector<Seen>{{UCM_EVENT_VM_MAPPED, memory, page()},
                                                {UCM_EVENT_VM_UNMAPPED, memory, page()}}));
}

TEST(MemoryEvents, AFailedCallSaysSo) {
    Recorder recorder(UCM_EVENT_VM_MAPPED);
    EXPECT_EQ(map(0), MAP_FAILED);
    EXPECT_EQ(ucm_munmap(reinterpret_cast<void*>(1), page()), -1);
    EXPECT_TRUE(recorder.seen.empty());
}

TEST(MemoryEvents, AHandlerMayDoTheCall) {
    static int memory;
    const auto give = [](ucm_event_type_t, ucm_event_t* event, void*) {
        event->mmap.result = &memory;
    };
    ASSERT_EQ(ucm_set_event_handler(UCM_EVENT_MMAP | UCM_EVENT_FLAG_NO_INSTALL, -1, give, nullptr),
              UCS_OK);
    EXPECT_EQ(map(page()), &memory);
    ucm_unset_event_handler(UCM_EVENT_MMAP, give, nullptr);
}

TEST(MemoryEvents, AHandlerMayCauseEvents) {
    static int depth;
    depth = 0;
    const auto nest = [](ucm_event_type_t, ucm_event_t*, void*) {
        if (++depth == 1) ucm_vm_munmap(&depth, 1);
    };
    ASSERT_EQ(ucm_set_event_handler(kVm | UCM_EVENT_FLAG_NO_INSTALL, 0, nest, nullptr), UCS_OK);
    ucm_vm_munmap(&depth, 2);
    ucm_unset_event_handler(kVm, nest, nullptr);
    EXPECT_EQ(depth, 2);
}

TEST(MemoryEvents, HandlersLeaveTheErrorAlone) {
    const auto clobber = [](ucm_event_type_t, ucm_event_t*, void*) { errno = 0; };
    ASSERT_EQ(
        ucm_set_event_handler(UCM_EVENT_MUNMAP | UCM_EVENT_FLAG_NO_INSTALL, 1, clobber, nullptr),
        UCS_OK);
    EXPECT_EQ(ucm_munmap(reinterpret_cast<void*>(1), page()), -1);
    EXPECT_EQ(errno, EINVAL);
    ucm_unset_event_handler(UCM_EVENT_MUNMAP, clobber, nullptr);
}

TEST(MemoryEvents, NewKindsOfAdviceDropPagesToo) {
    void* const memory = map(page());
    ASSERT_NE(memory, MAP_FAILED);
    for (const int advice : {24, 102}) {  // MADV_DONTNEED_LOCKED, MADV_GUARD_INSTALL
        Recorder recorder;
        (void)ucm_madvise(memory, page(), advice);
        EXPECT_EQ(recorder.seen, (std::vector<Seen>{{UCM_EVENT_VM_UNMAPPED, memory, page()}}));
    }
    EXPECT_EQ(ucm_munmap(memory, page()), 0);
}

// The first mapping of an attachment may be gone: the rest is detached all the same.
TEST(MemoryEvents, ASegmentThatIsNotFoundIsAllBehindItsAddress) {
    const int id = shmget(IPC_PRIVATE, 2 * page(), 0600);
    ASSERT_NE(id, -1);
    auto* const memory = static_cast<char*>(ucm_shmat(id, nullptr, 0));
    EXPECT_EQ(shmctl(id, IPC_RMID, nullptr), 0);
    ASSERT_NE(memory, MAP_FAILED);
    ASSERT_EQ(ucm_munmap(memory, page()), 0);
    Recorder recorder;
    EXPECT_EQ(ucm_shmdt(memory), 0);
    ASSERT_EQ(recorder.seen.size(), 1u);
    EXPECT_EQ(recorder.seen[0].address, memory);
    EXPECT_GE(recorder.seen[0].size, 2 * page());
}

TEST(MemoryEvents, SettingsTurnThemOffForNewHandlersOnly) {
    const ucm_global_config_t before = ucm_global_opts;
    ucm_global_config_t off = before;
    off.enable_events = 0;
    Recorder recorder;
    ucm_set_global_opts(&off);
    ucm_vm_munmap(&off, 1);
    const auto ignore = [](ucm_event_type_t, ucm_event_t*, void*) {};
    EXPECT_EQ(ucm_set_event_handler(kVm | UCM_EVENT_FLAG_NO_INSTALL, 0, ignore, nullptr),
              UCS_ERR_UNSUPPORTED);
    ucm_set_global_opts(&before);
    EXPECT_EQ(recorder.seen, (std::vector<Seen>{{UCM_EVENT_VM_UNMAPPED, &off, 1}}));
}

}  // namespace
