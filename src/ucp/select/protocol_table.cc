// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/select/protocol_table.h"

#include <algorithm>
#include <cassert>

#include "ucs/type/names.h"

namespace ucp::select {
namespace {

constexpr size_t kMinRendezvous = 8 * 1024;  // whatever the figures say
// A joint copy, of which each end does a part: the time of a byte beside that of one processor's
// copy (more than a half, since both use the same memory), and the bytes that one end copies while
// the other has not begun or has ended.
constexpr double kJointShare = 0.55;
constexpr double kJointTail = 32 * 1024;
constexpr size_t kMinEagerZeroCopy = 2 * 1024;  // a list of memory costs something, too
// A peer that has not read from the memory yet has to map it first, for which shorter messages do
// not wait.
constexpr size_t kMinUnmapped = 8 * 1024;
constexpr size_t kMinBulk = 8 * 1024;
constexpr size_t kMaxBulkThreshold = 64 * 1024;  // a slice, of a single device as well
// From this length on learned costs may not choose to copy a put or get: no registration costs as
// much.
constexpr size_t kMostCopied = 64 * 1024;
// Nor, from this length on, one piece instead of slices: other messages of the lane would wait
// behind it.
constexpr size_t kMostUnsliced = 1024 * 1024;
// Messages that an announced one takes beside its data: announcement, request for the data, end.
constexpr unsigned kMoreMessages = 3;
// So many times as long takes a copy into queues, or out of them, that have left the processor's
// caches, as those of several peers do, a quarter of a MiB each.
constexpr double kColdQueue = 2;
// What sharing among devices saves must be so many times its cost: a device may carry more than it
// says, and then sharing only costs the processors time.
constexpr double kWorthwhile = 2;

constexpr uint32_t kAnyPut = uct::kPutShort | uct::kPutBcopy | uct::kPutZcopy;
constexpr uint32_t kAnyGet = uct::kGetBcopy | uct::kGetZcopy;

bool is_within_host(const LaneFigures& lanes) {
    return lanes.device_type == uct::DeviceType::kSharedMemory;
}

// Seconds that a byte takes on the wire.
double wire(double bandwidth) {
    return bandwidth > 0 ? 1 / bandwidth : 0;
}

// Seconds that a byte takes less if several devices carry the message.
double saved(const LaneFigures& lanes) {
    return lanes.together > lanes.bandwidth ? wire(lanes.bandwidth) - wire(lanes.together) : 0;
}

bool is_of_device(BufferClass buffer) {
    return buffer == BufferClass::kDevice || buffer == BufferClass::kMapped ||
           buffer == BufferClass::kKnown;
}

// What a protocol for host memory costs with a buffer of a device, which is copied to or from host
// memory.
// @param ends  at how many ends there is such a buffer
CostEntry with_staging(const CostEntry& cost, const CostModel& costs, int ends) {
    return {cost.base + ends * costs.staging.base, cost.per_byte + ends * costs.staging.per_byte,
            cost.origin};
}

// The same of a message: its receiver is assumed to have a buffer of the same kind.
CostEntry with_staging(const CostEntry& cost, const CostModel& costs, BufferClass buffer) {
    return with_staging(cost, costs, is_of_device(buffer) ? 2 : 0);
}

// What eager messages cost, which are copied at both ends.
CostEntry eager_cost(const LaneFigures& lanes, const CostModel& costs, Operation operation,
                     Situation situation) {
    const double messages = 2 * lanes.overhead;
    if (is_within_host(lanes)) {
        // For a handler the pieces of a message are put together in memory of their own: one copy
        // more.
        const double again = operation == Operation::kActiveMessage ? costs.copy.per_byte : 0;
        if (situation != Situation::kAlone) {
            const double factor = situation == Situation::kSpread ? kColdQueue : 1;
            return {messages, 2 * factor * costs.copy.per_byte, costs.copy.origin};
        }
        return {lanes.latency + messages + costs.pieces.base, costs.pieces.per_byte + again,
                costs.pieces.origin};
    }
    return {lanes.latency + messages, wire(lanes.bandwidth) + 2 * costs.copy.per_byte,
            costs.copy.origin};
}

// What it costs within a host to move announced data by calls of the system; in a joint copy the
// sender, which waits for the end, does half of them.
CostEntry system_copy_cost(const LaneFigures& lanes, const CostModel& costs, Situation situation) {
    const CostEntry& copy = costs.system_copy;
    if (situation != Situation::kAlone || (lanes.capabilities & uct::kJointCopies) == 0)
        return copy;
    return {copy.base + kJointTail * copy.per_byte, kJointShare * copy.per_byte, copy.origin};
}

// What announced data costs: two more trips and messages, and a registration at either end; within
// a host calls of the system instead.
// @param bandwidth  of the devices that carry the data
CostEntry rendezvous_cost(const LaneFigures& lanes, const CostModel& costs, Situation situation,
                          double bandwidth) {
    if (is_within_host(lanes)) {
        const double latency = situation == Situation::kAlone ? 3 * lanes.latency : 0;
        const CostEntry copy = system_copy_cost(lanes, costs, situation);
        return {latency + 4 * lanes.overhead + copy.base, copy.per_byte, copy.origin};
    }
    if (situation != Situation::kAlone) {
        // Trips and copies overlap other messages on the wire, for eager ones too: both are counted
        // alike, and what an announcement takes beside that has to pay.
        const double extra = kMoreMessages * lanes.overhead + lanes.registration;
        return {lanes.latency + 2 * lanes.overhead + kWorthwhile * extra,
                wire(bandwidth) + 2 * costs.copy.per_byte};
    }
    return {3 * lanes.latency + 4 * lanes.overhead + 2 * lanes.registration, wire(bandwidth)};
}

// The first length in [least, most] for which the predicate is true, from which on it stays so;
// most if there is none.
template <typename Predicate>
size_t first_length(size_t least, size_t most, Predicate predicate) {
    while (least < most) {
        const size_t middle = least + (most - least) / 2;
        if (predicate(middle)) {
            most = middle;
        } else {
            least = middle + 1;
        }
    }
    return most;
}

// The length from which on several devices save more than sharing among them costs; SIZE_MAX: there
// is only one device.
size_t sharing_threshold(const LaneFigures& lanes) {
    if (saved(lanes) <= 0) return SIZE_MAX;
    const double cost = kWorthwhile * (kMoreMessages * lanes.overhead + lanes.registration);
    return std::max(static_cast<size_t>(cost / saved(lanes)), kMinBulk);
}

// The longest piece of a message that goes in several.
size_t piece_of(const LaneFigures& lanes) {
    return std::max<size_t>(lanes.am.max_short, lanes.am.max_bcopy);
}

size_t eager_max(const LaneFigures& lanes, const Thresholds& thresholds) {
    return is_within_host(lanes) ? thresholds.eager_max_host : thresholds.eager_max;
}

// From which length on a message is announced if the user says nothing.
size_t rendezvous_threshold(const LaneFigures& lanes, const CostModel& costs,
                            const Thresholds& thresholds, Operation operation,
                            Situation situation) {
    const size_t most = eager_max(lanes, thresholds);
    const auto announced_pays = [&](size_t length, Situation when) {
        const double eager = eager_cost(lanes, costs, operation, when).at(length);
        if (rendezvous_cost(lanes, costs, when, lanes.bandwidth).at(length) <= eager) return true;
        return saved(lanes) > 0 && length >= 2 * lanes.slice &&
               rendezvous_cost(lanes, costs, when, lanes.together).at(length) <= eager;
    };
    if (is_within_host(lanes)) {
        // The figures of pieces are of many of them. A message of no more pieces than an
        // announcement takes messages goes in pieces, as each is no dearer than such a message.
        // Messages that are spread over many queues are announced from two pieces on: that touches
        // fewer cold lines of a queue.
        const size_t pieces =
            situation == Situation::kSpread ? piece_of(lanes) + 1 : kMoreMessages * piece_of(lanes);
        return first_length(std::max(kMinRendezvous, pieces), most,
                            [&](size_t length) { return announced_pays(length, situation); });
    }
    const size_t alone = first_length(kMinRendezvous, most, [&](size_t length) {
        return announced_pays(length, Situation::kAlone);
    });
    const bool is_shared = situation != Situation::kAlone && operation == Operation::kTag &&
                           lanes.device_type == uct::DeviceType::kNetwork;
    return is_shared ? std::min(alone, sharing_threshold(lanes)) : alone;
}

// A list of alternatives in the making.
class List {
  public:
    void add(Protocol protocol, size_t least, size_t most, const CostEntry& cost,
             bool is_set = false, bool is_by_cost = false) {
        if (least <= most) list_.push_back({protocol, least, most, cost, is_set, is_by_cost});
    }
    std::vector<Alternative> take() { return std::move(list_); }

