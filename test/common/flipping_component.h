// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "uct/api/interface.h"
#include "uct/api/memory_domain.h"

/** Any component, whose transports change a bit of what they carry when a test says so. */
namespace uct::test {

/** Which message is to be changed: the next one that is long enough. */
struct Flip {
    bool is_armed = false;
    size_t least = 0;     //!< bytes of the message
    size_t skipped = 0;   //!< so many of those before it are left alone
    size_t from_end = 0;  //!< the byte of the message that is changed, counted from its end
    bool has_happened = false;

    void arm(size_t length, size_t others, size_t byte) {
        *this = {.is_armed = true, .least = length, .skipped = others, .from_end = byte};
    }
    /** Is it this message's turn? */
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

/** Changes messages and what is put, as it is handed to the transport. Gets are left alone. */
class FlippingEndpoint final : public Endpoint {
  public:
    FlippingEndpoint(FlippingInterface& interface, std::unique_ptr<Endpoint> inner);
    ~FlippingEndpoint() override;

    ucs_status_t am_short(uint8_t id, uint64_t header, const void* payload,
                          uint32_t length) override {
        std::vector<std::byte> bytes(sizeof(header) + length);
        std::memcpy(bytes.data(), &header, sizeof(header));
        if (length != 0) std::memcpy(bytes.data() + sizeof(header), payload, length);
        flip(bytes);
        std::memcpy(&header, bytes.data(), sizeof(header));
        return inner_->am_short(id, header, bytes.data() + sizeof(header), length);
    }
    ssize_t am_bcopy(uint8_t id, PackCallback pack, void* arg) override {
        Packed packed{*this, pack, arg};
        return inner_->am_bcopy(id, Packed::flipped, &packed);
    }
    ucs_status_t am_zcopy(uint8_t id, std::span<const std::byte> header, std::span<const Iov> iov,
                          Completion* completion) override {
        flip(iov);
        return inner_->am_zcopy(id, header, iov, completion);
    }
    ucs_status_t put_short(const void* buffer, uint32_t length, uint64_t remote_address,
                           RemoteKey key) override {
        std::vector<std::byte> bytes(length);
        if (length != 0) std::memcpy(bytes.data(), buffer, length);
        flip(bytes);
        return inner_->put_short(bytes.data(), length, remote_address, key);
    }
    ssize_t put_bcopy(PackCallback pack, void* arg, uint64_t remote_address,
                      RemoteKey key) override {
        Packed packed{*this, pack, arg};
        return inner_->put_bcopy(Packed::flipped, &packed, remote_address, key);
    }
    ucs_status_t put_zcopy(std::span<const Iov> iov, uint64_t remote_address, RemoteKey key,
                           Completion* completion) override {
        flip(iov);
        return inner_->put_zcopy(iov, remote_address, key, completion);
    }
    ucs_status_t get_bcopy(UnpackCallback unpack, void* arg, size_t length, uint64_t remote_address,
                           RemoteKey key, Completion* completion) override {
        return inner_->get_bcopy(unpack, arg, length, remote_address, key, completion);
    }
    ucs_status_t get_zcopy(std::span<const Iov> iov, uint64_t remote_address, RemoteKey key,
                           Completion* completion) override {
        return inner_->get_zcopy(iov, remote_address, key, completion);
    }
    ucs_status_t atomic(AtomicOp op, unsigned size, uint64_t operand, uint64_t compare,
                        void* result, uint64_t remote_address, RemoteKey key,
                        Completion* completion) override {
        return inner_->atomic(op, size, operand, compare, result, remote_address, key, completion);
    }
    ucs_status_t fence() override { return inner_->fence(); }
    ucs_status_t flush(Completion* completion) override { return inner_->flush(completion); }
    ucs_status_t check(Completion* completion) override { return inner_->check(completion); }
    ucs_status_t pending_add(Pending* pending) override { return inner_->pending_add(pending); }
    void pending_remove(Pending* pending) override { inner_->pending_remove(pending); }
    bool is_connected(const RemoteAddress& remote) const override {
        return inner_->is_connected(remote);
    }
    ucs_status_t get_address(std::span<std::byte> address) const override {
        return inner_->get_address(address);
    }
    ucs_status_t connect(const RemoteAddress& remote) override { return inner_->connect(remote); }
    void set_peer(uint64_t worker) override { inner_->set_peer(worker); }
    void set_receive_gate(ReceiveGate* gate) override { inner_->set_receive_gate(gate); }

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
    void flip(std::span<std::byte> bytes);
    /** The memory that is sent from stays changed. */
    void flip(std::span<const Iov> iov) {
        if (!iov.empty()) flip({static_cast<std::byte*>(iov.back().buffer), iov.back().length});
    }

