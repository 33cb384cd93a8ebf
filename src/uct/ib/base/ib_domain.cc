// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/base/ib_domain.h"

#include <arpa/inet.h>
#include <endian.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <new>

#include "ucs/config/source.h"
#include "ucs/config/table.h"
#include "ucs/log/log.h"
#include "ucs/memory/detector.h"
#include "ucs/type/bits.h"
#include "uct/api/interface.h"

namespace uct::ib {

namespace {

enum class RelaxedOrdering : uint8_t { kOff, kOn, kAuto };

}  // namespace
}  // namespace uct::ib

template <>
struct ucs::config::EnumNames<uct::ib::RelaxedOrdering> {
    using Value = uct::ib::RelaxedOrdering;
    static constexpr EnumName<Value> kNames[] = {
        {"on", Value::kOn}, {"off", Value::kOff}, {"auto", Value::kAuto},
        {"y", Value::kOn},  {"yes", Value::kOn},  {"1", Value::kOn},
        {"n", Value::kOff}, {"no", Value::kOff},  {"0", Value::kOff},
    };
};

namespace uct::ib {
namespace {

constexpr std::byte kKeyMark{0x1b};
constexpr size_t kKeyLength = 5;

// What atomics may work on reaches to whole words.
constexpr uintptr_t kWord = 8;

// What concerns memory, whatever the transport.
struct DomainConfig {
    RelaxedOrdering relaxed_ordering = RelaxedOrdering::kAuto;
    ucs::config::Ternary gpu_direct{};
};

constexpr ucs::config::Field<DomainConfig> kFields[] = {
    ucs::config::field<&DomainConfig::relaxed_ordering>(
        "PCI_RELAXED_ORDERING", "auto",
        "on: the adapter's writes to memory that peers do not write to by puts or atomics may pass "
        "each other on the bus, where adapter and driver can; off: nowhere; auto: on processors "
        "that gain by it (AMD's, Fujitsu's)."),
    ucs::config::field<&DomainConfig::gpu_direct>(
        "GPU_DIRECT_RDMA", "try",
        "Adapters read and write memory of GPUs by themselves. try: where the driver gives "
        "dma-bufs of it and the adapter takes them, or nvidia-peermem is loaded; y: assumed; n: "
        "such memory passes through host memory."),
};

const ucs::config::Table<DomainConfig> kTable("memory of adapters", {"IB_"}, kFields);

// Of processors whose bus keeps writes of several memory controllers in order by waiting.
bool gains_by_relaxed_ordering() {
#if defined(__x86_64__)
    return __builtin_cpu_is("amd") != 0;
#else
    constexpr uint64_t kFujitsu = 0x46;
    std::ifstream in("/sys/devices/system/cpu/cpu0/regs/identification/midr_el1");
    uint64_t identification = 0;
    return in >> std::hex >> identification && (identification >> 24 & 0xff) == kFujitsu;
#endif
}

bool is_relaxed(RelaxedOrdering wanted) {
    return wanted == RelaxedOrdering::kAuto ? gains_by_relaxed_ordering()
                                            : wanted == RelaxedOrdering::kOn;
}

// The kernel's module with which ibv_reg_mr() takes addresses of GPUs' memory, by its two names.
bool has_peer_memory() {
    return access("/sys/module/nvidia_peermem/version", F_OK) == 0 ||
           access("/sys/kernel/mm/memory_peers/nv_mem/version", F_OK) == 0;
}

ucs_status_t status_of_registration(int cause) {
    return cause == ENOMEM ? UCS_ERR_NO_MEMORY : UCS_ERR_IO_ERROR;
}

int access_flags(PeerRights rights, bool has_atomics, bool is_relaxed) {
    int access = IBV_ACCESS_LOCAL_WRITE;
    // Never where a peer's put may be a flag that somebody polls, or its atomic operation.
    if (is_relaxed && !allows(rights, PeerRights::kWrite)) access |= IBV_ACCESS_RELAXED_ORDERING;
    if (allows(rights, PeerRights::kRead)) access |= IBV_ACCESS_REMOTE_READ;
    if (allows(rights, PeerRights::kWrite)) access |= IBV_ACCESS_REMOTE_WRITE;
    if (rights == PeerRights::kAll && has_atomics) access |= IBV_ACCESS_REMOTE_ATOMIC;
    return access;
}

// A GID as an IPv6 address; one that holds an IPv4 address shows it.
std::string gid_text(const Gid& gid) {
    char text[INET6_ADDRSTRLEN] = {};
    inet_ntop(AF_INET6, gid.data(), text, sizeof(text));
    return text;
}

// Kinds of GIDs in the words of the kernel's sysfs.
std::string gid_type(ibv_context* context, uint8_t port, uint8_t index) {
    ibv_gid_entry entry{};
    if (ibv_query_gid_ex(context, port, index, &entry, 0) != 0) return "unknown";
    switch (entry.gid_type) {
        case IBV_GID_TYPE_IB:
            return "InfiniBand";
        case IBV_GID_TYPE_ROCE_V1:
            return "RoCE v1";
        case IBV_GID_TYPE_ROCE_V2:
            return "RoCE v2";
        default:
            return "unknown";
    }
}

// The key and its place in the port's table.
std::string partition_text(const Device& device, uint16_t index) {
    uint16_t key = 0;
    if (ibv_query_pkey(device.context(), device.port(), index, &key) != 0) return "unknown";
    return fmt::format("{:#06x} (entry {})", be16toh(key), index);
}

const char* atomics_text(const Device& device) {
    if (!device.has_atomics()) return "none";
    return device.atomics_reach_cpu() ? "64 bit, with the CPU's" : "64 bit, among adapters";
}

unsigned mtu_bytes(ibv_mtu mtu) {
    return 128u << static_cast<unsigned>(mtu);
}

ucs_status_t own(ibv_mr* mr, MemoryHandle** handle) {
    *handle = new (std::nothrow) MemoryRegion(mr);
    if (*handle != nullptr) return UCS_OK;
    ibv_dereg_mr(mr);
    return UCS_ERR_NO_MEMORY;
}

}  // namespace

ucs_status_t IbDomain::open(std::string_view name, std::span<const Transport* const> transports,
                            std::unique_ptr<MemoryDomain>* domain) {
    std::unique_ptr<Device> device;
    if (const ucs_status_t status = Device::open(name, &device); status != UCS_OK) return status;
    DomainConfig config;
    std::string error;
    if (kTable.load(ucs::config::Source::from_environment(), config, error) != UCS_OK) {
        ucs::log_error("{}", error);
        return UCS_ERR_INVALID_PARAM;
    }
    std::unique_ptr<IbDomain> opened(
        new IbDomain(std::move(device), is_relaxed(config.relaxed_ordering)));
    std::ranges::copy_if(
        transports, std::back_inserter(opened->transports_),
        [&](const Transport* offered) { return offered->is_supported(opened->device()); });
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
    // Half of all: workers need the others for their scalable transports, and are nothing without.
    opened->attributes_.max_dedicated =
        static_cast<size_t>(std::max(opened->device().attributes().max_qp / 2, 1));
    opened->find_device_types(config.gpu_direct);
    *domain = std::move(opened);
    return UCS_OK;
}

// An adapter that knows dma-bufs looks at the descriptor first.
void IbDomain::find_device_types(ucs::config::Ternary wanted) {
    const ucs::MemoryDetector* const cuda = ucs::MemoryDetectors::of_type(UCS_MEMORY_TYPE_CUDA);
    if (wanted == ucs::config::Ternary::kNo || cuda == nullptr) return;
    if (cuda->has_dma_bufs()) {
        errno = 0;
        ibv_mr* const none = ibv_reg_dmabuf_mr(pd_.get(), 0, 4096, 0, -1, IBV_ACCESS_LOCAL_WRITE);
        has_dma_bufs_ = none == nullptr && errno == EBADF;
        if (none != nullptr) ibv_dereg_mr(none);
    }
    if (has_dma_bufs_ || wanted == ucs::config::Ternary::kYes || has_peer_memory())
        attributes_.device_types = UCS_BIT(UCS_MEMORY_TYPE_CUDA);
}

ucs_status_t IbDomain::register_memory(void* address, size_t length, PeerRights rights,
                                       MemoryHandle** handle) {
    auto start = reinterpret_cast<uintptr_t>(address);
    uintptr_t end = start + length;
    if (rights == PeerRights::kAll) {
        start = ucs::align_down(start, kWord);
        end = ucs::align_up(end, kWord);
    }
    const int access = access_flags(rights, device_->has_atomics(), is_relaxed_);
    // Called as functions: the header's macro chooses by constant flags. The second one leaves out
    // what is optional where the driver does not know it.
    void* const first = reinterpret_cast<void*>(start);
    ibv_mr* mr =
        (access & IBV_ACCESS_OPTIONAL_RANGE) == 0
            ? (ibv_reg_mr)(pd_.get(), first, end - start, access)
            : ibv_reg_mr_iova2(pd_.get(), first, end - start, start, static_cast<unsigned>(access));
    if (mr == nullptr) {
        const int cause = errno;
        ucs::log_debug("{} does not register {} bytes: {}", device_->name(), length,
                       std::strerror(cause));
        return status_of_registration(cause);
    }
    return own(mr, handle);
}

ibv_mr* IbDomain::register_dma_buf(void* address, size_t length, int access) {
    ucs::MemoryDetector* const cuda = ucs::MemoryDetectors::of_type(UCS_MEMORY_TYPE_CUDA);
    ucs::DmaBuf buffer;
    if (cuda->export_dma_buf(address, length, &buffer) != UCS_OK) return nullptr;
    return ibv_reg_dmabuf_mr(pd_.get(), buffer.offset, length, reinterpret_cast<uintptr_t>(address),
                             buffer.descriptor.get(), access);
}

// A kind of memory that has dma-bufs may have some without; and what is refused once as an address
// is refused for good.
ucs_status_t IbDomain::register_device_memory(void* address, size_t length, PeerRights rights,
                                              MemoryHandle** handle) {
    if (attributes_.device_types == 0) return UCS_ERR_UNSUPPORTED;
    const int access = access_flags(rights, false, false);
    ibv_mr* mr = has_dma_bufs_ ? register_dma_buf(address, length, access) : nullptr;
    if (mr == nullptr && refuses_device_memory_) return UCS_ERR_UNSUPPORTED;
    if (mr == nullptr) mr = (ibv_reg_mr)(pd_.get(), address, length, access);
    if (mr == nullptr) {
        const int cause = errno;
        refuses_device_memory_ = cause != ENOMEM;
        ucs::log_info("{} does not register {} bytes of CUDA memory: {}", device_->name(), length,
                      std::strerror(cause));
        return status_of_registration(cause);
    }
    return own(mr, handle);
}

void IbDomain::deregister_memory(MemoryHandle* handle) {
    delete static_cast<MemoryRegion*>(handle);
}

void IbDomain::pack_remote_key(const MemoryHandle* handle, std::span<std::byte> packed) const {
    const uint32_t key = static_cast<const MemoryRegion*>(handle)->remote_key();
    packed[0] = kKeyMark;
    for (size_t i = 0; i < 4; ++i) packed[1 + i] = static_cast<std::byte>(key >> (8 * i));
}

ucs_status_t IbDomain::unpack_remote_key(std::span<const std::byte> packed, RemoteKey* key) {
    if (packed.size() != kKeyLength || packed[0] != kKeyMark) return UCS_ERR_INVALID_PARAM;
    *key = 0;
    for (size_t i = 0; i < 4; ++i) *key |= std::to_integer<RemoteKey>(packed[1 + i]) << (8 * i);
    return UCS_OK;
}

ucs_status_t IbDomain::open_interface(std::string_view transport, const InterfaceParams& params,
                                      std::unique_ptr<Interface>* interface) {
    const auto found = std::ranges::find(
        transports_, transport, [](const Transport* offered) { return offered->declaration.name; });
    if (found == transports_.end()) return UCS_ERR_UNSUPPORTED;
    ucs::config::Source environment;
    if (params.config == nullptr) environment = ucs::config::Source::from_environment();
    const ucs::config::Source& source = params.config != nullptr ? *params.config : environment;
    std::string error;
    TransportConfig config{};  // those over datagrams leave some of it out
    if ((*found)->config.load(source, config, error) != UCS_OK) {
        ucs::log_error("{}", error);
        return UCS_ERR_INVALID_PARAM;
    }
    return (*found)->open(*this, config, source, params, interface);
}

// --- in words

std::vector<DeviceFact> IbDomain::describe() const {
    const Device& device = *device_;
    const ibv_device_attr& limits = device.attributes();
    const ibv_port_attr& port = device.port_attributes();
    std::vector<DeviceFact> facts;
    facts.push_back({"adapter", fmt::format("{}, port {} of {}{}, firmware {}",
                                            ibv_get_device_name(device.context()->device),
                                            device.port(), limits.phys_port_cnt,
                                            device.is_mlx5() ? ", mlx5" : "", limits.fw_ver)});
    facts.push_back(
        {"link", fmt::format("{}, {}, {:.0f} Gb/s, MTU {} of {}",
                             device.is_ethernet() ? "Ethernet" : "InfiniBand",
                             ibv_port_state_str(port.state), device.bandwidth() * 8 / 1e9,
                             mtu_bytes(port.active_mtu), mtu_bytes(port.max_mtu))});
    TransportConfig config{};
    std::string error;
    Device::Path path{};
    const bool is_configured =
        transports_.front()->config.load(ucs::config::Source::from_environment(), config, error) ==
        UCS_OK;
    if (is_configured && device.make_path(config, &path) == UCS_OK) {
        std::string address = device.is_ethernet() ? "" : fmt::format("LID {}, ", port.lid);
        address += fmt::format("GID {} ({}, {}), partition key {}", path.gid_index,
                               gid_text(path.address.gid),
                               gid_type(device.context(), device.port(), path.gid_index),
                               partition_text(device, path.pkey_index));
        facts.push_back({"address", std::move(address)});
    }
    facts.push_back({"limits", fmt::format("{} queue pairs of {} requests, {} completion queues of "
                                           "{}, {} shared receive queues, {} registrations",
                                           limits.max_qp, limits.max_qp_wr, limits.max_cq,
                                           limits.max_cqe, limits.max_srq, limits.max_mr)});
    facts.push_back({"memory of GPUs", attributes_.device_types == 0 ? "through host memory"
                                       : has_dma_bufs_               ? "directly, by dma-bufs"
                                                                     : "directly, by address"});
    facts.push_back({"remote access", fmt::format("{} reads and atomics at a time, atomics: {}",
                                                  limits.max_qp_rd_atom, atomics_text(device))});
    return facts;
}

}  // namespace uct::ib