  private:
    std::vector<Alternative> list_;
};

// Before that length; nothing is before 0.
struct Before {
    explicit Before(size_t length) : is_empty(length == 0), most(length - 1) {}
    bool is_empty;
    size_t most;
};

void add_eager(List& list, const LaneFigures& lanes, const CostModel& costs,
               const Thresholds& thresholds, Operation operation, BufferClass buffer,
               Situation situation, size_t most) {
    const bool is_plain = buffer == BufferClass::kContiguous || buffer == BufferClass::kRegistered;
    const CostEntry copies =
        with_staging(eager_cost(lanes, costs, operation, situation), costs, buffer);
    size_t least = 0;
    if (is_plain && (lanes.capabilities & uct::kAmShort) != 0 && thresholds.short_limit != 0) {
        const size_t longest = std::min({lanes.am.max_short, thresholds.short_limit, most});
        list.add(Protocol::kShort, 0, longest, {copies.base, copies.per_byte, copies.origin},
                 longest == thresholds.short_limit);
        least = longest + 1;
    }
    if (least > most) return;
    if (is_plain && (lanes.capabilities & uct::kAmZcopy) != 0) {
        const CostEntry& limit = buffer == BufferClass::kRegistered ? costs.message_registered
                                                                    : costs.message_registering;
        // Zero copy spares a copy, for a registration; in shared memory the bytes are copied all
        // the same.
        const bool is_network = lanes.device_type == uct::DeviceType::kNetwork;
        const bool is_host = is_within_host(lanes);
        const double cost = is_network ? std::min(lanes.registration, limit.base) : limit.base;
        const double spared = is_host ? 0 : costs.copy.per_byte;
        const CostEntry zero_copy{copies.base + cost, copies.per_byte - spared, limit.origin};
        if (!thresholds.zero_copy) {
            list.add(Protocol::kZeroCopy, std::max(least, is_network ? kMinEagerZeroCopy : 0), most,
                     zero_copy, false, !thresholds.rendezvous);
        } else {
            list.add(Protocol::kZeroCopy, std::max(least, *thresholds.zero_copy), most, zero_copy,
                     true);
            const Before before(*thresholds.zero_copy);
            if (!before.is_empty) {
                list.add(Protocol::kCopy, least, std::min(most, before.most), copies, true);
            }
            return;
        }
    }
    list.add(Protocol::kCopy, least, most, copies, false, !thresholds.rendezvous);
}

void add_messages(List& list, const LaneFigures& lanes, const CostModel& costs,
                  const Thresholds& thresholds, Operation operation, BufferClass buffer,
                  Situation situation) {
    if (operation == Operation::kStream) {
        add_eager(list, lanes, costs, thresholds, operation, buffer, situation, SIZE_MAX);
        return;
    }
    const bool is_set = thresholds.rendezvous.has_value();
    const size_t from = is_set
                            ? *thresholds.rendezvous
                            : rendezvous_threshold(lanes, costs, thresholds, operation, situation);
    if (is_of_device(buffer) && lanes.device_reads && thresholds.may_read) {
        const size_t least = buffer == BufferClass::kMapped ? 0 : kMinUnmapped;
        const CostEntry& read = costs.device_read;
        list.add(Protocol::kDirect, is_set ? from : std::min(from, least), SIZE_MAX,
                 {2 * (lanes.latency + lanes.overhead) + read.base, read.per_byte, read.origin},
                 is_set);
    }
    const Before before(from);
    if (!before.is_empty) {
        add_eager(list, lanes, costs, thresholds, operation, buffer, situation, before.most);
    }
    const bool has_chains = (lanes.capabilities & (uct::kPutChain | uct::kGetChain)) != 0;
    // Announced data: the receiver's buffer is taken to be of the same kind.
    const bool is_reached = buffer == BufferClass::kContiguous ||
                            buffer == BufferClass::kRegistered ||
                            (is_of_device(buffer) && lanes.takes_devices);
    const size_t bulk = is_reached && has_chains ? bulk_threshold(lanes, thresholds) : SIZE_MAX;
    const Before slices(bulk);
    if (bulk == SIZE_MAX || !slices.is_empty) {
        const CostEntry plain = rendezvous_cost(lanes, costs, situation, lanes.bandwidth);
        list.add(Protocol::kRendezvous, from, bulk == SIZE_MAX ? SIZE_MAX : slices.most,
                 is_reached ? plain : with_staging(plain, costs, buffer), is_set, !is_set);
    }
    if (bulk != SIZE_MAX) {
        list.add(Protocol::kRendezvousBulk, std::max(from, bulk), SIZE_MAX,
                 rendezvous_cost(lanes, costs, situation, lanes.together), is_set, !is_set);
    }
}

// What a put or get of host memory costs. Among others the waiting for answers goes on beside the
// others' data, as do copies beside the wires.
CostEntry one_sided_cost(const LaneFigures& lanes, const CostModel& costs, Operation operation,
                         Way way, BufferClass buffer, Situation situation) {
    const bool is_alone = situation == Situation::kAlone;
    // To the peer, and for a get back.
    const double trips = operation == Operation::kPut ? 1 : 2;
    const double base = (is_alone ? trips * lanes.latency : 0) + lanes.overhead;
    switch (way) {
        case Way::kZeroCopy: {
            const CostEntry& entry = buffer == BufferClass::kRegistered
                                         ? costs.one_sided_registered
                                         : costs.one_sided_registering;
            return {base + entry.base, wire(lanes.bandwidth), entry.origin};
        }
        case Way::kBulk:
            return {base + (kMoreMessages - 1) * lanes.overhead + lanes.registration,
                    wire(lanes.together)};
        default:
            break;
    }
    const double copy = costs.copy.per_byte;
    return {base, is_alone ? wire(lanes.bandwidth) + copy : std::max(wire(lanes.bandwidth), copy),
            costs.copy.origin};
}

void add_one_sided(List& list, const LaneFigures& lanes, const CostModel& costs,
                   const Thresholds& thresholds, Operation operation, BufferClass buffer,
                   RemoteClass remote) {
    const bool is_put = operation == Operation::kPut;
    const uint32_t has = lanes.capabilities;
    // To the peer, and for a get back.
    const double ways = is_put ? 1 : 2;
    const auto cost = [&](Way way) {
        return one_sided_cost(lanes, costs, operation, way, buffer, Situation::kAlone);
    };
    const CostEntry copies = cost(Way::kCopy);
    if (remote == RemoteClass::kDescribed && buffer != BufferClass::kPacked && lanes.device_reads &&
        thresholds.may_read) {
        list.add(Protocol::kDirect, 0, SIZE_MAX, costs.device_read);
    }
    const bool has_zero_copy = (has & (is_put ? uct::kPutZcopy : uct::kGetZcopy)) != 0;
    const bool has_chains = (has & (is_put ? uct::kPutChain : uct::kGetChain)) != 0;
    const bool is_reached = remote == RemoteClass::kHost && is_of_device(buffer) &&
                            lanes.takes_devices && has_zero_copy;
    if (buffer == BufferClass::kPacked || is_of_device(buffer) || remote != RemoteClass::kHost ||
        (has & (is_put ? kAnyPut : kAnyGet)) == 0) {
        const size_t bulk = is_reached && has_chains ? bulk_threshold(lanes, thresholds) : SIZE_MAX;
        // Of a device's memory nothing is kept registered.
        const double registration = buffer == BufferClass::kKnown ? 0 : lanes.registration;
        if (bulk != SIZE_MAX) {
            list.add(Protocol::kBulk, bulk, SIZE_MAX,
                     {ways * lanes.latency + kMoreMessages * lanes.overhead + registration,
                      wire(lanes.together)},
                     thresholds.bulk.has_value());
        }
        if (is_reached && bulk != 0) {
            list.add(Protocol::kZeroCopy, 0, bulk == SIZE_MAX ? SIZE_MAX : bulk - 1,
                     {copies.base + registration, wire(lanes.bandwidth)});
        }
        const int ends = (is_of_device(buffer) ? 1 : 0) + (remote != RemoteClass::kHost ? 1 : 0);
        const double base = ways * lanes.latency + 2 * lanes.overhead + costs.peer_turn.base;
        // The peer's device copies, if the peer has one and it can map the memory here.
        if (is_of_device(buffer) && remote != RemoteClass::kDescribed && lanes.device_reads &&
            thresholds.may_read) {
            const CostEntry& copy =
                remote == RemoteClass::kHost ? costs.device_host : costs.device_read;
            list.add(Protocol::kDirect, 0, SIZE_MAX,
                     {base + copy.base, copy.per_byte, copy.origin});
        }
        list.add(
            Protocol::kByMessages, 0, SIZE_MAX,
            with_staging({base, wire(lanes.bandwidth) + 2 * costs.copy.per_byte, costs.copy.origin},
                         costs, ends));
        return;
    }
    const bool can_copy = (has & (is_put ? uct::kPutBcopy : uct::kGetBcopy)) != 0;
    const bool has_short = is_put && (has & uct::kPutShort) != 0;
    size_t bulk = has_chains ? bulk_threshold(lanes, thresholds) : SIZE_MAX;
    // What fits into a work request is never cut into slices, whatever the user says.
    if (has_short && bulk <= lanes.put.max_short) {
        bulk = std::min(lanes.put.max_short, SIZE_MAX - 1) + 1;
    }
    if (bulk != SIZE_MAX) {
        list.add(Protocol::kBulk, bulk, SIZE_MAX, cost(Way::kBulk), thresholds.bulk.has_value());
        if (bulk == 0) return;
    }
    const size_t most = bulk == SIZE_MAX ? SIZE_MAX : bulk - 1;
    size_t least = 0;
    if (has_short) {
        const bool is_only = !can_copy && !has_zero_copy;
        const size_t longest = is_only ? most : std::min(lanes.put.max_short, most);
        list.add(Protocol::kShort, 0, longest, copies);
        if (longest == most) return;
        least = longest + 1;
    }
    if (has_zero_copy) {
        const size_t from = can_copy ? thresholds.zero_copy.value_or(0) : 0;
        list.add(Protocol::kZeroCopy, std::max(least, from), most, cost(Way::kZeroCopy),
                 can_copy && thresholds.zero_copy.has_value());
        if (can_copy && thresholds.zero_copy) {
            const Before before(*thresholds.zero_copy);
            if (!before.is_empty) {
                list.add(Protocol::kCopy, least, std::min(most, before.most), copies, true);
            }
            return;
        }
    }
    if (can_copy) list.add(Protocol::kCopy, least, most, copies);
}

// The one that takes least at that length, the first of equals; null: none admits it.
const Alternative* best_of(const std::vector<Alternative>& alternatives, size_t length) {
    const Alternative* best = nullptr;
    for (const Alternative& each : alternatives) {
        if (!each.admits(length)) continue;
        if (best == nullptr || each.cost.at(length) < best->cost.at(length)) best = &each;
    }
    return best;
}

// Lengths at which another alternative may become the best, in order.
std::vector<size_t> turning_points(const std::vector<Alternative>& alternatives) {
    std::vector<size_t> points{0};
    for (const Alternative& each : alternatives) {
        points.push_back(each.least);
        if (each.most != SIZE_MAX) points.push_back(each.most + 1);
        for (const Alternative& other : alternatives) {
            const double saved = each.cost.per_byte - other.cost.per_byte;
            if (saved <= 0) continue;
            const double crossing = (other.cost.base - each.cost.base) / saved;
            if (crossing < 0 || crossing > 1e18) continue;
            // What is computed may be a byte off.
            const auto about = static_cast<size_t>(crossing);
            for (size_t length = about - std::min<size_t>(about, 2); length <= about + 3; ++length)
                points.push_back(length);
        }
    }
    std::ranges::sort(points);
    points.erase(std::unique(points.begin(), points.end()), points.end());
    return points;
}

// Lengths from `first` on, up to the next piece.
struct Piece {
    size_t first;
    const Alternative* best;
};

size_t last_of(const std::vector<Piece>& pieces, size_t place) {
    return place + 1 == pieces.size() ? SIZE_MAX : pieces[place + 1].first - 1;
}

// Absurd figures, which a peer may claim, and rounding may cut the lengths into any number of
// pieces. Beyond `most` the shortest piece goes by the protocol of the one before it. `most` has
// room for what must stay: a piece for each alternative, and one for each end of an alternative.
void keep_to(size_t most, std::vector<Piece>& pieces) {
    const auto length = [&](size_t of) { return last_of(pieces, of) - pieces[of].first; };
    while (pieces.size() > most) {
        size_t shortest = 0;
        for (size_t place = 1; place < pieces.size(); ++place) {
            if (!pieces[place - 1].best->admits(last_of(pieces, place))) continue;
            if (shortest == 0 || length(place) < length(shortest)) shortest = place;
        }
        assert(shortest != 0);
        pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(shortest));
        if (shortest < pieces.size() &&
            pieces[shortest].best->protocol == pieces[shortest - 1].best->protocol) {
            pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(shortest));
        }
    }
}

}  // namespace

