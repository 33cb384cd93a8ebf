// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "uct/base/refusing_endpoint.h"
#include "uct/tcp/interface/tcp_endpoint.h"

namespace uct::tcp {

class TcpInterface;

// An endpoint that is made before its peer is known, for chains alone (kConnectable): its address
// is its interface's. The peer's end is of that interface's, too, so that when either is destroyed
// nothing more of the other's chains is written here.
class TcpConnectedEndpoint final : public RefusingEndpoint {
  public:
    explicit TcpConnectedEndpoint(TcpInterface& interface) : interface_(interface) {}
    ~TcpConnectedEndpoint() override;

    ucs_status_t get_address(std::span<std::byte> address) const override;
    // @param remote  device and endpoint are the peer's
    ucs_status_t connect(const RemoteAddress& remote) override;
    bool is_connected(const RemoteAddress& remote) const override;

    ssize_t put_chain(std::span<const ChainPiece> pieces, Completion* completion) override;
    ssize_t get_chain(std::span<const ChainPiece> pieces, Completion* completion) override;

  private:
    TcpInterface& interface_;
    std::vector<std::byte> peer_;  // its interface's address
    std::unique_ptr<TcpEndpoint> endpoint_;
};

}  // namespace uct::tcp
