// SPDX-License-Identifier: BSD-3-Clause
#include "ucm/intercept.h"

#include "ucm/functions.h"
#include "ucm/system.h"

namespace {

template <typename T>
T* pointer(long word) {
    return reinterpret_cast<T*>(word);
}

long word(void* pointer) {
    return reinterpret_cast<long>(pointer);
}

long with_events(const ucm::KernelCall& call) {
    const long* const a = call.arguments;
    const auto size = [a](int i) { return static_cast<size_t>(a[i]); };
    const auto number = [a](int i) { return static_cast<int>(a[i]); };
    void* const address = pointer<void>(a[0]);
    switch (call.number) {
        case SYS_mmap:
            return word(
                swiftlane_ucm_mmap(address, size(1), number(2), number(3), number(4), a[5]));
        case SYS_munmap:
            return swiftlane_ucm_munmap(address, size(1));
        case SYS_mremap:
            return word(
                ucm::mremap_with_events(address, size(1), size(2), number(3), pointer<void>(a[4])));
        case SYS_madvise:
            return swiftlane_ucm_madvise(address, size(1), number(2));
        case SYS_shmat:
            return word(swiftlane_ucm_shmat(number(0), pointer<const void>(a[1]), number(2)));
        case SYS_shmdt:
            return swiftlane_ucm_shmdt(pointer<const void>(a[0]));
        case SYS_brk:
            return ucm::brk_with_events(address);
        default:
            swiftlane_ucm_vm_munmap(address, size(1));
            return ucm::with_errno(
                ucm::raw_syscall(call.number, a[0], a[1], a[2], a[3], a[4], a[5]));
    }
}

}  // namespace

void ucm_dispatch(ucm::KernelCall* call) {
    const int before = errno;
    const long result = with_events(*call);
    call->number = result == -1 ? -errno : result;
    errno = before;
}
