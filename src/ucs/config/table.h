// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ucs/config/source.h"
#include "ucs/config/values.h"
#include "ucs/type/status.h"

// How a component declares its variables:
//
//   struct EagerConfig {
//       ucs::config::MemorySize zcopy_threshold;
//       std::optional<unsigned> lanes;
//   };
//   inline constexpr ucs::config::Field<EagerConfig> kEagerFields[] = {
//       ucs::config::field<&EagerConfig::zcopy_threshold>("ZCOPY_THRESH", "16k", "Messages of..."),
//       ucs::config::field<&EagerConfig::lanes>("MAX_EAGER_LANES", "auto", "How many lanes..."),
//   };
//   const ucs::config::Table<EagerConfig> kEagerTable("eager protocol", {""}, kEagerFields);
//
// The last line stands in one source file (static registration), and
//
//   EagerConfig values;
//   ucs_status_t status = kEagerTable.load(source, values, error);
//
// reads it. A table with the prefixes {"DC_MLX5_", "DC_", "IB_"} looks for UCX_DC_MLX5_TX_DEPTH,
// then UCX_DC_TX_DEPTH, then UCX_IB_TX_DEPTH: the specific one wins.
namespace ucs::config {

template <typename T>
struct Field {
    std::string_view name;  // without "UCX_" and without the table's prefix
    std::string_view default_text;
    std::string_view help;  // sentences; may hold newlines
    bool (*parse)(std::string_view text, T& values);
    std::string (*print)(const T& values);
    std::string (*expected)();
};

namespace internal {

template <typename Member>
struct MemberPointer;

template <typename Class, typename Value>
struct MemberPointer<Value Class::*> {
    using ClassType = Class;
    using ValueType = Value;
};

}  // namespace internal

template <auto Member>
constexpr auto field(std::string_view name, std::string_view default_text, std::string_view help) {
    using Pointer = internal::MemberPointer<decltype(Member)>;
    using Class = typename Pointer::ClassType;
    using Value = typename Pointer::ValueType;
    return Field<Class>{
        name,
        default_text,
        help,
        [](std::string_view text, Class& values) {
            return Codec<Value>::parse(text, values.*Member);
        },
        [](const Class& values) { return Codec<Value>::print(values.*Member); },
        [] { return Codec<Value>::expected(); },
    };
}

// A table without the type of its values: what printing, checking and spelling need. A table
// registers itself for the life of the process and is never destroyed before its end. Its title is
// its own: tables of one title are copies of one, linked into the main library and a module.
class TableBase {
  public:
    struct Variable {
        std::string_view name;
        std::string_view default_text;
        std::string_view help;
        std::string expected;
    };

    TableBase(const TableBase&) = delete;
    TableBase& operator=(const TableBase&) = delete;

    std::string_view title() const { return title_; }
    // The table's own prefix first, then those it falls back to.
    std::span<const std::string_view> prefixes() const { return prefixes_; }

    virtual size_t size() const = 0;
    virtual std::string_view name(size_t index) const = 0;
    virtual Variable variable(size_t index) const = 0;
    // Whether `text` is a value of that variable; if so `canonical` becomes its printed form.
    virtual bool check(size_t index, std::string_view text, std::string& canonical) const = 0;

    // The setting that applies to a variable, the most specific prefix first; null: the default.
    const Source::Setting* lookup(size_t index, const Source& source) const;

    // The next registered table.
    const TableBase* next() const { return next_; }

  protected:
    TableBase(std::string_view title, std::initializer_list<std::string_view> prefixes);
    ~TableBase() = default;

    ucs_status_t report(const Variable& variable, const Source::Setting* setting,
                        std::string& error) const;

  private:
    friend struct Registry;

    std::string_view title_;
    std::vector<std::string_view> prefixes_;
    TableBase* next_ = nullptr;
};

template <typename T>
class Table final : public TableBase {
  public:
    // `fields` must outlive the table: make it a constexpr array.
    Table(std::string_view title, std::initializer_list<std::string_view> prefixes,
          std::span<const Field<T>> fields)
        : TableBase(title, prefixes), fields_(fields) {}

    // Fills every member from the user's settings and the defaults. On UCS_ERR_INVALID_PARAM
    // `error` names the variable, the value and what is expected; `values` is then half filled.
    ucs_status_t load(const Source& source, T& values, std::string& error) const {
        for (size_t index = 0; index < fields_.size(); ++index) {
            const Source::Setting* setting = lookup(index, source);
            const std::string_view text =
                setting != nullptr ? std::string_view(setting->value) : fields_[index].default_text;
            if (!fields_[index].parse(text, values)) {
                return report(variable(index), setting, error);
            }
        }
        return UCS_OK;
    }

    size_t size() const override { return fields_.size(); }

    std::string_view name(size_t index) const override { return fields_[index].name; }

    Variable variable(size_t index) const override {
        const Field<T>& field = fields_[index];
        return {field.name, field.default_text, field.help, field.expected()};
    }

    bool check(size_t index, std::string_view text, std::string& canonical) const override {
        T values{};
        if (!fields_[index].parse(text, values)) return false;
        canonical = fields_[index].print(values);
        return true;
    }

  private:
    std::span<const Field<T>> fields_;
};

}  // namespace ucs::config
