// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

// A queue of messages in the receiver's segment. What lies where, and who writes it:
//
//   QueueHeader        constants; state and tails by the receiver, `head` by senders (fifo only)
//   uint32_t[places]   which buffer belongs to a place now: by the receiver (fifo only); senders
//                      look before they reserve
//   SenderRecord[senders]    who may send, and what each is about to do: by that sender (fifo only)
//   Slot[slots]        by the sender that has reserved the slot
//   buffers            long messages, by the sender of the slot
//
// A slot is a pair of cache lines: a control word and what fits behind it. Processors fetch lines
// by such pairs, so a receiver that looks at its next slot leaves the one behind it to the sender.
// The control word holds the low bits of the message's number plus one, so that a slot of an
// earlier lap does not look like a new one, and is written last, with release order. To these bits
// the number of the sender's place is added, in a shared queue, so that the receiver knows whose
// the message is. The receiver
// writes nothing into slots: a message of 8 bytes moves one line, from the sender to the receiver.
// That slots are free again is known by `tail`, which the receiver writes after each quarter of the
// queue. In a shared queue `tail` stands still where a living sender has yet to fill a slot that
// was passed over (Inbox), while `buffer_tail` goes on.
//
// What is used again soon stays in caches, and long messages take up most of these. With many
// senders there are fewer buffers than slots: a long message waits until fewer are under way. With
// one sender, long messages lie one behind the other in all of the buffers' memory (Area).
namespace uct::sm {

inline constexpr size_t kLine = 64;
inline constexpr size_t kSlot = 2 * kLine;
inline constexpr size_t kInline = kSlot - sizeof(uint64_t);  // bytes of a message within its slot

struct alignas(kSlot) Slot {
    std::atomic<uint64_t> control;
    std::byte data[kInline];
};

// The line will be written soon: take it from whoever has it. Any address will do.
inline void prefetch_to_write(const void* line) {
#if defined(__x86_64__)
    asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
    __builtin_prefetch(line, 1);
#endif
}

// The line will be read soon. Not __builtin_prefetch: GCC takes a function of nothing else for one
// without effect, and leaves it out.
inline void prefetch_to_read(const void* line) {
#if defined(__x86_64__)
    asm volatile("prefetcht0 %0" : : "m"(*static_cast<const char*>(line)));
#else
    __builtin_prefetch(line, 0);
#endif
}

namespace control {

inline constexpr uint64_t kInBuffer = 1u << 31;
inline constexpr uint64_t kAnnouncement = 1u << 30;  // no message: who its sender is
inline constexpr uint64_t kFromStart = 1u << 29;  // ring, in a buffer: Area::begin_anew() before it
inline constexpr unsigned kIdShift = 24;
inline constexpr uint64_t kIdMask = 0x1f;
inline constexpr uint64_t kLengthMask = 0xffffff;
// Flags of a slot that is passed over: its sender has nothing to say after all.
inline constexpr uint64_t kNothing = kAnnouncement | kLengthMask;
// Of the upper half, the lower bits tell laps apart, the others are the sender's.
inline constexpr unsigned kNumberBits = 20;
inline constexpr uint32_t kMostSenders = 1u << (32 - kNumberBits);
inline constexpr uint32_t kMostSlots = 1u << (kNumberBits - 1);

constexpr uint64_t word(uint64_t number, uint8_t id, size_t length, uint64_t flags) {
    return (number + 1) << 32 | flags | uint64_t{id} << kIdShift | length;
}
// What a sender adds to its words.
constexpr uint64_t of_sender(uint32_t place) {
    return uint64_t{place} << (32 + kNumberBits);
}
// The bits of a word that tell whether it is of that message, whoever its sender is.
inline constexpr uint64_t kNumberMask = uint64_t{(1u << kNumberBits) - 1} << 32;
constexpr uint64_t number_bits(uint64_t number) {
    return (number + 1) << 32;
}
// What the upper half of a word says beyond the message's number: of a word of that message, the
// sender's place in the upper bits, and 0 in the lower ones.
// @param expected  number_bits() of the message
constexpr uint32_t beyond(uint64_t word, uint64_t expected) {
    return static_cast<uint32_t>((word - expected) >> 32);
}
constexpr bool is_of_message(uint32_t beyond) {
    return (beyond & ((1u << kNumberBits) - 1)) == 0;
}
constexpr bool is_message(uint64_t word, uint64_t number) {
    return is_of_message(beyond(word, number_bits(number)));
}
// Where is_message().
constexpr uint32_t sender(uint64_t word, uint64_t number) {
    return beyond(word, number_bits(number)) >> kNumberBits;
}
constexpr uint8_t id(uint64_t word) {
    return word >> kIdShift & kIdMask;
}
constexpr size_t length(uint64_t word) {
    return word & kLengthMask;
}

}  // namespace control

// A sender to a shared queue. `attempt` is written before each try to reserve: the number of the
// slot plus one. So a slot that was reserved and not filled, since its sender died or was stopped
// in between, is known by that sender's attempt.
struct alignas(kLine) SenderRecord {
    std::atomic<uint32_t> pid;         // 0: free
    std::atomic<uint64_t> start_time;  // 0: not known yet
    std::atomic<uint64_t> attempt;
    std::atomic<uint64_t> name;  // nonce of its own queue, while it is here

