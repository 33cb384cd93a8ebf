// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/select/protocol_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "ucp/select/report.h"

namespace ucp::select {
namespace {

constexpr uint32_t kMessages = uct::kAmShort | uct::kAmBcopy | uct::kAmZcopy;
constexpr uint32_t kOneSided =
    uct::kPutShort | uct::kPutBcopy | uct::kPutZcopy | uct::kGetBcopy | uct::kGetZcopy;
constexpr uint32_t kChains = uct::kPutChain | uct::kGetChain;

// Interfaces of 10 Gbit/s as TCP describes them.
LaneFigures tcp(unsigned devices) {
    return {.device_type = uct::DeviceType::kNetwork,
            .capabilities = kMessages | kOneSided | kChains,
            .am = {.max_short = 1000, .max_bcopy = 8192, .max_zcopy = 65536},
            .put = {.max_short = 1000, .max_bcopy = 8192, .max_zcopy = SIZE_MAX},
            .get = {.max_short = 0, .max_bcopy = 8192, .max_zcopy = SIZE_MAX},
            .latency = 30e-6,
            .overhead = 2e-6,
            .bandwidth = 1.2e9,
            .together = devices * 1.2e9,
            .registration = 0.5e-6,
            .slice = 65536};
}

// Adapters of 400 Gbit/s.
LaneFigures adapter(unsigned devices) {
    LaneFigures lanes = tcp(devices);
    lanes.latency = 0.6e-6;
    lanes.overhead = 75e-9;
    lanes.registration = 16e-6;
    lanes.bandwidth = 48e9;
    lanes.together = devices * 48e9;
    return lanes;
}

LaneFigures shared_memory() {
    LaneFigures lanes = tcp(1);
    lanes.device_type = uct::DeviceType::kSharedMemory;
    lanes.capabilities = kMessages | kOneSided;
    lanes.am.max_short = 8192;
    lanes.put.max_short = UINT32_MAX;
    lanes.latency = 80e-9;
    lanes.overhead = 8e-9;
    lanes.bandwidth = lanes.together = 12e9;
    lanes.registration = 0;
    return lanes;
}

// The same, with devices that may read each other's memory.
LaneFigures beside_devices() {
    LaneFigures lanes = shared_memory();
    lanes.device_reads = true;
    return lanes;
}

// An adapter that reads and writes memory of devices.
LaneFigures gpu_direct() {
    LaneFigures lanes = adapter(1);
    lanes.takes_devices = true;
    return lanes;
}

LaneFigures without(LaneFigures lanes, uint32_t capabilities) {
    lanes.capabilities &= ~capabilities;
    return lanes;
}

constexpr Operation kAllMessages[] = {Operation::kTag, Operation::kActiveMessage,
                                      Operation::kStream};
constexpr Operation kOneSidedOperations[] = {Operation::kPut, Operation::kGet};
constexpr BufferClass kAllBuffers[] = {BufferClass::kContiguous, BufferClass::kRegistered,
                                       BufferClass::kPacked,     BufferClass::kDevice,
                                       BufferClass::kMapped,     BufferClass::kKnown};
constexpr Situation kAllSituations[] = {Situation::kAlone, Situation::kAmongOthers,
                                        Situation::kSpread};
constexpr RemoteClass kAllRemotes[] = {RemoteClass::kHost, RemoteClass::kDevice,
                                       RemoteClass::kDescribed};

// Calls `each(operation, buffer, other)`, `other` the situation or the peer's memory.
template <typename Each>
void for_all_rows(Each each) {
    for (const BufferClass buffer : kAllBuffers) {
        for (const Operation message : kAllMessages) {
            for (const Situation situation : kAllSituations) each(message, buffer, situation);
        }
        for (const Operation operation : kOneSidedOperations) {
            for (const RemoteClass remote : kAllRemotes) each(operation, buffer, remote);
        }
    }
}

// Every power of two and its neighbours.
std::set<size_t> lengths() {
    std::set<size_t> result{0, SIZE_MAX, SIZE_MAX - 1};
    for (unsigned bit = 0; bit < 64; ++bit) {
        const size_t power = size_t{1} << bit;
        result.insert({power - 1, power, power + 1});
    }
    return result;
}

// The table's choice is the least time of all alternatives that admit the length.
void expect_least(const LaneFigures& lanes, const CostModel& costs, const Thresholds& thresholds) {
    const ProtocolTable table(lanes, costs, thresholds);
    for_all_rows([&](Operation operation, BufferClass buffer, auto other) {
        const auto all = alternatives(lanes, costs, thresholds, operation, buffer, other);
        std::set<size_t> tried = lengths();
        for (const ProtocolTable::Range& range : table.ranges(operation, buffer, other)) {
            tried.insert(range.first);
            tried.insert(range.last);
        }
        for (const size_t length : tried) {
            const auto takes = [length](const Alternative& one) {
                return one.cost.base + one.cost.per_byte * static_cast<double>(length);
            };
            const Alternative* least = nullptr;
            const Alternative* chosen = nullptr;
            for (const Alternative& each : all) {
                if (length < each.least || length > each.most) continue;
                if (least == nullptr || takes(each) < takes(*least)) least = &each;
                if (each.protocol == table.find(operation, buffer, other, length)) chosen = &each;
            }
            ASSERT_NE(least, nullptr) << "nothing carries " << length << " bytes";
            ASSERT_NE(chosen, nullptr) << "it does not carry " << length << " bytes";
            // Lengths that no memory has differ by less than a double tells apart.
            ASSERT_TRUE(chosen == least || takes(*chosen) == takes(*least))
                << length << " bytes of operation " << static_cast<int>(operation);
        }
    });
}

// Whatever is chosen for a length carries that length.
void expect_admitted(const LaneFigures& lanes) {
    const CostModel costs = CostModel::fixed();
    const ProtocolTable table(lanes, costs, {});
    for_all_rows([&](Operation operation, BufferClass buffer, auto other) {
        const auto all = alternatives(lanes, costs, {}, operation, buffer, other);
        for (const ProtocolTable::Range& range : table.ranges(operation, buffer, other)) {
            for (const size_t length : {range.first, range.last}) {
                const bool is_admitted = std::ranges::any_of(all, [&](const Alternative& each) {
                    return each.protocol == range.protocol && each.admits(length);
                });
                ASSERT_TRUE(is_admitted)
                    << length << " bytes of operation " << static_cast<int>(operation);
            }
        }
    });
}

std::vector<LaneFigures> all_lanes() {
    return {tcp(1),
            tcp(4),
            adapter(1),
            adapter(2),
            shared_memory(),
            beside_devices(),
            without(adapter(1), kOneSided | kChains),
            without(adapter(1), uct::kAmZcopy | uct::kPutShort | uct::kPutBcopy | uct::kGetBcopy),
            without(adapter(2), uct::kPutBcopy | uct::kPutZcopy | uct::kGetZcopy | kChains),
            without(shared_memory(), uct::kAmShort)};
}

TEST(ProtocolTable, IsTheLeastTimeAtEveryPowerOfTwoAndBesideIt) {
    CostModel slow;
    slow.copy.per_byte *= 4;
    slow.system_copy = {5e-6, 1 / 5e9, Origin::kMeasured};
    for (const LaneFigures& lanes : all_lanes()) {
        expect_least(lanes, CostModel::fixed(), {});
        expect_least(lanes, slow, {});
    }
}

TEST(ProtocolTable, KnowsFromWhichLengthOnMessagesAreAnnouncedAnyway) {
    size_t announced = 0;
    for (const LaneFigures& lanes : all_lanes()) {
        const ProtocolTable table(lanes, CostModel::fixed(), {});
        for (const Operation message : kAllMessages) {
            for (const BufferClass buffer : kAllBuffers) {
                bool was = false;
                for (const size_t length : lengths()) {
                    const bool is = table.is_announced_anyway(message, buffer, length);
                    EXPECT_TRUE(is || !was);
                    was = is;
                    if (!is) continue;
                    ++announced;
                    const Protocol one = table.find(message, buffer, Situation::kAlone, length);
                    EXPECT_TRUE(is_announced(one));
                    for (const Situation situation : kAllSituations)
                        EXPECT_EQ(table.find(message, buffer, situation, length), one);
                }
            }
        }
    }
    EXPECT_NE(announced, 0u);
}

TEST(ProtocolTable, IsTheLeastTimeWithinWhatTheUserSets) {
    for (const LaneFigures& lanes : all_lanes()) {
        for (const size_t bytes : {size_t{0}, size_t{1}, size_t{3000}, size_t{100000}, SIZE_MAX}) {
            Thresholds thresholds;
            thresholds.rendezvous = bytes;
            expect_least(lanes, CostModel::fixed(), thresholds);
            thresholds.zero_copy = bytes / 2;
            expect_least(lanes, CostModel::fixed(), thresholds);
            thresholds.bulk = bytes;
            thresholds.short_limit = bytes;
            expect_least(lanes, CostModel::fixed(), thresholds);
        }
    }
}

TEST(ProtocolTable, HasItsRangesWhateverFiguresAPeerClaims) {
    std::mt19937_64 random(1);
    // Any of those that an address may have: 16 bits of a float.
    const auto any = [&random] {
        const auto bits = static_cast<uint32_t>(random() % 0x7f80) << 16;
        return static_cast<double>(std::bit_cast<float>(bits));
    };
    for (int round = 0; round < 2000; ++round) {
        LaneFigures lanes = all_lanes()[random() % all_lanes().size()];
        if (random() % 4 != 0) lanes.latency = any();
        if (random() % 4 != 0) lanes.overhead = any();
        if (random() % 4 != 0) lanes.bandwidth = lanes.together = any();
        expect_admitted(lanes);
        if (HasFatalFailure()) return;
    }
}

size_t first_of(const std::vector<ProtocolTable::Range>& ranges, const std::set<Protocol>& wanted) {
    for (const ProtocolTable::Range& range : ranges) {
        if (wanted.contains(range.protocol)) return range.first;
    }
    return SIZE_MAX;
}

// The first length from which a message goes by one of some protocols.
size_t first_of(const LaneFigures& lanes, const CostModel& costs, const Thresholds& thresholds,
                Operation operation, const std::set<Protocol>& wanted,
                BufferClass buffer = BufferClass::kContiguous,
                Situation situation = Situation::kAlone) {
    const ProtocolTable table(lanes, costs, thresholds);
    return first_of(table.ranges(operation, buffer, situation), wanted);
}

// The same of a put or get.
size_t first_one_sided(const LaneFigures& lanes, const Thresholds& thresholds, Operation operation,
                       Protocol wanted, BufferClass buffer = BufferClass::kContiguous,
                       RemoteClass remote = RemoteClass::kHost) {
    const ProtocolTable table(lanes, CostModel::fixed(), thresholds);
    return first_of(table.ranges(operation, buffer, remote), {wanted});
}

const std::set<Protocol> kAnnounced{Protocol::kRendezvous, Protocol::kRendezvousBulk,
                                    Protocol::kDirect};

Thresholds limited(size_t network, size_t host) {
    Thresholds thresholds;
    thresholds.eager_max = network;
    thresholds.eager_max_host = host;
    return thresholds;
}

size_t announced_from(const LaneFigures& lanes, Situation situation = Situation::kAlone,
                      const CostModel& costs = CostModel::fixed()) {
    return first_of(lanes, costs, limited(512 << 10, 16 << 20), Operation::kTag, kAnnounced,
                    BufferClass::kContiguous, situation);
}

TEST(Rendezvous, OfOneMessagePaysWhenItsTwoCopiesTakeLonger) {
    EXPECT_NEAR(static_cast<double>(announced_from(tcp(1))), 65e-6 * 8e9 / 2, 1);
    LaneFigures lanes = tcp(1);
    lanes.latency = 1;
    EXPECT_EQ(announced_from(lanes), 512u << 10);
    lanes.latency = lanes.overhead = lanes.registration = 0;
    EXPECT_EQ(announced_from(lanes), 8u << 10);
}

TEST(Rendezvous, OverSeveralDevicesPaysAsSoonAsEachHasASliceOfOneMessage) {
    EXPECT_EQ(announced_from(tcp(2)), 2 * tcp(2).slice);
    LaneFigures lanes = tcp(2);
    lanes.slice = 16384;
    const size_t two = announced_from(lanes);
    EXPECT_LT(two, announced_from(tcp(1)));
    EXPECT_GT(two, 2 * lanes.slice);
    lanes.together = 4 * lanes.bandwidth;
    EXPECT_LT(announced_from(lanes), two);
    // Slices that are longer than what is announced anyway change nothing.
    lanes.slice = 1 << 20;
    EXPECT_EQ(announced_from(lanes), announced_from(tcp(1)));
}

TEST(Rendezvous, AmongOthersPaysForTheOtherDevicesAlone) {
    EXPECT_EQ(announced_from(tcp(1), Situation::kAmongOthers), announced_from(tcp(1)));
    // Twice what three messages of 2 us and 0.5 us cost, against half the time on the wire.
    EXPECT_NEAR(static_cast<double>(announced_from(tcp(2), Situation::kAmongOthers)), 13e-6 * 2.4e9,
                1);
    EXPECT_LT(announced_from(tcp(4), Situation::kAmongOthers),
              announced_from(tcp(2), Situation::kAmongOthers));
    LaneFigures slow = tcp(2);
    slow.bandwidth /= 10;
    slow.together /= 10;
    EXPECT_EQ(announced_from(slow, Situation::kAmongOthers), 8u << 10);
    EXPECT_GT(announced_from(adapter(2), Situation::kAmongOthers), 64u << 10);
    EXPECT_EQ(announced_from(tcp(2), Situation::kSpread),
              announced_from(tcp(2), Situation::kAmongOthers));
}

TEST(Rendezvous, WithinAHostPaysWhereOneCopyByTheSystemTakesLessThanPieces) {
    CostModel costs;
    costs.pieces = {0, 1 / 10e9};
    costs.system_copy = {4e-6, 1 / 20e9};
    const LaneFigures lanes = shared_memory();
    // 4 us and two more ways and messages, against half of the time of the pieces.
    const double more = 4e-6 + 2 * lanes.latency + 2 * lanes.overhead;
    EXPECT_NEAR(static_cast<double>(announced_from(lanes, Situation::kAlone, costs)), more * 20e9,
                1);
    // Where the system copies no faster, one that is waited for goes in pieces as long as it would
    // not fill the receiver's memory.
    costs.system_copy.per_byte = costs.pieces.per_byte;
    EXPECT_EQ(announced_from(lanes, Situation::kAlone, costs), 16u << 20);
    // Among others both processors are busy with pieces.
    EXPECT_LT(announced_from(lanes, Situation::kAmongOthers, costs), 64u << 10);
    EXPECT_LT(announced_from(lanes, Situation::kSpread, costs),
              announced_from(lanes, Situation::kAmongOthers, costs));
    // At best it costs three messages, which carry as much in pieces.
    costs.system_copy = {0, 0};
    EXPECT_EQ(announced_from(lanes, Situation::kAlone, costs), 3 * lanes.am.max_short);
    EXPECT_EQ(announced_from(lanes, Situation::kSpread, costs), lanes.am.max_short + 1);
    LaneFigures short_pieces = lanes;
    // Checked messages go short up to 256 bytes alone: that is no piece.
    short_pieces.am.max_short = 256;
    EXPECT_EQ(announced_from(short_pieces, Situation::kAlone, costs), 3 * lanes.am.max_bcopy);
    short_pieces.am.max_short = short_pieces.am.max_bcopy = 1000;
    EXPECT_EQ(announced_from(short_pieces, Situation::kAlone, costs), 8u << 10);
    short_pieces.am.max_bcopy = 16000;
    EXPECT_EQ(announced_from(short_pieces, Situation::kAlone, costs), 48000u);
}

TEST(Rendezvous, WithinAHostPaysSoonerWhereBothEndsCopy) {
    CostModel costs;
    costs.pieces = {0, 1 / 20e9};
    costs.system_copy = {1e-6, 1 / 20e9};
    LaneFigures lanes = shared_memory();
    const auto from = [&](Situation when) { return announced_from(lanes, when, costs); };
    const size_t alone = from(Situation::kAlone), among_others = from(Situation::kAmongOthers);
    EXPECT_EQ(alone, 16u << 20);
    lanes.capabilities |= uct::kJointCopies;
    EXPECT_GT(from(Situation::kAlone), 64u << 10);
    EXPECT_LT(from(Situation::kAlone), 256u << 10);
    // Others keep both ends busy.
    EXPECT_EQ(from(Situation::kAmongOthers), among_others);
}

TEST(Rendezvous, TheUserSaysHowMuchMayGoUnannounced) {
    LaneFigures slow = tcp(1);
    slow.latency = 1;
    LaneFigures host = shared_memory();
    host.latency = 1;
    const Thresholds thresholds = limited(100000, 200000);
    const auto from = [&](const LaneFigures& lanes) {
        return first_of(lanes, CostModel::fixed(), thresholds, Operation::kTag, kAnnounced);
    };
    EXPECT_EQ(from(slow), 100000u);
    EXPECT_EQ(from(host), 200000u);
    EXPECT_EQ(ways(slow, CostModel::fixed(), thresholds, Operation::kTag, Situation::kAlone)->most,
              99999u);
    EXPECT_EQ(ways(host, CostModel::fixed(), thresholds, Operation::kTag, Situation::kAlone)->most,
              199999u);
}

// A receiver does not know what the sender copies of a message that is announced: among others
// work is all that is learned.
TEST(Learned, AmongOthersIsLeftToTheTableWhereBothCopy) {
    LaneFigures lanes = shared_memory();
    lanes.capabilities |= uct::kJointCopies;
    const auto most = [&](Operation operation, Situation situation) {
        return ways(lanes, CostModel::fixed(), {}, operation, situation)->most;
    };
    for (const Operation operation : {Operation::kTag, Operation::kActiveMessage}) {
        EXPECT_GT(most(operation, Situation::kAlone), uct::kLeastJointCopy);
        EXPECT_EQ(most(operation, Situation::kAmongOthers), uct::kLeastJointCopy - 1);
    }
    lanes = shared_memory();
    EXPECT_GT(most(Operation::kTag, Situation::kAmongOthers), uct::kLeastJointCopy);
}

size_t zero_copy_from(const LaneFigures& lanes, Operation operation, BufferClass buffer) {
    if (is_one_sided(operation))
        return first_one_sided(lanes, {}, operation, Protocol::kZeroCopy, buffer);
    return first_of(lanes, CostModel::fixed(), {}, operation, {Protocol::kZeroCopy}, buffer);
}

TEST(Direct, IsTakenWhereDevicesReadEachOthersMemory) {
    const auto from = [](const LaneFigures& lanes, const Thresholds& thresholds,
                         BufferClass buffer = BufferClass::kDevice) {
        return first_of(lanes, CostModel::fixed(), thresholds, Operation::kTag, {Protocol::kDirect},
                        buffer);
    };
    EXPECT_EQ(from(beside_devices(), {}), 8u << 10);
    EXPECT_EQ(from(beside_devices(), {}, BufferClass::kMapped), 0u);
    EXPECT_EQ(from(beside_devices(), {}, BufferClass::kContiguous), SIZE_MAX);
    EXPECT_EQ(from(beside_devices(), {}, BufferClass::kPacked), SIZE_MAX);
    EXPECT_EQ(from(shared_memory(), {}), SIZE_MAX);
    EXPECT_EQ(from(adapter(1), {}), SIZE_MAX);
    Thresholds thresholds;
    thresholds.rendezvous = 100;
    EXPECT_EQ(from(beside_devices(), thresholds), 100u);
    EXPECT_EQ(from(beside_devices(), thresholds, BufferClass::kMapped), 100u);
    // The longest message of all is announced, whatever the user says.
    thresholds.rendezvous = SIZE_MAX;
    EXPECT_TRUE(ProtocolTable(beside_devices(), CostModel::fixed(), thresholds)
                    .find(Operation::kTag, BufferClass::kDevice, Situation::kAlone, SIZE_MAX) ==
                Protocol::kDirect);
    thresholds = {};
    thresholds.may_read = false;
    EXPECT_EQ(from(beside_devices(), thresholds), SIZE_MAX);
}

TEST(Direct, IsTakenToMemoryThatTheKeyDescribes) {
    constexpr auto kDescribed = RemoteClass::kDescribed;
    Thresholds nothing_read;
    nothing_read.may_read = false;
    for (const Operation operation : kOneSidedOperations) {
        for (const BufferClass buffer :
             {BufferClass::kContiguous, BufferClass::kRegistered, BufferClass::kDevice}) {
            const auto from = [&](const LaneFigures& lanes, const Thresholds& thresholds,
                                  Protocol wanted, RemoteClass remote) {
                return first_one_sided(lanes, thresholds, operation, wanted, buffer, remote);
            };
            EXPECT_EQ(from(beside_devices(), {}, Protocol::kDirect, kDescribed), 0u);
            // At any length: the peer's processor is never asked.
            EXPECT_EQ(from(beside_devices(), {}, Protocol::kByMessages, kDescribed), SIZE_MAX);
            const auto is_by_messages = [&](const LaneFigures& lanes, const Thresholds& thresholds,
                                            RemoteClass remote) {
                return from(lanes, thresholds, Protocol::kByMessages, remote) == 0;
            };
            EXPECT_TRUE(is_by_messages(beside_devices(), nothing_read, kDescribed));
            EXPECT_TRUE(is_by_messages(shared_memory(), {}, kDescribed));
            EXPECT_TRUE(is_by_messages(adapter(1), {}, kDescribed));
        }
    }
}

// No device here writes host memory of another process; one of that process reads memory here.
TEST(Direct, IsTakenByThePeersDevicesWhereItIsWorthAsking) {
    Thresholds nothing_read;
    nothing_read.may_read = false;
    for (const Operation operation : kOneSidedOperations) {
        const auto from = [&](const LaneFigures& lanes, const Thresholds& thresholds,
                              BufferClass buffer, RemoteClass remote) {
            return first_one_sided(lanes, thresholds, operation, Protocol::kDirect, buffer, remote);
        };
        // Staging a short one takes less.
        const size_t least = from(beside_devices(), {}, BufferClass::kDevice, RemoteClass::kHost);
        EXPECT_GT(least, 500u);
        EXPECT_LT(least, 8u << 10);
        EXPECT_EQ(from(beside_devices(), {}, BufferClass::kDevice, RemoteClass::kDevice), 0u);
        for (const RemoteClass remote : {RemoteClass::kHost, RemoteClass::kDevice}) {
            EXPECT_EQ(from(beside_devices(), {}, BufferClass::kContiguous, remote), SIZE_MAX);
            EXPECT_EQ(from(beside_devices(), {}, BufferClass::kPacked, remote), SIZE_MAX);
            EXPECT_EQ(from(beside_devices(), nothing_read, BufferClass::kDevice, remote), SIZE_MAX);
            EXPECT_EQ(from(shared_memory(), {}, BufferClass::kDevice, remote), SIZE_MAX);
            EXPECT_EQ(from(adapter(1), {}, BufferClass::kDevice, remote), SIZE_MAX);
        }
    }
}

// Memory of a device is copied through host memory at each end that has it.
TEST(ByMessages, IsStagedAtTheEndsThatAreOfADevice) {
    const CostModel costs = CostModel::fixed();
    const auto takes = [&](BufferClass buffer, RemoteClass remote) {
        const auto all = alternatives(without(shared_memory(), kOneSided), costs, {},
                                      Operation::kPut, buffer, remote);
        EXPECT_EQ(all.size(), 1u);
        return all.front().cost.at(1000);
    };
    const double plain = takes(BufferClass::kContiguous, RemoteClass::kHost);
    const double staging = costs.staging.at(1000);
    EXPECT_DOUBLE_EQ(takes(BufferClass::kDevice, RemoteClass::kHost), plain + staging);
    EXPECT_DOUBLE_EQ(takes(BufferClass::kContiguous, RemoteClass::kDevice), plain + staging);
    EXPECT_DOUBLE_EQ(takes(BufferClass::kDevice, RemoteClass::kDevice), plain + 2 * staging);
}

// Both ends are reached by their adapters.
TEST(ByAdapter, PutsAndGetsGoFromAndToMemoryOfDevices) {
    for (const Operation operation : kOneSidedOperations) {
        const auto from = [&](const LaneFigures& lanes, Protocol wanted, BufferClass buffer,
                              RemoteClass remote = RemoteClass::kHost) {
            return first_one_sided(lanes, {}, operation, wanted, buffer, remote);
        };
        // What is registered goes so at any length; else it has to be worth a registration.
        EXPECT_EQ(from(gpu_direct(), Protocol::kZeroCopy, BufferClass::kKnown), 0u);
        EXPECT_EQ(from(gpu_direct(), Protocol::kByMessages, BufferClass::kKnown), SIZE_MAX);
        const size_t least = from(gpu_direct(), Protocol::kZeroCopy, BufferClass::kDevice);
        EXPECT_GT(least, 1000u);
        EXPECT_LT(least, 64u << 10);
        for (const BufferClass buffer : {BufferClass::kKnown, BufferClass::kDevice}) {
            EXPECT_EQ(from(gpu_direct(), Protocol::kBulk, buffer), 64u << 10);
            // Not by a lane that lacks the operation, nor where the peer's memory is not
            // registered.
            EXPECT_EQ(from(without(gpu_direct(), kOneSided), Protocol::kByMessages, buffer), 0u);
            EXPECT_EQ(from(adapter(1), Protocol::kByMessages, buffer), 0u);
            EXPECT_EQ(from(gpu_direct(), Protocol::kByMessages, buffer, RemoteClass::kDevice), 0u);
        }
    }
}

TEST(ByAdapter, AnnouncedDataOfDevicesIsNotStaged) {
    const auto takes = [](const LaneFigures& lanes, BufferClass buffer) {
        const auto all =
            alternatives(lanes, CostModel::fixed(), {}, Operation::kTag, buffer, Situation::kAlone);
        const auto found =
            std::ranges::find(all, Protocol::kRendezvousBulk, &Alternative::protocol);
        return found == all.end() ? 0 : found->cost.at(1 << 20);
    };
    EXPECT_EQ(takes(gpu_direct(), BufferClass::kDevice),
              takes(gpu_direct(), BufferClass::kContiguous));
    EXPECT_EQ(takes(adapter(1), BufferClass::kDevice), 0) << "slices are of host memory";
}

TEST(Rendezvous, OfDeviceMemoryIsStagedWhereNoDeviceReadsIt) {
    for (const LaneFigures& lanes : {adapter(1), shared_memory()}) {
        EXPECT_EQ(first_of(lanes, CostModel::fixed(), {}, Operation::kTag, kAnnounced,
                           BufferClass::kDevice),
                  announced_from(lanes));
    }
}

TEST(ZeroCopy, OfMessagesPaysWhereRegisteringTakesLessThanACopy) {
    EXPECT_EQ(zero_copy_from(tcp(1), Operation::kStream, BufferClass::kContiguous), 4000u);
    EXPECT_EQ(zero_copy_from(adapter(1), Operation::kStream, BufferClass::kContiguous), 64u << 10);
    EXPECT_EQ(zero_copy_from(adapter(1), Operation::kStream, BufferClass::kRegistered), 16u << 10);
    LaneFigures free = tcp(1);
    free.registration = 0;
    EXPECT_EQ(zero_copy_from(free, Operation::kStream, BufferClass::kContiguous), 2u << 10);
    // Pieces in shared memory are copied all the same.
    EXPECT_EQ(zero_copy_from(shared_memory(), Operation::kStream, BufferClass::kRegistered),
              SIZE_MAX);
}

TEST(ZeroCopy, OfPutsAndGetsHasItsOwnCosts) {
    for (const Operation operation : {Operation::kPut, Operation::kGet}) {
        EXPECT_EQ(zero_copy_from(adapter(1), operation, BufferClass::kContiguous), 16u << 10);
        EXPECT_EQ(zero_copy_from(adapter(1), operation, BufferClass::kRegistered), 4u << 10);
        EXPECT_EQ(zero_copy_from(adapter(1), operation, BufferClass::kPacked), SIZE_MAX);
    }
}

TEST(Bulk, BeginsWithASliceOrWhereDevicesShare) {
    const auto from = [](const LaneFigures& lanes) {
        return first_one_sided(lanes, {}, Operation::kPut, Protocol::kBulk);
    };
    EXPECT_EQ(from(adapter(1)), 64u << 10);
    EXPECT_NEAR(static_cast<double>(from(tcp(2))), 13e-6 * 2.4e9, 1);
    EXPECT_EQ(from(without(adapter(1), kChains)), SIZE_MAX);
    // What fits into a work request goes in it: nobody looks up how (OneSided::transfer()).
    Thresholds all;
    all.bulk = 0;
    EXPECT_EQ(first_one_sided(adapter(1), all, Operation::kPut, Protocol::kShort), 0u);
    EXPECT_EQ(first_one_sided(adapter(1), all, Operation::kPut, Protocol::kBulk),
              adapter(1).put.max_short + 1);
    EXPECT_EQ(first_one_sided(adapter(1), all, Operation::kGet, Protocol::kBulk), 0u);
    EXPECT_TRUE(ProtocolTable(adapter(1), CostModel::fixed(), {}).is_bulk(64u << 10));
    EXPECT_FALSE(ProtocolTable(adapter(1), CostModel::fixed(), {}).is_bulk((64u << 10) - 1));
}

TEST(Thresholds, OfTheUserWinOverCosts) {
    const CostModel costs = CostModel::fixed();
    Thresholds thresholds;
    thresholds.rendezvous = 5000;
    EXPECT_EQ(first_of(adapter(1), costs, thresholds, Operation::kTag, kAnnounced), 5000u);
    EXPECT_EQ(first_of(shared_memory(), costs, thresholds, Operation::kActiveMessage, kAnnounced),
              5000u);
    thresholds.rendezvous = 0;
    EXPECT_EQ(first_of(adapter(1), costs, thresholds, Operation::kTag, kAnnounced), 0u);
    thresholds.rendezvous = SIZE_MAX - 1;
    EXPECT_EQ(first_of(adapter(1), costs, thresholds, Operation::kTag, kAnnounced), SIZE_MAX - 1);
    thresholds.zero_copy = 700;
    EXPECT_EQ(first_of(without(adapter(1), uct::kAmShort), costs, thresholds, Operation::kTag,
                       {Protocol::kZeroCopy}),
              700u);
    EXPECT_EQ(first_one_sided(without(adapter(1), uct::kPutShort), thresholds, Operation::kPut,
                              Protocol::kZeroCopy),
              700u);
    thresholds.bulk = 9000;
    EXPECT_EQ(first_one_sided(adapter(1), thresholds, Operation::kGet, Protocol::kBulk), 9000u);
    thresholds.short_limit = 99;
    EXPECT_EQ(first_of(adapter(1), costs, thresholds, Operation::kTag, {Protocol::kCopy}), 100u);
}

TEST(CostModel, IsMeasuredOnceForAProcess) {
    const CostModel& costs = CostModel::measured();
    EXPECT_EQ(&costs, &CostModel::measured());
    EXPECT_GT(costs.system_copy.per_byte, 0);
    EXPECT_GE(costs.system_copy.base, 0);
    EXPECT_EQ(costs.pieces.origin, Origin::kAssumed);
    EXPECT_EQ(CostModel::fixed().system_copy.origin, Origin::kAssumed);
}

// Lines that begin with one text and have another one in them.
int lines_of(const std::string& text, const std::string& start, const std::string& part) {
    std::istringstream lines(text);
    int count = 0;
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with(start) && line.find(part) != std::string::npos) ++count;
    }
    return count;
}

