// SPDX-License-Identifier: BSD-3-Clause
#include "fuzz/tcp_victim.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "uct/base/am.h"
#include "uct/tcp/component.h"

namespace ucp::fuzz {

TcpVictim::TcpVictim(bool keeps_sessions, const char* job_key) : random_(1), job_key_(job_key) {
    uct::drop_all(table_);
    std::string error;
    for (const auto& [name, value] : {std::pair{"TCP_FAILOVER", keeps_sessions ? "y" : "n"},
                                      {"TCP_JOB_KEY", job_key},
                                      {"TCP_ENCRYPT", job_key_.empty() ? "n" : "y"}}) {
        if (settings_.modify(name, value, error) != UCS_OK) return;
    }
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

bool TcpVictim::comes_to(const std::function<bool()>& condition) {
    constexpr int kLeast = 60, kAtOnce = 100, kMost = 400;
    for (int round = 0; round < kMost; ++round) {
        pass(std::chrono::milliseconds(400));
        progress(1);
        if (round >= kLeast && condition()) return true;
        if (round >= kAtOnce) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
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

TcpWork::TcpWork(TcpVictim& victim) : victim_(victim) {
    if (!victim_.works() || ucs::net::Socket::open(AF_INET, &listener_) != UCS_OK) return;
    if (listener_.bind({victim_.device().ip, 0, 0}) != UCS_OK) return;
    works_ = listener_.listen() == UCS_OK;
}

bool TcpWork::make_endpoint() {
    victim_.device().write(device_);
    uct::tcp::ListenerAddress{port(), kPeer, kPeerSecret}.write(address_);
    return victim_.tcp().create_endpoint({device_, address_, {}}, &endpoint_) == UCS_OK;
}

void TcpWork::begin(What what) {
    if (endpoint_ == nullptr && !make_endpoint()) return;
    operations_.emplace_back();
    Operation& operation = operations_.back();
    const uct::Iov piece = victim_.local(64);
    ucs_status_t status = UCS_OK;
    switch (what) {
        case kMessage:
            endpoint_->am_short(1, 2, piece.buffer, 40);
            break;
        case kPut:
            status = endpoint_->put_zcopy({&piece, 1}, 4096, 1, &operation);
            break;
        case kGet:
            status = endpoint_->get_zcopy({&piece, 1}, 4096, 1, &operation);
            break;
        case kAtomic:
            status = endpoint_->atomic(uct::AtomicOp::kAdd, 8, 1, 0, &operation.old_value, 4096, 1,
                                       &operation);
            break;
        case kFlush:
            status = endpoint_->flush(&operation);
            break;
        case kFence:
            endpoint_->fence();
            break;
        case kCheck:
            status = endpoint_->check(&operation);
            break;
        case kForget:
            endpoint_.reset();
            break;
        default:
            victim_.tcp().cut_off({device_, address_, {}}, kPeer);
    }
    if (status != UCS_INPROGRESS) operation.is_over = true;
}

ucs::Descriptor TcpWork::accept() {
    ucs::net::Socket accepted;
    for (int round = 0; round < 4 && listener_.accept(&accepted) != UCS_OK; ++round) {
        victim_.progress(1);
    }
    return ucs::Descriptor(accepted ? dup(accepted.descriptor()) : -1);
}

void TcpWork::end() {
    listener_.close();
    const auto is_over = [](const Operation& operation) { return operation.is_over; };
    if (!victim_.comes_to([&] { return std::ranges::all_of(operations_, is_over); })) std::abort();
    endpoint_.reset();
    if (!victim_.comes_to([this] {
            return victim_.tcp().open_connections() == 0 && victim_.tcp().handshakes() == 0;
        })) {
        std::abort();
    }
}

}  // namespace ucp::fuzz
