// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "ucp/select/worker_address.h"
#include "ucs/type/function_ref.h"

// Which transports join two workers. Pure: what both workers' addresses say in, a ranking out.
namespace ucp::select {

// How near a pair of transports keeps the messages: nearer ones win whatever their cost.
enum class Locality : uint8_t { kWorker, kHost, kNetwork };

// Seconds that a message takes, by its parts. Sums of both ends, so that both see the same.
struct Cost {
    double latency = 0;   // of the slower end
    double distance = 0;  // from CPUs to devices, at both ends
    double overhead = 0;  // of the CPUs at both ends
    double transfer = 0;  // of kReferenceBytes at the slower end's bandwidth
    double total() const { return latency + distance + overhead + transfer; }
};
inline constexpr double kReferenceBytes = 4096;

// Why a candidate is what it is.
enum class Outcome : uint8_t {
    kChosen,     // the best scalable pair: every message may take it
    kPartner,    // dedicated, on the chosen pair's devices: hot endpoints get it
    kRail,       // scalable, of the chosen one's kind on other devices: for bulk
    kCostlier,   // it would do, but another is cheaper
    kFarther,    // it would do, but another stays inside the worker or the host
    kTied,       // as cheap as the chosen one; the pair's identity decided
    kOnlyAlone,  // auxiliary, and the peer has nothing dedicated that it could bring up
    kNoLane,     // dedicated, on devices that are not the chosen pair's
    kSlower,     // dedicated, on the chosen pair's devices; the partner costs the CPU less
    kNotThere,   // the peer does not have that transport
    kOtherWorker,
    kOtherHost,
    kUnreachable,  // the transport cannot reach the peer's device
    kNoMessages,   // it moves memory of a device, and carries no messages
};

inline constexpr uint8_t kNone = std::numeric_limits<uint8_t>::max();

// A transport of this worker with one of the peer's.
struct Candidate {
    uint8_t local = kNone;   // index in the own address's entries
    uint8_t remote = kNone;  // index in the peer's; kNone if it has none of that kind
    Outcome outcome = Outcome::kNotThere;
    Locality locality = Locality::kNetwork;
    Cost cost;
    bool is_alone = false;  // auxiliary without a partner
    // Scalable: the dedicated pair that goes with it; kNone: it cannot be promoted.
    uint8_t partner_local = kNone;
    uint8_t partner_remote = kNone;
};

// Does the transport behind an entry of the own address reach the peer's device and interface?
using Reaches = ucs::FunctionRef<bool(uint8_t local, const AddressEntry& remote)>;

struct Options {
    unsigned max_rails = 0;
    double max_rail_ratio = 0;  // a rail's bandwidth is at least the best one's over this
};

// Rank the scalable pairs that join two workers, best first: the one to use is the first whose
// endpoint can be made. Outcomes and partners are not filled in.
//
// The order depends on nothing but the two addresses, whichever is the own one: both ends rank
// alike as long as reachability is mutual. Pairs of equal cost are spread over the pairs of
// workers, those on devices of the same number at both ends first.
std::vector<Candidate> rank(const WorkerAddress& own, const WorkerAddress& peer, Reaches reaches);

// Find the dedicated pair on the devices of a scalable one: the cheapest that both ends have.
void find_partner(const WorkerAddress& own, const WorkerAddress& peer, Reaches reaches,
                  Candidate& candidate);

// The pairs that carry bulk beside the first of a ranking, that one included: of its kind, each on
// devices of its own at both ends. Indexes into `ranked`.
std::vector<uint8_t> rails(std::span<const Candidate> ranked, const WorkerAddress& own,
                           const WorkerAddress& peer, const Options& options);

// Every candidate with its outcome: the usable ones as ranked, then the others. For people.
std::vector<Candidate> explain(const WorkerAddress& own, const WorkerAddress& peer, Reaches reaches,
                               const Options& options);

// A short sentence for the outcome of a candidate.
std::string_view reason(Outcome outcome);
std::string_view name(Locality locality);

}  // namespace ucp::select
