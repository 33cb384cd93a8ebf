// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/select/selection.h"

#include <algorithm>
#include <tuple>

#include "ucs/sys/random.h"
#include "ucs/type/names.h"

namespace ucp::select {
namespace {

Locality locality_of(uct::DeviceType type) {
    switch (type) {
        case uct::DeviceType::kSelf:
            return Locality::kWorker;
        case uct::DeviceType::kSharedMemory:
            return Locality::kHost;
        default:
            return Locality::kNetwork;
    }
}

Cost cost_between(const AddressEntry& left, const AddressEntry& right) {
    const double bandwidth = std::min(left.bandwidth, right.bandwidth);
    return {.latency = std::max(left.latency, right.latency),
            .distance = double{left.distance} + right.distance,
            .overhead = double{left.overhead} + right.overhead,
            .transfer = bandwidth > 0 ? kReferenceBytes / bandwidth : 0};
}

// Can this transport of a worker and that of its peer be a pair at all? kChosen: yes.
Outcome check_pair(const WorkerAddress& own, const WorkerAddress& peer, uint8_t here, uint8_t there,
                   Reaches reaches) {
    const AddressEntry& local = own.entries[here];
    const bool is_itself = own.uuid == peer.uuid;
    if (local.device_type == uct::DeviceType::kSelf && !is_itself) return Outcome::kOtherWorker;
    if (local.device_type == uct::DeviceType::kSharedMemory && own.host != peer.host) {
        return Outcome::kOtherHost;
    }
    return reaches(here, peer.entries[there]) ? Outcome::kChosen : Outcome::kUnreachable;
}

bool is_same_transport(const AddressEntry& left, const AddressEntry& right) {
    return left.kind == right.kind && left.reach == right.reach &&
           left.device_type == right.device_type;
}

// Which of the worker's devices with this transport an entry is, and of how many.
struct Ordinal {
    unsigned number = 0;
    unsigned count = 0;
};

Ordinal ordinal_of(const WorkerAddress& address, size_t index) {
    Ordinal result;
    for (size_t other = 0; other < address.entries.size(); ++other) {
        if (!is_same_transport(address.entries[other], address.entries[index])) continue;
        if (other < index) ++result.number;
        ++result.count;
    }
    return result;
}

// A usable candidate with all that decides on its place.
struct Ranked {
    Candidate candidate;
    double total;
    bool is_crossed;  // its devices have different numbers at the two ends
    uint64_t lot;     // drawn from the identity of both workers and both devices
    uint8_t low;      // index at the worker with the lower uuid
    uint8_t high;

