// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "softhca/adapter/abi.h"
#include "softhca/adapter/gpu_memory.h"
#include "softhca/adapter/pin.h"
#include "softhca/adapter/records.h"
#include "ucs/sys/spin_lock.h"

// The objects behind the verbs handles. Each begins with (or, for a context, ends in) the struct
// that verbs.h publishes, so that a handle converts both ways. They belong to one process.
namespace softhca {

class Fabric;

struct Device {
    ibv_device verbs{};
    Fabric* fabric = nullptr;
    unsigned node = 0;
    uint16_t lid = 0;  // of its first port; those of the others follow
    uint8_t num_ports = 1;
    uint64_t guid = 0;
    unsigned index = 0;

    bool has_port(unsigned port) const { return port >= 1 && port <= num_ports; }
    // Which port of it has the LID; 0: none.
    uint8_t port_of(uint16_t port_lid) const {
        const unsigned port = port_lid - lid + 1u;
        return has_port(port) ? uint8_t(port) : 0;
    }
    uint16_t lid_of(unsigned port) const { return uint16_t(lid + port - 1); }
};

struct AsyncEvent {
    ibv_event_type type;
    void* object;  // Qp, Cq or Srq
    uint8_t port;  // of an event without an object
};

struct Context {
    verbs_context v{};
    Device device;  // a copy: the list it came from may be freed
    Fabric* fabric = nullptr;
    std::mutex events_mutex;
    std::deque<AsyncEvent> events;
    uint64_t thread_free = 0;  // virtual fabric: when the doorbell register is free, in ps

    static Context* of(ibv_context* c) {
        return reinterpret_cast<Context*>(reinterpret_cast<char*>(c) -
                                          offsetof(verbs_context, context));
    }
    ibv_context* verbs() { return &v.context; }
};

struct Pd {
    ibv_pd verbs{};
    uint32_t number = 0;
    Pd* parent = nullptr;  // of a parent domain: the PD it stands for
    std::atomic<int> users{0};
    static Pd* of(ibv_pd* p) { return reinterpret_cast<Pd*>(p); }
    Pd* real() { return parent != nullptr ? parent : this; }
};

// Device memory. An import is a second handle for the same pages.
struct Dm {
    ibv_dm verbs{};
    std::shared_ptr<char> memory;
    uint64_t length = 0;
    std::atomic<int> users{0};  // regions
    static Dm* of(ibv_dm* d) { return reinterpret_cast<Dm*>(d); }
};

struct Mr {
    ibv_mr verbs{};
    MrRecord* record = nullptr;
    Dm* dm = nullptr;  // what it is a region of, if that is device memory
    Pin pin;
    gpu::Hold gpu;  // of memory of a GPU
    static Mr* of(ibv_mr* m) { return reinterpret_cast<Mr*>(m); }
};

struct Ah {
    ibv_ah verbs{};
    ibv_ah_attr attr{};
    uint16_t lid = 0;  // of the port it leads to; 0: nowhere
    static Ah* of(ibv_ah* a) { return reinterpret_cast<Ah*>(a); }
};

struct Cq;

struct CompletionChannel {
    ibv_comp_channel verbs{};
    std::mutex mutex;
    std::deque<Cq*> events;
    static CompletionChannel* of(ibv_comp_channel* c) {
        return reinterpret_cast<CompletionChannel*>(c);
    }
};

struct Cq {
    ibv_cq_ex verbs{};
    Fabric* fabric = nullptr;
    CqRecord* record = nullptr;
    uint32_t seen_failures = 0;
    Cqe current{};  // of start_poll/next_poll
    std::atomic<uint32_t> comp_events{0};
    std::atomic<uint32_t> async_events{0};
    std::atomic<int> users{0};
    static Cq* of(ibv_cq* c) { return reinterpret_cast<Cq*>(c); }
    static Cq* of(ibv_cq_ex* c) { return reinterpret_cast<Cq*>(c); }
};

struct Srq {
    ibv_srq verbs{};
    Fabric* fabric = nullptr;
    RqRecord* record = nullptr;
    uint32_t max_wr = 0;
    std::atomic<int32_t> outstanding{0};  // posted and not yet polled
    std::atomic<uint32_t> async_events{0};
    std::atomic<int> users{0};
    static Srq* of(ibv_srq* s) { return reinterpret_cast<Srq*>(s); }
};

// A send request in its queue.
struct Wqe {
    uint64_t wr_id;
    uint64_t remote_addr;
    uint64_t compare_add;
    uint64_t swap;
    uint64_t dc_key;
    uint64_t posted_at;  // virtual fabric, in ps
    uint32_t rkey;
    uint32_t imm;
    uint32_t length;
    uint32_t dest_qpn;
    uint32_t qkey;
    uint16_t dest_lid;
    uint16_t stream;  // of a DCI with streams
    uint8_t opcode;
    uint8_t flags;
    uint8_t num_sge;
    uint8_t status;  // once done
    bool inlined;
    bool done;
    uint8_t sl;
    bool has_grh;
};

struct Qp {
    union {
        ibv_qp base;
        ibv_qp_ex ex;
    };
    mlx5dv_qp_ex dv{};
    Fabric* fabric = nullptr;
    Context* context = nullptr;
    QpRecord* record = nullptr;
    RqRecord* rq = nullptr;  // its own; nullptr with an SRQ
    QpKind kind{};
    bool sig_all = false;
    bool extended = false;  // made for the ibv_wr_* interface
    uint32_t pd = 0;
    ibv_qp_attr attr{};  // what modify_qp set
    ibv_qp_cap cap{};
    uint32_t dest_lid = 0;
    std::atomic<int32_t> rq_outstanding{0};
    std::atomic<uint32_t> async_events{0};

