// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "uct/sm/region.h"
#include "uct/sm/sm_interface.h"

namespace uct::sm {

// A peer in shared memory: one-sided operations, waiting for room, and the peer's death.
//
// One-sided operations are done by the CPU that calls: short ones when the call returns, long ones
// by and by (CopyQueue). What sends messages is in the derived classes.
class SmEndpoint : public Endpoint, public PendingQueue::Group, public WatchHook, public CopyGroup {
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
    ssize_t put_pieces(std::span<const ChainPiece> pieces) override {
        return copy_pieces(CopyDirection::kPut, pieces);
    }
    ssize_t get_pieces(std::span<const ChainPiece> pieces) override {
        return copy_pieces(CopyDirection::kGet, pieces);
    }
    ucs_status_t atomic(AtomicOp op, unsigned size, uint64_t operand, uint64_t compare,
                        void* result, uint64_t remote_address, RemoteKey key,
                        Completion* completion) override;
    ucs_status_t fence() override;
    ucs_status_t flush(Completion* completion) override;
    bool may_access_mapped() const override { return one_sided_status() == UCS_OK; }
    bool is_flushed() const override { return status_ == UCS_OK && !has_copies(); }
    ucs_status_t check(Completion* completion) override;
    ucs_status_t pending_add(Pending* pending) override;
    void pending_remove(Pending* pending) override { interface_.pending().remove(*this, *pending); }

    // --- for the interface ---

    virtual bool has_room() = 0;
    // Is there any of what operations may lack: room in the queue, in the turn, behind a fence?
    bool may_post() {
        return has_room() && interface_.copies().has_room() && one_sided_ != UCS_ERR_NO_RESOURCE;
    }
    // Fail if the peer has died.
    void look_at_peer();

  protected:
    // The queue of the peer; null before it is connected.
    virtual Outbox* outbox() = 0;
    // No message may be sent any more.
    virtual void stop() {}
    // Was something sent that nobody will ever read, though the peer lives?
    virtual bool has_lost() const { return false; }
    // Later operations return the error; it is reported in the next progress.
    ucs_status_t fail(ucs_status_t status);

    SmInterface& interface_;
    ucs_status_t status_ = UCS_OK;

  private:
    ucs_status_t moved(ucs_status_t status);
    ucs_status_t one_sided_status() const { return status_ != UCS_OK ? status_ : one_sided_; }
    ucs_status_t ready_to_copy() const;
    ucs_status_t copy(CopyDirection direction, std::span<const Iov> iov, uint64_t remote_address,
                      RemoteKey key, Completion* completion);
    ssize_t copy_pieces(CopyDirection direction, std::span<const ChainPiece> pieces);
    void copy_failed(ucs_status_t status) override { moved(status); }
    void copies_done() override { one_sided_ = UCS_OK; }

    // UCS_ERR_NO_RESOURCE: behind a fence, while copies before it are under way.
    ucs_status_t one_sided_ = UCS_OK;
};

}  // namespace uct::sm
