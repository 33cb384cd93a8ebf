// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tools {

using Environment = std::vector<std::pair<std::string, std::string>>;

// How the processes of a job start this executable anew, with the command line of this one.
struct ExecSettings {
    Environment environment;  // set for them
    // Words before each one's command, split at spaces, %r is its rank: "ip netns exec node%r".
    std::string prefix;
    bool pin = false;  // rank i on the i-th processor that this process may use
};

// What processes of a job need to find the library's modules and, if `soft`, the emulated adapter;
// `transports` are for UCX_TLS. What the user has set in the environment stays.
Environment library_environment(bool soft, const std::string& transports);

// A command line as the system takes it; null at the end.
std::vector<char*> pointers_to(std::vector<std::string>& words);

// Become another program, found in PATH, with these words as its command line. Throws
// std::system_error.
[[noreturn]] void become_program(const std::string& program, std::vector<std::string> words);

// Start this command anew with that environment, unless that was done: the loader reads its path at
// start-up only. Ends the process if it fails.
void restart(const Environment& environment);

// The processes of a job, by rank. Whatever happens, none outlives its launcher. Its functions
// throw std::system_error.
class Ranks {
  public:
    explicit Ranks(const ExecSettings& settings) : settings_(settings) {}
    Ranks(Ranks&&) = delete;
    ~Ranks();

    // Start the next one, which inherits these descriptors.
    void start(const std::vector<int>& inherited);
    // Its exit status if it has ended. @param flags  of waitpid(): 0 waits for that
    std::optional<int> ended(unsigned rank, int flags = 0);
    // Wait until one more has ended. @return which
    unsigned wait_for_next();
    // That one has failed, but may only have noticed another one's death. @return who has to be
    // named; it has ended
    unsigned find_culprit(unsigned rank);

  private:
    struct Process {
        pid_t pid;
        std::optional<int> status;  // once it has been waited for
    };

    const ExecSettings& settings_;
    std::vector<Process> processes_;
};

// What a process of a job has of its launcher, which tells it by a variable.
struct JobPlace {
    unsigned rank = 0;
    std::vector<int> inherited;

    // @return nothing if no launcher has started this process. Throws std::invalid_argument for
    // what no launcher of so many descriptors has set.
    static std::optional<JobPlace> find(size_t descriptors);
    std::string to_string() const;
};

// "was killed by signal 9 (Killed)", "failed with exit status 1".
std::string describe_exit(int status);

}  // namespace tools
