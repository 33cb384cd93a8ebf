// SPDX-License-Identifier: BSD-3-Clause
#include "tools/explain/peer.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <system_error>

#include "tools/program/worker.h"

namespace tools {
namespace {

std::string read_all(int file) {
    std::string bytes;
    char buffer[4096];
    for (;;) {
        const ssize_t count = read(file, buffer, sizeof(buffer));
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return bytes;
        bytes.append(buffer, static_cast<size_t>(count));
    }
}

// The peer: tells its address, then waits until the other process wants no more of it.
int run_peer(const std::vector<std::string>& settings, int tell, int stop) {
    for (const std::string& setting : settings) {
        const size_t equals = setting.find('=');
        setenv(setting.substr(0, equals).c_str(), setting.substr(equals + 1).c_str(), 1);
    }
    try {
        const Context context(1);
        const Worker worker(context.handle());
        const std::string address = worker.address();
        const bool is_told =
            write(tell, address.data(), address.size()) == static_cast<ssize_t>(address.size());
        close(tell);
        read_all(stop);
        return is_told ? 0 : 1;
    } catch (const std::exception& error) {
        fmt::print(stderr, "swiftlane: the peer: {}\n", error.what());
        return 1;
    }
}

}  // namespace

PeerProcess::PeerProcess(const std::vector<std::string>& settings) {
    int tell[2];
    int stop[2];
    if (pipe(tell) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
    if (pipe(stop) != 0) {
        const int error = errno;
        close(tell[0]);
        close(tell[1]);
        throw std::system_error(error, std::generic_category(), "pipe");
    }
    process_ = fork();
    if (process_ == 0) {
        close(tell[0]);
        close(stop[1]);
        std::_Exit(run_peer(settings, tell[1], stop[0]));
    }
    const int error = errno;
    close(tell[1]);
    close(stop[0]);
    stop_ = stop[1];
    if (process_ > 0) address_ = read_all(tell[0]);
    close(tell[0]);
    if (process_ > 0 && !address_.empty()) return;
    close(stop_);
    if (process_ < 0) throw std::system_error(error, std::generic_category(), "fork");
    waitpid(process_, nullptr, 0);
    throw std::runtime_error("the peer has no worker");
}

PeerProcess::~PeerProcess() {
    close(stop_);
    waitpid(process_, nullptr, 0);
}

}  // namespace tools