std::string_view name(Protocol protocol) {
    static constexpr const char* kNames[] = {
        "short",       "copy",       "zero copy",        "bulk",
        "by messages", "rendezvous", "rendezvous, bulk", "direct"};
    return ucs::name_in<Protocol::kDirect>(kNames, protocol);
}

std::vector<Alternative> alternatives(const LaneFigures& lanes, const CostModel& costs,
                                      const Thresholds& thresholds, Operation operation,
                                      BufferClass buffer, Situation situation) {
    assert(!is_one_sided(operation));
    List list;
    add_messages(list, lanes, costs, thresholds, operation, buffer, situation);
    return list.take();
}

std::vector<Alternative> alternatives(const LaneFigures& lanes, const CostModel& costs,
                                      const Thresholds& thresholds, Operation operation,
                                      BufferClass buffer, RemoteClass remote) {
    assert(is_one_sided(operation));
    List list;
    add_one_sided(list, lanes, costs, thresholds, operation, buffer, remote);
    return list.take();
}

std::string_view name(Way way) {
    static constexpr const char* kNames[] = {"eager", "rendezvous", "copy", "zero copy", "bulk"};
    return ucs::name_in<Way::kBulk>(kNames, way);
}

std::optional<Way> one_sided_way(Protocol protocol) {
    switch (protocol) {
        case Protocol::kCopy:
            return Way::kCopy;
        case Protocol::kZeroCopy:
            return Way::kZeroCopy;
        case Protocol::kBulk:
            return Way::kBulk;
        default:
            return std::nullopt;
    }
}

