// SPDX-License-Identifier: BSD-3-Clause
#include "tools/program/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>

#include "ucs/sys/random.h"

namespace tools {

MessageBuffer::MessageBuffer(size_t size, unsigned slots, const CudaDevice* device)
    : memory_(nullptr, {}) {
    constexpr size_t kLine = 64;
    constexpr size_t kPage = 4096;
    const size_t unit = size < kPage ? kLine : kPage;
    stride_ = (size / unit + 1) * unit;
    if (device != nullptr) {
        const size_t length = stride_ * slots;
        memory_ = {device->allocate(length), Free{device, length}};
        return;
    }
    auto* memory = static_cast<std::byte*>(std::aligned_alloc(unit, stride_ * slots));
    if (memory == nullptr) throw std::bad_alloc();
    std::fill_n(memory, stride_ * slots, std::byte{0});
    memory_.reset(memory);
}

void MessageBuffer::Free::operator()(std::byte* memory) const {
    if (device != nullptr) return device->free(memory, length);
    std::free(memory);
}

void SequenceCheck::fill(std::span<std::byte> message, unsigned sender, unsigned receiver) {
    const PayloadKey key{seed_, sender, receiver, static_cast<uint32_t>(stream_), next_++};
    if (device_ == nullptr) return fill_payload(message, key);
    bytes_.resize(message.size());
    fill_payload(bytes_, key);
    device_->copy(message.data(), bytes_.data(), message.size());
}

void SequenceCheck::check(std::span<const std::byte> message, unsigned sender, unsigned receiver) {
    const PayloadKey key{seed_, sender, receiver, static_cast<uint32_t>(stream_), next_++};
    if (device_ != nullptr) {
        bytes_.resize(message.size());
        device_->copy(bytes_.data(), message.data(), message.size());
        message = bytes_;
    }
    const size_t wrong = check_payload(message, key);
    if (wrong == message.size()) return;
    throw std::runtime_error(
        fmt::format("payload: message {} of {} bytes from rank {} to rank {} is not what was sent: "
                    "byte {} differs (lost, doubled, reordered or corrupted)",
                    key.sequence, message.size(), sender, receiver, wrong));
}

namespace {

constexpr uint64_t kStep = 0x9e3779b97f4a7c15u;

uint64_t first_word(const PayloadKey& key) {
    uint64_t word = ucs::mix64(key.seed);
    word = ucs::mix64(word ^ (uint64_t{key.sender} << 32 | key.receiver));
    word = ucs::mix64(word ^ key.stream);
    return ucs::mix64(word ^ key.sequence);
}

}  // namespace

void fill_payload(std::span<std::byte> buffer, const PayloadKey& key) {
    uint64_t word = first_word(key);
    for (size_t offset = 0; offset < buffer.size(); offset += sizeof(word), word += kStep) {
        std::memcpy(buffer.data() + offset, &word, std::min(sizeof(word), buffer.size() - offset));
    }
}

size_t check_payload(std::span<const std::byte> buffer, const PayloadKey& key) {
    uint64_t word = first_word(key);
    for (size_t offset = 0; offset < buffer.size(); offset += sizeof(word), word += kStep) {
        const size_t length = std::min(sizeof(word), buffer.size() - offset);
        if (std::memcmp(buffer.data() + offset, &word, length) == 0) continue;
        std::byte expected[sizeof(word)];
        std::memcpy(expected, &word, length);
        for (size_t i = 0; i < length; ++i) {
            if (buffer[offset + i] != expected[i]) return offset + i;
        }
    }
    return buffer.size();
}

}  // namespace tools
