// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <boost/smart_ptr/intrusive_ptr.hpp>
#include <boost/smart_ptr/intrusive_ref_counter.hpp>

#include "ucp/mem/remote_memory.h"
#include "ucp/runtime/interface_set.h"
#include "ucp/select/learned_book.h"
#include "ucp/select/one_sided_times.h"
#include "ucp/select/protocol_table.h"
#include "ucs/memory/memory_type.h"

namespace ucp {

// What an endpoint uses a lane for.
enum class LaneRole : uint8_t {
    kMessages,      // tags, active messages, streams, control messages
    kRemoteMemory,  // put and get
    kAtomics,
    kBulk,  // puts, gets and announced data in slices over several paths (docs/design/bulk.md)
};
inline constexpr size_t kRoles = 4;
inline constexpr size_t kMemoryTypes = UCS_MEMORY_TYPE_LAST;

// How buffers of one memory type take part in a role.
enum class Service : uint8_t {
    kNone,        // not at all: UCS_ERR_UNSUPPORTED at the call
    kDirect,      // the lane reads and writes the buffer
    kStaged,      // through pinned host memory, in messages
    kByDevices,   // the receiver's device reads the sender's memory; where it cannot: staged
    kByAdapters,  // the adapter reads and writes what it has registered; the rest is staged
    kByMessages,  // the lane lacks the operation: messages ask the peer's processor for it
};

// The lanes of one role for one memory type.
struct LaneUse {
    Service service = Service::kNone;
    bool has_rails = false;  // those of EndpointLanes take part
    uint8_t scalable = 0;    // place in the InterfaceSet
    uint8_t dedicated = 0;   // the same of its dedicated partner; kNoInterface: it has none
    friend bool operator==(const LaneUse&, const LaneUse&) = default;
};

inline constexpr uint8_t kNoInterface = UINT8_MAX;

// A further device that joins the two workers, as configurations tell it.
struct RailLanes {
    uint8_t scalable = 0;
    uint8_t dedicated = kNoInterface;
    DomainPair domains{};
    float bandwidth = 0;  // bytes per second, of the slower end
    friend bool operator==(const RailLanes&, const RailLanes&) = default;
};

// All that tells one endpoint configuration from another.
struct EndpointLanes {
    uint8_t scalable = 0;
    uint8_t dedicated = kNoInterface;  // kNoInterface: it cannot be promoted
    DomainPair domains{};              // of both lanes: they share a device at either end
    float latency = 0;                 // seconds one way, of the slower end's device
    float bandwidth = 0;               // bytes per second, of the slower end
    std::vector<RailLanes> rails;      // beside the lanes, best first
    friend bool operator==(const EndpointLanes&, const EndpointLanes&) = default;
};

// What the protocols of a worker's endpoints are chosen by, beside their lanes.
struct SelectionRules {
    select::CostModel costs;
    select::Thresholds thresholds;
    size_t slice = 65536;                    // UCX_BULK_SLICE_SIZE, in bytes
    bool is_shown = false;                   // UCX_PROTO_INFO
    select::LearnedBook* learned = nullptr;  // null: nothing is learned
    select::OneSidedTimes* times = nullptr;  // of puts and gets; not null if anything is learned
    bool learns_alone_only = false;          // of what is alone within a host
    bool has_rma = true;                     // the program has asked for puts and gets
    bool has_atomics = true;                 // and for atomics
};

// What is learned of an operation over one lane.
struct LearnedLane {
    select::LearnedCosts* costs;
    select::OneSidedTimes* times;  // of puts and gets
    bool is_within_host;
    select::WaysByLoad ways;

