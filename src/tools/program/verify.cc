// SPDX-License-Identifier: BSD-3-Clause
#include "tools/program/verify.h"

#include <fmt/format.h>

#include <cstdlib>
#include <new>
#include <stdexcept>

namespace tools {

MessageBuffer::MessageBuffer(size_t size, unsigned slots) {
    constexpr size_t kLine = 64;
    constexpr size_t kPage = 4096;
    const size_t unit = size < kPage ? kLine : kPage;
    stride_ = (size / unit + 1) * unit;
    auto* memory = static_cast<std::byte*>(std::aligned_alloc(unit, stride_ * slots));
    if (memory == nullptr) throw std::bad_alloc();
    std::fill_n(memory, stride_ * slots, std::byte{0});
    memory_.reset(memory);
}

void MessageBuffer::Free::operator()(std::byte* memory) const {
    std::free(memory);
}

void SequenceCheck::fill(std::span<std::byte> message, unsigned sender, unsigned receiver) {
    fill_payload(message, {seed_, sender, receiver, static_cast<uint32_t>(stream_), next_++});
}

void SequenceCheck::check(std::span<const std::byte> message, unsigned sender, unsigned receiver) {
    const PayloadKey key{seed_, sender, receiver, static_cast<uint32_t>(stream_), next_++};
    const size_t wrong = check_payload(message, key);
    if (wrong == message.size()) return;
    throw std::runtime_error(
        fmt::format("payload: message {} of {} bytes from rank {} to rank {} is not what was sent: "
                    "byte {} differs (lost, doubled, reordered or corrupted)",
                    key.sequence, message.size(), sender, receiver, wrong));
}

}  // namespace tools
