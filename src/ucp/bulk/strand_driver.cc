// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/strand_driver.h"

#include <algorithm>
#include <cstring>

#include "ucp/bulk/engine.h"
#include "ucp/bulk/pool.h"
#include "ucp/core/worker.h"
#include "ucp/lanes/lane_driver.h"
#include "ucs/log.h"

namespace ucp::bulk {
namespace {

/** How often a peer that keeps an end waiting is asked. */
constexpr ucs::Duration kQuestionInterval = std::chrono::milliseconds(100);

/** Who sends a StrandMessage; it follows. */
struct StrandHeader {
    uint64_t sender;  //!< uuid
};

}  // namespace

struct StrandDriver::Strand {
    Set* set;
    uint8_t rail;   //!< its place in the message that offered it
    uint8_t place;  //!< among those of its rail
    unsigned interface;
    DomainPair domains;
    std::unique_ptr<uct::Endpoint> end;  //!< null: failed
    Path* path = nullptr;
};

/** The strands of one endpoint. */
class StrandDriver::Set final : public StrandSink {
  public:
    Set(StrandDriver& driver, Endpoint& endpoint)
        : link(*this, driver.worker_.uuid() < endpoint.remote_uuid()),
          driver_(driver),
          endpoint_(endpoint) {}

    void send(const StrandMessage& message) override;
    uint32_t new_epoch() override;
    std::vector<std::byte> make_ends() override;
    std::vector<std::byte> answer_ends(std::span<const std::byte> offered) override;
    bool connect_ends(std::span<const std::byte> granted) override;
    void start_posting() override;
    void stop_posting() override;
    void destroy_ends() override;

    void path_gone(Strand& strand);
    /** One of its queue pairs is no more. */
    void end_lost();
    Strand* find(uint64_t name);
    uint64_t name_of(const Strand& strand) const {
        return uint64_t{link.epoch()} << 16 | uint64_t{strand.rail} << 8 | strand.place;
    }
    Endpoint& endpoint() const { return endpoint_; }

    StrandLink link;
    std::vector<std::unique_ptr<Strand>> strands;
    ucs::Time patience = ucs::kNever;  //!< end of it, once the peer was asked; an answer renews it

  private:
    struct Place {
        unsigned interface;
        DomainPair domains;
    };
    std::vector<Place> places() const;
    unsigned wanted_each() const;
    Strand* make(unsigned rail, const Place& place);
    bool connect(Strand& strand, std::span<const std::byte> device,
                 std::span<const std::byte> address);
    std::vector<RailEnds> describe(std::span<const Place> rails) const;
    void idle_if_done();

