// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/datastruct/memory_pool.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <set>
#include <string>

#include "ucs/log/log.h"
#include "unit/ucs/log/log_capture.h"

namespace ucs {
namespace {

// Counts chunks and marks objects, as a source of registered memory would.
class MarkingSource final : public ChunkSource {
  public:
    Chunk allocate(size_t bytes) override {
        if (chunks_left == 0) return {};
        --chunks_left;
        ++live;
        return {std::malloc(bytes), this};
    }
    void release(const Chunk& chunk, size_t) override {
        EXPECT_EQ(chunk.context, this);
        --live;
        std::free(chunk.memory);
    }
    void prepare(void* object, const Chunk& chunk) override {
        std::memcpy(static_cast<char*>(object) + 8, &chunk.context, sizeof(chunk.context));
        ++prepared;
    }

    unsigned chunks_left = 100;
    int live = 0;
    unsigned prepared = 0;
};

TEST(MemoryPool, TheLastFreedIsTheNextTaken) {
    MemoryPool pool({.object_size = 24});
    void* first = pool.allocate();
    void* second = pool.allocate();
    pool.release(first);
    pool.release(second);
    EXPECT_EQ(pool.allocate(), second);
    EXPECT_EQ(pool.allocate(), first);
    pool.release(first);
    pool.release(second);
}

TEST(MemoryPool, ObjectsAreApartAndAligned) {
    for (const size_t alignment : {8u, 64u, 4096u}) {
        MemoryPool pool({.object_size = 40,
                         .alignment = alignment,
                         .aligned_offset = 24,
                         .objects_per_chunk = 5});
        std::set<char*> objects;
        for (unsigned count = 0; count < 33; ++count) {
            auto* object = static_cast<char*>(pool.allocate());
            ASSERT_NE(object, nullptr);
            EXPECT_TRUE(is_aligned(object + 24, alignment));
            std::memset(object, 0xff, 40);
            objects.insert(object);
        }
        ASSERT_EQ(objects.size(), 33u);
        for (auto next = std::next(objects.begin()); next != objects.end(); ++next) {
            EXPECT_GE(*next - *std::prev(next), 40);
        }
        for (char* object : objects) pool.release(object);
    }
}

TEST(MemoryPool, BeginsWithFewAndDoubles) {
    MarkingSource source;
    MemoryPool pool(
        {.object_size = 32, .objects_per_chunk = 8, .objects_at_first = 2, .source = &source});
    std::vector<void*> objects;
    std::vector<size_t> capacities;
    while (objects.size() < 25) {
        objects.push_back(pool.allocate());
        if (capacities.empty() || capacities.back() != pool.capacity())
            capacities.push_back(pool.capacity());
    }
    EXPECT_EQ(capacities, (std::vector<size_t>{2, 4, 8, 16, 24, 32}));
    EXPECT_EQ(source.prepared, 32u);
    for (void* object : objects) pool.release(object);
}

TEST(MemoryPool, GrowsByChunksUpToItsMaximum) {
    MarkingSource source;
    {
        MemoryPool pool(
            {.object_size = 32, .objects_per_chunk = 4, .max_objects = 10, .source = &source});
        EXPECT_EQ(source.live, 0);
        std::vector<void*> objects;
        while (void* object = pool.allocate()) objects.push_back(object);
        EXPECT_EQ(objects.size(), 10u);
        EXPECT_EQ(source.live, 3);
        EXPECT_EQ(source.prepared, 10u);
        EXPECT_EQ(pool.in_use(), 10u);
        EXPECT_TRUE(pool.is_empty());
        pool.release(objects.back());
        EXPECT_EQ(pool.allocate(), objects.back());
        for (void* object : objects) pool.release(object);
    }
    EXPECT_EQ(source.live, 0);
}

TEST(MemoryPool, PreparationSurvivesUse) {
    MarkingSource source;
    MemoryPool pool({.object_size = 32, .objects_per_chunk = 2, .source = &source});
    for (unsigned round = 0; round < 3; ++round) {
        void* object = pool.allocate();
        void* context = nullptr;
        std::memcpy(&context, static_cast<char*>(object) + 8, sizeof(context));
        EXPECT_EQ(context, &source);
        pool.release(object);
    }
}

TEST(MemoryPool, ASourceMayRunDry) {
    MarkingSource source;
    source.chunks_left = 1;
    MemoryPool pool({.object_size = 32, .objects_per_chunk = 1, .source = &source});
    void* object = pool.allocate();
    EXPECT_EQ(pool.allocate(), nullptr);
    source.chunks_left = 1;
    void* other = pool.allocate();
    EXPECT_NE(other, nullptr);
    pool.release(object);
    pool.release(other);
}

TEST(MemoryPool, ReserveTakesMemoryAhead) {
    MarkingSource source;
    MemoryPool pool(
        {.object_size = 32, .objects_per_chunk = 4, .max_objects = 8, .source = &source});
    EXPECT_TRUE(pool.reserve(5));
    EXPECT_EQ(pool.capacity(), 8u);
    source.chunks_left = 0;
    void* object = pool.allocate();
    EXPECT_NE(object, nullptr);
    pool.release(object);
    EXPECT_FALSE(pool.reserve(9));
}

TEST(MemoryPool, SaysWhatLeaked) {
    LogCapture log(LogLevel::kDiag);
    {
        MemoryPool pool({.name = "bounce buffers", .object_size = 32});
        pool.allocate();
        pool.release(pool.allocate());
    }
    EXPECT_TRUE(log.contains("bounce buffers: 1 of"));
}

TEST(ObjectPool, ConstructsAndDestroys) {
    ObjectPool<std::string> pool("strings", 2, 3);
    std::string* first = pool.create("a text that is longer than a small string's buffer");
    std::string* second = pool.create(40, 'x');
    std::string* third = pool.create();
    EXPECT_EQ(pool.create(), nullptr);
    EXPECT_EQ(*second, std::string(40, 'x'));
    for (std::string* text : {first, second, third}) pool.destroy(text);
    EXPECT_EQ(pool.in_use(), 0u);
}

}  // namespace
}  // namespace ucs