Protocol protocol_of(Way way) {
    static constexpr Protocol kProtocols[] = {Protocol::kCopy, Protocol::kRendezvous,
                                              Protocol::kCopy, Protocol::kZeroCopy,
                                              Protocol::kBulk};
    return kProtocols[static_cast<size_t>(way)];
}

namespace {

std::optional<Ways> one_sided_ways(const LaneFigures& lanes, const CostModel& costs,
                                   const Thresholds& thresholds, Operation operation,
                                   Situation situation) {
    const bool is_put = operation == Operation::kPut;
    const uint32_t has = lanes.capabilities;
    const bool can_copy = (has & (is_put ? uct::kPutBcopy : uct::kGetBcopy)) != 0;
    const bool has_zero_copy = (has & (is_put ? uct::kPutZcopy : uct::kGetZcopy)) != 0;
    const bool has_chains = (has & (is_put ? uct::kPutChain : uct::kGetChain)) != 0;
    // Within a host a put by zero copy is the same call of the system as a short put, or as a
    // copied one but for one copy: there is nothing to choose.
    if (!has_zero_copy || (is_put && is_within_host(lanes))) return std::nullopt;
    const size_t longest_short = is_put && (has & uct::kPutShort) != 0 ? lanes.put.max_short : 0;
    const size_t more_than_short = std::min(longest_short, SIZE_MAX - 1) + 1;
    // Within a host a copy in one piece is done by the call, without a request.
    const size_t shortest =
        is_within_host(lanes) ? lanes.get.max_bcopy + 1 : std::max(kLeastOneSided, more_than_short);
    const size_t bulk =
        has_chains ? std::max(bulk_threshold(lanes, thresholds), more_than_short) : SIZE_MAX;
    // What the user has set is not to be chosen.
    const bool has_copies = can_copy && !thresholds.zero_copy;
    const bool has_slices = has_chains && !thresholds.bulk;
    if (!has_copies && !has_slices) return std::nullopt;
    Ways found{.least = has_copies ? shortest : bulk,
               .most = (has_slices ? kMostUnsliced : std::min(kMostCopied, bulk)) - 1,
               .costs = {},
               .bulk = bulk,
               .is_one_sided = true};
    if (bulk == 0 || found.least > found.most) return std::nullopt;
    for (const Way way : all_ways(operation)) {
        found.costs[place_of(way)] =
            one_sided_cost(lanes, costs, operation, way, BufferClass::kContiguous, situation);
    }
    return found;
}

}  // namespace

