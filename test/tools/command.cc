// SPDX-License-Identifier: BSD-3-Clause
#include "test/tools/command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

namespace tools {
namespace {

std::string temporary_name() {
    std::string name = "/tmp/swiftlane-test-XXXXXX";
    const int fd = mkstemp(name.data());
    if (fd >= 0) close(fd);
    return name;
}

}  // namespace

TemporaryFile::TemporaryFile() : path_(temporary_name()) {}
TemporaryFile::~TemporaryFile() {
    unlink(path_.c_str());
}

Outcome run_traced(const std::string& traces, const std::vector<std::string>& arguments) {
    const std::pair<const char*, std::string> variables[] = {
        {"UCX_TRACE", traces},
        {"UCX_DYNAMIC_TL_SWITCH_INTERVAL", "20ms"},
        {"UCX_DYNAMIC_TL_MIN_RESIDENCE", "60s"}};
    for (const auto& [name, value] : variables) setenv(name, value.c_str(), 1);
    Outcome outcome = run_command(arguments);
    for (const auto& [name, value] : variables) unsetenv(name);
    return outcome;
}

std::string read_text(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

Command::Command(const std::vector<std::string>& arguments)
    : out_(temporary_name()), err_(temporary_name()) {
    const char* given = std::getenv("SWIFTLANE");
    std::string program = given != nullptr ? given : "src/tools/swiftlane";
    std::vector<char*> argv{program.data()};
    for (const std::string& argument : arguments) {
        argv.push_back(const_cast<char*>(argument.c_str()));
    }
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ != 0) return;
    dup2(open(out_.c_str(), O_WRONLY | O_TRUNC), STDOUT_FILENO);
    dup2(open(err_.c_str(), O_WRONLY | O_TRUNC), STDERR_FILENO);
    execv(program.c_str(), argv.data());
    _exit(127);
}

Command::~Command() {
    if (pid_ > 0) {
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
    }
    unlink(out_.c_str());
    unlink(err_.c_str());
}

std::vector<pid_t> Command::children() const {
    std::istringstream list(read_text(fmt::format("/proc/{0}/task/{0}/children", pid_)));
    return {std::istream_iterator<pid_t>(list), {}};
}

bool Command::is_running() const {
    siginfo_t ended{};
    return waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           ended.si_pid == 0;
}

std::string Command::output() const {
    return read_text(out_);
}

std::string Command::errors() const {
    return read_text(err_);
}

Outcome Command::wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    Outcome outcome;
    outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    outcome.out = read_text(out_);
    outcome.err = read_text(err_);
    return outcome;
}

}  // namespace tools
