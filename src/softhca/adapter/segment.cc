// SPDX-License-Identifier: BSD-3-Clause
#include "softhca/adapter/segment.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>

namespace softhca {
namespace {

// QP numbers 0 and 1 are special on a wire, and no number or key is 0.
constexpr uint32_t kFirstIndex = 2;
constexpr uint64_t kMinBlock = 4096;
// From this size on, a free block gives its pages back.
constexpr uint64_t kPunchBytes = 64 * 1024;

uint64_t pages(uint64_t bytes) {
    return (bytes + 4095) & ~uint64_t{4095};
}

int size_class(uint64_t bytes) {
    return std::countr_zero(std::bit_ceil(bytes < kMinBlock ? kMinBlock : bytes));
}

}  // namespace

Segment::~Segment() {
    unmap();
}

uint64_t Segment::bytes(const SegmentLayout& layout) {
    return pages(sizeof(SegmentHeader)) + pages(layout.procs * sizeof(ProcRecord)) +
           pages(layout.queues * sizeof(QpRecord)) + pages(layout.queues * sizeof(CqRecord)) +
           pages(layout.queues * sizeof(RqRecord)) + pages(layout.regions * sizeof(MrRecord)) +
           layout.arena_bytes;
}

void Segment::attach(const SegmentLayout& layout) {
    layout_ = layout;
    uint64_t offset = pages(sizeof(SegmentHeader));
    auto place = [&](auto*& table, uint64_t count) {
        table = at<std::remove_reference_t<decltype(*table)>>(offset);
        offset += pages(count * sizeof(*table));
    };
    place(procs_, layout.procs);
    place(qps_, layout.queues);
    place(cqs_, layout.queues);
    place(rqs_, layout.queues);
    place(mrs_, layout.regions);
    arena_start_ = offset;
}

bool Segment::create_private(const SegmentLayout& layout) {
    void* map = mmap(nullptr, bytes(layout), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) return false;
    base_ = static_cast<char*>(map);
    attach(layout);
    initialise();
    return true;
}

bool Segment::map_file(int fd, const SegmentLayout& layout, bool fresh) {
    void* map =
        mmap(nullptr, bytes(layout), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (map == MAP_FAILED) return false;
    base_ = static_cast<char*>(map);
    fd_ = fd;
    attach(layout);
    if (fresh) {
        if (!commit(base_, pages(sizeof(SegmentHeader)) + layout.procs * sizeof(ProcRecord))) {
            unmap();
            return false;
        }
        initialise();
    }
    return true;
}

void Segment::unmap() {
    if (base_ != nullptr) munmap(base_, bytes(layout_));
    base_ = nullptr;
    fd_ = -1;
}

void Segment::initialise() {
    SegmentHeader& head = header();
    head.layout = layout_;
    head.arena_next = arena_start_;
    for (uint32_t& next : head.next_index) next = kFirstIndex;
    if (fd_ >= 0) {
        pthread_mutexattr_t attr;
        pthread_mutexattr_init(&attr);
        pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
        for (unsigned i = 0; i < layout_.procs; ++i) pthread_mutex_init(&procs_[i].life, &attr);
        pthread_mutexattr_destroy(&attr);
    }
    head.magic.store(SegmentHeader::kMagic, std::memory_order_release);
}

bool Segment::dead(Owner owner) const {
    if (fd_ < 0) return false;
    const ProcRecord& proc = procs_[owner.slot];
    if (proc.generation.load(std::memory_order_acquire) != owner.generation) return true;
    // glibc keeps the futex word, which the kernel marks, as the first int of the mutex.
    const int word = __atomic_load_n(&proc.life.__data.__lock, __ATOMIC_ACQUIRE);
    return word == 0 || (word & FUTEX_OWNER_DIED) != 0;
}

bool Segment::commit(const void* start, uint64_t bytes) {
    if (fd_ < 0) return true;
    const off_t offset = static_cast<const char*>(start) - base_;
    int error;
    do {
        error = posix_fallocate(fd_, offset, static_cast<off_t>(bytes));
    } while (error == EINTR);
    return error == 0;
}

template <class T>
T* Segment::allocate(T* table, uint32_t count, int kind) {
    SegmentHeader& head = header();
    const uint32_t generations = 1u << (24 - layout_.index_bits);
    lock(head.alloc);
    T* found = nullptr;
    // Numbers are handed out in turn, so that a stale number keeps naming nothing for long.
    for (uint32_t tries = 0; tries < count && found == nullptr; ++tries) {
        const uint32_t index = head.next_index[kind];
        head.next_index[kind] = index + 1 < count ? index + 1 : kFirstIndex;
        T* record = &table[index];
        if (!commit(record, sizeof(T))) break;
        if (record->number.load(std::memory_order_relaxed) != 0) continue;
        const uint32_t generation = (record->generation + 1) % generations;
        record->generation = generation;
        record->owner = self_;
        record->number.store((generation << layout_.index_bits) | index, std::memory_order_release);
        found = record;
    }
    head.alloc.unlock();
    return found;
}

template QpRecord* Segment::allocate(QpRecord*, uint32_t, int);
template CqRecord* Segment::allocate(CqRecord*, uint32_t, int);
template RqRecord* Segment::allocate(RqRecord*, uint32_t, int);
template MrRecord* Segment::allocate(MrRecord*, uint32_t, int);

uint64_t Segment::allocate_block(uint64_t bytes) {
    const int cls = size_class(bytes);
    if (cls >= SegmentHeader::kSizeClasses) return 0;
    const uint64_t size = uint64_t{1} << cls;
    SegmentHeader& head = header();
    lock(head.alloc);
    uint64_t offset = head.free_blocks[cls];
    if (offset != 0) {
        if (commit(base_ + offset, size)) {
            head.free_blocks[cls] = *at<uint64_t>(offset);
        } else {
            offset = 0;
        }
    } else if (head.arena_next + size <= Segment::bytes(layout_) &&
               commit(base_ + head.arena_next, size)) {
        offset = head.arena_next;
        head.arena_next += size;
    }
    head.alloc.unlock();
    return offset;
}

void Segment::free_block(uint64_t offset, uint64_t bytes) {
    if (offset == 0) return;
    const int cls = size_class(bytes);
    const uint64_t size = uint64_t{1} << cls;
    if (size >= kPunchBytes) {
        char* rest = base_ + offset + kMinBlock;
        madvise(rest, size - kMinBlock, fd_ >= 0 ? MADV_REMOVE : MADV_DONTNEED);
    }
    SegmentHeader& head = header();
    lock(head.alloc);
    *at<uint64_t>(offset) = head.free_blocks[cls];
    head.free_blocks[cls] = offset;
    head.alloc.unlock();
}

void Segment::free_rings(CqRecord& cq) {
    free_block(cq.ring, cq.ring_bytes);
    if (cq.payload_ring != 0) free_block(cq.payload_ring, cq.payload_mask + uint64_t{1});
    cq.ring = cq.payload_ring = 0;
}

void Segment::free_rings(RqRecord& rq) {
    free_block(rq.ring, rq.ring_bytes);
    rq.ring = 0;
}

void Segment::free_rings(MrRecord& mr) {
    mr.key.store(0, std::memory_order_release);
}

// Holes of the file were never used, and there may be no room to touch them into being.
template <class T>
unsigned Segment::reap_table(T* table, uint32_t count, Owner owner) {
    unsigned freed = 0;
    const auto place = [&](uint32_t index) {
        return off_t(reinterpret_cast<char*>(&table[index]) - base_);
    };
    for (uint32_t index = 0, end = count; index < count; index = std::max(index, end + 1)) {
        if (fd_ >= 0) {
            const off_t data = lseek(fd_, place(index), SEEK_DATA);
            if (data < 0) break;
            const off_t hole = lseek(fd_, data, SEEK_HOLE);
            // Whole records alone: others are not in use.
            index += uint32_t((data - place(index) + off_t(sizeof(T)) - 1) / off_t(sizeof(T)));
            end = uint32_t(std::min(off_t(count), (hole - place(0)) / off_t(sizeof(T))));
        }
        for (; index < end; ++index) {
            T& record = table[index];
            if (record.number.load(std::memory_order_acquire) == 0 || record.owner != owner)
                continue;
            lock(record.lock);
            free_rings(record);
            release(record);
            record.lock.unlock();
            ++freed;
        }
    }
    return freed;
}

unsigned Segment::reap(Owner owner) {
    unsigned freed = reap_table(qps_, layout_.queues, owner);
    freed += reap_table(rqs_, layout_.queues, owner);
    freed += reap_table(cqs_, layout_.queues, owner);
    freed += reap_table(mrs_, layout_.regions, owner);
    return freed;
}

}  // namespace softhca