    auto key() const {
        return std::make_tuple(candidate.is_alone, candidate.locality, total, is_crossed, lot, low,
                               high);
    }
};

Ranked make_ranked(const WorkerAddress& own, const WorkerAddress& peer,
                   const Candidate& candidate) {
    Ranked result{.candidate = candidate,
                  .total = candidate.cost.total(),
                  .is_crossed = false,
                  .lot = 0,
                  .low = candidate.local,
                  .high = candidate.remote};
    const bool is_low = own.uuid <= peer.uuid;
    if (!is_low) std::swap(result.low, result.high);
    const Ordinal here = ordinal_of(own, candidate.local);
    const Ordinal there = ordinal_of(peer, candidate.remote);
    const unsigned rows = std::min(here.count, there.count);
    result.is_crossed = here.number % rows != there.number % rows;
    const uint64_t workers =
        ucs::mix64(ucs::mix64(std::min(own.uuid, peer.uuid)) ^ std::max(own.uuid, peer.uuid));
    result.lot = ucs::mix64(workers ^ (uint64_t{result.low} << 8 | result.high));
    return result;
}

// An address has fewer than kNone of them.
uint8_t entry_count(const WorkerAddress& address) {
    return static_cast<uint8_t>(address.entries.size());
}

}  // namespace

void find_partner(const WorkerAddress& own, const WorkerAddress& peer, Reaches reaches,
                  Candidate& candidate) {
    candidate.partner_local = candidate.partner_remote = kNone;
    if (own.uuid == peer.uuid) return;
    const uint8_t domain = own.entries[candidate.local].domain;
    const uint8_t peer_domain = peer.entries[candidate.remote].domain;
    const bool is_low = own.uuid < peer.uuid;
    using Key = std::tuple<double, uint8_t, uint8_t>;
    Key best;
    for (uint8_t here = 0; here < entry_count(own); ++here) {
        const AddressEntry& local = own.entries[here];
        if (local.reach != uct::Reach::kEndpoint || local.domain != domain) continue;
        for (uint8_t there = 0; there < entry_count(peer); ++there) {
            const AddressEntry& remote = peer.entries[there];
            if (!is_same_transport(local, remote) || remote.domain != peer_domain) continue;
            if (check_pair(own, peer, here, there, reaches) != Outcome::kChosen) continue;
            const Key key{cost_between(local, remote).total(), is_low ? here : there,
                          is_low ? there : here};
            if (candidate.partner_local != kNone && best < key) continue;
            best = key;
            candidate.partner_local = here;
            candidate.partner_remote = there;
        }
    }
}

std::vector<Candidate> rank(const WorkerAddress& own, const WorkerAddress& peer, Reaches reaches) {
    std::vector<Ranked> order;
    for (uint8_t here = 0; here < entry_count(own); ++here) {
        const AddressEntry& local = own.entries[here];
        if (local.reach != uct::Reach::kInterface ||
            local.device_type == uct::DeviceType::kAccelerator) {
            continue;
        }
        for (uint8_t there = 0; there < entry_count(peer); ++there) {
            const AddressEntry& remote = peer.entries[there];
            if (!is_same_transport(local, remote)) continue;
            if (check_pair(own, peer, here, there, reaches) != Outcome::kChosen) continue;
            Candidate candidate{.local = here,
                                .remote = there,
                                .outcome = Outcome::kChosen,
                                .locality = locality_of(local.device_type),
                                .cost = cost_between(local, remote)};
            if (local.auxiliary || remote.auxiliary) {
                find_partner(own, peer, reaches, candidate);
                candidate.is_alone = candidate.partner_local == kNone;
            }
            order.push_back(make_ranked(own, peer, candidate));
        }
    }
    std::ranges::sort(order, {}, &Ranked::key);
    std::vector<Candidate> result;
    result.reserve(order.size());
    for (const Ranked& ranked : order) result.push_back(ranked.candidate);
    return result;
}

std::vector<uint8_t> rails(std::span<const Candidate> ranked, const WorkerAddress& own,
                           const WorkerAddress& peer, const Options& options) {
    std::vector<uint8_t> result;
    const auto bandwidth = [&](const Candidate& candidate) {
        return std::min(own.entries[candidate.local].bandwidth,
                        peer.entries[candidate.remote].bandwidth);
    };
    for (size_t index = 0; index < std::min<size_t>(ranked.size(), kNone); ++index) {
        if (result.size() == options.max_rails) break;
        const Candidate& candidate = ranked[index];
        const Candidate& first = ranked.front();
        const bool is_equal = own.entries[candidate.local].kind == own.entries[first.local].kind &&
                              bandwidth(candidate) * options.max_rail_ratio >= bandwidth(first);
        const bool is_taken = std::ranges::any_of(result, [&](uint8_t other) {
            return ranked[other].local == candidate.local ||
                   ranked[other].remote == candidate.remote;
        });
        if (is_equal && !is_taken) result.push_back(static_cast<uint8_t>(index));
    }
    return result;
}

std::vector<Candidate> explain(const WorkerAddress& own, const WorkerAddress& peer, Reaches reaches,
                               const Options& options) {
    std::vector<Candidate> result = rank(own, peer, reaches);
    const std::vector<uint8_t> bulk = rails(result, own, peer, options);
    const size_t usable = result.size();
    for (size_t index = 0; index < usable; ++index) {
        Candidate& candidate = result[index];
        const Candidate& first = result.front();
        find_partner(own, peer, reaches, candidate);
        if (index == 0) {
            candidate.outcome = Outcome::kChosen;
        } else if (std::ranges::find(bulk, index) != bulk.end()) {
            candidate.outcome = Outcome::kRail;
        } else if (candidate.is_alone) {
            candidate.outcome = Outcome::kOnlyAlone;
        } else if (candidate.locality != first.locality) {
            candidate.outcome = Outcome::kFarther;
        } else {
            candidate.outcome =
                candidate.cost.total() > first.cost.total() ? Outcome::kCostlier : Outcome::kTied;
        }
    }
    const auto is_ranked = [&](uint8_t here, uint8_t there) {
        return std::any_of(
            result.begin(), result.begin() + static_cast<ptrdiff_t>(usable),
            [&](const Candidate& other) { return other.local == here && other.remote == there; });
    };
    for (uint8_t here = 0; here < entry_count(own); ++here) {
        const AddressEntry& local = own.entries[here];
        Candidate missing;
        missing.local = here;
        missing.locality = locality_of(local.device_type);
        bool is_there = false;
        for (uint8_t there = 0; there < entry_count(peer); ++there) {
            const AddressEntry& remote = peer.entries[there];
            if (!is_same_transport(local, remote)) continue;
            is_there = true;
            if (is_ranked(here, there)) continue;
            Candidate candidate = missing;
            candidate.remote = there;
            candidate.cost = cost_between(local, remote);
            candidate.outcome = check_pair(own, peer, here, there, reaches);
            if (local.device_type == uct::DeviceType::kAccelerator) {
                candidate.outcome = Outcome::kNoMessages;
            } else if (candidate.outcome == Outcome::kChosen) {  // dedicated, and possible
                const Candidate* first = usable != 0 ? &result.front() : nullptr;
                const bool is_beside = first != nullptr && own.uuid != peer.uuid &&
                                       own.entries[first->local].domain == local.domain &&
                                       peer.entries[first->remote].domain == remote.domain;
                candidate.outcome = !is_beside ? Outcome::kNoLane
                                    : first->partner_local == here && first->partner_remote == there
                                        ? Outcome::kPartner
                                        : Outcome::kSlower;
            }
            result.push_back(candidate);
        }
        if (!is_there) result.push_back(missing);
    }
    std::stable_sort(
        result.begin() + static_cast<ptrdiff_t>(usable), result.end(),
        [](const Candidate& left, const Candidate& right) { return left.outcome < right.outcome; });
    return result;
}

std::string_view reason(Outcome outcome) {
    static constexpr const char* kNames[] = {"chosen",
                                             "chosen for hot endpoints, beside the scalable lane",
                                             "a rail for bulk",
                                             "another costs less",
                                             "another stays nearer",
                                             "costs the same; the lot fell on another",
                                             "auxiliary, with nothing dedicated to bring up",
                                             "dedicated, and not on the devices of the chosen lane",
                                             "dedicated, and another on these devices costs less",
                                             "the peer does not have it",
                                             "reaches this worker only",
                                             "the peer is on another host",
                                             "cannot reach the peer's device",
                                             "carries no messages"};
    return ucs::name_in<Outcome::kNoMessages>(kNames, outcome);
}

std::string_view name(Locality locality) {
    static constexpr const char* kNames[] = {"worker", "host", "network"};
    return ucs::name_in<Locality::kNetwork>(kNames, locality);
}

}  // namespace ucp::select
