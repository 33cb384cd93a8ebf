// SPDX-License-Identifier: BSD-3-Clause
#include "fuzz/tcp_victim.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cstring>
#include <string>

#include "uct/base/am.h"
#include "uct/tcp/component.h"

namespace ucp::fuzz {

TcpVictim::TcpVictim(bool keeps_sessions) : random_(1) {
    uct::drop_all(table_);
    std::string error;
    if (settings_.modify("TCP_FAILOVER", keeps_sessions ? "y" : "n", error) != UCS_OK) return;
    const uct::InterfaceParams params{
        clock_,  random_, table_, [](void*, uct::Endpoint*, ucs_status_t) {},
        nullptr, 1,       1,      &settings_};
    if (uct::tcp::component().open_domain("lo", &domain_) != UCS_OK ||
        domain_->open_interface("tcp", params, &interface_) != UCS_OK) {
        return;
    }
    domain_->register_memory(memory_, sizeof(memory_), uct::PeerRights::kAll, &handle_);
    std::byte packed[64];
    domain_->pack_remote_key(handle_, {packed, domain_->attributes().remote_key_length});
    domain_->unpack_remote_key({packed, domain_->attributes().remote_key_length}, &key_);
}

TcpVictim::~TcpVictim() {
    interface_.reset();
    if (handle_ != nullptr) domain_->deregister_memory(handle_);
}

uct::tcp::DeviceAddress TcpVictim::device() const {
    std::byte bytes[uct::tcp::DeviceAddress::kLength];
    interface_->get_device_address(bytes);
    return *uct::tcp::DeviceAddress::read(bytes);
}

uct::tcp::ListenerAddress TcpVictim::listener() const {
    std::byte bytes[uct::tcp::ListenerAddress::kLength];
    interface_->get_interface_address(bytes);
    return *uct::tcp::ListenerAddress::read(bytes);
}

void TcpVictim::progress(unsigned milliseconds) {
    for (; milliseconds != 0; --milliseconds) {
        clock_.advance(std::chrono::milliseconds(1));
        interface_->progress();
    }
}

ucs::Descriptor TcpVictim::connect() const {
    const ucs::net::SocketAddress address(device().ip, listener().port, 0);
    ucs::Descriptor made(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(made.get(), address.get(), address.length()) != 0) return {};
    const int yes = 1;
    setsockopt(made.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    const linger at_once{1, 0};  // no waiting state for each of a million connections
    setsockopt(made.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    return made;
}

uct::tcp::wire::Hello TcpVictim::hello(uint64_t sender, uint32_t association) {
    uct::tcp::wire::Hello hello{};
    hello.magic = uct::tcp::wire::kMagic;
    hello.version = uct::tcp::wire::kVersion;
    hello.oldest = uct::tcp::wire::kOldestVersion;
    hello.sender = sender;
    hello.receiver = listener().id;
    hello.max_frame = static_cast<uint32_t>(tcp().max_message());
    hello.association = association;
    return hello;
}

std::vector<uint8_t> TcpVictim::speak_to(std::span<const uint8_t> stream) const {
    std::vector<uint8_t> bytes(stream.begin(), stream.end());
    for (size_t at = 0; at + 8 <= bytes.size(); at += 8) {
        const uint64_t word =
            bytes[at] == 'k' ? key_ : reinterpret_cast<uintptr_t>(memory_) + bytes[at + 1];
        if (bytes[at] == 'k' || bytes[at] == 'm') std::memcpy(&bytes[at], &word, sizeof(word));
    }
    return bytes;
}

}  // namespace ucp::fuzz
