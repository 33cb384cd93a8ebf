// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <string_view>

namespace ucs {

// Base class of what components register for the life of the process. Not owned by its list.
struct Registration {
    // Registrations of one key are copies of one, linked into the main library and a module; an
    // empty key is unlike all others.
    std::string_view key;
    Registration* following = nullptr;  // the list's alone
};

// A list that only grows. Any thread may walk and extend it.
class RegistrationList {
  public:
    constexpr RegistrationList() = default;

    // The one registered last; null if there is none.
    const Registration* first() const { return first_.load(std::memory_order_acquire); }

    void add(Registration& registration) {
        registration.following = first_.load();
        while (!first_.compare_exchange_weak(registration.following, &registration)) {
        }
    }

    // Hands everything over to `other`, save what that has a copy of.
    void move_to(RegistrationList& other) {
        const auto has_copy = [&other](std::string_view key) {
            const Registration* entry = key.empty() ? nullptr : other.first();
            while (entry != nullptr && entry->key != key) entry = entry->following;
            return entry != nullptr;
        };
        for (Registration* entry = first_.exchange(nullptr); entry != nullptr;) {
            Registration* const next = entry->following;
            if (!has_copy(entry->key)) other.add(*entry);
            entry = next;
        }
    }

    // For tests, whose registrations end before the process: drops those before `first`.
    void reset(const Registration* first = nullptr) { first_ = const_cast<Registration*>(first); }

  private:
    std::atomic<Registration*> first_{nullptr};
};

}  // namespace ucs
