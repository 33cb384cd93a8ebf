// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/queue_pairs/queue_pair_driver.h"

#include <algorithm>
#include <cstring>

#include "ucp/bulk/engine/engine.h"
#include "ucp/bulk/queue_pairs/queue_pair_set.h"
#include "ucp/bulk/threads/thread_pool.h"
#include "ucp/lanes/driver/lane_driver.h"
#include "ucs/log.h"

namespace ucp::bulk {

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
