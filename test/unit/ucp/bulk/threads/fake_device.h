// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <list>
#include <memory>
#include <vector>

#include "uct/api/memory_domain.h"
#include "uct/base/refusing_endpoint.h"

// A device whose queue pairs move bytes by the processor, and that has no room, fails, refuses,
// falls silent or loses its link when it is told to.
namespace ucp::bulk::test {

// What the device does; changed by the test while the thread runs.
struct FakeDevice {
    std::atomic<unsigned> room{64};  // pieces taken by a chain; 0: none now
    std::atomic<bool> is_silent{false};
    std::atomic<bool> is_broken{false};
    std::atomic<bool> refuses_next{false};  // the next chain, without a word of its queue pair
    std::atomic<bool> link_up{true};
    std::atomic<unsigned> endpoints{0};
};

class FakeInterface;

class FakeEndpoint final : public uct::RefusingEndpoint {
  public:
    explicit FakeEndpoint(FakeInterface& interface) : interface_(interface) {}
    ~FakeEndpoint() override;

    ssize_t put_chain(std::span<const uct::ChainPiece> pieces, uct::Completion* done) override {
        return post(pieces, done, true);
    }
    ssize_t get_chain(std::span<const uct::ChainPiece> pieces, uct::Completion* done) override {
        return post(pieces, done, false);
    }
    bool is_connected(const uct::RemoteAddress&) const override { return true; }

    struct Posted {
        std::vector<uct::ChainPiece> pieces;
        uct::Completion* done;
        bool is_put;
    };
    std::list<Posted> posted;

  private:
    ssize_t post(std::span<const uct::ChainPiece> pieces, uct::Completion* done, bool is_put);

    FakeInterface& interface_;
};

class FakeInterface final : public uct::Interface {
  public:
    FakeInterface(FakeDevice& device, const uct::InterfaceParams& params)
        : device_(device), params_(params) {}

    ucs_status_t get_device_address(std::span<std::byte>) const override { return UCS_OK; }
    bool is_reachable(const uct::RemoteAddress&) const override { return true; }
    ucs_status_t create_endpoint(const uct::RemoteAddress&,
                                 std::unique_ptr<uct::Endpoint>* endpoint) override {
        auto made = std::make_unique<FakeEndpoint>(*this);
        endpoints_.push_back(made.get());
        ++device_.endpoints;
        *endpoint = std::move(made);
        return UCS_OK;
    }
    // One chain of each endpoint.
    unsigned progress() override {
        unsigned events = 0;
        if (device_.is_silent) return events;
        for (FakeEndpoint* endpoint : endpoints_) {
            if (endpoint->posted.empty()) continue;
            ++events;
            const FakeEndpoint::Posted chain = endpoint->posted.front();
            endpoint->posted.pop_front();
            if (device_.is_broken) {
                params_.error_handler(params_.error_arg, endpoint, UCS_ERR_CONNECTION_RESET);
                chain.done->complete(UCS_ERR_CONNECTION_RESET);
                continue;
            }
            if (device_.refuses_next.exchange(false)) {
                chain.done->complete(UCS_ERR_REJECTED);
                continue;
            }
            for (const uct::ChainPiece& piece : chain.pieces) {
                void* const remote = reinterpret_cast<void*>(piece.remote);
                std::memcpy(chain.is_put ? remote : piece.local,
                            chain.is_put ? piece.local : remote, piece.length);
            }
            chain.done->complete(UCS_OK);
        }
        return events;
    }
    bool is_link_up() const override { return device_.link_up; }
    ucs_status_t flush(uct::Completion*) override { return UCS_OK; }

    void remove(FakeEndpoint* endpoint) {
        std::erase(endpoints_, endpoint);
        --device_.endpoints;
    }
    FakeDevice& device() { return device_; }

  private:
    FakeDevice& device_;
    const uct::InterfaceParams params_;
    std::vector<FakeEndpoint*> endpoints_;
};

inline FakeEndpoint::~FakeEndpoint() {
    interface_.remove(this);
    for (const Posted& chain : posted) chain.done->complete(UCS_ERR_CANCELED);
}

inline ssize_t FakeEndpoint::post(std::span<const uct::ChainPiece> pieces, uct::Completion* done,
                                  bool is_put) {
    pieces = pieces.first(std::min<size_t>(pieces.size(), interface_.device().room));
    if (pieces.empty()) return 0;
    posted.push_back({{pieces.begin(), pieces.end()}, done, is_put});
    return static_cast<ssize_t>(pieces.size());
}

class FakeDomain final : public uct::MemoryDomain {
  public:
    explicit FakeDomain(FakeDevice& device) : device_(device) {}

    const uct::MemoryDomainAttributes& attributes() const override { return attributes_; }
    ucs_status_t register_memory(void*, size_t, uct::PeerRights, uct::MemoryHandle**) override {
        return UCS_OK;
    }
    void deregister_memory(uct::MemoryHandle*) override {}
    void pack_remote_key(const uct::MemoryHandle*, std::span<std::byte>) const override {}
    ucs_status_t unpack_remote_key(std::span<const std::byte>, uct::RemoteKey*) override {
        return UCS_OK;
    }
    ucs_status_t open_interface(std::string_view, const uct::InterfaceParams& params,
                                std::unique_ptr<uct::Interface>* interface) override {
        *interface = std::make_unique<FakeInterface>(device_, params);
        return UCS_OK;
    }

  private:
    FakeDevice& device_;
    const uct::MemoryDomainAttributes attributes_;
};

}  // namespace ucp::bulk::test
