// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

namespace lanes_test::explore {

// Memory in which all that a thread allocates lies for a while, so that it can be put back as it
// was, pointers and all: an image of its bytes, taken and restored. Nothing in it is ever
// destroyed. arena.cc replaces the program's operator new.
//
// Blocks of kLarge bytes and more are in no image: they are room that is empty between events (the
// negotiator's for what it will ask of its sink), and most of all memory.
class Arena {
  public:
    // What this thread allocates comes from the arena.
    class Scope {
      public:
        explicit Scope(Arena& arena);
        Scope(const Scope&) = delete;
        Scope& operator=(const Scope&) = delete;
        ~Scope();

      private:
        Arena* const before_;
    };
    // Within a scope, what is to outlast an image comes from elsewhere.
    class Outside {
      public:
        Outside();
        Outside(const Outside&) = delete;
        Outside& operator=(const Outside&) = delete;
        ~Outside();

      private:
        Arena* const before_;
    };
    using Image = std::vector<std::byte>;

    Arena();
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    void clear();
    void save(Image& image) const;
    void restore(const Image& image);

    // What the program's operators new and delete do with it.
    void* take(std::size_t size);
    void give(void* block, std::size_t size);
    bool owns(const void* block) const;

  private:
    static constexpr std::size_t kSize = 1 << 20;
    static constexpr std::size_t kLarge = 4096;
    static constexpr std::size_t kGrain = 16;
    static constexpr std::size_t kClasses = 128;
    struct Free {
        Free* next;
    };
    // In front of the blocks, and so a part of each image.
    struct Head {
        std::size_t used;
        std::size_t large;                 // where the large blocks begin, at the end of all
        std::array<Free*, kClasses> free;  // what was given back, by its number of grains
    };

    Head& head() const { return *reinterpret_cast<Head*>(bytes_.get()); }

    const std::unique_ptr<std::byte[]> bytes_;
};

}  // namespace lanes_test::explore
