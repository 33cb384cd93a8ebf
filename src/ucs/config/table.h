// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ucs/config/source.h"
#include "ucs/config/values.h"
#include "ucs/runtime/runtime.h"
#include "ucs/type/status.h"

// How a component declares its variables:
//
//   struct EagerConfig {
//       ucs::config::MemorySize zcopy_threshold;
//       std::optional<unsigned> lanes;
//   };
//   inline constexpr ucs::config::Field<EagerConfig> kEagerFields[] = {
//       ucs::config::field<&EagerConfig::zcopy_threshold>("ZCOPY_THRESH", "16k", "Messages of..."),
//       ucs::config::field<&EagerConfig::lanes>("MAX_EAGER_LANES", "auto", "How many lanes...",
//                                               {"1", "16"}),
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

// The least and the most that a value may be, both allowed, in the text form of the variable;
// empty: no bound. load() brings a value outside to the nearest bound, so that users of the value
// need not.
struct Bounds {
    std::string_view least{};
    std::string_view most{};
};

template <typename T>
struct Field {
    std::string_view name;  // without "UCX_" and without the table's prefix
    std::string_view default_text;
    std::string_view help;  // sentences; may hold newlines
    bool (*parse)(std::string_view text, T& values);
    std::string (*print)(const T& values);
    std::string (*expected)();
    Bounds bounds{};
    // Brings the value into the bounds. False if it was outside.
    bool (*enforce)(const Bounds& bounds, T& values) = nullptr;
};

namespace internal {

template <typename Member>
struct MemberPointer;

template <typename Class, typename Value>
struct MemberPointer<Value Class::*> {
    using ClassType = Class;
    using ValueType = Value;
};

// Values without an order have no bounds, nor has "auto".
template <typename T>
bool enforce(const Bounds& bounds, T& value) {
    bool within = true;
    if constexpr (std::totally_ordered<T>) {
        T bound{};
        if (!bounds.least.empty() && Codec<T>::parse(bounds.least, bound) && value < bound) {
            value = bound;
            within = false;
        }
        if (!bounds.most.empty() && Codec<T>::parse(bounds.most, bound) && value > bound) {
            value = bound;
            within = false;
        }
    }
    return within;
}

template <typename T>
bool enforce(const Bounds& bounds, std::optional<T>& value) {
    return !value || enforce(bounds, *value);
}

}  // namespace internal

template <auto Member>
constexpr auto field(std::string_view name, std::string_view default_text, std::string_view help,
                     Bounds bounds = {}) {
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
        bounds,
        [](const Bounds& limits, Class& values) {
            return internal::enforce(limits, values.*Member);
        },
    };
}

// A table without the type of its values: what printing, checking and spelling need. A table
// registers itself for the life of the process and is never destroyed before its end. Its title is
// its key: tables of one title are copies of one.
class TableBase : public RegistryEntry {
  public:
    struct Variable {
        std::string_view name;
        std::string_view default_text;
        std::string_view help;
        std::string expected;
    };
    enum class Verdict { kFits, kOutOfBounds, kUnreadable };

    TableBase(TableBase&&) = delete;

    std::string_view title() const { return key; }
    // The table's own prefix first, then those it falls back to.
    std::span<const std::string_view> prefixes() const { return prefixes_; }

    virtual size_t size() const = 0;
    virtual std::string_view name(size_t index) const = 0;
    virtual Variable variable(size_t index) const = 0;
    // Whether `text` is a value of that variable; if it is readable `canonical` becomes the printed
    // form of what it amounts to within the bounds.
    virtual Verdict check(size_t index, std::string_view text, std::string& canonical) const = 0;

    // The setting that applies to a variable, the most specific prefix first; null: the default.
    const Source::Setting* lookup(size_t index, const Source& source) const;

    // The tables of the process, in no order; null after the last.
    static const TableBase* first() {
        return static_cast<const TableBase*>(runtime().tables.first());
    }
    const TableBase* next() const { return static_cast<const TableBase*>(following); }

  protected:
    TableBase(std::string_view title, std::initializer_list<std::string_view> prefixes);
    ~TableBase() = default;

    static std::string with_bounds(std::string expected, const Bounds& bounds);
    ucs_status_t report(const Variable& variable, const Source::Setting* setting,
                        std::string& error) const;

  private:
    std::vector<std::string_view> prefixes_;
};

template <typename T>
class Table final : public TableBase {
  public:
    // `fields` must outlive the table: make it a constexpr array.
    Table(std::string_view title, std::initializer_list<std::string_view> prefixes,
          std::span<const Field<T>> fields)
        : TableBase(title, prefixes), fields_(fields) {}

    // Fills every member from the user's settings and the defaults, within its bounds. On
    // UCS_ERR_INVALID_PARAM `error` names the variable, the value and what is expected; `values` is
    // then half filled.
    ucs_status_t load(const Source& source, T& values, std::string& error) const {
        for (size_t index = 0; index < fields_.size(); ++index) {
            const Source::Setting* setting = lookup(index, source);
            const std::string_view text =
                setting != nullptr ? std::string_view(setting->value) : fields_[index].default_text;
            if (!fields_[index].parse(text, values)) {
                return report(variable(index), setting, error);
            }
            fields_[index].enforce(fields_[index].bounds, values);
        }
        return UCS_OK;
    }

    size_t size() const override { return fields_.size(); }

    std::string_view name(size_t index) const override { return fields_[index].name; }

    Variable variable(size_t index) const override {
        const Field<T>& field = fields_[index];
        return {field.name, field.default_text, field.help,
                with_bounds(field.expected(), field.bounds)};
    }

    Verdict check(size_t index, std::string_view text, std::string& canonical) const override {
        T values{};
        const Field<T>& field = fields_[index];
        if (!field.parse(text, values)) return Verdict::kUnreadable;
        const bool within = field.enforce(field.bounds, values);
        canonical = field.print(values);
        return within ? Verdict::kFits : Verdict::kOutOfBounds;
    }

  private:
    std::span<const Field<T>> fields_;
};

}  // namespace ucs::config
