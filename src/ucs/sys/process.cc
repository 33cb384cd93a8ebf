// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/sys/process.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace ucs {

namespace {

// Of this process; 0: to be asked for.
std::atomic<uint32_t> known_number{0};
std::atomic<uint64_t> known_start{0};

uint32_t ask_for_number() {
    static const bool is_forgotten_in_children =
        pthread_atfork(nullptr, nullptr, [] {
            known_number.store(0, std::memory_order_relaxed);
            known_start.store(0, std::memory_order_relaxed);
        }) == 0;
    const auto number = static_cast<uint32_t>(getpid());
    if (is_forgotten_in_children) known_number.store(number, std::memory_order_relaxed);
    return number;
}

}  // namespace

uint32_t Process::own_number() {
    const uint32_t number = known_number.load(std::memory_order_relaxed);
    return number != 0 ? number : ask_for_number();
}

std::optional<Process> Process::find(uint32_t pid) {
    char path[32], text[1024];
    std::snprintf(path, sizeof(path), "/proc/%u/stat", pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        // Without a descriptor nothing is known of when it began, nor whether it is a zombie.
        const bool is_hidden = errno == EMFILE || errno == ENFILE || errno == ENOMEM;
        if (is_hidden && kill(static_cast<pid_t>(pid), 0) == 0) return Process{pid, 0};
        return {};
    }
    const ssize_t length = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (length <= 0) return {};
    text[length] = '\0';
    // The command's name may hold anything, so fields are counted from its closing bracket: the
    // state follows at once, the start comes 19 fields later.
    const char* rest = std::strrchr(text, ')');
    char state = 0;
    unsigned long long start = 0;
    if (rest == nullptr ||
        std::sscanf(rest + 1,
                    " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                    "%llu",
                    &state, &start) != 2) {
        return {};
    }
    if (state == 'Z' || state == 'X') return {};
    return Process{pid, start};
}

Process Process::self() {
    const uint32_t pid = own_number();
    uint64_t start = known_start.load(std::memory_order_relaxed);
    if (start != 0) return {pid, start};
    start = find(pid).value_or(Process{pid, 0}).start_time;
    // Where a child would not forget it, it is not remembered.
    if (known_number.load(std::memory_order_relaxed) != 0)
        known_start.store(start, std::memory_order_relaxed);
    return {pid, start};
}

bool Process::is_alive() const {
    if (pid == own_number()) return true;
    const std::optional<Process> now = find(pid);
    return now && (start_time == 0 || now->start_time == 0 || now->start_time == start_time);
}

uint64_t pid_namespace() {
    struct stat info;
    return stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

}  // namespace ucs
