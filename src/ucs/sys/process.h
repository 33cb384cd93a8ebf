// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>

namespace ucs {

// A process for as long as it runs: numbers are used again, pairs of number and start are not.
struct Process {
    uint32_t pid = 0;
    uint64_t start_time = 0;  // in clock ticks since boot; 0: not known

    static Process self();
    // The number of this process. Only the first call asks the system; a forked child's does.
    static uint32_t own_number();
    // The process that has that number now; its start is not known where there is no descriptor to
    // look.
    static std::optional<Process> find(uint32_t pid);
    // A zombie is dead. A system call or three: not for fast paths.
    bool is_alive() const;

    friend bool operator==(const Process&, const Process&) = default;
};

// Where process numbers mean the same: the kernel's id of this process's pid namespace.
uint64_t pid_namespace();

}  // namespace ucs
