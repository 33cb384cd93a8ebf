// SPDX-License-Identifier: BSD-3-Clause
#include "uct/base/joint_copy.h"

#include <sched.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "ucs/sys/sanitizer.h"

namespace uct {

namespace {

// A chunk is no longer than a fraction of a turn (CopyQueue), so that who is done first does not
// wait long for the other; each costs a call of the system.
constexpr size_t kShortChunk = 64 * 1024, kLongChunk = 128 * 1024;
constexpr size_t kLong = 1024 * 1024;  // copies from here on have long chunks
// Between looks whether a partner lives that is waited for: a system call.
constexpr uint32_t kLooks = 1024;

// JointCopyOffer::chunks: [first, end) are to be taken, the owner takes the first, the partner the
// last. The generation tells offers in one place apart.
struct Chunks {
    static constexpr unsigned kBits = 20;
    static constexpr uint64_t kMask = (uint64_t{1} << kBits) - 1;

    static Chunks read(uint64_t word) {
        return {word >> (2 * kBits), word >> kBits & kMask, word & kMask};
    }
    uint64_t word() const { return generation << (2 * kBits) | first << kBits | end; }
    bool is_empty() const { return first >= end; }

    uint64_t generation;
    uint64_t first;
    uint64_t end;
};
static_assert(JointCopy::kMost / kLongChunk <= Chunks::kMask);

// Changes the word while there are chunks to be taken. @return what it was, empty if it is not
template <typename Change>
Chunks change(std::atomic<uint64_t>& word, Change change) {
    uint64_t seen = word.load(std::memory_order_acquire);
    for (;;) {
        const Chunks chunks = Chunks::read(seen);
        if (chunks.is_empty()) return chunks;
        Chunks changed = chunks;
        change(changed);
        if (word.compare_exchange_weak(seen, changed.word(), std::memory_order_acq_rel,
                                       std::memory_order_acquire))
            return chunks;
    }
}

void close_chunks(JointCopyOffer& offer) {
    change(offer.chunks, [](Chunks& chunks) { chunks.first = chunks.end; });
}

// Has the partner ended all that it took, where no more can be taken?
bool is_quiet(const JointCopyOffer& offer) {
    return offer.left.load(std::memory_order_acquire) ==
           Chunks::read(offer.chunks.load(std::memory_order_acquire)).end;
}

// A process in a word: its number, and as much of its start as there is room for.
uint64_t word_of(const ucs::Process& process) {
    return process.start_time << 32 | process.pid;
}

bool is_dead(uint64_t word) {
    const auto found = ucs::Process::find(static_cast<uint32_t>(word));
    return !found || word_of(*found) != word || !found->is_alive();
}

}  // namespace

// --- the owner's side

JointCopy::JointCopy(JointCopyBoard& board, JointCopyTerms terms, const ucs::Process& partner) {
    if (!claim(board, terms.owner)) return;
    terms.chunk = terms.length < kLong ? kShortChunk : kLongChunk;
    chunk_ = terms.chunk;
    length_ = terms.length;
    partner_ = partner;
    const uint64_t count = (length_ + chunk_ - 1) / chunk_;
    offer_->terms = terms;
    offer_->has_failed.store(0, std::memory_order_relaxed);
    offer_->left.store(static_cast<uint32_t>(count), std::memory_order_relaxed);
    const Chunks before = Chunks::read(offer_->chunks.load(std::memory_order_relaxed));
    offer_->chunks.store(Chunks{before.generation + 1, 0, count}.word(), std::memory_order_release);
    board.open.fetch_or(bit_, std::memory_order_release);
}

// A free place, or that of a process which has died and whose chunks nobody copies.
bool JointCopy::claim(JointCopyBoard& board, const ucs::Process& owner) {
    const uint64_t mine = word_of(owner);
    const size_t start = owner.pid % JointCopyBoard::kPlaces;
    for (size_t i = 0; i < JointCopyBoard::kPlaces && offer_ == nullptr; ++i) {
        const size_t place = (start + i) % JointCopyBoard::kPlaces;
        JointCopyOffer& offer = board.places[place];
        uint64_t has = offer.owner.load(std::memory_order_relaxed);
        // Where all have owners, one is looked at: by system calls.
        if (has != 0) {
            const bool is_last = i + 1 == JointCopyBoard::kPlaces;
            if (!is_last || !is_dead(has)) continue;
            close_chunks(offer);
            if (!is_quiet(offer)) continue;
        }
        if (!offer.owner.compare_exchange_strong(has, mine, std::memory_order_acquire)) continue;
        board_ = &board;
        offer_ = &offer;
        bit_ = uint64_t{1} << place;
    }
    return offer_ != nullptr;
}

JointCopy::JointCopy(JointCopy&& other) noexcept {
    *this = std::move(other);
}

JointCopy& JointCopy::operator=(JointCopy&& other) noexcept {
    if (this == &other) return *this;
    withdraw();
    board_ = other.board_;
    offer_ = std::exchange(other.offer_, nullptr);
    bit_ = other.bit_;
    chunk_ = other.chunk_;
    length_ = other.length_;
    own_bytes_ = other.own_bytes_;
    is_closed_ = other.is_closed_;
    looks_ = other.looks_;
    partner_ = other.partner_;
    watched_ = std::move(other.watched_);
    return *this;
}

bool JointCopy::take(size_t* offset, size_t* length) {
    const Chunks taken = change(offer_->chunks, [](Chunks& chunks) { ++chunks.first; });
    if (taken.is_empty()) {
        close();
        return false;
    }
    *offset = taken.first * chunk_;
    *length = std::min(chunk_, length_ - *offset);
    own_bytes_ = *offset + *length;
    return true;
}

// The partner need not look any more.
void JointCopy::close() {
    if (is_closed_) return;
    is_closed_ = true;
    close_chunks(*offer_);
    board_->open.fetch_and(~bit_, std::memory_order_relaxed);
}

ucs_status_t JointCopy::look() {
    if (!is_quiet(*offer_)) {
        if (++looks_ % kLooks != 0 || is_partner_alive()) return UCS_INPROGRESS;
        offer_ = nullptr;  // the board has gone with its process
        return UCS_ERR_ENDPOINT_TIMEOUT;
    }
    const bool has_failed = offer_->has_failed.load(std::memory_order_relaxed) != 0;
    release();
    return has_failed ? UCS_ERR_REJECTED : UCS_OK;
}

bool JointCopy::is_partner_alive() {
    try {
        if (watched_ == nullptr) watched_ = ucs::WatchedProcess::of(partner_);
    } catch (const std::bad_alloc&) {
        return true;  // as far as is known: it is looked at again
    }
    return watched_->is_alive();
}

void JointCopy::release() {
    offer_->owner.store(0, std::memory_order_release);
    offer_ = nullptr;
}

void JointCopy::withdraw() {
    if (offer_ == nullptr) return;
    close();
    while (look() == UCS_INPROGRESS) sched_yield();
}

// --- the partner's side

// A chunk of each offer in turn.
size_t JointCopyPartner::help(JointCopyBoard& board, size_t most) {
    size_t done = 0;
    size_t in_vain = 0;  // places that were looked at since the last chunk
    while (done < most && in_vain < JointCopyBoard::kPlaces && !is_forbidden_) {
        const size_t place = next_;
        next_ = (next_ + 1) % JointCopyBoard::kPlaces;
        const bool is_open = (board.open.load(std::memory_order_acquire) >> place & 1) != 0;
        const size_t copied = is_open ? help_one(board, place) : 0;
        in_vain = copied == 0 ? in_vain + 1 : 0;
        done += copied;
    }
    return done;
}

// @return bytes
size_t JointCopyPartner::help_one(JointCopyBoard& board, size_t place) {
    JointCopyOffer& offer = board.places[place];
    const Chunks taken = change(offer.chunks, [](Chunks& chunks) { --chunks.end; });
    if (taken.is_empty()) return 0;
    // The owner may be anyone: what it says is looked at before it is used.
    const JointCopyTerms terms = offer.terms;
    const uint64_t index = taken.end - 1;
    uint64_t offset = 0;
    const bool is_sound = !__builtin_mul_overflow(index, terms.chunk, &offset) &&
                          offset < terms.length && terms.chunk <= kLongChunk;
    const size_t length = is_sound ? std::min(terms.chunk, terms.length - offset) : 0;
    const bool is_copied =
        is_sound && is_alive(terms.owner) && may_copy_(keys_, terms) && copy(terms, offset, length);
    if (!is_copied) {
        close_chunks(offer);
        board.open.fetch_and(~(uint64_t{1} << place), std::memory_order_relaxed);
        offer.has_failed.store(1, std::memory_order_relaxed);
    }
    offer.left.fetch_sub(1, std::memory_order_release);
    return is_copied ? length : 0;
}

bool JointCopyPartner::copy(const JointCopyTerms& terms, size_t offset, size_t length) {
    const iovec here{reinterpret_cast<void*>(terms.remote + offset), length};
    const iovec there{reinterpret_cast<void*>(terms.local + offset), length};
    const auto pid = static_cast<pid_t>(terms.owner.pid);
    const ucs::IgnoredByThreadSanitizer stands_for_a_peer;
    ssize_t moved;
    do {
        moved = terms.direction == CopyDirection::kPut
                    ? process_vm_readv(pid, &here, 1, &there, 1, 0)
                    : process_vm_writev(pid, &here, 1, &there, 1, 0);
    } while (moved < 0 && errno == EINTR);
    is_forbidden_ = moved < 0 && errno == EPERM;
    return moved == static_cast<ssize_t>(length);
}

// Its number may be another's by now.
bool JointCopyPartner::is_alive(const ucs::Process& owner) {
    try {
        if (owner_ == nullptr || owner_->process() != owner)
            owner_ = ucs::WatchedProcess::of(owner);
    } catch (const std::bad_alloc&) {
        return false;
    }
    return owner_->is_alive();
}

}  // namespace uct
