// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/base/receive_queue.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "ucs/log/log.h"
#include "ucs/memory/pages.h"

namespace uct::ib {

ucs::ChunkSource::Chunk RegisteredChunks::allocate(size_t bytes) {
    ucs::HeapMemory memory = ucs::allocate_aligned(bytes, ucs::page_size());
    if (!memory) return {};
    const unsigned access = IBV_ACCESS_LOCAL_WRITE;
    ibv_mr* mr = ibv_reg_mr(pd_, memory.get(), bytes, access);
    if (mr == nullptr) {
        ucs::log_error(
            "{} bytes of buffers cannot be registered: {}; is the limit of locked "
            "memory (ulimit -l) high enough?",
            bytes, std::strerror(errno));
        return {};
    }
    return {memory.release(), mr};
}

void RegisteredChunks::release(const Chunk& chunk, size_t bytes) {
    const ucs::HeapMemory memory(chunk.memory);
    ibv_dereg_mr(static_cast<ibv_mr*>(chunk.context));
}

void RegisteredChunks::prepare(void* object, const Chunk& chunk) {
    const uint32_t key = static_cast<ibv_mr*>(chunk.context)->lkey;
    std::memcpy(static_cast<std::byte*>(object) + key_offset_, &key, sizeof(key));
}

ucs::ChunkSource::Chunk ReceiveChunks::allocate(size_t bytes) {
    try {
        if (objects_.capacity() < objects_.size() + kObjects)
            objects_.reserve(2 * (objects_.size() + kObjects));
    } catch (const std::bad_alloc&) {
        return {};
    }
    return RegisteredChunks::allocate(bytes);
}

void ReceiveChunks::prepare(void* object, const Chunk& chunk) {
    RegisteredChunks::prepare(object, chunk);
    static_cast<std::byte*>(object)[ReceiveBuffer::kPostedOffset] = std::byte{};
    objects_.push_back(object);
}

ReceiveQueue::~ReceiveQueue() {
    srq_.reset();
    if (!chunks_) return;
    for (void* object : chunks_->objects()) {
        if (ReceiveBuffer::is_posted(object)) static_cast<ReceiveBuffer*>(object)->release();
    }
}

uint32_t ReceiveBuffer::local_key() const {
    uint32_t key;
    std::memcpy(&key, reinterpret_cast<const std::byte*>(this) + kKeyOffset, sizeof(key));
    return key;
}

bool ReceiveQueue::open(ibv_pd* pd, unsigned capacity, unsigned initial, size_t message_size,
                        size_t front) {
    capacity_ = capacity;
    message_size_ = message_size;
    front_ = front;
    chunks_ = std::make_unique<ReceiveChunks>(pd, ReceiveBuffer::kKeyOffset);
    pool_ = std::make_unique<ucs::MemoryPool>(
        ucs::MemoryPool::Options{.name = "receive buffers",
                                 .object_size = front + message_size,
                                 .alignment = 64,
                                 .objects_per_chunk = ReceiveChunks::kObjects,
                                 .source = chunks_.get()});
    ibv_srq_init_attr attributes{};
    attributes.attr.max_wr = capacity_;
    attributes.attr.max_sge = 1;
    srq_.reset(ibv_create_srq(pd, &attributes));
    if (!srq_) return false;
    target_ = std::min(initial, capacity_);
    refill_slow();
    return posted_ > 0;
}

void ReceiveQueue::refill_slow() {
    if (posted_ < target_ / 2) target_ = std::min(target_ * 2, capacity_);
    while (posted_ < target_) {
        ibv_recv_wr requests[kBatch];
        ibv_sge pieces[kBatch];
        unsigned count = 0;
        for (; count < kBatch && posted_ + count < target_; ++count) {
            void* memory = pool_->allocate();
            if (memory == nullptr) break;
            auto* buffer = ::new (memory) ReceiveBuffer(*pool_);
            buffer->set_posted(true);
            pieces[count] = {reinterpret_cast<uintptr_t>(buffer->at(front_)),
                             static_cast<uint32_t>(message_size_), buffer->local_key()};
            requests[count] = {.wr_id = reinterpret_cast<uintptr_t>(buffer),
                               .next = nullptr,
                               .sg_list = &pieces[count],
                               .num_sge = 1};
            if (count > 0) requests[count - 1].next = &requests[count];
        }
        if (count == 0) return;
        ibv_recv_wr* bad = nullptr;
        if (ibv_post_srq_recv(srq_.get(), requests, &bad) != 0) {
            for (; bad != nullptr; bad = bad->next, --count) {
                auto* buffer = reinterpret_cast<ReceiveBuffer*>(bad->wr_id);
                buffer->set_posted(false);
                buffer->release();
            }
            posted_ += count;
            return;
        }
        posted_ += count;
    }
}

}  // namespace uct::ib
