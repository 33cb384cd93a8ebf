/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file ucm.h
 * Memory events: who maps and unmaps memory tells the library, so that what it remembers of the
 * memory (registrations above all) does not outlive it.
 *
 * Events come from hooks in the C library, which are installed when somebody first asks for
 * events, and stay: whoever unmaps memory is seen, the C library itself included (see
 * docs/design/memory.md). A program or runtime may report as well, from hooks of its own
 * (ucm_vm_munmap, after ucm_set_external_event), or by mapping through the functions below.
 *
 * All functions may be called by any thread. Callbacks run in the thread that causes the event, on
 * several threads at a time, possibly inside the allocator or a signal handler: they must not
 * allocate or free, take no lock that may be held meanwhile, and not set or unset handlers.
 */
#ifndef UCM_H_
#define UCM_H_

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "ucs/config/types.h"
#include "ucs/memory/memory_type.h"
#include "ucs/sys/compiler_def.h"
#include "ucs/type/status.h"

BEGIN_C_DECLS
#pragma GCC visibility push(default)

/** Events and flags of their handlers; bits to be combined. */
typedef enum ucm_event_type {
    UCM_EVENT_NONE = 0,

    /* calls of the system */
    UCM_EVENT_MMAP = UCS_BIT(0),
    UCM_EVENT_MUNMAP = UCS_BIT(1),
    UCM_EVENT_MREMAP = UCS_BIT(2),
    UCM_EVENT_SHMAT = UCS_BIT(3),
    UCM_EVENT_SHMDT = UCS_BIT(4),
    UCM_EVENT_SBRK = UCS_BIT(5),
    UCM_EVENT_MADVISE = UCS_BIT(6),
    UCM_EVENT_BRK = UCS_BIT(7),

    /* what they did to the address space */
    UCM_EVENT_VM_MAPPED = UCS_BIT(16),
    UCM_EVENT_VM_UNMAPPED = UCS_BIT(17), /**< about to go: the memory is still there */

    /* memory of devices */
    UCM_EVENT_MEM_TYPE_ALLOC = UCS_BIT(20),
    UCM_EVENT_MEM_TYPE_FREE = UCS_BIT(21),

    /* flags */
    UCM_EVENT_FLAG_NO_INSTALL = UCS_BIT(24),    /**< take what comes, see to no source */
    UCM_EVENT_FLAG_EXISTING_ALLOC = UCS_BIT(25) /**< also report what was allocated before */
} ucm_event_type_t;

typedef enum ucm_mmap_hook_mode {
    UCM_MMAP_HOOK_NONE,
    UCM_MMAP_HOOK_RELOC,
    UCM_MMAP_HOOK_BISTRO,
    UCM_MMAP_HOOK_LAST
} ucm_mmap_hook_mode_t;

typedef enum ucm_module_unload_prevent_mode {
    UCM_UNLOAD_PREVENT_MODE_LAZY,
    UCM_UNLOAD_PREVENT_MODE_NOW,
    UCM_UNLOAD_PREVENT_MODE_NONE,
    UCM_UNLOAD_PREVENT_MODE_LAST
} ucm_module_unload_prevent_mode_t;

/**
 * An event: the member that fits its type. A handler of a call of the system may do the call itself
 * and set the result; what it finds there (-1, or MAP_FAILED) says that nobody has done it yet.
 */
typedef union ucm_event {
    struct {
        void* result;
        void* address;
        size_t size;
        int prot;
        int flags;
        int fd;
        off_t offset;
    } mmap;
    struct {
        int result;
        void* address;
        size_t size;
    } munmap;
    struct {
        void* result;
        void* address;
        size_t old_size;
        size_t new_size;
        int flags;
    } mremap;
    struct {
        void* result;
        int shmid;
        const void* shmaddr;
        int shmflg;
    } shmat;
    struct {
        int result;
        const void* shmaddr;
    } shmdt;
    struct {
        void* result;
        intptr_t increment;
    } sbrk;
    struct {
        int result;
        void* addr;
        size_t length;
        int advice;
    } madvise;
    struct {
        int result;
        void* addr;
    } brk;
    struct {
        void* address;
        size_t size;
    } vm_mapped, vm_unmapped;
    struct {
        void* address;
        size_t size;
        ucs_memory_type_t mem_type;
    } mem_type;
} ucm_event_t;

/**
 * Settings, kept for programs that set them; those that are not described mean nothing.
 * UCX_MEM_EVENTS=n and UCX_MEM_MMAP_HOOK_MODE=none do the same from outside.
 */
