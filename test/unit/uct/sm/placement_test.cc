// SPDX-License-Identifier: BSD-3-Clause

// Where the pages of shared memory lie: queues with who polls them, the program's memory huge.

#include "uct/sm/placement.h"

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "ucs/memory/pages.h"
#include "uct/sm/inbox.h"
#include "uct/sm/segment.h"
#include "uct/sm/sm_domain.h"
#include "unit/uct/child.h"
#include "unit/uct/world.h"

namespace uct::test {
namespace {

using namespace uct::sm;

constexpr size_t kHugePage = 2 << 20;

using Mask = std::array<unsigned long, 16>;  // NOLINT(google-runtime-int)

// The node that pages of an address are preferred to come from; nothing: from anybody's.
std::optional<unsigned> preferred_node(const void* address) {
    int mode = MPOL_DEFAULT;
    Mask mask{};
    EXPECT_EQ(
        syscall(SYS_get_mempolicy, &mode, mask.data(), 8 * sizeof(mask), address, MPOL_F_ADDR), 0);
    if (mode != MPOL_PREFERRED) return {};
    for (unsigned node = 0; node < 8 * sizeof(mask); ++node) {
        if ((mask[node / 64] >> node % 64 & 1) != 0) return node;
    }
    return {};
}

unsigned own_node() {
    unsigned processor = 0, node = 0;
    EXPECT_EQ(getcpu(&processor, &node), 0);
    return node;
}

// The thread stays where it is.
void stay() {
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET(static_cast<size_t>(sched_getcpu()), &here);
    sched_setaffinity(0, sizeof(here), &here);
}

bool has_policies() {
    std::unique_ptr<SharedSegment> segment;
    return SharedSegment::create(4096, nullptr, false, &segment) == UCS_OK &&
           place_near_caller(segment->base(), segment->size());
}

constexpr Inbox::Size kOneSender{128, 8256, 32, 0}, kManySenders{128, 8256, 128, 64};

TEST(Placement, OfAQueueIsThatOfItsReceiverInEveryProcess) {
    if (!has_policies()) GTEST_SKIP() << "the system refuses policies of memory";
    for (Inbox::Size size : {Inbox::Size(kOneSender), Inbox::Size(kManySenders)}) {
        for (const bool is_near : {true, false}) {
            // A thread of its own, as it is bound.
            std::thread([&] {
                stay();
                size.is_near = is_near;
                std::unique_ptr<Inbox> inbox;
                ASSERT_EQ(Inbox::create(size, &inbox), UCS_OK);
                // As a sender has it: it touches most pages first.
                MappedMemory other;
                ASSERT_EQ(attach_segment(inbox->name(), &other), UCS_OK);
                const std::optional<unsigned> expected =
                    is_near ? std::optional(own_node()) : std::nullopt;
                for (size_t page = 0; page < other.size(); page += 4096)
                    ASSERT_EQ(preferred_node(other.base() + page), expected) << page;
            }).join();
        }
    }
}

TEST(Placement, OfPagesThatASenderTouchesFirstIsTheReceiversNode) {
    if (memory_nodes() < 2) GTEST_SKIP() << "one node";
    if (!has_policies()) GTEST_SKIP() << "the system refuses policies of memory";
    std::unique_ptr<Inbox> inbox;
    unsigned node = 0;
    std::thread([&] {
        stay();
        node = own_node();
        Inbox::Size size = kOneSender;
        size.is_near = true;
        ASSERT_EQ(Inbox::create(size, &inbox), UCS_OK);
    }).join();
    std::thread([&] {
        MappedMemory other;
        ASSERT_EQ(attach_segment(inbox->name(), &other), UCS_OK);
        cpu_set_t all;
        ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
        for (size_t processor = 0; processor < CPU_SETSIZE && own_node() == node; ++processor) {
            cpu_set_t one;
            CPU_ZERO(&one);
            CPU_SET(processor, &one);
            if (CPU_ISSET(processor, &all)) sched_setaffinity(0, sizeof(one), &one);
        }
        if (own_node() == node) return;  // all of this process are on one
        for (size_t at = 4096; at < other.size(); at += 4096) {
            other.base()[at] = std::byte{1};
            void* page = other.base() + at;
            int where = -1;
            ASSERT_EQ(syscall(SYS_move_pages, 0, 1, &page, nullptr, &where, 0), 0);
            ASSERT_EQ(where, static_cast<int>(node)) << at;
        }
    }).join();
}

// Of pages that nobody had touched, a sender that writes a slot and the receiver that looks at it
// would wait for each other in the kernel.
TEST(Placement, SlotsHavePagesBeforeTheFirstMessage) {
    for (const Inbox::Size& size : {kOneSender, kManySenders}) {
        std::unique_ptr<Inbox> inbox;
        ASSERT_EQ(Inbox::create(size, &inbox), UCS_OK);
        MappedMemory other;
        ASSERT_EQ(attach_segment(inbox->name(), &other), UCS_OK);
        std::vector<unsigned char> pages(other.size() / ucs::page_size());
        ASSERT_EQ(mincore(other.base(), pages.size() * ucs::page_size(), pages.data()), 0);
        const QueueLayout layout{size.slots, size.buffers, size.buffer_size, size.senders};
        for (size_t at = layout.slot_table(); at < layout.buffer_area(); at += sizeof(Slot))
            ASSERT_EQ(pages[at / ucs::page_size()] & 1, 1) << at;
        EXPECT_EQ(pages.back() & 1, 0) << "long messages, which many pairs never send";
    }
}

// Bytes in pages that somebody has touched.
size_t touched_bytes(const MappedMemory& memory) {
    std::vector<unsigned char> pages(memory.size() / ucs::page_size());
    EXPECT_EQ(mincore(memory.base(), pages.size() * ucs::page_size(), pages.data()), 0);
    const auto count =
        std::ranges::count_if(pages, [](unsigned char page) { return (page & 1) != 0; });
    return static_cast<size_t>(count) * ucs::page_size();
}

MappedMemory queue_at(const Endpoint& receiving_end) {
    std::array<std::byte, SegmentName::kLength> address;
    EXPECT_EQ(receiving_end.get_address(address), UCS_OK);
    MappedMemory queue;
    EXPECT_EQ(attach_segment(SegmentName::read(address).value(), &queue), UCS_OK);
    return queue;
}

// Each page by itself would stop the sender, many of them together take a fraction of that.
TEST(Placement, PagesOfLongMessagesComeSomeAtATime) {
    World world({"sm_ring", "sm_ring"});
    Endpoint& sender = world.connect(0, 1);
    const MappedMemory queue = queue_at(world.other_end(sender));
    const size_t length = world.peer(0).interface->attributes().am.max_bcopy;
    const size_t slots = touched_bytes(queue);
    size_t calls = 0, used = 0;
    for (size_t before = slots; used + length <= queue.size() - slots; used += length) {
        send_bcopy(world, sender, 1, std::string(length, 'x'));
        world.progress_some(10);
        const size_t touched = touched_bytes(queue);
        // No more than as much again as was used before.
        EXPECT_LE(touched - slots, 2 * (used + length) + 2 * ucs::page_size());
        calls += touched != before;
        before = touched;
    }
    EXPECT_GT(touched_bytes(queue) + ucs::page_size(), slots + used);
    EXPECT_LE(calls, 8u);
}

// Queues are made before the first messages of those who are expected wait for them, with all of
// their pages if these are few.
TEST(Placement, QueuesOfTheFirstPeersAreThereFromTheStart) {
    const auto segments = [] {
        size_t count = 0;
        for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
            std::error_code error;
            const auto target = std::filesystem::read_symlink(entry.path(), error).string();
            count += target.starts_with("/memfd:swiftlane-");
        }
        return count;
    };
    World world({"sm_ring", "sm_ring"});
    ucs::Random random(1);
    AmTable table;
    ucs::config::Source source;
    struct Case {
        size_t expected, made;
        bool is_filled;
    };
    for (const auto& [expected, made, is_filled] :
         {Case{1, 1, true}, {2, 1, true}, {5, 4, true}, {6, 4, false}, {1000, 4, false}}) {
        std::unique_ptr<Interface> interface;
        const InterfaceParams params{world.clock, random, table,    nullptr,
                                     nullptr,     1,      expected, &source};
        ASSERT_EQ(world.peer(0).domain->open_interface("sm_ring", params, &interface), UCS_OK);
        const size_t before = segments();
        std::vector<std::unique_ptr<Endpoint>> endpoints;
        for (size_t i = 0; i <= made; ++i) {
            EXPECT_EQ(segments(), before) << expected << " " << i;
            std::unique_ptr<Endpoint>& endpoint = endpoints.emplace_back();
            ASSERT_EQ(interface->create_endpoint({}, &endpoint), UCS_OK);
            const MappedMemory queue = queue_at(*endpoint);
            EXPECT_EQ(touched_bytes(queue) >= queue.size() - ucs::page_size(),
                      is_filled && i < made)
                << expected << " " << i;
        }
        EXPECT_EQ(segments(), before + 1) << expected;
        endpoints.clear();
    }
}

// Lines of /proc/self/numa_maps of our segments that have a policy.
size_t placed_segments() {
    std::ifstream maps("/proc/self/numa_maps");
    size_t count = 0;
    for (std::string line; std::getline(maps, line);) {
        if (line.find("memfd:swiftlane") != std::string::npos &&
            line.find(" prefer") != std::string::npos)
            ++count;
    }
    return count;
}

TEST(Placement, IsAskedForByTheVariable) {
    if (!has_policies() || !std::ifstream("/proc/self/numa_maps"))
        GTEST_SKIP() << "the system refuses policies of memory, or does not tell of them";
    for (const char* transport : {"sm_fifo", "sm_ring"}) {
        for (const char* value : {"y", "n", "auto"}) {
            SCOPED_TRACE(std::string(transport) + " " + value);
            World world({transport, transport, {{"SM_NUMA", value}}});
            send_bcopy(world, world.connect(0, 1), 1, std::string(100, 'x'));
            world.until([&] { return !world.peer(1).received.empty(); });
            const bool is_placed =
                std::string(value) == "y" || (std::string(value) == "auto" && memory_nodes() > 1);
            EXPECT_EQ(placed_segments() != 0, is_placed);
        }
    }
}

// Does the mapping around the address ask for huge pages? Nothing: the system has none.
std::optional<bool> is_huge(const void* address) {
    if (!std::ifstream("/sys/kernel/mm/transparent_hugepage/shmem_enabled")) return {};
    std::ifstream maps("/proc/self/smaps");
    bool is_within = false;
    for (std::string line; std::getline(maps, line);) {
        uintptr_t begin = 0, end = 0;
        char dash = 0;
        std::istringstream words(line);
        if (words >> std::hex >> begin >> dash >> end && dash == '-') {
            const auto at = reinterpret_cast<uintptr_t>(address);
            is_within = begin <= at && at < end;
        } else if (is_within && line.starts_with("VmFlags:")) {
            return (line + " ").find(" hg ") != std::string::npos;
        }
    }
    return {};
}

// What an owner of memory tells its peer.
struct Offer {
    std::array<std::byte, 128> key;
    void* address;
    bool is_huge;
};

TEST(HugePages, AreAskedForAtBothEndsOfMemoryThatIsAllocated) {
    Config config{};
    ASSERT_EQ(load_config(nullptr, &config), UCS_OK);
    EXPECT_TRUE(config.asks_for_huge_pages);
    if (!is_huge(&config)) GTEST_SKIP() << "the system has no huge pages";
    for (const bool asks : {true, false}) {
        config.asks_for_huge_pages = asks;
        for (const size_t length : {2 * kHugePage, size_t{64} << 10}) {
            Offer& offer = shared<Offer>();
            Child owner([&] {
                auto& domain = *new SmDomain(config);
                MemoryHandle* handle = nullptr;
                if (domain.allocate_memory(length, nullptr, false, &offer.address) != UCS_OK ||
                    domain.register_memory(offer.address, length, PeerRights::kAll, &handle) !=
                        UCS_OK)
                    _exit(4);
                domain.pack_remote_key(handle, offer.key);
                offer.is_huge = is_huge(offer.address).value_or(false);
                static_cast<std::byte*>(offer.address)[length - 1] = std::byte{7};
            });
            const bool is_wanted = asks && length >= kHugePage;
            EXPECT_EQ(offer.is_huge, is_wanted);
            SmDomain peer(config);
            RemoteKey key = kInvalidRemoteKey;
            const size_t key_length = peer.attributes().remote_key_length;
            ASSERT_LE(key_length, offer.key.size());
            ASSERT_EQ(peer.unpack_remote_key(std::span(offer.key).first(key_length), &key), UCS_OK);
            auto* const here = static_cast<std::byte*>(
                peer.remote_pointer(key, reinterpret_cast<uintptr_t>(offer.address)));
            ASSERT_NE(here, nullptr);
            EXPECT_EQ(is_huge(here), is_wanted);
            EXPECT_EQ(here[length - 1], std::byte{7});
            peer.release_remote_key(key);
            owner.kill();
            owner.reap();
        }
    }
}

TEST(HugePages, AreNoneOfAQueue) {
    // Longer than one.
    for (Inbox::Size size : {Inbox::Size{128, 8256, 1024, 0}, Inbox::Size{128, 8256, 1024, 64}}) {
        std::unique_ptr<Inbox> inbox;
        ASSERT_EQ(Inbox::create(size, &inbox), UCS_OK);
        MappedMemory other;
        ASSERT_EQ(attach_segment(inbox->name(), &other), UCS_OK);
        ASSERT_GT(other.size(), 2 * kHugePage);
        EXPECT_NE(is_huge(other.base()), true);
    }
}

}  // namespace
}  // namespace uct::test
