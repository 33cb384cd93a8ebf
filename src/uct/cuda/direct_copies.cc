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

namespace {

DirectCopy::Plan plan_of(const ucs::DevicePiece& piece, std::byte* there, bool is_fetch,
                         CopyContext* context, MappingUse* way) {
    auto* const here = static_cast<std::byte*>(piece.here);
    return {.context = context,
            .way = way,
            .to = is_fetch ? here : there,
            .from = is_fetch ? there : here,
            .length = piece.length};
}

bool is_sound(const ucs::DevicePiece& piece) {
    const ucs::MemoryExport& described = *piece.there;
    return Places::is_sound(described, piece.offset) &&
           piece.length <= described.size - described.offset - piece.offset;
}

bool is_within(const ucs::MemoryInfo& memory, const ucs::DevicePiece& piece) {
    return memory.holds(piece.here) &&
           piece.length <=
               memory.length - static_cast<size_t>(static_cast<const std::byte*>(piece.here) -
                                                   static_cast<const std::byte*>(memory.base));
}

}  // namespace

// As copies went before that work on the same memory at both ends, and of which one still goes
// there.
// @return false: nothing was done
bool DirectCopies::begin_as_before(const ucs::DevicePiece& piece, const ucs::MemoryInfo& known,
                                   Access access, ucs::AsyncCopy** copy) {
    if (known.allocation == 0 || !is_within(known, piece) || !is_sound(piece)) return false;
    const Route& route = route_of(known.allocation, *piece.there);
    DirectCopy* made;
    DirectQueue* queue;
    {
        std::lock_guard lock(lock_);
        if (route.allocation != known.allocation || !route.context->works() ||
            !leads_to(*route.way, *piece.there, *route.context) || (made = take()) == nullptr)
            return false;
        ++route.way->copies;
        queue = route.queue;
        std::byte* const there =
            Place::in(*route.way->mapping, piece.there->offset + piece.offset).address;
        made->open(plan_of(piece, there, access == Access::kFetch, route.context, route.way),
                   queue);
    }
    queue->add(*made);
    *copy = made;
    return true;
}

ucs_status_t DirectCopies::begin_anew(const ucs::DevicePiece& piece, Access access,
                                      ucs::AsyncCopy** copy) {
    if (!is_sound(piece)) return UCS_ERR_INVALID_PARAM;
    const ucs::MemoryExport& described = *piece.there;
    auto* const here = static_cast<std::byte*>(piece.here);
    const CopyEngine::Found found = engine_.look_up(here);
    const bool is_host = found.type == UCS_MEMORY_TYPE_HOST;
    if (!is_host && !found.reserves(here, piece.length)) return UCS_ERR_UNSUPPORTED;
    CopyContext* const context = context_for(described, found);
    if (context == nullptr) return UCS_ERR_UNSUPPORTED;
    const bool is_fetch = access == Access::kFetch;
    Direction direction = Direction::kWithin;
    if (is_host) direction = is_fetch ? Direction::kToHost : Direction::kToDevice;
    const bool is_in_windows = is_host && !engine_.is_pinned(here, piece.length);
    Place place;
    std::unique_lock lock(lock_);
    DirectCopy* const made = take();
    if (made == nullptr) return UCS_ERR_NO_MEMORY;
    MappingUse* way = find_way(described, *context);
    if (way != nullptr) {
        ++way->copies;
        place = Place::in(*way->mapping, described.offset);
    } else {
        lock.unlock();
        const ucs_status_t status = places_.find(described, *context, &place);
        lock.lock();
        if (status != UCS_OK) {
            idle_.emplace_back(made);
            return status;
        }
        if (place.mapping != nullptr) way = &add_way(*place.mapping);
    }
    DirectQueue* const queue = is_in_windows ? nullptr : &queue_of(*context, direction);
    if (way != nullptr && !is_host)
        route_of(found.number, described) = {found.number, context, way, queue};
    lock.unlock();
    DirectCopy::Plan plan = plan_of(piece, place.address + piece.offset, is_fetch, context, way);
    plan.direction = direction;
    made->open(plan, queue);
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
                              : std::span(reinterpret_cast<std::byte*>(found.base), found.reserved);
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

// Copies go that way, and more may.
bool DirectCopies::leads_to(const MappingUse& way, const ucs::MemoryExport& described,
                            const CopyContext& context) {
    if (way.copies == 0) return false;
    const Mapping& mapping = *way.mapping;
    return mapping.is_of(described.process, described.buffer, context) &&
           mapping.owner.size == described.size &&
           !mapping.is_unwanted.load(std::memory_order_relaxed);
}

MappingUse* DirectCopies::find_way(const ucs::MemoryExport& described, const CopyContext& context) {
    const auto way = std::ranges::find_if(ways_, [&](const std::unique_ptr<MappingUse>& one) {
        return leads_to(*one, described, context);
    });
    return way == ways_.end() ? nullptr : way->get();
}

// For one copy.
MappingUse& DirectCopies::add_way(Mapping& mapping) {
    const auto unused = std::ranges::find(ways_, 0u, [](const auto& way) { return way->copies; });
    MappingUse& way =
        unused != ways_.end() ? **unused : *ways_.emplace_back(std::make_unique<MappingUse>());
    way = {&mapping, 1};
    return way;
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
    MappingUse* const way = copy.plan().way;
    Mapping* unused = nullptr;
    {
        std::lock_guard lock(lock_);
        if (way != nullptr && --way->copies == 0) unused = way->mapping;
        idle_.emplace_back(&copy);
    }
    if (unused != nullptr) mappings_.put(*unused);
}

}  // namespace uct::cuda
