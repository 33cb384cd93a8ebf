// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ucp/base/wire.h"
#include "ucp/context/context.h"
#include "ucp/runtime/peer_memory.h"
#include "ucs/sys/time.h"
#include "uct/api/interface.h"
#include "uct/base/copy_threads.h"
#include "uct/checked/checked_messages.h"

namespace ucp {

// Which worker speaks on which connection, where the transport knows its connections apart.
//
// A worker's address lists the names that its connections bear (uct::Interface::name_of()). From
// then on nobody else speaks for that worker by this kind of transport, and these connections for
// no other. A connection that no address has named is its first claimant's.
class PeerNames {
  public:
    // A worker's address lists that name.
    // @param overrules  takes the name from a worker that has it: the program itself brought the
    // address
    // @return false: the name is another worker's
    bool learn(uint64_t name, uint64_t worker, bool overrules);
    // No endpoint to the worker is left: its names are free.
    void forget(uint64_t worker);
    // The worker that has the name; 0: none that is known.
    uint64_t worker_of(uint64_t name) const {
        const auto known = workers_.find(name);
        return known == workers_.end() ? 0 : known->second;
    }
    // The worker that the connection belongs to; 0: none that is known.
    uint64_t worker_of(const uct::PeerIdentity& peer) const {
        return peer.is_lane ? peer.worker : worker_of(peer.name);
    }
    // The account that pays for memory of the connection's messages: the worker's, or the name's if
    // the worker is not known.
    uint64_t account_of(const uct::PeerIdentity& peer) const {
        const uint64_t worker = worker_of(peer);
        return worker != 0 ? worker : peer.name;
    }
    // Another one whenever a connection's worker may be another one.
    uint32_t generation() const { return generation_; }
    // The worker of that name is a guest, whose messages count for its own endpoint only. Until
    // forget().
    void set_guest(uint64_t name) { guests_.insert(name); }
    bool is_guest(uint64_t name) const { return !guests_.empty() && guests_.contains(name); }
    // May messages of that connection be the worker's?
    bool is_from(uct::PeerIdentity& peer, uint64_t worker) {
        if (peer.worker == worker && (peer.is_lane || peer.generation == generation_)) [[likely]]
            return true;
        return !peer.is_lane && find_out(peer, worker);
    }
    size_t size() const { return workers_.size(); }

  private:
    void drop(uint64_t name, uint64_t worker);
    // is_from(), where the connection has not been looked up yet, or is another worker's.
    bool find_out(uct::PeerIdentity& peer, uint64_t worker);
    // Has an address told which names the worker bears by the same kind of transport?
    bool is_listed(uint64_t worker, uint64_t name) const;

    std::unordered_map<uint64_t, uint64_t> workers_;     // by name
    std::unordered_multimap<uint64_t, uint64_t> names_;  // by worker
    std::unordered_set<uint64_t> guests_;                // names
    uint32_t generation_ = 1;                            // of what is known
};

// A transport as a worker uses it.
struct WorkerInterface {
    std::unique_ptr<uct::Interface> transport;
    unsigned resource;            // Context::resources()
    unsigned domain;              // Context::domains()
    uint32_t kind;                // hash of the transport's name
    float distance;               // seconds from the process's CPUs to the device
    unsigned endpoints_made = 0;  // on it so far, closed ones included
    bool may_rest = false;        // polled seldom while nothing comes
    uint32_t quiet = 0;           // polls without an event, if it may rest
};

// The transports of a worker: who handles their messages, and which of them are polled when.
class InterfaceSet {
  public:
    // Where transports report failed endpoints: called from within their calls.
    struct ErrorHandler {
        void (*callback)(void* self, uct::Endpoint* lane, ucs_status_t status);
        // A message was lost for lack of memory.
        // @param sender  its sender's uuid, if it names one
        void (*message_lost)(void* self, std::optional<uint64_t> sender);
        // Nothing more is heard of that worker. @param why  UCS_ERR_EXCEEDS_LIMIT: it has more here
        // than it may (PeerMemory); UCS_ERR_IO_ERROR: a message was not what was sent
        // (UCX_CHECKSUM)
        void (*cut_off)(void* self, uint64_t sender, ucs_status_t why);
        void* self;
    };

    InterfaceSet();
    InterfaceSet(InterfaceSet&&) = delete;