    StrandDriver& driver_;
    Endpoint& endpoint_;
    bool is_stopping_ = false;
};

// --- a set: what its link decides
// ------------------------------------------------------------------

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

// --- the driver
// ------------------------------------------------------------------------------------

StrandDriver::StrandDriver(Worker& worker)
    : worker_(worker), epoch_(static_cast<uint32_t>(worker.random()())) {
    worker.set_handler(AmId::kStrand, on_message);
    worker.bulk().set_end_owner(this);
}

StrandDriver::~StrandDriver() = default;

/**
 * Lanes come first: what they may need is kept back, and one queue pair for every lane that may yet
 * come, so that the first do not take all.
 */
unsigned StrandDriver::room() const {
    const Config& config = worker_.config();
    if (config.bulk_qps == 0) return 0;
    if (!config.max_dedicated_qps && config.lanes == LaneMode::kDedicated) return UINT32_MAX;
    const unsigned cap = worker_.lanes().negotiator().config().cap;
    const unsigned total = config.dedicated_qps();
    const uint64_t taken = uint64_t{cap} + held_;
    if (total <= taken) return 0;
    const auto left = static_cast<unsigned>(total - taken);
    const auto with = static_cast<unsigned>(std::ranges::count_if(
        sets_, [](const auto& entry) { return !entry.second->strands.empty(); }));
    const unsigned later = cap > with + 1 ? cap - with - 1 : 0;
    return left > later ? left - later : 1;
}

std::unique_ptr<uct::Endpoint> StrandDriver::make_end(unsigned interface) {
    std::unique_ptr<uct::Endpoint> end;
    Pool* const pool = worker_.bulk().pool();
    const bool is_lent = pool != nullptr && pool->make_end(interface, &end) == UCS_OK;
    if (!is_lent && worker_.interface(interface).transport->create_endpoint({}, &end) != UCS_OK) {
        return nullptr;
    }
    peak_held_ = std::max(peak_held_, ++held_);
    return end;
}

void StrandDriver::destroy_end(Strand& strand) {
    if (strand.end == nullptr) return;
    strand.end.reset();
    --held_;
}

StrandDriver::Set& StrandDriver::set_of(Endpoint& endpoint) {
    std::unique_ptr<Set>& set = sets_[endpoint.serial()];
    if (set == nullptr) set = std::make_unique<Set>(*this, endpoint);
    return *set;
}

bool StrandDriver::holds(const Endpoint& endpoint) const {
    const auto found = sets_.find(endpoint.serial());
    return found != sets_.end() && found->second->link.state() != StrandLink::State::kClosed;
}

std::vector<unsigned> StrandDriver::interfaces_of(const Endpoint& endpoint) const {
    std::vector<unsigned> result;
    const auto found = sets_.find(endpoint.serial());
    if (found == sets_.end()) return result;
    for (const auto& strand : found->second->strands) {
        if (strand->path != nullptr && strand->end != nullptr) result.push_back(strand->interface);
    }
    return result;
}

void StrandDriver::put_aside(Event event) {
    events_.push_back(std::move(event));
    worker_.work_later();
}

void StrandDriver::wanted(Endpoint& endpoint) {
    if (worker_.config().bulk_qps == 0) return;
    put_aside({Event::Kind::kWanted, &endpoint, {}});
}

void StrandDriver::lane_changed(Endpoint& endpoint, bool is_established) {
    put_aside({is_established ? Event::Kind::kUp : Event::Kind::kDown, &endpoint, {}});
}

ucs_status_t StrandDriver::on_message(void* arg, void* data, size_t length,
                                      uct::ReceiveDescriptor*) {
    auto& worker = *static_cast<Worker*>(arg);
    std::span<const std::byte> bytes(static_cast<const std::byte*>(data), length);
    StrandHeader header;
    if (bytes.size() < sizeof(header)) {
        ucs::log_warn("a message of {} bytes about queue pairs for bulk is too short: dropped",
                      length);
        return UCS_OK;
    }
    std::memcpy(&header, bytes.data(), sizeof(header));
    auto message = decode_strand_message(bytes.subspan(sizeof(header)));
    Endpoint* endpoint =
        message ? worker.strands().find_round(header.sender, message->epoch) : nullptr;
    if (!message || endpoint == nullptr) {
        ucs::log_debug("a message about queue pairs for bulk of worker {:016x} is {}: dropped",
                       uint64_t{header.sender},
                       endpoint == nullptr ? "of nobody known" : "malformed");
        return UCS_OK;
    }
    worker.strands().put_aside({Event::Kind::kMessage, endpoint, std::move(*message)});
    return UCS_OK;
}

void StrandDriver::run_deferred() {
    while (!events_.empty()) {
        const std::vector<Event> events = std::move(events_);
        events_.clear();
        for (const Event& event : events) {
            if (event.endpoint->is_failed()) continue;
            StrandLink& link = set_of(*event.endpoint).link;
            switch (event.kind) {
                case Event::Kind::kWanted:
                    link.on_wanted();
                    break;
                case Event::Kind::kUp:
                    link.on_lane_up();
                    break;
                case Event::Kind::kDown:
                    link.on_lane_down();
                    break;
                case Event::Kind::kMessage:
                    if (event.message.is_answer) set_of(*event.endpoint).patience = ucs::kNever;
                    link.on_message(event.message);
                    break;
            }
        }
    }
}

void StrandDriver::advance(ucs::Time now) {
    if (now < tick_) return;
    tick_ = ucs::kNever;
    for (const auto& [serial, set] : sets_) {
        if (!set->link.awaits_peer() || set->endpoint().is_failed()) {
            set->patience = ucs::kNever;
            continue;
        }
        if (set->patience == ucs::kNever) {
            set->patience = ucs::deadline(now, worker_.config().bulk_cut_timeout);
        }
        if (now >= set->patience) {
            ucs::log_info("worker {:016x} says nothing about queue pairs for bulk: given up",
                          set->endpoint().remote_uuid());
            set->link.on_no_answer();
            continue;
        }
        set->endpoint().greet_again();
        set->link.on_silence();
    }
}

// Of several endpoints to a peer, one that was closed may still be at the end of its round.
Endpoint* StrandDriver::find_round(uint64_t peer, uint32_t epoch) const {
    for (const auto& [serial, set] : sets_) {
        const StrandLink& link = set->link;
        if (set->endpoint().remote_uuid() == peer && link.state() != StrandLink::State::kClosed &&
            link.epoch() == epoch) {
            return &set->endpoint();
        }
    }
    return worker_.find_endpoint(peer);
}

void StrandDriver::drop(Endpoint& endpoint) {
    std::erase_if(events_, [&](const Event& event) { return event.endpoint == &endpoint; });
    const auto found = sets_.find(endpoint.serial());
    if (found == sets_.end()) return;
    const std::unique_ptr<Set> set = std::move(found->second);
    sets_.erase(found);
    set->link.on_gone();
    set->destroy_ends();
}

void StrandDriver::transport_failed(const uct::Endpoint* transport) {
    for (const auto& [serial, set] : sets_) {
        for (const auto& strand : set->strands) {
            if (strand->end.get() != transport) continue;
            destroy_end(*strand);
            return set->end_lost();
        }
    }
}

void StrandDriver::path_failed(Path& path, ucs_status_t) {
    const auto found = by_path_.find(&path);
    if (found == by_path_.end()) return;
    Strand& strand = *found->second;
    destroy_end(strand);
    if (strand.set != nullptr) strand.set->end_lost();
}

void StrandDriver::path_gone(Path& path) {
    const auto found = by_path_.find(&path);
    if (found == by_path_.end()) return;
    Strand& strand = *found->second;
    by_path_.erase(found);
    strand.path = nullptr;
    if (strand.set != nullptr) return strand.set->path_gone(strand);
    std::erase_if(orphans_, [&](const auto& each) { return each.get() == &strand; });
}

void StrandDriver::cut_end(uint64_t peer, uint64_t name) {
    for (const auto& [serial, set] : sets_) {
        if (set->endpoint().remote_uuid() != peer) continue;
        Strand* strand = set->find(name);
        if (strand == nullptr) continue;
        if (strand->path != nullptr) {
            worker_.bulk().transport_failed(strand->end.get(), UCS_ERR_CONNECTION_RESET);
        }
        destroy_end(*strand);
        return set->end_lost();
    }
}

}  // namespace ucp::bulk
