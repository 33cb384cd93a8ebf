// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/log/log.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <regex>
#include <sstream>

#include "ucs/sys/host.h"
#include "unit/ucs/config/environment_fixture.h"
#include "unit/ucs/log/log_capture.h"

namespace ucs {

// Counts how often it is made into text.
struct Counted {
    mutable int* formatted;
};

}  // namespace ucs

template <>
struct fmt::formatter<ucs::Counted> : fmt::formatter<int> {
    template <typename Context>
    auto format(const ucs::Counted& counted, Context& context) const {
        return fmt::formatter<int>::format(++*counted.formatted, context);
    }
};

namespace ucs {
namespace {

TEST(Log, ALineSaysWhenWhereAndWhat) {
    LogCapture log;
    log_warn("lane {} of {}", 3, "worker");
    ASSERT_EQ(log.entries().size(), 1u);
    const LogCapture::Entry entry = log.entries().front();
    EXPECT_EQ(entry.level, LogLevel::kWarn);
    EXPECT_EQ(entry.text, "lane 3 of worker");
    const std::regex form(R"(\[\d+\.\d{6} [^ :]+:(\d+)\] log_test\.cc:\d+ WARN lane 3 of worker)");
    std::smatch match;
    ASSERT_TRUE(std::regex_match(entry.line, match, form)) << entry.line;
    EXPECT_EQ(match[1], std::to_string(process_id()));
}

TEST(Log, TimeComesFromTheSeam) {
    const VirtualClock clock(Time(1234567ms));
    const Clock* previous = runtime().clock;
    runtime().clock = &clock;
    {
        LogCapture log;
        log_error("x");
        EXPECT_TRUE(log.entries().front().line.starts_with("[1234.567000 "));
    }
    runtime().clock = previous;
}

TEST(Log, BelowTheLevelNothingIsFormatted) {
    LogCapture log(LogLevel::kInfo);
    int formatted = 0;
    log_debug("{}", Counted{&formatted});
    log_trace("{}", Counted{&formatted});
    EXPECT_EQ(formatted, 0);
    log_info("{}", Counted{&formatted});
    log_diag("{}", Counted{&formatted});
    EXPECT_EQ(formatted, 2);
    EXPECT_EQ(log.entries().size(), 2u);
    EXPECT_FALSE(log_enabled(LogLevel::kDebug));
}

TEST(Log, CaptureRestoresTheLevel) {
    set_log_level(LogLevel::kError);
    {
        LogCapture log(LogLevel::kTrace);
        EXPECT_TRUE(log_enabled(LogLevel::kTrace));
    }
    EXPECT_FALSE(log_enabled(LogLevel::kWarn));
    runtime().log_level = Runtime::kLogLevelUnresolved;
}

TEST(LogDeath, FatalSaysWhyAndAborts) {
    EXPECT_DEATH(log_fatal("queue {} is broken", 7), "log_test.cc:[0-9]+ FATAL queue 7 is broken");
}

// A line that nobody reads any more is no reason to end the program.
TEST(LogPipe, WithoutAReaderIsWrittenToInVain) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    close(ends[0]);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        static volatile sig_atomic_t signals;
        signals = 0;
        dup2(ends[1], STDERR_FILENO);
        set_log_sink(nullptr);
        (void)signal(SIGPIPE, [](int) { signals = signals + 1; });
        log_error("to nobody");
        // One that the program has held back is not taken from it.
        sigset_t pipe_signal;
        sigemptyset(&pipe_signal);
        sigaddset(&pipe_signal, SIGPIPE);
        sigprocmask(SIG_BLOCK, &pipe_signal, nullptr);
        raise(SIGPIPE);
        log_error("to nobody");
        const int before = signals;
        sigprocmask(SIG_UNBLOCK, &pipe_signal, nullptr);
        if (before != 0) _exit(1);
        if (signals != 1) _exit(2);
        (void)signal(SIGPIPE, SIG_DFL);
        log_error("to nobody");
        _exit(0);
    }
    close(ends[1]);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

class LogVariables : public test::EnvironmentTest {
  protected:
    LogVariables() : sink_(set_log_sink(nullptr)), level_(runtime().log_level.load()) {
        runtime().log_level = Runtime::kLogLevelUnresolved;
    }
    ~LogVariables() override {
        set_log_sink(sink_);
        runtime().log_level = level_;
    }

  private:
    LogSink* sink_;
    int level_;
};

TEST_F(LogVariables, SetLevelAndFile) {
    const std::string file = ::testing::TempDir() + "ucs-log." + std::to_string(process_id());
    environment = {{"UCX_LOG_LEVEL", "Info"},
                   {"UCX_LOG_FILE", ::testing::TempDir() + "ucs-log.%p"}};
    log_info("first");
    log_debug("hidden");
    log_warn("second");
    std::stringstream text;
    text << std::ifstream(file).rdbuf();
    unlink(file.c_str());
    EXPECT_TRUE(std::regex_match(text.str(), std::regex("[^\n]*INFO first\n[^\n]*WARN second\n")))
        << text.str();
}

TEST_F(LogVariables, TheFileIsForItsOwnerAndLinksOfOthersAreNotFollowed) {
    if (geteuid() != 0) GTEST_SKIP() << "needs another user's link";
    const std::string stem = ::testing::TempDir() + "ucs-log-" + std::to_string(process_id());
    const std::string file = stem + ".own", other = stem + ".other", link = stem + ".link";
    environment = {{"UCX_LOG_FILE", link}};
    std::ofstream(other) << "precious\n";
    ASSERT_EQ(symlink(other.c_str(), link.c_str()), 0);
    ASSERT_EQ(lchown(link.c_str(), 65534, 65534), 0);
    ::testing::internal::CaptureStderr();
    log_warn("not there");
    EXPECT_NE(::testing::internal::GetCapturedStderr().find("cannot open"), std::string::npos);
    std::stringstream text;
    text << std::ifstream(other).rdbuf();
    EXPECT_EQ(text.str(), "precious\n");
    set_log_sink(nullptr);
    environment = {{"UCX_LOG_FILE", file}};
    log_warn("here");
    struct stat about {};
    ASSERT_EQ(stat(file.c_str(), &about), 0);
    EXPECT_EQ(about.st_mode & 0777, 0600u);
    for (const std::string& made : {file, other, link}) unlink(made.c_str());
}

TEST_F(LogVariables, UcxsFinerLevelsMeanTrace) {
    environment = {{"UCX_LOG_LEVEL", "data"}};
    ::testing::internal::CaptureStderr();
    log_trace("fine");
    EXPECT_NE(::testing::internal::GetCapturedStderr().find("TRACE fine"), std::string::npos);
}

TEST_F(LogVariables, ABadLevelIsReportedAndTheDefaultApplies) {
    environment = {{"UCX_LOG_LEVEL", "loud"}};
    ::testing::internal::CaptureStderr();
    log_info("hidden");
    log_warn("shown");
    const std::string text = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(text.find("UCX_LOG_LEVEL=loud: expected one of fatal|error|"), std::string::npos);
    EXPECT_EQ(text.find("hidden"), std::string::npos);
    EXPECT_NE(text.find("shown"), std::string::npos);
}

}  // namespace
}  // namespace ucs