    // Opens what the context admits; handlers of messages may be set before and after.
    // @param has_checksums  messages bear them (UCX_CHECKSUM)
    // @param copy_threads  for copies within the host; 0: they are done in progress
    // @return UCS_ERR_NO_DEVICE if no scalable transport is among them
    ucs_status_t open(Context& context, uint64_t uuid, ucs::Random& random,
                      const ErrorHandler& errors, bool has_checksums, unsigned copy_threads);

    // Before any such message can arrive.
    void set_handler(AmId id, uct::AmHandler handler, void* argument) {
        handlers_.entries[static_cast<size_t>(id)] = {handler, argument};
    }
    // A share of the budget for one more dedicated queue pair; an empty one if the budget is used
    // up.
    QueuePairBudget::Share take_queue_pair(unsigned index, QueuePairBudget::Use use) {
        return queue_pair_budget_->take(interfaces_[index].domain, use);
    }
    // How many more queue pairs the budgets of that interface's adapter and of the context allow;
    // UINT32_MAX: any number.
    unsigned queue_pair_room_of(unsigned index) const {
        return queue_pair_budget_->room_of(interfaces_[index].domain);
    }
    unsigned queue_pair_room() const { return queue_pair_budget_->room(); }
    // Both interfaces are of one adapter: a queue pair less of the one makes room for one of the
    // other.
    bool share_an_adapter(unsigned index, unsigned other) const {
        return queue_pair_budget_->share_an_adapter(interfaces_[index].domain,
                                                    interfaces_[other].domain);
    }
    // A lane of some worker of the process found no room.
    bool is_lane_wanted() const { return queue_pair_budget_->is_lane_wanted(); }
    // Hands over a message that was held back, or that came within another one of that worker.
    void deliver(uint64_t worker, uint8_t id, void* data, size_t length);

    // --- whom messages are from, where transports know it ---

    PeerNames& peers() { return peers_; }
    // May the message that is being handled be that worker's?
    bool may_be_from(uint64_t worker) {
        return sender_ == nullptr || peers_.is_from(*sender_, worker);
    }
    // The name of the connection of the message that is being handled; 0: it has none.
    uint64_t sender_name() const { return sender_ == nullptr ? 0 : sender_->name; }
    // The account in peer_memory() of the message that is being handled: the worker's if it is
    // known, else that of the connection's name. @param claimed  whom it names itself; 0: nobody
    // @return null: it is not counted, or there is no memory to count it
    size_t* account_of(uint64_t claimed) {
        if (sender_ == nullptr || sender_->account_generation != account_generation()) [[unlikely]]
            return find_account(claimed);
        return sender_->account;
    }
    PeerMemory& peer_memory() { return peer_memory_; }
    // The message that is being handled is more than its account may have: its sender is cut off.
    void too_much(uint64_t claimed);
    // One line for each peer: what it sends in another's name is dropped.
    void refuse_sender(AmId id, uint64_t claimed);
    // A message was lost for lack of memory.
    // @param sender  its sender's uuid, if it names one
    void message_lost(std::optional<uint64_t> sender) const {
        errors_.message_lost(errors_.self, sender);
    }

    // Null: copies within the host are done in progress.
    const uct::CopyThreads* copy_threads() const { return copy_threads_.get(); }

    std::span<WorkerInterface> list() { return interfaces_; }
    std::span<const WorkerInterface> list() const { return interfaces_; }
    // No lane has anything under way. False also where that would have to be asked of each lane.
    bool are_flushed() const {
        for (const WorkerInterface& each : interfaces_) {
            if (!each.transport->is_flushed()) return false;
        }
        return true;
    }
    size_t size() const { return interfaces_.size(); }
    WorkerInterface& operator[](unsigned index) { return interfaces_[index]; }
    const WorkerInterface& operator[](unsigned index) const { return interfaces_[index]; }
    const uct::InterfaceAttributes& attributes(unsigned index) const {
        return interfaces_[index].transport->attributes();
    }
    // The longest header of a user's active message that every lane takes.
    size_t max_am_header() const;
    // All transports are open.
    void choose_atomics(AtomicMode mode);
    // Atomics of adapters that are not atomic with the CPU's may be used: all use them.
    bool uses_device_atomics() const { return uses_device_atomics_; }

