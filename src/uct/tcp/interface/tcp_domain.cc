// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/interface/tcp_domain.h"

#include <fmt/format.h>

#include <cstring>

#include "ucs/config/source.h"
#include "ucs/log/log.h"
#include "uct/tcp/interface/tcp_interface.h"

namespace uct::tcp {

namespace {

constexpr uint32_t kKeyMark = 0x7063744b;
constexpr size_t kKeyLength = sizeof(kKeyMark) + sizeof(uint64_t);

// A table entry: no page is pinned.
constexpr double kRegisterOverhead = 0.5e-6;

bool is_sound_config(const Config& config, std::string* error) {
    if (config.rx_seg_size < config.tx_seg_size + 512) {
        *error = "UCX_TCP_RX_SEG_SIZE: expected at least 512 bytes more than UCX_TCP_TX_SEG_SIZE";
    } else if (config.encrypt && config.job_key.empty()) {
        *error =
            "UCX_TCP_ENCRYPT needs UCX_TCP_JOB_KEY, the same in all processes of a job: without it "
            "nobody knows with whom data is shared (openssl rand -hex 16 makes one)";
    }
    return error->empty();
}

}  // namespace

TcpDomain::TcpDomain(const NetworkDevice& device) : device_(device) {
    attributes_.can_register = true;
    attributes_.remote_key_length = kKeyLength;
    attributes_.register_overhead = kRegisterOverhead;
}

std::vector<DeviceFact> TcpDomain::describe() const {
    std::vector<DeviceFact> facts;
    facts.push_back({"address", fmt::format("{}/{}", device_.address.text(), device_.prefix)});
    const LinkFacts link = link_facts(device_);
    facts.push_back(
        {"link", fmt::format("{}, {}, MTU {}", link.carrier ? "up" : "no carrier",
                             link.megabits > 0 ? fmt::format("{:g} Gb/s", link.megabits / 1000)
                                               : "speed unknown to the kernel",
                             link.mtu)});
    facts.push_back({"estimate", fmt::format("{:.0f} MB/s of payload, {:.0f} us",
                                             device_.bandwidth / 1e6, device_.latency * 1e6)});
    return facts;
}

ucs_status_t TcpDomain::register_memory(void* address, size_t length, PeerRights rights,
                                        MemoryHandle** handle) {
    *handle = regions_.add(address, length, rights);
    return UCS_OK;
}
void TcpDomain::pack_remote_key(const MemoryHandle* handle, std::span<std::byte> packed) const {
    const uint64_t key = static_cast<const Region*>(handle)->key;
    std::memcpy(packed.data(), &kKeyMark, sizeof(kKeyMark));
    std::memcpy(packed.data() + sizeof(kKeyMark), &key, sizeof(key));
}

ucs_status_t TcpDomain::unpack_remote_key(std::span<const std::byte> packed, RemoteKey* key) {
    if (packed.size() != kKeyLength ||
        std::memcmp(packed.data(), &kKeyMark, sizeof(kKeyMark)) != 0) {
        return UCS_ERR_INVALID_PARAM;
    }
    static_assert(sizeof(RemoteKey) == sizeof(uint64_t));
    std::memcpy(key, packed.data() + sizeof(kKeyMark), sizeof(*key));
    return *key == 0 || *key == kInvalidRemoteKey ? UCS_ERR_INVALID_PARAM : UCS_OK;
}

ucs_status_t TcpDomain::open_interface(std::string_view transport, const InterfaceParams& params,
                                       std::unique_ptr<Interface>* interface) {
    if (transport != TcpInterface::kTransport) return UCS_ERR_UNSUPPORTED;
    ucs::config::Source environment;
    if (params.config == nullptr) environment = ucs::config::Source::from_environment();
    const ucs::config::Source& source = params.config != nullptr ? *params.config : environment;
    std::string error;
    Config config;
    if (config_table().load(source, config, error) != UCS_OK || !is_sound_config(config, &error)) {
        ucs::log_error("{}", error);
        return UCS_ERR_INVALID_PARAM;
    }
    return TcpInterface::open(regions_, device_, config, params, interface);
}

}  // namespace uct::tcp
