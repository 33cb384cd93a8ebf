// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "ucs/sys/watched_process.h"
#include "ucs/type/status.h"
#include "uct/base/local_copy.h"

// Long copies between two processes of a host, done by both: by the owner, who started the copy,
// and by the partner, whose memory it reads or writes, if that one makes progress anyway. The
// protocol: docs/design/shared-memory.md, "Joint copies".
namespace uct {

// A process, and a copy between its memory and the partner's.
struct JointCopyTerms {
    ucs::Process owner;
    uint64_t local;   // in the owner's address space
    uint64_t remote;  // in the partner's
    uint64_t length;
    uint64_t chunk;
    uint64_t key;       // the partner's word for the memory, and
    uint32_t key_slot;  // where it finds that
    CopyDirection direction;
};

// A place for an offer, in shared memory of the partner.
struct alignas(64) JointCopyOffer {
    std::atomic<uint64_t> owner;   // who has the place; 0: nobody
    std::atomic<uint64_t> chunks;  // those that nobody has taken
    // Chunks, less those that the partner has taken and ended.
    std::atomic<uint32_t> left;
    std::atomic<uint32_t> has_failed;  // the partner could not copy what it took
    JointCopyTerms terms;              // constant while some are taken and not ended
};

// All that is offered to one process, in its shared memory; zeros to begin with.
struct JointCopyBoard {
    static constexpr size_t kPlaces = 16;

    alignas(64) std::atomic<uint64_t> open;  // a bit for each place with chunks to be taken
    std::array<JointCopyOffer, kPlaces> places;
};

// The owner's side of one copy, or of none.
class JointCopy {
  public:
    // A shorter copy is over before the partner would join.
    static constexpr size_t kLeast = kLeastJointCopy;
    static constexpr size_t kMost = size_t{64} << 30;

    JointCopy() = default;
    // Offers a copy. Without a place for the offer it is the side of no copy.
    // @param terms    of kLeast to kMost bytes; `chunk` is set here
    // @param partner  the process that the board belongs to
    JointCopy(JointCopyBoard& board, JointCopyTerms terms, const ucs::Process& partner);
    // Waits for what the partner copies now, unless that one has died.
    ~JointCopy() { withdraw(); }
    JointCopy(JointCopy&& other) noexcept;
    JointCopy& operator=(JointCopy&& other) noexcept;

    explicit operator bool() const { return offer_ != nullptr; }

    // The next chunk for the owner to copy. @return false: all are taken
    bool take(size_t* offset, size_t* length);
    bool is_taken() const { return is_closed_; }
    // How the partner's part goes. Call it when all chunks are taken.
    // @return UCS_INPROGRESS: the partner still copies; UCS_OK: its chunks are copied;
    // UCS_ERR_REJECTED: it could not copy them, and they begin at own_bytes();
    // UCS_ERR_ENDPOINT_TIMEOUT: it has died
    ucs_status_t look();
    // Bytes that the owner took, from the front.
    size_t own_bytes() const { return own_bytes_; }

    // Takes the offer back. When it returns the partner takes nothing more and copies nothing more.
    void withdraw();

  private:
    bool claim(JointCopyBoard& board, const ucs::Process& owner);
    void close();
    void release();
    bool is_partner_alive();

    JointCopyBoard* board_ = nullptr;
    JointCopyOffer* offer_ = nullptr;
    uint64_t bit_ = 0;
    size_t chunk_ = 0;
    size_t length_ = 0;
    size_t own_bytes_ = 0;
    bool is_closed_ = false;
    uint32_t looks_ = 0;
    ucs::Process partner_{};
    std::shared_ptr<const ucs::WatchedProcess> watched_{};  // once it was waited for long
};

// The partner's side: what one interface takes of the offers to its process.
class JointCopyPartner {
  public:
    // May the memory be read (kGet) or written (kPut) by a peer?
    using MayCopy = bool (*)(const void* keys, const JointCopyTerms& terms);

    // @param keys  what the function is given
    JointCopyPartner(MayCopy may_copy, const void* keys) : may_copy_(may_copy), keys_(keys) {}

    // Takes chunks and copies them, until they come to `most` bytes or no more are offered. Of a
    // copy of which a chunk cannot be copied nothing more is taken.
    // @return bytes copied
    size_t help(JointCopyBoard& board, size_t most);

  private:
    size_t help_one(JointCopyBoard& board, size_t place);
    bool copy(const JointCopyTerms& terms, size_t offset, size_t length);
    bool is_alive(const ucs::Process& owner);

    const MayCopy may_copy_;
    const void* const keys_;
    size_t next_ = 0;                                     // the place to look at first
    bool is_forbidden_ = false;                           // by the system, once it was tried
    std::shared_ptr<const ucs::WatchedProcess> owner_{};  // the last one
};

}  // namespace uct
