// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/dc/dc_interface.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>

#include "ucs/config/table.h"
#include "ucs/log/log.h"
#include "uct/base/am.h"
#include "uct/base/per_worker.h"
#include "uct/ib/base/transports.h"
#include "uct/ib/dc/dc_endpoint.h"
#include "uct/ib/dc/dc_queue_pair.h"

namespace uct::ib {

namespace {

using ucs::config::field;

constexpr ucs::config::Field<DcConfig> kDcFields[] = {
    field<&DcConfig::num_dci>(
        "NUM_DCI", "8",
        "Send queues (DCIs) that all dc endpoints of an interface share; each is made when it is "
        "first needed.",
        {"1", "65534"}),
    field<&DcConfig::tx_policy>(
        "TX_POLICY", "dcs_quota",
        "How endpoints get a DCI. dcs: one to itself until all it sent is acknowledged; dcs_quota: "
        "as dcs, but it gives way after a quota if others wait; rand: a fixed one, shared."),
    field<&DcConfig::tx_quota>("TX_QUOTA", "32",
                               "Work requests that an endpoint posts to its DCI before it gives "
                               "way (policy dcs_quota).",
                               {.least = "1"}),
};

const ucs::config::Table<DcConfig> pool_table("dc_mlx5 send queues", {"DC_MLX5_", "DC_"},
                                              kDcFields);

const ucs::config::Table<TransportConfig> transport_table("dc_mlx5 transport",
                                                          {"DC_MLX5_", "DC_", "RC_", "IB_"},
                                                          connected_fields());

bool is_supported(const Device& device) {
    return device.is_mlx5() && probe_dc(device.context());
}

// A cut that nobody has asked for again for so long is of no interest any more.
constexpr ucs::Duration kCutInterest = std::chrono::milliseconds(250);

}  // namespace

const Transport dc_mlx5{kDcMlx5, transport_table, is_supported, DcInterface::open};

// A grant on its way to a peer that need not have an endpoint here.
struct DcInterface::GrantSender {
    GrantSender(DcInterface& interface, const DcTarget& target, const DcTokens& tokens, uint64_t id)
        : endpoint(interface, target, tokens, true), grant{0, id} {}
    bool send() { return endpoint.send_control(grant); }

