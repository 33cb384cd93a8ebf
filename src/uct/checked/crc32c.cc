// SPDX-License-Identifier: BSD-3-Clause
// Compiled alone: it is off by default, and shall not change what compilers inline of transports.
#include "uct/checked/crc32c.h"

#include <config.h>  // of the build

#ifdef HAVE_ISAL
#include <algorithm>
#include <limits>

#include <isa-l/crc.h>
#else
#include <boost/crc.hpp>
#endif

namespace uct {

#ifdef HAVE_ISAL

uint32_t crc32c(uint32_t so_far, const void* data, size_t length) {
    // Neither changes the bytes nor inverts the remainder, before or behind them.
    auto* bytes = static_cast<unsigned char*>(const_cast<void*>(data));
    uint32_t remainder = ~so_far;
    while (length != 0) {
        const size_t part = std::min<size_t>(length, std::numeric_limits<int>::max() & ~63);
        remainder = crc32_iscsi(bytes, static_cast<int>(part), remainder);
        bytes += part;
        length -= part;
    }
    return ~remainder;
}

#else

namespace {

// What a remainder is to Boost, which takes its first bit for the last one.
uint32_t reflected(uint32_t remainder) {
    uint32_t result = 0;
    for (unsigned bit = 0; bit < 32; ++bit) result |= (remainder >> bit & 1) << (31 - bit);
    return result;
}

}  // namespace

uint32_t crc32c(uint32_t so_far, const void* data, size_t length) {
    constexpr uint32_t kPolynomial = 0x1EDC6F41, kInverted = 0xFFFFFFFF;
    boost::crc_optimal<32, kPolynomial, kInverted, kInverted, true, true> crc(reflected(~so_far));
    crc.process_bytes(data, length);
    return crc.checksum();
}

#endif

}  // namespace uct
