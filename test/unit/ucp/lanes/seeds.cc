// SPDX-License-Identifier: BSD-3-Clause

// Plays the schedules of many seeds (schedule.h), in several processes. What fails is shrunk and
// printed as a test. Exit status 0: nothing failed.
//   lanes_seeds FIRST COUNT [SECONDS [JOBS]]    ends after so many seconds; 0, the default: never

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "unit/ucp/lanes/schedule.h"

namespace lanes_test {
namespace {

constexpr std::uint64_t kLeastSwitches = 20;
constexpr std::size_t kLeastFaults = 2;

struct Totals {
    std::uint64_t played = 0;
    std::uint64_t few = 0;  // with fewer faults or switches than wanted
    std::uint64_t failed = 0;
    std::uint64_t faults = 0;
    std::uint64_t switches = 0;
};

void play_one(std::uint64_t seed, Totals& totals) {
    const std::vector<Step> schedule = schedule_of(seed);
    const Outcome outcome = play(seed, schedule, kLeastSwitches);
    ++totals.played;
    totals.few += outcome.faults < kLeastFaults || outcome.switches < kLeastSwitches;
    totals.faults += outcome.faults;
    totals.switches += outcome.switches;
    if (outcome.error.empty()) return;
    ++totals.failed;
    const auto fails = [seed](const std::vector<Step>& less) {
        return !play(seed, less).error.empty();
    };
    std::printf("seed %llu: %s\n%s", static_cast<unsigned long long>(seed), outcome.error.c_str(),
                fails(schedule) ? as_test(seed, shrink(schedule, fails)).c_str()
                                : "only with the switches behind its schedule\n");
    std::fflush(stdout);
}

int run(std::uint64_t first, std::uint64_t count, std::chrono::seconds limit, unsigned jobs) {
    const auto start = std::chrono::steady_clock::now();
    int totals_of_all[2];
    if (pipe(totals_of_all) != 0) return 1;
    for (unsigned job = 0; job < jobs; ++job) {
        const pid_t child = fork();
        if (child < 0) return 1;
        if (child != 0) continue;
        Totals totals;
        for (std::uint64_t i = job; i < count; i += jobs) {
            if (limit.count() != 0 && std::chrono::steady_clock::now() - start >= limit) break;
            play_one(first + i, totals);
        }
        _exit(write(totals_of_all[1], &totals, sizeof(totals)) == sizeof(totals) ? 0 : 1);
    }
    close(totals_of_all[1]);
    Totals all;
    unsigned reports = 0;
    for (Totals one; read(totals_of_all[0], &one, sizeof(one)) == sizeof(one); ++reports) {
        all.played += one.played;
        all.few += one.few;
        all.failed += one.failed;
        all.faults += one.faults;
        all.switches += one.switches;
    }
    while (wait(nullptr) > 0) {
    }
    const double hours =
        jobs * std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() /
        3600;
    std::printf(
        "%llu seeds from %llu on, %llu with fewer than %zu faults or %llu switches; %llu "
        "faults, %llu switches, %.3f hours of a core: %llu failed\n",
        static_cast<unsigned long long>(all.played), static_cast<unsigned long long>(first),
        static_cast<unsigned long long>(all.few), kLeastFaults,
        static_cast<unsigned long long>(kLeastSwitches),
        static_cast<unsigned long long>(all.faults), static_cast<unsigned long long>(all.switches),
        hours, static_cast<unsigned long long>(all.failed));
    return all.failed == 0 && all.played != 0 && reports == jobs ? 0 : 1;
}

}  // namespace
}  // namespace lanes_test

int main(int argc, char** argv) {
    const auto number = [&](int i, std::uint64_t otherwise) {
        return i < argc ? std::strtoull(argv[i], nullptr, 10) : otherwise;
    };
    if (argc < 3 || number(2, 0) == 0 || number(4, 1) == 0) {
        std::fputs("usage: lanes_seeds FIRST COUNT [SECONDS [JOBS]]\n", stderr);
        return 2;
    }
    return lanes_test::run(number(1, 0), number(2, 0), std::chrono::seconds(number(3, 0)),
                           static_cast<unsigned>(number(4, 1)));
}
