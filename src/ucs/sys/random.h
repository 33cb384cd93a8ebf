// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <mutex>
#include <span>

namespace ucs {

// One step of splitmix64 (Steele, Lea, Flood 2014): a bijection that scatters its argument well,
// hence also a hash for integers.
constexpr uint64_t mix64(uint64_t value) {
    value += 0x9e3779b97f4a7c15u;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
}

// xoshiro256** (Blackman, Vigna 2018), seeded through splitmix64. The sequence is a function of
// the seed alone on every platform, unlike that of the standard library's distributions. Not for
// secrets. A UniformRandomBitGenerator. One thread.
class Random {
  public:
    using result_type = uint64_t;

    explicit constexpr Random(uint64_t seed) {
        for (uint64_t& word : state_) {
            word = mix64(seed);
            seed += 0x9e3779b97f4a7c15u;
        }
    }

    static constexpr result_type min() { return 0; }
    static constexpr result_type max() { return std::numeric_limits<uint64_t>::max(); }

    constexpr uint64_t operator()() {
        const uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
        const uint64_t carried = state_[1] << 17;
        state_[2] ^= state_[0];
        state_[3] ^= state_[1];
        state_[1] ^= state_[2];
        state_[0] ^= state_[3];
        state_[2] ^= carried;
        state_[3] = std::rotl(state_[3], 45);
        return result;
    }

    // Uniform in [0, bound), without bias (Lemire 2019). bound > 0.
    constexpr uint64_t below(uint64_t bound) {
        const uint64_t threshold = (0 - bound) % bound;
        for (;;) {
            const auto product = static_cast<unsigned __int128>((*this)()) * bound;
            if (static_cast<uint64_t>(product) >= threshold) {
                return static_cast<uint64_t>(product >> 64);
            }
        }
    }

    // Uniform in [0, 1), in steps of 2^-53.
    constexpr double uniform() { return static_cast<double>((*this)() >> 11) * 0x1p-53; }

    constexpr bool chance(double probability) { return uniform() < probability; }

  private:
    std::array<uint64_t, 4> state_{};
};

// The seam through which randomness enters the library: ids that must differ between processes,
// seeds of generators. Not owned through this interface.
class Entropy {
  public:
    // 64 random bits. Any thread may call it.
    virtual uint64_t draw() = 0;
    // As many times 64 bits. Who keeps them for later draws anew in a forked child.
    virtual void fill(std::span<uint64_t> words) {
        for (uint64_t& word : words) word = draw();
    }

  protected:
    constexpr Entropy() = default;
    ~Entropy() = default;
};

// The kernel's generator, asked each time, so that a forked child does not repeat its parent.
class SystemEntropy final : public Entropy {
  public:
    constexpr SystemEntropy() = default;
    uint64_t draw() override;
    // One system call for up to 32 words, which take little longer than one.
    void fill(std::span<uint64_t> words) override;
};

// A function of its seed: for tests and the simulator.
class SeededEntropy final : public Entropy {
  public:
    explicit SeededEntropy(uint64_t seed) : random_(seed) {}

    uint64_t draw() override {
        std::lock_guard lock(mutex_);
        return random_();
    }

  private:
    std::mutex mutex_;
    Random random_;
};

}  // namespace ucs
