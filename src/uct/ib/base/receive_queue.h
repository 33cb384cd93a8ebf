// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "ucs/datastruct/memory_pool.h"
#include "uct/api/types.h"
#include "uct/ib/base/device.h"

namespace uct::ib {

// Chunks of a pool of registered memory; each object gets its local key at a fixed offset.
class RegisteredChunks : public ucs::ChunkSource {
  public:
    RegisteredChunks(ibv_pd* pd, size_t key_offset) : pd_(pd), key_offset_(key_offset) {}
    virtual ~RegisteredChunks() = default;
    Chunk allocate(size_t bytes) override;
    void release(const Chunk& chunk, size_t bytes) override;
    void prepare(void* object, const Chunk& chunk) override;

  private:
    ibv_pd* pd_;
    size_t key_offset_;
};

// Chunks of receive buffers; knows all of them, so that posted ones can be taken back at the end.
class ReceiveChunks final : public RegisteredChunks {
  public:
    static constexpr size_t kObjects = 64;  // of a chunk

    using RegisteredChunks::RegisteredChunks;
    Chunk allocate(size_t bytes) override;
    void prepare(void* object, const Chunk& chunk) override;
    const std::vector<void*>& objects() const { return objects_; }

  private:
    std::vector<void*> objects_;
};

// A receive buffer; a handler may keep it. The message's first byte lies before its payload.
class ReceiveBuffer final : public ReceiveDescriptor {
  public:
    static constexpr size_t kKeyOffset = 32;
    static constexpr size_t kPostedOffset = kKeyOffset + sizeof(uint32_t);
    static constexpr size_t kPayloadOffset = 64;

    explicit ReceiveBuffer(ucs::MemoryPool& pool) : pool_(pool) {}
    void release() override { pool_.release(this); }
    std::byte* message() { return at(kPayloadOffset - 1); }
    std::byte* at(size_t offset) { return reinterpret_cast<std::byte*>(this) + offset; }
    uint32_t local_key() const;
    void set_posted(bool posted) {
        reinterpret_cast<std::byte*>(this)[kPostedOffset] = std::byte{posted};
    }
    static bool is_posted(const void* object) {
        return static_cast<const std::byte*>(object)[kPostedOffset] != std::byte{};
    }

  private:
    ucs::MemoryPool& pool_;
};
static_assert(sizeof(ReceiveBuffer) <= ReceiveBuffer::kKeyOffset);

// The shared receive queue of an interface. It begins with some buffers and doubles them whenever
// a burst uses up more than half, up to its capacity.
class ReceiveQueue {
  public:
    ReceiveQueue() = default;
    ~ReceiveQueue();
    ReceiveQueue(const ReceiveQueue&) = delete;

    // @param front  bytes of a buffer before those that the device writes
    // @return false if the device refuses, with errno
    bool open(ibv_pd* pd, unsigned capacity, unsigned initial, size_t message_size,
              size_t front = ReceiveBuffer::kPayloadOffset - 1);
    ibv_srq* srq() const { return srq_.get(); }

    // A buffer left the queue, with a message.
    void taken(ReceiveBuffer* buffer) {
        buffer->set_posted(false);
        --posted_;
    }
    // Post again what was taken, in batches.
    void refill() {
        if (target_ - posted_ >= kBatch) refill_slow();
    }
    // A buffer whose message is dealt with: posted again by the next refill().
    void recycle(ReceiveBuffer* buffer) { buffer->release(); }
    unsigned posted() const { return posted_; }
    size_t kept() const { return pool_->in_use() - posted_; }

  private:
    static constexpr unsigned kBatch = 16;
    void refill_slow();

    std::unique_ptr<ReceiveChunks> chunks_;
    std::unique_ptr<ucs::MemoryPool> pool_;
    SrqPtr srq_;  // before the buffers go
    unsigned capacity_ = 0;
    unsigned target_ = 0;
    unsigned posted_ = 0;
    size_t message_size_ = 0;
    size_t front_ = 0;
};

}  // namespace uct::ib
