// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/queues/history.h"

#include <algorithm>

namespace uct::tcp {

History::~History() {
    chunks_.clear_and_dispose([this](OutputItem* chunk) { pools_.destroy(chunk); });
}

void History::record_slowly(const std::byte* data, size_t length) {
    while (length > 0) {
        if (room_ == 0) {
            void* memory = pools_.copied.allocate();
            if (memory == nullptr) {
                is_whole_ = false;
                end_ += length;
                return;
            }
            auto* made = ::new (memory) CopiedOutput;
            made->length = pools_.copy_capacity;
            if (chunks_.empty()) first_ = end_;
            chunks_.push_back(*made);
            last_ = made->data();
            room_ = made->length;
        }
        const size_t part = std::min(length, room_);
        std::memcpy(last_, data, part);
        took(part);
        data += part;
        length -= part;
    }
}

void History::forget_until(uint64_t position) {
    begin_ = std::clamp(position, begin_, cursor_);
    while (!chunks_.empty()) {
        OutputItem& chunk = chunks_.front();
        const uint64_t length = length_of(chunk);
        if (first_ + length > begin_) break;
        first_ += length;
        chunks_.pop_front();
        pools_.destroy(&chunk);
        if (chunks_.empty()) room_ = 0;
    }
}

bool History::replay_from(uint64_t position) {
    if (!is_whole_ || position < begin_ || position > end_) return false;
    cursor_ = position;
    return true;
}

size_t History::gather(std::span<iovec> room) const {
    size_t used = 0;
    uint64_t start = first_;
    for (const OutputItem& chunk : chunks_) {
        if (used == room.size()) break;
        const uint64_t length = length_of(chunk);
        if (start + length > cursor_) {
            const uint64_t skip = std::max(start, cursor_) - start;
            auto& bytes = static_cast<CopiedOutput&>(const_cast<OutputItem&>(chunk));
            room[used++] = {bytes.data() + skip, length - skip};
        }
        start += length;
    }
    return used;
}

}  // namespace uct::tcp
