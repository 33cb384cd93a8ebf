// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "tools/common/device_memory.h"
#include "tools/program/rank.h"

namespace tools {

// Names one message of a job: its content is a function of these alone, so that a receiver can tell
// a lost, doubled, reordered or corrupted message from the one it expects.
struct PayloadKey {
    uint64_t seed;
    uint32_t sender;
    uint32_t receiver;
    uint32_t stream;  // independent sequences between the same two ranks
    uint64_t sequence;
};

void fill_payload(std::span<std::byte> buffer, const PayloadKey& key);

// The first byte that differs, or buffer.size() if all is right.
size_t check_payload(std::span<const std::byte> buffer, const PayloadKey& key);

// Room for `slots` messages of up to `size` bytes, each at the start of a cache line.
class MessageBuffer {
  public:
    // `device`: null for host memory.
    MessageBuffer(size_t size, unsigned slots, const CudaDevice* device = nullptr);

    std::span<std::byte> slot(unsigned index, size_t length) const {
        return {memory_.get() + index * stride_, length};
    }

  private:
    struct Free {
        const CudaDevice* device;
        size_t length;
        void operator()(std::byte* memory) const;
    };

    size_t stride_;
    std::unique_ptr<std::byte[], Free> memory_;
};

// Fills the messages of one stream in sending order, or checks them in receiving order. One per
// direction and pair of ranks.
class SequenceCheck {
  public:
    SequenceCheck(uint64_t seed, MessageKind stream, const CudaDevice* device = nullptr)
        : seed_(seed), stream_(stream), device_(device) {}

    void fill(std::span<std::byte> message, unsigned sender, unsigned receiver);
    // Throws std::runtime_error that says which message is wrong.
    void check(std::span<const std::byte> message, unsigned sender, unsigned receiver);

  private:
    uint64_t seed_;
    MessageKind stream_;
    const CudaDevice* device_;
    std::vector<std::byte> bytes_;  // of a message that lies there
    uint64_t next_ = 0;
};

}  // namespace tools