    FlippingInterface& interface_;
    std::unique_ptr<Endpoint> inner_;
};

class FlippingInterface final : public Interface {
  public:
    FlippingInterface(const InterfaceParams& params, Flip& flip) : params_(params), flip_(flip) {}
    /** What the transport below is to be opened with. */
    InterfaceParams below() {
        return {params_.clock,
                params_.random,
                params_.am_table,
                failed,
                this,
                params_.worker_id,
                params_.estimated_endpoints,
                params_.config};
    }
    void adopt(std::unique_ptr<Interface> inner) {
        inner_ = std::move(inner);
        attributes_ = inner_->attributes();
        attributes_.capabilities &= ~(kPutChain | kGetChain | kOrderedChain | kImmediate | kPieces);
    }

    ucs_status_t get_device_address(std::span<std::byte> address) const override {
        return inner_->get_device_address(address);
    }
    ucs_status_t get_interface_address(std::span<std::byte> address) const override {
        return inner_->get_interface_address(address);
    }
    bool is_reachable(const RemoteAddress& remote) const override {
        return inner_->is_reachable(remote);
    }
    ucs_status_t create_endpoint(const RemoteAddress& remote,
                                 std::unique_ptr<Endpoint>* endpoint) override {
        std::unique_ptr<Endpoint> made;
        const ucs_status_t status = inner_->create_endpoint(remote, &made);
        if (status == UCS_OK)
            *endpoint = std::make_unique<FlippingEndpoint>(*this, std::move(made));
        return status;
    }
    unsigned progress() override { return inner_->progress(); }
    void look_soon() override { inner_->look_soon(); }
    uint64_t name_of(const RemoteAddress& remote) const override { return inner_->name_of(remote); }
    ucs::Time next_deadline() const override { return inner_->next_deadline(); }
    bool is_link_up() const override { return inner_->is_link_up(); }
    GuestHost* guest_host() override { return inner_->guest_host(); }
    ucs_status_t flush(Completion* completion) override { return inner_->flush(completion); }
    int event_fd() const override { return inner_->event_fd(); }
    ucs_status_t arm() override { return inner_->arm(); }

    Flip& flip() { return flip_; }
    std::unordered_map<const Endpoint*, Endpoint*> endpoints;  //!< of this by those below

  private:
    static void failed(void* arg, Endpoint* inner, ucs_status_t status) {
        auto& self = *static_cast<FlippingInterface*>(arg);
        const auto found = self.endpoints.find(inner);
        if (found != self.endpoints.end())
            self.params_.error_handler(self.params_.error_arg, found->second, status);
    }

    const InterfaceParams params_;
    Flip& flip_;
    std::unique_ptr<Interface> inner_;
};

inline FlippingEndpoint::FlippingEndpoint(FlippingInterface& interface,
                                          std::unique_ptr<Endpoint> inner)
    : interface_(interface), inner_(std::move(inner)) {
    interface_.endpoints[inner_.get()] = this;
}
inline FlippingEndpoint::~FlippingEndpoint() {
    interface_.endpoints.erase(inner_.get());
}
inline void FlippingEndpoint::flip(std::span<std::byte> bytes) {
    if (interface_.flip().takes(bytes.size())) interface_.flip().change(bytes.data(), bytes.size());
}

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
        std::unique_ptr<Interface> inner;
        const ucs_status_t status = inner_->open_interface(transport, made->below(), &inner);
        if (status != UCS_OK) return status;
        made->adopt(std::move(inner));
        *interface = std::move(made);
        return UCS_OK;
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
