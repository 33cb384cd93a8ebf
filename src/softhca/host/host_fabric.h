// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <ctime>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "softhca/adapter/requester.h"

namespace softhca {

// The host-wide fabric: processes of one user meet in a file of /dev/shm. Whoever posts executes:
// it takes the receive from the target's queue, moves the bytes and writes the target's
// completion; so a target that does not run is served too. What needs the target itself (events,
// flushing its send queues, copies where process_vm_* is forbidden) its service thread does.
//
// Nothing is left behind: the last process removes the file; a file without living processes is
// laid out anew; what a dead process owned is freed by the next one that looks.
class HostFabric : public Fabric {
  public:
    // This process's membership, made on first use. @return nullptr if it cannot be had.
    static std::shared_ptr<HostFabric> instance();

    ~HostFabric() override;

    std::vector<Device> devices() override;
    unsigned num_ports() const override { return num_devices_ * ports_per_device_; }
    uint16_t lid_of_guid(uint64_t guid) const override;
    uint64_t guid_of_lid(uint16_t lid) const override;
    bool port_up(uint16_t lid) const override {
        return down_lid_.load(std::memory_order_relaxed) != lid;
    }
    bool reachable(uint16_t from, uint16_t to) const override {
        return to != 0 && to <= num_ports() && port_up(from);
    }
    bool local(Owner owner) const override { return owner == segment.self(); }
    uint64_t now_ns() const override;
    bool carries_payload() const override { return true; }
    bool takes_gpu_memory() const override { return true; }
    void gpu_registered() override;
    bool may_be_on_gpu(Owner owner, uint64_t address) override;
    AccessResult move(Owner owner, iovec* mine, int num_mine, iovec* theirs, int num_theirs,
                      bool write) override;
    AccessResult atomic(Owner owner, uint64_t addr, bool compare, uint64_t compare_add,
                        uint64_t swap, uint64_t* old) override;
    void doorbell(Qp& qp, uint32_t posted) override;
    void before_poll(Cq& cq) override;
    void after_poll(Cq& cq, int polled) override;
    void charge_recv_post(Context&, uint32_t) override {}
    void cq_activity(CqRecord& cq, bool event) override;
    void raised_events(Owner owner, uint16_t lid) override;
    void qp_failed(QpRecord& qp) override;
    void quiesce(Qp& qp) override;
    void drain_region(uint32_t key) override;
    std::atomic<uint32_t>* hold_region(uint32_t key) override;

  private:
    enum class Mail : uint32_t { kRead, kWrite, kAtomicSwap, kAtomicAdd };

    HostFabric();
    bool join();
    bool open_segment();
    bool any_alive();
    // Takes a process slot for the calling thread, which must live as long as the process.
    bool take_slot();
    void reap_dead();
    void leave();
    bool lock_file();
    void unlock_file();

    void serve();
    void serve_mailbox();
    void wake(Owner owner);

    AccessResult move_from_gpu(Owner owner, iovec*& mine, int& num_mine, iovec*& theirs,
                               int& num_theirs, bool write);
    AccessResult move_by_mail(Owner owner, iovec* mine, int num_mine, iovec* theirs, int num_theirs,
                              bool write);
    AccessResult mail(Owner owner, Mail kind, uint64_t addr, uint64_t bytes, uint64_t compare_add,
                      uint64_t swap, char* data);

    // @return whether the queue waits for something: a receive, a peer that is not ready.
    bool run_queue(Qp& qp);
    // A datagram, with the faults that only datagrams have.
    void send_astray(const RequestMessage& request);
    bool handle_reply(Qp& qp, Reply reply, uint8_t rnr_timer);
    bool wait_for_peer(Qp& qp, bool rnr, uint64_t wait);
    void retry_stalled();
    void flush_failed();

    std::string path_;
    int fd_ = -1;
    // Held by the thread that leaves while it has the file's lock, which the service thread would
    // give up with its own look: both are one for the kernel.
    std::mutex leave_mutex_;
    bool refuse_cma_ = false;
    unsigned num_devices_ = 1;
    unsigned ports_per_device_ = 1;
    std::atomic<uint16_t> down_lid_{0};  // the port that is down for this process; 0: none
    std::thread service_;
    std::atomic<bool> stop_{false};
    bool joined_ = false;
    int pid_ = 0;

    std::mutex stalled_mutex_;
    std::vector<Qp*> stalled_;
    std::atomic<uint32_t> num_stalled_{0};
    std::atomic<uint32_t> seen_failures_{0};

    std::mutex astray_mutex_;
    std::optional<std::pair<RequestMessage, std::vector<char>>> astray_;  // delayed
};

// Sleeps while the word has this value, at most so many nanoseconds; may wake early.
inline void futex_wait(std::atomic<uint32_t>& word, uint32_t value, uint64_t ns) {
    const timespec timeout{time_t(ns / 1000000000), long(ns % 1000000000)};
    syscall(SYS_futex, &word, FUTEX_WAIT, value, &timeout, nullptr, 0);
}

inline void futex_wake(std::atomic<uint32_t>& word) {
    syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace softhca