std::optional<Ways> ways(const LaneFigures& lanes, const CostModel& costs,
                         const Thresholds& thresholds, Operation operation, Situation situation) {
    if (is_one_sided(operation))
        return one_sided_ways(lanes, costs, thresholds, operation, situation);
    if (thresholds.rendezvous) return std::nullopt;
    // A message of one piece is over as soon as it is seen: there is no time to learn from.
    const size_t least = std::max(kMinRendezvous, piece_of(lanes) + 1);
    size_t most = eager_max(lanes, thresholds) - 1;
    // Of a joint copy neither end knows the other's work, so nothing is learned.
    if (situation != Situation::kAlone && (lanes.capabilities & uct::kJointCopies) != 0)
        most = std::min(most, uct::kLeastJointCopy - 1);
    if (least > most) return std::nullopt;
    return Ways{.least = least,
                .most = most,
                .costs = {eager_cost(lanes, costs, operation, situation),
                          rendezvous_cost(lanes, costs, situation, lanes.together)},
                .bulk = 0,
                .is_one_sided = false};
}

size_t bulk_threshold(const LaneFigures& lanes, const Thresholds& thresholds) {
    if (thresholds.bulk) return *thresholds.bulk;
    return std::min(kMaxBulkThreshold, sharing_threshold(lanes));
}

