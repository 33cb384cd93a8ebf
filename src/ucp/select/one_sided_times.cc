// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/select/one_sided_times.h"

#include <algorithm>

namespace ucp::select {

Load OneSidedTimes::load_of(const Operation& operation) {
    if (operation.flushes != flushes_) {
        flushes_ = operation.flushes;
        has_unflushed_ = false;
    }
    is_first_ = operation.endpoint == endpoint_ && under_way_ == 0 && !has_unflushed_;
    endpoint_ = operation.endpoint;
    if (is_first_) {
        before_wait_ = since_wait_;
        since_wait_ = 0;
    }
    ++since_wait_;
    return is_first_ && before_wait_ <= 1 ? Load::kAlone : Load::kOneWay;
}

bool OneSidedTimes::is_of_window(const Operation& operation) const {
    const auto which = LearnedCosts::class_of(window_.which.load, operation.length);
    const Ways& ways = *operation.ways[static_cast<size_t>(window_.which.load)];
    return window_.costs == &operation.costs && window_.endpoint == operation.endpoint &&
           window_.which.index == which.index &&
           (window_.way == ways.first(operation.length) ||
            window_.way == ways.second(operation.length));
}

OneSidedTimes::Route OneSidedTimes::begin(const Operation& operation) {
    const Load load = load_of(operation);
    Route route{operation.usual, false};
    const auto& ways = operation.ways[static_cast<size_t>(load)];
    // One that the program cut short says nothing.
    if (stage_ == Stage::kOpen && (is_first_ || !is_of_window(operation))) stage_ = Stage::kNone;
    if (stage_ == Stage::kOpen) {
        const auto& of_window = operation.ways[static_cast<size_t>(window_.which.load)];
        window_.assumed += of_window->assumed(window_.way).at(operation.length);
        --window_.left;
        route.way = window_.way;
    } else if (ways) {
        const auto which = LearnedCosts::class_of(load, operation.length);
        const unsigned operations =
            is_first_ && stage_ == Stage::kNone ? window_of(load, operation.length) : 0;
        const auto [way, is_timed] = operation.costs.choose_window(which, *ways, operation.length,
                                                                   operation.usual, operations);
        route.way = way;
        if (is_timed) open(operation, which, way, operations);
    }
    if (stage_ == Stage::kOpen && window_.left == 0) {
        stage_ = Stage::kEnding;
        route.ends_window = true;
    }
    if (operation.is_put && route.way == Way::kCopy) has_unflushed_ = true;
    return route;
}

unsigned OneSidedTimes::window_of(Load load, size_t length) const {
    if (load == Load::kAlone) return 1;
    const auto most = std::clamp<size_t>(kMostBytes / length, 2, kMostOperations);
    return static_cast<unsigned>(std::clamp<size_t>(before_wait_, 2, most));
}

void OneSidedTimes::open(const Operation& operation, LearnedCosts::Class which, Way way,
                         unsigned operations) {
    const Ways& ways = *operation.ways[static_cast<size_t>(which.load)];
    window_ = {.costs = &operation.costs,
               .which = which,
               .way = way,
               .endpoint = operation.endpoint,
               .left = operations - 1,
               .assumed = ways.assumed(way).at(operation.length),
               .began = clock_.now()};
    stage_ = Stage::kOpen;
}

void OneSidedTimes::end_window(bool is_good) {
    stage_ = Stage::kNone;
    if (is_good) {
        window_.costs->observe_window(window_.which, window_.way, window_.assumed,
                                      clock_.now() - window_.began);
    }
}

}  // namespace ucp::select
