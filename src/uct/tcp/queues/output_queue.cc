// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/queues/output_queue.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "ucs/sys/descriptor.h"
#include "uct/tcp/wire/format.h"

namespace uct::tcp {
namespace {

constexpr std::array<std::byte, wire::kAlignment> kPadding{};

CopiedOutput& copied(OutputItem& item) {
    return static_cast<CopiedOutput&>(item);
}
ReferringOutput& referring(OutputItem& item) {
    return static_cast<ReferringOutput&>(item);
}
const ReferringOutput& referring(const OutputItem& item) {
    return static_cast<const ReferringOutput&>(item);
}
bool refers(const OutputItem& item) {
    return item.kind == OutputItem::Kind::kReferring;
}

// Adds pieces, leaving out the first `skip` bytes of all.
class PieceWriter {
  public:
    PieceWriter(std::span<iovec> room, uint64_t skip) : room_(room), skip_(skip) {}

    void add(const void* data, size_t length) {
        if (skip_ >= length) {
            skip_ -= length;
            return;
        }
        if (count_ == room_.size()) return;
        auto* start = static_cast<std::byte*>(const_cast<void*>(data)) + skip_;
        room_[count_++] = {start, length - skip_};
        skip_ = 0;
    }
    size_t count() const { return count_; }

  private:
    std::span<iovec> room_;
    uint64_t skip_;
    size_t count_ = 0;
};

// Takes bytes of any memory, by which the kernel tells whether it is there.
class Probe {
  public:
    Probe() {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return;
        out_.reset(ends[0]);
        in_.reset(ends[1]);
    }
    bool reads(const void* byte) {
        for (;;) {
            if (write(in_.get(), byte, 1) == 1) return true;
            if (errno == EINTR) continue;
            if (errno != EAGAIN) return errno != EFAULT;
            std::array<std::byte, 4096> old;
            if (read(out_.get(), old.data(), old.size()) < 0) return true;
        }
    }

