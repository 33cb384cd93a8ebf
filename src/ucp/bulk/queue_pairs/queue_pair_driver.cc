// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/queue_pairs/queue_pair_driver.h"

#include <algorithm>
#include <new>
#include <unordered_set>

#include "ucp/bulk/engine/engine.h"
#include "ucp/bulk/queue_pairs/queue_pair_set.h"
#include "ucp/bulk/threads/thread_pool.h"
#include "ucs/log/log.h"

namespace ucp::bulk {
namespace {

// How often a peer that keeps an end waiting is asked.
constexpr ucs::Duration kQuestionInterval = std::chrono::milliseconds(100);
// Where there are not enough queue pairs for all.
constexpr ucs::Duration kReviewInterval = std::chrono::milliseconds(500);

}  // namespace

QueuePairDriver::QueuePairDriver(DeferredWork& work, InterfaceSet& interfaces,
                                 EndpointTable& endpoints, Engine& engine, const ucs::Clock& clock,
                                 const Options& options)
    : work_(work),
      interfaces_(interfaces),
      endpoints_(endpoints),
      engine_(engine),
      clock_(clock),
      options_(options),
      epoch_(options.epoch) {
    interfaces.set_handler(AmId::kBulkQueuePair, on_message, this);
    engine.set_provider(this);
}

QueuePairDriver::~QueuePairDriver() = default;

// Lanes come first: what they may need is kept back.
unsigned QueuePairDriver::limit() const {
    if (options_.each == 0) return 0;
    if (options_.total == UINT32_MAX) return UINT32_MAX;
    return options_.total - std::min(options_.total, options_.lane_cap);
}

unsigned QueuePairDriver::total() const {
    const unsigned most = limit(), room = interfaces_.queue_pair_room();
    return most > held_ && most - held_ > room ? held_ + room : most;
}

// Before anything is measured one queue pair is kept back for each lane that may yet come, so that
// the first sets do not take all. Later sets get what they are worth.
unsigned QueuePairDriver::room_of(QueuePairSet& set) const {
    const unsigned most = total();
    if (most == UINT32_MAX || most <= held_) return most - std::min(most, held_);
    const unsigned left = most - held_;
    if (set.negotiation.epoch() == 0) {
        const unsigned cap = options_.lane_cap;
        const auto with = static_cast<unsigned>(std::ranges::count_if(
            sets_, [](const auto& entry) { return !entry.second->queue_pairs.empty(); }));
        const unsigned later = cap > with + 1 ? cap - with - 1 : 0;
        return left > later ? left - later : 1;
    }
    // This set counts, though its end of the lane may not be up yet.
    std::vector<Claim> all = {set.claim(clock_.now())};
    for (const auto& [other, claim] : claims()) {
        if (other != &set) all.push_back(claim);
    }
    return std::min(left, share_out(all, most).front());
}

// A scalable interface serves only for threads: its own endpoint is the lane's path already.
bool QueuePairDriver::serves(unsigned interface) const {
    const uct::InterfaceAttributes& attributes = interfaces_.attributes(interface);
    constexpr uint32_t kChains = uct::kPutChain | uct::kGetChain;
    if ((attributes.capabilities & kChains) == 0) return false;
    return attributes.reach == uct::Reach::kEndpoint ||
           ((attributes.capabilities & uct::kConnectable) != 0 && engine_.threads() != nullptr);
}

// Endpoints between two scalable interfaces share connections: one for each thread is enough.
unsigned QueuePairDriver::wanted_of(unsigned interface) const {
    if (interfaces_.attributes(interface).reach == uct::Reach::kEndpoint) return options_.each;
    return std::min(options_.each, engine_.threads()->threads_for(interface));
}

std::unique_ptr<uct::Endpoint> QueuePairDriver::make_transport(unsigned interface,
                                                               QueuePairBudget::Share& share) {
    std::unique_ptr<uct::Endpoint> transport;
    share = interfaces_.take_queue_pair(interface, QueuePairBudget::Use::kBulk);
    if (!share) return nullptr;
    ThreadPool* const pool = engine_.threads();
    const bool is_on_thread =
        pool != nullptr && pool->make_queue_pair(interface, &transport) == UCS_OK;
    const bool is_dedicated = interfaces_.attributes(interface).reach == uct::Reach::kEndpoint;
    if (!is_on_thread && (!is_dedicated || interfaces_[interface].transport->create_endpoint(
                                               {}, &transport) != UCS_OK)) {
        return nullptr;
    }
    peak_held_ = std::max(peak_held_, ++held_);
    return transport;
}

void QueuePairDriver::destroy_transport(BulkQueuePair& queue_pair) {
    if (queue_pair.transport == nullptr) return;
    queue_pair.transport.reset();
    queue_pair.share.give_back();
    --held_;
}

uint32_t QueuePairDriver::new_epoch() {
    if (++epoch_ == 0) ++epoch_;
    return epoch_;
}

void QueuePairDriver::await_peer() {
    tick_ = std::min(tick_, ucs::deadline(clock_.now(), kQuestionInterval));
}

void QueuePairDriver::add_path(Endpoint& endpoint, BulkQueuePair& queue_pair, double weight) {
    queue_pair.path = engine_.add_path(endpoint,
                                       {.transport = queue_pair.transport.get(),
                                        .interface = queue_pair.interface,
                                        .domains = queue_pair.domains,
                                        .weight = weight,
                                        .name = queue_pair.set->name_of(queue_pair)},
                                       *this);
    if (queue_pair.path != nullptr) by_path_[queue_pair.path] = &queue_pair;
}

void QueuePairDriver::keep_orphan(std::unique_ptr<BulkQueuePair> queue_pair) {
    queue_pair->set = nullptr;
    orphans_.push_back(std::move(queue_pair));
}

QueuePairSet& QueuePairDriver::set_of(Endpoint& endpoint) {
    const auto known = sets_.find(endpoint.serial());
    if (known != sets_.end()) return *known->second;
    auto made = std::make_unique<QueuePairSet>(*this, endpoint);
    QueuePairSet& set = *sets_.emplace(endpoint.serial(), std::move(made)).first->second;
    // Beside a scalable lane nothing waits for a promotion.
    if (set.is_beside_scalable_lane()) set.negotiation.on_lane_up();
    return set;
}

bool QueuePairDriver::holds(const Endpoint& endpoint) const {
    const auto found = sets_.find(endpoint.serial());
    return found != sets_.end() &&
           found->second->negotiation.state() != QueuePairNegotiation::State::kClosed;
}

std::vector<unsigned> QueuePairDriver::interfaces_of(const Endpoint& endpoint) const {
    std::vector<unsigned> result;
    const auto found = sets_.find(endpoint.serial());
    if (found == sets_.end()) return result;
    for (const auto& queue_pair : found->second->queue_pairs) {
        if (queue_pair->path != nullptr && queue_pair->transport != nullptr)
            result.push_back(queue_pair->interface);
    }
    return result;
}

void QueuePairDriver::put_aside(Event event) {
    events_.push_back(std::move(event));
    work_.notify();
}

void QueuePairDriver::wanted(Endpoint& endpoint) {
    if (options_.each == 0) return;
    put_aside({Event::Kind::kWanted, &endpoint, {}});
}

void QueuePairDriver::lane_changed(Endpoint& endpoint, bool is_established) {
    put_aside({is_established ? Event::Kind::kUp : Event::Kind::kDown, &endpoint, {}});
}

void QueuePairDriver::withdraw(const Endpoint& endpoint) {
    if (endpoint.is_promotable() || endpoint.is_failed()) return;
    const auto found = sets_.find(endpoint.serial());
    if (found != sets_.end()) found->second->negotiation.on_lane_down();
}

void QueuePairDriver::withdraw() {
    for (const auto& [serial, set] : sets_) withdraw(set->endpoint());
}

ucs_status_t QueuePairDriver::on_message(void* self, void* data, size_t length,
                                         uct::ReceiveDescriptor*) {
    auto& driver = *static_cast<QueuePairDriver*>(self);
    std::span<const std::byte> bytes;
    QueuePairHeader header;
    if (!read_header(data, length, &header, &bytes)) {
        ucs::log_warn("a message of {} bytes about queue pairs for bulk is too short: dropped",
                      length);
        return UCS_OK;
    }
    auto message = decode_queue_pair_message(bytes);
    Endpoint* endpoint = message ? driver.find_round(header.sender, message->epoch) : nullptr;
    if (!message || endpoint == nullptr) {
        ucs::log_debug("a message about queue pairs for bulk of worker {:016x} is {}: dropped",
                       uint64_t{header.sender},
                       endpoint == nullptr ? "of nobody known" : "malformed");
        return UCS_OK;
    }
    const auto worth = static_cast<double>(std::min(header.worth, QueuePairHeader::kMostWorth));
    driver.put_aside({Event::Kind::kMessage, endpoint, std::move(*message), worth});
    return UCS_OK;
}

void QueuePairDriver::run_deferred() {
    while (!events_.empty()) {
        const std::vector<Event> events = std::move(events_);
        events_.clear();
        for (const Event& event : events) {
            if (event.endpoint->is_failed()) continue;
            try {
                handle(event);
            } catch (const std::bad_alloc&) {
                // An endpoint without a set does without bulk queue pairs; one with a set would
                // lose a message.
                ucs::log_debug("no memory for queue pairs for bulk");
                if (sets_.contains(event.endpoint->serial()))
                    event.endpoint->reset(UCS_ERR_NO_MEMORY);
            }
        }
    }
}

void QueuePairDriver::handle(const Event& event) {
    QueuePairSet& set = set_of(*event.endpoint);
    QueuePairNegotiation& negotiation = set.negotiation;
    switch (event.kind) {
        case Event::Kind::kWanted:
            negotiation.on_wanted();
            break;
        case Event::Kind::kUp:
            set.peer_has_room();
            negotiation.on_lane_up();
            break;
        case Event::Kind::kDown:
            negotiation.on_lane_down();
            break;
        case Event::Kind::kMessage:
            if (event.message.is_answer) set.answer_due = ucs::kNever;
            set.peer_worth = event.worth;
            set.is_asked = false;
            // Before on_message(), which may begin another round: the refusal is about this one.
            if (event.message.is_refusal() && event.message.epoch == negotiation.epoch())
                set.refused();
            negotiation.on_message(event.message);
            break;
    }
}

// A lane of some worker of the process lacks a queue pair that an endpoint has for bulk: one
// endpoint after the other gives its own up, those first that bring least, until there is room.
void QueuePairDriver::give_way() {
    using State = QueuePairNegotiation::State;
    const ucs::Time now = clock_.now();
    QueuePairSet* least = nullptr;
    for (const auto& [serial, set] : sets_) {
        if (set->negotiation.state() == State::kDraining) return;
        if (set->negotiation.state() != State::kOpen || !set->is_wanted()) continue;
        if (least == nullptr || set->claim(now).worth < least->claim(now).worth) least = set.get();
    }
    if (least == nullptr) return;
    ucs::log_debug("worker {:016x}: queue pairs for bulk give way to a lane",
                   least->endpoint().remote_uuid());
    least->negotiation.give_up();
    least->rest(now);
    review_soon();
}

void QueuePairDriver::review_soon() {
    if (review_at_ == ucs::kNever && limit() != 0)
        review_at_ = ucs::deadline(clock_.now(), kReviewInterval);
}

std::vector<std::pair<QueuePairSet*, Claim>> QueuePairDriver::claims() const {
    std::vector<std::pair<QueuePairSet*, Claim>> found;
    const ucs::Time now = clock_.now();
    for (const auto& [serial, set] : sets_) {
        using State = QueuePairNegotiation::State;
        const bool is_closed = set->negotiation.state() == State::kClosed;
        if (set->endpoint().is_failed() || (is_closed && !set->negotiation.is_lacking())) continue;
        found.emplace_back(set.get(), set->claim(now));
    }
    return found;
}

void QueuePairDriver::review(ucs::Time now) {
    review_at_ = ucs::kNever;
    const auto found = claims();
    std::vector<Claim> all;
    for (const auto& [set, claim] : found) all.push_back(claim);
    const bool is_enough =
        std::ranges::all_of(all, [](const Claim& claim) { return claim.held >= claim.full; });
    if (is_enough) {
        for (const auto& [set, claim] : found) set->has_its_due();
        return;
    }
    review_soon();
    const std::vector<unsigned> due = share_out(all, total());
    for (size_t index = 0; index < found.size(); ++index) {
        // A peer that has not answered yet is not asked again.
        QueuePairSet& set = *found[index].first;
        if (!set.is_asked) set.ask_for_worth();
        if (all[index].held >= due[index]) set.has_its_due();
    }
    const ReviewStep step = next_step(all, total());
    if (step.kind == ReviewStep::Kind::kNone) return;
    QueuePairSet& set = *found[step.claim].first;
    ucs::log_debug("worker {:016x}: queue pairs for bulk {}", set.endpoint().remote_uuid(),
                   step.kind == ReviewStep::Kind::kOpen ? "open" : "go to whom they bring more");
    if (step.kind == ReviewStep::Kind::kOpen) {
        set.rest(now);
        set.negotiation.on_room();
    } else {
        set.negotiation.give_up();
    }
}

void QueuePairDriver::advance(ucs::Time now) {
    try {
        if (held_ != 0 && interfaces_.is_lane_wanted()) [[unlikely]]
            give_way();
        if (now >= review_at_) [[unlikely]]
            review(now);
    } catch (const std::bad_alloc&) {
        ucs::log_debug("no memory to share out queue pairs for bulk anew: later");
        review_soon();
    }
    if (now < tick_) return;
    const ucs::Duration unseen = ucs::unseen(tick_, now, options_.answer_timeout);
    tick_ = ucs::kNever;
    for (const auto& [serial, set] : sets_) {
        if (!set->negotiation.awaits_peer() || set->endpoint().is_failed()) {
            set->answer_due = ucs::kNever;
            continue;
        }
        if (set->answer_due == ucs::kNever) {
            set->answer_due = ucs::deadline(now, options_.answer_timeout);
        } else {
            set->answer_due = ucs::deadline(set->answer_due, unseen);
        }
        if (now >= set->answer_due) {
            ucs::log_info("worker {:016x} says nothing about queue pairs for bulk: given up",
                          set->endpoint().remote_uuid());
            set->negotiation.on_no_answer();
            continue;
        }
        set->endpoint().greet_again();
        set->negotiation.on_silence();
    }
}

// The endpoint of that round: of several to a peer, one that was closed may still be ending its
// own.
Endpoint* QueuePairDriver::find_round(uint64_t peer, uint32_t epoch) const {
    for (const auto& [serial, set] : sets_) {
        const QueuePairNegotiation& negotiation = set->negotiation;
        if (set->endpoint().remote_uuid() == peer &&
            negotiation.state() != QueuePairNegotiation::State::kClosed &&
            negotiation.epoch() == epoch) {
            return &set->endpoint();
        }
    }
    return endpoints_.find(peer);
}

void QueuePairDriver::drop(Endpoint& endpoint) {
    std::erase_if(events_, [&](const Event& event) { return event.endpoint == &endpoint; });
    const auto found = sets_.find(endpoint.serial());
    if (found == sets_.end()) return;
    const std::unique_ptr<QueuePairSet> set = std::move(found->second);
    sets_.erase(found);
    set->negotiation.on_gone();
    set->destroy_queue_pairs();
}

void QueuePairDriver::transports_failed(std::span<const uct::Endpoint* const> transports) {
    if (sets_.empty()) return;
    const std::unordered_set<const uct::Endpoint*> failed(transports.begin(), transports.end());
    std::vector<uint64_t> losers;
    for (const auto& [serial, set] : sets_) {
        for (const auto& queue_pair : set->queue_pairs) {
            // Paths are the engine's, which tells of them itself.
            if (queue_pair->path != nullptr || !failed.contains(queue_pair->transport.get()))
                continue;
            losers.push_back(serial);
            destroy_transport(*queue_pair);
        }
    }
    for (const uint64_t serial : losers) {
        if (const auto set = sets_.find(serial); set != sets_.end()) set->second->queue_pair_lost();
    }
}

void QueuePairDriver::path_failed(Path& path, ucs_status_t) {
    const auto found = by_path_.find(&path);
    if (found == by_path_.end()) return;
    BulkQueuePair& queue_pair = *found->second;
    destroy_transport(queue_pair);
    if (queue_pair.set != nullptr) queue_pair.set->queue_pair_lost();
}

void QueuePairDriver::path_gone(Path& path) {
    const auto found = by_path_.find(&path);
    if (found == by_path_.end()) return;
    BulkQueuePair& queue_pair = *found->second;
    by_path_.erase(found);
    queue_pair.path = nullptr;
    if (queue_pair.set != nullptr) return queue_pair.set->path_gone(queue_pair);
    std::erase_if(orphans_, [&](const auto& each) { return each.get() == &queue_pair; });
}

void QueuePairDriver::revoke_queue_pair(uint64_t peer, uint64_t name) {
    for (const auto& [serial, set] : sets_) {
        if (set->endpoint().remote_uuid() != peer) continue;
        BulkQueuePair* queue_pair = set->find(name);
        if (queue_pair == nullptr) continue;
        if (queue_pair->path != nullptr)
            engine_.path_failed(*queue_pair->path, UCS_ERR_CONNECTION_RESET);
        destroy_transport(*queue_pair);
        return set->queue_pair_lost();
    }
}

}  // namespace ucp::bulk
