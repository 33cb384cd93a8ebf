// SPDX-License-Identifier: BSD-3-Clause
// Names of the public enumerations. Programs index these arrays: one entry for each enumerator, in
// order, and NULL after the last.
#include <iterator>

#include "ucs/config/types.h"
#include "ucs/memory/memory_type.h"
#include "ucs/type/thread_mode.h"

extern "C" {

const char* ucs_thread_mode_names[] = {"single", "serialized", "multi", nullptr};

const char* ucs_async_mode_names[] = {"signal", "thread_spinlock", "thread_mutex", "poll", nullptr};

const char* ucs_memory_type_names[] = {"host",         "cuda",  "cuda-managed", "rocm",
                                       "rocm-managed", "rdma",  "ze-host",      "ze-device",
                                       "ze-managed",   "gaudi", "unknown",      nullptr};

const char* ucs_memory_type_descs[] = {
    "host memory",          "NVIDIA device memory", "NVIDIA managed memory",
    "AMD device memory",    "AMD managed memory",   "network adapter memory",
    "Intel host memory",    "Intel device memory",  "Intel managed memory",
    "Habana device memory", "unknown memory",       nullptr,
};

}  // extern "C"

static_assert(std::size(ucs_thread_mode_names) == UCS_THREAD_MODE_LAST + 1);
static_assert(std::size(ucs_async_mode_names) == UCS_ASYNC_MODE_LAST + 1);
static_assert(std::size(ucs_memory_type_names) == UCS_MEMORY_TYPE_UNKNOWN + 2);
static_assert(std::size(ucs_memory_type_descs) == UCS_MEMORY_TYPE_UNKNOWN + 2);
