// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/interface/tcp_connected_endpoint.h"

#include "uct/tcp/interface/tcp_interface.h"

namespace uct::tcp {

TcpConnectedEndpoint::~TcpConnectedEndpoint() {
    if (endpoint_ == nullptr) return;
    endpoint_.reset();
    // The peer's end may have chains under way: from here on nothing of them is written. The
    // connection goes with them, which tells the peer.
    interface_.cut_off({{}, peer_, {}}, 0);
}

ucs_status_t TcpConnectedEndpoint::get_address(std::span<std::byte> address) const {
    return interface_.get_interface_address(address);
}

ucs_status_t TcpConnectedEndpoint::connect(const RemoteAddress& remote) {
    if (endpoint_ != nullptr) return UCS_ERR_ALREADY_EXISTS;
    const auto association = interface_.associate({remote.device, remote.endpoint, {}});
    if (association == nullptr) return UCS_ERR_UNREACHABLE;
    endpoint_ = std::make_unique<TcpEndpoint>(*association, this);
    peer_.assign(remote.endpoint.begin(), remote.endpoint.end());
    return UCS_OK;
}

bool TcpConnectedEndpoint::is_connected(const RemoteAddress& remote) const {
    return endpoint_ != nullptr && endpoint_->is_connected({remote.device, remote.endpoint, {}});
}

ssize_t TcpConnectedEndpoint::put_chain(std::span<const ChainPiece> pieces,
                                        Completion* completion) {
    if (endpoint_ == nullptr) return UCS_ERR_NOT_CONNECTED;
    return endpoint_->put_chain(pieces, completion);
}

ssize_t TcpConnectedEndpoint::get_chain(std::span<const ChainPiece> pieces,
                                        Completion* completion) {
    if (endpoint_ == nullptr) return UCS_ERR_NOT_CONNECTED;
    return endpoint_->get_chain(pieces, completion);
}

}  // namespace uct::tcp
