// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "ucs/datastruct/arbiter.h"
#include "ucs/sys/time.h"
#include "uct/api/types.h"

namespace ucs {
class Random;
namespace config {
class Source;
}
}  // namespace ucs

namespace uct {

class CopyThreads;
class GuestHost;
class Interface;
class MemoryDomain;

// What the lowest bits of a name say: by which kind of transport its bearer is known. A worker's
// address tells all names that it bears by one kind, or none of them.
enum class NameKind : uint8_t { kTcp, kFifo, kUd, kDc };
inline constexpr uint64_t kNameKindMask = 7;

constexpr uint64_t peer_name(NameKind kind, uint64_t unique) {
    return (unique & ~kNameKindMask) | static_cast<uint64_t>(kind);
}

// Whom the messages of a connection come from, as a transport that knows it says.
struct PeerIdentity {
    uint64_t name = 0;  // Interface::name_of() the address that they come from
    // The worker's: whom it takes the name for.
    uint64_t worker = 0;
    uint32_t generation = 0;
    // The worker's: where the memory here that its messages take up is counted.
    uint32_t account_generation = 0;
    size_t* account = nullptr;
    bool was_refused = false;
    bool is_over = false;  // the worker hears nothing more of it: the transport ends it
    bool is_lane = false;  // Endpoint::set_peer() says whose it is; there is no name
};

// The active-message handlers of a worker, one table for all its interfaces.
struct AmTable {
    struct Entry {
        AmHandler handler;
        void* arg;
    };
    std::array<Entry, kMaxAmId> entries;

    // A handler found no memory for a message, which is lost; null: the exception goes on.
    void (*lost)(void* arg, uint8_t id, const void* data, size_t length) = nullptr;
    void* lost_arg = nullptr;

    // Transports that know whom a message is from ask before they hand it over; null: all are
    // admitted. @return false: it is dropped
    bool (*admits)(void* arg, PeerIdentity& from, uint8_t id, const void* data,
                   size_t length) = nullptr;
    void* admits_arg = nullptr;
    // Bit i: transports that ask for the messages that it takes, not for all, ask for id i.
    uint32_t asked = 0;
    // Set while a message is handled whose sender is known.
    PeerIdentity** sender = nullptr;
    // Set by a handler: who calls progress has something to do before more is taken. A transport
    // that can leave messages where they are does so until the next call.
    const bool* is_enough = &kNever;
    static constexpr bool kNever = false;
};

// What a worker gives an interface that it opens. All references outlive the interface.
struct InterfaceParams {
    const ucs::Clock& clock;
    ucs::Random& random;
    const AmTable& am_table;
    ErrorHandler error_handler;
    void* error_arg;
    uint64_t worker_id;          // identity that flow control and wire-up put on the wire
    size_t estimated_endpoints;  // how many endpoints the program expects
    const ucs::config::Source* config = nullptr;  // the user's settings; null: the environment's
    CopyThreads* copy_threads = nullptr;          // for long copies within the host; null: none
};

// Addresses of a remote side, as read from a worker address or a negotiation message.
struct RemoteAddress {
    std::span<const std::byte> device;
    std::span<const std::byte> interface;  // empty for dedicated transports
    std::span<const std::byte> endpoint;   // empty for scalable transports
};

// A wish to send, waiting inside a transport endpoint until it has room.
//
// The owner embeds one for each transport endpoint it waits on; order among its own messages is
// its own affair. The transport serves waiting endpoints in turn. Elements that wait when their
// endpoint fails or is destroyed leave the queue without a call.
class Pending : public ucs::Arbiter::Element {
  public:
    // Try to send. During the call the element is in no queue. It may be freed or added to any
    // endpoint's queue if the call returns UCS_OK, and goes back to the front of this one
    // otherwise. The call must not destroy the endpoint that serves it.
    // @return UCS_OK: nothing left to send here; UCS_INPROGRESS: more to send, call again in turn;
    //         UCS_ERR_NO_RESOURCE: no room yet, keep waiting
    using Progress = ucs_status_t (*)(Pending* self);

    explicit Pending(Progress progress) : progress_(progress) {}
    ucs_status_t progress() { return progress_(this); }

