// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ucp/select/learned_costs.h"

namespace ucp::select {

/** One figure of what was learned, as a file keeps it. */
struct LearnedFigure {
    std::string lane;  //!< transport/device
    Situation situation = Situation::kAlone;
    size_t size = 0;  //!< LearnedCosts::size_of()
    Way way = Way::kAtOnce;
    float factor = 0;

    /** Is it the same figure, whatever its value? */
    bool is_of(const LearnedFigure& other) const {
        return lane == other.lane && situation == other.situation && size == other.size &&
               way == other.way;
    }
};

/** What a worker learns, lane by lane: endpoints of the same transport and device share it. */
class LearnedBook {
  public:
    /** Stays where it is as long as the book. */
    LearnedCosts& of(std::string_view lane);
    /** What an earlier job has learned. */
    void restore(std::span<const LearnedFigure> figures);
    /** Keep to what was restored, and to the assumptions for all else. */
    void pin();
    /** What was observed by this worker. */
    std::vector<LearnedFigure> measured() const;

  private:
    std::map<std::string, std::unique_ptr<LearnedCosts>, std::less<>> lanes_;
    bool is_pinned_ = false;
};

/** Figures of several processes: the mean where two know the same one. */
std::vector<LearnedFigure> merge(std::vector<LearnedFigure> known,
                                 std::span<const LearnedFigure> news);

}  // namespace ucp::select
