// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdarg>
#include <mutex>
#include <vector>

#include "ucs/debug/log_def.h"
#include "ucs/log/log.h"

namespace ucx {

// Handlers of the program for lines of the log, its own and the library's. While there are any it
// takes the place of the log's sink; what they leave goes there. Any thread.
class LogHandlers final : public ucs::LogSink {
  public:
    static constexpr size_t kMaxHandlers = 32;

    static LogHandlers& instance();

    void push(ucs_log_func_t handler);
    void pop();
    unsigned count() const;
    // A line of the program: handlers are asked, then it is written where UCX writes it.
    void dispatch(const char* file, unsigned line, const char* function, ucs_log_level_t level,
                  const ucs_log_component_config_t* component, const char* format, va_list ap);
    // A line of the library.
    void write(ucs::LogLevel level, std::string_view line, std::string_view text) override;

  private:
    bool is_taken(const char* file, unsigned line, const char* function, ucs_log_level_t level,
                  const ucs_log_component_config_t* component, const char* format,
                  va_list ap) const;
    // Whose place it has taken, if that was set by somebody.
    ucs::LogSink& sink_before(ucs::LogSink& otherwise) const;

    mutable std::mutex mutex_;
    std::vector<ucs_log_func_t> handlers_;
    ucs::LogSink* before_ = nullptr;  // the sink that it stands for; null: the default one
};

}  // namespace ucx
