// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>

#include <iostream>

#include "ucs/log/log.h"

namespace ucs::test {

// The log of a test program: goes to standard error, and an object that the library says was never
// returned to its pool fails the test in whose time it is found.
class LeaksFail final : public LogSink {
  public:
    LeaksFail() {
        set_log_sink(this);
        set_log_level(LogLevel::kDiag);  // at which pools say so
    }
    ~LeaksFail() { set_log_sink(nullptr); }
    LeaksFail(const LeaksFail&) = delete;
    LeaksFail& operator=(const LeaksFail&) = delete;

    void write(LogLevel, std::string_view line, std::string_view text) override {
        std::cerr << std::string(line) + '\n';
        if (text.ends_with("were never returned")) ADD_FAILURE() << text;
    }
};

}  // namespace ucs::test
