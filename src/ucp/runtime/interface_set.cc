// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/runtime/interface_set.h"

#include <algorithm>
#include <new>
#include <utility>

#include "ucp/base/sender.h"
#include "ucs/log/log.h"
#include "uct/base/am.h"
#include "uct/checked/checked_interface.h"

namespace ucp {
namespace {

// What peers of a job arrange with each other: addresses to connect to, lanes, queue pairs.
bool is_among_peers(AmId id) {
    switch (id) {
        case AmId::kLane:
        case AmId::kMarker:
        case AmId::kOrdered:
        case AmId::kBulkRevoke:
        case AmId::kBulkRevokeDone:
        case AmId::kBulkQueuePair:
        case AmId::kMemoryNews:
            return true;
        default:
            return false;
    }
}

// Can a worker that sleeps be woken by it? Messages of a worker to itself need not: they are there
// when the call that sends them returns.
bool can_wake(const uct::InterfaceAttributes& attributes) {
    return (attributes.capabilities & uct::kEventFd) != 0 ||
           attributes.device_type == uct::DeviceType::kSelf;
}

ucs_status_t drop_message(void*, void*, size_t length, uct::ReceiveDescriptor*) {
    ucs::log_warn("a message of {} bytes and unknown kind was dropped", length);
    return UCS_OK;
}

}  // namespace

InterfaceSet::InterfaceSet() {
    handlers_.entries.fill({drop_message, nullptr});
}

void InterfaceSet::deliver(uint64_t worker, uint8_t id, void* data, size_t length) {
    // Handlers see this sender while the message is delivered. It was admitted when it came, and
    // the message that is handled now may be another peer's.
    struct Its {
        Its(uct::PeerIdentity*& sender, uct::PeerIdentity& its)
            : place_(sender), sender_(std::exchange(sender, &its)) {}
        ~Its() { place_ = sender_; }
        Its(const Its&) = delete;

      private:
        uct::PeerIdentity*& place_;
        uct::PeerIdentity* const sender_;
    };
    uct::PeerIdentity from{.worker = worker, .is_lane = true};
    const Its its(sender_, from);
    uct::dispatch_am(handlers_, id % uct::kMaxAmId, data, length, nullptr);
}

void InterfaceSet::lost(void* arg, uint8_t id, const void* data, size_t length) {
    const auto& self = *static_cast<InterfaceSet*>(arg);
    const std::span bytes(static_cast<const std::byte*>(data), length);
    ucs::log_error("no memory for a message of {} bytes", length);
    std::optional<uint64_t> sender = claimed_sender(static_cast<AmId>(id), bytes);
    if (!sender && self.sender_ != nullptr) {
        const uint64_t worker = self.peers_.worker_of(*self.sender_);
        if (worker != 0) sender = worker;
    }
    self.message_lost(sender);
}

void InterfaceSet::refuse(uct::PeerIdentity& from, AmId id, uint64_t claimed) {
    const auto level = from.was_refused ? ucs::LogLevel::kDiag : ucs::LogLevel::kWarn;
    from.was_refused = true;
    ucs::log(level,
             "a message of kind {} in the name of worker {:016x} came over a connection that is "
             "not that worker's: dropped, as are more of its kind",
             static_cast<unsigned>(id), claimed);
}

void InterfaceSet::refuse_sender(AmId id, uint64_t claimed) {
    if (sender_ != nullptr) refuse(*sender_, id, claimed);
}

// A message of the peer is lost. A later one must not be taken in its place, so the peer is not
// heard any more, over any transport.
void InterfaceSet::corrupted(void* arg, uct::PeerIdentity* from) {
    auto& self = *static_cast<InterfaceSet*>(arg);
    uint64_t worker = self.uuid_;
    if (from != nullptr) {
        from->is_over = true;
        const uint64_t known = self.peers_.worker_of(*from);
        worker = known != 0 ? known : from->worker;
    }
    if (worker == 0) {
        ucs::log_error("whose message that was is not known here: nothing more is heard of it");
        return;
    }
    self.cut_off_.insert(worker);
    self.handlers_.admits = admits_others;
    self.errors_.cut_off(self.errors_.self, worker, UCS_ERR_IO_ERROR);
}

size_t* InterfaceSet::find_account(uint64_t claimed) {
    try {
        size_t* const account = peer_memory_.account_of(payer(claimed));
        if (sender_ != nullptr) {
            sender_->account = account;
            sender_->account_generation = account_generation();
        }
        return account;
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}

void InterfaceSet::too_much(uint64_t claimed) {
    const uint64_t account = payer(claimed);
    ucs::log_error(
        "worker {:016x} has sent {} bytes that nobody here has received: it is cut off; receive "
        "earlier, send less ahead, or raise UCX_PEER_MEMORY",
        account, peer_memory_.held(account));
    if (sender_ != nullptr) sender_->is_over = true;
    handlers_.asked = ~uint32_t{0};  // also about short ones: whoever is cut off is not heard
    errors_.cut_off(errors_.self, account, UCS_ERR_EXCEEDS_LIMIT);
}

bool InterfaceSet::admits(void* arg, uct::PeerIdentity& from, uint8_t id, const void* data,
                          size_t length) {
    auto& self = *static_cast<InterfaceSet*>(arg);
    if (from.is_over) return false;
    const std::span bytes(static_cast<const std::byte*>(data), length);
    const std::optional<uint64_t> claimed = claimed_sender(static_cast<AmId>(id), bytes);
    if (claimed && !self.peers_.is_from(from, *claimed)) {
        refuse(from, static_cast<AmId>(id), *claimed);
        return false;
    }
    if (!self.peers_.is_guest(from.name) || !is_among_peers(static_cast<AmId>(id))) return true;
    ucs::log_diag("a message of kind {} is not for guests to send: dropped", id);
    return false;
}

// admits(), from the moment when a worker is cut off.
bool InterfaceSet::admits_others(void* arg, uct::PeerIdentity& from, uint8_t id, const void* data,
                                 size_t length) {
    const auto& self = *static_cast<InterfaceSet*>(arg);
    return !self.cut_off_.contains(self.peers_.worker_of(from)) &&
           admits(arg, from, id, data, length);
}

ucs_status_t InterfaceSet::open_one(Context& context, unsigned index,
                                    const uct::InterfaceParams& params) {
    const TransportResource& resource = context.resources()[index];
    WorkerInterface interface;
    interface.resource = index;
    interface.domain = resource.domain;
    interface.kind = resource.kind;
    interface.distance = resource.distance;
    // Not on a virtual clock, where each look counts as a step of time.
    interface.may_rest =
        resource.device_type == uct::DeviceType::kNetwork && !context.virtual_time();
    uct::MemoryDomain& domain = *context.domains()[resource.domain].memory;
    const auto open = [&](const uct::InterfaceParams& below,
                          std::unique_ptr<uct::Interface>* transport) {
        return domain.open_interface(resource.transport, below, transport);
    };
    const ucs_status_t status =
        checked_ ? uct::CheckedInterface::create(params, open, *checked_, &interface.transport)
                 : open(params, &interface.transport);
    if (status != UCS_OK) {
        ucs::log_warn("{} on {} cannot be opened: {}", resource.transport, resource.device,
                      ucs_status_string(status));
        return status;
    }
    const auto& attributes = interface.transport->attributes();
    if (context.has_feature(UCP_FEATURE_WAKEUP) && !can_wake(attributes)) {
        ucs::log_info("{} on {} is left out: it can wake nobody, and the program wants to sleep",
                      resource.transport, resource.device);
        return UCS_ERR_UNSUPPORTED;
    }
    interfaces_.push_back(std::move(interface));
    return UCS_OK;
}

ucs_status_t InterfaceSet::open(Context& context, uint64_t uuid, ucs::Random& random,
                                const ErrorHandler& errors, bool has_checksums,
                                unsigned copy_threads) {
    DomainLock lock(context.domains());
    errors_ = errors;
    uuid_ = uuid;
    queue_pair_budget_ = &context.queue_pair_budget();
    handlers_.lost = lost;
    handlers_.lost_arg = this;
    handlers_.admits = admits;
    handlers_.admits_arg = this;
    handlers_.asked = ids_with_claims();
    handlers_.sender = &sender_;
    handlers_.is_enough = &is_enough_;
    if (has_checksums) checked_.emplace(handlers_, uct::CheckedMessages::Report{corrupted, this});
    if (copy_threads != 0) copy_threads_ = std::make_unique<uct::CopyThreads>(copy_threads);
    const uct::InterfaceParams params{context.clock(),
                                      random,
                                      handlers_,
                                      errors.callback,
                                      errors.self,
                                      uuid,
                                      context.estimated_endpoints(),
                                      nullptr,
                                      copy_threads_.get()};
    for (unsigned index = 0; index < context.resources().size(); ++index)
        open_one(context, index, params);
    for (WorkerInterface& interface : interfaces_) {
        const bool is_network =
            interface.transport->attributes().device_type == uct::DeviceType::kNetwork;
        if (is_network) {
            networks_.push_back(&interface);
        } else {
            memories_.push_back({&interface.transport->interest(), interface.transport.get()});
        }
    }
    const bool has_scalable = std::ranges::any_of(interfaces_, [](const auto& interface) {
        return interface.transport->attributes().reach == uct::Reach::kInterface;
    });
    if (!has_scalable) {
        ucs::log_error("no scalable transport works here: UCX_TLS must admit one, dc_mlx5 say");
        return UCS_ERR_NO_DEVICE;
    }
    return UCS_OK;
}

// A word must not be updated by an adapter and by a CPU: each would miss the other's updates. If
// one transport in use leaves atomics to the CPU, as the scalable lane of ud_verbs does, all have
// to.
void InterfaceSet::choose_atomics(AtomicMode mode) {
    const auto any = [&](uint32_t wanted, uint32_t has) {
        return std::ranges::any_of(interfaces_, [&](const auto& interface) {
            return (interface.transport->attributes().capabilities & wanted) == has;
        });
    };
    const bool has_none = any(uct::kAtomicCpu | uct::kAtomicDevice, 0);
    if (mode == AtomicMode::kDevice && has_none) {
        ucs::log_warn(
            "UCX_ATOMIC_MODE=device has no effect: a transport of UCX_TLS has no atomics, and the "
            "processor, which executes them there, and the adapter would miss each other's");
    }
    uses_device_atomics_ =
        !has_none && (mode == AtomicMode::kDevice ||
                      (mode == AtomicMode::kGuess && !any(uct::kAtomicCpu, uct::kAtomicCpu)));
}

size_t InterfaceSet::max_am_header() const {
    constexpr size_t kMostOverhead = 256;  // headers of ours and a packed key beside the user's
    size_t room = SIZE_MAX;
    for (const WorkerInterface& interface : interfaces_)
        room = std::min(room, interface.transport->attributes().am.max_bcopy);
    room -= std::min(room, sizeof(OrderedHeader));  // an OrderedLane takes that much less
    room = std::min<size_t>(room, 64 * 1024);
    return room > 2 * kMostOverhead ? room - kMostOverhead : room / 2;
}

// To poll an adapter costs many times what a look into shared memory does. One that has had nothing
// for long is polled seldom: its next message waits for a few more calls, which is little beside
// the time that it has been silent.
unsigned InterfaceSet::poll_networks() {
    constexpr uint32_t kQuietPolls = 4096;
    const bool is_seldom = ++network_polls_ % kSeldom == 0;
    bool all_rest = true;
    unsigned events = 0;
    for (WorkerInterface* interface : networks_) {
        if (interface->quiet >= kQuietPolls && !is_seldom) continue;
        const unsigned found = interface->transport->progress();
        events += found;
        if (found != 0) interface->quiet = 0;
        if (found == 0 && interface->may_rest && interface->quiet < kQuietPolls) ++interface->quiet;
        all_rest &= interface->quiet >= kQuietPolls;
    }
    if (all_rest) {
        rest_ = kSeldom - 1;
        network_polls_ = kSeldom - 1;
    }
    return events;
}

void InterfaceSet::look_first_at(const uct::Interface* transport) {
    std::swap(memories_.front(), *std::ranges::find(memories_, transport, &Nearby::transport));
}

// Polls interfaces that have nothing to tell, too: something may be due by time.
unsigned InterfaceSet::poll_all() {
    until_all_ = kPollAll;
    unsigned events = 0;
    for (const Nearby& memory : memories_) events += memory.transport->progress();
    return events;
}

unsigned InterfaceSet::poll_others(const Nearby& met, unsigned events) {
    const uct::Interface* const transport = met.transport;
    if (events != 0 && transport != memories_.front().transport) {
        look_first_at(transport);
        if (is_alone()) return events;
    }
    for (const Nearby& memory : memories_) {
        if (memory.transport != transport && memory.interest->is_met()) [[unlikely]]
            events += memory.transport->progress();
    }
    return events + poll_rest();
}

unsigned InterfaceSet::poll_rest() {
    if (may_rest()) return 0;
    // No network is in use: all processes are of this host.
    if (networks_.empty()) {
        rest_ = kSeldom * kPollAll - 1;
        return poll_all();
    }
    unsigned events = 0;
    if (--until_all_ == 0) [[unlikely]]
        events += poll_all();
    return events + poll_networks();
}

void InterfaceSet::look_everywhere() {
    rest_ = 0;
    for (WorkerInterface& interface : interfaces_) {
        interface.quiet = 0;
        interface.transport->look_soon();
    }
}

ucs::Time InterfaceSet::next_deadline() const {
    ucs::Time next = ucs::kNever;
    for (const WorkerInterface& interface : interfaces_)
        next = std::min(next, interface.transport->next_deadline());
    return next;
}

bool PeerNames::learn(uint64_t name, uint64_t worker, bool overrules) {
    const auto known = workers_.find(name);
    if (known != workers_.end()) {
        if (known->second == worker) return true;
        if (!overrules) return false;
        drop(name, known->second);
    }
    names_.emplace(worker, name);
    workers_[name] = worker;
    ++generation_;
    return true;
}

void PeerNames::drop(uint64_t name, uint64_t worker) {
    const auto [first, last] = names_.equal_range(worker);
    const auto found = std::find_if(first, last, [&](const auto& it) { return it.second == name; });
    if (found != last) names_.erase(found);
    workers_.erase(name);
}

void PeerNames::forget(uint64_t worker) {
    const auto [first, last] = names_.equal_range(worker);
    if (first == last) return;
    for (auto next = first; next != last; ++next) {
        workers_.erase(next->second);
        guests_.erase(next->second);
    }
    names_.erase(first, last);
    ++generation_;
}

bool PeerNames::is_listed(uint64_t worker, uint64_t name) const {
    const auto [first, last] = names_.equal_range(worker);
    return std::any_of(first, last, [&](const auto& known) {
        return ((known.second ^ name) & uct::kNameKindMask) == 0;
    });
}

bool PeerNames::find_out(uct::PeerIdentity& peer, uint64_t worker) {
    const auto known = workers_.find(peer.name);
    const bool is_free = peer.worker == 0 || peer.worker == worker;
    const bool is_his = known != workers_.end() ? known->second == worker
                                                : is_free && !is_listed(worker, peer.name);
    if (is_his) {
        peer.worker = worker;
        peer.generation = generation_;
    }
    return is_his;
}

}  // namespace ucp
