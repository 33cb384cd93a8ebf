// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "ucp/select/learned_costs.h"
#include "ucs/sys/time.h"

namespace ucp::select {

// Times some of a worker's puts and gets, and learns from them which way is the better one.
//
// Of these one end has the clock: what they take is known by a flush behind them. So a window is
// timed, operations of one class that follow each other on an endpoint: from the first, before
// which nothing was under way, until a flush behind the last has found all of them done at the
// peer. Each costs its part of that. A window has as many operations as the program begins before
// it waits, kMostOperations or kMostBytes at most; where it waits for each, the window is one that
// is alone.
//
//   begin()                                 first: the clock; each: by that way
//   ...
//   begin(): ends_window      the caller flushes behind it
//   end_window()                            the flush is done: learns
//
// The program has waited when the requests of its earlier operations have ended; of puts that are
// copied, which end at once, when it has flushed. One that never does is not timed, nor one that
// goes to and fro between endpoints or classes: the table's choice stands.
class OneSidedTimes {
  public:
    static constexpr unsigned kMostOperations = 16;
    static constexpr size_t kMostBytes = size_t{1} << 20;  // of two operations and more

    explicit OneSidedTimes(const ucs::Clock& clock) : clock_(clock) {}
    OneSidedTimes(const OneSidedTimes&) = delete;

    struct Operation {
        LearnedCosts& costs;
        const WaysByLoad& ways;
        uint64_t endpoint;  // names it
        uint32_t flushes;   // that the program has begun so far
        size_t length;
        Way usual;  // the protocol table's choice
        bool is_put;
    };
    struct Route {
        Way way;
        bool ends_window;  // the caller is to flush behind it, and then to call end_window()
    };
    // An operation begins. Requires that there is a choice at its length, whatever the load.
    Route begin(const Operation& operation);
    // All of the window is done, or failed.
    void end_window(bool is_good);

    // The program has a request for one, until this has ended.
    void request_begins() { ++under_way_; }
    void request_ends() { --under_way_; }

  private:
    enum class Stage : uint8_t { kNone, kOpen, kEnding };

    // The operation's load; what the program does is the same as last time.
    Load load_of(const Operation& operation);
    // Operations of a window that begins now.
    unsigned window_of(Load load, size_t length) const;
    void open(const Operation& operation, LearnedCosts::Class which, Way way, unsigned operations);
    bool is_of_window(const Operation& operation) const;

    const ucs::Clock& clock_;
    uint32_t under_way_ = 0;      // requests
    bool has_unflushed_ = false;  // puts that were copied
    uint32_t flushes_ = 0;
    uint64_t endpoint_ = 0;     // of the last operation
    bool is_first_ = false;     // nothing is under way before the one that begins
    unsigned since_wait_ = 0;   // operations since the program last waited
    unsigned before_wait_ = 0;  // the same, before that

    struct Window {
        LearnedCosts* costs = nullptr;
        LearnedCosts::Class which{};
        Way way{};
        uint64_t endpoint = 0;
        unsigned left = 0;  // operations that have not begun
        double assumed = 0;
        ucs::Time began{};
    } window_;
    Stage stage_ = Stage::kNone;
};

}  // namespace ucp::select
