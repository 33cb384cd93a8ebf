// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "uct/tcp/queues/output_queue.h"

namespace uct::tcp {

// What a session has sent and its peer may not have: a stream of bytes, named by their positions
// from the session's beginning. The next connection is given again what the peer did not get of
// the last one.
class History {
  public:
    explicit History(OutputPools& pools) : pools_(pools) {}
    ~History();
    History(const History&) = delete;

    uint64_t begin() const { return begin_; }
    uint64_t end() const { return end_; }
    size_t size() const { return end_ - begin_; }

    // The first `length` bytes of the pieces were sent. Not while is_replaying().
    void record(std::span<const iovec> pieces, size_t length) {
        for (const iovec& piece : pieces) {
            const size_t part = length < piece.iov_len ? length : piece.iov_len;
            if (part == 0) continue;
            if (part <= room_) [[likely]] {
                std::memcpy(last_, piece.iov_base, part);
                took(part);
            } else {
                record_slowly(static_cast<const std::byte*>(piece.iov_base), part);
            }
            length -= part;
            if (length == 0) break;
        }
        cursor_ = end_;
    }
    // False when memory was lacking: the session cannot go on elsewhere.
    bool is_whole() const { return is_whole_; }
    // Nobody asks for anything before that position any more.
    void forget_until(uint64_t position);

    // The next connection begins there. @return false if that is not kept
    bool replay_from(uint64_t position);
    bool is_replaying() const { return cursor_ != end_; }
    // What the present connection was given ends there.
    uint64_t given() const { return cursor_; }
    // The next bytes to replay. @return pieces
    size_t gather(std::span<iovec> room) const;
    void replayed(size_t length) { cursor_ += length; }

  private:
    void took(size_t length) {
        last_ += length;
        room_ -= length;
        end_ += length;
    }
    void record_slowly(const std::byte* data, size_t length);
    uint64_t length_of(const OutputItem& chunk) const {
        return &chunk == &chunks_.back() ? chunk.length - room_ : chunk.length;
    }

    OutputPools& pools_;
    OutputList chunks_;   // `length` is a chunk's capacity; all but the last are full
    uint64_t first_ = 0;  // position of the first chunk's first byte
    uint64_t begin_ = 0;
    uint64_t cursor_ = 0;
    uint64_t end_ = 0;
    std::byte* last_ = nullptr;  // where the next byte goes
    size_t room_ = 0;            // in the last chunk
    bool is_whole_ = true;
};

}  // namespace uct::tcp
