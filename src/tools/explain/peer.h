// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace tools {

// A worker in a process of its own, as another rank would be. It lives until this object goes.
class PeerProcess {
  public:
    // Forks: call it before this process has a context. `settings` are NAME=VALUE pairs for the
    // peer's environment. Throws std::system_error, or std::runtime_error if it has no worker.
    explicit PeerProcess(const std::vector<std::string>& settings);
    ~PeerProcess();
    PeerProcess(const PeerProcess&) = delete;
    PeerProcess& operator=(const PeerProcess&) = delete;

    const std::string& address() const { return address_; }

  private:
    pid_t process_ = -1;
    int stop_ = -1;  // the peer ends when this is closed
    std::string address_;
};

}  // namespace tools
