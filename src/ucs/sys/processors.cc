// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/sys/processors.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>

namespace ucs {

std::vector<unsigned> allowed_cpus() {
    std::vector<unsigned> cpus;
    // The kernel refuses a set that is smaller than its own.
    for (unsigned most = CPU_SETSIZE; most <= 64 * CPU_SETSIZE; most *= 2) {
        cpu_set_t* set = CPU_ALLOC(most);
        if (set == nullptr) break;
        const size_t bytes = CPU_ALLOC_SIZE(most);
        const bool is_known = sched_getaffinity(0, bytes, set) == 0;
        for (unsigned cpu = 0; is_known && cpu < most; ++cpu) {
            if (CPU_ISSET_S(cpu, bytes, set)) cpus.push_back(cpu);
        }
        CPU_FREE(set);
        if (is_known) break;
    }
    return cpus;
}

std::vector<unsigned> beside_caller(const std::vector<unsigned>& cpus) {
    const std::vector<unsigned> its = allowed_cpus();
    std::vector<unsigned> others = cpus;
    std::erase_if(others, [&](unsigned cpu) { return std::ranges::find(its, cpu) != its.end(); });
    return others.empty() ? cpus : others;
}

int bind_caller(const std::vector<unsigned>& cpus) {
    if (cpus.empty()) return 0;
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const unsigned cpu : cpus) {
        if (cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
    }
    return pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

}  // namespace ucs
