// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "ucs/datastruct/memory_pool.h"
#include "uct/api/types.h"

namespace uct::tcp {

// What a connection reads into. Lives until nobody refers to it: messages in it may be kept.
struct StreamBuffer {
    uint32_t references;
    uint32_t reserved[3];
    std::byte* data() { return reinterpret_cast<std::byte*>(this + 1); }
};
static_assert(sizeof(StreamBuffer) % 8 == 0);

// The receive buffers of an interface. A connection has one only while it holds part of a frame,
// so memory grows with the data under way, not with the peers.
class ReceivePool {
  public:
    explicit ReceivePool(size_t capacity)
        : capacity_(capacity),
          buffers_({.name = "tcp receive buffers",
                    .object_size = sizeof(StreamBuffer) + capacity,
                    .objects_per_chunk = 4}),
          kept_("tcp kept messages") {}
    ~ReceivePool() {
        if (spare_ != nullptr) kept_.destroy(spare_);
    }

    size_t capacity() const { return capacity_; }

    // With one reference; null if there is no memory.
    StreamBuffer* take() {
        void* memory = buffers_.allocate();
        return memory == nullptr ? nullptr : ::new (memory) StreamBuffer{1, {}};
    }
    void release(StreamBuffer* buffer) {
        if (--buffer->references == 0) buffers_.release(buffer);
    }

    // How a handler may keep a message that lies in `buffer`; null if so many buffers are held
    // already that small messages might use up the memory. After the handler: keep() if it did.
    ReceiveDescriptor* descriptor(StreamBuffer* buffer) {
        if (buffers_.in_use() > kMostBuffers) return nullptr;
        if (spare_ == nullptr) spare_ = kept_.create(*this);
        if (spare_ != nullptr) spare_->buffer = buffer;
        return spare_;
    }
    void keep() {
        ++spare_->buffer->references;
        spare_ = nullptr;
    }

  private:
    static constexpr size_t kMostBuffers = 1024;

    struct Kept final : ReceiveDescriptor {
        explicit Kept(ReceivePool& owner) : pool(owner) {}
        void release() override {
            ReceivePool& home = pool;
            home.release(buffer);
            home.kept_.destroy(this);
        }
        ReceivePool& pool;
        StreamBuffer* buffer = nullptr;
    };

    size_t capacity_;
    ucs::MemoryPool buffers_;
    ucs::ObjectPool<Kept> kept_;
    Kept* spare_ = nullptr;
};

}  // namespace uct::tcp
