// SPDX-License-Identifier: BSD-3-Clause
#include "uct/self/self_interface.h"

#include <cstring>

#include "uct/base/am.h"

namespace uct {

namespace {

constexpr size_t kShort = 256, kCopy = 8192, kZeroCopy = 65536;
constexpr size_t kMaxIov = 16;
// Of puts and gets that are done when their call returns.
constexpr size_t kMaxAtOnce = 65536;
constexpr uint8_t kAllAtomics = 0x3f;
constexpr size_t kAddressLength = 8;

constexpr std::string_view kWords[] = {"loopback"};
constexpr TransportDeclaration kSelf{"self", DeviceType::kSelf, Reach::kInterface,
                                     kAmShort | kAmBcopy | kAmZcopy | kPutShort | kPutBcopy |
                                         kPutZcopy | kGetBcopy | kGetZcopy | kAtomicCpu |
                                         kCheckPeer | kCopies,
                                     kWords};

ucs_status_t move(CopyDirection direction, const Iov& piece, uint64_t remote, RemoteKey) {
    auto* const there = reinterpret_cast<void*>(remote);
    const bool is_put = direction == CopyDirection::kPut;
    std::memmove(is_put ? there : piece.buffer, is_put ? piece.buffer : there, piece.length);
    return UCS_OK;
}

class SelfDomain final : public MemoryDomain {
  public:
    SelfDomain() {
        attributes_.can_register = true;
        attributes_.needs_handle = false;
        attributes_.remote_key_length = 1;
    }
    const MemoryDomainAttributes& attributes() const override { return attributes_; }
    // The only peer is this process, which reaches all of its memory anyway.
    ucs_status_t register_memory(void* address, size_t length, PeerRights rights,
                                 MemoryHandle** handle) override {
        *handle = &nothing_;
        return UCS_OK;
    }
    void deregister_memory(MemoryHandle* handle) override {}
    void pack_remote_key(const MemoryHandle* handle, std::span<std::byte> packed) const override {
        packed[0] = kMark;
    }
    ucs_status_t unpack_remote_key(std::span<const std::byte> packed, RemoteKey* key) override {
        if (packed.size() != 1 || packed[0] != kMark) return UCS_ERR_INVALID_PARAM;
        *key = 0;
        return UCS_OK;
    }
    const MappedRegion* mapped(RemoteKey key) const override { return &everything_; }
    ucs_status_t open_interface(std::string_view transport, const InterfaceParams& params,
                                std::unique_ptr<Interface>* interface) override {
        if (transport != "self") return UCS_ERR_UNSUPPORTED;
        *interface = std::make_unique<SelfInterface>(params);
        return UCS_OK;
    }

  private:
    static constexpr std::byte kMark{0x5e};
    class Nothing final : public MemoryHandle {
    } nothing_;
    // All memory but that at null: no key of one's own is ever withdrawn.
    const std::atomic<uint64_t> granted_{0};
    const MappedRegion everything_{.address = 1,
                                   .length = UINTPTR_MAX - 1,
                                   .local = reinterpret_cast<std::byte*>(1),
                                   .granted = &granted_,
                                   .number = 0,
                                   .rights = PeerRights::kAll};
    MemoryDomainAttributes attributes_;
};

class SelfComponent final : public Component {
  public:
    std::string_view name() const override { return "self"; }
    std::span<const TransportDeclaration> transports() const override { return {&kSelf, 1}; }
    std::span<const Resource> resources() override { return {&resource_, 1}; }
    ucs_status_t open_domain(std::string_view device,
                             std::unique_ptr<MemoryDomain>* domain) override {
        if (device != resource_.device) return UCS_ERR_NO_DEVICE;
        *domain = std::make_unique<SelfDomain>();
        return UCS_OK;
    }

  private:
    const Resource resource_{"self", "memory", DeviceType::kSelf};
};

}  // namespace

Component& self::component() {
    static auto* component = new SelfComponent;
    return *component;
}

SelfInterface::SelfInterface(const InterfaceParams& params)
    : params_(params),
      pool_({.name = "self messages",
             .object_size = sizeof(SelfMessage) + kZeroCopy,
             .objects_per_chunk = 8,
             .max_objects = kMaxMessages}),
      copies_(params.clock, move, params.copy_threads) {
    attributes_ = attributes_of(kSelf);
    attributes_.device = "memory";
    attributes_.atomic32_ops = attributes_.atomic64_ops = kAllAtomics;
    attributes_.am = {kShort, kCopy, kZeroCopy - kShort, kMaxIov, kShort};
    constexpr size_t kPieces = LocalCopy::kMaxPieces;
    attributes_.put = {kMaxAtOnce, kMaxAtOnce, SIZE_MAX / 2, kPieces, 0};
    attributes_.get = {0, kMaxAtOnce, SIZE_MAX / 2, kPieces, 0};
    attributes_.interface_address_length = kAddressLength;
    attributes_.latency = {0, 0};
    attributes_.bandwidth = 10e9;  // one core copying
    attributes_.overhead = 10e-9;
}

SelfInterface::~SelfInterface() {
    queue_.clear_and_dispose([](SelfMessage* message) { message->release(); });
}
ucs_status_t SelfInterface::get_interface_address(std::span<std::byte> address) const {
    if (address.size() < kAddressLength) return UCS_ERR_BUFFER_TOO_SMALL;
    std::memcpy(address.data(), &params_.worker_id, kAddressLength);
    return UCS_OK;
}

bool SelfInterface::is_reachable(const RemoteAddress& remote) const {
    return remote.interface.size() == kAddressLength &&
           std::memcmp(remote.interface.data(), &params_.worker_id, kAddressLength) == 0;
}

ucs_status_t SelfInterface::create_endpoint(const RemoteAddress& remote,
                                            std::unique_ptr<Endpoint>* endpoint) {
    if (!is_reachable(remote)) return UCS_ERR_UNREACHABLE;
    *endpoint = std::make_unique<SelfEndpoint>(*this);
    return UCS_OK;
}

SelfMessage* SelfInterface::allocate(uint8_t id) {
    void* memory = pool_.allocate();
    return memory == nullptr ? nullptr : ::new (memory) SelfMessage(pool_, id);
}
unsigned SelfInterface::deliver_all() {
    unsigned count = copies_.progress();
    // Only what is there now: a handler that answers itself for ever must not hold us here.
    Queue arrived;
    arrived.swap(queue_);
    while (!arrived.empty()) {
        SelfMessage& message = arrived.front();
        arrived.pop_front();
        ++count;
        try {
            dispatch_am_once(params_.am_table, message.am_id, message.data(), message.length,
                             &message, [&] { message.release(); });
        } catch (...) {
            queue_.splice_after(queue_.before_begin(), arrived);
            throw;
        }
    }
    bool has_more = false;
    if (!pending_.empty()) {
        has_more = pending_.dispatch([](PendingQueue::Group&) { return true; },
                                     [](PendingQueue::Group&) { return false; },
                                     [&] { return has_room(); });
    }
    interest_.set_mark(!is_idle());
    // Nothing wakes a program that sleeps while copies go on: there is something to do yet.
    return copies_.empty() && !has_more ? count : count + 1;
}

}  // namespace uct
