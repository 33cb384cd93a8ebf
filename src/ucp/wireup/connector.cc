// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/wireup/connector.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "ucp/endpoint/flush.h"
#include "ucp/select/report.h"
#include "ucp/wireup/waiting_lane.h"
#include "ucs/log/log.h"
#include "ucs/sys/host.h"

namespace ucp {
namespace {

SelectionRules rules_of(const Context& context) {
    const Config& config = context.config();
    const auto bytes = [](const std::optional<ucs::config::MemorySize>& size) {
        return size ? std::optional<size_t>(*size) : std::nullopt;
    };
    SelectionRules rules;
    // On a virtual clock a run is a function of its seed: nothing is measured.
    if (config.costs == CostSource::kMeasured && !context.virtual_time())
        rules.costs = select::CostModel::measured();
    rules.thresholds = {.rendezvous = bytes(config.rndv_threshold),
                        .zero_copy = bytes(config.zcopy_threshold),
                        .bulk = bytes(config.bulk_threshold),
                        .may_read = config.rndv_scheme == RndvScheme::kAuto ||
                                    config.rndv_scheme == RndvScheme::kGet};
    if (config.bcopy_threshold) {
        const size_t threshold = *config.bcopy_threshold;
        rules.thresholds.short_limit = threshold == 0 ? 0 : threshold - 1;
    }
    rules.slice = config.bulk_slice_size;
    rules.is_shown = config.shows_protocols;
    return rules;
}

}  // namespace

Connector::Connector(const Context& context, std::string name, EndpointHost& host,
                     EndpointTable& endpoints, RailTable& rails, LaneEvents& lanes)
    : context_(context),
      name_(std::move(name)),
      host_(host),
      endpoints_(endpoints),
      rails_(rails),
      lanes_(lanes),
      rules_(rules_of(context)) {
    host_.short_limit = rules_.thresholds.short_limit;
}

void Connector::add_handlers() {
    host_.interfaces.set_handler(AmId::kHello, on_hello, this);
}

// --- the own address ---

std::vector<std::byte> Connector::pack_own(uint32_t flags, std::vector<uint8_t>* interfaces) const {
    WorkerAddress address;
    address.uuid = host_.uuid;
    address.host = ucs::host_id();
    address.name = name_;
    // Without a network, what there is has to do: an address of nothing would help nobody.
    const bool is_network_only =
        (flags & UCP_WORKER_ADDRESS_FLAG_NET_ONLY) != 0 &&
        std::ranges::any_of(host_.interfaces.list(), [](const WorkerInterface& interface) {
            return interface.transport->attributes().device_type == uct::DeviceType::kNetwork;
        });
    std::vector<std::vector<std::byte>> storage;
    const auto keep = [&](size_t length) { return std::span(storage.emplace_back(length)); };
    for (unsigned index = 0; index < host_.interfaces.size(); ++index) {
        const WorkerInterface& interface = host_.interfaces[index];
        const TransportResource& resource = context_.resources()[interface.resource];
        const auto& attributes = interface.transport->attributes();
        if (is_network_only && attributes.device_type != uct::DeviceType::kNetwork) continue;
        AddressEntry entry;
        entry.kind = interface.kind;
        entry.domain = static_cast<uint8_t>(interface.domain);
        entry.device_type = attributes.device_type;
        entry.reach = attributes.reach;
        entry.auxiliary = resource.auxiliary;
        entry.bandwidth = static_cast<float>(attributes.bandwidth);
        entry.latency = static_cast<float>(attributes.latency.at(context_.estimated_endpoints()));
        entry.overhead = static_cast<float>(attributes.overhead);
        entry.distance = resource.distance;
        const auto device = keep(attributes.device_address_length);
        if (interface.transport->get_device_address(device) != UCS_OK) continue;
        entry.device = device;
        if (attributes.reach == uct::Reach::kInterface) {
            const auto own = keep(attributes.interface_address_length);
            if (interface.transport->get_interface_address(own) != UCS_OK) continue;
            entry.interface = own;
        }
        address.entries.push_back(entry);
        if (interfaces != nullptr) interfaces->push_back(static_cast<uint8_t>(index));
    }
    return pack_address(address);
}

ucs_status_t Connector::adopt_address() {
    own_interfaces_.clear();
    host_.address = pack_own(0, &own_interfaces_);
    return unpack_address(host_.address, &own_);
}

// --- the choice ---

bool Connector::reaches(uint8_t local, const AddressEntry& remote) const {
    const uct::Interface& transport = *host_.interfaces[own_interfaces_[local]].transport;
    return transport.is_reachable({remote.device, remote.interface, {}});
}

select::Options Connector::selection_options() const {
    const Config& config = context_.config();
    const unsigned wanted = config.bulk_max_rails.value_or(config.max_rails);
    // Keys reach no further.
    constexpr unsigned kMaxRails = RemoteMemory::kMaxKeys;
    return {.max_rails = std::min(wanted, kMaxRails), .max_rail_ratio = config.max_rail_ratio};
}

ucs_status_t Connector::connect(const WorkerAddress& remote, Endpoint** endpoint) {
    const auto reach = [this](uint8_t local, const AddressEntry& entry) {
        return reaches(local, entry);
    };
    std::vector<select::Candidate> ranked = select::rank(own_, remote, reach);
    ucs_status_t status = UCS_ERR_UNREACHABLE;
    for (size_t place = 0; place < ranked.size(); ++place) {
        select::Candidate& candidate = ranked[place];
        const unsigned index = own_interfaces_[candidate.local];
        WorkerInterface& local = host_.interfaces[index];
        const AddressEntry& entry = remote.entries[candidate.remote];
        std::unique_ptr<uct::Endpoint> scalable;
        status = local.transport->create_endpoint({entry.device, entry.interface, {}}, &scalable);
        if (status != UCS_OK) {
            ucs::log_info("no {} endpoint to worker {:016x}: {}; the next best is tried",
                          context_.resources()[local.resource].transport, remote.uuid,
                          ucs_status_string(status));
            continue;
        }
        select::find_partner(own_, remote, reach, candidate);
        if (!rails_.has(remote.uuid)) {
            std::vector<Rail> rails = find_rails(remote, std::span(ranked).subspan(place));
            if (!rails.empty()) rails_.set(remote.uuid, std::move(rails));
        }
        auto made = std::make_unique<Endpoint>(
            host_, remote.uuid,
            host_.configurations.intern(host_.interfaces, context_.domains(), rules_,
                                        lanes_of(remote, candidate, rails_.rails(remote.uuid))),
            std::move(scalable));
        ++local.endpoints_made;
        *endpoint = made.get();
        endpoints_.add(std::move(made));
        return UCS_OK;
    }
    return status;
}

std::vector<Rail> Connector::find_rails(const WorkerAddress& remote,
                                        std::span<const select::Candidate> ranked) const {
    std::vector<Rail> rails;
    const std::vector<uint8_t> chosen = select::rails(ranked, own_, remote, selection_options());
    if (chosen.size() < 2) return rails;
    const auto reach = [this](uint8_t local, const AddressEntry& entry) {
        return reaches(local, entry);
    };
    const auto copy = [](std::span<const std::byte> bytes) {
        return std::vector<std::byte>(bytes.begin(), bytes.end());
    };
    for (const uint8_t place : std::span(chosen).subspan(1)) {
        select::Candidate candidate = ranked[place];
        select::find_partner(own_, remote, reach, candidate);
        const unsigned index = own_interfaces_[candidate.local];
        const AddressEntry& entry = remote.entries[candidate.remote];
        rails.push_back(
            {.interface = index,
             .dedicated = candidate.partner_local == select::kNone
                              ? -1
                              : int{own_interfaces_[candidate.partner_local]},
             .domains = {static_cast<uint8_t>(host_.interfaces[index].domain), entry.domain},
             .bandwidth = entry.bandwidth,
             .remote_device = copy(entry.device),
             .remote_interface = copy(entry.interface)});
    }
    return rails;
}

EndpointLanes Connector::lanes_of(const WorkerAddress& remote, const select::Candidate& candidate,
                                  std::span<const Rail> rails) const {
    const AddressEntry& entry = remote.entries[candidate.remote];
    const auto slower = [this](unsigned interface, float peer) {
        return std::min(static_cast<float>(host_.interfaces.attributes(interface).bandwidth), peer);
    };
    EndpointLanes lanes;
    lanes.scalable = own_interfaces_[candidate.local];
    if (candidate.partner_local != select::kNone)
        lanes.dedicated = own_interfaces_[candidate.partner_local];
    lanes.domains = {static_cast<uint8_t>(host_.interfaces[lanes.scalable].domain), entry.domain};
    lanes.latency =
        std::max(static_cast<float>(host_.interfaces.attributes(lanes.scalable).latency.at(1)),
                 entry.latency);
    lanes.bandwidth = slower(lanes.scalable, entry.bandwidth);
    for (const Rail& rail : rails) {
        lanes.rails.push_back(
            {.scalable = static_cast<uint8_t>(rail.interface),
             .dedicated = rail.dedicated < 0 ? kNoInterface : static_cast<uint8_t>(rail.dedicated),
             .domains = rail.domains,
             .bandwidth = slower(rail.interface, rail.bandwidth)});
    }
    return lanes;
}

// --- endpoints ---

ucs_status_t Connector::create(const WorkerAddress& remote, Endpoint** endpoint) {
    Endpoint* found = endpoints_.find(remote.uuid);
    if (found == nullptr || found->is_users() || found->is_closing()) {
        Endpoint* const known = found;
        const ucs_status_t status = connect(remote, &found);
        if (status == UCS_ERR_UNREACHABLE) {
            ucs::log_error("no transport reaches worker {} ({:016x}): {}", remote.name, remote.uuid,
                           why_unreachable(remote));
        }
        if (status != UCS_OK) return status;
        // With a link it stays the primary one until that has ended: see LaneDriver.
        const bool is_leaving = known != nullptr && known->is_closing() && !lanes_.has_link(*known);
        if (is_leaving) endpoints_.replace_primary(*known, *found);
    }
    *endpoint = found;
    return UCS_OK;
}

void Connector::give_to_user(Endpoint& endpoint, const ucp_ep_params_t& params) {
    endpoint.give_to_user(params);
    lanes_.endpoint_created(endpoint);
}

ucs_status_t Connector::on_hello(void* arg, void* data, size_t length, uct::ReceiveDescriptor*) {
    auto& self = *static_cast<Connector*>(arg);
    HelloHeader header;
    WorkerAddress remote;
    ucs_status_t status = UCS_ERR_INVALID_ADDR;
    if (length > sizeof(header)) {
        std::memcpy(&header, data, sizeof(header));
        const auto* bytes = static_cast<const std::byte*>(data) + sizeof(header);
        status = unpack_address({bytes, length - sizeof(header)}, &remote);
        if (status == UCS_OK && remote.uuid != header.sender) status = UCS_ERR_INVALID_ADDR;
    }
    if (status != UCS_OK) {
        ucs::log_warn("a malformed greeting of {} bytes was dropped", length);
        return UCS_OK;
    }
    Endpoint* endpoint = self.endpoints_.find(remote.uuid);
    if (endpoint == nullptr) {
        status = self.connect(remote, &endpoint);
        if (status != UCS_OK) {
            ucs::log_warn("worker {} ({:016x}) greets and cannot be reached: {}", remote.name,
                          remote.uuid, ucs_status_string(status));
            return UCS_OK;
        }
    }
    endpoint->set_flag(Endpoint::kGreetedUs);
    return UCS_OK;
}

Endpoint& Connector::create_waiting() {
    // Any transport will do for the limits of messages: nothing goes out before connect_waiting().
    unsigned index = 0;
    while (host_.interfaces.attributes(index).reach != uct::Reach::kInterface) ++index;
    const uct::InterfaceAttributes& attributes = host_.interfaces.attributes(index);
    const EndpointLanes lanes{.scalable = static_cast<uint8_t>(index),
                              .domains = {static_cast<uint8_t>(host_.interfaces[index].domain), 0},
                              .latency = static_cast<float>(attributes.latency.at(1)),
                              .bandwidth = static_cast<float>(attributes.bandwidth),
                              .rails = {}};
    auto made = std::make_unique<Endpoint>(
        host_, 0, host_.configurations.intern(host_.interfaces, context_.domains(), rules_, lanes),
        std::make_unique<wireup::WaitingLane>());
    Endpoint& waiting = *made;
    endpoints_.add(std::move(made));
    return waiting;
}

ucs_status_t Connector::connect_waiting(Endpoint& endpoint, const WorkerAddress& remote) {
    Endpoint* made = nullptr;
    const ucs_status_t status = connect(remote, &made);
    if (status != UCS_OK) {
        ucs::log_error("worker {} answers and cannot be reached: {}", remote.name,
                       ucs_status_string(status));
        return status;
    }
    // The tracker knew the endpoint under no name.
    lanes_.endpoint_renamed(endpoint);
    endpoint.take_lanes(*made);
    Endpoint* known = endpoints_.find(remote.uuid);
    const bool is_spare = !known->is_users() && !lanes_.has_link(*known);
    if (is_spare) {
        endpoints_.replace_primary(*known, endpoint);
        if (known != made) retire(*known);
    }
    endpoints_.destroy(*made);
    lanes_.endpoint_created(endpoint);
    endpoint.pump_controls();
    // Later: the callbacks of what is sent may close the endpoint, and who called needs it.
    endpoint.pump_later();
    return UCS_OK;
}

/** An endpoint of the library's own that another has replaced goes when its work is done. */
void Connector::retire(Endpoint& endpoint) {
    Request* flush = host_.requests.allocate();
    if (flush == nullptr) return;
    endpoint.begin_closing();
    make_flush(*flush, endpoint);
    flush->callback_kind = Request::CallbackKind::kInternal;
    flush->user_data = &endpoints_;
    flush->on_finish.internal = [](Request& request) {
        static_cast<EndpointTable*>(request.user_data)->doom(*request.endpoint);
    };
    endpoint.start(*flush);
}

// --- the reasons ---

std::string Connector::why_unreachable(const WorkerAddress& remote) {
    const auto reach = [this](uint8_t local, const AddressEntry& entry) {
        return reaches(local, entry);
    };
    std::string text;
    for (const select::Candidate& candidate :
         select::explain(own_, remote, reach, selection_options())) {
        const unsigned interface = own_interfaces_[candidate.local];
        const TransportResource& resource =
            context_.resources()[host_.interfaces[interface].resource];
        const std::string part =
            fmt::format("{}{}/{} ({})", text.empty() ? "" : ", ", resource.transport,
                        resource.device, select::reason(candidate.outcome));
        if (text.find(part) == text.npos) text += part;
    }
    return text;
}

void Connector::explain(const WorkerAddress& peer, FILE* stream) {
    const auto reach = [this](uint8_t local, const AddressEntry& entry) {
        return reaches(local, entry);
    };
    select::Report report{.own = own_, .peer = peer};
    for (const uint8_t interface : own_interfaces_) {
        const TransportResource& resource =
            context_.resources()[host_.interfaces[interface].resource];
        report.names.push_back({resource.transport, resource.device});
    }
    for (const LeftOut& left_out : context_.left_out()) {
        report.left_out.push_back({left_out.transport, left_out.device, left_out.reason});
    }
    for (unsigned resource = 0; resource < context_.resources().size(); ++resource) {
        const bool is_open = std::ranges::any_of(
            host_.interfaces.list(),
            [&](const auto& interface) { return interface.resource == resource; });
        if (is_open) continue;
        const TransportResource& closed = context_.resources()[resource];
        report.left_out.push_back({closed.transport, closed.device, "it could not be opened"});
    }
    std::string text =
        select::write(report, select::explain(own_, peer, reach, selection_options()));
    std::vector<select::Candidate> ranked = select::rank(own_, peer, reach);
    if (!ranked.empty()) {
        select::find_partner(own_, peer, reach, ranked.front());
        const EndpointConfiguration configuration(
            host_.interfaces, context_.domains(), rules_,
            lanes_of(peer, ranked.front(), find_rails(peer, ranked)));
        text += "# Lanes of the endpoint\n#\n" + configuration.describe("# ") + "#\n" +
                configuration.describe_protocols("# ") + "#\n";
    }
    fwrite(text.data(), 1, text.size(), stream);
}

}  // namespace ucp
