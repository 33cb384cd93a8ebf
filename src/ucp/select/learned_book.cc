// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/select/learned_book.h"

#include <algorithm>

namespace ucp::select {

LearnedCosts& LearnedBook::of(std::string_view lane, Operation operation) {
    auto found = lanes_.find(lane);
    if (found == lanes_.end()) found = lanes_.emplace(std::string(lane), Lane{}).first;
    std::unique_ptr<LearnedCosts>& costs = found->second[learned_place(operation)];
    if (costs == nullptr) {
        costs = std::make_unique<LearnedCosts>();
        if (is_pinned_) costs->pin();
    }
    return *costs;
}

void LearnedBook::pin() {
    is_pinned_ = true;
    for (auto& [name, lane] : lanes_) {
        for (const auto& costs : lane)
            if (costs != nullptr) costs->pin();
    }
}

void LearnedBook::restore(std::span<const LearnedFigure> figures) {
    for (const LearnedFigure& each : figures) {
        of(each.lane, each.operation)
            .restore(LearnedCosts::class_of_size(each.load, each.size), each.way, each.factor,
                     each.count);
    }
}

std::vector<LearnedFigure> LearnedBook::take_news() {
    std::vector<LearnedFigure> figures;
    const auto take = [&](const std::string& lane, Operation operation, LearnedCosts& costs) {
        for (const Load load : {Load::kAlone, Load::kOneWay, Load::kBothWays}) {
            for (size_t size = 0; size < LearnedCosts::kSizes; ++size) {
                const auto which = LearnedCosts::class_of_size(load, size);
                for (const Way way : all_ways(operation)) {
                    const uint32_t count = costs.take_news(which, way);
                    if (count == 0) continue;
                    figures.push_back(
                        {lane, operation, load, size, way, costs.factor(which, way), count});
                }
            }
        }
    };
    for (auto& [name, lane] : lanes_) {
        for (const Operation operation : kLearnedOperations) {
            if (const auto& costs = lane[learned_place(operation)]) take(name, operation, *costs);
        }
    }
    return figures;
}

std::vector<LearnedFigure> merge(std::vector<LearnedFigure> known,
                                 std::span<const LearnedFigure> news) {
    constexpr uint32_t kMaxCount = 1'000'000'000;          // no sum of two is too large
    constexpr uint32_t kOldWeight = 64, kNewWeight = 256;  // messages at most
    for (const LearnedFigure& figure : news) {
        const auto same = std::ranges::find_if(
            known, [&](const LearnedFigure& each) { return each.is_of(figure); });
        if (same == known.end()) {
            known.push_back(figure);
            continue;
        }
        const auto before = static_cast<float>(std::min(same->count, kOldWeight));
        const auto after = static_cast<float>(std::min(figure.count, kNewWeight));
        if (before + after > 0)
            same->factor = (before * same->factor + after * figure.factor) / (before + after);
        same->count = std::min(same->count, kMaxCount) + std::min(figure.count, kMaxCount);
    }
    return known;
}

}  // namespace ucp::select
