/* SPDX-License-Identifier: BSD-3-Clause */
/** @file memory_type.h Kinds of memory that buffers may lie in. */
#ifndef UCS_MEMORY_TYPE_H_
#define UCS_MEMORY_TYPE_H_

#include "ucs/sys/compiler_def.h"

BEGIN_C_DECLS
#pragma GCC visibility push(default)

/**
 * Kind of the memory behind an address.
 *
 * The values are those of UCX 1.21 and later. Older versions have fewer kinds, so that LAST and
 * UNKNOWN are 5 up to 1.15, 6 in 1.16 and 9 from 1.17 to 1.20: a program says in ucp_init_version
 * which version it was compiled against (ucp_init does it for the program), and the library takes
 * that version's value for "unknown" in every structure of that context.
 */
typedef enum ucs_memory_type {
    UCS_MEMORY_TYPE_HOST,         /**< ordinary memory */
    UCS_MEMORY_TYPE_CUDA,         /**< NVIDIA device memory */
    UCS_MEMORY_TYPE_CUDA_MANAGED, /**< NVIDIA memory that moves between host and device */
    UCS_MEMORY_TYPE_ROCM,         /**< AMD device memory */
    UCS_MEMORY_TYPE_ROCM_MANAGED, /**< AMD memory that moves between host and device */
    UCS_MEMORY_TYPE_RDMA,         /**< memory on the network adapter */
    UCS_MEMORY_TYPE_ZE_HOST,      /**< Intel: host memory that devices reach */
    UCS_MEMORY_TYPE_ZE_DEVICE,    /**< Intel: device memory */
    UCS_MEMORY_TYPE_ZE_MANAGED,   /**< Intel: memory that moves between host and device */
    UCS_MEMORY_TYPE_GAUDI,        /**< Habana device memory */
    UCS_MEMORY_TYPE_LAST,         /**< number of kinds */
    UCS_MEMORY_TYPE_UNKNOWN = UCS_MEMORY_TYPE_LAST /**< let the library find out */
} ucs_memory_type_t;

/** Mask of the kinds that the processor may load from and store to. */
#define UCS_MEMORY_TYPES_CPU_ACCESSIBLE                                      \
    (UCS_BIT(UCS_MEMORY_TYPE_HOST) | UCS_BIT(UCS_MEMORY_TYPE_ROCM_MANAGED) | \
     UCS_BIT(UCS_MEMORY_TYPE_ZE_HOST) | UCS_BIT(UCS_MEMORY_TYPE_ZE_MANAGED))

/** Loop head: @a _x, an integer, takes the value of each kind in turn. */
#define ucs_memory_type_for_each(_x) \
    for ((_x) = UCS_MEMORY_TYPE_HOST; (_x) < UCS_MEMORY_TYPE_LAST; (_x)++)

/** Short names ("host", "cuda", ...), indexed by kind; [UCS_MEMORY_TYPE_UNKNOWN] is "unknown". */
extern const char* ucs_memory_type_names[];
/** A few words on each kind, indexed likewise. */
extern const char* ucs_memory_type_descs[];

#pragma GCC visibility pop
END_C_DECLS

#endif
