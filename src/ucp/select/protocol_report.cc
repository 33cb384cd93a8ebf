// SPDX-License-Identifier: BSD-3-Clause

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "ucp/select/report.h"
#include "ucs/type/names.h"

namespace ucp::select {
namespace {

std::string_view name(Operation operation) {
    static constexpr const char* kNames[] = {"tag", "active message", "stream", "put", "get"};
    return ucs::name_in<Operation::kGet>(kNames, operation);
}

// What is said of a message behind the operation.
std::string_view name(Situation situation) {
    static constexpr const char* kNames[] = {"", ", among others", ", spread"};
    return ucs::name_in<Situation::kSpread>(kNames, situation);
}

std::string_view name(BufferClass buffer) {
    static constexpr const char* kNames[] = {
        "contiguous",  "registered",          "packed",
        "of a device", "of a device, mapped", "of a device, registered"};
    return ucs::name_in<BufferClass::kKnown>(kNames, buffer);
}

// What is said of the peer's memory behind the operation.
std::string_view name(RemoteClass remote) {
    static constexpr const char* kNames[] = {"", ", device memory of the peer",
                                             ", described device memory"};
    return ucs::name_in<RemoteClass::kDescribed>(kNames, remote);
}

// A length inside the range that stands for it.
size_t sample(const ProtocolTable::Range& range) {
    if (range.last == SIZE_MAX) return std::max<size_t>(range.first, 1) * 4;
    const double first = std::max<double>(static_cast<double>(range.first), 1);
    const auto middle = static_cast<size_t>(std::sqrt(first * static_cast<double>(range.last)));
    return std::clamp(middle, range.first, range.last);
}

std::string time_text(double seconds) {
    return fmt::format("{:.2f} us", seconds * 1e6);
}
std::string time_at(const Alternative& alternative, size_t length) {
    return time_text(alternative.cost.at(length));
}

// The one that takes least of those that `wanted` names; null: there is none.
template <typename Wanted>
const Alternative* least_of(const std::vector<Alternative>& all, size_t length, Wanted wanted) {
    const Alternative* least = nullptr;
    for (const Alternative& each : all) {
        if (!wanted(each)) continue;
        if (least == nullptr || each.cost.at(length) < least->cost.at(length)) least = &each;
    }
    return least;
}

// What the one that comes next would take; if there is none, what keeps the others from it.
std::string reason(const Alternative& chosen, const std::vector<Alternative>& all, size_t length) {
    const auto is_other = [&](const Alternative& each) { return each.protocol != chosen.protocol; };
    const double least = chosen.cost.at(length);
    const Alternative* next = least_of(all, length, [&](const Alternative& each) {
        return is_other(each) &&
               (each.admits(length) || (each.is_by_cost && each.cost.at(length) >= least));
    });
    if (next != nullptr)
        return fmt::format("{} takes {}", name(next->protocol), time_at(*next, length));
    next = least_of(all, length, is_other);
    if (next == nullptr) return "nothing else serves";
    const char* who = next->is_set ? "set: " : "";
    return length > next->most
               ? fmt::format("{}{} up to {} bytes", who, name(next->protocol), next->most)
               : fmt::format("{}{} from {} bytes on", who, name(next->protocol), next->least);
}

bool is_same(const std::vector<ProtocolTable::Range>& left,
             const std::vector<ProtocolTable::Range>& right) {
    return std::ranges::equal(left, right, [](const auto& one, const auto& other) {
        return one.first == other.first && one.protocol == other.protocol;
    });
}

}  // namespace

std::string describe_protocols(const LaneFigures& lanes, const CostModel& costs,
                               const Thresholds& thresholds, const std::string& indent) {
    const ProtocolTable protocols(lanes, costs, thresholds);
    TextTable table(
        {"operation", "buffer", "bytes", "protocol", "takes", "of", "figures", "the next best"}, 4,
        5);
    // `other`: the situation of a message, or the peer's memory of a put or get.
    const auto add = [&](Operation operation, BufferClass buffer, auto other) {
        const std::vector<Alternative> all =
            alternatives(lanes, costs, thresholds, operation, buffer, other);
        const std::string head = fmt::format("{}{}", name(operation), name(other));
        for (const ProtocolTable::Range& range : protocols.ranges(operation, buffer, other)) {
            const size_t length = sample(range);
            const auto chosen = std::ranges::find_if(all, [&](const Alternative& each) {
                return each.protocol == range.protocol && each.admits(length);
            });
            if (chosen == all.end()) continue;
            table.add({head, std::string(name(buffer)),
                       range.last == SIZE_MAX ? fmt::format("{} and more", range.first)
                                              : fmt::format("{} to {}", range.first, range.last),
                       std::string(name(range.protocol)), time_at(*chosen, length),
                       fmt::format("{} B", length),
                       chosen->is_set ? "set" : std::string(name(chosen->cost.origin)),
                       reason(*chosen, all, length)});
        }
    };
    // Adds the buffers that do not go as others do.
    const auto add_buffers = [&](Operation operation, auto other) {
        const auto ranges = [&](BufferClass buffer) {
            return protocols.ranges(operation, buffer, other);
        };
        for (size_t kind = 0; kind < kBufferClasses; ++kind) {
            const auto buffer = static_cast<BufferClass>(kind);
            const bool is_of_device =
                buffer == BufferClass::kMapped || buffer == BufferClass::kKnown;
            const BufferClass usual =
                is_of_device ? BufferClass::kDevice : BufferClass::kContiguous;
            if (kind == 0 || !is_same(ranges(buffer), ranges(usual))) add(operation, buffer, other);
        }
    };
    // Adds what differs for that buffer from what is there already.
    const auto add_other = [&](Operation operation, BufferClass buffer, auto usual, auto other) {
        if (!is_same(protocols.ranges(operation, buffer, usual),
                     protocols.ranges(operation, buffer, other)))
            add(operation, buffer, other);
    };
    for (size_t index = 0; index < kOperations; ++index) {
        const auto operation = static_cast<Operation>(index);
        if (!is_one_sided(operation)) {
            add_buffers(operation, Situation::kAlone);
            add_other(operation, BufferClass::kContiguous, Situation::kAlone,
                      Situation::kAmongOthers);
            add_other(operation, BufferClass::kContiguous, Situation::kAmongOthers,
                      Situation::kSpread);
            continue;
        }
        add_buffers(operation, RemoteClass::kHost);
        for (const BufferClass buffer : {BufferClass::kContiguous, BufferClass::kDevice}) {
            add_other(operation, buffer, RemoteClass::kHost, RemoteClass::kDevice);
            add_other(operation, buffer, RemoteClass::kDevice, RemoteClass::kDescribed);
        }
    }
    return table.text(indent);
}

std::string describe_learned(const LearnedCosts& learned, Operation operation,
                             const WaysByLoad& ways, const ProtocolTable& protocols,
                             const std::string& indent) {
    const auto all = all_ways(operation);
    std::vector<std::string> head{"learned", "bytes"};
    for (const Way way : all) {
        head.emplace_back(name(way));
        head.emplace_back("figure");
    }
    head.emplace_back("goes");
    TextTable table(std::move(head));
    bool is_empty = true;
    const auto usual = [&](Load load, size_t length) {
        if (is_one_sided(operation)) {
            const Protocol protocol =
                protocols.find(operation, BufferClass::kContiguous, RemoteClass::kHost, length);
            return one_sided_way(protocol).value_or(Way::kZeroCopy);
        }
        // Of active messages the table knows no others.
        const Situation situation =
            operation == Operation::kTag ? situation_of(load) : Situation::kAlone;
        const Protocol protocol =
            protocols.find(operation, BufferClass::kContiguous, situation, length);
        return is_announced(protocol) ? Way::kRendezvous : Way::kEager;
    };
    for (const Load load : {Load::kAlone, Load::kOneWay, Load::kBothWays}) {
        const std::optional<Ways>& some = ways[static_cast<size_t>(load)];
        for (size_t size = 0; some && size < LearnedCosts::kSizes; ++size) {
            const size_t width = size + LearnedCosts::kShortest;
            const size_t length =
                std::clamp(size_t{3} << (width - 2), some->least, some->most);  // three quarters
            const auto which = LearnedCosts::class_of_size(load, size);
            const auto is_known = [&](Way way) { return learned.factor(which, way) != 0; };
            if (std::ranges::none_of(all, is_known)) continue;
            is_empty = false;
            std::vector<std::string> line{std::string(name(operation)), fmt::format("{}", length)};
            if (load == Load::kOneWay) line.front() += ", among others";
            if (load == Load::kBothWays) line.front() += ", both ways";
            for (const Way way : all) {
                if (way != some->first(length) && way != some->second(length)) {
                    line.insert(line.end(), 2, "-");
                    continue;
                }
                const float factor = learned.factor(which, way);
                line.push_back(
                    time_text(some->assumed(way).at(length) * (factor == 0 ? 1 : factor)));
                if (const uint32_t count = learned.learned(which, way); count != 0) {
                    line.push_back(fmt::format("{} {}", name(Origin::kLearned), count));
                } else if (const uint32_t others = learned.kept(which, way); others != 0) {
                    line.push_back(fmt::format("{} {}", name(Origin::kKept), others));
                } else {
                    line.emplace_back(name(some->assumed(way).origin));
                }
            }
            line.emplace_back(name(learned.best(which, *some, length, usual(load, length))));
            table.add(std::move(line));
        }
    }
    return is_empty ? "" : table.text(indent);
}

}  // namespace ucp::select
