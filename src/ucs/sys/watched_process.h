// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include "ucs/sys/descriptor.h"
#include "ucs/sys/process.h"

namespace ucs {

// Another process that is looked at again and again. A descriptor of it (pidfd_open) says whether
// it lives, without a file opened for each look; where the kernel or the limit of descriptors
// refuses that, /proc says it, as for any Process.
//
// All of this process that look at the same one share one of these. Thread-safe.
class WatchedProcess {
  public:
    // Throws std::bad_alloc. A system call or six: when a connection is made, not for looks.
    static std::shared_ptr<const WatchedProcess> of(const Process& process);
    ~WatchedProcess();
    WatchedProcess(const WatchedProcess&) = delete;
    WatchedProcess& operator=(const WatchedProcess&) = delete;

    const Process& process() const { return process_; }
    // As Process::is_alive(). One system call while it is.
    bool is_alive() const;
    bool has_descriptor() const { return static_cast<bool>(descriptor_); }

  private:
    explicit WatchedProcess(const Process& process);

    const Process process_;
    Descriptor descriptor_;  // none: /proc is asked
};

}  // namespace ucs
