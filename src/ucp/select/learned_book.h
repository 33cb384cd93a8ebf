// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ucp/select/learned_costs.h"

namespace ucp::select {

// The operations of which something is learned.
inline constexpr std::array kLearnedOperations{Operation::kTag, Operation::kActiveMessage,
                                               Operation::kPut, Operation::kGet};
// The place of one of them among these.
constexpr size_t learned_place(Operation operation) {
    const auto place = static_cast<size_t>(operation);
    return operation < Operation::kPut ? place : place - 1;
}
static_assert(kLearnedOperations[learned_place(Operation::kActiveMessage)] ==
                  Operation::kActiveMessage &&
              kLearnedOperations[learned_place(Operation::kGet)] == Operation::kGet);

// One figure of what was learned, as a file keeps it.
struct LearnedFigure {
    std::string lane;  // transport/device
    Operation operation = Operation::kTag;
    Load load = Load::kAlone;
    size_t size = 0;  // LearnedCosts::size_of()
    Way way = Way::kEager;
    float factor = 0;
    uint32_t count = 0;  // messages that say so

    // Is it the same figure, whatever its value?
    bool is_of(const LearnedFigure& other) const {
        return lane == other.lane && operation == other.operation && load == other.load &&
               size == other.size && way == other.way;
    }
};

// What a worker learns of each operation, lane by lane: endpoints of the same transport and device
// share it.
class LearnedBook {
  public:
    // Stays where it is as long as the book.
    // @param operation  one of kLearnedOperations
    LearnedCosts& of(std::string_view lane, Operation operation);
    // What others have learned, where this worker has not.
    void restore(std::span<const LearnedFigure> figures);
    // Keep to what was restored, and to the assumptions for all else.
    void pin();
    // What was observed by this worker since the last call; counts are of these messages.
    std::vector<LearnedFigure> take_news();

  private:
    using Lane = std::array<std::unique_ptr<LearnedCosts>, kLearnedOperations.size()>;

    std::map<std::string, Lane, std::less<>> lanes_;
    bool is_pinned_ = false;
};

// Figures of several processes: the mean where they know the same one, by numbers of messages.
// However many have said something, what comes anew counts for a part.
std::vector<LearnedFigure> merge(std::vector<LearnedFigure> known,
                                 std::span<const LearnedFigure> news);

}  // namespace ucp::select
