// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace ucp::select {

/** Lines of cells for people; columns as wide as their widest cell. */
class TextTable {
  public:
    /** Columns [first_number, last_number) are set to the right. */
    explicit TextTable(std::vector<std::string> head, size_t first_number = 0,
                       size_t last_number = 0)
        : lines_{std::move(head)}, first_number_(first_number), last_number_(last_number) {}

    /** @param cells  as many as the head has, or fewer */
    void add(std::vector<std::string> cells) { lines_.push_back(std::move(cells)); }
    /** Every line begins with `indent` and ends with a newline. */
    std::string text(const std::string& indent) const;

  private:
    std::vector<std::vector<std::string>> lines_;
    size_t first_number_, last_number_;
};

}  // namespace ucp::select