    // Send queue. Positions run freely; the slot is position & sq_mask. Slots from sq_head are
    // taken; sq_head moves when a completion is polled, as on hardware: an unsignalled request
    // holds its slot until a later one completes with a signal.
    ucs::SpinLock sq_lock;
    std::vector<Wqe> sq;
    std::unique_ptr<char[]> sq_data;
    uint32_t sq_stride = 0;
    uint32_t sq_mask = 0;
    std::atomic<uint32_t> sq_head{0};
    uint32_t sq_done = 0;  // the oldest without a completion
    uint32_t sq_next = 0;  // the next to be executed
    uint32_t sq_tail = 0;

    // DCI streams: those in error, and how many of them put the whole queue in error. 0: no
    // streams.
    uint32_t max_failed_streams = 0;
    std::vector<uint16_t> failed_streams;

    // ibv_wr_*: the request being built.
    uint32_t build_tail = 0;
    Wqe* build = nullptr;
    int build_error = 0;

    // Requester state of the fabric that executes this queue.
    uint32_t rnr_tries = 0;
    uint32_t retries = 0;
    uint64_t wait_until = 0;  // ns (host) or ps (virtual)
    bool stalled = false;     // host: on the list of queues to try again
    bool scheduled = false;   // virtual: a transmit event is queued
    uint32_t epoch = 0;       // virtual: older messages under way are void
    uint32_t inflight_reads = 0;
    uint32_t target = 0;  // virtual: the DCT a DCI is connected to
    uint64_t last_start = 0;
    uint64_t rate_free = 0;  // virtual: its own rate allows the next request
    uint64_t last_arrival = 0;
    uint64_t last_delivery = 0;
    bool wait_reason_rnr = false;
    bool completing = false;  // inside complete_oldest

    Qp() : ex{} {}
    static Qp* of(ibv_qp* q) { return reinterpret_cast<Qp*>(q); }
    static Qp* of(ibv_qp_ex* q) { return reinterpret_cast<Qp*>(q); }
    // Conditionally supported for this type; GCC and clang do.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
    static Qp* of(mlx5dv_qp_ex* q) {
        return reinterpret_cast<Qp*>(reinterpret_cast<char*>(q) - offsetof(Qp, dv));
    }
#pragma GCC diagnostic pop
    Wqe& wqe(uint32_t position) {
        return sq[position & sq_mask];
    }
    char* wqe_data(uint32_t position) {
        return sq_data.get() + size_t{position & sq_mask} * sq_stride;
    }
    bool has_ack() const {
        return kind != QpKind::kUd && kind != QpKind::kUc;
    }
};

}  // namespace softhca
