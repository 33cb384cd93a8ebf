// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "ucm/api/ucm.h"

// What ucm/api/ucm.h declares, under names that no other library has: with another UCX in the
// process, neither is taken for the other. libswiftlane_ucm exports these; libucm and libucp lead
// here.
#pragma GCC visibility push(default)
extern "C" {

extern ucm_global_config_t* swiftlane_ucm_options;  // those of libucm once it is there

decltype(ucm_set_global_opts) swiftlane_ucm_set_global_opts;
decltype(ucm_set_event_handler) swiftlane_ucm_set_event_handler;
decltype(ucm_unset_event_handler) swiftlane_ucm_unset_event_handler;
decltype(ucm_set_external_event) swiftlane_ucm_set_external_event;
decltype(ucm_unset_external_event) swiftlane_ucm_unset_external_event;
decltype(ucm_test_events) swiftlane_ucm_test_events;
decltype(ucm_test_external_events) swiftlane_ucm_test_external_events;
decltype(ucm_orig_mmap) swiftlane_ucm_orig_mmap;
decltype(ucm_orig_munmap) swiftlane_ucm_orig_munmap;
decltype(ucm_orig_mremap) swiftlane_ucm_orig_mremap;
decltype(ucm_orig_shmat) swiftlane_ucm_orig_shmat;
decltype(ucm_orig_shmdt) swiftlane_ucm_orig_shmdt;
decltype(ucm_orig_sbrk) swiftlane_ucm_orig_sbrk;
decltype(ucm_orig_brk) swiftlane_ucm_orig_brk;
decltype(ucm_orig_madvise) swiftlane_ucm_orig_madvise;
decltype(ucm_mmap) swiftlane_ucm_mmap;
decltype(ucm_munmap) swiftlane_ucm_munmap;
decltype(ucm_mremap) swiftlane_ucm_mremap;
decltype(ucm_shmat) swiftlane_ucm_shmat;
decltype(ucm_shmdt) swiftlane_ucm_shmdt;
decltype(ucm_sbrk) swiftlane_ucm_sbrk;
decltype(ucm_brk) swiftlane_ucm_brk;
decltype(ucm_madvise) swiftlane_ucm_madvise;
decltype(ucm_dlopen) swiftlane_ucm_dlopen;
decltype(ucm_vm_mmap) swiftlane_ucm_vm_mmap;
decltype(ucm_vm_munmap) swiftlane_ucm_vm_munmap;

}  // extern "C"
#pragma GCC visibility pop
