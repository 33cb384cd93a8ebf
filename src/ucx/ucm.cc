// SPDX-License-Identifier: BSD-3-Clause
// libucm.so.0: UCX's names for the functions of libswiftlane_ucm.
#include "ucm/functions.h"

ucm_global_config_t ucm_global_opts;

namespace {
[[gnu::constructor]] void take_over_options() {
    ucm_global_opts = *swiftlane_ucm_options;
    swiftlane_ucm_options = &ucm_global_opts;
}
}  // namespace

void ucm_set_global_opts(const ucm_global_config_t* ucm_opts) {
    swiftlane_ucm_set_global_opts(ucm_opts);
}
ucs_status_t ucm_set_event_handler(int events, int priority, ucm_event_callback_t cb, void* arg) {
    return swiftlane_ucm_set_event_handler(events, priority, cb, arg);
}
void ucm_unset_event_handler(int events, ucm_event_callback_t cb, void* arg) {
    swiftlane_ucm_unset_event_handler(events, cb, arg);
}
void ucm_set_external_event(int events) {
    swiftlane_ucm_set_external_event(events);
}
void ucm_unset_external_event(int events) {
    swiftlane_ucm_unset_external_event(events);
}
ucs_status_t ucm_test_events(int events) {
    return swiftlane_ucm_test_events(events);
}
ucs_status_t ucm_test_external_events(int events) {
    return swiftlane_ucm_test_external_events(events);
}
void* ucm_orig_mmap(void* addr, size_t length, int prot, int flags, int fd, off_t offset) {
    return swiftlane_ucm_orig_mmap(addr, length, prot, flags, fd, offset);
}
int ucm_orig_munmap(void* addr, size_t length) {
    return swiftlane_ucm_orig_munmap(addr, length);
}
void* ucm_orig_mremap(void* old_address, size_t old_size, size_t new_size, int flags) {
    return swiftlane_ucm_orig_mremap(old_address, old_size, new_size, flags);
}
void* ucm_orig_shmat(int shmid, const void* shmaddr, int shmflg) {
    return swiftlane_ucm_orig_shmat(shmid, shmaddr, shmflg);
}
int ucm_orig_shmdt(const void* shmaddr) {
    return swiftlane_ucm_orig_shmdt(shmaddr);
}
void* ucm_orig_sbrk(intptr_t increment) {
    return swiftlane_ucm_orig_sbrk(increment);
}
int ucm_orig_brk(void* addr) {
    return swiftlane_ucm_orig_brk(addr);
}
int ucm_orig_madvise(void* addr, size_t length, int advice) {
    return swiftlane_ucm_orig_madvise(addr, length, advice);
}
void* ucm_mmap(void* addr, size_t length, int prot, int flags, int fd, off_t offset) {
    return swiftlane_ucm_mmap(addr, length, prot, flags, fd, offset);
}
int ucm_munmap(void* addr, size_t length) {
    return swiftlane_ucm_munmap(addr, length);
}
void* ucm_mremap(void* old_address, size_t old_size, size_t new_size, int flags) {
    return swiftlane_ucm_mremap(old_address, old_size, new_size, flags);
}
void* ucm_shmat(int shmid, const void* shmaddr, int shmflg) {
    return swiftlane_ucm_shmat(shmid, shmaddr, shmflg);
}
int ucm_shmdt(const void* shmaddr) {
    return swiftlane_ucm_shmdt(shmaddr);
}
void* ucm_sbrk(intptr_t increment) {
    return swiftlane_ucm_sbrk(increment);
}
int ucm_brk(void* addr) {
    return swiftlane_ucm_brk(addr);
}
int ucm_madvise(void* addr, size_t length, int advice) {
    return swiftlane_ucm_madvise(addr, length, advice);
}
void* ucm_dlopen(const char* filename, int flag) {
    return swiftlane_ucm_dlopen(filename, flag);
}
void ucm_vm_mmap(void* addr, size_t length) {
    swiftlane_ucm_vm_mmap(addr, length);
}
void ucm_vm_munmap(void* addr, size_t length) {
    swiftlane_ucm_vm_munmap(addr, length);
}
