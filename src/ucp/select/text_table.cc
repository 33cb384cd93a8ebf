// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/select/text_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace ucp::select {

std::string TextTable::text(const std::string& indent) const {
    std::vector<size_t> widths;
    for (const auto& line : lines_) {
        widths.resize(std::max(widths.size(), line.size()));
        for (size_t column = 0; column < line.size(); ++column) {
            widths[column] = std::max(widths[column], line[column].size());
        }
    }
    std::string text;
    for (const auto& line : lines_) {
        std::string row;
        for (size_t column = 0; column < line.size(); ++column) {
            const bool is_number = column >= first_number_ && column < last_number_;
            row += is_number ? fmt::format("{:>{}}  ", line[column], widths[column])
                             : fmt::format("{:<{}}  ", line[column], widths[column]);
        }
        row.erase(row.find_last_not_of(' ') + 1);
        text += indent + row + "\n";
    }
    return text;
}

}  // namespace ucp::select
