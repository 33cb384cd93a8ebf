// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/log/log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

#include "ucs/config/table.h"
#include "ucs/sys/host.h"
#include "ucs/sys/no_signals.h"

namespace ucs {

namespace config {

template <>
struct EnumNames<LogLevel> {
    static constexpr EnumName<LogLevel> kNames[] = {
        {"fatal", LogLevel::kFatal}, {"error", LogLevel::kError}, {"warn", LogLevel::kWarn},
        {"diag", LogLevel::kDiag},   {"info", LogLevel::kInfo},   {"debug", LogLevel::kDebug},
        {"trace", LogLevel::kTrace}, {"req", LogLevel::kTrace},   {"data", LogLevel::kTrace},
        {"async", LogLevel::kTrace}, {"func", LogLevel::kTrace},  {"poll", LogLevel::kTrace},
    };
};

}  // namespace config

namespace {

struct LogConfig {
    LogLevel level;
    std::string file;
};

constexpr config::Field<LogConfig> kFields[] = {
    config::field<&LogConfig::level>("LOG_LEVEL", "warn",
                                     "Log lines of this level and above. Levels past trace, which "
                                     "UCX has, mean trace."),
    config::field<&LogConfig::file>("LOG_FILE", "",
                                    "File that log lines are appended to; %h stands for the host's "
                                    "name, %p for the process id. Empty: standard error."),
};

// A local static, since static constructors of other files may log before those of this file ran.
const config::Table<LogConfig>& table() {
    static const config::Table<LogConfig> instance("logging", {""}, kFields);
    return instance;
}

[[maybe_unused]] const config::Table<LogConfig>& kRegistered = table();

// One write() per line, so that lines of several processes do not mix.
class FileSink final : public LogSink {
  public:
    explicit constexpr FileSink(int descriptor) : descriptor_(descriptor) {}

    void write(LogLevel, std::string_view line, std::string_view) override {
        std::string bytes(line);
        bytes += '\n';
        std::string_view rest = bytes;
        // Standard error may be a pipe whose reader is gone.
        const NoPipeSignal guard;
        while (!rest.empty()) {
            const ssize_t written = ::write(descriptor_, rest.data(), rest.size());
            if (written < 0 && errno == EINTR) continue;
            if (written <= 0) return;
            rest.remove_prefix(static_cast<size_t>(written));
        }
    }