  private:
    Progress progress_;
};

// One end of a connection; the data path of a transport.
//
// Operations return UCS_OK (done, buffers reusable), UCS_INPROGRESS (the completion will be
// called), UCS_ERR_NO_RESOURCE (nothing happened: wait with pending_add()), or an error of the
// endpoint. Active messages of one endpoint arrive in the order of the calls. Lengths are within
// the interface's limits: the caller checks them. Single-threaded with its interface.
//
// A failed endpoint returns its error from every operation. Completions may be null where the
// caller learns of the end by flush(). Destroying an endpoint with operations outstanding completes
// each of them later or at once, with UCS_ERR_CANCELED if at once; its active messages may be lost,
// so flush first. Endpoints may be destroyed inside completions, active-message handlers and error
// handlers.
class Endpoint {
  public:
    virtual ~Endpoint() = default;

    // --- active messages ---
    virtual ucs_status_t am_short(uint8_t id, uint64_t header, const void* payload,
                                  uint32_t length) = 0;
    // @return the bytes sent, or a negative ucs_status_t
    virtual ssize_t am_bcopy(uint8_t id, PackCallback pack, void* arg) = 0;
    virtual ucs_status_t am_zcopy(uint8_t id, std::span<const std::byte> header,
                                  std::span<const Iov> iov, Completion* completion) = 0;

    // --- remote memory access: remote completion is known by flush() ---
    virtual ucs_status_t put_short(const void* buffer, uint32_t length, uint64_t remote_address,
                                   RemoteKey key) = 0;
    virtual ssize_t put_bcopy(PackCallback pack, void* arg, uint64_t remote_address,
                              RemoteKey key) = 0;
    virtual ucs_status_t put_zcopy(std::span<const Iov> iov, uint64_t remote_address, RemoteKey key,
                                   Completion* completion) = 0;
    virtual ucs_status_t get_bcopy(UnpackCallback unpack, void* arg, size_t length,
                                   uint64_t remote_address, RemoteKey key,
                                   Completion* completion) = 0;
    virtual ucs_status_t get_zcopy(std::span<const Iov> iov, uint64_t remote_address, RemoteKey key,
                                   Completion* completion) = 0;
    // Fetching atomic on a naturally aligned operand; the old value lands in `result`, which must
    // live until completion (null: the old value is not wanted).
    // @param op       one that the interface's atomic32_ops or atomic64_ops names
    // @param size     4 or 8 bytes
    // @param operand  addend, mask, new value (kSwap, kCompareSwap)
    // @param compare  expected old value (kCompareSwap only)
    virtual ucs_status_t atomic(AtomicOp op, unsigned size, uint64_t operand, uint64_t compare,
                                void* result, uint64_t remote_address, RemoteKey key,
                                Completion* completion) = 0;

    // --- bulk transfers (docs/design/bulk.md) ---
    // Put several pieces with one doorbell; kPutChain. They may land in any order, before or after
    // other operations of this endpoint, fences notwithstanding. The completion counts once for
    // all that were taken: when every byte of them is in remote memory, or with an error when it
    // is not known which are.
    // @return how many were taken, from the front; 0: no room, wait with pending_add(); or a
    // negative ucs_status_t
    //
    // With kOrderedChain a message that is posted behind it is delivered when every byte of it is
    // in remote memory, and never if one is not: an endpoint with an error delivers nothing more.
    virtual ssize_t put_chain(std::span<const ChainPiece> pieces, Completion* completion) {
        return UCS_ERR_UNSUPPORTED;
    }
    // The same for gets; kGetChain. Once the completion was called, with an error too, or the
    // endpoint is destroyed, nothing of the chain is written to local memory any more.
    virtual ssize_t get_chain(std::span<const ChainPiece> pieces, Completion* completion) {
        return UCS_ERR_UNSUPPORTED;
    }

    // Put several short pieces, kLongestPiece bytes at most, by this processor; kPieces. Those that
    // are taken are in remote memory when the call returns. Registrations of the local memory are
    // not looked at.
    // @return how many were taken, from the front; 0: no room, wait with pending_add(); or the
    //         error of the first one, of which no byte has gone
    virtual ssize_t put_pieces(std::span<const ChainPiece> pieces) { return UCS_ERR_UNSUPPORTED; }
    // The same for gets.
    virtual ssize_t get_pieces(std::span<const ChainPiece> pieces) { return UCS_ERR_UNSUPPORTED; }

