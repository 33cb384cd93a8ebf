// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "softhca/adapter/records.h"

namespace softhca {

// A process slot. The service thread of its process holds `life` for as long as it runs: the
// kernel marks the mutex when that thread dies, whatever killed it, so one load tells whether a
// process lives, without a system call and also for zombies.
struct alignas(64) ProcRecord {
    static constexpr int kHazards = 96;
    static constexpr uint32_t kBounceBytes = 64 * 1024;

    pthread_mutex_t life;
    std::atomic<uint32_t> pid;
    std::atomic<uint32_t> generation;
    std::atomic<bool> refuses_cma;  // process_vm_* into it was forbidden once
    RobustLock atomics;             // held for a remote atomic on this process's memory
    // Its registered memory of GPUs lies between this and gpu_end: only its own service thread
    // reaches it. Both lie where records of before had no fields.
    std::atomic<uint64_t> gpu_first;
    alignas(64) std::atomic<uint32_t> attention;  // futex: something for the service thread
    std::atomic<uint32_t> qp_failures;            // counts QPs that a peer's error moved to ERR
    alignas(64) std::atomic<uint32_t> hazards[kHazards];  // keys of regions in use right now

    // The mailbox through which others ask the service thread to reach its own memory.
    alignas(64) RobustLock mailbox;
    std::atomic<uint32_t> mail_state;
    uint32_t mail_kind;
    uint64_t mail_addr;
    uint64_t mail_bytes;
    uint64_t mail_compare_add;
    uint64_t mail_swap;
    std::atomic<uint64_t> bounce;  // arena offset of kBounceBytes, 0 before its first use
    std::atomic<uint64_t> gpu_end;
};
static_assert(offsetof(ProcRecord, gpu_first) == 56 && offsetof(ProcRecord, gpu_end) % 64 == 56);

// How many records of each sort a segment has room for.
struct SegmentLayout {
    uint32_t index_bits = 16;  // QP numbers: index, and 24 - index_bits of generation
    uint32_t queues = 1u << 16;
    uint32_t regions = 1u << 18;
    uint32_t procs = 512;
    uint64_t arena_bytes = 1ull << 36;
    bool operator==(const SegmentLayout&) const = default;
};

struct SegmentHeader {
    static constexpr uint64_t kMagic = 0x736f667468636131;  // "softhca1"
    static constexpr int kSizeClasses = 40;

    std::atomic<uint64_t> magic;
    SegmentLayout layout;
    RobustLock alloc;
    uint32_t next_index[4];
    uint64_t arena_next;
    uint64_t free_blocks[kSizeClasses];  // by size class, a list through the blocks' first word
};

// The memory in which the records live, and its allocator. All of it is address space that costs
// nothing before it is used.
class Segment {
  public:
    Segment() = default;
    ~Segment();
    Segment(Segment&&) = delete;

    static uint64_t bytes(const SegmentLayout& layout);

    // Private memory, one process. @return false if the address space is refused.
    bool create_private(const SegmentLayout& layout);
    // Maps an open file of bytes(layout); `initialise` lays out an empty one.
    bool map_file(int fd, const SegmentLayout& layout, bool initialise);
    void unmap();

    bool mapped() const { return base_ != nullptr; }
    SegmentHeader& header() { return *reinterpret_cast<SegmentHeader*>(base_); }
    ProcRecord& proc(unsigned slot) { return procs_[slot]; }
    unsigned num_procs() const { return layout_.procs; }
    const SegmentLayout& layout() const { return layout_; }

    void set_self(Owner self) {
        self_ = self;
        token_ = (uint32_t(self.generation) << 16) | (self.slot + 1u);
    }
    Owner self() const { return self_; }
    ProcRecord& self_proc() { return procs_[self_.slot]; }

    // Whether the process that had this slot is gone. One or two loads.
    bool dead(Owner owner) const;

    // @return true if the lock came from a dead process.
    bool lock(RobustLock& lock) {
        return lock.lock(token_, [this](uint32_t token) {
            return dead(Owner{uint16_t((token & 0xffff) - 1), uint16_t(token >> 16)});
        });
    }

    QpRecord* find_qp(uint32_t number) { return find(qps_, number); }
    CqRecord* find_cq(uint32_t number) { return find(cqs_, number); }
    RqRecord* find_rq(uint32_t number) { return find(rqs_, number); }
    // The record whose key is or was `key`; compare its `key` before use.
    MrRecord* mr_of_key(uint32_t key) { return mr_at(key >> 8); }
    MrRecord* mr_at(uint32_t index) { return index < layout_.regions ? &mrs_[index] : nullptr; }
    uint32_t mr_index(const MrRecord& mr) const { return uint32_t(&mr - mrs_); }
    uint32_t index_of(uint32_t number) const { return number & ((1u << layout_.index_bits) - 1); }

    QpRecord* allocate_qp() { return allocate(qps_, layout_.queues, 0); }
    CqRecord* allocate_cq() { return allocate(cqs_, layout_.queues, 1); }
    RqRecord* allocate_rq() { return allocate(rqs_, layout_.queues, 2); }
    MrRecord* allocate_mr() { return allocate(mrs_, layout_.regions, 3); }
    static void release(RecordHead& record) { record.number.store(0, std::memory_order_release); }

    // Bytes for a ring, zeroed or not; 0 when memory is short. `free_block` wants the same size.
    uint64_t allocate_block(uint64_t bytes);
    void free_block(uint64_t offset, uint64_t bytes);

    template <class T>
    T* at(uint64_t offset) {
        return reinterpret_cast<T*>(base_ + offset);
    }

    // Frees everything that a dead process left. @return the number of records freed.
    unsigned reap(Owner owner);

  private:
    template <class T>
    T* find(T* table, uint32_t number) {
        if (number == 0) return nullptr;
        T* record = &table[index_of(number)];
        return record->number.load(std::memory_order_acquire) == number ? record : nullptr;
    }
    template <class T>
    T* allocate(T* table, uint32_t count, int kind);
    template <class T>
    unsigned reap_table(T* table, uint32_t count, Owner owner);
    void free_rings(QpRecord&) {}
    void free_rings(MrRecord& mr);
    void free_rings(CqRecord& cq);
    void free_rings(RqRecord& rq);

    void attach(const SegmentLayout& layout);
    void initialise();
    bool commit(const void* start, uint64_t bytes);

    char* base_ = nullptr;
    int fd_ = -1;
    SegmentLayout layout_;
    Owner self_{};
    uint32_t token_ = 1;
    ProcRecord* procs_ = nullptr;
    QpRecord* qps_ = nullptr;
    CqRecord* cqs_ = nullptr;
    RqRecord* rqs_ = nullptr;
    MrRecord* mrs_ = nullptr;
    uint64_t arena_start_ = 0;
};

}  // namespace softhca
