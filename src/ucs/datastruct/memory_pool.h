// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <new>
#include <utility>
#include <vector>

#include "ucs/type/bits.h"

namespace ucs {

// Where a pool gets its chunks, for pools over registered memory. Not owned by the pool.
class ChunkSource {
  public:
    struct Chunk {
        void* memory = nullptr;   // null: none to be had; page- or cache-line-aligned
        void* context = nullptr;  // the source's own, a registration say
    };

    // Throws nothing.
    virtual Chunk allocate(size_t bytes) = 0;
    virtual void release(const Chunk& chunk, size_t bytes) = 0;
    // Once for each object of a new chunk, to leave in it what every user of it needs. The pool
    // overwrites the first 8 bytes of an object while the object is free, and nothing else. Throws
    // nothing.
    virtual void prepare(void* object, const Chunk& chunk) {}

  protected:
    ~ChunkSource() = default;
};

// Objects of one size, in chunks. allocate() takes the object freed last, the likeliest to be in
// the cache, and fetches the next one ahead: one load and one store; only a pool that is empty goes
// to its chunk source. Memory goes back when the pool is destroyed; objects still out then are
// counted and logged as leaked. One thread at a time.
class MemoryPool {
  public:
    struct Options {
        const char* name = "pool";  // for the log; must outlive the pool
        size_t object_size = 0;     // at least 8
        size_t alignment = 16;      // a power of two, at most a page
        size_t aligned_offset = 0;  // the byte of an object that is aligned: after a header, say
        size_t objects_per_chunk = 64;  // at least 1
        // Of the first chunk; the next ones double what there is, up to objects_per_chunk. 0: as
        // all others.
        size_t objects_at_first = 0;
        size_t max_objects = SIZE_MAX;
        ChunkSource* source = nullptr;  // null: the heap
    };

    explicit MemoryPool(const Options& options);
    ~MemoryPool();
    MemoryPool(MemoryPool&&) = delete;

    // Null if max_objects are out, or memory is.
    void* allocate() {
        FreeObject* object = free_;
        if (object == nullptr) [[unlikely]] {
            if (!grow()) return nullptr;
            object = free_;
        }
        free_ = object->next;
        __builtin_prefetch(free_, 1);
        ++in_use_;
        return object;
    }

    void release(void* memory) {
        free_ = ::new (memory) FreeObject{free_};
        --in_use_;
    }

    // Makes room for `objects` in all ahead of their use; false if memory or max_objects forbids.
    bool reserve(size_t objects);

    bool is_empty() const { return free_ == nullptr; }
    size_t in_use() const { return in_use_; }
    size_t capacity() const { return capacity_; }

  private:
    struct FreeObject {
        FreeObject* next;
    };

    bool grow();

    FreeObject* free_ = nullptr;
    size_t in_use_ = 0;
    size_t capacity_ = 0;
    size_t stride_;
    Options options_;
    struct OwnedChunk {
        ChunkSource::Chunk chunk;
        size_t bytes;
    };
    std::vector<OwnedChunk> chunks_;
};

// A pool of constructed objects.
template <typename T>
class ObjectPool {
  public:
    explicit ObjectPool(const char* name, size_t objects_per_chunk = 64,
                        size_t max_objects = SIZE_MAX)
        : pool_({.name = name,
                 .object_size = sizeof(T) < sizeof(void*) ? sizeof(void*) : sizeof(T),
                 .alignment = alignof(T) < alignof(void*) ? alignof(void*) : alignof(T),
                 .objects_per_chunk = objects_per_chunk,
                 .max_objects = max_objects}) {}

    // Null if there is no memory, or the maximum is out.
    template <typename... Args>
    T* create(Args&&... args) {
        void* memory = pool_.allocate();
        return memory == nullptr ? nullptr : ::new (memory) T(std::forward<Args>(args)...);
    }

    void destroy(T* object) {
        object->~T();
        pool_.release(object);
    }

    MemoryPool& raw() { return pool_; }
    size_t in_use() const { return pool_.in_use(); }

  private:
    MemoryPool pool_;
};

}  // namespace ucs
