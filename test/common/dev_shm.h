// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sched.h>
#include <sys/mount.h>

#include <string>

namespace ucs::test {

// Gives this process alone a /dev/shm of so many KiB; of 0 one in which nothing may be written.
// @return false without the right to
inline bool mount_dev_shm(unsigned kibibytes) {
    const std::string size = "size=" + std::to_string(kibibytes) + "k";
    return unshare(CLONE_NEWNS) == 0 &&
           mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           mount("none", "/dev/shm", "tmpfs", kibibytes == 0 ? MS_RDONLY : 0,
                 kibibytes == 0 ? nullptr : size.c_str()) == 0;
}

}  // namespace ucs::test
