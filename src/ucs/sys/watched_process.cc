// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/sys/watched_process.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <utility>

namespace ucs {
namespace {

using Key = std::pair<uint32_t, uint64_t>;  // number and start

struct Table {
    std::mutex mutex;
    std::map<Key, std::weak_ptr<const WatchedProcess>> known;
};

// Endpoints of programs that never close them are destroyed after everything else.
Table& watched_table() {
    static Table& only = *new Table;
    return only;
}

Key key_of(const Process& process) {
    return {process.pid, process.start_time};
}

int open_process(const Process& process) {
    if (process.pid == Process::own_number()) return -1;
#ifdef SYS_pidfd_open
    // It is of the process that has the number now; if that has begun as the one that is meant, it
    // is that one.
    Descriptor opened(static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0u)));
    if (opened && process.is_alive()) return opened.release();
#endif
    return -1;
}

}  // namespace

WatchedProcess::WatchedProcess(const Process& process)
    : process_(process), descriptor_(open_process(process)) {}

std::shared_ptr<const WatchedProcess> WatchedProcess::of(const Process& process) {
    Table& all = watched_table();
    const Key key = key_of(process);
    std::shared_ptr<const WatchedProcess> made;  // its destructor takes the lock
    for (;;) {
        {
            const std::lock_guard guard(all.mutex);
            const auto found = all.known.find(key);
            if (found != all.known.end()) {
                if (auto known = found->second.lock()) return known;
            }
            if (made != nullptr) {
                all.known[key] = made;
                return made;
            }
        }
        made.reset(new WatchedProcess(process));
    }
}

WatchedProcess::~WatchedProcess() {
    Table& all = watched_table();
    const std::lock_guard guard(all.mutex);
    // Another may look at it anew since the last one has ceased to.
    const auto found = all.known.find(key_of(process_));
    if (found != all.known.end() && found->second.expired()) all.known.erase(found);
}

bool WatchedProcess::is_alive() const {
    if (descriptor_) {
        pollfd entry{descriptor_.get(), POLLIN, 0};
        if (poll(&entry, 1, 0) == 0) return true;
    }
    // A program may have closed what it does not know, and opened something else in its place.
    return process_.is_alive();
}

}  // namespace ucs
