// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/endpoint/configuration.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ucp/select/report.h"
#include "ucs/log/log.h"
#include "ucs/memory/detector.h"
#include "ucs/type/names.h"

namespace ucp {
namespace {

constexpr uint32_t kPuts = uct::kPutShort | uct::kPutBcopy | uct::kPutZcopy;
constexpr uint32_t kGets = uct::kGetBcopy | uct::kGetZcopy;
constexpr uint32_t kChains = uct::kPutChain | uct::kGetChain;

std::string_view name(LaneRole role) {
    static constexpr const char* kNames[] = {"messages", "put, get", "atomics", "bulk"};
    return ucs::name_in<LaneRole::kBulk>(kNames, role);
}

std::string_view reason(Service service) {
    static constexpr const char* kNames[] = {
        "not served",
        "directly",
        "staged in pinned host memory",
        "by the devices, staged in pinned host memory where they cannot",
        "by the adapter, if the message is long enough and it takes the memory; else staged",
        "by messages: the peer's processor acts"};
    return ucs::name_in<Service::kByMessages>(kNames, service);
}

bool is_within_host(uct::DeviceType type) {
    return type == uct::DeviceType::kSharedMemory || type == uct::DeviceType::kSelf;
}

}  // namespace

EndpointConfiguration::EndpointConfiguration(const InterfaceSet& interfaces,
                                             const DomainSet& domains, const SelectionRules& rules,
                                             EndpointLanes lanes)
    : interfaces_(interfaces),
      lanes_(std::move(lanes)),
      scalable_(&interfaces.attributes(lanes_.scalable)),
      rules_(rules),
      device_types_(domains[lanes_.domains.local].memory->attributes().device_types),
      scalable_figures_(figures(lanes_.scalable, domains)),
      scalable_table_(scalable_figures_, rules.costs, rules.thresholds),
      in_place_(find_in_place()) {
    if (lanes_.dedicated != kNoInterface) {
        dedicated_figures_ = figures(lanes_.dedicated, domains);
        dedicated_table_.emplace(*dedicated_figures_, rules.costs, rules.thresholds);
        dedicated_learned_ = learned_over(lanes_.dedicated, *dedicated_figures_);
    }
    scalable_learned_ = learned_over(lanes_.scalable, scalable_figures_);
    for (size_t role = 0; role < kRoles; ++role) {
        for (size_t type = 0; type < kMemoryTypes; ++type) {
            uses_[role][type] =
                use_of(static_cast<LaneRole>(role), static_cast<ucs_memory_type_t>(type));
        }
    }
}

select::LaneFigures EndpointConfiguration::figures(uint8_t interface,
                                                   const DomainSet& domains) const {
    const uct::InterfaceAttributes& attributes = interfaces_.attributes(interface);
    select::LaneFigures figures{
        .device_type = attributes.device_type,
        .capabilities = attributes.capabilities,
        .am = attributes.am,
        .put = attributes.put,
        .get = attributes.get,
        .latency = std::max<double>(attributes.latency.at(1), lanes_.latency),
        .overhead = attributes.overhead,
        .bandwidth = std::min<double>(attributes.bandwidth, lanes_.bandwidth),
        .registration = domains[lanes_.domains.local].memory->attributes().register_overhead,
        .slice = rules_.slice,
        .device_reads =
            is_within_host(attributes.device_type) && ucs::MemoryDetectors::readable_types() != 0,
        .takes_devices = device_types_ != 0};
    figures.together = figures.bandwidth;
    for (const RailLanes& rail : lanes_.rails) figures.together += rail.bandwidth;
    return figures;
}

EndpointConfiguration::InPlace EndpointConfiguration::find_in_place() const {
    InPlace found{.domains = lanes_.domains};
    if ((scalable_->capabilities & uct::kCopies) == 0) return found;
    found.has_atomics = rules_.has_atomics && (scalable_->capabilities & uct::kAtomicCpu) != 0;
    if (!rules_.has_rma) return found;
    using select::Protocol;
    // Through a buffer or without one: it is this processor that copies.
    const auto longest = [&](select::Operation operation, Protocol first, Protocol next) {
        size_t most = 0;
        for (const auto& range : scalable_table_.ranges(operation, select::BufferClass::kContiguous,
                                                        select::RemoteClass::kHost)) {
            if (range.protocol != first && range.protocol != next) break;
            most = range.last;
        }
        return std::min(most, scalable_->put.max_short);
    };
    found.longest_put = longest(select::Operation::kPut, Protocol::kShort, Protocol::kShort);
    found.longest_get = longest(select::Operation::kGet, Protocol::kCopy, Protocol::kZeroCopy);
    return found;
}

EndpointConfiguration::LearnedOver EndpointConfiguration::learned_over(
    uint8_t interface, const select::LaneFigures& lanes) const {
    using select::Load;
    LearnedOver all;
    // What goes to oneself is sent and received in one step.
    if (rules_.learned == nullptr || lanes.device_type == uct::DeviceType::kSelf) return all;
    const bool is_within_host = lanes.device_type == uct::DeviceType::kSharedMemory;
    if (rules_.learns_alone_only && !is_within_host) return all;
    for (const select::Operation operation : select::kLearnedOperations) {
        LearnedLane learned{.costs = &rules_.learned->of(lane_name(interface), operation),
                            .times = rules_.times,
                            .is_within_host = is_within_host,
                            .ways = {}};
        bool has_choice = false;
        for (const Load load : {Load::kAlone, Load::kOneWay, Load::kBothWays}) {
            if (!is_learned(operation, load, is_within_host)) continue;
            auto& ways = learned.ways[static_cast<size_t>(load)];
            ways = select::ways(lanes, rules_.costs, rules_.thresholds, operation,
                                select::situation_of(load));
            has_choice = has_choice || ways;
        }
        if (has_choice) all[select::learned_place(operation)] = learned;
    }
    return all;
}

bool EndpointConfiguration::is_learned(select::Operation operation, select::Load load,
                                       bool is_within_host) const {
    using select::Load;
    if (load == Load::kAlone) return true;
    if (rules_.learns_alone_only) return false;
    // Of messages among others it is the wires of a network that count, which nobody's work tells
    // of; the time of a window of puts or gets does.
    return select::is_one_sided(operation) ? load == Load::kOneWay : is_within_host;
}

std::optional<double> EndpointConfiguration::measured_saving() const {
    using select::LearnedCosts;
    // Of messages that are alone there are few where a lane is worth much.
    if (rules_.learns_alone_only) return std::nullopt;
    double sum = 0, messages = 0;
    const auto add = [&](const LearnedLane& scalable, const LearnedLane& dedicated,
                         select::Load load, size_t size) {
        const size_t length = LearnedCosts::least_of_size(size);
        const auto which = LearnedCosts::class_of_size(load, size);
        const auto measured = [&](const LearnedLane& lane) {
            // Of the shortest lengths of the class one piece may be enough.
            const select::Ways* ways = lane.ways_of(load, 2 * length - 1);
            return ways == nullptr ? LearnedCosts::Measured{}
                                   : lane.costs->measured(which, *ways, length);
        };
        const auto before = measured(scalable), after = measured(dedicated);
        const double weight = std::min(before.count, after.count);
        sum += weight * (before.time - after.time) / static_cast<double>(length);
        messages += weight;
    };
    for (const select::Operation operation : select::kLearnedOperations) {
        const LearnedLane* const scalable = learned(false, operation);
        const LearnedLane* const dedicated = learned(true, operation);
        if (select::is_one_sided(operation) || scalable == nullptr || dedicated == nullptr)
            continue;
        for (const select::Load load :
             {select::Load::kAlone, select::Load::kOneWay, select::Load::kBothWays}) {
            for (size_t size = 0; size < LearnedCosts::kSizes; ++size)
                add(*scalable, *dedicated, load, size);
        }
    }
    if (messages == 0) return std::nullopt;
    return sum / messages;
}

LaneUse EndpointConfiguration::use_of(LaneRole role, ucs_memory_type_t type) const {
    LaneUse use{.scalable = lanes_.scalable, .dedicated = lanes_.dedicated};
    if (type != UCS_MEMORY_TYPE_HOST) {
        // Packing and unpacking go through pinned host memory, whatever lane carries the bytes.
        const bool is_word = role == LaneRole::kAtomics;  // in remote memory
        if (is_word || role == LaneRole::kBulk || ucs::MemoryDetectors::of_type(type) == nullptr)
            return use;
        const bool is_read = (role == LaneRole::kMessages || role == LaneRole::kRemoteMemory) &&
                             rules_.thresholds.may_read && is_within_host(scalable_->device_type) &&
                             (ucs::MemoryDetectors::readable_types() & UCS_BIT(type)) != 0;
        const uint32_t has =
            scalable_->capabilities | (dedicated_figures_ ? dedicated_figures_->capabilities : 0);
        const bool is_reached = (role == LaneRole::kMessages || role == LaneRole::kRemoteMemory) &&
                                (has & uct::kPutZcopy) != 0 && (device_types_ & UCS_BIT(type)) != 0;
        use.service = is_read      ? Service::kByDevices
                      : is_reached ? Service::kByAdapters
                                   : Service::kStaged;
        return use;
    }
    const uint32_t has = scalable_->capabilities;
    switch (role) {
        case LaneRole::kMessages:
            use.service = Service::kDirect;
            break;
        case LaneRole::kRemoteMemory:
            use.service =
                (has & kPuts) != 0 && (has & kGets) != 0 ? Service::kDirect : Service::kByMessages;
            break;
        case LaneRole::kAtomics: {
            const uint32_t wanted =
                uct::kAtomicCpu |
                (interfaces_.uses_device_atomics() ? uint32_t{uct::kAtomicDevice} : 0);
            use.service = (has & wanted) != 0 ? Service::kDirect : Service::kByMessages;
            break;
        }
        case LaneRole::kBulk:
            use.service = (has & kChains) != 0 ? Service::kDirect : Service::kNone;
            use.has_rails = use.service != Service::kNone && !lanes_.rails.empty();
            break;
    }
    return use;
}

std::string EndpointConfiguration::lane_name(uint8_t interface) const {
    if (interface == kNoInterface) return "-";
    const uct::InterfaceAttributes& attributes = interfaces_.attributes(interface);
    return attributes.transport + "/" + attributes.device;
}

std::string EndpointConfiguration::rail_names() const {
    std::string names;
    for (const RailLanes& rail : lanes_.rails) {
        names += (names.empty() ? "" : ", ") + lane_name(rail.scalable);
    }
    return names;
}

std::string EndpointConfiguration::describe(const std::string& indent) const {
    select::TextTable table({"role", "memory", "scalable", "dedicated", "rails", "how"});
    for (size_t role = 0; role < kRoles; ++role) {
        const auto& uses = uses_[role];
        for (size_t type = 0; type < kMemoryTypes; ++type) {
            const LaneUse& use = uses[type];
            // Types that are served alike share a line.
            if (use.service == Service::kNone) continue;
            size_t first = 0;
            while (uses[first] != use) ++first;
            if (first != type) continue;
            std::string types = ucs_memory_type_names[type];
            for (size_t other = type + 1; other < kMemoryTypes; ++other) {
                if (uses[other] == use) types += fmt::format(", {}", ucs_memory_type_names[other]);
            }
            table.add({std::string(name(static_cast<LaneRole>(role))), std::move(types),
                       lane_name(use.scalable), lane_name(use.dedicated),
                       use.has_rails ? rail_names() : "-", std::string(reason(use.service))});
        }
    }
    std::string rest;
    const auto& messages = uses_[static_cast<size_t>(LaneRole::kMessages)];
    for (size_t type = 0; type < kMemoryTypes; ++type) {
        if (messages[type].service != Service::kNone || type == UCS_MEMORY_TYPE_RDMA) continue;
        rest += fmt::format("{}{}", rest.empty() ? "" : ", ", ucs_memory_type_names[type]);
    }
    std::string text = table.text(indent);
    if (!rest.empty()) text += fmt::format("{}no lane serves {} memory\n", indent, rest);
    return text;
}

// "" if nothing was learned.
std::string EndpointConfiguration::learned_tables(bool is_dedicated,
                                                  const std::string& indent) const {
    std::string text;
    for (const select::Operation operation : select::kLearnedOperations) {
        if (const LearnedLane* lane = learned(is_dedicated, operation)) {
            text += select::describe_learned(*lane->costs, operation, lane->ways,
                                             protocols(is_dedicated), indent);
        }
    }
    return text;
}

std::string EndpointConfiguration::describe_protocols(const std::string& indent) const {
    const auto over = [&](bool is_dedicated, uint8_t interface, const select::LaneFigures& lanes) {
        return fmt::format(
                   "{0}Protocols over the {1} lane, {2}\n{3}", indent,
                   is_dedicated ? "dedicated" : "scalable", lane_name(interface),
                   select::describe_protocols(lanes, rules_.costs, rules_.thresholds, indent)) +
               learned_tables(is_dedicated, indent);
    };
    std::string text = over(false, lanes_.scalable, scalable_figures_);
    if (dedicated_figures_) text += over(true, lanes_.dedicated, *dedicated_figures_);
    return text;
}

std::string EndpointConfiguration::describe_learned(const std::string& indent) const {
    std::string text;
    const auto add = [&](bool is_dedicated, uint8_t interface) {
        const std::string tables = learned_tables(is_dedicated, indent);
        if (!tables.empty())
            text += fmt::format("{}Learned over {}\n{}", indent, lane_name(interface), tables);
    };
    add(false, lanes_.scalable);
    if (dedicated_figures_) add(true, lanes_.dedicated);
    return text;
}

std::string ConfigurationSet::describe_learned(const std::string& indent) const {
    std::string text;
    for (const ConfigurationRef& each : configurations_) text += each->describe_learned(indent);
    return text;
}

ConfigurationRef ConfigurationSet::intern(const InterfaceSet& interfaces, const DomainSet& domains,
                                          const SelectionRules& rules, const EndpointLanes& lanes) {
    for (const ConfigurationRef& known : configurations_) {
        if (known->lanes() == lanes) return known;
    }
    std::erase_if(configurations_,
                  [](const ConfigurationRef& known) { return known->use_count() == 1; });
    ConfigurationRef made(new EndpointConfiguration(interfaces, domains, rules, lanes));
    configurations_.push_back(made);
    if (ucs::log_enabled(ucs::LogLevel::kInfo))
        ucs::log_info("a configuration of endpoints:\n{}", made->describe("  "));
    if (rules.is_shown) {
        ucs::log_requested(fmt::format("lanes and protocols of endpoints (UCX_PROTO_INFO):\n{}\n{}",
                                       made->describe("  "), made->describe_protocols("  ")));
    }
    return made;
}

}  // namespace ucp
