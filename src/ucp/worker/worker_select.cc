// SPDX-License-Identifier: BSD-3-Clause

// A worker's choice of lanes: its address, which tells peers what it has, and endpoints made from
// theirs.

#include <fmt/format.h>

#include <algorithm>

#include "ucp/worker/worker.h"
#include "ucp/lanes/driver/lane_driver.h"
#include "ucp/mem/remote_memory.h"
#include "ucp/select/report.h"
#include "ucp/select/selection.h"
#include "ucs/log.h"
#include "ucs/sys/host.h"

namespace ucp {

// --- the own address
// -------------------------------------------------------------------------------

std::vector<std::byte> Worker::pack_own(uint32_t flags, std::vector<uint8_t>* interfaces) const {
    WorkerAddress address;
    address.uuid = uuid_;
    address.host = ucs::host_id();
    address.name = name_;
    // Without a network, what there is has to do: an address of nothing would help nobody.
    const bool is_network_only =
        (flags & UCP_WORKER_ADDRESS_FLAG_NET_ONLY) != 0 &&
        std::ranges::any_of(interfaces_, [](const WorkerInterface& interface) {
            return interface.transport->attributes().device_type == uct::DeviceType::kNetwork;
        });
    std::vector<std::vector<std::byte>> storage;
    const auto keep = [&](size_t length) { return std::span(storage.emplace_back(length)); };
    for (size_t index = 0; index < interfaces_.size(); ++index) {
        const WorkerInterface& interface = interfaces_[index];
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

ucs_status_t Worker::adopt_address() {
    own_interfaces_.clear();
    address_ = pack_own(0, &own_interfaces_);
    return unpack_address(address_, &own_);
}

// --- the choice
// ------------------------------------------------------------------------------------

bool Worker::reaches(uint8_t local, const AddressEntry& remote) const {
    const uct::Interface& transport = *interfaces_[own_interfaces_[local]].transport;
    return transport.is_reachable({remote.device, remote.interface, {}});
}

select::Options Worker::selection_options() const {
    const Config& config = context_.config();
    const unsigned wanted = config.bulk_max_rails.value_or(config.max_rails);
    // Keys reach no further.
    constexpr unsigned kMaxRails = RemoteMemory::kMaxKeys;
    return {.max_rails = std::min(wanted, kMaxRails), .max_rail_ratio = config.max_rail_ratio};
}

ucs_status_t Worker::connect(const WorkerAddress& remote, Endpoint** endpoint) {
    const auto reach = [this](uint8_t local, const AddressEntry& entry) {
        return reaches(local, entry);
    };
    std::vector<select::Candidate> ranked = select::rank(own_, remote, reach);
    ucs_status_t status = UCS_ERR_UNREACHABLE;
    for (size_t place = 0; place < ranked.size(); ++place) {
        select::Candidate& candidate = ranked[place];
        const unsigned index = own_interfaces_[candidate.local];
        const WorkerInterface& local = interfaces_[index];
        const AddressEntry& entry = remote.entries[candidate.remote];
        std::unique_ptr<uct::Endpoint> scalable;
        status = local.transport->create_endpoint({entry.device, entry.interface, {}}, &scalable);
        if (status != UCS_OK) {
            ucs::log_info("no {} endpoint to worker {:016x}: {}; the next best is tried",
                          context_.resources()[local.resource].transport, remote.uuid,
                          ucs_status_string(status));
            continue;
        }
        const DomainPair domains{static_cast<uint8_t>(local.domain), entry.domain};
        auto* made = new Endpoint(*this, remote.uuid, index, domains, std::move(scalable));
        select::find_partner(own_, remote, reach, candidate);
        if (candidate.partner_local != select::kNone) {
            made->set_dedicated_index(own_interfaces_[candidate.partner_local]);
            made->set_flag(Endpoint::kPromotable);
        }
        endpoints_.push_back(*made);
        ++endpoint_count_;
        ++interfaces_[index].endpoints_made;
        if (find_endpoint(remote.uuid) == nullptr) make_primary(*made);
        keep_rails(remote, std::span(ranked).subspan(place));
        *endpoint = made;
        return UCS_OK;
    }
    return status;
}

void Worker::keep_rails(const WorkerAddress& remote, std::span<const select::Candidate> ranked) {
    if (rails_.contains(remote.uuid)) return;
    const std::vector<uint8_t> chosen = select::rails(ranked, own_, remote, selection_options());
    if (chosen.size() < 2) return;
    const auto reach = [this](uint8_t local, const AddressEntry& entry) {
        return reaches(local, entry);
    };
    const auto copy = [](std::span<const std::byte> bytes) {
        return std::vector<std::byte>(bytes.begin(), bytes.end());
    };
    std::vector<Rail>& rails = rails_[remote.uuid];
    for (const uint8_t place : std::span(chosen).subspan(1)) {
        select::Candidate candidate = ranked[place];
        select::find_partner(own_, remote, reach, candidate);
        const unsigned index = own_interfaces_[candidate.local];
        const AddressEntry& entry = remote.entries[candidate.remote];
        rails.push_back({.interface = index,
                         .dedicated = candidate.partner_local == select::kNone
                                          ? -1
                                          : int{own_interfaces_[candidate.partner_local]},
                         .domains = {static_cast<uint8_t>(interfaces_[index].domain), entry.domain},
                         .remote_device = copy(entry.device),
                         .remote_interface = copy(entry.interface)});
    }
}

std::span<const Rail> Worker::rails(uint64_t uuid) const {
    const auto found = rails_.find(uuid);
    return found == rails_.end() ? std::span<const Rail>() : found->second;
}

std::span<const DomainPair> Worker::domain_pairs(const Endpoint& endpoint,
                                                 std::span<DomainPair> pairs) const {
    size_t count = 0;
    pairs[count++] = endpoint.domains();
    for (const Rail& rail : rails(endpoint.remote_uuid())) {
        if (count == pairs.size()) break;
        pairs[count++] = rail.domains;
    }
    return pairs.first(count);
}

// --- the reasons
// -----------------------------------------------------------------------------------

std::string Worker::why_unreachable(const WorkerAddress& remote) {
    const auto reach = [this](uint8_t local, const AddressEntry& entry) {
        return reaches(local, entry);
    };
    std::string text;
    for (const select::Candidate& candidate :
         select::explain(own_, remote, reach, selection_options())) {
        const unsigned interface = own_interfaces_[candidate.local];
        const TransportResource& resource = context_.resources()[interfaces_[interface].resource];
        const std::string part =
            fmt::format("{}{}/{} ({})", text.empty() ? "" : ", ", resource.transport,
                        resource.device, select::reason(candidate.outcome));
        if (text.find(part) == text.npos) text += part;
    }
    return text;
}

void Worker::explain(const WorkerAddress& peer, FILE* stream) {
    const auto reach = [this](uint8_t local, const AddressEntry& entry) {
        return reaches(local, entry);
    };
    select::Report report{.own = own_, .peer = peer};
    for (const uint8_t interface : own_interfaces_) {
        const TransportResource& resource = context_.resources()[interfaces_[interface].resource];
        report.names.push_back({resource.transport, resource.device});
    }
    for (const LeftOut& left_out : context_.left_out()) {
        report.left_out.push_back({left_out.transport, left_out.device, left_out.reason});
    }
    for (unsigned resource = 0; resource < context_.resources().size(); ++resource) {
        const bool is_open = std::ranges::any_of(
            interfaces_, [&](const auto& interface) { return interface.resource == resource; });
        if (is_open) continue;
        const TransportResource& closed = context_.resources()[resource];
        report.left_out.push_back({closed.transport, closed.device, "it could not be opened"});
    }
    const std::string text =
        select::write(report, select::explain(own_, peer, reach, selection_options()));
    fwrite(text.data(), 1, text.size(), stream);
}

}  // namespace ucp
