// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "uct/api/interface.h"
#include "uct/base/completion_group.h"
#include "uct/tcp/association/association.h"

namespace uct::tcp {

// A way to one peer interface. Endpoints to the same peer share its Association and its
// connections.
class TcpEndpoint final : public Endpoint, public AssociationUser {
  public:
    // Pieces that one large operation is cut into, at most.
    static constexpr size_t kMaxParts = 16;

    // @param reported_as  whose failure its own is; null: its own
    explicit TcpEndpoint(Association& association, Endpoint* reported_as = nullptr);
    ~TcpEndpoint() override;

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
    ssize_t put_chain(std::span<const ChainPiece> pieces, Completion* completion) override;
    ssize_t get_chain(std::span<const ChainPiece> pieces, Completion* completion) override;
    ucs_status_t fence() override;
    ucs_status_t flush(Completion* completion) override {
        return status_ != UCS_OK ? status_ : association_.flush(this, completion);
    }
    ucs_status_t check(Completion* completion) override {
        return status_ != UCS_OK ? status_ : association_.probe(this, completion);
    }
    ucs_status_t pending_add(Pending* pending) override;
    void pending_remove(Pending* pending) override {
        association_.attention().pending.remove(*this, *pending);
    }
    bool is_connected(const RemoteAddress& remote) const override;

    Association& association() const { return association_; }
    ucs_status_t status() const { return status_; }
    // Is there room for some kind of operation?
    bool has_some_room() const;
    bool on_association_failed(ucs_status_t status) override;
    void on_refused() override { fail(UCS_ERR_IO_ERROR); }

  private:
    // It alone fails, and all its operations.
    void fail(ucs_status_t status);
    // UCS_OK if a message or small operation can go to connection 0 now.
    ucs_status_t check_room() const;
    // The same for messages that are done when the call returns. Their senders may turn to other
    // things than progress, which a connection that is being made needs from them.
    ucs_status_t check_open() const;
    ucs_status_t check_one_sided(TcpConnection& connection);
    // The same for one that is cut into pieces.
    ucs_status_t check_pieces();
    // Some pieces are on their way and the rest has no memory: nothing goes on.
    ucs_status_t fail_halfway(CompletionGroup& parts);
    ucs_status_t start_get(RemoteOperation& operation, TcpConnection& connection,
                           uint64_t remote_address, RemoteKey key);

    Association& association_;
    Endpoint& reported_as_;
    ucs_status_t status_ = UCS_OK;
};

}  // namespace uct::tcp