    // kCopies: this processor may as well access memory of the peer's that is mapped (MappedRegion)
    // without a call. Not while this is false: a copy under way is before the last fence.
    virtual bool may_access_mapped() const { return false; }

    // --- ordering and completion ---
    // Operations after the fence reach remote memory after those before it.
    virtual ucs_status_t fence() = 0;
    // Complete when all earlier operations are, on error too: one-sided ones at the remote side;
    // active messages when they no longer need this endpoint to get there, so that a flush behind
    // messages alone does not need the peer's progress.
    // @return UCS_OK if nothing is outstanding; UCS_INPROGRESS; UCS_ERR_NO_RESOURCE
    virtual ucs_status_t flush(Completion* completion) = 0;
    // It works, and flush() would find nothing outstanding. False where only flush() can tell.
    virtual bool is_flushed() const { return false; }
    // Send something harmless, so that a dead peer is noticed through the error handler.
    virtual ucs_status_t check(Completion* completion) = 0;

    // --- waiting for room ---
    // @return UCS_OK, UCS_ERR_BUSY if there is room now: send instead of waiting, or the error
    virtual ucs_status_t pending_add(Pending* pending) = 0;
    // No effect on an element that is in no queue.
    virtual void pending_remove(Pending* pending) = 0;

    // --- connection ---
    // Is this endpoint connected to that remote side, so that it can be reused for it?
    virtual bool is_connected(const RemoteAddress& remote) const = 0;
    // Dedicated: write endpoint_address_length bytes for the peer.
    virtual ucs_status_t get_address(std::span<std::byte> address) const {
        return UCS_ERR_UNSUPPORTED;
    }
    // Dedicated: bring the endpoint up towards the peer's; it can receive when this returns
    // UCS_OK.
    virtual ucs_status_t connect(const RemoteAddress& remote) { return UCS_ERR_UNSUPPORTED; }
    // Dedicated: the worker whose messages come here, before any can come. Those in another's name
    // are not delivered.
    virtual void set_peer(uint64_t worker) {}
    // Dedicated: messages go to the gate from now on (null: to their handlers).
    virtual void set_receive_gate(ReceiveGate* gate) {}

    // --- immediate data (docs/design/transports.md) ---
    // put_chain() whose end the peer is told of by `value`, without a message; kImmediate. The
    // value has the place of a message posted behind the chain, and takes room as one.
    // @return as put_chain(). The value is sent only if all pieces were taken; 0: nothing
    //         happened, put_chain() may have room all the same
    virtual ssize_t put_chain_immediate(std::span<const ChainPiece> pieces, uint32_t value,
                                        Completion* completion) {
        return UCS_ERR_UNSUPPORTED;
    }
    // Dedicated, kImmediate: what the peer's put_chain_immediate() sends comes as active messages
    // of this id, of two uint64_t: the tag and the value. Before this call it is dropped.
    virtual void deliver_immediates(uint8_t id, uint64_t tag) {}
};

// A word that somebody else writes into memory, and how it begins to look when something has come.
struct AwaitedWord {
    const std::atomic<uint64_t>* word;
    uint64_t expected;

    bool is_as_expected(uint64_t mask) const {
        return ((word->load(std::memory_order_acquire) ^ expected) & mask) == 0;
    }
};

// What an interface waits for, so that nobody need call its progress() in vain: words in memory,
// and a mark of its own. One that knows of no words leaves the mark set.
class Interest {
  public:
    Interest() = default;
    Interest(Interest&&) = delete;

    // To be called: something has come, or is to be done.
    bool is_met() const {
        for (const AwaitedWord* each = first_; each != last_; ++each) {
            if (each->is_as_expected(mask_)) return true;
        }
        return flag_->load(std::memory_order_relaxed) != 0;
    }

    // --- for the interface ---

    // progress() has something to do, whatever the words say; as at first.
    void mark() { set_mark(true); }
    void set_mark(bool is_marked) {
        is_marked_ = is_marked;
        first_ = is_marked ? &always_ : awaited_.data();
        last_ = is_marked ? &always_ + 1 : awaited_.data() + awaited_.size();
    }
    bool is_marked() const { return is_marked_; }
    // From now on these words, which may change where they lie, and these bits of them.
    void await(std::span<const AwaitedWord> words, uint64_t mask) {
        awaited_ = words;
        mask_ = mask;
        set_mark(is_marked_);
    }
    // And a word of others' that is not 0 while they have something for progress().
    void await_flag(const std::atomic<uint64_t>& flag) { flag_ = &flag; }

