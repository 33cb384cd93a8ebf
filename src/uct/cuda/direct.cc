// SPDX-License-Identifier: BSD-3-Clause
#include "uct/cuda/direct.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cstring>
#include <new>

#include "uct/cuda/piece_copy.h"

namespace uct::cuda {

namespace {

// So much does not stay in the processor's caches until the program comes to read it.
constexpr size_t kPastCaches = 1 << 20;

// As memcpy, without reading the lines first that are written as a whole: to what has not been in
// the caches it is nearly twice as fast. Into a chunk that a device reads next it is slower.
void copy_past_caches(std::byte* to, const std::byte* from, size_t length) {
#ifdef __SSE2__
    constexpr size_t kLine = 64;
    const size_t before = std::min(length, (0 - reinterpret_cast<uintptr_t>(to)) % kLine);
    std::memcpy(to, from, before);
    size_t at = before;
    for (; length - at >= kLine; at += kLine) {
        const auto* const source = reinterpret_cast<const __m128i*>(from + at);
        auto* const target = reinterpret_cast<__m128i*>(to + at);
        const __m128i words[] = {_mm_loadu_si128(source), _mm_loadu_si128(source + 1),
                                 _mm_loadu_si128(source + 2), _mm_loadu_si128(source + 3)};
        for (size_t i = 0; i < std::size(words); ++i) _mm_stream_si128(target + i, words[i]);
    }
    std::memcpy(to + at, from + at, length - at);
    _mm_sfence();
#else
    std::memcpy(to, from, length);
#endif
}

}  // namespace

// --- one copy ---

ucs_status_t DirectCopy::ask(const CopyContext::Ticket& ticket) {
    const ucs_status_t status = plan_.context->test(ticket);
    // A device that has failed writes no flag any more.
    if (status == UCS_INPROGRESS && ++polls_ % kPollsPerQuery == 0)
        return plan_.context->query(ticket);
    return status;
}

void DirectCopy::handed_over(ucs_status_t status, const CopyContext::Ticket& ticket,
                             std::byte* list) {
    status_ = status;
    ticket_ = ticket;
    list_ = list;
    state_.store(status == UCS_OK ? State::kBegun : State::kFailed, std::memory_order_release);
}

void DirectCopy::handed_over(Resident& resident, uint32_t number) {
    resident_ = &resident;
    number_ = number;
    state_.store(State::kResident, std::memory_order_release);
}

ucs_status_t DirectCopy::ask_resident() {
    ucs_status_t status = resident_->test(number_);
    // A device that has failed writes nothing any more.
    if (status == UCS_INPROGRESS && ++polls_ % kPollsPerQuery == 0)
        status = resident_->query(number_);
    if (status != UCS_ERR_CANCELED) return status;
    state_.store(State::kWaiting, std::memory_order_relaxed);
    owner_.wait_again(*this);
    return UCS_INPROGRESS;
}

// Nothing has changed since it was last found to wait.
bool DirectCopy::stays_behind() const {
    return behind_.ticket.context == plan_.context && behind_.company == owner_.company() &&
           plan_.context->test(behind_.ticket) == UCS_INPROGRESS;
}

ucs_status_t DirectCopy::test() {
    if (state_.load(std::memory_order_acquire) == State::kWaiting && !stays_behind())
        owner_.flush(*plan_.context, plan_.direction, &behind_);
    ucs_status_t status = UCS_INPROGRESS;
    switch (state_.load(std::memory_order_acquire)) {
        case State::kWaiting:
            // For company, or another thread hands it over; a device that fails meanwhile is seen.
            if (++polls_ % kPollsPerQuery == 0) {
                (void)plan_.context->query({plan_.context, plan_.direction, 0});
                (void)plan_.context->query({plan_.context, Direction::kWithinToo, 0});
            }
            return UCS_INPROGRESS;
        case State::kBegun:
            status = ask(ticket_);
            break;
        case State::kResident:
            status = ask_resident();
            break;
        case State::kInWindows:
            status = test_windows();
            break;
        case State::kFailed:
            status = status_;
            break;
    }
    if (status != UCS_INPROGRESS) owner_.put(*this);
    return status;
}

ucs_status_t DirectCopy::begin_in_windows(StagingPool& staging) {
    state_ = State::kInWindows;
    ucs_status_t status = UCS_OK;
    for (Window& window : windows_) {
        if (status != UCS_OK || begun_ == plan_.length) break;
        window.chunk = staging.take();
        status = window.chunk == nullptr ? UCS_ERR_BUSY : fill(window);
    }
    if (status != UCS_OK) wait_for_windows();
    return status;
}

ucs_status_t DirectCopy::fill(Window& window) {
    window.length = std::min(plan_.length - begun_, StagingPool::kChunk);
    if (window.length == 0) return UCS_OK;
    const bool is_to_host = plan_.direction == Direction::kToHost;
    if (!is_to_host) std::memcpy(window.chunk, plan_.from + begun_, window.length);
    const ucs_status_t status = plan_.context->begin(
        plan_.direction, is_to_host ? window.chunk : plan_.to + begun_,
        is_to_host ? plan_.from + begun_ : window.chunk, window.length, &window.ticket);
    if (status != UCS_OK) window.length = 0;
    begun_ += window.length;
    return status;
}

ucs_status_t DirectCopy::test_windows() {
    while (delivered_ < plan_.length) {
        Window& window = windows_[turn_];
        ucs_status_t status = ask(window.ticket);
        if (status == UCS_INPROGRESS) return status;
        if (status == UCS_OK) {
            if (plan_.direction == Direction::kToHost) {
                std::byte* const to = plan_.to + delivered_;
                if (plan_.length >= kPastCaches) {
                    copy_past_caches(to, window.chunk, window.length);
                } else {
                    std::memcpy(to, window.chunk, window.length);
                }
            }
            delivered_ += window.length;
            turn_ = (turn_ + 1) % kWindows;
            status = fill(window);
        }
        if (status != UCS_OK) {
            wait_for_windows();
            return status;
        }
    }
    return UCS_OK;
}

void DirectCopy::wait_for_windows() {
    for (Window& window : windows_) {
        if (window.length > 0) (void)plan_.context->wait(window.ticket);
    }
}

void DirectCopy::close(StagingPool& staging) {
    if (list_ != nullptr) staging.put(list_);
    list_ = nullptr;
    if (state_.load(std::memory_order_relaxed) == State::kInWindows) {
        for (Window& window : windows_) {
            if (window.chunk != nullptr) staging.put(window.chunk);
            window = {};
        }
        turn_ = 0;
        begun_ = delivered_ = 0;
    }
    state_.store(State::kWaiting, std::memory_order_relaxed);
    behind_ = {};
    polls_ = 0;
}

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
    made->open({context, place.mapping, direction, is_fetch ? here : place.address,
                is_fetch ? place.address : here, length});
    if (!is_in_windows) wait(*made);
    lock.unlock();
    const ucs_status_t status = is_in_windows ? made->begin_in_windows(staging_) : UCS_OK;
    if (status != UCS_OK) {
        put(*made);
        return status;
    }
    *copy = made;
    return UCS_OK;
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
            made.reset(new (std::nothrow)
                           PieceCopy(*here.context, stream_of(direction), staging_, mappings_));
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

// --- handing over ---

Direction DirectCopies::stream_of(Direction direction) {
    if (direction != Direction::kWithin) return direction;
    return next_.fetch_xor(1, std::memory_order_relaxed) == 0 ? Direction::kWithin
                                                              : Direction::kWithinToo;
}

bool DirectCopies::begin_list(CopyContext& context, Direction direction,
                              std::span<DirectCopy* const> copies) {
    size_t total = 0;
    for (const DirectCopy* copy : copies) total += copy->plan().length;
    const size_t most = direction == Direction::kWithin ? kLongPiece : kLongHostPiece;
    if (copies.size() < kLeastList || total / copies.size() > most || !context.takes_lists())
        return false;
    std::byte* const chunk = staging_.take();
    if (chunk == nullptr) return false;
    const size_t cut = std::max(kLeastCut, (total / kParts + 15) / 16 * 16);
    auto* const list = reinterpret_cast<KernelPiece*>(chunk);
    constexpr size_t kMaxPieces = StagingPool::kChunk / sizeof(KernelPiece);
    size_t count = 0;
    for (const DirectCopy* copy : copies) {
        const DirectCopy::Plan& plan = copy->plan();
        for (size_t at = 0; at < plan.length && count < kMaxPieces; at += cut) {
            list[count++] = {reinterpret_cast<uint64_t>(plan.to + at),
                             reinterpret_cast<uint64_t>(plan.from + at),
                             std::min(cut, plan.length - at)};
        }
    }
    CopyContext::Ticket ticket;
    const bool is_begun =
        count < kMaxPieces && context.begin_list(direction, {list, count}, &ticket) == UCS_OK;
    if (!is_begun) {
        staging_.put(chunk);
        return false;
    }
    latest_[static_cast<size_t>(direction)] = ticket;
    for (DirectCopy* copy : copies)
        copy->handed_over(UCS_OK, ticket, copy == copies.front() ? chunk : nullptr);
    return true;
}

// With the lock: nothing is gained if what waits waits for more.
bool DirectCopies::has_company(const CopyContext& context, Direction direction) const {
    size_t bytes = 0, count = 0;
    for (const DirectCopy* copy : waiting_) {
        const DirectCopy::Plan& plan = copy->plan();
        if (plan.context != &context || plan.direction != direction) continue;
        if (plan.length > kLongPiece) return true;
        bytes += plan.length;
        ++count;
    }
    return count >= kCompany || bytes >= kCompanyBytes;
}

// With the lock.
template <typename Predicate>
void DirectCopies::take_waiting(Predicate predicate) {
    handed_over_.clear();
    std::erase_if(waiting_, [&](DirectCopy* copy) {
        if (!predicate(copy->plan())) return false;
        handed_over_.push_back(copy);
        return true;
    });
}

// Of many, a kernel of many blocks makes less.
void DirectCopies::hand_to(Resident& resident, const CopyContext& context, Direction direction) {
    const auto fits = [&](const DirectCopy::Plan& plan) {
        return plan.context == &context && plan.direction == direction &&
               plan.length <= Resident::kMaxLength;
    };
    {
        std::lock_guard lock(lock_);
        const auto count = std::ranges::count_if(waiting_, fits, &DirectCopy::plan);
        if (count == 0 || static_cast<size_t>(count) >= kLeastList) return;
        take_waiting(fits);
    }
    std::erase_if(handed_over_, [&](DirectCopy* copy) {
        const DirectCopy::Plan& plan = copy->plan();
        uint32_t number = 0;
        if (!resident.begin(plan.to, plan.from, plan.length, &number)) return false;
        copy->handed_over(resident, number);
        return true;
    });
    std::lock_guard lock(lock_);
    waiting_.insert(waiting_.end(), handed_over_.begin(), handed_over_.end());
}

void DirectCopies::flush(CopyContext& context, Direction direction, DirectCopy::Behind* behind) {
    std::lock_guard handing_over(handing_over_);
    if (Resident* const resident = context.resident()) hand_to(*resident, context, direction);
    CopyContext::Ticket& latest = latest_[static_cast<size_t>(direction)];
    {
        std::lock_guard lock(lock_);
        if (latest.context == &context && context.test(latest) == UCS_INPROGRESS &&
            !has_company(context, direction)) {
            *behind = {latest, company()};
            return;
        }
        take_waiting([&](const DirectCopy::Plan& plan) {
            return plan.context == &context && plan.direction == direction;
        });
    }
    if (begin_list(context, direction, handed_over_)) return;
    for (DirectCopy* copy : handed_over_) {
        const DirectCopy::Plan& plan = copy->plan();
        CopyContext::Ticket ticket;
        const ucs_status_t status =
            context.begin(stream_of(direction), plan.to, plan.from, plan.length, &ticket);
        if (status == UCS_OK) latest = ticket;
        copy->handed_over(status, ticket, nullptr);
    }
}

// With the lock, as all of the following.
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

void DirectCopies::wait(DirectCopy& copy) {
    waiting_.push_back(&copy);
    company_.store(company() + 1, std::memory_order_relaxed);
}

// --- for the copies ---

void DirectCopies::wait_again(DirectCopy& copy) {
    std::lock_guard lock(lock_);
    wait(copy);
}

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
