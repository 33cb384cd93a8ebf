// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/queue_pairs/queue_pair_set.h"

#include <algorithm>

#include "ucp/bulk/engine/engine.h"
#include "ucp/bulk/queue_pairs/queue_pair_driver.h"
#include "ucs/log/log.h"

namespace ucp::bulk {
namespace {

using State = QueuePairNegotiation::State;

// Shorter times measure nothing.
constexpr ucs::Duration kLeastMeasured = std::chrono::milliseconds(100);
// Of a measured rate, beside what was measured before.
constexpr double kNewest = 0.5;
// Between changes of one endpoint's queue pairs for the sake of others.
constexpr ucs::Duration kShortestRest = std::chrono::seconds(1);
constexpr ucs::Duration kLongestRest = std::chrono::seconds(64);

}  // namespace

QueuePairSet::QueuePairSet(QueuePairDriver& driver, Endpoint& endpoint)
    : negotiation(*this, endpoint.local_uuid() < endpoint.remote_uuid()),
      driver_(driver),
      endpoint_(endpoint),
      measured_(driver.engine().begun(endpoint)),
      measured_at_(driver.now()),
      rest_(kShortestRest) {}

void QueuePairSet::send(const QueuePairMessage& message) {
    const QueuePairHeader header{
        endpoint_.local_uuid(),
        static_cast<uint64_t>(
            std::min(worth(driver_.now()), static_cast<double>(QueuePairHeader::kMostWorth)))};
    const auto fixed = std::as_bytes(std::span(&header, 1));
    std::vector<std::byte> bytes(fixed.begin(), fixed.end());
    const std::vector<std::byte> rest = encode(message);
    bytes.insert(bytes.end(), rest.begin(), rest.end());
    endpoint_.send_control_greeted(AmId::kBulkQueuePair, bytes);
    driver_.await_peer();
}

uint32_t QueuePairSet::new_epoch() {
    return driver_.new_epoch();
}

// The interfaces towards this peer that have queue pairs for it, its lane's and those of rails: the
// dedicated ones of an endpoint that may have a dedicated lane, of another one the scalable ones.
std::vector<QueuePairSet::Rail> QueuePairSet::rails() const {
    std::vector<Rail> result;
    if (endpoint_.is_stranger()) return result;
    const bool is_promotable = endpoint_.is_promotable();
    const auto add = [&](unsigned scalable, unsigned dedicated, DomainPair domains) {
        const unsigned interface = is_promotable ? dedicated : scalable;
        if (interface != kNoInterface && driver_.serves(interface))
            result.push_back({interface, domains});
    };
    const EndpointLanes& lanes = endpoint_.configuration().lanes();
    add(lanes.scalable, lanes.dedicated, lanes.domains);
    for (const RailLanes& rail : lanes.rails) add(rail.scalable, rail.dedicated, rail.domains);
    return result;
}

bool QueuePairSet::is_beside_scalable_lane() const {
    return !endpoint_.is_promotable() && endpoint_.is_primary() && !rails().empty();
}

BulkQueuePair* QueuePairSet::make(unsigned index, const Rail& rail) {
    QueuePairBudget::Share share;
    std::unique_ptr<uct::Endpoint> transport = driver_.make_transport(rail.interface, share);
    if (transport == nullptr) return nullptr;
    transport->set_peer(endpoint_.remote_uuid());
    const auto on_rail = std::ranges::count_if(
        queue_pairs, [index](const auto& queue_pair) { return queue_pair->rail == index; });
    queue_pairs.push_back(std::make_unique<BulkQueuePair>(
        BulkQueuePair{this, static_cast<uint8_t>(index), static_cast<uint8_t>(on_rail),
                      rail.interface, rail.domains, std::move(share), std::move(transport)}));
    return queue_pairs.back().get();
}

std::vector<RailAddresses> QueuePairSet::describe(std::span<const Rail> rails) const {
    std::vector<RailAddresses> result;
    for (size_t rail = 0; rail < rails.size(); ++rail) {
        const WorkerInterface& interface = driver_.interfaces()[rails[rail].interface];
        const auto& attributes = interface.transport->attributes();
        RailAddresses& addresses = result.emplace_back();
        addresses.kind = interface.kind;
        addresses.domain = rails[rail].domains.local;
        addresses.partner_domain = rails[rail].domains.remote;
        addresses.device.resize(attributes.device_address_length);
        if (interface.transport->get_device_address(addresses.device) != UCS_OK) return {};
        for (const auto& queue_pair : queue_pairs) {
            if (queue_pair->rail != rail) continue;
            auto& address = addresses.addresses.emplace_back(attributes.endpoint_address_length);
            if (queue_pair->transport->get_address(address) != UCS_OK) return {};
        }
    }
    return result;
}

// In turn, so that where there is little room every rail gets some.
std::vector<std::byte> QueuePairSet::make_queue_pairs() {
    const std::vector<Rail> rails = this->rails();
    peer_has_room();
    unsigned left = driver_.room_of(*this);
    for (unsigned round = 0; round < kMaxQueuePairsPerRail && left != 0; ++round) {
        for (unsigned rail = 0; rail < rails.size() && left != 0; ++rail) {
            if (round >= driver_.wanted_of(rails[rail].interface)) continue;
            if (make(rail, rails[rail]) != nullptr) --left;
        }
    }
    tell_if_short();
    if (queue_pairs.empty()) return {};
    const std::vector<RailAddresses> addresses = describe(rails);
    if (addresses.empty()) destroy_queue_pairs();
    return encode(addresses);
}

bool QueuePairSet::connect(BulkQueuePair& queue_pair, std::span<const std::byte> device,
                           std::span<const std::byte> address) {
    const ucs_status_t status = queue_pair.transport->connect({device, {}, address});
    if (status == UCS_OK) return true;
    ucs::log_debug("a queue pair for bulk to worker {:016x} cannot be connected: {}",
                   endpoint_.remote_uuid(), ucs_status_string(status));
    return false;
}

std::vector<std::byte> QueuePairSet::answer_offer(std::span<const std::byte> offered) {
    const auto offers = decode_rail_addresses(offered);
    if (!offers) return {};
    const std::vector<Rail> own = this->rails();
    std::vector<Rail> rails;  // in the places of the offers
    std::vector<bool> is_open;
    unsigned offered_in_all = 0;
    for (const RailAddresses& offer : *offers) {
        const auto found = std::ranges::find_if(own, [&](const Rail& rail) {
            return driver_.interfaces()[rail.interface].kind == offer.kind &&
                   rail.domains == DomainPair{offer.partner_domain, offer.domain};
        });
        is_open.push_back(found != own.end());
        // Any interface will do for one that gets no queue pair: its place is kept.
        rails.push_back(found != own.end() ? *found : Rail{endpoint_.scalable_index(), {}});
        offered_in_all += found != own.end() ? static_cast<unsigned>(offer.addresses.size()) : 0;
    }
    peer_most_ = offered_in_all;
    unsigned left = driver_.room_of(*this);
    for (unsigned round = 0; round < kMaxQueuePairsPerRail && left != 0; ++round) {
        for (unsigned rail = 0; rail < rails.size() && left != 0; ++rail) {
            const RailAddresses& offer = (*offers)[rail];
            if (!is_open[rail] || round >= offer.addresses.size() ||
                round >= driver_.wanted_of(rails[rail].interface)) {
                continue;
            }
            BulkQueuePair* queue_pair = make(rail, rails[rail]);
            if (queue_pair != nullptr &&
                connect(*queue_pair, offer.device, offer.addresses[round])) {
                --left;
                continue;
            }
            is_open[rail] = false;  // the granted ones are the first of those offered
            if (queue_pair == nullptr) continue;
            driver_.destroy_transport(*queue_pair);
            queue_pairs.pop_back();
        }
    }
    tell_if_short();
    if (queue_pairs.empty()) return {};
    const std::vector<RailAddresses> addresses = describe(rails);
    if (addresses.empty()) destroy_queue_pairs();
    return encode(addresses);
}

bool QueuePairSet::connect_queue_pairs(std::span<const std::byte> granted) {
    const auto grants = decode_rail_addresses(granted);
    const size_t made = queue_pairs.size();
    std::erase_if(queue_pairs, [&](const auto& queue_pair) {
        if (grants && queue_pair->rail < grants->size() && queue_pair->transport != nullptr) {
            const RailAddresses& grant = (*grants)[queue_pair->rail];
            if (queue_pair->place < grant.addresses.size() &&
                connect(*queue_pair, grant.device, grant.addresses[queue_pair->place])) {
                return false;
            }
        }
        driver_.destroy_transport(*queue_pair);
        return true;
    });
    peer_most_ = queue_pairs.size() < made ? static_cast<unsigned>(queue_pairs.size()) : UINT32_MAX;
    return !queue_pairs.empty();
}

void QueuePairSet::start_posting() {
    is_stopping_ = false;
    for (const auto& queue_pair : queue_pairs) {
        if (queue_pair->transport == nullptr) continue;
        const auto beside = std::ranges::count_if(queue_pairs, [&](const auto& other) {
            return other->interface == queue_pair->interface;
        });
        driver_.add_path(endpoint_, *queue_pair, 1.0 / static_cast<double>(beside));
    }
    ucs::log_debug("worker {:016x}: {} queue pairs for bulk", endpoint_.remote_uuid(),
                   queue_pairs.size());
}

void QueuePairSet::stop_posting() {
    is_stopping_ = true;
    for (const auto& queue_pair : queue_pairs) {
        if (queue_pair->path != nullptr) driver_.engine().remove_path(*queue_pair->path);
    }
    idle_if_done();
}

void QueuePairSet::destroy_queue_pairs() {
    is_stopping_ = false;
    for (auto& queue_pair : queue_pairs) {
        if (queue_pair->path == nullptr) {
            driver_.destroy_transport(*queue_pair);
            continue;
        }
        // The engine hears of it first, and gives the path back later.
        driver_.engine().path_failed(*queue_pair->path, UCS_ERR_CANCELED);
        driver_.destroy_transport(*queue_pair);
        driver_.keep_orphan(std::move(queue_pair));
    }
    queue_pairs.clear();
}

void QueuePairSet::path_gone(BulkQueuePair& queue_pair) {
    if (queue_pair.transport == nullptr) {
        std::erase_if(queue_pairs, [&](const auto& each) { return each.get() == &queue_pair; });
    }
    idle_if_done();
}

void QueuePairSet::idle_if_done() {
    if (!is_stopping_ || std::ranges::any_of(queue_pairs, [](const auto& queue_pair) {
            return queue_pair->path != nullptr;
        })) {
        return;
    }
    is_stopping_ = false;
    negotiation.on_idle();
}

void QueuePairSet::queue_pair_lost() {
    const bool any = std::ranges::any_of(
        queue_pairs, [](const auto& queue_pair) { return queue_pair->transport != nullptr; });
    if (!any && negotiation.state() == State::kOpen) negotiation.on_all_failed();
    // No promotion opens the next round.
    if (is_beside_scalable_lane()) driver_.review_soon();
}

double QueuePairSet::worth(ucs::Time now) {
    const ucs::Duration passed = now - measured_at_;
    if (passed < kLeastMeasured) return worth_;
    const uint64_t begun = driver_.engine().begun(endpoint_);
    const double bandwidth = endpoint_.configuration().lanes().bandwidth;
    const double busy = 1e9 * static_cast<double>(begun - measured_) / std::max(bandwidth, 1.0);
    worth_ += kNewest * (busy / ucs::seconds(passed) - worth_);
    measured_ = begun;
    measured_at_ = now;
    return worth_;
}

Claim QueuePairSet::claim(ucs::Time now) {
    Claim claim{.state = Claim::State::kMoving,
                .worth = worth(now) + peer_worth,
                .held = static_cast<unsigned>(queue_pairs.size()),
                .full = full(),
                .is_settled = now >= rests_until_,
                .can_grow = can_grow()};
    if (negotiation.state() == State::kOpen) claim.state = Claim::State::kOpen;
    if (negotiation.state() == State::kClosed) claim.state = Claim::State::kClosed;
    return claim;
}

void QueuePairSet::rest(ucs::Time now) {
    rests_until_ = ucs::deadline(now, rest_);
    rest_ = std::min(2 * rest_, kLongestRest);
}

void QueuePairSet::has_its_due() {
    rest_ = kShortestRest;
}

// Whatever round it names, and whether there is one: any answer says what the peer's are worth.
void QueuePairSet::ask_for_worth() {
    is_asked = true;
    send({QueuePairMessage::Type::kStill, std::max(negotiation.epoch(), 1u), false, {}});
}

unsigned QueuePairSet::full() const {
    unsigned wanted = 0;
    for (const Rail& rail : rails()) wanted += driver_.wanted_of(rail.interface);
    return std::min(wanted, peer_most_);
}

bool QueuePairSet::can_grow() const {
    return std::ranges::any_of(rails(), [this](const Rail& rail) {
        const auto held = std::ranges::count_if(queue_pairs, [&](const auto& queue_pair) {
            return queue_pair->interface == rail.interface;
        });
        return held < driver_.wanted_of(rail.interface) &&
               driver_.interfaces().queue_pair_room_of(rail.interface) != 0;
    });
}

void QueuePairSet::tell_if_short() {
    if (queue_pairs.size() < full()) driver_.review_soon();
}

bool QueuePairSet::is_wanted() const {
    return std::ranges::any_of(
        queue_pairs, [](const auto& queue_pair) { return queue_pair->share.is_wanted(); });
}

BulkQueuePair* QueuePairSet::find(uint64_t name) {
    for (const auto& queue_pair : queue_pairs) {
        if (queue_pair->transport != nullptr && name_of(*queue_pair) == name)
            return queue_pair.get();
    }
    return nullptr;
}

}  // namespace ucp::bulk
