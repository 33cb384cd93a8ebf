// SPDX-License-Identifier: BSD-3-Clause
#include "uct/cuda/staging.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "ucs/log/log.h"
#include "uct/cuda/config.h"

namespace uct::cuda {

// --- the pool ---

bool StagingPool::is_pinned() const {
    unsigned type = 0;
    return driver_.ask(abi::kPointerMemoryType, reinterpret_cast<uintptr_t>(memory_), &type) &&
           type == abi::kMemoryTypeHost;
}

void StagingPool::fill() {
    constexpr unsigned kPortableAndMapped = 3;
    std::lock_guard filling(filling_);
    const bool is_first = !is_filled_;
    if (!is_first && (memory_ == nullptr || is_pinned())) return;
    is_filled_ = true;
    const size_t bytes = Config::get().staging.bytes / kChunk * kChunk;
    void* const memory =
        is_first ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                 : memory_;
    if (memory == MAP_FAILED) return;
    const abi::Result result = driver_.host_register(memory, bytes, kPortableAndMapped);
    if (result != abi::kSuccess) {
        ucs::log_warn(
            "{} bytes of staging memory cannot be pinned ({}): copies from and to CUDA "
            "devices are slower; set UCX_CUDA_STAGING lower",
            bytes, driver_.name_of(result));
        if (is_first) (void)munmap(memory, bytes);
        return;
    }
    if (!is_first) return;
    memory_ = memory;
    chunks_ = bytes / kChunk;
    std::lock_guard lock(lock_);
    for (size_t i = chunks_; i-- > 0;)
        free_.push_back(static_cast<std::byte*>(memory) + i * kChunk);
}

std::byte* StagingPool::take() {
    std::lock_guard lock(lock_);
    if (free_.empty()) return nullptr;
    std::byte* const chunk = free_.back();
    free_.pop_back();
    return chunk;
}

void StagingPool::put(std::byte* chunk) {
    std::lock_guard lock(lock_);
    free_.push_back(chunk);
}

size_t StagingPool::free_chunks() {
    std::lock_guard lock(lock_);
    return free_.size();
}

StagedTransfer* StagingPool::take_transfer() {
    std::lock_guard lock(lock_);
    if (transfers_.empty()) return new (std::nothrow) StagedTransfer(*this);
    StagedTransfer* const transfer = transfers_.back().release();
    transfers_.pop_back();
    return transfer;
}

void StagingPool::put_transfer(StagedTransfer* transfer) {
    std::lock_guard lock(lock_);
    transfers_.emplace_back(transfer);
}

// --- a transfer ---

void StagedTransfer::open(CopyEngine& engine, std::span<const ucs::MemoryPiece> pieces,
                          const ucs::MemoryInfo* known) {
    engine_ = &engine;
    is_held_ = false;
    is_used_ = false;
    if (pieces.size() == 1) {
        only_ = pieces.front();
        pieces_ = {&only_, 1};
        total_ = only_.length;
        memory = known == nullptr ? ucs::MemoryInfo{} : *known;
        if (known != nullptr && known->held != nullptr)
            is_held_ = engine.held().hold(*known) != nullptr;
        return;
    }
    memory = {};
    pieces_ = pieces;
    total_ = 0;
    for (const ucs::MemoryPiece& piece : pieces_) total_ += piece.length;
}

void StagedTransfer::use() {
    if (is_used_) return;
    is_used_ = true;
    index_ = start_ = pending_ = 0;
    context_index_ = SIZE_MAX;
    turn_ = 0;
    status_ = UCS_OK;
}

ucs::MemoryPiece StagedTransfer::part(size_t offset, size_t length) {
    if (offset < start_) index_ = start_ = 0;
    while (offset - start_ >= pieces_[index_].length) start_ += pieces_[index_++].length;
    const ucs::MemoryPiece& piece = pieces_[index_];
    const size_t skip = offset - start_;
    return {static_cast<std::byte*>(piece.address) + skip, std::min(length, piece.length - skip)};
}

ucs_status_t StagedTransfer::context_of(void* address, CopyContext** context) {
    if (context_index_ != index_) {
        const CopyEngine::Found found = engine_->look_up(address);
        const bool is_host = found.type == UCS_MEMORY_TYPE_HOST;
        context_ = is_host ? nullptr : engine_->context_of(found);
        if (!is_host && context_ == nullptr) {
            ucs::log_error("no context is known that reaches the memory of CUDA device {}",
                           found.device);
            return UCS_ERR_UNSUPPORTED;
        }
        context_index_ = index_;
    }
    *context = context_;
    return UCS_OK;
}

ucs_status_t StagedTransfer::wait(Window& window) {
    ucs_status_t status = UCS_OK;
    if (window.ticket.context != nullptr) status = window.ticket.context->wait(window.ticket);
    window.ticket = {};
    if (window.list != nullptr) pool_.put(window.list);
    window.list = nullptr;
    return status;
}

ucs_status_t StagedTransfer::transfer_list(Window& window, Direction direction, size_t offset,
                                           std::byte* staging, size_t length) {
    if (pieces_.size() < kLeastList || window.list != nullptr) return UCS_ERR_UNSUPPORTED;
    CopyContext* context = nullptr;
    ucs::MemoryPiece next = part(offset, length);
    const size_t least = index_ + kLeastList;
    if (least > pieces_.size() || context_of(next.address, &context) != UCS_OK ||
        context == nullptr || !context->takes_lists())
        return UCS_ERR_UNSUPPORTED;
    window.list = pool_.take();
    if (window.list == nullptr) return UCS_ERR_UNSUPPORTED;
    auto* const list = reinterpret_cast<KernelPiece*>(window.list);
    size_t count = 0;
    for (size_t done = 0; done < length;) {
        next = part(offset + done, length - done);
        CopyContext* other = nullptr;
        if (count == StagingPool::kChunk / sizeof(KernelPiece) ||
            context_of(next.address, &other) != UCS_OK || other != context)
            return UCS_ERR_UNSUPPORTED;
        const auto outside = reinterpret_cast<uint64_t>(next.address);
        const auto inside = reinterpret_cast<uint64_t>(staging + done);
        list[count++] = direction == Direction::kToHost ? KernelPiece{inside, outside, next.length}
                                                        : KernelPiece{outside, inside, next.length};
        done += next.length;
    }
    if (count < kLeastList) return UCS_ERR_UNSUPPORTED;
    return context->begin_list(direction, {list, count}, &window.ticket);
}

ucs_status_t StagedTransfer::transfer(Window& window, Direction direction, size_t offset,
                                      std::byte* staging, size_t length) {
    // A list begins in an empty stream of this window's: what it needs stays until the window's
    // end.
    if (window.ticket.context == nullptr) {
        const ucs_status_t status = transfer_list(window, direction, offset, staging, length);
        if (status != UCS_ERR_UNSUPPORTED) return status;
    }
    while (length > 0) {
        const ucs::MemoryPiece next = part(offset, length);
        CopyContext* context = nullptr;
        ucs_status_t status = context_of(next.address, &context);
        if (status != UCS_OK) return status;
        const bool is_to_host = direction == Direction::kToHost;
        if (context == nullptr) {
            std::memcpy(is_to_host ? staging : next.address, is_to_host ? next.address : staging,
                        next.length);
        } else {
            if (window.ticket.context != nullptr && window.ticket.context != context) {
                status = window.ticket.context->wait(window.ticket);
                if (status != UCS_OK) return status;
            }
            status =
                is_to_host
                    ? context->begin(direction, staging, next.address, next.length, &window.ticket)
                    : context->begin(direction, next.address, staging, next.length, &window.ticket);
            if (status != UCS_OK) return status;
        }
        offset += next.length;
        staging += next.length;
        length -= next.length;
    }
    return UCS_OK;
}

ucs_status_t StagedTransfer::copy_without_chunk(Direction direction, size_t offset, std::byte* host,
                                                size_t length) {
    Window none;
    const ucs_status_t status = transfer(none, direction, offset, host, length);
    const ucs_status_t end = wait(none);
    return status != UCS_OK ? status : end;
}

ucs_status_t StagedTransfer::load(Window& window, size_t offset) {
    window.begin = offset;
    window.end = std::min(total_, offset + StagingPool::kChunk);
    return transfer(window, Direction::kToHost, offset, window.chunk, window.end - offset);
}

ucs_status_t StagedTransfer::read(size_t offset, void* to, size_t length) {
    use();
    if (status_ != UCS_OK) return status_;
    if (offset > total_ || length > total_ - offset) return UCS_ERR_INVALID_PARAM;
    auto* out = static_cast<std::byte*>(to);
    while (length > 0 && status_ == UCS_OK) {
        Window* window = &windows_[turn_];
        Window* other = &windows_[turn_ ^ 1];
        const auto holds = [&](const Window& one) {
            return one.chunk != nullptr && offset >= one.begin && offset < one.end;
        };
        if (!holds(*window) && holds(*other)) {
            turn_ ^= 1;
            std::swap(window, other);
        }
        if (!holds(*window)) {
            if (window->chunk == nullptr) window->chunk = pool_.take();
            if (window->chunk == nullptr)
                return status_ = copy_without_chunk(Direction::kToHost, offset, out, length);
            (void)wait(*window);
            status_ = load(*window, offset);
            if (status_ != UCS_OK) break;
        }
        if (window->ticket.context != nullptr) {
            // The next window is copied while this one is waited for and emptied.
            if (window->end < total_ && (other->chunk == nullptr || other->begin != window->end)) {
                if (other->chunk == nullptr) other->chunk = pool_.take();
                if (other->chunk != nullptr) {
                    (void)wait(*other);
                    status_ = load(*other, window->end);
                }
            }
            const ucs_status_t status = wait(*window);
            if (status_ == UCS_OK) status_ = status;
            if (status_ != UCS_OK) break;
        }
        const size_t here = std::min(length, window->end - offset);
        std::memcpy(out, window->chunk + (offset - window->begin), here);
        out += here;
        offset += here;
        length -= here;
    }
    return status_;
}

ucs_status_t StagedTransfer::flush() {
    Window& window = windows_[turn_];
    if (pending_ == 0 || status_ != UCS_OK) return status_;
    const size_t offset = window.end - pending_;
    status_ = transfer(window, Direction::kToDevice, offset, window.chunk + (offset - window.begin),
                       pending_);
    pending_ = 0;
    return status_;
}

// In a window that is written to, the places in the chunk are those in the sequence, so that parts
// that follow each other lie together; what comes out of order begins a window of its own.
ucs_status_t StagedTransfer::write(size_t offset, const void* from, size_t length) {
    use();
    if (offset > total_ || length > total_ - offset) return UCS_ERR_INVALID_PARAM;
    const auto* in = static_cast<const std::byte*>(from);
    while (length > 0 && status_ == UCS_OK) {
        Window* window = &windows_[turn_];
        const bool goes_on = window->chunk != nullptr && offset == window->end &&
                             offset - window->begin < StagingPool::kChunk;
        if (!goes_on) {
            if (flush() != UCS_OK) break;
            turn_ ^= 1;
            window = &windows_[turn_];
            if (window->chunk == nullptr) window->chunk = pool_.take();
            if (window->chunk == nullptr) {
                turn_ ^= 1;
                return status_ = copy_without_chunk(Direction::kToDevice, offset,
                                                    const_cast<std::byte*>(in), length);
            }
            status_ = wait(*window);
            window->begin = window->end = offset;
        }
        const size_t here = std::min(length, StagingPool::kChunk - (window->end - window->begin));
        std::memcpy(window->chunk + (window->end - window->begin), in, here);
        window->end += here;
        pending_ += here;
        in += here;
        offset += here;
        length -= here;
        if (pending_ >= kFlush) (void)flush();
    }
    return status_;
}

void StagedTransfer::release(Window& window) {
    pool_.put(window.chunk);
    window = {};
}

void StagedTransfer::abandon() {
    pending_ = 0;
    (void)finish();
}

ucs_status_t StagedTransfer::finish() {
    const ucs_status_t status = is_used_ ? end_windows() : UCS_OK;
    if (is_held_) engine_->held().release(memory.allocation);
    pool_.put_transfer(this);
    return status;
}

ucs_status_t StagedTransfer::end_windows() {
    (void)flush();
    ucs_status_t status = status_;
    for (Window& window : windows_) {
        if (window.chunk == nullptr) continue;
        const ucs_status_t end = wait(window);
        if (status == UCS_OK) status = end;
        release(window);
    }
    return status;
}

}  // namespace uct::cuda
