// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ucs/config/source.h"
#include "ucs/sys/descriptor.h"
#include "ucs/sys/random.h"
#include "ucs/sys/time.h"
#include "uct/api/interface.h"
#include "uct/tcp/interface/tcp_interface.h"
#include "uct/tcp/wire/address.h"
#include "uct/tcp/wire/format.h"

namespace ucp::fuzz {

// An interface of tcp over the loopback with a registered region, on a virtual clock.
class TcpVictim {
  public:
    explicit TcpVictim(bool keeps_sessions);
    ~TcpVictim();
    TcpVictim(const TcpVictim&) = delete;

    bool works() const { return interface_ != nullptr; }
    uct::tcp::TcpInterface& tcp() { return static_cast<uct::tcp::TcpInterface&>(*interface_); }
    uct::tcp::DeviceAddress device() const;
    uct::tcp::ListenerAddress listener() const;
    // Time passes: an interface on which nothing happens rests between looks.
    void progress(unsigned milliseconds = 8);
    void pass(ucs::Duration time) { clock_.advance(time); }

    // A connection of the kernel's to it, with nothing said; empty if there is none.
    ucs::Descriptor connect() const;
    // What a peer of the job says first.
    uct::tcp::wire::Hello hello(uint64_t sender, uint32_t association);
    // Words of a stream that begin with k or m become the region's key or an address in it.
    std::vector<uint8_t> speak_to(std::span<const uint8_t> stream) const;

    // The beginning of the region.
    uct::Iov local(size_t length) { return {memory_, length, handle_}; }

  private:
    ucs::VirtualClock clock_;
    ucs::Random random_;
    ucs::config::Source settings_;
    uct::AmTable table_;
    std::unique_ptr<uct::MemoryDomain> domain_;
    std::unique_ptr<uct::Interface> interface_;
    uct::MemoryHandle* handle_ = nullptr;
    uct::RemoteKey key_ = 0;
    alignas(8) std::byte memory_[256] = {};
};

}  // namespace ucp::fuzz
