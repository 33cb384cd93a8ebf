// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <type_traits>

#include "ucs/runtime/runtime.h"

// Logging: ucs::log_warn("device {} has no port {}", name, port). Below the level a call costs one
// load and one comparison; its arguments are bound by reference and never formatted.
// Lines read "[seconds host:pid] file:line LEVEL text". UCX_LOG_LEVEL sets the level (default
// warn), UCX_LOG_FILE the place (default standard error; %h and %p stand for host and process).
namespace ucs {

// UCX's levels. Those past trace are accepted as names and mean trace.
enum class LogLevel : int { kFatal, kError, kWarn, kDiag, kInfo, kDebug, kTrace };

std::string_view log_level_name(LogLevel level);

// Where lines go. Not owned by the log; any thread may call write().
class LogSink {
  public:
    // `line` is complete and ends without a newline; `text` is the part that the caller wrote.
    virtual void write(LogLevel level, std::string_view line, std::string_view text) = 0;

  protected:
    constexpr LogSink() = default;
    ~LogSink() = default;
};

inline bool log_enabled(LogLevel level) {
    return static_cast<int>(level) <= runtime().log_level.load(std::memory_order_relaxed);
}

void set_log_level(LogLevel level);

// Takes the level from the environment again, which has changed.
void reload_log_level();

// "[seconds host:pid] file:line LEVEL text"
std::string log_line(LogLevel level, std::string_view file, unsigned line, std::string_view text);

// Where lines go unless set_log_sink() says otherwise: standard error, or UCX_LOG_FILE.
LogSink& default_log_sink();

// Where a program's own lines go, as in UCX: standard output, or UCX_LOG_FILE.
LogSink& program_log_sink();

// Replaces the sink, null restores the default one; returns the sink that was set before.
LogSink* set_log_sink(LogSink* sink);

// Writes, whatever the level, what the user has asked for by a variable of its own.
void log_requested(std::string_view text);

namespace internal {

// std::source_location, which clang 14 lacks.
struct SourceLocation {
    const char* file;
    unsigned line;
};

// Reads UCX_LOG_LEVEL if no level is set yet, then formats and writes what the level admits.
// Without memory for the line, says so instead: to log throws nothing.
void log_write(LogLevel level, const SourceLocation& where, fmt::string_view format,
               fmt::format_args args);
[[noreturn]] void log_abort();

// A format string checked at compile time, together with the place of the call.
template <typename... Args>
struct LogFormat {
    template <typename Text>
    requires std::is_convertible_v<const Text&, std::string_view>
    consteval LogFormat(const Text& text_value,  // NOLINT(google-explicit-constructor)
                        const char* file = __builtin_FILE(), unsigned line = __builtin_LINE())
        : text(text_value), where{file, line} {}

    fmt::format_string<Args...> text;
    SourceLocation where;
};

}  // namespace internal

// The argument types are deduced from the arguments alone.
template <typename... Args>
using LogFormat = internal::LogFormat<std::type_identity_t<Args>...>;

template <typename... Args>
inline void log(LogLevel level, LogFormat<const Args&...> format, const Args&... args) {
    if (!log_enabled(level)) [[likely]]
        return;
    internal::log_write(level, format.where, format.text, fmt::make_format_args(args...));
}

template <LogLevel kLevel>
struct LogAt {
    template <typename... Args>
    void operator()(LogFormat<const Args&...> format, const Args&... args) const {
        log(kLevel, format, args...);
    }
};
inline constexpr LogAt<LogLevel::kError> log_error;
inline constexpr LogAt<LogLevel::kWarn> log_warn;
inline constexpr LogAt<LogLevel::kDiag> log_diag;
inline constexpr LogAt<LogLevel::kInfo> log_info;
inline constexpr LogAt<LogLevel::kDebug> log_debug;
inline constexpr LogAt<LogLevel::kTrace> log_trace;

// For broken invariants only: logs and aborts the process.
template <typename... Args>
[[noreturn]] inline void log_fatal(LogFormat<const Args&...> format, const Args&... args) {
    internal::log_write(LogLevel::kFatal, format.where, format.text,
                        fmt::make_format_args(args...));
    internal::log_abort();
}

}  // namespace ucs
