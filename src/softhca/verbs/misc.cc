// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>

#include "softhca/adapter/abi.h"

/// Small functions whose answer is the same for every emulated device.

SOFTHCA_API int ibv_fork_init() {
    return 0;
}
SOFTHCA_API ibv_fork_status ibv_is_fork_initialized() {
    return IBV_FORK_UNNEEDED;
}
SOFTHCA_API int ibv_dontfork_range(void*, size_t) {
    return 0;
}
SOFTHCA_API int ibv_dofork_range(void*, size_t) {
    return 0;
}

SOFTHCA_API const char* ibv_get_sysfs_path() {
    return "/sys";
}

/// Emulated devices have no files in sysfs.
SOFTHCA_API int ibv_read_sysfs_file(const char*, const char*, char*, size_t) {
    errno = ENOENT;
    return -1;
}
SOFTHCA_API int ibv_read_ibdev_sysfs_file(char*, size_t, void*, const char*, ...) {
    errno = ENOENT;
    return -1;
}

/// Of the private interface to drivers: the number of attributes a kernel command would get.
// NOLINTNEXTLINE(bugprone-reserved-identifier)
SOFTHCA_API unsigned __ioctl_final_num_attrs(unsigned, void*) {
    return 0;
}
extern "C" __attribute__((visibility("default"))) bool verbs_allow_disassociate_destroy;
bool verbs_allow_disassociate_destroy = false;
