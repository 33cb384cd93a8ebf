// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/config/spelling.h"

#include <algorithm>
#include <vector>

namespace ucs::config {

size_t edit_distance(std::string_view left, std::string_view right) {
    std::vector<size_t> before(right.size() + 1);
    std::vector<size_t> last(right.size() + 1);
    std::vector<size_t> row(right.size() + 1);
    for (size_t column = 0; column <= right.size(); ++column) last[column] = column;
    for (size_t line = 1; line <= left.size(); ++line) {
        row[0] = line;
        for (size_t column = 1; column <= right.size(); ++column) {
            const bool same = left[line - 1] == right[column - 1];
            row[column] =
                std::min({last[column] + 1, row[column - 1] + 1, last[column - 1] + !same});
            if (line > 1 && column > 1 && left[line - 1] == right[column - 2] &&
                left[line - 2] == right[column - 1]) {
                row[column] = std::min(row[column], before[column - 2] + 1);
            }
        }
        before.swap(last);
        last.swap(row);
    }
    return last[right.size()];
}

size_t edit_limit(std::string_view name) {
    return std::max<size_t>(2, name.size() / 3);
}

}  // namespace ucs::config
