// SPDX-License-Identifier: BSD-3-Clause
#include "ucx/log_handlers.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <string>

namespace ucx {
namespace {

constexpr ucs_log_component_config_t kOwn{UCS_LOG_LEVEL_TRACE_POLL, "swiftlane", nullptr};

ucs::LogLevel own_level(ucs_log_level_t level) {
    if (level == UCS_LOG_LEVEL_PRINT) return ucs::LogLevel::kInfo;
    return static_cast<ucs::LogLevel>(
        std::min(static_cast<int>(level), static_cast<int>(ucs::LogLevel::kTrace)));
}

// Where a line of the log was written: "[time host:pid] file:line LEVEL text".
struct Place {
    std::string file;
    unsigned line = 0;

    explicit Place(std::string_view whole) {
        const size_t start = whole.find("] ");
        if (start == whole.npos) return;
        const std::string_view rest = whole.substr(start + 2);
        const size_t colon = rest.find(':');
        if (colon == rest.npos) return;
        file = rest.substr(0, colon);
        std::from_chars(rest.data() + colon + 1, rest.data() + rest.size(), line);
    }
};

}  // namespace

LogHandlers& LogHandlers::instance() {
    static auto* handlers = new LogHandlers;  // lines may come when the process ends
    return *handlers;
}

void LogHandlers::push(ucs_log_func_t handler) {
    const std::lock_guard lock(mutex_);
    if (handler == nullptr || handlers_.size() == kMaxHandlers) return;
    handlers_.push_back(handler);
    if (handlers_.size() == 1) before_ = ucs::set_log_sink(this);
}

void LogHandlers::pop() {
    const std::lock_guard lock(mutex_);
    if (handlers_.empty()) return;
    handlers_.pop_back();
    if (handlers_.empty()) ucs::set_log_sink(before_);
}

unsigned LogHandlers::count() const {
    const std::lock_guard lock(mutex_);
    return static_cast<unsigned>(handlers_.size());
}

ucs::LogSink& LogHandlers::sink_before(ucs::LogSink& otherwise) const {
    const std::lock_guard lock(mutex_);
    const bool is_usual = before_ == nullptr || before_ == &ucs::default_log_sink();
    return handlers_.empty() || is_usual ? otherwise : *before_;
}

// Handlers may log, push and pop: they run without the lock.
bool LogHandlers::is_taken(const char* file, unsigned line, const char* function,
                           ucs_log_level_t level, const ucs_log_component_config_t* component,
                           const char* format, va_list ap) const {
    std::vector<ucs_log_func_t> handlers;
    {
        const std::lock_guard lock(mutex_);
        handlers = handlers_;
    }
    for (auto handler = handlers.rbegin(); handler != handlers.rend(); ++handler) {
        va_list copy;
        va_copy(copy, ap);
        const ucs_log_func_rc_t result =
            (*handler)(file, line, function, level, component, format, copy);
        va_end(copy);
        if (result == UCS_LOG_FUNC_RC_STOP) return true;
    }
    return false;
}

void LogHandlers::dispatch(const char* file, unsigned line, const char* function,
                           ucs_log_level_t level, const ucs_log_component_config_t* component,
                           const char* format, va_list ap) {
    if (is_taken(file, line, function, level, component, format, ap)) return;
    va_list copy;
    va_copy(copy, ap);
    const int length = std::vsnprintf(nullptr, 0, format, copy);
    va_end(copy);
    std::string text(static_cast<size_t>(std::max(length, 0)), '\0');
    if (length > 0) std::vsnprintf(text.data(), text.size() + 1, format, ap);
    const ucs::LogLevel own = own_level(level);
    sink_before(ucs::program_log_sink()).write(own, ucs::log_line(own, file, line, text), text);
}

void LogHandlers::write(ucs::LogLevel level, std::string_view line, std::string_view text) {
    const Place place(line);
    const std::string whole(text);
    const auto ask = [&](const char* format, ...) {
        va_list ap;
        va_start(ap, format);
        const bool is_done = is_taken(place.file.c_str(), place.line, "",
                                      static_cast<ucs_log_level_t>(level), &kOwn, format, ap);
        va_end(ap);
        return is_done;
    };
    if (!ask("%s", whole.c_str())) sink_before(ucs::default_log_sink()).write(level, line, text);
}

}  // namespace ucx
