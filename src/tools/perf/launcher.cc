// SPDX-License-Identifier: BSD-3-Clause
#include "tools/perf/run.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <stdexcept>
#include <system_error>

#include "tools/common/interrupt.h"
#include "ucs/sys/descriptor.h"

namespace tools::perf {
namespace {

constexpr std::array kRoles{"initiator", "target"};

void start_both(Ranks& ranks) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        throw std::system_error(errno, std::generic_category(), "socketpair");
    const ucs::Descriptor first(ends[0]), second(ends[1]);
    for (const int end : ends) ranks.start({end});
}

}  // namespace

void launch(const ExecSettings& settings) {
    std::fflush(nullptr);
    const Interrupt interrupt;  // the initiator's affair
    Ranks ranks(settings);
    start_both(ranks);
    for (size_t left = kRoles.size(); left > 0; --left) {
        unsigned rank = ranks.wait_for_next();
        const int status = *ranks.ended(rank);
        if (status == 0) continue;
        if (WIFEXITED(status) && WEXITSTATUS(status) == kInterrupted) throw Interrupted();
        rank = ranks.find_culprit(rank);
        throw std::runtime_error(
            fmt::format("the {} {}", kRoles[rank], describe_exit(*ranks.ended(rank))));
    }
}

}  // namespace tools::perf
