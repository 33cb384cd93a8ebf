// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <boost/intrusive/slist.hpp>

#include "ucs/datastruct/memory_pool.h"
#include "uct/api/types.h"
#include "uct/base/pending_queue.h"
#include "uct/tcp/association/burst.h"
#include "uct/tcp/events/event_loop.h"
#include "uct/tcp/network/rail.h"
#include "uct/tcp/queues/output_queue.h"
#include "uct/tcp/queues/receive_pool.h"
#include "uct/tcp/queues/region_table.h"

// What an interface hands to its associations and their connections.

namespace uct::tcp {

class AssociationUser;

// Something that the peer was asked and has not answered yet.
struct RemoteOperation : boost::intrusive::slist_base_hook<
                             boost::intrusive::link_mode<boost::intrusive::normal_link>> {
    enum class Kind : uint8_t { kGet, kGetCopy, kAtomic, kFlush };

    Kind kind;
    bool chained = false;    // of a bulk transfer
    bool abandoned = false;  // nobody waits any more: the answer is dropped
    bool is_cut = false;     // a chain whose connection is gone: ends when the peer's end is too
    uint32_t epoch = 0;      // is_cut: ends with this
    uint8_t pieces_count = 0;
    uint8_t waiting = 0;  // kFlush: bit i: connection i has not answered
    uint8_t again = 0;  // kFlush: answers on connection 0 before its last: it asks there for others
    uint8_t connection = 0;                  // of a chain
    uint8_t size = 0;                        // kAtomic: of the operand
    uint32_t name = 0;                       // on the wire
    uint32_t last = wire::kNoOperation;      // kGet of a chain: the one that ends the chain
    uint32_t rides_on = wire::kNoOperation;  // kFlush: whose answer is one of its own, too
    bool is_ridden = false;
    ucs_status_t failure = UCS_OK;  // of another of its chain
    const AssociationUser* owner = nullptr;
    Completion* completion = nullptr;
    uint64_t length = 0;  // bytes that the answer must have
    union {
        void* result;           // kAtomic: where the old value goes; may be null
        UnpackCallback unpack;  // kGetCopy
    };
    void* unpack_argument = nullptr;
    std::unique_ptr<std::byte[]> copy;  // kGetCopy
    std::array<iovec, 16> pieces;       // kGet: where the bytes go
    std::array<uint64_t, 8> covered{};  // one-sided operations of each connection up to it

    explicit RemoteOperation(Kind what) : kind(what), result(nullptr) {}
};

using OperationList = boost::intrusive::slist<RemoteOperation, boost::intrusive::cache_last<true>,
                                              boost::intrusive::constant_time_size<false>>;

// The part [offset, offset + length) of scattered memory, as pieces. @return how many
size_t slice(const iovec* pieces, size_t count, uint64_t offset, uint64_t length, iovec* part);

class Association;
class TcpConnection;

// The memory of an interface.
struct Buffers {
    Buffers(RegionTable& registered, const Config& config)
        : regions(registered),
          receive(ucs::align_up(size_t{config.rx_seg_size}, wire::kAlignment)),
          output(config.tx_seg_size + 64),
          operations("tcp operations", 16),
          staging(new std::byte[std::max<size_t>(config.rx_seg_size + 64, 4096)]) {}

    RegionTable& regions;  // what peers may reach
    ReceivePool receive;
    OutputPools output;
    ucs::ObjectPool<RemoteOperation> operations;
    std::unique_ptr<std::byte[]> staging;  // for one message, while a call lasts
};

// Whom the next progress() looks at first, and whether it looks at all.
struct Attention {
    // After so many looks that found nothing the interface rests, unless something is sent.
    static constexpr unsigned kRestless = 2000;

    // Something is sent: an answer may come soon.
    void on_sent() {
        empty_polls = 0;
        is_answer_due = true;
    }
    // The connection that may bring the next message.
    // @param connection  null: rather ask epoll
    // @param more        its message is not complete
    void set_hot(TcpConnection* connection, bool more) {
        hot = connection;
        is_answer_due = more;
    }
    void forget_hot(const TcpConnection* connection) {
        if (hot == connection) hot = nullptr;
    }

    PendingQueue pending;  // endpoints that wait for room
    Bursts bursts;
    size_t turn = SIZE_MAX;  // bytes that this progress may still read and send (UCX_TCP_TURN)
    TcpConnection* hot = nullptr;
    bool is_answer_due = false;  // nothing has come since something was sent
    unsigned empty_polls = kRestless;
};

// Told of what becomes of an association.
class AssociationOwner {
  public:
    // It has failed: the next endpoint to its peer is to have another.
    virtual void unmap(Association& association) = 0;
    // Look at the associations after this batch of events: one may be of no more use.
    virtual void look_at_associations() = 0;
    // Tells one association from earlier and later ones; never 0.
    virtual uint32_t new_association_number() = 0;

  protected:
    ~AssociationOwner() = default;
};

struct AssociationContext {
    Rail& rail;
    EventLoop& events;
    Buffers& buffers;
    Attention& attention;
    AssociationOwner& owner;
};

}  // namespace uct::tcp
