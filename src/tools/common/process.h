// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <functional>
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

// Become a process of a job, after fork(). It goes when `launcher` goes, and inherits `fds`.
[[noreturn]] void become_rank(const ExecSettings& settings, unsigned rank, pid_t launcher,
                              const std::vector<int>& fds);

// "was killed by signal 9 (Killed)", "failed with exit status 1".
std::string describe_exit(int status);

// Does it become true within a second? A process that was killed closes its sockets, which others
// notice, some time before it can be waited for.
bool is_soon(const std::function<bool()>& condition);

}  // namespace tools
