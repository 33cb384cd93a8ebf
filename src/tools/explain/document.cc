// SPDX-License-Identifier: BSD-3-Clause
#include "tools/explain/document.h"

#include <charconv>
#include <string>
#include <utility>
#include <vector>

namespace tools {
namespace {

// Columns are two or more spaces apart; no cell is empty but at the end of a line.
std::vector<std::string> cells_of(std::string_view line) {
    std::vector<std::string> cells;
    while (!line.empty()) {
        const size_t end = std::min(line.find("  "), line.size());
        cells.emplace_back(line.substr(0, end));
        line.remove_prefix(std::min(line.find_first_not_of(' ', end), line.size()));
    }
    return cells;
}

std::string key_of(std::string_view column) {
    std::string key;
    bool is_apart = false;
    for (char c : column) {
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
        const bool is_word = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if (is_word && is_apart && !key.empty()) key += '_';
        is_apart = !is_word;
        if (is_word) key += c;
    }
    return key;
}

Json value_of(const std::string& cell) {
    uint64_t number = 0;
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), number);
    if (error == std::errc() && end == cell.data() + cell.size()) return number;
    return cell == "-" ? Json() : Json(cell);
}

bool is_head(std::string_view line) {
    return line.starts_with("transport  ") || line.starts_with("role  ") ||
           line.starts_with("operation  ");
}

}  // namespace

Json explanation_json(std::string_view text) {
    Json tables = Json::array(), notes = Json::array();
    std::vector<std::string> columns;
    std::string title;
    while (!text.empty()) {
        std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(line.size() + 1, text.size()));
        if (line.starts_with('#')) line.remove_prefix(1);
        line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
        if (line.empty()) {
            columns.clear();
        } else if (is_head(line)) {
            columns = cells_of(line);
            tables.push_back({{"title", std::exchange(title, {})}, {"rows", Json::array()}});
        } else if (const auto cells = cells_of(line); !columns.empty() && cells.size() > 1) {
            Json row = Json::object();
            for (size_t i = 0; i < columns.size(); ++i)
                row[key_of(columns[i])] = i < cells.size() ? value_of(cells[i]) : Json();
            tables.back()["rows"].push_back(std::move(row));
        } else {
            // A line by itself is the title of the table that follows, or a note.
            if (!title.empty()) notes.push_back(title);
            title = line;
        }
    }
    if (!title.empty()) notes.push_back(title);
    return {{"tables", std::move(tables)}, {"notes", std::move(notes)}};
}

}  // namespace tools
