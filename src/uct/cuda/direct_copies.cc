// SPDX-License-Identifier: BSD-3-Clause
#include "uct/cuda/direct_copies.h"

#include <algorithm>
#include <new>

#include "uct/cuda/piece_copy.h"

namespace uct::cuda {

// --- where, and in which context ---

CopyContext* DirectCopies::context_for(const ucs::MemoryExport& described,
                                       const CopyEngine::Found& here) {
    if (here.type != UCS_MEMORY_TYPE_HOST) return engine_.context_of(here);
    if (places_.is_own(described))
        return engine_.context_of(engine_.look_up(reinterpret_cast<const void*>(described.base)));
    return engine_.context_near(described.device);
}

ucs_status_t DirectCopies::begin(const ucs::MemoryExport& described, std::byte* here, size_t length,
                                 Access access, ucs::AsyncCopy** copy) {
    if (!Places::is_sound(described, length)) return UCS_ERR_INVALID_PARAM;
    const CopyEngine::Found found = engine_.look_up(here);
    const bool is_host = found.type == UCS_MEMORY_TYPE_HOST;
    if (!is_host && length > found.length - (reinterpret_cast<uintptr_t>(here) - found.base))
        return UCS_ERR_UNSUPPORTED;
    CopyContext* const context = context_for(described, found);
    if (context == nullptr) return UCS_ERR_UNSUPPORTED;
    const bool is_fetch = access == Access::kFetch;
    Direction direction = Direction::kWithin;
    if (is_host) direction = is_fetch ? Direction::kToHost : Direction::kToDevice;
    const bool is_in_windows = is_host && !engine_.is_pinned(here, length);
    Place place;
    std::unique_lock lock(lock_);
    DirectCopy* const made = take();
    if (made == nullptr) return UCS_ERR_NO_MEMORY;
    if (!find_way(described, *context, &place)) {
        lock.unlock();
        const ucs_status_t status = places_.find(described, *context, &place);
        lock.lock();
        if (status != UCS_OK) {
            idle_.emplace_back(made);
            return status;
        }
        if (place.mapping != nullptr) ways_.push_back({place.mapping, 1});
    }
    DirectQueue* const queue = is_in_windows ? nullptr : &queue_of(*context, direction);
    lock.unlock();
    made->open({context, place.mapping, direction, is_fetch ? here : place.address,
                is_fetch ? place.address : here, length},
               queue);
    if (queue != nullptr) {
        queue->add(*made);
    } else if (const ucs_status_t status = made->begin_in_windows(staging_); status != UCS_OK) {
        put(*made);
        return status;
    }
    *copy = made;
    return UCS_OK;
}

Direction DirectCopies::stream(CopyContext& context, Direction direction) {
    std::lock_guard lock(lock_);
    return queue_of(context, direction).next_stream();
}

// --- lists ---

DirectCopies::Here DirectCopies::find_here(const ucs::DevicePiece& piece) {
    Here here;
    const CopyEngine::Found found = engine_.look_up(piece.here);
    here.is_host = found.type == UCS_MEMORY_TYPE_HOST;
    here.range = here.is_host ? engine_.pinned_range(piece.here)
                              : std::span(reinterpret_cast<std::byte*>(found.base), found.length);
    if (here.holds(piece)) here.context = context_for(*piece.there, found);
    return here;
}

// The pieces that such a list begins with, as many as are short and in the same memory at both
// ends.
// @param room  bytes from where the described memory begins
// @return how many
size_t DirectCopies::add_run(PieceCopy& copy, std::span<const ucs::DevicePiece> pieces,
                             const Here& here, const Place& place, uint64_t room, bool is_store) {
    const std::span<KernelPiece> list = copy.room();
    const ucs::MemoryExport* const there = pieces.front().there;
    const size_t most = std::min(pieces.size(), list.size());
    size_t count = 0;
    for (; count < most; ++count) {
        const ucs::DevicePiece& piece = pieces[count];
        if (piece.there != there || piece.length > PieceCopy::kCut || !here.holds(piece) ||
            piece.offset > room || piece.length > room - piece.offset)
            break;
        const auto far = reinterpret_cast<uint64_t>(place.address) + piece.offset;
        const auto near = reinterpret_cast<uint64_t>(piece.here);
        list[count] = {is_store ? far : near, is_store ? near : far, piece.length};
    }
    copy.added(count);
    return count;
}

ucs_status_t DirectCopies::transfer(std::span<const ucs::DevicePiece> pieces, bool is_store,
                                    size_t* begun, ucs::AsyncCopy** copy) {
    *begun = 0;
    ucs_status_t status = UCS_OK;
    std::unique_ptr<PieceCopy> made;
    Direction way = Direction::kWithin;  // of the list
    Here here;
    const ucs::MemoryExport* there = nullptr;
    Place place;
    uint64_t room = 0;  // bytes of it
    while (*begun < pieces.size()) {
        const ucs::DevicePiece& piece = pieces[*begun];
        if (!here.holds(piece)) {
            here = find_here(piece);
            if (here.context == nullptr) {
                status = UCS_ERR_UNSUPPORTED;
                break;
            }
        }
        Direction direction = Direction::kWithin;
        if (here.is_host) direction = is_store ? Direction::kToDevice : Direction::kToHost;
        if (made == nullptr) {
            made.reset(new (std::nothrow) PieceCopy(*here.context, stream(*here.context, direction),
                                                    staging_, mappings_));
            if (made == nullptr) return UCS_ERR_NO_MEMORY;
            way = direction;
        } else if (&made->context() != here.context || way != direction) {
            break;  // another list's
        }
        if (piece.there != there) {
            if (!Places::is_sound(*piece.there, 0)) {
                status = UCS_ERR_INVALID_PARAM;
                break;
            }
            place = {};
            status = places_.find(*piece.there, *here.context, &place);
            if (status != UCS_OK) break;
            if (place.mapping != nullptr) made->hold(*place.mapping);
            there = piece.there;
            room = there->size - there->offset;
        }
        const size_t run = add_run(*made, pieces.subspan(*begun), here, place, room, is_store);
        *begun += run;
        if (run > 0) continue;
        if (piece.offset > room || piece.length > room - piece.offset) {
            status = UCS_ERR_INVALID_PARAM;
            break;
        }
        std::byte* const far = place.address + piece.offset;
        auto* const near = static_cast<std::byte*>(piece.here);
        made->add(is_store ? far : near, is_store ? near : far, piece.length);
        ++*begun;
    }
    if (*begun == 0) return status == UCS_OK ? UCS_ERR_UNSUPPORTED : status;
    made->close();
    *copy = made.release();
    return UCS_OK;
}

// --- with the lock ---

bool DirectCopies::find_way(const ucs::MemoryExport& described, const CopyContext& context,
                            Place* place) {
    for (Way& way : ways_) {
        Mapping& mapping = *way.mapping;
        if (!mapping.is_of(described.process, described.buffer, context) ||
            mapping.owner.size != described.size ||
            mapping.is_unwanted.load(std::memory_order_relaxed))
            continue;
        ++way.copies;
        *place = Place::in(mapping, described.offset);
        return true;
    }
    return false;
}

// @return the mapping, to be given back; null: other copies go that way
Mapping* DirectCopies::leave_way(const Mapping& mapping) {
    const auto way = std::ranges::find(ways_, &mapping, &Way::mapping);
    if (--way->copies > 0) return nullptr;
    Mapping* const unused = way->mapping;
    *way = ways_.back();
    ways_.pop_back();
    return unused;
}

DirectCopy* DirectCopies::take() {
    if (idle_.empty()) return new (std::nothrow) DirectCopy(*this);
    DirectCopy* const copy = idle_.back().release();
    idle_.pop_back();
    return copy;
}

DirectQueue& DirectCopies::queue_of(CopyContext& context, Direction direction) {
    for (const std::unique_ptr<DirectQueue>& queue : queues_) {
        if (queue->is_of(context, direction)) return *queue;
    }
    return *queues_.emplace_back(std::make_unique<DirectQueue>(context, direction, staging_));
}

// --- for the copies ---

void DirectCopies::put(DirectCopy& copy) {
    copy.close(staging_);
    const Mapping* const mapping = copy.plan().mapping;
    Mapping* unused = nullptr;
    {
        std::lock_guard lock(lock_);
        if (mapping != nullptr) unused = leave_way(*mapping);
        idle_.emplace_back(&copy);
    }
    if (unused != nullptr) mappings_.put(*unused);
}

}  // namespace uct::cuda
