/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file compiler_def.h
 * Names for compiler attributes and small idioms that the public headers, and programs written
 * against them, use. C and C++; GCC and Clang.
 */
#ifndef UCS_COMPILER_DEF_H
#define UCS_COMPILER_DEF_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define BEGIN_C_DECLS extern "C" {
#define END_C_DECLS }
#else
#define BEGIN_C_DECLS
#define END_C_DECLS
#endif

/* --- attributes of functions, structures and variables --- */
#define UCS_F_ALWAYS_INLINE inline __attribute__((always_inline))
#define UCS_F_CTOR __attribute__((constructor))
#define UCS_F_DTOR __attribute__((destructor))
#define UCS_F_MAYBE_UNUSED __attribute__((used))
#define UCS_F_NOINLINE __attribute__((noinline))
#define UCS_F_NON_NULL __attribute__((nonnull))
#define UCS_F_NORETURN __attribute__((noreturn))
#define UCS_F_PURE __attribute__((pure))
/** Have the compiler check arguments from @a vargN on against the format that is argument @a
 * fmtargN. */
#define UCS_F_PRINTF(fmtargN, vargN) __attribute__((format(printf, fmtargN, vargN)))
#define UCS_S_MAY_ALIAS __attribute__((may_alias))
#define UCS_S_PACKED __attribute__((packed))
#define UCS_V_ALIGNED(_align) __attribute__((aligned(_align)))
#define UCS_V_UNUSED __attribute__((unused))

/** Give @a _v a value where the optimizer, being off, could not see that it always gets one. */
#ifdef __OPTIMIZE__
#define UCS_V_INITIALIZED(_v) ((void)0)
#else
#define UCS_V_INITIALIZED(_v) ((_v) = (ucs_typeof(_v))0)
#endif

/* --- hints --- */
#define ucs_likely(x) __builtin_expect(x, 1)
#define ucs_unlikely(x) __builtin_expect(x, 0)
#define ucs_prefetch(p) __builtin_prefetch(p)
#define ucs_is_constant(expr) __builtin_constant_p(expr)
/** The compiler moves no memory access across this point; the processor may. */
#define ucs_compiler_fence() __asm__ volatile("" ::: "memory")

/* --- constants --- */
/** Largest number of bytes to take from the stack at run time. */
#define UCS_ALLOCA_MAX_SIZE 1200
/** An unsigned long with bit @a i set. */
#define UCS_BIT(i) (1ul << (i))
/** 1 if bit @a i of @a value is set, else 0. */
#define UCS_BIT_GET(value, i) (!!((value)&UCS_BIT(i)))
/** An unsigned long with bits 0 to @a i - 1 set. */
#define UCS_MASK(i) (UCS_BIT(i) - 1)
#define UCS_EMPTY_STATEMENT \
    {}

/* --- types and addresses --- */
#define ucs_typeof(_type) __typeof__(_type)
#define ucs_same_type(_type1, _type2) __builtin_types_compatible_p(_type1, _type2)
#define ucs_field_sizeof(_type, _field) sizeof(((_type*)0)->_field)
#define ucs_field_type(_type, _field) ucs_typeof(((_type*)0)->_field)
#define ucs_offsetof(_type, _member) ((unsigned long)__builtin_offsetof(_type, _member))
/** Number of elements of an array whose bound the compiler knows. */
#define ucs_static_array_size(_array) (sizeof(_array) / sizeof((_array)[0]))
/** The structure of type @a _type whose member @a _member lies at @a _ptr. */
#define ucs_container_of(_ptr, _type, _member) \
    ((_type*)((char*)(void*)(_ptr)-ucs_offsetof(_type, _member)))
/** As ucs_container_of for a first member that is called "super". */
#define ucs_derived_of(_ptr, _type) \
    ({ UCS_STATIC_ASSERT(ucs_offsetof(_type, super) == 0) ucs_container_of(_ptr, _type, super); })
#define UCS_PTR_BYTE_OFFSET(_ptr, _offset) ((void*)((intptr_t)(_ptr) + (intptr_t)(_offset)))
#define UCS_PTR_TYPE_OFFSET(_ptr, _type) ((void*)((ucs_typeof(_type)*)(_ptr) + 1))
#define UCS_PTR_BYTE_DIFF(_start, _end) ((ptrdiff_t)((uintptr_t)(_end) - (uintptr_t)(_start)))

/** A statement that compiles only where the constant @a _cond is true. */
#define UCS_STATIC_ASSERT(_cond) \
    { (void)sizeof(char[(_cond) ? 1 : -1]); }

/* --- code that runs when the object file is loaded or unloaded */
#define UCS_CONCAT_LINE_EXPAND_(_prefix, _line) _prefix##_##_line
#define UCS_CONCAT_LINE_(_prefix, _line) UCS_CONCAT_LINE_EXPAND_(_prefix, _line)
#define UCS_STATIC_INIT \
    static void UCS_F_CTOR UCS_CONCAT_LINE_(ucs_initializer_ctor, __LINE__)(void)
#define UCS_STATIC_CLEANUP \
    static void UCS_F_DTOR UCS_CONCAT_LINE_(ucs_initializer_dtor, __LINE__)(void)

#endif
