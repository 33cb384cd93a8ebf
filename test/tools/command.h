// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace tools {

// What a finished command left.
struct Outcome {
    int status = -1;  // exit status; 128 + signal if it was killed
    std::string out;
    std::string err;
};

// A running `swiftlane` of the build tree, or of $SWIFTLANE.
class Command {
  public:
    explicit Command(const std::vector<std::string>& arguments);
    ~Command();
    Command(const Command&) = delete;
    Command& operator=(const Command&) = delete;

    pid_t pid() const { return pid_; }
    // Its child processes; those of the build tree's wrapper script are its own.
    std::vector<pid_t> children() const;
    Outcome wait();
    bool is_running() const;
    // What it has printed so far.
    std::string output() const;
    std::string errors() const;

  private:
    std::string out_;
    std::string err_;
    pid_t pid_;
};

inline Outcome run_command(const std::vector<std::string>& arguments) {
    return Command(arguments).wait();
}

// A benchmark that is traced: its links are promoted early, and not demoted before its end.
// @param traces  as UCX_TRACE
Outcome run_traced(const std::string& traces, const std::vector<std::string>& arguments);

std::string read_text(const std::string& path);

// A file name that no other test uses, removed at the end of the scope.
class TemporaryFile {
  public:
    TemporaryFile();
    ~TemporaryFile();
    const std::string& path() const { return path_; }

  private:
    std::string path_;
};

}  // namespace tools
