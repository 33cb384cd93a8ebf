// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

#include "ucs/sys/spin_lock.h"

// What adapters know of each other's objects: plain records in a segment, addressed by number.
// In the host-wide fabric the segment is shared memory and any process may act on a record under
// its lock; in the virtual fabric it is private memory. Everything that only its owner touches
// (send queues, user pointers) stays out of here. No pointers: only numbers and offsets.

namespace softhca {

// A lock inside the segment that outlives its holder. The word names the holding process by a
// token; a waiter that finds that process dead takes the lock over and is told so. What the lock
// protects is written such that it can be repaired from any point at which a process may die.
class RobustLock {
  public:
    // @param token  names the calling process (never 0)
    // @param dead   bool(uint32_t token): whether the process named by a token is gone
    // @return true if the lock was inherited from a dead process: repair what it protects.
    template <class Dead>
    bool lock(uint32_t token, const Dead& dead) {
        uint32_t seen = 0;
        if (word_.compare_exchange_strong(seen, token, std::memory_order_acquire)) return false;
        return lock_contended(token, dead);
    }

    void unlock() { word_.store(0, std::memory_order_release); }

  private:
    template <class Dead>
    __attribute__((noinline)) bool lock_contended(uint32_t token, const Dead& dead) {
        for (uint32_t spins = 1;; ++spins) {
            uint32_t seen = word_.load(std::memory_order_relaxed);
            if (seen == 0) {
                if (word_.compare_exchange_weak(seen, token, std::memory_order_acquire)) {
                    return false;
                }
            } else if (spins % 64 == 0) {
                if (dead(seen) &&
                    word_.compare_exchange_strong(seen, token, std::memory_order_acquire)) {
                    return true;
                }
                sched_yield();
            }
            ucs::cpu_relax();
        }
    }

    std::atomic<uint32_t> word_{0};
};

enum class QpKind : uint8_t { kRc, kUc, kUd, kDci, kDct };

// The states of ibv_qp_state, small enough for a record.
enum class QpState : uint8_t { kReset, kInit, kRtr, kRts, kSqd, kSqe, kErr };

// Who owns a record. `slot` is the process slot, `generation` tells its users apart.
struct Owner {
    uint16_t slot;
    uint16_t generation;
    bool operator==(const Owner&) const = default;
};

// The head of every record in a table. A number is index plus generation; 0 marks a free record.
struct RecordHead {
    RobustLock lock;
    std::atomic<uint32_t> number;
    uint32_t generation;
    Owner owner;
    uint16_t lid;  // of the port it lives on; this also names the virtual fabric's node
};

// A queue pair as its peers see it. Lock order: QpRecord, then RqRecord, then CqRecord.
struct alignas(64) QpRecord : RecordHead {
    QpKind kind;
    std::atomic<QpState> state;
    uint8_t min_rnr_timer;
    uint8_t path_mtu;
    std::atomic<uint32_t> events;  // a bit for each ibv_event_type not yet told to the owner
    uint32_t access;               // ibv_access_flags that remote operations may use
    uint32_t pd;
    uint32_t dest_qpn;
    uint32_t qkey;
    uint64_t dc_key;
    uint32_t recv_cq;
    uint32_t rq;    // number of its receive queue, own or shared
    uint16_t dlid;  // where dest_qpn lives
    bool uses_srq;
    bool last_wqe_told;
};

// One scatter element of a receive.
struct RecvSge {
    uint64_t addr;
    uint32_t length;
    uint32_t lkey;
};

struct RecvWqe {
    uint64_t wr_id;
    uint32_t num_sge;
    uint32_t reserved;
    RecvSge sge[];
};

// A receive queue, private to a QP or shared. The entries from head to tail are posted.
// A consumer commits by moving head after it has pushed the completion into `pop_cq`: a
// successor of a dead consumer finds out from that CQ whether the entry at head was used.
struct alignas(64) RqRecord : RecordHead {
    bool shared;
    uint32_t depth;  // entries in the ring, a power of two
    uint32_t max_sge;
    uint32_t stride;
    uint64_t ring;
    uint64_t ring_bytes;
    std::atomic<uint32_t> head;
    std::atomic<uint32_t> tail;
    uint32_t pop_cq;
    uint32_t limit;  // 0: not armed
    uint32_t pd;
    std::atomic<uint32_t> events;
};

// A completion. A receive whose payload could not be placed by its sender carries it along:
// `payload` is the offset, in the CQ's payload ring, of num_sge RecvSge and then the bytes.
// Each of a ring has a cache line, as blocks of a segment begin with one.
struct Cqe {
    uint64_t wr_id;
    uint32_t qpn;
    uint32_t src_qp;
    uint32_t byte_len;
    uint32_t imm;
    uint32_t payload_end;  // the payload ring is free up to here once this entry is polled
    uint32_t payload;
    uint32_t payload_bytes;
    uint32_t wqe_index;  // of a send: its position in the send queue
    uint32_t rq;         // of a receive: the queue and the position it was taken from
    uint32_t rq_index;
    uint16_t slid;
    uint8_t status;
    uint8_t opcode;
    uint8_t num_sge;
    uint8_t wc_flags;
    uint8_t sl;
    bool is_recv;
    uint32_t vendor_err;
};
static_assert(sizeof(Cqe) == 64);

enum class Armed : uint32_t { kNo, kSolicited, kAny };

// A completion queue. Producers append under the lock: entry first, then tail.
struct alignas(64) CqRecord : RecordHead {
    uint32_t capacity;      // entries that may be outstanding
    uint32_t ring_mask;     // ring entries - 1
    uint32_t payload_mask;  // payload ring bytes - 1
    uint64_t ring;
    uint64_t ring_bytes;
    uint64_t payload_ring;
    std::atomic<bool> overrun;
    bool ignore_overrun;
    std::atomic<Armed> armed;
    std::atomic<uint32_t> notifications;  // completion events not yet told to the owner
    std::atomic<uint32_t> events;
    alignas(64) std::atomic<uint32_t> tail;
    uint32_t payload_tail;
    alignas(64) std::atomic<uint32_t> head;
    uint32_t payload_head;
};

// A memory region, or a window on one. Written by its owner; `key` is published last and withdrawn
// first. An unbound window has no key.
struct alignas(64) MrRecord : RecordHead {
    std::atomic<uint32_t> key;
    uint32_t pd;
    uint32_t access;
    uint8_t key_byte;  // of the last key: the next region gets another, so that stale keys fail
    bool window;
    uint32_t window_qpn;            // of a window: the only QP that leads to it; 0: any
    uint32_t parent;                // of a window: index of its region
    std::atomic<uint32_t> windows;  // of a region: windows bound to it
    uint64_t iova;
    uint64_t addr;
    uint64_t length;
};

}  // namespace softhca
