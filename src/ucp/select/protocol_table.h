// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "ucp/select/costs.h"
#include "uct/api/types.h"

// By which protocol an operation goes: a pure function of the operation, the kind of buffer, of a
// put or get also the kind of memory at the peer, the length and the lanes of both ends. It is
// reckoned once for each endpoint configuration, from the costs that transports state and those of
// the machine (costs.h), and looked up by integers alone.
namespace ucp::select {

enum class Operation : uint8_t { kTag, kActiveMessage, kStream, kPut, kGet };
inline constexpr size_t kOperations = 5;
inline bool is_one_sided(Operation operation) {
    return operation == Operation::kPut || operation == Operation::kGet;
}

// What a protocol can do with a buffer.
enum class BufferClass : uint8_t {
    kContiguous,  // host memory in one piece
    kRegistered,  // the same, which the program has registered (UCP_OP_ATTR_FIELD_MEMH)
    kPacked,      // pieces, generic datatypes: only through pack and unpack
    kDevice,      // memory of a device in one piece
    kMapped,      // the same, which the peer has read by itself before
    kKnown,       // the same, which the program has registered with the lane's adapter
};
inline constexpr size_t kBufferClasses = 6;

// The peer's memory of a put or get; of a message nobody knows it when the message is sent.
enum class RemoteClass : uint8_t {
    kHost,       // host memory, or what the peer's adapter has registered of a device
    kDevice,     // memory of a device
    kDescribed,  // the same, which the key describes to devices of the peer's host
};
inline constexpr size_t kRemoteClasses = 3;

enum class Protocol : uint8_t {
    kShort,           // inside the work request
    kCopy,            // through bounce buffers, in pieces if need be
    kZeroCopy,        // from registered memory
    kBulk,            // in slices over all paths to the peer
    kByMessages,      // the peer's processor acts: the lane lacks the operation
    kRendezvous,      // announced; the data moves when the receiver has a buffer
    kRendezvousBulk,  // the same, the data in slices over all paths
    kDirect,          // a device of one end reads or writes the other's memory; messages are
                      // announced, puts and gets of other memory than described ask the peer for it
};
std::string_view name(Protocol protocol);
inline bool is_announced(Protocol protocol) {
    return protocol == Protocol::kRendezvous || protocol == Protocol::kRendezvousBulk ||
           protocol == Protocol::kDirect;
}

// Lanes of one kind (scalable or dedicated) of an endpoint, of both ends.
struct LaneFigures {
    uct::DeviceType device_type = uct::DeviceType::kNetwork;
    uint32_t capabilities = 0;  // bits of uct::Capability
    uct::OperationLimits am, put, get;
    double latency = 0;          // seconds one way, of the slower end
    double overhead = 0;         // seconds of a processor for a message, at either end
    double bandwidth = 0;        // bytes per second, of the slower end
    double together = 0;         // the same of all devices that share bulk data
    double registration = 0;     // seconds
    size_t slice = 65536;        // bytes of bulk data that one device takes at a time
    bool device_reads = false;   // devices of one host: each may read the other's memory
    bool takes_devices = false;  // the lane reads and writes memory of devices here by itself
};

// What the user has set, in bytes; nothing: the costs decide.
struct Thresholds {
    std::optional<size_t> rendezvous;  // UCX_RNDV_THRESH
    std::optional<size_t> zero_copy;   // UCX_ZCOPY_THRESH
    std::optional<size_t> bulk;        // UCX_BULK_THRESH
    // From here on a message is announced whatever the costs are, unless `rendezvous` is set.
    size_t eager_max = SIZE_MAX;       // UCX_EAGER_MAX
    size_t eager_max_host = SIZE_MAX;  // UCX_EAGER_MAX_HOST: within a host
    bool may_read = true;              // UCX_RNDV_SCHEME lets the receiver read announced data
    size_t short_limit = SIZE_MAX;     // UCX_BCOPY_THRESH: the longest message by kShort
};

// A protocol that could carry an operation, from which length to which, and in what time.
struct Alternative {
    Protocol protocol;
    size_t least = 0;
    size_t most = SIZE_MAX;
    CostEntry cost;
    bool is_set = false;      // `least` or `most` is the user's
    bool is_by_cost = false;  // else: it is where another begins to cost less

    bool admits(size_t length) const { return least <= length && length <= most; }
};

// Whether a message is likely to be the only one under way. Then its time is what its parts take
// one after the other; among others it is the time of the processors and wires that are busy with
// it, as waiting for answers goes on beside the others' data. Spread: the others go to other peers.
enum class Situation : uint8_t { kAlone, kAmongOthers, kSpread };
inline constexpr size_t kSituations = 3;

// All protocols that could carry an operation. Of those that admit a length the one that takes
// least is the choice, the first of equals. This is the one place where times of protocols are put
// together.
std::vector<Alternative> alternatives(const LaneFigures& lanes, const CostModel& costs,
                                      const Thresholds& thresholds, Operation operation,
                                      BufferClass buffer, Situation situation);
// The same of a put or get.
std::vector<Alternative> alternatives(const LaneFigures& lanes, const CostModel& costs,
                                      const Thresholds& thresholds, Operation operation,
                                      BufferClass buffer, RemoteClass remote);

// How an operation goes where what is learned may choose: long messages, then puts and gets.
enum class Way : uint8_t { kEager, kRendezvous, kCopy, kZeroCopy, kBulk };
// Of one operation at most.
inline constexpr size_t kWays = 3;
std::string_view name(Way way);
// The place of a way among those of its operation.
constexpr size_t place_of(Way way) {
    return way < Way::kCopy ? static_cast<size_t>(way)
                            : static_cast<size_t>(way) - static_cast<size_t>(Way::kCopy);
}
inline std::span<const Way> all_ways(Operation operation) {
    static constexpr Way kOfMessages[] = {Way::kEager, Way::kRendezvous};
    static constexpr Way kOneSided[] = {Way::kCopy, Way::kZeroCopy, Way::kBulk};
    return is_one_sided(operation) ? std::span<const Way>(kOneSided)
                                   : std::span<const Way>(kOfMessages);
}
// The way of a put or get by that protocol; nothing: what is learned knows none.
std::optional<Way> one_sided_way(Protocol protocol);
Protocol protocol_of(Way way);

// The ways of an operation on host memory, and the lengths at which what is learned may choose:
// between two ways at each of them.
struct Ways {
    size_t least = 0;
    size_t most = 0;
    std::array<CostEntry, kWays> costs;
    // Of puts and gets: from that length on they go in slices, or by zero copy, and not as copies.
    size_t bulk = 0;
    bool is_one_sided = false;

