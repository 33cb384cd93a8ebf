// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "uct/sm/region.h"
#include "uct/sm/sm_interface.h"

namespace uct::sm {

/**
 * A peer in shared memory: one-sided operations, waiting for room, and the peer's death.
 *
 * One-sided operations are done when the call returns, by the CPU that calls: there is nothing to
 * flush. What sends messages is in the derived classes.
 */
class SmEndpoint : public Endpoint, public PendingQueue::Group, public WatchHook {
  public:
    explicit SmEndpoint(SmInterface& interface) : interface_(interface) { interface_.add(*this); }
    ~SmEndpoint() override;

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
        return status_ == UCS_ERR_NOT_CONNECTED ? UCS_OK : status_;
    }
    ucs_status_t check(Completion* completion) override;
    ucs_status_t pending_add(Pending* pending) override;
    void pending_remove(Pending* pending) override { interface_.pending().remove(*this, *pending); }

    // --- for the interface ---

    virtual bool has_room() = 0;
    /** Fail if the peer has died. */
    void look_at_peer();

  protected:
    /** The queue of the peer; null before it is connected. */
    virtual Outbox* outbox() = 0;
    /** No message may be sent any more. */
    virtual void stop() {}
    /** Was something sent that nobody will ever read, though the peer lives? */
    virtual bool has_lost() const { return false; }
    /** Later operations return the error; it is reported in the next progress. */
    ucs_status_t fail(ucs_status_t status);

    SmInterface& interface_;
    ucs_status_t status_ = UCS_OK;

  private:
    ucs_status_t moved(ucs_status_t status);
};

}  // namespace uct::sm