  private:
    int descriptor_;
};

constinit FileSink standard_error(STDERR_FILENO);
constinit FileSink standard_output(STDOUT_FILENO);

std::string expand(std::string_view pattern) {
    std::string path;
    for (size_t index = 0; index < pattern.size(); ++index) {
        const std::string_view rest = pattern.substr(index);
        if (rest.starts_with("%h")) {
            path += host_name();
        } else if (rest.starts_with("%p")) {
            path += std::to_string(process_id());
        } else {
            path += pattern[index];
            continue;
        }
        ++index;
    }
    return path;
}

// Folders for everybody, as /tmp, hold links that others have put there; /dev/stdout is root's.
bool is_own_link(const std::string& path) {
    struct stat about {};
    const bool is_own =
        lstat(path.c_str(), &about) == 0 && (about.st_uid == 0 || about.st_uid == geteuid());
    errno = ELOOP;
    return is_own;
}

LogSink* open_sink(const std::string& pattern, LogSink& otherwise) {
    if (pattern.empty()) return &otherwise;
    const std::string path = expand(pattern);
    constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY;
    int descriptor = open(path.c_str(), kFlags | O_NOFOLLOW, 0600);
    if (descriptor < 0 && errno == ELOOP && is_own_link(path)) {
        descriptor = open(path.c_str(), kFlags, 0600);
    }
    if (descriptor < 0) {
        standard_error.write(LogLevel::kError,
                             fmt::format("UCX_LOG_FILE: cannot open {}: {}; logging to standard "
                                         "error instead",
                                         path, std::strerror(errno)),
                             {});
        return &standard_error;
    }
    static FileSink file(descriptor);  // lives as long as the process may log
    return &file;
}

// Fills in what is not set yet. Threads that race come to the same answer.
void resolve() {
    Runtime& shared = runtime();
    static std::mutex mutex;
    std::lock_guard lock(mutex);
    if (shared.log_level.load() != Runtime::kLogLevelUnresolved && shared.log_sink.load()) return;

    LogConfig values{LogLevel::kWarn, {}};
    std::string error;
    const ucs_status_t status = table().load(config::Source::from_environment(), values, error);
    LogSink* unset_sink = nullptr;
    if (shared.log_sink.load() == nullptr) {
        shared.log_sink.compare_exchange_strong(unset_sink, open_sink(values.file, standard_error));
    }
    int unresolved = Runtime::kLogLevelUnresolved;
    shared.log_level.compare_exchange_strong(unresolved, static_cast<int>(values.level));
    if (status != UCS_OK) standard_error.write(LogLevel::kError, error, {});
}

std::string_view base_name(std::string_view path) {
    return path.substr(path.rfind('/') + 1);
}

}  // namespace

std::string_view log_level_name(LogLevel level) {
    static constexpr std::array<std::string_view, 7> kNames{"FATAL", "ERROR", "WARN", "DIAG",
                                                            "INFO",  "DEBUG", "TRACE"};
    return kNames[static_cast<size_t>(level)];
}

void set_log_level(LogLevel level) {
    runtime().log_level.store(static_cast<int>(level));
}

void reload_log_level() {
    runtime().log_level.store(Runtime::kLogLevelUnresolved);
    resolve();
}

std::string log_line(LogLevel level, std::string_view file, unsigned line, std::string_view text) {
    const int64_t microseconds = runtime().clock->calendar().time_since_epoch() / 1us;
    return fmt::format("[{}.{:06} {}:{}] {}:{} {} {}", microseconds / 1000000,
                       microseconds % 1000000, host_name(), process_id(), base_name(file), line,
                       log_level_name(level), text);
}

namespace {

LogSink* sink_from_environment(LogSink& otherwise) {
    LogConfig values{LogLevel::kWarn, {}};
    std::string error;
    (void)table().load(config::Source::from_environment(), values, error);
    return open_sink(values.file, otherwise);
}

}  // namespace

LogSink& default_log_sink() {
    static LogSink* const sink = sink_from_environment(standard_error);
    return *sink;
}

LogSink& program_log_sink() {
    static LogSink* const sink = sink_from_environment(standard_output);
    return *sink;
}

LogSink* set_log_sink(LogSink* sink) {
    return runtime().log_sink.exchange(sink);
}

namespace internal {

namespace {

// Level and sink are what the environment says, if nobody else has.
void resolve_once() {
    Runtime& shared = runtime();
    if (shared.log_level.load() == Runtime::kLogLevelUnresolved || !shared.log_sink.load()) {
        resolve();
    }
}

void write(LogLevel level, const SourceLocation& where, std::string_view text) {
    const std::string line = log_line(level, where.file, where.line, text);
    LogSink* sink = runtime().log_sink.load();
    (sink != nullptr ? sink : &standard_error)->write(level, line, text);
}

}  // namespace

// Who has no memory to say that there is none says it in fewer words.
void log_write(LogLevel level, const SourceLocation& where, fmt::string_view format,
               fmt::format_args args) {
    try {
        resolve_once();
        if (log_enabled(level)) write(level, where, fmt::vformat(format, args));
    } catch (const std::bad_alloc&) {
        static constexpr std::string_view kText = "no memory for a line of the log\n";
        if (log_enabled(level)) (void)!::write(STDERR_FILENO, kText.data(), kText.size());
    }
}

void log_abort() {
    std::abort();
}

}  // namespace internal

void log_requested(std::string_view text) {
    internal::resolve_once();
    internal::write(LogLevel::kInfo, {__FILE__, __LINE__}, text);
}

}  // namespace ucs
