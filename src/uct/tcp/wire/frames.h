// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "uct/tcp/wire/format.h"

namespace uct::tcp {

/** A frame's header with the fixed header of its type. */
template <typename Body>
struct Head {
    wire::Frame frame;
    Body body;
};

/** @param payload  bytes that follow */
template <typename Body>
Head<Body> head_of(wire::FrameType type, const Body& body, size_t payload) {
    return {{static_cast<uint32_t>(sizeof(Body) + payload), type, 0, wire::kMark}, body};
}

template <typename T>
T read_as(const std::byte* bytes) {
    T value;
    std::memcpy(&value, bytes, sizeof(value));
    return value;
}

}  // namespace uct::tcp