  private:
    ucs::Descriptor in_, out_;
};

}  // namespace

void OutputPools::destroy(OutputItem* item) {
    if (refers(*item)) {
        referring.destroy(static_cast<ReferringOutput*>(item));
    } else if (spare == nullptr) {
        spare = static_cast<CopiedOutput*>(item);
    } else {
        copied.release(static_cast<CopiedOutput*>(item));
    }
}

OutputQueue::~OutputQueue() {
    items_.clear_and_dispose([this](OutputItem* item) { pools_.destroy(item); });
}

std::byte* OutputQueue::reserve(size_t length, const AssociationUser* owner) {
    if (!items_.empty() && !refers(items_.back()) && items_.back().owner == owner) {
        CopiedOutput& last = copied(items_.back());
        if (last.length + length <= pools_.copy_capacity) return last.data() + last.length;
    }
    if (length > pools_.copy_capacity) return nullptr;
    void* memory = pools_.allocate_copied(owner == nullptr);
    if (memory == nullptr) return nullptr;
    auto* made = ::new (memory) CopiedOutput;
    made->owner = owner;
    items_.push_back(*made);
    ++count_;
    return made->data();
}

void OutputQueue::commit(size_t length) {
    items_.back().length += length;
    bytes_ += length;
}

bool OutputQueue::append(std::span<const iovec> pieces, size_t skip, const AssociationUser* owner) {
    for (const iovec& piece : pieces) {
        const size_t passed = std::min(skip, piece.iov_len);
        skip -= passed;
        const auto* data = static_cast<const std::byte*>(piece.iov_base) + passed;
        for (size_t left = piece.iov_len - passed; left > 0;) {
            const size_t part = std::min(left, pools_.copy_capacity);
            std::byte* room = reserve(part, owner);
            if (room == nullptr) return false;
            std::memcpy(room, data, part);
            commit(part);
            data += part;
            left -= part;
        }
    }
    return true;
}

void OutputQueue::append(ReferringOutput* item) {
    item->length = item->head_length + item->tail;
    for (size_t i = 0; i < item->pieces_count; ++i) item->length += item->pieces[i].iov_len;
    items_.push_back(*item);
    ++count_;
    if (item->key != 0) ++replies_;
    bytes_ += item->length - item->sent;
}

bool OutputQueue::append_marker(const AssociationUser* owner, Completion* completion) {
    ReferringOutput* marker = make();
    if (marker == nullptr) return false;
    marker->owner = owner;
    marker->completion = completion;
    append(marker);
    return true;
}

int OutputQueue::gather(std::span<iovec> room, RegionTable::Reader* regions) const {
    size_t used = 0;
    for (const OutputItem& item : items_) {
        if (used == room.size()) break;
        PieceWriter writer(room.subspan(used), item.sent);
        if (!refers(item)) {
            auto& buffer = static_cast<CopiedOutput&>(const_cast<OutputItem&>(item));
            writer.add(buffer.data(), buffer.length);
        } else {
            const ReferringOutput& operation = referring(item);
            writer.add(operation.head.data(), operation.head_length);
            for (size_t i = 0; i < operation.pieces_count; ++i) {
                const iovec& piece = operation.pieces[i];
                if (operation.key != 0 &&
                    regions->find(operation.key, reinterpret_cast<uintptr_t>(piece.iov_base),
                                  piece.iov_len, PeerRights::kRead) == nullptr) {
                    return -1;
                }
                writer.add(piece.iov_base, piece.iov_len);
            }
            writer.add(kPadding.data(), operation.tail);
        }
        used += writer.count();
    }
    return static_cast<int>(used);
}

void OutputQueue::remove_front(OutputList& done) {
    OutputItem& item = items_.front();
    items_.pop_front();
    --count_;
    if (refers(item) && referring(item).key != 0) --replies_;
    done.push_back(item);
}

void OutputQueue::consume(size_t length, OutputList& done) {
    bytes_ -= length;
    while (!items_.empty()) {
        OutputItem& item = items_.front();
        const uint64_t left = item.length - item.sent;
        if (left > length) {
            item.sent += length;
            return;
        }
        length -= left;
        remove_front(done);
    }
}

void OutputQueue::forget(const AssociationUser* owner, OutputList& removed) {
    bool is_broken = false;  // something is lost: nothing may come behind it
    for (auto next = items_.begin(); next != items_.end();) {
        OutputItem& item = *next++;
        if (item.owner != owner) continue;
        if (!refers(item) && !is_broken) {
            item.owner = nullptr;
            continue;
        }
        const uint64_t left = item.length - item.sent;
        if (item.sent > 0) {
            // Peers must get whole frames. The copy takes the operation's place.
            iovec rest[ReferringOutput::kMaxPieces + 2];
            PieceWriter writer(rest, item.sent);
            const ReferringOutput& operation = referring(item);
            writer.add(operation.head.data(), operation.head_length);
            for (size_t i = 0; i < operation.pieces_count; ++i) {
                writer.add(operation.pieces[i].iov_base, operation.pieces[i].iov_len);
            }
            writer.add(kPadding.data(), operation.tail);
            OutputQueue copy(pools_);
            // Without memory the stream ends short, and the peer closes it.
            copy.append({rest, writer.count()}, 0, nullptr);
            count_ += copy.count_;
            bytes_ += copy.bytes_;
            items_.splice(items_.iterator_to(item), copy.items_);
        } else if (item.length > 0) {
            is_broken = true;
        }
        items_.erase(items_.iterator_to(item));
        --count_;
        bytes_ -= left;
        removed.push_back(item);
    }
}

ReferringOutput* OutputQueue::find_unreadable() {
    for (OutputItem& item : items_) {
        if (!refers(item)) continue;
        ReferringOutput& operation = referring(item);
        if (!is_readable(std::span(operation.pieces).first(operation.pieces_count))) {
            return &operation;
        }
    }
    return nullptr;
}

void OutputQueue::remove(ReferringOutput& item) {
    items_.erase(items_.iterator_to(item));
    --count_;
    bytes_ -= item.length;
    if (item.key != 0) --replies_;
}

void OutputQueue::take_all(OutputList& taken) {
    taken.splice(taken.end(), items_);
    count_ = replies_ = 0;
    bytes_ = 0;
}

void OutputQueue::splice(OutputQueue& other) {
    items_.splice(items_.end(), other.items_);
    count_ += std::exchange(other.count_, 0);
    replies_ += std::exchange(other.replies_, 0);
    bytes_ += std::exchange(other.bytes_, 0);
}

void complete_all(OutputPools& pools, OutputList& list, ucs_status_t status) {
    // A completion may add to any queue, but not to this list: it is the caller's.
    while (!list.empty()) {
        OutputItem& item = list.front();
        list.pop_front();
        Completion* completion = refers(item) ? referring(item).completion : nullptr;
        pools.destroy(&item);
        if (completion != nullptr) completion->complete(status);
    }
}

bool is_readable(std::span<const iovec> pieces) {
    static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    Probe probe;
    return std::ranges::all_of(pieces, [&](const iovec& piece) {
        const auto begin = reinterpret_cast<uintptr_t>(piece.iov_base);
        const uintptr_t end = begin + piece.iov_len;
        for (uintptr_t at = begin; at < end; at = (at / page + 1) * page) {
            if (!probe.reads(reinterpret_cast<const void*>(at))) return false;
        }
        return true;
    });
}

}  // namespace uct::tcp
