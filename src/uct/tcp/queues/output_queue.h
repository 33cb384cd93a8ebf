// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/uio.h>
#include <boost/intrusive/list.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "ucs/datastruct/memory_pool.h"
#include "uct/api/types.h"
#include "uct/tcp/queues/region_table.h"

namespace uct::tcp {

class AssociationUser;

// Bytes that wait for the kernel to take them.
class OutputItem : public boost::intrusive::list_base_hook<
                       boost::intrusive::link_mode<boost::intrusive::normal_link>> {
  public:
    enum class Kind : uint8_t { kCopied, kReferring };
    explicit OutputItem(Kind what) : kind(what) {}
    const Kind kind;
    // Whose operations these are. Null: nobody's, as answers; they never depend on an endpoint.
    const AssociationUser* owner = nullptr;
    uint64_t sent = 0;
    uint64_t length = 0;  // all that is to be sent
};
using OutputList = boost::intrusive::list<OutputItem>;

// Frames, whole or what the kernel left of one, copied into a buffer.
struct CopiedOutput : OutputItem {
    CopiedOutput() : OutputItem(Kind::kCopied) {}
    std::byte* data() { return reinterpret_cast<std::byte*>(this + 1); }
};

// One frame whose payload is sent from where it lies.
struct ReferringOutput : OutputItem {
    static constexpr size_t kMaxHead = 320;
    static constexpr size_t kMaxPieces = 16;

    ReferringOutput() : OutputItem(Kind::kReferring) {}

    Completion* completion = nullptr;  // called when the kernel has all; may be null
    uint64_t key = 0;  // of the region that the payload lies in; 0: the user's own memory
    uint16_t head_length = 0;
    uint8_t pieces_count = 0;
    uint8_t tail = 0;  // zeros after the payload
    std::array<iovec, kMaxPieces> pieces;
    std::array<std::byte, kMaxHead> head;

    template <typename Header>
    void set_head(const Header& header) {
        static_assert(sizeof(header) <= kMaxHead);
        std::memcpy(head.data(), &header, sizeof(header));
        head_length = sizeof(header);
    }
};

// The memory of all output queues of an interface.
struct OutputPools {
    explicit OutputPools(size_t buffer_size)
        : copy_capacity(buffer_size),
          copied({.name = "tcp copy-out buffers",
                  .object_size = sizeof(CopiedOutput) + buffer_size,
                  .objects_per_chunk = 8}),
          referring("tcp zero-copy operations", 16),
          spare(copied.allocate()) {}
    ~OutputPools() {
        if (spare != nullptr) copied.release(spare);
    }
    OutputPools(const OutputPools&) = delete;

    // Room for a CopiedOutput, or null. @param is_answer  a peer waits for it
    void* allocate_copied(bool is_answer) {
        void* const memory = copied.allocate();
        return memory != nullptr || !is_answer ? memory : std::exchange(spare, nullptr);
    }
    void destroy(OutputItem* item);

    const size_t copy_capacity;
    ucs::MemoryPool copied;
    ucs::ObjectPool<ReferringOutput> referring;
    // For answers where there is no memory: some hundreds that are refused have room in one.
    void* spare;
};

// What one connection has still to send, in order.
class OutputQueue {
  public:
    explicit OutputQueue(OutputPools& pools) : pools_(pools) {}
    ~OutputQueue();
    OutputQueue(const OutputQueue&) = delete;

    bool empty() const { return items_.empty(); }
    size_t size() const { return count_; }
    uint64_t bytes() const { return bytes_; }

    // Room for `length` contiguous bytes of that owner at the end; null without memory. Then
    // commit().
    std::byte* reserve(size_t length, const AssociationUser* owner);
    void commit(size_t length);
    // Copy; false without memory.
    bool append(std::span<const iovec> pieces, size_t skip, const AssociationUser* owner);
    ReferringOutput* make() { return pools_.referring.create(); }
    void append(ReferringOutput* item);
    // Completed when the kernel has all that is queued now. @return false without memory
    bool append_marker(const AssociationUser* owner, Completion* completion);

    // The next bytes to send, in at most `room` pieces.
    // @param regions  registrations that replies refer to
    // @return pieces; -1 if a reply's memory is no longer registered
    int gather(std::span<iovec> room, RegionTable::Reader* regions) const;
    // Does gather() need the registrations?
    bool has_replies() const { return replies_ > 0; }
    // The kernel took so many bytes; finished operations go to `done`.
    void consume(size_t length, OutputList& done);

    // No memory of `owner` is referred to any more: its operations that have not begun go to
    // `removed`, and all of its copied ones behind the first of these, whole frames; of one that is
    // half sent the rest is copied. So the peer gets what `owner` has sent up to some operation,
    // and nothing of what comes after it.
    void forget(const AssociationUser* owner, OutputList& removed);
    // The first operation whose memory cannot be read, or null. Slow: see is_readable().
    ReferringOutput* find_unreadable();
    // Take one out that has not begun.
    void remove(ReferringOutput& item);
    void take_all(OutputList& taken);
    // Everything that `other` has goes behind what is here.
    void splice(OutputQueue& other);

  private:
    void remove_front(OutputList& done);

    OutputPools& pools_;
    OutputList items_;
    size_t count_ = 0;
    size_t replies_ = 0;
    uint64_t bytes_ = 0;
};

// Call the completions of a list and give its memory back.
void complete_all(OutputPools& pools, OutputList& list, ucs_status_t status);

// Can the kernel read a byte of every page of that memory? For when it has found that it cannot
// read something: this takes a system call a page.
bool is_readable(std::span<const iovec> pieces);

}  // namespace uct::tcp
