// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/mman.h>
#include <sys/uio.h>

#include <memory>
#include <mutex>
#include <vector>

#include "softhca/adapter/objects.h"
#include "softhca/adapter/segment.h"
#include "softhca/model/fault.h"
#include "softhca/softhca.h"

namespace softhca {

// What came of touching another process's memory.
enum class AccessResult { kOk, kFault, kDead };

// Pointers from numbers to this process's objects, one for each record of a table.
template <class T>
class ObjectTable {
  public:
    // Of pages that cost nothing before they are used; calloc() may take memory that it has to
    // clear. @return false if there are none
    bool resize(size_t count) {
        const Free free{count * sizeof(std::atomic<T*>)};
        void* const pages = mmap(nullptr, free.bytes, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (pages == MAP_FAILED) return false;
        slots_ = {static_cast<std::atomic<T*>*>(pages), free};
        return true;
    }
    T* get(uint32_t index) const { return slots_[index].load(std::memory_order_acquire); }
    void set(uint32_t index, T* object) { slots_[index].store(object, std::memory_order_release); }

  private:
    struct Free {
        size_t bytes = 0;
        void operator()(void* pages) const { munmap(pages, bytes); }
    };
    std::unique_ptr<std::atomic<T*>[], Free> slots_;
};

// Where adapters meet. The semantics of verbs (responder.h, requester.h) are written once against
// this; a fabric says where records and memory are, when requests execute and who is told.
class Fabric {
  public:
    virtual ~Fabric() = default;

    Segment segment;
    Limits limits;
    FaultInjector faults;

    // Objects of this process, by the index of their record. The mutex guards slow paths that
    // walk them; polling reads without it, as destroying under a poll is the program's error.
    // Recursive: what a walk completes may have to tell a CQ's channel, which looks for the CQ.
    ObjectTable<Qp> qps;
    ObjectTable<Cq> cqs;
    ObjectTable<Srq> srqs;
    std::recursive_mutex objects_mutex;
    std::vector<Qp*> all_qps;
    std::vector<Cq*> all_cqs;
    std::vector<Srq*> all_srqs;
    std::vector<Dm*> all_dms;
    std::vector<Context*> contexts;
    std::atomic<uint32_t> mr_count{0};
    std::atomic<uint32_t> next_pd{1};
    std::atomic<uint32_t> next_dm{1};
    // QPs of this process on a device, by the LID of its first port; under objects_mutex.
    uint32_t& qp_count(uint16_t lid) {
        if (qp_counts_.size() <= lid) qp_counts_.resize(lid + 1u);
        return qp_counts_[lid];
    }

    virtual std::vector<Device> devices() = 0;
    virtual unsigned num_ports() const = 0;
    virtual uint16_t lid_of_guid(uint64_t guid) const = 0;
    virtual uint64_t guid_of_lid(uint16_t lid) const = 0;
    // The port that an address leads to; 0 if none.
    uint16_t resolve(const ibv_ah_attr& attr) const;
    virtual bool port_up(uint16_t lid) const = 0;
    virtual bool reachable(uint16_t from, uint16_t to) const = 0;
    // Whether this process may touch the owner's memory directly.
    virtual bool local(Owner owner) const = 0;
    virtual uint64_t now_ns() const = 0;
    // Whether CQs need a payload ring: some sender cannot place its payload itself.
    virtual bool carries_payload() const = 0;

    // Can memory of GPUs be registered?
    virtual bool takes_gpu_memory() const { return false; }
    // This process has registered memory of a GPU, and nobody has the key yet.
    virtual void gpu_registered() {}
    // Whether the address may be memory of a GPU in the owner: then its bytes go by move().
    virtual bool may_be_on_gpu(Owner, uint64_t) { return false; }
    // Moves bytes between memory of this process and of the owner; both lists are equally long.
    virtual AccessResult move(Owner owner, iovec* mine, int num_mine, iovec* theirs, int num_theirs,
                              bool write) = 0;
    // An 8-byte atomic in the owner's memory, atomic against all adapters of the fabric.
    virtual AccessResult atomic(Owner owner, uint64_t addr, bool compare, uint64_t compare_add,
                                uint64_t swap, uint64_t* old) = 0;

    // Send requests up to sq_tail were posted; called with sq_lock held.
    virtual void doorbell(Qp& qp, uint32_t posted) = 0;
    // Before and after a CQ is polled, without locks.
    virtual void before_poll(Cq& cq) = 0;
    virtual void after_poll(Cq& cq, int polled) = 0;
    virtual void charge_recv_post(Context& context, uint32_t posted) = 0;

    // A CQ got an entry. `event`: its channel is to be told.
    virtual void cq_activity(CqRecord& cq, bool event) = 0;
    // Bits were set in a record's `events`.
    virtual void raised_events(Owner owner, uint16_t lid) = 0;
    // The responder side moved this QP to ERR: its owner has a send queue to flush.
    virtual void qp_failed(QpRecord& qp) = 0;
    // A QP is about to go, or to be reset: nothing of it may be executed any more.
    virtual void quiesce(Qp& qp) = 0;
    // A region of this process was withdrawn: returns when no peer uses it any more.
    virtual void drain_region(uint32_t key) = 0;
    // Announces that this process uses a region of another one, so that drain_region waits.
    virtual std::atomic<uint32_t>* hold_region(uint32_t key) = 0;

    // Hands events of records to this process's contexts and channels.
    void deliver_cq_event(Cq& cq);
    void deliver_async(Context& context, ibv_event_type type, void* object, uint8_t port = 0);
    void collect_events();

  protected:
    // @return false if there is no address space for them
    bool set_up_tables();
    // The device of this number on its node, with as many ports as all; `lid` is its first port's.
    Device make_device(unsigned node, unsigned index, uint16_t lid, unsigned num_ports);
    // GUIDs carry the LID, so that each leads to the other.
    static constexpr uint64_t kGuidBase = 0x0250460300000000;

  private:
    std::vector<uint32_t> qp_counts_;
};

}  // namespace softhca
