// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "ucs/log/log.h"

namespace ucs {

// While it lives, lines up to `level` come here instead of the log. One at a time.
class LogCapture final : public LogSink {
  public:
    explicit LogCapture(LogLevel level = LogLevel::kWarn)
        : previous_sink_(set_log_sink(this)), previous_level_(runtime().log_level.load()) {
        set_log_level(level);
    }
    ~LogCapture() {
        runtime().log_level.store(previous_level_);
        set_log_sink(previous_sink_);
    }
    LogCapture(const LogCapture&) = delete;

    void write(LogLevel level, std::string_view line, std::string_view text) override {
        std::lock_guard lock(mutex_);
        entries_.push_back({level, std::string(line), std::string(text)});
    }

    struct Entry {
        LogLevel level;
        std::string line;
        std::string text;
    };
    std::vector<Entry> entries() const {
        std::lock_guard lock(mutex_);
        return entries_;
    }
    // Whether one of the texts contains `part`.
    bool contains(std::string_view part) const {
        std::lock_guard lock(mutex_);
        return std::ranges::any_of(entries_, [part](const Entry& entry) {
            return entry.text.find(part) != std::string::npos;
        });
    }

  private:
    LogSink* previous_sink_;
    int previous_level_;
    mutable std::mutex mutex_;
    std::vector<Entry> entries_;
};

}  // namespace ucs