  private:
    const std::atomic<uint64_t> nothing_{0};
    const AwaitedWord always_{&nothing_, 0};
    const std::atomic<uint64_t>* flag_ = &nothing_;

    const AwaitedWord* first_ = &always_;  // those that are looked at
    const AwaitedWord* last_ = &always_ + 1;
    uint64_t mask_ = 0;
    std::span<const AwaitedWord> awaited_;
    bool is_marked_ = true;
};

// A transport on a device as one worker uses it: queues, buffers, progress.
class Interface {
  public:
    virtual ~Interface() = default;

    const InterfaceAttributes& attributes() const { return attributes_; }

    // Write device_address_length bytes: what tells which remote devices are reachable.
    virtual ucs_status_t get_device_address(std::span<std::byte> address) const = 0;
    // Scalable: write interface_address_length bytes.
    virtual ucs_status_t get_interface_address(std::span<std::byte> address) const {
        return UCS_ERR_UNSUPPORTED;
    }
    // Every byte is checked: addresses come from outside.
    virtual bool is_reachable(const RemoteAddress& remote) const = 0;

    // Scalable: an endpoint that can send at once. Dedicated: `remote` is empty, the endpoint waits
    // for connect(). Scalable, kConnectable: the same for an empty `remote`; such an endpoint is
    // for chains alone, is in all else as a dedicated one, and its peer's has to be one of these.
    // @return UCS_ERR_NO_RESOURCE if the device has no more; UCS_ERR_UNREACHABLE
    virtual ucs_status_t create_endpoint(const RemoteAddress& remote,
                                         std::unique_ptr<Endpoint>* endpoint) = 0;

    // Poll for completions and messages, serve waiting endpoints.
    // @return events handled; 0: until something comes, another call would do nothing
    virtual unsigned progress() = 0;
    // progress() need not be called while that is not met, but now and then: what only time brings,
    // such as the death of a peer, is seen to there. Lives as long as the interface.
    virtual const Interest& interest() const { return interest_; }
    // The next progress() looks at everything: if it returns 0, nothing had come.
    virtual void look_soon() {}

    // The name that messages from that interface bear here (PeerIdentity::name), whatever they say
    // of themselves; 0: this transport does not know whom a message is from. All interfaces of a
    // worker give it the same name: it need not be the one that made an address reachable.
    virtual uint64_t name_of(const RemoteAddress& remote) const { return 0; }

    // When progress() has work that only time brings; kNever if none.
    virtual ucs::Time next_deadline() const { return ucs::kNever; }

    // Scalable: from UCS_OK on, nothing that endpoints on the remote interface sent here before is
    // written to memory, however late it comes; they are of no more use. UCS_INPROGRESS: not yet,
    // ask again within 200 ms. Dedicated endpoints do the same by being destroyed.
    // @param number  of this cut: the same each time it is asked for, of no other of that interface
    virtual ucs_status_t cut_off(const RemoteAddress& remote, uint64_t number) { return UCS_OK; }

    // Packets that were sent again so far, if the transport itself sees to it that they arrive.
    virtual uint64_t retransmissions() const { return 0; }

    // False while the device has no link: what is posted waits, or fails. Costs no system call.
    virtual bool is_link_up() const { return true; }

    // The same interface as one that lets in guests (uct/api/guests.h); null: it does not.
    virtual GuestHost* guest_host() { return nullptr; }

    // Complete when all operations of all endpoints are complete, as Endpoint::flush().
    virtual ucs_status_t flush(Completion* completion) = 0;
    // flush() would find nothing outstanding. False where only flush(), or the endpoints, can tell.
    virtual bool is_flushed() const { return false; }

    // A descriptor that polls readable after arm() when progress() has something to do, unless only
    // time brings it (next_deadline()); or -1.
    virtual int event_fd() const { return -1; }
    // @return UCS_ERR_BUSY if events came meanwhile: progress first, then arm again. Never for what
    //         needs a peer's progress: the peer's may come after this one's sleep.
    virtual ucs_status_t arm() { return UCS_ERR_UNSUPPORTED; }

  protected:
    InterfaceAttributes attributes_;
    Interest interest_;
};

}  // namespace uct