ProtocolTable::ProtocolTable(const LaneFigures& lanes, const CostModel& costs,
                             const Thresholds& thresholds)
    : bulk_(bulk_threshold(lanes, thresholds)) {
    for (size_t operation = 0; operation < kOperations; ++operation) {
        for (size_t buffer = 0; buffer < kBufferClasses; ++buffer) {
            const auto which = static_cast<Operation>(operation);
            const auto kind = static_cast<BufferClass>(buffer);
            const auto make = [&](auto other) {
                rows_[index(which, kind, other)] =
                    make_row(alternatives(lanes, costs, thresholds, which, kind, other));
            };
            if (is_one_sided(which)) {
                make(RemoteClass::kHost);
                make(RemoteClass::kDevice);
                make(RemoteClass::kDescribed);
            } else {
                make(Situation::kAlone);
                make(Situation::kAmongOthers);
                make(Situation::kSpread);
                announced_above_[operation][buffer] = announced_above(which, kind);
            }
        }
    }
}

// What is longer than all limits but the last goes by the last protocol of each situation.
// @return SIZE_MAX: there is no such length
size_t ProtocolTable::announced_above(Operation operation, BufferClass buffer) const {
    const Protocol longest = find(operation, buffer, Situation::kAlone, SIZE_MAX);
    if (!is_announced(longest)) return SIZE_MAX;
    size_t above = 0;
    for (const Situation situation :
         {Situation::kAlone, Situation::kAmongOthers, Situation::kSpread}) {
        const Range last = rows_[index(operation, buffer, situation)].ranges().back();
        if (last.protocol != longest) return SIZE_MAX;
        if (last.first != 0) above = std::max(above, last.first - 1);
    }
    return above;
}

