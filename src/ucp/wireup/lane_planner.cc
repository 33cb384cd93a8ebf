// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/wireup/lane_planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ucp/select/report.h"
#include "ucs/log/log.h"
#include "ucs/runtime/runtime.h"
#include "ucs/sys/host.h"

namespace ucp {
namespace {

select::KeptCosts costs_of(const CostChoice& choice) {
    switch (choice.source) {
        case CostSource::kFixed:
            break;
        case CostSource::kMeasured:
        case CostSource::kAdapted:
            return {select::CostModel::measured(), {}};
        case CostSource::kKept:
            return {select::kept_costs().model, {}};
        case CostSource::kLearned:
            return select::kept_costs();
        case CostSource::kFile:
            return select::pinned_costs(choice.file);
    }
    return {select::CostModel::fixed(), {}};
}

// On a virtual clock no file is read or written.
select::CostSharing sharing_of(const Context& context) {
    if (context.virtual_time() || context.config().costs.source != CostSource::kLearned)
        return {"", {}};
    select::CostOwner owner = select::CostOwner::own();
    std::string path = select::default_cost_file(*ucs::runtime().environment, owner);
    return {std::move(path), std::move(owner)};
}

SelectionRules rules_of(const Context& context, select::LearnedBook& learned,
                        select::OneSidedTimes& times) {
    const Config& config = context.config();
    const auto bytes = [](const std::optional<ucs::config::MemorySize>& size) {
        return size ? std::optional<size_t>(*size) : std::nullopt;
    };
    SelectionRules rules;
    // On a virtual clock a run is a function of its seed: nothing is measured, and what is learned
    // begins with what is assumed.
    if (!context.virtual_time()) {
        const select::KeptCosts costs = costs_of(config.costs);
        rules.costs = costs.model;
        learned.restore(costs.learned);
        if (!costs.learned.empty()) rules.learned = &learned;
        if (config.costs.source == CostSource::kFile) learned.pin();
    }
    const bool adapts = config.costs.source == CostSource::kAdapted && !context.virtual_time();
    if (config.costs.source == CostSource::kLearned || adapts) rules.learned = &learned;
    rules.times = &times;
    rules.learns_alone_only = adapts;
    rules.thresholds = {
        .rendezvous = bytes(config.rndv_threshold),
        .zero_copy = bytes(config.zcopy_threshold),
        .bulk = bytes(config.bulk_threshold),
        .eager_max = config.eager_max,
        .eager_max_host = config.eager_max_host,
        // What devices read bears no checksum.
        .may_read = !config.has_checksums() && (config.rndv_scheme == RndvScheme::kAuto ||
                                                config.rndv_scheme == RndvScheme::kGet)};
    if (config.bcopy_threshold) {
        const size_t threshold = *config.bcopy_threshold;
        rules.thresholds.short_limit = threshold == 0 ? 0 : threshold - 1;
    }
    rules.slice = config.bulk_slice_size;
    rules.is_shown = config.shows_protocols;
    rules.has_rma = context.has_feature(UCP_FEATURE_RMA);
    rules.has_atomics = context.has_feature(UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64);
    return rules;
}

// For LanePlanner::Edit: an entry that is left as it is.
constexpr auto kAsItIs = [](unsigned, AddressEntry&, std::vector<std::byte>*) { return true; };

}  // namespace

LanePlanner::LanePlanner(const Context& context, const InterfaceSet& interfaces, uint64_t uuid,
                         std::string name)
    : context_(context),
      interfaces_(interfaces),
      uuid_(uuid),
      name_(std::move(name)),
      one_sided_times_(context.clock()),
      sharing_(sharing_of(context)),
      learns_(context.config().costs.source == CostSource::kLearned ||
              context.config().costs.source == CostSource::kAdapted),
      rules_(rules_of(context, learned_, one_sided_times_)) {}

// --- the own address ---

std::vector<std::byte> LanePlanner::address(uint32_t flags) const {
    return pack_own(flags, nullptr, kAsItIs);
}

std::vector<std::byte> LanePlanner::pack_own(uint32_t flags, std::vector<uint8_t>* interfaces,
                                             Edit edit) const {
    WorkerAddress address;
    address.uuid = uuid_;
    address.host = ucs::host_id();
    address.name = name_;
    address.has_checksums = has_checksums();
    // Without a network, what there is has to do: an address of nothing would help nobody.
    const bool is_network_only =
        (flags & UCP_WORKER_ADDRESS_FLAG_NET_ONLY) != 0 &&
        std::ranges::any_of(interfaces_.list(), [](const WorkerInterface& interface) {
            return interface.transport->attributes().device_type == uct::DeviceType::kNetwork;
        });
    std::vector<std::vector<std::byte>> storage;
    const auto keep = [&](size_t length) { return std::span(storage.emplace_back(length)); };
    for (unsigned index = 0; index < interfaces_.size(); ++index) {
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
        if (!edit(index, entry, &storage.emplace_back())) continue;
        address.entries.push_back(entry);
        if (interfaces != nullptr) interfaces->push_back(static_cast<uint8_t>(index));
    }
    return pack_address(address);
}

ucs_status_t LanePlanner::adopt_address(std::vector<std::byte>* packed) {
    own_interfaces_.clear();
    *packed = pack_own(0, &own_interfaces_, kAsItIs);
    return unpack_address(*packed, &own_);
}

void LanePlanner::keep_learned() {
    if (!learns_) return;
    if (rules_.is_shown) {
        const std::string text = configurations_.describe_learned("  ");
        if (!text.empty()) {
            ucs::log_requested(
                fmt::format("what operations have cost (UCX_PROTO_INFO):\n{}", text));
        }
    }
    sharing_.exchange(learned_, {});
}

std::vector<select::Candidate> LanePlanner::rank(const WorkerAddress& remote) const {
    return select::rank(own_, remote, reach());
}

// --- the choice ---

bool LanePlanner::reaches(uint8_t local, const AddressEntry& remote) const {
    const uct::Interface& transport = *interfaces_[own_interfaces_[local]].transport;
    return transport.is_reachable({remote.device, remote.interface, {}});
}

select::Options LanePlanner::options() const {
    const Config& config = context_.config();
    return {.max_rails = config.bulk_max_rails.value_or(config.max_rails),
            .max_rail_ratio = config.max_rail_ratio};
}
std::vector<Rail> LanePlanner::rails(const WorkerAddress& remote,
                                     std::span<const select::Candidate> ranked) const {
    std::vector<Rail> found;
    const std::vector<uint8_t> chosen = select::rails(ranked, own_, remote, options());
    if (chosen.size() < 2) return found;
    for (const uint8_t place : std::span(chosen).subspan(1)) {
        select::Candidate candidate = ranked[place];
        select::find_partner(own_, remote, reach(), candidate);
        const unsigned index = interface(candidate);
        const AddressEntry& entry = remote.entries[candidate.remote];
        found.push_back({.interface = index,
                         .dedicated = candidate.partner_local == select::kNone
                                          ? -1
                                          : int{own_interfaces_[candidate.partner_local]},
                         .domains = {static_cast<uint8_t>(interfaces_[index].domain), entry.domain},
                         .bandwidth = entry.bandwidth,
                         .remote_device = copy_bytes(entry.device),
                         .remote_interface = copy_bytes(entry.interface)});
    }
    return found;
}

EndpointLanes LanePlanner::lanes(const WorkerAddress& remote, select::Candidate candidate,
                                 std::span<const Rail> rails) const {
    select::find_partner(own_, remote, reach(), candidate);
    const AddressEntry& entry = remote.entries[candidate.remote];
    const auto slower = [this](unsigned interface, float peer) {
        return std::min(static_cast<float>(interfaces_.attributes(interface).bandwidth), peer);
    };
    EndpointLanes made;
    made.scalable = interface(candidate);
    if (candidate.partner_local != select::kNone)
        made.dedicated = own_interfaces_[candidate.partner_local];
    made.domains = {static_cast<uint8_t>(interfaces_[made.scalable].domain), entry.domain};
    made.latency = std::max(static_cast<float>(interfaces_.attributes(made.scalable).latency.at(1)),
                            entry.latency);
    made.bandwidth = slower(made.scalable, entry.bandwidth);
    for (const Rail& rail : rails) {
        made.rails.push_back(
            {.scalable = static_cast<uint8_t>(rail.interface),
             .dedicated = rail.dedicated < 0 ? kNoInterface : static_cast<uint8_t>(rail.dedicated),
             .domains = rail.domains,
             .bandwidth = slower(rail.interface, rail.bandwidth)});
    }
    return made;
}

ConfigurationRef LanePlanner::configure(const WorkerAddress& remote,
                                        const select::Candidate& candidate,
                                        std::span<const Rail> rails) {
    return intern(lanes(remote, candidate, rails));
}

ConfigurationRef LanePlanner::configure_waiting() {
    // Any transport will do for the limits of messages: nothing goes out yet.
    unsigned index = 0;
    while (interfaces_.attributes(index).reach != uct::Reach::kInterface) ++index;
    const uct::InterfaceAttributes& attributes = interfaces_.attributes(index);
    return intern({.scalable = static_cast<uint8_t>(index),
                   .domains = {static_cast<uint8_t>(interfaces_[index].domain), 0},
                   .latency = static_cast<float>(attributes.latency.at(1)),
                   .bandwidth = static_cast<float>(attributes.bandwidth),
                   .rails = {}});
}

// --- the reasons ---

std::string LanePlanner::why_unreachable(const WorkerAddress& remote) const {
    std::string text;
    for (const select::Candidate& candidate : select::explain(own_, remote, reach(), options())) {
        const TransportResource& resource =
            context_.resources()[interfaces_[interface(candidate)].resource];
        const std::string part =
            fmt::format("{}{}/{} ({})", text.empty() ? "" : ", ", resource.transport,
                        resource.device, select::reason(candidate.outcome));
        if (text.find(part) == text.npos) text += part;
    }
    return text;
}

void LanePlanner::explain(const WorkerAddress& peer, FILE* stream) const {
    select::Report report{.own = own_, .peer = peer};
    for (const uint8_t interface : own_interfaces_) {
        const TransportResource& resource = context_.resources()[interfaces_[interface].resource];
        report.names.push_back({resource.transport, resource.device});
    }
    for (const LeftOut& left_out : context_.left_out()) {
        report.left_out.push_back({left_out.transport, left_out.device, left_out.reason});
    }
    for (unsigned resource = 0; resource < context_.resources().size(); ++resource) {
        const bool is_open = std::ranges::any_of(interfaces_.list(), [&](const auto& interface) {
            return interface.resource == resource;
        });
        if (is_open) continue;
        const TransportResource& closed = context_.resources()[resource];
        report.left_out.push_back({closed.transport, closed.device, "it could not be opened"});
    }
    std::string text = select::write(report, select::explain(own_, peer, reach(), options()));
    std::vector<select::Candidate> ranked = select::rank(own_, peer, reach());
    if (!ranked.empty()) {
        const EndpointConfiguration configuration(interfaces_, context_.domains(), rules_,
                                                  lanes(peer, ranked.front(), rails(peer, ranked)));
        text += "# Lanes of the endpoint\n#\n" + configuration.describe("# ") + "#\n" +
                configuration.describe_protocols("# ") + "#\n";
    }
    fwrite(text.data(), 1, text.size(), stream);
}

}  // namespace ucp
