// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/base/domain.h"

#include <cerrno>
#include <cstring>

#include "ucs/config/source.h"
#include "ucs/log/log.h"
#include "ucs/type/bits.h"
#include "uct/api/interface.h"
#include "uct/ib/dc/dc_interface.h"
#include "uct/ib/rc/rc_interface.h"
#include "uct/ib/ud/ud_interface.h"

namespace uct::ib {

namespace {

constexpr std::byte kKeyMark{0x1b};
constexpr size_t kKeyLength = 5;

/** Granularity of registrations: atomics on narrower operands work on the whole word. */
constexpr uintptr_t kWord = 8;

constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

}  // namespace

ucs_status_t Domain::open(std::string_view name, std::unique_ptr<MemoryDomain>* domain) {
    std::unique_ptr<Device> device;
    if (const ucs_status_t status = Device::open(name, &device); status != UCS_OK) return status;
    std::unique_ptr<Domain> opened(new Domain(std::move(device)));
    opened->pd_.reset(ibv_alloc_pd(opened->device_->context()));
    if (!opened->pd_) {
        ucs::log_error("{} gives no protection domain: {}", name, std::strerror(errno));
        return UCS_ERR_IO_ERROR;
    }
    // Cost of a registration: what UCX's selection assumes of a ConnectX.
    opened->attributes_.can_register = true;
    opened->attributes_.remote_key_length = kKeyLength;
    opened->attributes_.register_overhead = 16e-6;
    opened->attributes_.register_per_byte = 60e-12;
    *domain = std::move(opened);
    return UCS_OK;
}

ucs_status_t Domain::register_memory(void* address, size_t length, MemoryHandle** handle) {
    const uintptr_t start = ucs::align_down(reinterpret_cast<uintptr_t>(address), kWord);
    const uintptr_t end = ucs::align_up(reinterpret_cast<uintptr_t>(address) + length, kWord);
    const int access = kAccess | (device_->has_atomics() ? int{IBV_ACCESS_REMOTE_ATOMIC} : 0);
    // Called as a function: the header's macro chooses by constant flags.
    ibv_mr* mr = (ibv_reg_mr)(pd_.get(), reinterpret_cast<void*>(start), end - start, access);
    if (mr == nullptr) {
        const int cause = errno;
        ucs::log_debug("{} does not register {} bytes: {}", device_->name(), length,
                       std::strerror(cause));
        return cause == ENOMEM ? UCS_ERR_NO_MEMORY : UCS_ERR_IO_ERROR;
    }
    *handle = new MemoryRegion(mr);
    return UCS_OK;
}

void Domain::deregister_memory(MemoryHandle* handle) {
    delete static_cast<MemoryRegion*>(handle);
}

void Domain::pack_remote_key(const MemoryHandle* handle, std::span<std::byte> packed) const {
    const uint32_t key = static_cast<const MemoryRegion*>(handle)->remote_key();
    packed[0] = kKeyMark;
    for (size_t i = 0; i < 4; ++i) packed[1 + i] = static_cast<std::byte>(key >> (8 * i));
}

ucs_status_t Domain::unpack_remote_key(std::span<const std::byte> packed, RemoteKey* key) {
    if (packed.size() != kKeyLength || packed[0] != kKeyMark) return UCS_ERR_INVALID_PARAM;
    *key = 0;
    for (size_t i = 0; i < 4; ++i) *key |= std::to_integer<RemoteKey>(packed[1 + i]) << (8 * i);
    return UCS_OK;
}

ucs_status_t Domain::open_interface(std::string_view transport, const InterfaceParams& params,
                                    std::unique_ptr<Interface>* interface) {
    TransportKind kind;
    if (transport == "rc_mlx5" && device_->is_mlx5()) {
        kind = TransportKind::kRcMlx5;
    } else if (transport == "rc_verbs") {
        kind = TransportKind::kRcVerbs;
    } else if (transport == "dc_mlx5" && device_->supports_dc()) {
        kind = TransportKind::kDcMlx5;
    } else if (transport == "ud_verbs") {
        kind = TransportKind::kUdVerbs;
    } else {
        return UCS_ERR_UNSUPPORTED;
    }
    ucs::config::Source environment;
    if (params.config == nullptr) environment = ucs::config::Source::from_environment();
    const ucs::config::Source& source = params.config != nullptr ? *params.config : environment;

    std::string error;
    TransportConfig config{};  // ud leaves some of it out
    DcConfig dc_config;
    UdConfig ud_config;
    if (transport_table(kind).load(source, config, error) != UCS_OK ||
        dc_table().load(source, dc_config, error) != UCS_OK ||
        ud_table().load(source, ud_config, error) != UCS_OK) {
        ucs::log_error("{}", error);
        return UCS_ERR_INVALID_PARAM;
    }
    if (kind == TransportKind::kDcMlx5) {
        return DcInterface::open(*this, config, dc_config, params, interface);
    }
    if (kind == TransportKind::kUdVerbs) {
        return ud::UdInterface::open(*this, config, ud_config, params, interface);
    }
    return RcInterface::open(*this, kind, config, params, interface);
}

}  // namespace uct::ib