    // Null: there is no choice.
    const select::Ways* ways_of(select::Load load, size_t length) const {
        const auto& two = ways[static_cast<size_t>(load)];
        return two && two->admits(length) ? &*two : nullptr;
    }
};

// What all endpoints with the same lanes share: for each role and memory type the scalable
// transport, its dedicated partner and the rails; and for each operation the protocols by length,
// over the scalable lane and over the dedicated one. Constant once made.
class EndpointConfiguration
    : public boost::intrusive_ref_counter<EndpointConfiguration, boost::thread_unsafe_counter> {
  public:
    // @param interfaces  of the worker; outlive the configuration, as do the rules
    EndpointConfiguration(const InterfaceSet& interfaces, const DomainSet& domains,
                          const SelectionRules& rules, EndpointLanes lanes);

    const EndpointLanes& lanes() const { return lanes_; }
    // Attributes of the scalable lane's transport.
    const uct::InterfaceAttributes& scalable() const { return *scalable_; }
    // The lanes of a role for buffers of a memory type; kNone for a type that nothing serves.
    const LaneUse& use(LaneRole role, ucs_memory_type_t type) const {
        return uses_[static_cast<size_t>(role)][type];
    }
    // The protocols over the scalable lane, or over the dedicated one, if there is one.
    const select::ProtocolTable& protocols(bool is_dedicated) const {
        return is_dedicated && dedicated_table_ ? *dedicated_table_ : scalable_table_;
    }
    // What this processor does by itself in memory that is mapped here: puts and gets, in bytes,
    // where by the table it would copy as well, and atomics. 0, and false: by lanes.
    struct InPlace {
        size_t longest_put = 0;
        size_t longest_get = 0;
        bool has_atomics = false;
        DomainPair domains{};
    };
    const InPlace& in_place() const { return in_place_; }
    // What is learned over that lane; null: nothing is (UCX_COSTS).
    // @param operation  one of select::kLearnedOperations
    const LearnedLane* learned(bool is_dedicated, select::Operation operation) const {
        const LearnedOver& lane =
            is_dedicated && dedicated_table_ ? dedicated_learned_ : scalable_learned_;
        const auto& learned = lane[select::learned_place(operation)];
        return learned ? &*learned : nullptr;
    }
    // What a byte of long messages takes less over the dedicated lane, in seconds, by what was
    // learned over both: the mean of the classes of which both are known, by numbers of messages.
    // Below 0 if it takes more; nothing if none is known.
    std::optional<double> measured_saving() const;
    // Their table for people: each operation's ranges of length, times, and why others lost.
    std::string describe_protocols(const std::string& indent) const;
    // What was learned over either lane, for people; "" if nothing was.
    std::string describe_learned(const std::string& indent) const;
    // A table of all lanes, for people: lines that begin with `indent`.
    std::string describe(const std::string& indent) const;

  private:
    select::LaneFigures figures(uint8_t interface, const DomainSet& domains) const;
    InPlace find_in_place() const;
    // By operation.
    using LearnedOver = std::array<std::optional<LearnedLane>, select::kLearnedOperations.size()>;
    LearnedOver learned_over(uint8_t interface, const select::LaneFigures& lanes) const;
    bool is_learned(select::Operation operation, select::Load load, bool is_within_host) const;
    std::string learned_tables(bool is_dedicated, const std::string& indent) const;
    LaneUse use_of(LaneRole role, ucs_memory_type_t type) const;
    std::string lane_name(uint8_t interface) const;
    std::string rail_names() const;

    const InterfaceSet& interfaces_;
    const EndpointLanes lanes_;
    const uct::InterfaceAttributes* const scalable_;
    const SelectionRules& rules_;
    const uint64_t device_types_;  // memory of devices that the lanes may reach by themselves
    std::array<std::array<LaneUse, kMemoryTypes>, kRoles> uses_;
    const select::LaneFigures scalable_figures_;
    const select::ProtocolTable scalable_table_;
    const InPlace in_place_;
    std::optional<select::LaneFigures> dedicated_figures_;
    std::optional<select::ProtocolTable> dedicated_table_;
    LearnedOver scalable_learned_;
    LearnedOver dedicated_learned_;
};

using ConfigurationRef = boost::intrusive_ptr<const EndpointConfiguration>;

// The endpoint configurations of a worker, one for all endpoints alike. Thread rule: as the worker.
class ConfigurationSet {
  public:
    // The configuration with these lanes, made if no endpoint has it. Those unused go.
    ConfigurationRef intern(const InterfaceSet& interfaces, const DomainSet& domains,
                            const SelectionRules& rules, const EndpointLanes& lanes);
    // What was learned over all of their lanes, for people; "" if nothing was.
    std::string describe_learned(const std::string& indent) const;
    // Those in use, and some that were.
    size_t size() const { return configurations_.size(); }

  private:
    std::vector<ConfigurationRef> configurations_;
};

}  // namespace ucp
