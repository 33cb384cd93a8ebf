// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ucp/select/costs.h"
#include "ucp/select/learned_book.h"

namespace ucs {
class Environment;
}

// Costs that are kept from one job to the next: a text file that a user can read, delete or pin.
namespace ucp::select {

/** Whose costs they are: those of another machine or version are not believed. */
struct CostOwner {
    std::string processor;
    unsigned cores = 0;
    std::string version;

    static CostOwner own();
};

/** What a file keeps. */
struct KeptCosts {
    CostModel model;
    std::vector<LearnedFigure> learned;
};

std::string format_costs(const KeptCosts& costs, const CostOwner& owner);
/**
 * @param origin  of the figures that the text names; the others stay as they are
 * @return "" or why the text is not believed; then nothing has changed
 */
std::string parse_costs(std::string_view text, const CostOwner& owner, Origin origin,
                        KeptCosts* costs);

/** Where they are kept, in the user's cache folder; "" if he has none. */
std::string default_cost_file(const ucs::Environment& environment);
/** The same of a file, which must be the user's own, and writable by nobody else. */
std::string load_costs(const std::string& path, const CostOwner& owner, Origin origin,
                       KeptCosts* costs);
/** Readers see the old file or the new one, never a part. @return "" or what went wrong */
std::string save_costs(const std::string& path, const CostOwner& owner, const KeptCosts& costs);

/** Those in the user's cache folder; measured, and kept there, if there are none to be believed. */
const KeptCosts& kept_costs();
/** What was learned goes into the file in the user's cache folder, beside what others have learned.
 */
void keep_learned(const std::vector<LearnedFigure>& learned);
/** Those of a file that the user has named; those measured, with a warning, if it is not believed.
 */
KeptCosts pinned_costs(const std::string& path);

}  // namespace ucp::select
