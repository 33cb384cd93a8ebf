// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ucs/config/source.h"
#include "ucs/net/socket.h"
#include "ucs/sys/descriptor.h"
#include "ucs/sys/random.h"
#include "ucs/sys/time.h"
#include "uct/api/interface.h"
#include "uct/tcp/interface/tcp_interface.h"
#include "uct/tcp/wire/address.h"
#include "uct/tcp/wire/format.h"
#include "uct/tcp/wire/proof.h"

namespace ucp::fuzz {

// An interface of tcp over the loopback with a registered region, on a virtual clock.
class TcpVictim {
  public:
    // @param job_key  empty: it speaks in clear
    explicit TcpVictim(bool keeps_sessions, const char* job_key = "");
    ~TcpVictim();
    TcpVictim(const TcpVictim&) = delete;

    bool works() const { return interface_ != nullptr; }
    uct::tcp::TcpInterface& tcp() { return static_cast<uct::tcp::TcpInterface&>(*interface_); }
    uct::tcp::DeviceAddress device() const;
    uct::tcp::ListenerAddress listener() const;
    // What who knows the secret of a listener, and the job's key, proves.
    uct::tcp::wire::Key key_of(const uct::tcp::wire::Secret& listener) const {
        return uct::tcp::wire::key_of(listener, job_key_);
    }
    // Time passes: an interface on which nothing happens rests between looks.
    void progress(unsigned milliseconds = 8);
    void pass(ucs::Duration time) { clock_.advance(time); }
    // The interface is to come to that, without anything from outside. Time passes; but who has
    // gone may be noticed later, as sockets know no virtual clock and loaded machines are slow.
    bool comes_to(const std::function<bool()>& condition);

    // A connection of the kernel's to it, with nothing said; empty if there is none.
    ucs::Descriptor connect() const;
    // What has been said to it, or by it, on such a connection.
    static bool put(int socket, const void* data, size_t length) {
        return send(socket, data, length, MSG_NOSIGNAL | MSG_DONTWAIT) ==
               static_cast<ssize_t>(length);
    }
    // The next message of the interface's, if it comes.
    template <typename Message>
    bool take(int socket, Message* message) {
        for (int round = 0; round < 20; ++round) {
            if (recv(socket, message, sizeof(*message), MSG_DONTWAIT) == ssize_t{sizeof(*message)})
                return true;
            progress(1);
        }
        return false;
    }

    // What a peer of the job says first.
    uct::tcp::wire::Hello hello(uint64_t sender, uint32_t association);
    // Words of a stream that begin with k or m become the region's key or an address in it.
    std::vector<uint8_t> speak_to(std::span<const uint8_t> stream) const;

    // The beginning of the region.
    uct::Iov local(size_t length) { return {memory_, length, handle_}; }

  private:
    ucs::VirtualClock clock_;
    ucs::Random random_;
    const std::string job_key_;
    ucs::config::Source settings_;
    uct::AmTable table_;
    std::unique_ptr<uct::MemoryDomain> domain_;
    std::unique_ptr<uct::Interface> interface_;
    uct::MemoryHandle* handle_ = nullptr;
    uct::RemoteKey key_ = 0;
    alignas(8) std::byte memory_[256] = {};
};

// A listener that the interface may call, in the name of a peer, and what it does meanwhile with an
// endpoint to that peer.
class TcpWork {
  public:
    enum What : uint8_t {
        kMessage,
        kPut,
        kGet,
        kAtomic,
        kFlush,
        kFence,
        kCheck,
        kForget,
        kCut,
        kCount
    };
    static constexpr uint64_t kPeer = 0x7065657200000001;
    static constexpr uct::tcp::wire::Secret kPeerSecret{1, 2};

    explicit TcpWork(TcpVictim& victim);
    bool works() const { return works_; }

    void begin(What what);
    // The interface has called.
    ucs::Descriptor accept();
    uint16_t port() const { return listener_.local().port(); }
    // The peer has gone: every operation must have ended, and no connection be left.
    void end();

  private:
    struct Operation : uct::Completion {
        Operation() {
            count = 1;
            callback = [](Completion* self) { static_cast<Operation*>(self)->is_over = true; };
        }
        bool is_over = false;
        uint64_t old_value = 0;
    };

    bool make_endpoint();

    TcpVictim& victim_;
    bool works_ = false;
    ucs::net::Socket listener_;
    std::array<std::byte, uct::tcp::DeviceAddress::kLength> device_{};
    std::array<std::byte, uct::tcp::ListenerAddress::kLength> address_{};
    std::deque<Operation> operations_;
    std::unique_ptr<uct::Endpoint> endpoint_;
};

}  // namespace ucp::fuzz
