// SPDX-License-Identifier: BSD-3-Clause
#include "tools/info/variables.h"

#include <ucp/api/ucp.h>

#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "tools/common/paths.h"
#include "tools/common/program_output.h"

namespace tools {
namespace {

// Takes `prefix` off the front of `line`, if it is there.
bool take(std::string_view& line, std::string_view prefix) {
    if (!line.starts_with(prefix)) return false;
    line.remove_prefix(prefix.size());
    return true;
}

void append(std::string& text, std::string_view more) {
    if (!text.empty()) text += ' ';
    text += more;
}

}  // namespace

std::vector<Variable> parse_variables(std::string_view text) {
    std::vector<Variable> variables;
    Variable next;
    std::string table, last_comment;
    while (!text.empty()) {
        std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(line.size() + 1, text.size()));
        if (take(line, "# default: ")) {
            const size_t end = std::min(line.find("; expected: "), line.size());
            next.default_value = line.substr(0, end);
            line.remove_prefix(end);
            take(line, "; expected: ");
            next.expected = line;
        } else if (take(line, "# falls back to: ")) {
            next.fallbacks.emplace_back(line);
        } else if (take(line, "# ")) {
            append(next.help, line);
        } else if (line == "#") {
            // A title stands between two of these.
            if (!next.help.empty()) table = std::exchange(next, {}).help;
        } else if (line.starts_with("UCX_")) {
            const size_t equals = std::min(line.find('='), line.size());
            next.name = line.substr(0, equals);
            next.value = line.substr(std::min(equals + 1, line.size()));
            next.table = table;
            variables.push_back(std::exchange(next, {}));
        }
    }
    return variables;
}

std::string configuration(const char* title, unsigned flags) {
    // The library reads it; in a build tree modules lie where it does not look by itself.
    if (const std::string modules = Paths::find().modules; !modules.empty())
        setenv("UCX_MODULE_DIR", modules.c_str(), 0);
    ucp_config_t* config = nullptr;
    const ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
    if (status != UCS_OK) throw std::runtime_error(ucs_status_string(status));
    std::string text = printed([&](std::FILE* stream) {
        ucp_config_print(config, stream, title, static_cast<ucs_config_print_flags_t>(flags));
    });
    ucp_config_release(config);
    return text;
}

std::vector<Variable> read_variables() {
    return parse_variables(configuration(nullptr, UCS_CONFIG_PRINT_CONFIG | UCS_CONFIG_PRINT_DOC));
}

}  // namespace tools