    // A transport that is no network's, and whether it has to be polled.
    struct Nearby {
        const uct::Interest* interest;
        uct::Interface* transport;
    };

    // The first of those that has something; null: none has.
    const Nearby* find_met() const {
        for (const Nearby& memory : memories_) {
            if (memory.interest->is_met()) return &memory;
        }
        return nullptr;
    }
    // Where find_met() finds none: need a call look at nothing else? If so this was one.
    bool may_rest() {
        polled_alone_ = 0;
        if (rest_ == 0) return false;
        --rest_;
        return true;
    }
    // Looks for messages and completions. @param met  of find_met(). @return events found
    //
    // The transport in memory that something came from last is looked at first, and when it has
    // more, mostly alone: the answer to a message need not wait for looks elsewhere. Only where no
    // call between finds nothing must one that finds something look further. A call that finds
    // nothing has looked at all that is in memory; at networks behind look_everywhere(). To look is
    // to read a word: who has nothing is not called.
    unsigned poll(const Nearby* met) {
        sender_ = nullptr;  // a handler of the program's may have thrown
        is_enough_ = false;
        if (met == nullptr) return poll_rest();
        const unsigned events = met->transport->progress();
        if (events != 0 && met == memories_.data() && is_alone()) [[likely]]
            return events;
        return poll_others(*met, events);
    }
    // Set by a handler: the program has something to do before this poll() takes more.
    bool& is_enough() { return is_enough_; }
    // The next poll() looks at every transport: if it finds nothing, nothing had come.
    void look_everywhere();
    ucs::Time next_deadline() const;

  private:
    static constexpr uint32_t kPollAll = 4;
    static constexpr uint32_t kSeldom = 16;
    static constexpr uint32_t kAlone = 4;

    // Both only grow: so the sum is another one when either is.
    uint32_t account_generation() const { return peers_.generation() + peer_memory_.generation(); }
    [[gnu::noinline]] size_t* find_account(uint64_t claimed);
    uint64_t payer(uint64_t claimed) const {
        return sender_ == nullptr ? claimed : peers_.account_of(*sender_);
    }
    static void lost(void* self, uint8_t id, const void* data, size_t length);
    static bool admits(void* self, uct::PeerIdentity& from, uint8_t id, const void* data,
                       size_t length);
    static bool admits_others(void* self, uct::PeerIdentity& from, uint8_t id, const void* data,
                              size_t length);
    static void refuse(uct::PeerIdentity& from, AmId id, uint64_t claimed);
    static void corrupted(void* self, uct::PeerIdentity* from);
    ucs_status_t open_one(Context& context, unsigned resource, const uct::InterfaceParams& params);
    unsigned poll_all();
    unsigned poll_networks();
    // Need nothing be looked at beside the transport that something came from?
    bool is_alone() { return ++polled_alone_ < kAlone; }
    // Behind a look at that one. @param events  that it had
    [[gnu::noinline]] unsigned poll_others(const Nearby& met, unsigned events);
    [[gnu::noinline]] unsigned poll_rest();
    void look_first_at(const uct::Interface* transport);

    ErrorHandler errors_{};
    uct::AmTable handlers_;
    PeerNames peers_;
    PeerMemory peer_memory_;
    // Workers of which nothing more is heard, whatever it comes over.
    std::unordered_set<uint64_t> cut_off_;
    uint64_t uuid_ = 0;
    std::optional<uct::CheckedMessages> checked_;     // if messages bear checksums
    std::unique_ptr<uct::CopyThreads> copy_threads_;  // of UCX_BULK_WORKERS; null: none
    uct::PeerIdentity* sender_ = nullptr;  // of the message that is being handled, if known
    bool is_enough_ = false;
    std::vector<WorkerInterface> interfaces_;
    std::vector<WorkerInterface*> networks_;  // those to be polled seldom
    uint32_t network_polls_ = 0;
    uint32_t rest_ = 0;              // calls until one of those is polled
    std::vector<Nearby> memories_;   // the one that something came from last is first
    uint32_t until_all_ = kPollAll;  // looks at networks until all of these are polled
    uint32_t polled_alone_ = 0;      // calls in turn that found something and looked no further
    bool uses_device_atomics_ = false;
    QueuePairBudget* queue_pair_budget_ = nullptr;
};

}  // namespace ucp
