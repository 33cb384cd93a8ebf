// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ucs {

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

// In a program with rights that its caller lacks (setuid) no variable is set.
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

}  // namespace ucs