TEST(ProtocolReport, SaysWhatEachRangeTakesAndWhyTheNextBestLost) {
    CostModel costs;
    costs.system_copy.origin = Origin::kMeasured;
    Thresholds thresholds;
    thresholds.zero_copy = 2000;
    std::string text = describe_protocols(shared_memory(), costs, thresholds, "# ");
    for (const char* part : {"# tag ", "# active message ", "# put ", "rendezvous", "measured",
                             "assumed", "copy takes", "set"}) {
        EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
    }
    EXPECT_EQ(text.find("direct"), std::string::npos) << text;
    text = describe_protocols(beside_devices(), costs, {}, "");
    for (const char* part : {"of a device   ", "of a device, mapped", "direct", "copy takes"}) {
        EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
    }
    EXPECT_EQ(lines_of(text, "put, described device memory", "direct"), 1) << text;
    EXPECT_EQ(lines_of(text, "get, described device memory", "by messages takes"), 1) << text;
    EXPECT_EQ(lines_of(text, "put, device memory of the peer", "by messages"), 2) << text;
    EXPECT_EQ(lines_of(text, "get, device memory of the peer", "direct"), 1) << text;
    text = describe_protocols(shared_memory(), costs, {}, "");
    EXPECT_EQ(lines_of(text, "described", ""), 0) << text;
    text = describe_protocols(adapter(1), costs, {}, "");
    EXPECT_NE(text.find("65536 and more"), std::string::npos) << text;
    EXPECT_NE(text.find("zero copy up to 65535 bytes"), std::string::npos) << text;
}

}  // namespace
}  // namespace ucp::select
