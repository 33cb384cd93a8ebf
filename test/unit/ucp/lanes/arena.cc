// SPDX-License-Identifier: BSD-3-Clause
#include "unit/ucp/lanes/arena.h"

#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <utility>

namespace lanes_test::explore {
namespace {

thread_local Arena* current = nullptr;

}  // namespace

Arena::Scope::Scope(Arena& arena) : before_(std::exchange(current, &arena)) {}
Arena::Scope::~Scope() {
    current = before_;
}
Arena::Outside::Outside() : before_(std::exchange(current, nullptr)) {}
Arena::Outside::~Outside() {
    current = before_;
}

Arena::Arena() : bytes_(new std::byte[kSize]) {
    clear();
}

void Arena::clear() {
    new (bytes_.get()) Head{sizeof(Head), kSize, {}};
}

void Arena::save(Image& image) const {
    image.resize(head().used);
    std::memcpy(image.data(), bytes_.get(), image.size());
}

void Arena::restore(const Image& image) {
    std::memcpy(bytes_.get(), image.data(), image.size());
}

void* Arena::take(std::size_t size) {
    const std::size_t grains = (size + kGrain - 1) / kGrain;
    if (grains < kClasses && head().free[grains] != nullptr) {
        Free* const block = head().free[grains];
        head().free[grains] = block->next;
        return block;
    }
    if (head().used + grains * kGrain > head().large) throw std::bad_alloc();
    if (size >= kLarge) return bytes_.get() + (head().large -= grains * kGrain);
    return bytes_.get() + std::exchange(head().used, head().used + grains * kGrain);
}

void Arena::give(void* block, std::size_t size) {
    const std::size_t grains = (size + kGrain - 1) / kGrain;
    if (grains == 0 || grains >= kClasses) return;
    head().free[grains] = new (block) Free{head().free[grains]};
}

bool Arena::owns(const void* block) const {
    const std::less<const void*> before;
    return !before(block, bytes_.get()) && before(block, bytes_.get() + kSize);
}

}  // namespace lanes_test::explore

using lanes_test::explore::current;

// Not inlined: compilers take what they see of them for a mistake of the caller's.
[[gnu::noinline]] void* operator new(std::size_t size) {
    if (current != nullptr) return current->take(size);
    if (void* const block = std::malloc(size)) return block;
    throw std::bad_alloc();
}

[[gnu::noinline]] void operator delete(void* block) noexcept {
    if (current == nullptr || !current->owns(block)) std::free(block);
}

[[gnu::noinline]] void operator delete(void* block, std::size_t size) noexcept {
    if (current != nullptr && current->owns(block)) return current->give(block, size);
    std::free(block);
}
