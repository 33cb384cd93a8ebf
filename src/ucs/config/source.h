// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "ucs/type/status.h"

namespace ucs::config {

// A variable's name as it is written here: without "UCX_".
std::string_view without_ucx(std::string_view name);

enum class Origin { kDefault, kFile, kEnvironment, kProgram };

// One answer to "what has the user set?": a snapshot of the environment, a file's lines below it,
// the program's own settings above it. A value: once filled it may be read by any thread.
//
// Variables are named without "UCX_". With a prefix P, P_UCX_NAME counts before UCX_NAME.
class Source {
  public:
    struct Setting {
        std::string value;
        Origin origin;
        // As the user wrote it, for messages: "MYPFX_UCX_TLS", "UCX_TLS".
        std::string written_as;
    };

    // Takes the snapshot from runtime().environment, and the lines "UCX_NAME = value" of `file`
    // ('#' begins a comment, [section] lines are skipped). An empty or absent `file` is no error.
    // Errors: UCS_ERR_IO_ERROR, UCS_ERR_INVALID_PARAM with the file and line in `error`.
    static ucs_status_t read(std::string_view prefix, std::string_view file, Source& source,
                             std::string& error);

    // The snapshot alone, with no prefix.
    static Source from_environment();

    // Sets a variable from the program. The name may begin with "UCX_". Errors:
    // UCS_ERR_NO_ELEM if no table knows it, UCS_ERR_INVALID_PARAM if the value does not parse;
    // `error` says which variable and what is expected. Defined with the registry of tables.
    ucs_status_t modify(std::string_view name, std::string_view value, std::string& error);

    // The same whether or not a table knows the variable; the value is not looked at.
    void set(std::string_view bare_name, std::string_view value);

    // Null if the user has not set it.
    const Setting* find(std::string_view name) const;

    const std::map<std::string, Setting, std::less<>>& settings() const { return settings_; }

  private:
    void take(std::string_view environment_prefix);
    ucs_status_t take_file(std::string_view file, std::string& error);

    std::map<std::string, Setting, std::less<>> settings_;
};

}  // namespace ucs::config
