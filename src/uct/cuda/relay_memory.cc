// SPDX-License-Identifier: BSD-3-Clause
#include "uct/cuda/relay_memory.h"

#include <algorithm>

#include "ucs/log/log.h"

namespace uct::cuda {

std::span<std::byte> RelayMemory::take(const void* beside, size_t held) {
    if (windows_ == 0) return {};
    CopyContext* const context = engine_.context_of(engine_.look_up(beside));
    if (context == nullptr) return {};
    std::lock_guard lock(mutex_);
    const auto known = std::ranges::find_if(rings_, [&](const std::unique_ptr<Ring>& one) {
        return one->context->device() == context->device() && one->context->is_alive();
    });
    if (known == rings_.end()) {
        auto ring = std::make_unique<Ring>();
        ring->context = context;
        if (mappings_.run([this, &made = *ring] { make(made); })) rings_.push_back(std::move(ring));
        return {};
    }
    Ring& ring = **known;
    if (ring.free.size() <= held) return {};
    std::byte* const window = ring.free.back();
    ring.free.pop_back();
    return {window, kWindow};
}

// What a context has taken with it is not found here.
void RelayMemory::put(std::span<std::byte> window, bool is_lost) {
    std::lock_guard lock(mutex_);
    const auto owner = std::ranges::find_if(rings_, [&](const std::unique_ptr<Ring>& one) {
        return one->context->is_alive() && std::ranges::count(one->all, window.data()) != 0;
    });
    if (owner == rings_.end()) return;
    Ring& ring = **owner;
    if (!is_lost) return ring.free.push_back(window.data());
    std::erase(ring.all, window.data());
    (void)mappings_.run([this, &ring, lost = window.data()] { replace(ring, lost); });
}

void RelayMemory::make(Ring& ring) {
    CurrentContext current(engine_.driver(), ring.context->handle());
    for (size_t i = 0; i < windows_ && current.result() == abi::kSuccess; ++i) add_window(ring);
}

void RelayMemory::replace(Ring& ring, std::byte* window) {
    CurrentContext current(engine_.driver(), ring.context->handle());
    if (current.result() != abi::kSuccess) return;
    (void)engine_.driver().memory_free(reinterpret_cast<uintptr_t>(window));
    add_window(ring);
}

void RelayMemory::add_window(Ring& ring) {
    abi::DevicePointer memory = 0;
    const abi::Result result = engine_.driver().memory_allocate(&memory, kWindow);
    if (result != abi::kSuccess) {
        ucs::log_info("no memory on CUDA device {} for other devices to write to ({})",
                      ring.context->device(), engine_.driver().name_of(result));
        return;
    }
    std::lock_guard lock(mutex_);
    ring.all.push_back(reinterpret_cast<std::byte*>(memory));
    ring.free.push_back(ring.all.back());
}

}  // namespace uct::cuda
