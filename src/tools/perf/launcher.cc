// SPDX-License-Identifier: BSD-3-Clause
#include "tools/perf/run.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <system_error>

#include "tools/common/interrupt.h"

namespace tools::perf {
namespace {

constexpr std::array kRoles{"initiator", "target"};

// Both processes; whatever happens, none outlives its launcher.
class Pair {
  public:
    ~Pair() {
        for (pid_t& pid : pids_) {
            if (pid <= 0) continue;
            kill(pid, SIGKILL);
            waitpid(pid, nullptr, 0);
        }
    }

    void start(const ExecSettings& settings) {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) fail("socketpair");
        const pid_t launcher = getpid();
        for (unsigned rank = 0; rank < pids_.size(); ++rank) {
            const pid_t pid = fork();
            if (pid < 0) fail("fork");
            if (pid == 0) {
                setenv(kPlaceVariable, fmt::format("{}:{}", rank, ends[rank]).c_str(), 1);
                become_rank(settings, rank, launcher, {ends[rank]});
            }
            pids_[rank] = pid;
        }
        close(ends[0]);
        close(ends[1]);
    }

    void wait() {
        for (unsigned left = 0; left < pids_.size(); ++left) {
            int status = 0;
            pid_t pid;
            do {
                pid = waitpid(-1, &status, 0);
            } while (pid < 0 && errno == EINTR);
            if (pid < 0) fail("waitpid");
            const unsigned rank = pid == pids_[0] ? 0 : 1;
            pids_[rank] = -1;
            if (status == 0) continue;
            if (WIFEXITED(status) && WEXITSTATUS(status) == kInterrupted) throw Interrupted();
            blame(rank, status);
        }
    }

  private:
    [[noreturn]] static void fail(const char* what) {
        throw std::system_error(errno, std::generic_category(), what);
    }

    // The first to fail may only have noticed the other one's death: name that one.
    [[noreturn]] void blame(unsigned rank, int status) {
        const unsigned other = 1 - rank;
        int other_status = 0;
        const auto other_ended = [&] {
            return waitpid(pids_[other], &other_status, WNOHANG) == pids_[other];
        };
        if (pids_[other] > 0 && is_soon(other_ended)) {
            pids_[other] = -1;
            if (WIFSIGNALED(other_status)) {
                rank = other;
                status = other_status;
            }
        }
        throw std::runtime_error(fmt::format("the {} {}", kRoles[rank], describe_exit(status)));
    }

    std::array<pid_t, 2> pids_{-1, -1};
};

}  // namespace

bool Place::find(Place* place) {
    const char* text = std::getenv(kPlaceVariable);
    if (text == nullptr) return false;
    char end = 0;
    if (std::sscanf(text, "%u:%d%c", &place->rank, &place->socket, &end) != 2) {
        throw std::invalid_argument(
            fmt::format("{} is set by the launcher alone; '{}' is not its", kPlaceVariable, text));
    }
    return true;
}

void launch(const ExecSettings& settings) {
    std::fflush(nullptr);
    const Interrupt interrupt;  // the initiator's affair
    Pair pair;
    pair.start(settings);
    pair.wait();
}

}  // namespace tools::perf
