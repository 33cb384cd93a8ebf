// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <boost/intrusive/list.hpp>

#include <cstddef>
#include <cstdint>

#include "ucs/sys/time.h"
#include "uct/tcp/network/socket_stream.h"
#include "uct/tcp/wire/format.h"

// Short messages that follow each other between two calls of progress: a burst.
//
// The first ones leave one by one. Behind them the kernel gathers: what it is given goes in one
// segment when the peer has acknowledged what went before (Nagle's algorithm), when a segment is
// full, or when progress is called. So nothing needs this process any more, and what is gathered
// waits for one acknowledgement. The peer gives that as soon as it finds nothing more to read: its
// kernel would wait for an answer to carry it, up to 40 ms. Messages of which others may be
// gathered behind carry a mark (wire::kBurstMark).
namespace uct::tcp {

template <typename Tag>
using BurstHook =
    boost::intrusive::list_base_hook<boost::intrusive::tag<Tag>,
                                     boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;
template <typename Burst>
using BurstList =
    boost::intrusive::list<Burst, boost::intrusive::constant_time_size<false>,
                           boost::intrusive::base_hook<BurstHook<typename Burst::Tag>>>;

struct Bursts;

// What one connection sends.
class OutgoingBurst : public BurstHook<struct GatherTag> {
  public:
    using Tag = GatherTag;

    OutgoingBurst(const SocketStream& stream, Bursts& all) : stream_(stream), all_(all) {}

    // From here on.
    // @param first    messages of a burst that leave one by one; 0: all of any
    // @param segment  bytes of the longest packet
    void begin(unsigned first, size_t segment);
    // The connection goes. What the kernel has it sends.
    void end() {
        unlink();
        first_ = count_ = 0;
    }
    // To be called before each message is sent. @return the mark of its frame
    inline uint16_t next(size_t length);
    // What is gathered leaves now.
    void push();
    bool gathers() const { return is_linked(); }

  private:
    uint16_t next_of_many(size_t length);

    const SocketStream& stream_;
    Bursts& all_;
    uint32_t call_ = 0;   // of progress, before the first message
    uint32_t count_ = 0;  // messages since then
    uint32_t first_ = 0;
    size_t longest_ = 0;
};

// What one connection brings.
class IncomingBurst : public BurstHook<struct AnswerTag> {
  public:
    using Tag = AnswerTag;

    IncomingBurst(const SocketStream& stream, Bursts& all) : stream_(stream), all_(all) {}

    void end() {
        unlink();
        is_under_way_ = false;
    }
    void on_message(uint16_t mark) { is_under_way_ = mark == wire::kBurstMark; }
    bool is_under_way() const { return is_under_way_; }
    // Bytes have been read, and the peer may gather others until they are acknowledged.
    void on_read(ucs::Time now);
    // What is sent carries the acknowledgement.
    void on_sent() {
        if (is_linked()) unlink();
    }
    bool is_due(ucs::Time now) const { return now >= due_; }
    void acknowledge();

  private:
    const SocketStream& stream_;
    Bursts& all_;
    ucs::Time due_{};
    bool is_under_way_ = false;
};

// Of all connections of an interface.
struct Bursts {
    uint32_t calls = 1;  // of progress
    BurstList<OutgoingBurst> gathering;
    BurstList<IncomingBurst> unanswered;  // in the order in which they are due

    bool any() const { return !gathering.empty() || !unanswered.empty(); }
    // To be called in each progress.
    void on_progress(const ucs::Clock& clock);
    // Nobody may call progress for long.
    void settle();
};

inline uint16_t OutgoingBurst::next(size_t length) {
    if (call_ != all_.calls) {
        call_ = all_.calls;
        count_ = 0;
    }
    return ++count_ < first_ && length <= longest_ ? wire::kMark : next_of_many(length);
}

}  // namespace uct::tcp