    // The next one must not be taken for a process of another time.
    void leave() {
        attempt.store(0, std::memory_order_release);
        name.store(0, std::memory_order_release);
        start_time.store(0, std::memory_order_release);
        pid.store(0, std::memory_order_release);
    }
};

struct QueueHeader {
    static constexpr uint64_t kMagic = 0x75657551536c5753;
    static constexpr uint32_t kVersion = 7;
    static constexpr uint64_t kArmed = uint64_t{1} << 63;  // in `head`: the receiver sleeps
    static constexpr uint32_t kClosing = 1;                // what was sent before is still read
    static constexpr uint32_t kGone = 2;  // nothing is read any more; `tail` is exact

    // Constant.
    alignas(kLine) uint64_t magic;
    uint32_t version;
    uint32_t pid;
    uint64_t start_time;
    uint32_t slots;
    uint32_t buffers;
    uint32_t buffer_size;
    uint32_t senders;

    // Seldom written.
    alignas(kLine) std::atomic<uint32_t> sleeping;  // ring: wake the receiver
    std::atomic<uint32_t> closed;                   // nobody wants more: kClosing, kGone
    std::atomic<int32_t> wake_descriptor;           // the receiver's pipe; -1: none
    // Fifo: how often the receiver has fallen asleep, and out of which of these sleeps it was
    // woken.
    std::atomic<uint64_t> sleeps;
    std::atomic<uint64_t> woken;

    alignas(kLine) std::atomic<uint64_t> head;  // fifo: number of the next message
    alignas(kLine) std::atomic<uint64_t> tail;  // slots of messages up to here are free
    // Ring: Area::count of what is consumed. Fifo: buffers of messages up to here are free.
    std::atomic<uint64_t> buffer_tail;
};

static_assert(sizeof(Slot) == kSlot && sizeof(SenderRecord) == kLine);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// Sizes of a queue and the places that follow from them.
struct QueueLayout {
    static constexpr uint32_t kFewestSlots = 8;

    uint32_t slots;        // a power of two, kFewestSlots at least
    uint32_t buffers;      // many senders: one a place, and spare ones
    uint32_t buffer_size;  // a multiple of a line
    uint32_t senders;      // 0: one

    // Many senders: message n has place n % places, where its buffer is, if it is long. It may be
    // long only while all before n - places are consumed.
    uint32_t places() const { return slots / 2; }
    // The receiver tells after so many messages how far it is.
    uint32_t told_after() const { return slots / (senders == 0 ? 4 : kFewestSlots); }

    size_t buffer_table() const { return sizeof(QueueHeader); }
    size_t sender_table() const {
        return buffer_table() + align(senders == 0 ? 0 : places() * sizeof(uint32_t));
    }
    size_t slot_table() const {
        return align(sender_table() + senders * sizeof(SenderRecord), kSlot);
    }
    size_t buffer_area() const { return align(slot_table() + slots * sizeof(Slot), kPage); }
    size_t size() const { return buffer_area() + size_t{buffers} * buffer_size; }

    // The sizes that a header names, if a queue of these sizes fits into `room` bytes.
    static std::optional<QueueLayout> read(const QueueHeader& header, size_t room);

  private:
    static constexpr size_t kPage = 4096;
    static constexpr size_t align(size_t size, size_t to = kLine) {
        return (size + to - 1) / to * to;
    }
};

// Where the long messages of one sender lie. Each begins where there is room for the longest piece,
// so it can be written before its length is known; where that is follows from the lengths before
// it, which both sides count alike. A sender of short ones that finds all consumed begins anew at
// the start, and says so: what is used again soon stays in caches and page tables, and a pair that
// exchanges a few messages at a time touches an eighth of the memory or little more, however many
// they come to be. Longer ones go through all of it: many lines that are written again soon after
// they were read take longer (docs/results.md).
struct Area {
    static constexpr uint32_t kFewestPieces = 4;

    size_t size;   // kFewestPieces pieces at least, or a sender could wait for what is not told
    size_t piece;  // a multiple of a line
    size_t offset = 0;
    uint64_t count = 0;  // bytes so far, those left out at the end as well
    size_t last = 0;     // bytes of the latest message, in whole lines

    Area(size_t size, size_t piece) : size(size), piece(piece) {}

    // The place of the next message.
    size_t next() {
        if (offset + piece > size) begin_anew();
        return offset;
    }
    void advance(size_t length) {
        const size_t lines = (length + kLine - 1) / kLine * kLine;
        offset += lines;
        count += lines;
        last = lines;
    }
    // What is left of it does not serve.
    void begin_anew() {
        count += size - offset;
        offset = 0;
    }
    // Sender: may the next message be written?
    bool has_room(uint64_t tail) {
        next();
        return count + piece - tail <= size;
    }
    // Sender: is it worth a look whether all is consumed?
    bool is_far() const { return last <= piece / 2 + kLine && offset >= size / 8; }
    // Receiver: is it time to tell the sender? `is_last`: nothing else has come yet.
    bool is_due(uint64_t told, bool is_last) const {
        return count - told >= size / (is_last ? 16 : 8);
    }
};

}  // namespace uct::sm
