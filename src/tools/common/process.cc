// SPDX-License-Identifier: BSD-3-Clause
#include "tools/common/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <system_error>

#include "tools/common/interrupt.h"
#include "tools/common/paths.h"

namespace tools {
namespace {

constexpr const char* kPlaceVariable = "SWIFTLANE_PLACE";
// By this the library knows the first of the job, which warns for all (src/ucs/config/registry.cc).
constexpr const char* kRankVariable = "SWIFTLANE_RANK";

void pin_to(unsigned rank) {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
    unsigned skip = rank % static_cast<unsigned>(CPU_COUNT(&allowed));
    for (unsigned cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (!CPU_ISSET(cpu, &allowed) || skip-- != 0) continue;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        sched_setaffinity(0, sizeof(one), &one);
        return;
    }
}

std::vector<std::string> prefix_words(const std::string& prefix, unsigned rank) {
    std::vector<std::string> words;
    std::istringstream in(prefix);
    for (std::string word; in >> word;) {
        for (size_t at = 0; (at = word.find("%r", at)) != word.npos;) {
            word.replace(at, 2, std::to_string(rank));
        }
        words.push_back(word);
    }
    return words;
}

}  // namespace

Environment library_environment(bool soft, const std::string& transports) {
    const Paths paths = Paths::find();
    Environment environment;
    if (!transports.empty() && std::getenv("UCX_TLS") == nullptr) {
        environment.emplace_back("UCX_TLS", transports);
    }
    if (!paths.modules.empty() && std::getenv("UCX_MODULE_DIR") == nullptr) {
        environment.emplace_back("UCX_MODULE_DIR", paths.modules);
    }
    if (soft) {
        environment.emplace_back("LD_LIBRARY_PATH",
                                 prepend_path(paths.softhca, std::getenv("LD_LIBRARY_PATH")));
    }
    return environment;
}

std::vector<char*> pointers_to(std::vector<std::string>& words) {
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    return pointers;
}

void become_program(const std::string& program, std::vector<std::string> words) {
    execvp(program.c_str(), pointers_to(words).data());
    throw std::system_error(errno, std::generic_category(), program);
}

namespace {

[[noreturn]] void exec_again(const ExecSettings& settings, unsigned rank) {
    for (const auto& [name, value] : settings.environment) {
        setenv(name.c_str(), value.c_str(), 1);
    }
    std::vector<std::string> words = prefix_words(settings.prefix, rank);
    const bool has_prefix = !words.empty();
    if (has_prefix) words.push_back(Paths::find().program);
    std::ifstream own("/proc/self/cmdline");
    std::string word;
    if (has_prefix) std::getline(own, word, '\0');
    while (std::getline(own, word, '\0')) words.push_back(word);
    try {
        become_program(has_prefix ? words[0] : "/proc/self/exe", words);
    } catch (const std::system_error& error) {
        fmt::print(stderr, "swiftlane: {}\n", error.what());
        _exit(127);
    }
}

}  // namespace

void restart(const Environment& environment) {
    constexpr const char* kRestarted = "SWIFTLANE_RESTARTED";
    if (std::getenv(kRestarted) != nullptr) return;
    setenv(kRestarted, "1", 1);
    std::fflush(nullptr);
    exec_again({environment, {}, false}, 0);
}

Ranks::~Ranks() {
    for (const Process& process : processes_) {
        if (!process.status) kill(process.pid, SIGKILL);
    }
    for (const Process& process : processes_) {
        if (!process.status) waitpid(process.pid, nullptr, 0);
    }
}

void Ranks::start(const std::vector<int>& inherited) {
    const auto rank = static_cast<unsigned>(processes_.size());
    const pid_t launcher = getpid();
    const pid_t pid = fork();
    if (pid < 0) throw std::system_error(errno, std::generic_category(), "fork");
    if (pid > 0) {
        processes_.push_back({pid, {}});
        return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) _exit(1);
    setenv(kPlaceVariable, JobPlace{rank, inherited}.to_string().c_str(), 1);
    setenv(kRankVariable, std::to_string(rank).c_str(), 1);
    Interrupt::leave_to_others();
    if (settings_.pin) pin_to(rank);
    for (const int descriptor : inherited) fcntl(descriptor, F_SETFD, 0);
    exec_again(settings_, rank);
}

std::optional<int> Ranks::ended(unsigned rank, int flags) {
    Process& process = processes_[rank];
    int status = 0;
    if (!process.status && waitpid(process.pid, &status, flags) == process.pid)
        process.status = status;
    return process.status;
}

unsigned Ranks::wait_for_next() {
    for (;;) {
        int status = 0;
        const pid_t pid = waitpid(-1, &status, 0);
        const auto found = std::ranges::find(processes_, pid, &Process::pid);
        if (found != processes_.end()) {
            found->status = status;
            return static_cast<unsigned>(found - processes_.begin());
        }
        if (pid < 0 && errno != EINTR)
            throw std::system_error(errno, std::generic_category(), "waitpid");
    }
}

// One that was killed closes its sockets, which others notice, some time before it can be waited
// for.
unsigned Ranks::find_culprit(unsigned rank) {
    (void)ended(rank);
    for (int waited = 0; waited < 1000; ++waited) {
        bool have_all_ended = true;
        for (unsigned other = 0; other < processes_.size(); ++other) {
            const std::optional<int> status = ended(other, WNOHANG);
            if (status && WIFSIGNALED(*status)) return other;
            have_all_ended &= status.has_value();
        }
        if (have_all_ended) break;
        poll(nullptr, 0, 1);
    }
    return rank;
}

std::string JobPlace::to_string() const {
    return fmt::format("{}:{}", rank, fmt::join(inherited, ":"));
}

std::optional<JobPlace> JobPlace::find(size_t descriptors) {
    const char* text = std::getenv(kPlaceVariable);
    if (text == nullptr) return std::nullopt;
    JobPlace place;
    std::istringstream in(text);
    in >> place.rank;
    char colon;
    for (int descriptor; in >> colon >> descriptor;) place.inherited.push_back(descriptor);
    if (place.inherited.size() == descriptors && place.to_string() == text) return place;
    throw std::invalid_argument(
        fmt::format("{} is set by the launcher alone; '{}' is not its", kPlaceVariable, text));
}

std::string describe_exit(int status) {
    if (WIFSIGNALED(status)) {
        return fmt::format("was killed by signal {} ({})", WTERMSIG(status),
                           strsignal(WTERMSIG(status)));
    }
    return fmt::format("failed with exit status {}", WEXITSTATUS(status));
}

}  // namespace tools
