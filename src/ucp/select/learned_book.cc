// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/select/learned_book.h"

#include <algorithm>

namespace ucp::select {

LearnedCosts& LearnedBook::of(std::string_view lane) {
    const auto found = lanes_.find(lane);
    if (found != lanes_.end()) return *found->second;
    LearnedCosts& made =
        *lanes_.emplace(std::string(lane), std::make_unique<LearnedCosts>()).first->second;
    if (is_pinned_) made.pin();
    return made;
}

void LearnedBook::pin() {
    is_pinned_ = true;
    for (auto& [lane, costs] : lanes_) costs->pin();
}

void LearnedBook::restore(std::span<const LearnedFigure> figures) {
    for (const LearnedFigure& each : figures) {
        of(each.lane).restore(LearnedCosts::class_of_size(each.situation, each.size), each.way,
                              each.factor);
    }
}

std::vector<LearnedFigure> LearnedBook::measured() const {
    std::vector<LearnedFigure> figures;
    for (const auto& [lane, costs] : lanes_) {
        for (const Situation situation : {Situation::kAlone, Situation::kAmongOthers}) {
            for (size_t size = 0; size < LearnedCosts::kSizes; ++size) {
                const auto which = LearnedCosts::class_of_size(situation, size);
                for (const Way way : {Way::kAtOnce, Way::kAnnounced}) {
                    if (!costs->is_measured(which, way)) continue;
                    figures.push_back({lane, situation, size, way, costs->factor(which, way)});
                }
            }
        }
    }
    return figures;
}

std::vector<LearnedFigure> merge(std::vector<LearnedFigure> known,
                                 std::span<const LearnedFigure> news) {
    for (const LearnedFigure& figure : news) {
        const auto same = std::ranges::find_if(
            known, [&](const LearnedFigure& each) { return each.is_of(figure); });
        if (same == known.end()) {
            known.push_back(figure);
        } else {
            same->factor = (same->factor + figure.factor) / 2;
        }
    }
    return known;
}

}  // namespace ucp::select