ProtocolTable::Row ProtocolTable::make_row(const std::vector<Alternative>& alternatives) {
    Row row;
    std::vector<Piece> pieces;
    const Alternative* before = nullptr;
    for (const size_t point : turning_points(alternatives)) {
        const Alternative* best = best_of(alternatives, point);
        if (best == nullptr || (before != nullptr && best->protocol == before->protocol)) continue;
        pieces.push_back({point, best});
        before = best;
    }
    keep_to(kMaxRanges, pieces);
    for (size_t place = 0; place < pieces.size(); ++place) {
        row.protocols[place] = pieces[place].best->protocol;
        row.last[place] = last_of(pieces, place);
    }
    if (pieces.empty()) row.last[0] = SIZE_MAX;
    for (size_t width = 0; width < row.first.size(); ++width) {
        const size_t shortest = width == 0 ? 0 : size_t{1} << (width - 1);
        uint8_t place = 0;
        while (shortest > row.last[place]) ++place;
        row.first[width] = place;
    }
    return row;
}

std::vector<ProtocolTable::Range> ProtocolTable::Row::ranges() const {
    std::vector<Range> result;
    for (size_t place = 0, start = 0;; start = last[place++] + 1) {
        result.push_back({start, last[place], protocols[place]});
        if (last[place] == SIZE_MAX) return result;
    }
}

}  // namespace ucp::select
