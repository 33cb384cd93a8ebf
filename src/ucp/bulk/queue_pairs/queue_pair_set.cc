// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/queue_pairs/queue_pair_set.h"

#include <algorithm>

#include "ucp/bulk/engine/engine.h"
#include "ucs/log.h"

namespace ucp::bulk {
namespace {

/** How often a peer that keeps an end waiting is asked. */
constexpr ucs::Duration kQuestionInterval = std::chrono::milliseconds(100);

}  // namespace

void StrandDriver::Set::send(const StrandMessage& message) {
    const StrandHeader header{driver_.worker_.uuid()};
    const auto fixed = std::as_bytes(std::span(&header, 1));
    std::vector<std::byte> bytes(fixed.begin(), fixed.end());
    const std::vector<std::byte> rest = encode(message);
    bytes.insert(bytes.end(), rest.begin(), rest.end());
    endpoint_.send_control_greeted(AmId::kStrand, bytes);
    driver_.tick_ =
        std::min(driver_.tick_, ucs::deadline(driver_.worker_.now(), kQuestionInterval));
}

uint32_t StrandDriver::Set::new_epoch() {
    if (++driver_.epoch_ == 0) ++driver_.epoch_;
    return driver_.epoch_;
}

unsigned StrandDriver::Set::wanted_each() const {
    return std::min(driver_.worker_.config().bulk_qps, kMaxStrandsPerRail);
}

/** The dedicated interfaces towards this peer that carry chains: its lane's, and those of rails. */
std::vector<StrandDriver::Set::Place> StrandDriver::Set::places() const {
    Worker& worker = driver_.worker_;
    std::vector<Place> result;
    const auto add = [&](unsigned interface, DomainPair domains) {
        const auto& attributes = worker.interface(interface).transport->attributes();
        constexpr uint32_t kChains = uct::kPutChain | uct::kGetChain;
        if ((attributes.capabilities & kChains) != 0) result.push_back({interface, domains});
    };
    if (!endpoint_.has_flag(Endpoint::kPromotable)) return result;
    add(endpoint_.dedicated_index(), endpoint_.domains());
    for (const Rail& rail : worker.rails(endpoint_.remote_uuid())) {
        if (rail.dedicated >= 0) add(static_cast<unsigned>(rail.dedicated), rail.domains);
    }
    return result;
}

StrandDriver::Strand* StrandDriver::Set::make(unsigned rail, const Place& place) {
    std::unique_ptr<uct::Endpoint> end = driver_.make_end(place.interface);
    if (end == nullptr) return nullptr;
    const auto on_rail =
        std::ranges::count_if(strands, [rail](const auto& strand) { return strand->rail == rail; });
    strands.push_back(std::make_unique<Strand>(
        Strand{this, static_cast<uint8_t>(rail), static_cast<uint8_t>(on_rail), place.interface,
               place.domains, std::move(end)}));
    return strands.back().get();
}

std::vector<RailEnds> StrandDriver::Set::describe(std::span<const Place> rails) const {
    std::vector<RailEnds> result;
    for (size_t rail = 0; rail < rails.size(); ++rail) {
        const WorkerInterface& interface = driver_.worker_.interface(rails[rail].interface);
        const auto& attributes = interface.transport->attributes();
        RailEnds& ends = result.emplace_back();
        ends.kind = interface.kind;
        ends.domain = rails[rail].domains.local;
        ends.partner_domain = rails[rail].domains.remote;
        ends.device.resize(attributes.device_address_length);
        if (interface.transport->get_device_address(ends.device) != UCS_OK) return {};
        for (const auto& strand : strands) {
            if (strand->rail != rail) continue;
            auto& address = ends.addresses.emplace_back(attributes.endpoint_address_length);
            if (strand->end->get_address(address) != UCS_OK) return {};
        }
    }
    return result;
}

// In turn, so that where there is little room every rail gets some.
std::vector<std::byte> StrandDriver::Set::make_ends() {
    const std::vector<Place> rails = places();
    unsigned left = driver_.room();
    for (unsigned round = 0; round < wanted_each() && left != 0; ++round) {
        for (unsigned rail = 0; rail < rails.size() && left != 0; ++rail) {
            if (make(rail, rails[rail]) != nullptr) --left;
        }
    }
    if (strands.empty()) return {};
    const std::vector<RailEnds> ends = describe(rails);
    if (ends.empty()) destroy_ends();
    return encode(ends);
}

bool StrandDriver::Set::connect(Strand& strand, std::span<const std::byte> device,
                                std::span<const std::byte> address) {
    const ucs_status_t status = strand.end->connect({device, {}, address});
    if (status == UCS_OK) return true;
    ucs::log_debug("a queue pair for bulk to worker {:016x} cannot be connected: {}",
                   endpoint_.remote_uuid(), ucs_status_string(status));
    return false;
}

std::vector<std::byte> StrandDriver::Set::answer_ends(std::span<const std::byte> offered) {
    const auto offers = decode_rail_ends(offered);
    if (!offers) return {};
    const std::vector<Place> own = places();
    std::vector<Place> rails;  // in the places of the offers
    std::vector<bool> is_open;
    for (const RailEnds& offer : *offers) {
        const auto found = std::ranges::find_if(own, [&](const Place& place) {
            return driver_.worker_.interface(place.interface).kind == offer.kind &&
                   place.domains == DomainPair{offer.partner_domain, offer.domain};
        });
        is_open.push_back(found != own.end());
        rails.push_back(found != own.end() ? *found : Place{endpoint_.dedicated_index(), {}});
    }
    unsigned left = driver_.room();
    for (unsigned round = 0; round < wanted_each() && left != 0; ++round) {
        for (unsigned rail = 0; rail < rails.size() && left != 0; ++rail) {
            const RailEnds& offer = (*offers)[rail];
            if (!is_open[rail] || round >= offer.addresses.size()) continue;
            Strand* strand = make(rail, rails[rail]);
            if (strand != nullptr && connect(*strand, offer.device, offer.addresses[round])) {
                --left;
                continue;
            }
            is_open[rail] = false;  // the granted ones are the first of those offered
            if (strand == nullptr) continue;
            driver_.destroy_end(*strand);
            strands.pop_back();
        }
    }
    if (strands.empty()) return {};
    const std::vector<RailEnds> ends = describe(rails);
    if (ends.empty()) destroy_ends();
    return encode(ends);
}

bool StrandDriver::Set::connect_ends(std::span<const std::byte> granted) {
    const auto grants = decode_rail_ends(granted);
    std::erase_if(strands, [&](const auto& strand) {
        if (grants && strand->rail < grants->size() && strand->end != nullptr) {
            const RailEnds& grant = (*grants)[strand->rail];
            if (strand->place < grant.addresses.size() &&
                connect(*strand, grant.device, grant.addresses[strand->place])) {
                return false;
            }
        }
        driver_.destroy_end(*strand);
        return true;
    });
    return !strands.empty();
}

void StrandDriver::Set::start_posting() {
    is_stopping_ = false;
    Engine& engine = driver_.worker_.bulk();
    for (const auto& strand : strands) {
        if (strand->end == nullptr) continue;
        const auto beside = std::ranges::count_if(
            strands, [&](const auto& other) { return other->interface == strand->interface; });
        strand->path = engine.add_path(endpoint_,
                                       {.transport = strand->end.get(),
                                        .interface = strand->interface,
                                        .domains = strand->domains,
                                        .weight = 1.0 / static_cast<double>(beside),
                                        .name = name_of(*strand)},
                                       driver_);
        if (strand->path != nullptr) driver_.by_path_[strand->path] = strand.get();
    }
    ucs::log_debug("worker {:016x}: {} queue pairs for bulk", endpoint_.remote_uuid(),
                   strands.size());
}

void StrandDriver::Set::stop_posting() {
    is_stopping_ = true;
    for (const auto& strand : strands) {
        if (strand->path != nullptr) driver_.worker_.bulk().remove_path(*strand->path);
    }
    idle_if_done();
}

void StrandDriver::Set::destroy_ends() {
    is_stopping_ = false;
    for (auto& strand : strands) {
        if (strand->path == nullptr) {
            driver_.destroy_end(*strand);
            continue;
        }
        // The engine hears of it first, and gives the path back later.
        driver_.worker_.bulk().transport_failed(strand->end.get(), UCS_ERR_CANCELED);
        driver_.destroy_end(*strand);
        strand->set = nullptr;
        driver_.orphans_.push_back(std::move(strand));
    }
    strands.clear();
}

void StrandDriver::Set::path_gone(Strand& strand) {
    if (strand.end == nullptr) {
        std::erase_if(strands, [&](const auto& each) { return each.get() == &strand; });
    }
    idle_if_done();
}

void StrandDriver::Set::idle_if_done() {
    if (!is_stopping_ ||
        std::ranges::any_of(strands, [](const auto& strand) { return strand->path != nullptr; })) {
        return;
    }
    is_stopping_ = false;
    link.on_idle();
}

void StrandDriver::Set::end_lost() {
    const bool any =
        std::ranges::any_of(strands, [](const auto& strand) { return strand->end != nullptr; });
    if (!any && link.state() == StrandLink::State::kOpen) link.on_all_failed();
}

StrandDriver::Strand* StrandDriver::Set::find(uint64_t name) {
    for (const auto& strand : strands) {
        if (strand->end != nullptr && name_of(*strand) == name) return strand.get();
    }
    return nullptr;
}

}  // namespace ucp::bulk