    bool admits(size_t length) const { return least <= length && length <= most; }
    const CostEntry& assumed(Way way) const { return costs[place_of(way)]; }
    Way first(size_t length) const {
        if (!is_one_sided) return Way::kEager;
        return length < bulk ? Way::kCopy : Way::kZeroCopy;
    }
    Way second(size_t length) const {
        if (!is_one_sided) return Way::kRendezvous;
        return length < bulk ? Way::kZeroCopy : Way::kBulk;
    }
    Way other_than(Way way, size_t length) const {
        return way == first(length) ? second(length) : first(length);
    }
};
// What is learned may choose the way of no put or get that is shorter, in bytes: there is little to
// win, and to look would cost a part of that.
inline constexpr size_t kLeastOneSided = 1024;
// @return nothing where there is no choice, or the user has made it
std::optional<Ways> ways(const LaneFigures& lanes, const CostModel& costs,
                         const Thresholds& thresholds, Operation operation, Situation situation);

// From which length on puts, gets and announced data go in slices; SIZE_MAX: never.
size_t bulk_threshold(const LaneFigures& lanes, const Thresholds& thresholds);

// The choice between alternatives at each length, looked up in a few instructions.
class ProtocolTable {
  public:
    ProtocolTable(const LaneFigures& lanes, const CostModel& costs, const Thresholds& thresholds);

    // @param operation  a message: kTag, kActiveMessage, kStream
    Protocol find(Operation operation, BufferClass buffer, Situation situation,
                  size_t length) const {
        return rows_[index(operation, buffer, situation)].find(length);
    }
    // Messages of that length and of all greater ones are announced in each situation, and go by
    // the same protocol in all of them.
    bool is_announced_anyway(Operation operation, BufferClass buffer, size_t length) const {
        return length >
               announced_above_[static_cast<size_t>(operation)][static_cast<size_t>(buffer)];
    }
    // @param operation  kPut or kGet
    Protocol find(Operation operation, BufferClass buffer, RemoteClass remote,
                  size_t length) const {
        return rows_[index(operation, buffer, remote)].find(length);
    }
    bool is_bulk(size_t length) const { return length >= bulk_; }

    // Lengths [first, last] that go by one protocol.
    struct Range {
        size_t first;
        size_t last;
        Protocol protocol;
    };
    std::vector<Range> ranges(Operation operation, BufferClass buffer, Situation situation) const {
        return rows_[index(operation, buffer, situation)].ranges();
    }
    std::vector<Range> ranges(Operation operation, BufferClass buffer, RemoteClass remote) const {
        return rows_[index(operation, buffer, remote)].ranges();
    }

  private:
    static constexpr size_t kMaxRanges = 8;
    struct Row {
        std::array<uint8_t, 65> first{};  // by the width of a length in bits: where to look first
        std::array<Protocol, kMaxRanges> protocols{};
        std::array<size_t, kMaxRanges> last{};  // the longest of each range; SIZE_MAX ends it

        Protocol find(size_t length) const {
            size_t place = first[std::bit_width(length)];
            while (length > last[place]) ++place;
            return protocols[place];
        }
        std::vector<Range> ranges() const;
    };
    static constexpr auto kMessages = static_cast<size_t>(Operation::kPut);
    static constexpr size_t kMessageRows = kMessages * kBufferClasses * kSituations;
    static constexpr size_t kRows =
        kMessageRows + (kOperations - kMessages) * kBufferClasses * kRemoteClasses;

    static size_t index(Operation operation, BufferClass buffer, Situation situation) {
        assert(!is_one_sided(operation));
        return (static_cast<size_t>(operation) * kBufferClasses + static_cast<size_t>(buffer)) *
                   kSituations +
               static_cast<size_t>(situation);
    }
    static size_t index(Operation operation, BufferClass buffer, RemoteClass remote) {
        assert(is_one_sided(operation));
        const size_t which = static_cast<size_t>(operation) - kMessages;
        return kMessageRows +
               (which * kBufferClasses + static_cast<size_t>(buffer)) * kRemoteClasses +
               static_cast<size_t>(remote);
    }
    static Row make_row(const std::vector<Alternative>& alternatives);

    size_t announced_above(Operation operation, BufferClass buffer) const;

    std::array<Row, kRows> rows_;
    std::array<std::array<size_t, kBufferClasses>, kMessages> announced_above_{};
    size_t bulk_;
};

}  // namespace ucp::select
