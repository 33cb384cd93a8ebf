// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/datastruct/memory_pool.h"

#include <algorithm>
#include <cstdlib>
#include <new>

#include "ucs/log/log.h"

namespace ucs {

namespace {

class HeapSource final : public ChunkSource {
  public:
    Chunk allocate(size_t bytes) override { return {std::malloc(bytes), nullptr}; }
    void release(const Chunk& chunk, size_t) override { std::free(chunk.memory); }
};

constinit HeapSource heap;

}  // namespace

MemoryPool::MemoryPool(const Options& options)
    : stride_(align_up(std::max(options.object_size, sizeof(FreeObject)), options.alignment)),
      options_(options) {
    if (options_.source == nullptr) options_.source = &heap;
    options_.objects_per_chunk = std::max<size_t>(options_.objects_per_chunk, 1);
    if (options_.objects_at_first == 0) options_.objects_at_first = options_.objects_per_chunk;
}

MemoryPool::~MemoryPool() {
    if (in_use_ != 0) {
        log_diag("{}: {} of {} objects were never returned", options_.name, in_use_, capacity_);
    }
    for (const OwnedChunk& owned : chunks_) options_.source->release(owned.chunk, owned.bytes);
}

bool MemoryPool::reserve(size_t objects) {
    while (capacity_ < objects) {
        if (!grow()) return false;
    }
    return true;
}

bool MemoryPool::grow() {
    try {
        if (chunks_.size() == chunks_.capacity())
            chunks_.reserve(std::max<size_t>(2 * chunks_.size(), 4));
    } catch (const std::bad_alloc&) {
        return false;
    }
    const size_t count = std::min({options_.objects_per_chunk, options_.max_objects - capacity_,
                                   std::max(options_.objects_at_first, capacity_)});
    if (count == 0) return false;

    // One alignment more, since a source promises less alignment than an object may ask for.
    const size_t bytes = count * stride_ + options_.alignment;
    const ChunkSource::Chunk chunk = options_.source->allocate(bytes);
    if (chunk.memory == nullptr) return false;
    chunks_.push_back({chunk, bytes});

    const auto start = reinterpret_cast<uintptr_t>(chunk.memory);
    const size_t offset = options_.aligned_offset % options_.alignment;
    auto* first = static_cast<std::byte*>(chunk.memory) +
                  (align_up(start + offset, options_.alignment) - offset - start);
    for (size_t index = count; index-- > 0;) {
        std::byte* object = first + index * stride_;
        options_.source->prepare(object, chunk);
        free_ = ::new (object) FreeObject{free_};
    }
    capacity_ += count;
    return true;
}

}  // namespace ucs
