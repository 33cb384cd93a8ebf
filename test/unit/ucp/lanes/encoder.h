// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "ucp/lanes/link.h"
#include "ucp/lanes/messages.h"

namespace lanes_test::explore {

// Two hashes of a state's encoding.
struct Digest {
    std::uint64_t one, other;
};

// A state as numbers, one behind the other, and names of what is only told apart by the order in
// which they come up. Its memory serves again: no arena may have it.
class Encoder {
  public:
    void clear() {
        length_ = 0;
        lanes_.clear();
        for (Names& names : rounds_) names.clear();
    }
    void add(std::uint64_t value) {
        if (length_ == kRoom) std::abort();
        code_[length_++] = value;
    }
    template <typename T>
    void add_enum(T value) {
        add(static_cast<std::uint64_t>(value));
    }
    void add_lane(std::uint64_t uid) { add(uid == 0 ? 0 : lanes_.of(uid)); }
    void add_round(std::pair<std::size_t, std::size_t> pair, ucp::lanes::Epoch epoch) {
        Names& names = rounds_.at(pair.first * kMostNodes + pair.second);
        add(epoch == 0 ? 0 : names.of(epoch) << 1 | (epoch & 1));
    }
    // What is left of the time until `when`.
    void add_until(ucp::lanes::Time when, ucp::lanes::Time now) {
        add(when == ucp::lanes::kNever ? 0 : 1 + (when > now ? when - now : 0));
    }
    // How long ago `when` was, at most `most`.
    void add_since(ucp::lanes::Time when, ucp::lanes::Time now, ucp::lanes::Time most) {
        add(std::min(now - when, most));
    }

    // Each number is multiplied into both hashes and the product folded; by turns into halves of
    // them, which a processor does at the same time.
    Digest digest() const {
        constexpr std::uint64_t kOne = 0x9e3779b97f4a7c15, kOther = 0xd6e8feb86659fd93;
        Digest even{kOne, kOther}, odd{kOther, kOne};
        const auto mix = [](Digest& half, std::uint64_t value) {
            half.one = fold(half.one ^ value, kOther);
            half.other = fold(half.other + value, kOne) + value;
        };
        for (std::size_t i = 0; i + 1 < length_; i += 2) {
            mix(even, code_[i]);
            mix(odd, code_[i + 1]);
        }
        if (length_ % 2 != 0) mix(even, code_[length_ - 1]);
        return {fold(even.one, kOne) + odd.one, fold(even.other, kOther) + odd.other};
    }

  private:
    static constexpr std::size_t kRoom = 1 << 16, kMostNodes = 6;
    class Names {
      public:
        Names() { values_.reserve(kRoom / 64); }
        void clear() { values_.clear(); }
        std::uint64_t of(std::uint64_t value) {
            const auto found = std::ranges::find(values_, value);
            const auto name = static_cast<std::uint64_t>(found - values_.begin()) + 1;
            if (found == values_.end()) values_.push_back(value);
            return name;
        }

      private:
        std::vector<std::uint64_t> values_;
    };
    static std::uint64_t fold(std::uint64_t a, std::uint64_t b) {
        __extension__ using Long = unsigned __int128;
        const Long product = static_cast<Long>(a) * b;
        return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
    }

    const std::unique_ptr<std::uint64_t[]> code_{new std::uint64_t[kRoom]};
    std::size_t length_ = 0;
    Names lanes_;
    std::array<Names, kMostNodes * kMostNodes> rounds_;
};

}  // namespace lanes_test::explore
