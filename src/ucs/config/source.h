// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ucs/type/status.h"

namespace ucs::config {

// The seam through which environment variables enter the library. Not owned through it.
class Environment {
  public:
    virtual std::optional<std::string> get(std::string_view name) const = 0;
    // The names of all variables that begin with `prefix`.
    virtual std::vector<std::string> names(std::string_view prefix) const = 0;

  protected:
    constexpr Environment() = default;
    ~Environment() = default;
};

class ProcessEnvironment final : public Environment {
  public:
    constexpr ProcessEnvironment() = default;
    std::optional<std::string> get(std::string_view name) const override;
    std::vector<std::string> names(std::string_view prefix) const override;
};

// For tests and the simulator.
class MapEnvironment final : public Environment {
  public:
    MapEnvironment(std::initializer_list<std::pair<const std::string, std::string>> values = {})
        : values_(values) {}

    void set(std::string name, std::string value) {
        values_.insert_or_assign(std::move(name), std::move(value));
    }

    std::optional<std::string> get(std::string_view name) const override;
    std::vector<std::string> names(std::string_view prefix) const override;

  private:
    std::map<std::string, std::string, std::less<>> values_;
};

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
    // `error` says which variable and what is expected.
    ucs_status_t modify(std::string_view name, std::string_view value, std::string& error);

    // Null if the user has not set it.
    const Setting* find(std::string_view name) const;

    const std::map<std::string, Setting, std::less<>>& settings() const { return settings_; }

  private:
    void take(std::string_view environment_prefix);
    ucs_status_t take_file(std::string_view file, std::string& error);

    std::map<std::string, Setting, std::less<>> settings_;
};

}  // namespace ucs::config
