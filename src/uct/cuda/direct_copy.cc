// SPDX-License-Identifier: BSD-3-Clause
#include "uct/cuda/direct_copy.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cstring>
#include <new>

#include "uct/cuda/direct_copies.h"
#include "uct/cuda/direct_queue.h"

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

ucs_status_t DirectCopy::ask(const CopyContext::Ticket& ticket, uint32_t tests) {
    const ucs_status_t status = plan_.context->test(ticket);
    // A device that has failed writes no flag any more.
    if (status == UCS_INPROGRESS && is_due(tests)) return plan_.context->query(ticket);
    return status;
}

void DirectCopy::handed_over(ucs_status_t status, const CopyContext::Ticket& ticket,
                             std::byte* list) {
    status_ = status;
    ticket_ = ticket;
    list_ = list;
    wait_with(nullptr);
    state_.store(status == UCS_OK ? State::kBegun : State::kFailed, std::memory_order_release);
    if (status == UCS_OK) await(plan_.context->end_word(ticket.direction), ticket.number);
}

void DirectCopy::handed_over(Resident& resident, uint32_t number) {
    resident_ = &resident;
    number_ = number;
    wait_with(nullptr);
    state_.store(State::kResident, std::memory_order_release);
}

ucs_status_t DirectCopy::ask_resident() {
    ucs_status_t status = resident_->test(number_);
    // A device that has failed writes nothing any more.
    if (status == UCS_INPROGRESS && is_due(1)) status = resident_->query(number_);
    if (status != UCS_ERR_CANCELED) return status;
    state_.store(State::kWaiting, std::memory_order_relaxed);
    wait_with(queue_);
    queue_->add(*this);
    return UCS_INPROGRESS;
}

ucs_status_t DirectCopy::test() {
    if (state_.load(std::memory_order_acquire) == State::kWaiting) queue_->flush();
    ucs_status_t status = UCS_INPROGRESS;
    switch (state_.load(std::memory_order_acquire)) {
        case State::kWaiting:
            // For company, or another thread hands it over; a device that fails meanwhile is seen.
            if (is_due(1)) {
                (void)plan_.context->query({plan_.context, plan_.direction, 0});
                (void)plan_.context->query({plan_.context, Direction::kWithinToo, 0});
            }
            return UCS_INPROGRESS;
        case State::kBegun:
            status = ask(ticket_, kPollsPerTest);
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

ucs_status_t DirectCopy::end() {
    owner_.put(*this);
    return UCS_OK;
}

ucs_status_t DirectCopy::begin_in_windows(StagingPool& staging) {
    if (windows_ == nullptr) windows_.reset(new (std::nothrow) Windows);
    if (windows_ == nullptr) return UCS_ERR_NO_MEMORY;
    state_ = State::kInWindows;
    ucs_status_t status = UCS_OK;
    for (Window& window : windows_->windows) {
        if (status != UCS_OK || windows_->begun == plan_.length) break;
        window.chunk = staging.take();
        status = window.chunk == nullptr ? UCS_ERR_BUSY : fill(window);
    }
    if (status != UCS_OK) wait_for_windows();
    return status;
}

ucs_status_t DirectCopy::fill(Window& window) {
    window.length = std::min(plan_.length - windows_->begun, StagingPool::kChunk);
    if (window.length == 0) return UCS_OK;
    const bool is_to_host = plan_.direction == Direction::kToHost;
    if (!is_to_host) std::memcpy(window.chunk, plan_.from + windows_->begun, window.length);
    const ucs_status_t status = plan_.context->begin(
        plan_.direction, is_to_host ? window.chunk : plan_.to + windows_->begun,
        is_to_host ? plan_.from + windows_->begun : window.chunk, window.length, &window.ticket);
    if (status != UCS_OK) window.length = 0;
    windows_->begun += window.length;
    return status;
}

ucs_status_t DirectCopy::test_windows() {
    while (windows_->delivered < plan_.length) {
        Window& window = windows_->windows[windows_->turn];
        ucs_status_t status = ask(window.ticket, 1);
        if (status == UCS_INPROGRESS) return status;
        if (status == UCS_OK) {
            if (plan_.direction == Direction::kToHost) {
                std::byte* const to = plan_.to + windows_->delivered;
                if (plan_.length >= kPastCaches) {
                    copy_past_caches(to, window.chunk, window.length);
                } else {
                    std::memcpy(to, window.chunk, window.length);
                }
            }
            windows_->delivered += window.length;
            windows_->turn = (windows_->turn + 1) % Windows::kCount;
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
    for (Window& window : windows_->windows) {
        if (window.length > 0) (void)plan_.context->wait(window.ticket);
    }
}

void DirectCopy::close_windows(StagingPool& staging) {
    for (const Window& window : windows_->windows) {
        if (window.chunk != nullptr) staging.put(window.chunk);
    }
    *windows_ = {};
}

}  // namespace uct::cuda
