// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "uct/api/memory_domain.h"
#include "uct/base/forwarding.h"

// Any component, whose transports change a bit of what they carry when a test says so.
namespace uct::test {

// Which message is to be changed: the next one that is long enough.
struct Flip {
    bool is_armed = false;
    size_t least = 0;     // bytes of the message
    size_t skipped = 0;   // so many of those before it are left alone
    size_t from_end = 0;  // the byte of the message that is changed, counted from its end
    bool has_happened = false;

    void arm(size_t length, size_t others, size_t byte) {
        *this = {.is_armed = true, .least = length, .skipped = others, .from_end = byte};
    }
    // Is it this message's turn?
    bool takes(size_t length) {
        if (!is_armed || length < least || length <= from_end) return false;
        if (skipped != 0) {
            --skipped;
            return false;
        }
        is_armed = false;
        has_happened = true;
        return true;
    }
    void change(void* message, size_t length) const {
        static_cast<std::byte*>(message)[length - 1 - from_end] ^= std::byte{0x10};
    }
};

class FlippingInterface;

// Changes messages and what is put, as it is handed to the transport. Gets are left alone.
class FlippingEndpoint final : public ForwardingEndpoint {
  public:
    FlippingEndpoint(FlippingInterface& interface, std::unique_ptr<Endpoint> inner);

    ucs_status_t am_short(uint8_t id, uint64_t header, const void* payload,
                          uint32_t length) override {
        std::vector<std::byte> bytes(sizeof(header) + length);
        std::memcpy(bytes.data(), &header, sizeof(header));
        if (length != 0) std::memcpy(bytes.data() + sizeof(header), payload, length);
        flip(bytes);
        std::memcpy(&header, bytes.data(), sizeof(header));
        return inner().am_short(id, header, bytes.data() + sizeof(header), length);
    }
    ssize_t am_bcopy(uint8_t id, PackCallback pack, void* arg) override {
        Packed packed{*this, pack, arg};
        return inner().am_bcopy(id, Packed::flipped, &packed);
    }
    ucs_status_t am_zcopy(uint8_t id, std::span<const std::byte> header, std::span<const Iov> iov,
                          Completion* completion) override {
        flip(iov);
        return inner().am_zcopy(id, header, iov, completion);
    }
    ucs_status_t put_short(const void* buffer, uint32_t length, uint64_t remote_address,
                           RemoteKey key) override {
        std::vector<std::byte> bytes(length);
        if (length != 0) std::memcpy(bytes.data(), buffer, length);
        flip(bytes);
        return inner().put_short(bytes.data(), length, remote_address, key);
    }
    ssize_t put_bcopy(PackCallback pack, void* arg, uint64_t remote_address,
                      RemoteKey key) override {
        Packed packed{*this, pack, arg};
        return inner().put_bcopy(Packed::flipped, &packed, remote_address, key);
    }
    ucs_status_t put_zcopy(std::span<const Iov> iov, uint64_t remote_address, RemoteKey key,
                           Completion* completion) override {
        flip(iov);
        return inner().put_zcopy(iov, remote_address, key, completion);
    }
    ucs_status_t get_bcopy(UnpackCallback unpack, void* arg, size_t length, uint64_t remote_address,
                           RemoteKey key, Completion* completion) override {
        return inner().get_bcopy(unpack, arg, length, remote_address, key, completion);
    }
    ucs_status_t get_zcopy(std::span<const Iov> iov, uint64_t remote_address, RemoteKey key,
                           Completion* completion) override {
        return inner().get_zcopy(iov, remote_address, key, completion);
    }
    ucs_status_t atomic(AtomicOp op, unsigned size, uint64_t operand, uint64_t compare,
                        void* result, uint64_t remote_address, RemoteKey key,
                        Completion* completion) override {
        return inner().atomic(op, size, operand, compare, result, remote_address, key, completion);
    }

  private:
    struct Packed {
        FlippingEndpoint& self;
        PackCallback pack;
        void* arg;

