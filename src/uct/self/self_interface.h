// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <boost/intrusive/slist.hpp>

#include "ucs/datastruct/memory_pool.h"
#include "uct/api/interface.h"
#include "uct/api/memory_domain.h"
#include "uct/base/copy_queue.h"
#include "uct/base/pending_queue.h"

namespace uct {

// A message on its way from the worker to itself.
class SelfMessage final : public ReceiveDescriptor,
                          public boost::intrusive::slist_base_hook<
                              boost::intrusive::link_mode<boost::intrusive::normal_link>> {
  public:
    SelfMessage(ucs::MemoryPool& pool, uint8_t id) : pool_(pool), am_id(id) {}
    void release() override { pool_.release(this); }
    std::byte* data() { return reinterpret_cast<std::byte*>(this + 1); }

  private:
    ucs::MemoryPool& pool_;

  public:
    const uint8_t am_id;
    size_t length = 0;
};

// Messages are copied into a queue and delivered by progress(), so that a handler that sends to its
// own worker does not recurse. Remote memory access is done by the CPU: long puts and gets by and
// by (CopyQueue), all else at once, with the CPU's own atomics.
class SelfInterface final : public Interface {
  public:
    explicit SelfInterface(const InterfaceParams& params);
    ~SelfInterface() override;

    ucs_status_t get_device_address(std::span<std::byte> address) const override { return UCS_OK; }
    ucs_status_t get_interface_address(std::span<std::byte> address) const override;
    bool is_reachable(const RemoteAddress& remote) const override;
    ucs_status_t create_endpoint(const RemoteAddress& remote,
                                 std::unique_ptr<Endpoint>* endpoint) override;
    unsigned progress() override {
        if (!is_idle()) return deliver_all();
        interest_.set_mark(false);
        return 0;
    }
    ucs_status_t flush(Completion* completion) override { return copies_.flush_all(completion); }
    bool is_flushed() const override { return copies_.is_idle(); }

    // Null if too many messages are queued or kept.
    SelfMessage* allocate(uint8_t id);
    void send(SelfMessage* message) {
        interest_.mark();
        queue_.push_back(*message);
    }
    bool has_room() const {
        return pool_.in_use() < kMaxMessages && copies_.has_room() && fenced_ == 0;
    }
    // Whoever works with these two may leave something to progress().
    PendingQueue& pending() {
        interest_.mark();
        return pending_;
    }
    CopyQueue& copies() {
        interest_.mark();
        return copies_;
    }
    // An endpoint has, or has no more, a fence that waits for copies: nothing overtakes it.
    void fence_waits(bool waits) { fenced_ += waits ? 1 : -1; }

  private:
    static constexpr size_t kMaxMessages = 256;
    using Queue = boost::intrusive::slist<SelfMessage, boost::intrusive::cache_last<true>,
                                          boost::intrusive::constant_time_size<false>>;

    bool is_idle() const { return queue_.empty() && pending_.empty() && !copies_.wants_progress(); }
    unsigned deliver_all();

    InterfaceParams params_;
    ucs::MemoryPool pool_;
    Queue queue_;
    PendingQueue pending_;
    CopyQueue copies_;
    int fenced_ = 0;
};

class SelfEndpoint final : public Endpoint, public CopyGroup {
  public:
    explicit SelfEndpoint(SelfInterface& interface) : interface_(interface) {}
    ~SelfEndpoint() override;

    ucs_status_t am_short(uint8_t id, uint64_t header, const void* payload,
                          uint32_t length) override;
    ssize_t am_bcopy(uint8_t id, PackCallback pack, void* arg) override;
    ucs_status_t am_zcopy(uint8_t id, std::span<const std::byte> header, std::span<const Iov> iov,
                          Completion* completion) override;
    ucs_status_t put_short(const void* buffer, uint32_t length, uint64_t remote_address,
                           RemoteKey key) override;
    ssize_t put_bcopy(PackCallback pack, void* arg, uint64_t remote_address,
                      RemoteKey key) override;
    ucs_status_t put_zcopy(std::span<const Iov> iov, uint64_t remote_address, RemoteKey key,
                           Completion* completion) override;
    ucs_status_t get_bcopy(UnpackCallback unpack, void* arg, size_t length, uint64_t remote_address,
                           RemoteKey key, Completion* completion) override;
    ucs_status_t get_zcopy(std::span<const Iov> iov, uint64_t remote_address, RemoteKey key,
                           Completion* completion) override;
    ucs_status_t atomic(AtomicOp op, unsigned size, uint64_t operand, uint64_t compare,
                        void* result, uint64_t remote_address, RemoteKey key,
                        Completion* completion) override;
    ucs_status_t fence() override;
    ucs_status_t flush(Completion* completion) override {
        return interface_.copies().flush(*this, completion);
    }
    bool may_access_mapped() const override { return !is_fenced_; }
    bool is_flushed() const override { return !has_copies(); }
    ucs_status_t check(Completion* completion) override { return UCS_OK; }
    ucs_status_t pending_add(Pending* pending) override;
    void pending_remove(Pending* pending) override {
        interface_.pending().remove(waiting_, *pending);
    }
    bool is_connected(const RemoteAddress& remote) const override {
        return interface_.is_reachable(remote);
    }

  private:
    void copy_failed(ucs_status_t status) override {}
    void copies_done() override;

    SelfInterface& interface_;
    PendingQueue::Group waiting_;
    bool is_fenced_ = false;  // no one-sided operation before the copies under way are done
};

}  // namespace uct

namespace uct::self {

// The transport from a worker to itself: "self" on the device "memory".
Component& component();

}  // namespace uct::self
