// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <boost/intrusive/list.hpp>

#include "ucs/sys/time.h"
#include "uct/api/interface.h"
#include "uct/base/am.h"
#include "uct/base/copy_queue.h"
#include "uct/base/pending_queue.h"
#include "uct/sm/config.h"
#include "uct/sm/inbox.h"
#include "uct/sm/outbox.h"
#include "uct/sm/region.h"

namespace uct::sm {

class SmEndpoint;

struct WatchTag;
// Links an endpoint among those whose peers are watched.
using WatchHook = boost::intrusive::list_base_hook<boost::intrusive::tag<WatchTag>>;

// The hosts, or parts of hosts, within which processes reach each other's descriptors.
struct HostAddress {
    static constexpr size_t kLength = 20;

    uint64_t host;           // ucs::host_id()
    uint64_t pid_namespace;  // process numbers mean the same
    uint32_t user;           // segments are private to their user

    static HostAddress own();
    void write(std::span<std::byte> bytes) const;
    // Does it equal the bytes?
    bool is(std::span<const std::byte> bytes) const;
};

// What both interfaces over shared memory share: address, limits, waiting endpoints, the watch over
// peers, and a pipe that peers write to when this side sleeps.
class SmInterface : public Interface {
  public:
    // What all transports over shared memory can, and the words for all of them.
    static constexpr uint32_t kCapabilities =
        kAmShort | kAmBcopy | kAmZcopy | kPutShort | kPutBcopy | kPutZcopy | kGetBcopy | kGetZcopy |
        kAtomicCpu | kCheckPeer | kEventFd | kPieces | kCopies;
    static constexpr std::string_view kWords[] = {"sm",   "shm",   "mm",  "posix",
                                                  "sysv", "xpmem", "cma", "knem"};

    ~SmInterface() override;

    ucs_status_t get_device_address(std::span<std::byte> address) const override;
    ucs_status_t flush(Completion* completion) override { return copies_.flush_all(completion); }
    bool is_flushed() const override { return copies_.is_idle(); }
    int event_fd() const override { return wake_pipe_[0]; }
    ucs_status_t arm() override;
    // Soon, while somebody waits for room, or for what no sender wakes this side for.
    ucs::Time next_deadline() const override;

    // Whoever works with it may leave something to progress().
    PendingQueue& pending() {
        interest_.mark();
        return pending_;
    }
    void add(SmEndpoint& endpoint);
    void remove(SmEndpoint& endpoint);
    // Report in the next progress that the endpoint has failed.
    void report_later(SmEndpoint& endpoint, ucs_status_t status) {
        failures_.emplace_back(&endpoint, status);
        interest_.mark();
        wake_own_progress();
    }
    // A call has left something to progress(): another thread may sleep on the descriptor since
    // arm(), and no peer need ever wake it.
    void wake_own_progress() const {
        if (is_asleep_) [[unlikely]]
            rouse();
    }
    // Start a copy between this process and a peer's memory; see CopyQueue::start().
    ucs_status_t copy(CopyGroup& group, const LocalCopy& copy, Completion* completion);
    // The same of one piece that is short: see CopyQueue::copy_short().
    ucs_status_t copy_short(CopyDirection direction, const Iov& piece, uint64_t remote,
                            RemoteKey key) {
        const ucs_status_t status = copies_.copy_short(direction, piece, remote, key);
        if (status == UCS_OK && copies_.wants_progress()) spent();
        return status;
    }
    // What copies are under way, and whether there is room for more in this turn.
    CopyQueue& copies() { return copies_; }
    PieceCopier& pieces() { return pieces_; }
    // Other bytes were copied: long calls of progress are made of many short copies as well.
    void spend(size_t bytes) {
        copies_.spend(bytes);
        if (copies_.wants_progress()) [[unlikely]]
            interest_.mark();
    }
    // A piece of private memory of max_bcopy bytes.
    std::byte* scratch() { return scratch_.get(); }

  protected:
    SmInterface(const Config& config, const InterfaceParams& params,
                const TransportDeclaration& transport);

    ucs_status_t open_pipe();
    int wake_descriptor() const { return wake_pipe_[1]; }

    // Hand over one message. @return true if the descriptor was kept
    bool deliver(uint8_t id, void* data, size_t length, ReceiveDescriptor* descriptor) const {
        return dispatch_am(params_.am_table, id, data, length, descriptor);
    }

    // AmTable::is_enough.
    const bool& is_enough() const { return *params_.am_table.is_enough; }

    // What progress() does besides polling. @return what it did; 0: no need to do it again
    unsigned after_poll() {
        unsigned count = 0;
        if (interest_.is_marked()) [[unlikely]]
            count = serve();
        if (--watch_countdown_ == 0) [[unlikely]]
            watch();
        return count;
    }

    // Tell senders that this side sleeps. @return UCS_ERR_BUSY if a message has come
    virtual ucs_status_t fall_asleep() = 0;
    virtual void wake_up() = 0;
    // Called a few times a second.
    virtual void look_after_queues() {}
    // Messages may still come for which no sender wakes this side.
    virtual bool awaits_late() const { return false; }
    // Called in each progress while awaits_late(). @return how many have come
    virtual unsigned take_late() { return 0; }

    const Config config_;
    const InterfaceParams params_;
    const HostAddress host_ = HostAddress::own();

  private:
    static constexpr uint32_t kWatchPolls = 32;

    [[gnu::noinline]] void rouse() const;
    // A new turn is to begin.
    void spent() {
        interest_.mark();
        if (copies_.needs_progress()) wake_own_progress();
    }
    [[gnu::noinline]] unsigned serve();
    bool serve_waiting();
    void watch();

    using Endpoints = boost::intrusive::list<SmEndpoint, boost::intrusive::base_hook<WatchHook>,
                                             boost::intrusive::constant_time_size<false>>;

    // Of calls of progress(), most of which a worker leaves out (Interest): it is marked for
    // failures to report, asleep, who waits, copies, a turn that is used up in part, awaits_late().
    uint32_t watch_countdown_ = kWatchPolls;
    bool is_asleep_ = false;
    ucs::Time next_watch_;
    CopyQueue copies_;
    PieceCopier pieces_;
    PendingQueue pending_;
    Endpoints endpoints_;  // the one to look at next is first
    std::vector<std::pair<SmEndpoint*, ucs_status_t>> failures_;
    std::vector<SmEndpoint*> refused_;  // found without room by the dispatch that runs
    std::unique_ptr<std::byte[]> scratch_;
    int wake_pipe_[2] = {-1, -1};
};

}  // namespace uct::sm
