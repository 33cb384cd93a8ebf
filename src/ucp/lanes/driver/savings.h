// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>

#include "ucs/datastruct/usage_tracker.h"
#include "uct/api/types.h"

namespace ucp {

// What a dedicated lane saves of an endpoint's time, in nanoseconds for each message and each byte:
// the costs of its scalable transport less those of the dedicated one, as their attributes tell
// them; for a byte of long messages as measured, if it was. Large transfers are cut into slices,
// and each slice costs as much as a message.
//
// A dedicated transport is there because it is the faster one: it is taken to save a nanosecond a
// message at least, also where the attributes see no difference.
//
// @param slice              bytes of a slice, above 0
// @param bytes_per_message  so many bytes count as one message, 0: bytes do not count; nothing: by
//                           the attributes, or as measured
// @param measured           seconds that a byte was measured to take less; nothing: it was not
inline ucs::UsageTracker::Value savings(const uct::InterfaceAttributes& scalable,
                                        const uct::InterfaceAttributes& dedicated, size_t slice,
                                        std::optional<double> bytes_per_message,
                                        std::optional<double> measured) {
    constexpr double kNanoseconds = 1e9;
    // With one endpoint each. How costs grow with more is what the cap is for, and it must not make
    // the scores of two workers differ.
    const auto cost = [](const uct::InterfaceAttributes& attributes) {
        return attributes.latency.at(1) + attributes.overhead;
    };
    const auto byte_cost = [](const uct::InterfaceAttributes& attributes) {
        return attributes.bandwidth > 0 ? 1 / attributes.bandwidth : 0;
    };
    ucs::UsageTracker::Value value;
    value.per_message = std::max((cost(scalable) - cost(dedicated)) * kNanoseconds, 1.0);
    if (bytes_per_message) {
        value.per_byte = *bytes_per_message > 0 ? value.per_message / *bytes_per_message : 0;
    } else if (measured) {
        value.per_byte = std::max(*measured * kNanoseconds, 0.0);
    } else {
        value.per_byte =
            std::max((byte_cost(scalable) - byte_cost(dedicated)) * kNanoseconds, 0.0) +
            value.per_message / static_cast<double>(slice);
    }
    return value;
}

}  // namespace ucp
