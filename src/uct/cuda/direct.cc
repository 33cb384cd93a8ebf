// SPDX-License-Identifier: BSD-3-Clause
#include "uct/cuda/direct.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace uct::cuda {

// --- one copy ---

ucs_status_t DirectCopy::ask(const CopyContext::Ticket& ticket) {
    const ucs_status_t status = job_.context->test(ticket);
    // A device that has failed writes no flag any more.
    if (status == UCS_INPROGRESS && ++polls_ % kPollsPerQuery == 0)
        return job_.context->query(ticket);
    return status;
}

void DirectCopy::handed_over(ucs_status_t status, const CopyContext::Ticket& ticket,
                             std::byte* list) {
    status_ = status;
    ticket_ = ticket;
    list_ = list;
    state_.store(status == UCS_OK ? State::kBegun : State::kFailed, std::memory_order_release);
}

ucs_status_t DirectCopy::test() {
    if (state_.load(std::memory_order_acquire) == State::kWaiting) owner_.flush(*job_.context);
    ucs_status_t status = UCS_INPROGRESS;
    switch (state_.load(std::memory_order_acquire)) {
        case State::kWaiting:
            // For company, or another thread hands it over; a device that fails meanwhile is seen.
            if (++polls_ % kPollsPerQuery == 0) {
                (void)job_.context->query({job_.context, Direction::kWithin, 0});
                (void)job_.context->query({job_.context, Direction::kWithinToo, 0});
            }
            return UCS_INPROGRESS;
        case State::kBegun:
            status = ask(ticket_);
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

ucs_status_t DirectCopy::begin_to_pinned() {
    state_ = State::kBegun;
    return job_.context->begin(Direction::kToHost, job_.to,
                               reinterpret_cast<const void*>(job_.from), job_.length, &ticket_);
}

ucs_status_t DirectCopy::begin_in_windows(StagingPool& staging) {
    state_ = State::kInWindows;
    ucs_status_t status = UCS_OK;
    for (Window& window : windows_) {
        if (status != UCS_OK || begun_ == job_.length) break;
        window.chunk = staging.take();
        status = window.chunk == nullptr ? UCS_ERR_NO_RESOURCE : fill(window);
    }
    if (status != UCS_OK) wait_for_windows();
    return status;
}

ucs_status_t DirectCopy::fill(Window& window) {
    window.length = std::min(job_.length - begun_, StagingPool::kChunk);
    if (window.length == 0) return UCS_OK;
    const ucs_status_t status = job_.context->begin(
        Direction::kToHost, window.chunk, reinterpret_cast<const void*>(job_.from + begun_),
        window.length, &window.ticket);
    if (status != UCS_OK) window.length = 0;
    begun_ += window.length;
    return status;
}

ucs_status_t DirectCopy::test_windows() {
    while (delivered_ < job_.length) {
        Window& window = windows_[turn_];
        ucs_status_t status = ask(window.ticket);
        if (status == UCS_INPROGRESS) return status;
        if (status == UCS_OK) {
            std::memcpy(job_.to + delivered_, window.chunk, window.length);
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
        if (window.length > 0) (void)job_.context->wait(window.ticket);
    }
}

void DirectCopy::close(StagingPool& staging) {
    if (list_ != nullptr) staging.put(list_);
    for (Window& window : windows_) {
        if (window.chunk != nullptr) staging.put(window.chunk);
        window = {};
    }
    job_ = {};
    state_ = State::kWaiting;
    status_ = UCS_OK;
    list_ = nullptr;
    polls_ = turn_ = 0;
    begun_ = delivered_ = 0;
}

// --- where from, and in which context ---

CopyContext* DirectCopies::context_for(const ucs::MemoryExport& from,
                                       const CopyEngine::Found& target) {
    if (target.type != UCS_MEMORY_TYPE_HOST) return engine_.context_of(target);
    if (from.process == exports_.process())
        return engine_.context_of(engine_.look_up(reinterpret_cast<const void*>(from.base)));
    return engine_.context_near(from.device);
}

ucs_status_t DirectCopies::find_source(const ucs::MemoryExport& from, CopyContext& context,
                                       Source* source) {
    if (from.process != exports_.process()) {
        if (from.has_handle == 0) return UCS_ERR_UNSUPPORTED;
        const ucs_status_t status = mappings_.take(from, context, &source->mapping);
        if (status == UCS_OK) source->address = source->mapping->address + from.offset;
        return status;
    }
    const CopyEngine::Found found = engine_.look_up(reinterpret_cast<const void*>(from.base));
    if (found.type == UCS_MEMORY_TYPE_HOST || found.base != from.base ||
        found.length != from.size || Exports::buffer_at(engine_.driver(), from.base) != from.buffer)
        return UCS_ERR_INVALID_PARAM;
    source->address = from.base + from.offset;
    if (found.device == context.device()) return UCS_OK;
    // Pools and virtual memory open to other devices as their owner says, if at all.
    CopyContext* const owner = found.context == nullptr ? nullptr : engine_.context_of(found);
    return owner == nullptr ? UCS_ERR_UNSUPPORTED : mappings_.reach(context, *owner);
}

ucs_status_t DirectCopies::fetch(const ucs::MemoryExport& from, void* to, size_t length,
                                 ucs::AsyncCopy** copy) {
    if (from.version != ucs::kMemoryExportVersion || from.offset > from.size ||
        length > from.size - from.offset)
        return UCS_ERR_INVALID_PARAM;
    const CopyEngine::Found target = engine_.look_up(to);
    const bool is_to_host = target.type == UCS_MEMORY_TYPE_HOST;
    if (!is_to_host && length > target.length - (reinterpret_cast<uintptr_t>(to) - target.base))
        return UCS_ERR_UNSUPPORTED;
    CopyContext* const context = context_for(from, target);
    if (context == nullptr) return UCS_ERR_UNSUPPORTED;
    Source source;
    ucs_status_t status = find_source(from, *context, &source);
    if (status != UCS_OK) return status;
    DirectCopy* const made = take();
    if (made == nullptr) {
        if (source.mapping != nullptr) mappings_.put(*source.mapping);
        return UCS_ERR_NO_MEMORY;
    }
    made->open({context, source.mapping, source.address, static_cast<std::byte*>(to), length});
    if (is_to_host) {
        status = engine_.is_pinned(to, length) ? made->begin_to_pinned()
                                               : made->begin_in_windows(staging_);
    } else {
        std::lock_guard lock(mutex_);
        waiting_.push_back(made);
    }
    if (status != UCS_OK) {
        put(*made);
        return status;
    }
    *copy = made;
    return UCS_OK;
}

// --- handing over ---

bool DirectCopies::begin_list(CopyContext& context, std::span<DirectCopy* const> copies) {
    size_t total = 0;
    for (const DirectCopy* copy : copies) total += copy->job().length;
    if (copies.size() < kLeastList || total / copies.size() > kLongPiece || !context.takes_lists())
        return false;
    std::byte* const chunk = staging_.take();
    if (chunk == nullptr) return false;
    const size_t cut = std::max(kLeastCut, (total / kParts + 15) / 16 * 16);
    auto* const list = reinterpret_cast<KernelPiece*>(chunk);
    constexpr size_t kMost = StagingPool::kChunk / sizeof(KernelPiece);
    size_t count = 0;
    for (const DirectCopy* copy : copies) {
        for (size_t at = 0; at < copy->job().length && count < kMost; at += cut)
            list[count++] = {reinterpret_cast<uint64_t>(copy->job().to + at), copy->job().from + at,
                             std::min(cut, copy->job().length - at)};
    }
    CopyContext::Ticket ticket;
    const bool is_begun =
        count < kMost && context.begin_list(Direction::kWithin, {list, count}, &ticket) == UCS_OK;
    if (!is_begun) {
        staging_.put(chunk);
        return false;
    }
    latest_ = ticket;
    for (DirectCopy* copy : copies)
        copy->handed_over(UCS_OK, ticket, copy == copies.front() ? chunk : nullptr);
    return true;
}

/** With the mutex: nothing is gained if what waits waits for more. */
bool DirectCopies::has_company() const {
    size_t bytes = 0;
    for (const DirectCopy* copy : waiting_) {
        if (copy->job().length > kLongPiece) return true;
        bytes += copy->job().length;
    }
    return waiting_.size() >= kCompany || bytes >= kCompanyBytes;
}

void DirectCopies::flush(CopyContext& context) {
    std::lock_guard lock(mutex_);
    if (!has_company() && latest_.context == &context && context.test(latest_) == UCS_INPROGRESS)
        return;
    handed_over_.clear();
    std::erase_if(waiting_, [&](DirectCopy* copy) {
        if (copy->job().context != &context) return false;
        handed_over_.push_back(copy);
        return true;
    });
    if (begin_list(context, handed_over_)) return;
    for (DirectCopy* copy : handed_over_) {
        const DirectCopy::Job& job = copy->job();
        CopyContext::Ticket ticket;
        const ucs_status_t status = context.begin(
            next_, job.to, reinterpret_cast<const void*>(job.from), job.length, &ticket);
        next_ = next_ == Direction::kWithin ? Direction::kWithinToo : Direction::kWithin;
        if (status == UCS_OK) latest_ = ticket;
        copy->handed_over(status, ticket, nullptr);
    }
}

DirectCopy* DirectCopies::take() {
    std::lock_guard lock(mutex_);
    if (idle_.empty()) return new (std::nothrow) DirectCopy(*this);
    DirectCopy* const copy = idle_.back().release();
    idle_.pop_back();
    return copy;
}

void DirectCopies::put(DirectCopy& copy) {
    if (copy.job().mapping != nullptr) mappings_.put(*copy.job().mapping);
    copy.close(staging_);
    std::lock_guard lock(mutex_);
    idle_.emplace_back(&copy);
}

}  // namespace uct::cuda