typedef struct ucm_global_config {
    ucs_log_level_t log_level;
    int enable_events; /**< 0: no more handlers can be set, those that are go on */
    ucm_mmap_hook_mode_t mmap_hook_mode; /**< UCM_MMAP_HOOK_NONE: no hooks of our own */
    int enable_malloc_hooks;
    int enable_malloc_reloc;
    int cuda_hook_modes;
    int enable_dynamic_mmap_thresh;
    size_t alloc_alignment;
    int dlopen_process_rpath;
    int module_unload_prevent_mode;
} ucm_global_config_t;

extern ucm_global_config_t ucm_global_opts;

typedef void (*ucm_event_callback_t)(ucm_event_type_t event_type, ucm_event_t* event, void* arg);

/** Replace the settings; before the first handler is set. */
void ucm_set_global_opts(const ucm_global_config_t* ucm_opts);

/**
 * Have a function called on events.
 * @param events    Bits of ucm_event_type_t; without UCM_EVENT_FLAG_NO_INSTALL each must have a
 *                  source: see ucm_test_events.
 * @param priority  Handlers of lower priority are called first.
 * @return UCS_OK, UCS_ERR_UNSUPPORTED (no source: nothing was set), UCS_ERR_NO_MEMORY.
 */
ucs_status_t ucm_set_event_handler(int events, int priority, ucm_event_callback_t cb, void* arg);
/** Take events off the handlers with this function and argument. */
void ucm_unset_event_handler(int events, ucm_event_callback_t cb, void* arg);

/** Declare that the caller reports these events from now on. */
void ucm_set_external_event(int events);
/** These events are no longer reported by the caller. */
void ucm_unset_external_event(int events);
/**
 * Is each of these events reported, whoever causes it? Each call is tried out in turn, so that the
 * answer is right also where others hook the C library.
 * @return UCS_OK if each is external or seen by our hooks; else UCS_ERR_UNSUPPORTED: on other
 * processors than x86-64, under sanitizers and allocators that unmap past the C library, with
 * events turned off, and always for UCM_EVENT_SBRK (the break moves by UCM_EVENT_BRK) and
 * UCM_EVENT_MEM_TYPE_*.
 */
ucs_status_t ucm_test_events(int events);
/** @return UCS_OK if all of these events are external, else UCS_ERR_UNSUPPORTED. */
ucs_status_t ucm_test_external_events(int events);

/* --- the system's calls, bypassing events */
/** As mmap of the C library; no event. */
void* ucm_orig_mmap(void* addr, size_t length, int prot, int flags, int fd, off_t offset);
/** As munmap of the C library; no event. */
int ucm_orig_munmap(void* addr, size_t length);
/** As mremap of the C library; no event. */
void* ucm_orig_mremap(void* old_address, size_t old_size, size_t new_size, int flags);
/** As shmat of the C library; no event. */
void* ucm_orig_shmat(int shmid, const void* shmaddr, int shmflg);
/** As shmdt of the C library; no event. */
int ucm_orig_shmdt(const void* shmaddr);
/** As sbrk of the C library; no event. */
void* ucm_orig_sbrk(intptr_t increment);
/** As brk of the C library; no event. */
int ucm_orig_brk(void* addr);
/** As madvise of the C library; no event. */
int ucm_orig_madvise(void* addr, size_t length, int advice);

/* --- the system's calls, with events: as the functions of the same names in the C library */
/** As mmap of the C library, with events. */
void* ucm_mmap(void* addr, size_t length, int prot, int flags, int fd, off_t offset);
/** As munmap of the C library, with events. */
int ucm_munmap(void* addr, size_t length);
/** As mremap of the C library, with events. */
void* ucm_mremap(void* old_address, size_t old_size, size_t new_size, int flags);
/** As shmat of the C library, with events. */
void* ucm_shmat(int shmid, const void* shmaddr, int shmflg);
/** As shmdt of the C library, with events. */
int ucm_shmdt(const void* shmaddr);
/** As sbrk of the C library, with events. */
void* ucm_sbrk(intptr_t increment);
/** As brk of the C library, with events. */
int ucm_brk(void* addr);
/** As madvise of the C library, with events. */
int ucm_madvise(void* addr, size_t length, int advice);
/** As dlopen. */
void* ucm_dlopen(const char* filename, int flag);

/* --- reports of a caller that saw the change itself */
/** Memory was mapped at @a addr. */
void ucm_vm_mmap(void* addr, size_t length);
/** Memory at @a addr is about to be unmapped. */
void ucm_vm_munmap(void* addr, size_t length);

#pragma GCC visibility pop
END_C_DECLS

#endif