    DcEndpoint endpoint;
    Grant grant;
};

DcInterface::DcInterface(IbDomain& domain, const TransportConfig& config,
                         const InterfaceParams& params)
    : IbInterface(domain, kDcMlx5, config, params),
      keys_(shared_by_worker<DcKeys>(params.am_table)) {
    sends_only_ = true;
    attributes_.interface_address_length = DctAddress::kLength;
    attributes_.latency.base += 60e-9;
}

ucs_status_t DcInterface::open(IbDomain& domain, const TransportConfig& config,
                               const ucs::config::Source& source, const InterfaceParams& params,
                               std::unique_ptr<Interface>* interface) {
    DcConfig pool;
    std::string error;
    if (pool_table.load(source, pool, error) != UCS_OK) {
        ucs::log_error("{}", error);
        return UCS_ERR_INVALID_PARAM;
    }
    std::unique_ptr<DcInterface> opened(new DcInterface(domain, config, params));
    if (const ucs_status_t status = opened->open_queues(
            {ReceiveBuffer::kPayloadOffset - DcEndpoint::kFront, config.segment_size});
        status != UCS_OK)
        return status;
    opened->dct_ = create_dct(*opened);
    // What the device grants inline is known only of a queue pair.
    uint32_t max_inline = std::max<uint32_t>(config.tx_min_inline, sizeof(GrantRequest));
    if (!opened->dct_ || !create_dci(*opened, &max_inline)) {
        ucs::log_error("dc_mlx5 on {} cannot create its queue pairs: {}", domain.device().name(),
                       std::strerror(errno));
        return UCS_ERR_IO_ERROR;
    }
    opened->set_limits(max_inline, DcEndpoint::kFront);
    opened->pool_ = std::make_unique<DciPool>(*opened, pool);
    if (opened->pool_->is_shared())
        opened->attributes_.capabilities &= ~(kPutChain | kGetChain | kOrderedChain);
    *interface = std::move(opened);
    return UCS_OK;
}

DcInterface::~DcInterface() {
    senders_.clear();
    pool_.reset();
}

ucs_status_t DcInterface::get_interface_address(std::span<std::byte> address) const {
    if (address.size() < DctAddress::kLength) return UCS_ERR_BUFFER_TOO_SMALL;
    own_target().write(address);
    return UCS_OK;
}

bool DcInterface::is_reachable(const RemoteAddress& remote) const {
    const auto port = PortAddress::read(remote.device);
    return port && port->reachable_from(path_.address) && DctAddress::read(remote.interface);
}

ucs_status_t DcInterface::create_endpoint(const RemoteAddress& remote,
                                          std::unique_ptr<Endpoint>* endpoint) {
    const auto port = PortAddress::read(remote.device);
    const auto target = DctAddress::read(remote.interface);
    if (!port || !target) return UCS_ERR_INVALID_ADDR;
    if (!port->reachable_from(path_.address)) return UCS_ERR_UNREACHABLE;
    ibv_ah* handle = address_handle(*port);
    if (handle == nullptr) return UCS_ERR_UNREACHABLE;
    auto created = std::make_unique<DcEndpoint>(*this, DcTarget{handle, target->number},
                                                keys_->tokens_of(target->key), false);
    if (pool_->is_shared() && created->dci() == DciPool::kNone) return UCS_ERR_NO_RESOURCE;
    *endpoint = std::move(created);
    return UCS_OK;
}

ucs_status_t DcInterface::flush(Completion* completion) {
    return pool_->flush(completion);
}

// A target takes packets from every initiator that knows its key. The one that the peer has given
// up was reset before the peer asked for the cut, so what can still come is what the network holds,
// and a timeout of retransmission is longer than a packet lives.
ucs_status_t DcInterface::cut_off(const RemoteAddress& remote, uint64_t number) {
    const auto port = PortAddress::read(remote.device);
    const auto target = DctAddress::read(remote.interface);
    if (!port || !target) return UCS_ERR_INVALID_ADDR;
    const ucs::Time now = params_.clock.now();
    std::erase_if(cuts_, [&](const auto& cut) { return now - cut.second.asked > kCutInterest; });
    const auto found = cuts_
                           .try_emplace({*port, target->number, number},
                                        Cut{{}, ucs::deadline(now, config_.timeout)})
                           .first;
    found->second.asked = now;
    if (now < found->second.end) return UCS_INPROGRESS;
    cuts_.erase(found);
    return UCS_OK;
}

GrantRequest DcInterface::make_request(uint64_t id) const {
    GrantRequest request{};
    request.id = id;
    path_.address.write(request.port);
    own_target().write(request.target);
    return request;
}

uint64_t DcInterface::await_grant(DcEndpoint& endpoint) {
    awaiting_.emplace(++next_grant_, &endpoint);
    return next_grant_;
}

uint64_t DcInterface::name_of(const RemoteAddress& remote) const {
    const auto target = DctAddress::read(remote.interface);
    return target ? DcTokens::name(keys_->tokens_of(target->key).incoming) : 0;
}

void DcInterface::received(const ibv_wc& completion, ReceiveBuffer* buffer) {
    constexpr uint32_t kFront = DcEndpoint::kFront;
    uint32_t length;
    if (__builtin_sub_overflow(completion.byte_len, kFront, &length)) [[unlikely]] {
        return receives_.recycle(buffer);
    }
    std::byte* const data = buffer->at(ReceiveBuffer::kPayloadOffset);
    uint64_t first;
    std::memcpy(&first, data - kFront, sizeof(first));
    const auto header = static_cast<uint8_t>(first >> DcTokens::kBits);
    const uint64_t token = first & DcTokens::kMask;
    if ((header & am_header::kFlagMask) == 0) [[likely]] {
        const uint8_t id = header & am_header::kIdMask;
        if (!sender_.admits(peers_.sender(token), id, data, length)) [[unlikely]]
            return receives_.recycle(buffer);
        return dispatch_am_once(params_.am_table, id, data, length, buffer,
                                [&] { receives_.recycle(buffer); });
    }
    const std::span<const std::byte> message(data - kFront, size_t{length} + kFront);
    if (header == GrantRequest::kHeader) {
        try {
            answer(token, message);
        } catch (const std::bad_alloc&) {
            ucs::log_debug("{}: no memory for a grant: it is asked for again", device().name());
        }
    } else if (header == Grant::kHeader) {
        granted(token, message);
    } else {
        ucs::log_debug("{}: a message with header {:#x} is none of ours", device().name(), header);
    }
    receives_.recycle(buffer);
}

void DcInterface::answer(uint64_t token, std::span<const std::byte> bytes) {
    GrantRequest request;
    if (bytes.size() != sizeof(request)) return;
    std::memcpy(&request, bytes.data(), sizeof(request));
    const auto port = PortAddress::read(request.port);
    const auto target = DctAddress::read(request.target);
    if (!port || !target || !port->reachable_from(path_.address)) return;
    // A grant that another asks for would come with a token that he takes from nobody.
    const DcTokens tokens = keys_->tokens_of(target->key);
    if (tokens.incoming != token) return;
    ibv_ah* handle = address_handle(*port);
    if (handle == nullptr) return;
    const uint64_t id = request.id;
    auto sender =
        std::make_unique<GrantSender>(*this, DcTarget{handle, target->number}, tokens, id);
    if (!sender->send()) senders_.push_back(std::move(sender));
}

void DcInterface::granted(uint64_t token, std::span<const std::byte> bytes) {
    Grant grant;
    if (bytes.size() != sizeof(grant)) return;
    std::memcpy(&grant, bytes.data(), sizeof(grant));
    const auto found = awaiting_.find(grant.id);
    // Asked for twice, or its endpoint is gone; or another knows the id.
    if (found == awaiting_.end() || found->second->incoming_token() != token) return;
    DcEndpoint* endpoint = found->second;
    awaiting_.erase(found);
    endpoint->granted();
}

bool DcInterface::after_poll() {
    if (!senders_.empty()) [[unlikely]] {
        std::erase_if(senders_, [](auto& sender) { return sender->send(); });
    }
    if (!awaiting_.empty() && is_request_due()) [[unlikely]] {
        for (auto& [id, endpoint] : awaiting_) endpoint->ask_again();
    }
    return pool_->serve();
}

}  // namespace uct::ib