        static size_t flipped(void* destination, void* arg) {
            const Packed& packed = *static_cast<Packed*>(arg);
            const size_t length = packed.pack(destination, packed.arg);
            packed.self.flip({static_cast<std::byte*>(destination), length});
            return length;
        }
    };
    void flip(std::span<std::byte> bytes) {
        if (flip_.takes(bytes.size())) flip_.change(bytes.data(), bytes.size());
    }
    // The memory that is sent from stays changed.
    void flip(std::span<const Iov> iov) {
        if (!iov.empty()) flip({static_cast<std::byte*>(iov.back().buffer), iov.back().length});
    }

    Flip& flip_;
};

class FlippingInterface final : public ForwardingInterface {
  public:
    FlippingInterface(const InterfaceParams& params, Flip& flip)
        : ForwardingInterface(params), flip_(flip) {}
    ucs_status_t open(MemoryDomain& domain, std::string_view transport) {
        std::unique_ptr<Interface> inner;
        const ucs_status_t status = domain.open_interface(transport, below(am_table()), &inner);
        if (status != UCS_OK) return status;
        adopt(std::move(inner));
        attributes_.capabilities &= ~(kPutChain | kGetChain | kOrderedChain | kImmediate | kPieces);
        return UCS_OK;
    }
    ucs_status_t create_endpoint(const RemoteAddress& remote,
                                 std::unique_ptr<Endpoint>* endpoint) override {
        return create_endpoint_of<FlippingEndpoint>(*this, remote, endpoint);
    }
    Flip& flip() { return flip_; }

  private:
    Flip& flip_;
};

inline FlippingEndpoint::FlippingEndpoint(FlippingInterface& interface,
                                          std::unique_ptr<Endpoint> inner)
    : ForwardingEndpoint(interface, std::move(inner)), flip_(interface.flip()) {}

class FlippingDomain final : public MemoryDomain {
  public:
    FlippingDomain(std::unique_ptr<MemoryDomain> inner, Flip& flip)
        : inner_(std::move(inner)), flip_(flip) {}

    const MemoryDomainAttributes& attributes() const override { return inner_->attributes(); }
    ucs_status_t register_memory(void* address, size_t length, PeerRights rights,
                                 MemoryHandle** handle) override {
        return inner_->register_memory(address, length, rights, handle);
    }
    void deregister_memory(MemoryHandle* handle) override { inner_->deregister_memory(handle); }
    void pack_remote_key(const MemoryHandle* handle, std::span<std::byte> packed) const override {
        inner_->pack_remote_key(handle, packed);
    }
    ucs_status_t unpack_remote_key(std::span<const std::byte> packed, RemoteKey* key) override {
        return inner_->unpack_remote_key(packed, key);
    }
    void release_remote_key(RemoteKey key) override { inner_->release_remote_key(key); }
    ucs_status_t allocate_memory(size_t length, void* hint, bool fixed, void** address) override {
        return inner_->allocate_memory(length, hint, fixed, address);
    }
    void free_memory(void* address) override { inner_->free_memory(address); }
    void* remote_pointer(RemoteKey key, uint64_t address) const override {
        return inner_->remote_pointer(key, address);
    }
    bool has_atomics(RemoteKey key) const override { return inner_->has_atomics(key); }
    ucs_status_t open_interface(std::string_view transport, const InterfaceParams& params,
                                std::unique_ptr<Interface>* interface) override {
        auto made = std::make_unique<FlippingInterface>(params, flip_);
        const ucs_status_t status = made->open(*inner_, transport);
        if (status == UCS_OK) *interface = std::move(made);
        return status;
    }

  private:
    std::unique_ptr<MemoryDomain> inner_;
    Flip& flip_;
};

class FlippingComponent final : public Component {
  public:
    explicit FlippingComponent(Component& inner) : inner_(inner) {}

    std::string_view name() const override { return inner_.name(); }
    std::span<const TransportDeclaration> transports() const override {
        return inner_.transports();
    }
    std::span<const Resource> resources() override { return inner_.resources(); }
    ucs_status_t open_domain(std::string_view device,
                             std::unique_ptr<MemoryDomain>* domain) override {
        std::unique_ptr<MemoryDomain> made;
        const ucs_status_t status = inner_.open_domain(device, &made);
        if (status == UCS_OK) *domain = std::make_unique<FlippingDomain>(std::move(made), flip);
        return status;
    }

    Flip flip;

  private:
    Component& inner_;
};

}  // namespace uct::test
