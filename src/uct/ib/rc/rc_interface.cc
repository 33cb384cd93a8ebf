// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/rc/rc_interface.h"

#include <endian.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ucs/log/log.h"
#include "ucs/sys/random.h"
#include "uct/base/am.h"
#include "uct/base/completion_group.h"
#include "uct/ib/base/transports.h"
#include "uct/ib/rc/rc_endpoint.h"
#include "uct/ib/rc/rc_queue_pair.h"

namespace uct::ib {

namespace {

const ucs::config::Table<TransportConfig> mlx5_table("rc_mlx5 transport",
                                                     {"RC_MLX5_", "RC_", "IB_"},
                                                     connected_fields());
const ucs::config::Table<TransportConfig> verbs_table("rc_verbs transport",
                                                      {"RC_VERBS_", "RC_", "IB_"},
                                                      connected_fields());

template <bool kIsExtended>
ucs_status_t open_rc(IbDomain& domain, const TransportConfig& config, const ucs::config::Source&,
                     const InterfaceParams& params, std::unique_ptr<Interface>* interface) {
    return RcInterface::open(domain, kIsExtended, config, params, interface);
}

bool is_mlx5(const Device& device) {
    return device.is_mlx5();
}

bool is_any(const Device&) {
    return true;
}

}  // namespace

const Transport rc_mlx5{kRcMlx5, mlx5_table, is_mlx5, open_rc<true>};
const Transport rc_verbs{kRcVerbs, verbs_table, is_any, open_rc<false>};

RcInterface::RcInterface(IbDomain& domain, bool is_extended, const TransportConfig& config,
                         const InterfaceParams& params)
    : IbInterface(domain, is_extended ? kRcMlx5 : kRcVerbs, config, params),
      is_extended_(is_extended) {
    attributes_.endpoint_address_length = QpAddress::kLength;
    attributes_.latency.per_endpoint = 1e-9;
    if (!is_extended) attributes_.overhead = 75e-9;
}

ucs_status_t RcInterface::open(IbDomain& domain, bool is_extended, const TransportConfig& config,
                               const InterfaceParams& params,
                               std::unique_ptr<Interface>* interface) {
    std::unique_ptr<RcInterface> opened(new RcInterface(domain, is_extended, config, params));
    if (const ucs_status_t status = opened->open_queues(); status != UCS_OK) return status;
    // What the device grants inline is known only of a queue pair.
    uint32_t max_inline = config.tx_min_inline;
    if (!create_rc_queue_pair(*opened, opened->is_extended(), &max_inline)) {
        ucs::log_error(
            "{} on {} cannot create a queue pair with UCX_RC_TX_QUEUE_LEN={}, "
            "UCX_RC_TX_MIN_INLINE={}: {}",
            opened->attributes_.transport, domain.device().name(), config.tx_queue_len,
            config.tx_min_inline, std::strerror(errno));
        return UCS_ERR_IO_ERROR;
    }
    opened->set_limits(max_inline);
    opened->attributes_.max_endpoints = static_cast<size_t>(domain.device().attributes().max_qp);
    *interface = std::move(opened);
    return UCS_OK;
}

bool RcInterface::is_reachable(const RemoteAddress& remote) const {
    const auto port = PortAddress::read(remote.device);
    return port && port->reachable_from(path_.address);
}

ucs_status_t RcInterface::create_endpoint(const RemoteAddress& remote,
                                          std::unique_ptr<Endpoint>* endpoint) {
    if (credits().available <= static_cast<int>(SendQueue::kReserve)) return UCS_ERR_NO_RESOURCE;
    uint32_t max_inline = config_.tx_min_inline;
    QpPtr qp = create_rc_queue_pair(*this, is_extended(), &max_inline);
    if (!qp || !initialize_rc(qp.get(), device(), path_)) {
        ucs::log_debug("{} has no more queue pairs: {}", device().name(), std::strerror(errno));
        return UCS_ERR_NO_RESOURCE;
    }
    constexpr uint32_t kPacketNumbers = 1u << 24;
    const QpAddress local{
        qp->qp_num, static_cast<uint32_t>(params_.random.below(kPacketNumbers)),
        static_cast<uint8_t>(std::min(device().attributes().max_qp_rd_atom, 255))};
    *endpoint = std::make_unique<RcEndpoint>(*this, std::move(qp), local);
    return UCS_OK;
}

ucs_status_t RcInterface::flush(Completion* completion) {
    CompletionGroup* gather = CompletionGroup::start(completion);
    for (auto& [number, endpoint] : endpoints_) {
        const ucs_status_t status = endpoint->flush(gather->add());
        if (status != UCS_INPROGRESS) gather->cancel();
        if (status == UCS_ERR_NO_RESOURCE || status == UCS_ERR_NO_MEMORY) {
            // What was started ends without the caller, who will call again.
            gather->abandon();
            return status;
        }
    }
    return gather->finish();
}

void RcInterface::add(RcEndpoint& endpoint, uint32_t qp_number) {
    endpoints_.emplace(qp_number, &endpoint);
}

void RcInterface::remove(RcEndpoint& endpoint, uint32_t qp_number) {
    endpoints_.erase(qp_number);
    forget_sender(params_.am_table, endpoint.peer());
    recent_[qp_number % kRecent] = {};
    if (has_kept_receives()) departed_.insert_or_assign(qp_number, endpoint.peer());
    std::erase(owing_, &endpoint);
}

RcEndpoint* RcInterface::find_slow(uint32_t qp_number) {
    const auto found = endpoints_.find(qp_number);
    if (found == endpoints_.end()) return nullptr;
    recent_[qp_number % kRecent] = {qp_number, found->second};
    return found->second;
}

PeerIdentity* RcInterface::sender_of_kept(uint32_t qp_number) {
    const auto found = departed_.find(qp_number);
    return found == departed_.end() ? nullptr : &found->second;
}

void RcInterface::become_message(ibv_wc& completion) {
    auto* buffer = reinterpret_cast<ReceiveBuffer*>(completion.wr_id);
    RcEndpoint* endpoint = find(completion.qp_num);
    completion.opcode = IBV_WC_RECV;
    completion.byte_len = 0;
    if (endpoint == nullptr || !endpoint->immediates()) return;
    const uint64_t content[] = {endpoint->immediates()->tag, be32toh(completion.imm_data)};
    *buffer->message() = std::byte{endpoint->immediates()->id};
    std::memcpy(buffer->message() + 1, content, sizeof(content));
    completion.byte_len = 1 + sizeof(content);
}

void RcInterface::received(const ibv_wc& completion, ReceiveBuffer* buffer) {
    uint32_t length;
    if (__builtin_sub_overflow(completion.byte_len, 1u, &length)) [[unlikely]] {
        return receives_.recycle(buffer);
    }
    const auto header = std::to_integer<uint8_t>(*buffer->message());
    const uint8_t flags = header & am_header::kFlagMask;
    const uint8_t id = header & am_header::kIdMask;
    std::byte* const data = buffer->message() + 1;
    RcEndpoint* const endpoint = find(completion.qp_num);
    PeerIdentity* const peer =
        endpoint != nullptr ? &endpoint->peer() : sender_of_kept(completion.qp_num);
    const bool is_control = flags == am_header::kPureGrant || flags == am_header::kPureRequest;
    // Of whom nobody knows whose it is nothing is heard.
    if (!is_control && (peer == nullptr || !sender_.admits(*peer, id, data, length))) [[unlikely]] {
        receives_.recycle(buffer);
        return;
    }
    if (flags != 0 || gates_ != 0) [[unlikely]] {
        if (is_control) {
            if (endpoint != nullptr && flags == am_header::kPureGrant) endpoint->granted();
            if (endpoint != nullptr && flags == am_header::kPureRequest) endpoint->grant_now();
            receives_.recycle(buffer);
            return;
        }
        if (endpoint != nullptr) {
            if (flags & am_header::kGrant) endpoint->granted();
            if (flags & am_header::kSoftRequest) endpoint->grant_with_next_message();
            if (flags & am_header::kHardRequest) endpoint->grant_now();
            if (endpoint->gate() != nullptr) {
                endpoint->gate()->hold(id, data, length);
                receives_.recycle(buffer);
                return;
            }
        }
    }
    dispatch_am_once(params_.am_table, id, data, length, buffer,
                     [&] { receives_.recycle(buffer); });
}

bool RcInterface::after_poll() {
    if (!departed_.empty() && !has_kept_receives()) [[unlikely]]
        departed_.clear();
    if (!owing_.empty()) [[unlikely]] {
        std::vector<RcEndpoint*> owing;
        owing.swap(owing_);
        for (RcEndpoint* endpoint : owing) endpoint->grant_now();
    }
    if (waiting_for_grant_ > 0 && is_request_due()) [[unlikely]] {
        for (auto& [number, endpoint] : endpoints_) endpoint->ask_again();
    }
    if (pending_.empty()) return false;
    return pending_.dispatch(
        [](PendingQueue::Group& group) { return static_cast<RcEndpoint&>(group).has_own_room(); },
        [](PendingQueue::Group& group) {
            return static_cast<RcEndpoint&>(group).waits_for_grant();
        },
        [&] { return credits().available > 0; });
}

}  // namespace uct::ib
