/* SPDX-License-Identifier: BSD-3-Clause */
/** @file cpu_set.h A set of processors, independent of the C library's cpu_set_t. */
#ifndef UCS_TYPE_CPU_SET_H
#define UCS_TYPE_CPU_SET_H

#include <stddef.h>
#include <stdint.h>

/** One word of a set. */
typedef unsigned long int ucs_cpu_mask_t;

/** Processors a set can name: 0 to UCS_CPU_SETSIZE - 1. */
#define UCS_CPU_SETSIZE 1024
#define UCS_NCPUBITS (8 * sizeof(ucs_cpu_mask_t))
/** The word that holds a processor's bit, and the bit within it. */
#define UCS_CPUELT(_cpu) ((_cpu) / UCS_NCPUBITS)
#define UCS_CPUMASK(_cpu) ((ucs_cpu_mask_t)1 << ((_cpu) % UCS_NCPUBITS))

typedef struct {
    ucs_cpu_mask_t ucs_bits[UCS_CPU_SETSIZE / UCS_NCPUBITS];
} ucs_cpu_set_t;

#define UCS_CPU_ZERO(_cpusetp)                                             \
    do {                                                                   \
        size_t _word;                                                      \
        for (_word = 0; _word < UCS_CPU_SETSIZE / UCS_NCPUBITS; ++_word) { \
            (_cpusetp)->ucs_bits[_word] = 0;                               \
        }                                                                  \
    } while (0)

/** Processors outside the set's range are left out silently. */
#define UCS_CPU_SET(_cpu, _cpusetp)                                          \
    do {                                                                     \
        size_t _index = (_cpu);                                              \
        if (_index < UCS_CPU_SETSIZE) {                                      \
            (_cpusetp)->ucs_bits[UCS_CPUELT(_index)] |= UCS_CPUMASK(_index); \
        }                                                                    \
    } while (0)

#define UCS_CPU_CLR(_cpu, _cpusetp)                                           \
    do {                                                                      \
        size_t _index = (_cpu);                                               \
        if (_index < UCS_CPU_SETSIZE) {                                       \
            (_cpusetp)->ucs_bits[UCS_CPUELT(_index)] &= ~UCS_CPUMASK(_index); \
        }                                                                     \
    } while (0)

/** @return 1 if @a cpu is in the set, 0 if it is not or is outside the set's range. */
static inline int ucs_cpu_is_set(int cpu, const ucs_cpu_set_t* cpusetp) {
    if (cpu < 0 || cpu >= UCS_CPU_SETSIZE) return 0;
    return (cpusetp->ucs_bits[UCS_CPUELT(cpu)] & UCS_CPUMASK(cpu)) != 0;
}

/** @return The lowest processor in the set; 0 also for an empty set. */
static inline int ucs_cpu_set_find_lcs(const ucs_cpu_set_t* cpu_mask) {
    int cpu;
    for (cpu = 0; cpu < UCS_CPU_SETSIZE; ++cpu) {
        if (ucs_cpu_is_set(cpu, cpu_mask)) return cpu;
    }
    return 0;
}

#endif
