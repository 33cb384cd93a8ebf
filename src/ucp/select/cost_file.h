// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ucp/select/costs.h"
#include "ucp/select/learned_book.h"
#include "ucs/sys/time.h"

namespace ucs {
class Environment;
}

// Costs that are kept from one job to the next: a text file that a user can read, delete or pin.
namespace ucp::select {

// Whose costs they are: those of another machine or version are not believed.
struct CostOwner {
    std::string processor;
    unsigned cores = 0;
    std::string kernel;  // its release
    std::string version;

    static CostOwner own();
};

// What a file keeps.
struct KeptCosts {
    CostModel model;
    std::vector<LearnedFigure> learned;
};

std::string format_costs(const KeptCosts& costs, const CostOwner& owner);
// @param origin  of the figures that the text names; the others stay as they are
// @return "" or why the text is not believed; then nothing has changed
std::string parse_costs(std::string_view text, const CostOwner& owner, Origin origin,
                        KeptCosts* costs);

// Where they are kept, in the user's cache folder; "" if he has none. Other owner, other file.
std::string default_cost_file(const ucs::Environment& environment, const CostOwner& owner);
// The same of a file, which must be the user's own, and writable by nobody else.
std::string load_costs(const std::string& path, const CostOwner& owner, Origin origin,
                       KeptCosts* costs);
// Readers see the old file or the new one, never a part. @return "" or what went wrong
std::string save_costs(const std::string& path, const CostOwner& owner, const KeptCosts& costs);

// Those in the user's cache folder; measured, and kept there, if there are none to be believed.
const KeptCosts& kept_costs();
// Those of a file that the user has named; those measured, with a warning, if it is not believed.
KeptCosts pinned_costs(const std::string& path);

// Brings what a process has learned together with what others of the user have, by way of the file:
// now and then, ever more seldom, and at its end. However many processes end at once, the file is
// written about once a second, by one of them; the others' figures are of the same machine.
class CostSharing {
  public:
    // @param path  "": what is learned is not kept
    CostSharing(std::string path, CostOwner owner)
        : path_(std::move(path)), owner_(std::move(owner)) {}

    // Is it time for an exchange?
    bool is_due(ucs::Time now) {
        if (next_ == ucs::Time()) next_ = ucs::deadline(now, interval_);
        return now >= next_;
    }
    // What others have learned goes into the book, and the news of the book into the file.
    void exchange(LearnedBook& book, ucs::Time now);

  private:
    static constexpr ucs::Duration kFirst = std::chrono::seconds(1);
    static constexpr ucs::Duration kLongest = std::chrono::minutes(10);

    const std::string path_;
    const CostOwner owner_;
    ucs::Duration interval_ = kFirst;
    ucs::Time next_{};
    int64_t read_ = 0;  // when the file that was read last was written, in nanoseconds
};

}  // namespace ucp::select
