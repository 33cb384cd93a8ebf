// SPDX-License-Identifier: BSD-3-Clause
// Prints what the function-like macros of the interface yield. Compiled against our headers and
// against UCX's; interface.py compares the output, and sees to it that each macro occurs here.
#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <ucm/api/ucm.h>
#include <ucp/api/ucp.h>
#include <uct/api/version.h>

#ifndef ucp_dt_make_sgl  // UCX before 1.22
#define ucp_dt_make_sgl() ((ucp_datatype_t)4)
#endif

#define NUMBER(...) printf("%s = %lld\n", #__VA_ARGS__, (long long)(__VA_ARGS__))
#define SIZE(...) printf("sizeof %s = %zu\n", #__VA_ARGS__, sizeof(__VA_ARGS__))

struct base {
    int number;
};

struct derived {
    struct base super;
    char padding;
    UCS_V_ALIGNED(32) double member;
};

static UCS_F_PRINTF(2, 3) int format(char* text, const char* pattern, ...) {
    va_list arguments;
    va_start(arguments, pattern);
    const int length = vsnprintf(text, 16, pattern, arguments);
    va_end(arguments);
    return length;
}

static void bits(void) {
    for (int i = 0; i < 64; ++i) {
        NUMBER(UCS_BIT(i));
        NUMBER(UCS_MASK(i));
    }
    SIZE(UCS_BIT(0));
    SIZE(UCS_MASK(1));
}

static void compiler(void) {
    static char storage[64];
    struct derived object = {.super = {7}, .member = 1.5};
    int array[5] = {0};
    int local;
    UCS_V_INITIALIZED(local);
    UCS_STATIC_ASSERT(sizeof(int) == 4);
    ucs_compiler_fence();
#ifdef ucs_prefetch  // UCX newer than 1.16 has it no more
    ucs_prefetch(storage);
#endif
    char text[16];
    NUMBER(format(text, "%d", 12));
    NUMBER((char*)UCS_PTR_BYTE_OFFSET(storage, 5) - storage);
    NUMBER((char*)UCS_PTR_BYTE_OFFSET(storage + 8, -3) - storage);
    NUMBER((char*)UCS_PTR_TYPE_OFFSET(storage, struct derived) - storage);
    NUMBER(UCS_PTR_BYTE_DIFF(storage + 9, storage + 2));
    SIZE(UCS_PTR_BYTE_DIFF(storage, storage));
    NUMBER(ucs_static_array_size(array));
    NUMBER(ucs_offsetof(struct derived, member));
    SIZE(ucs_offsetof(struct derived, member));
    NUMBER(ucs_container_of(&object.member, struct derived, member) == &object);
    NUMBER(ucs_derived_of(&object.super, struct derived) == &object);
    NUMBER(ucs_field_sizeof(struct derived, member));
    SIZE(ucs_field_type(struct derived, padding));
    SIZE(ucs_typeof(object.member));
    NUMBER(ucs_same_type(ucs_field_type(struct derived, member), double));
    NUMBER(ucs_same_type(int, unsigned));
    NUMBER(ucs_likely(object.super.number == 7));
    NUMBER(ucs_unlikely(object.super.number == 8));
    NUMBER(ucs_is_constant(3));
}

static void memory_types(void) {
    // Up to the last type that every version knows.
    int kind;
    int count = 0;
    ucs_memory_type_for_each(kind) count += kind <= UCS_MEMORY_TYPE_ROCM_MANAGED;
    NUMBER(count);
}

static void statuses(void) {
    for (int value = 1; value >= -101; --value) {
        const ucs_status_t status = (ucs_status_t)value;
        void* const pointer = UCS_STATUS_PTR(status);
        NUMBER(UCS_STATUS_IS_ERR(status));
        NUMBER(UCS_IS_LINK_ERROR(status));
        NUMBER(UCS_IS_ENDPOINT_ERROR(status));
        NUMBER((intptr_t)pointer);
        NUMBER(UCS_PTR_IS_ERR(pointer));
        NUMBER(UCS_PTR_IS_PTR(pointer));
        NUMBER(UCS_PTR_RAW_STATUS(pointer));
        NUMBER(UCS_PTR_STATUS(pointer));
    }
    NUMBER(UCS_PTR_STATUS(&bits));
    NUMBER(UCS_PTR_IS_PTR(&bits));
    NUMBER(UCS_PTR_IS_ERR(&bits));
    SIZE(UCS_PTR_RAW_STATUS(NULL));
}

static void configuration(void) {
    typedef UCS_CONFIG_ARRAY_FIELD(short, values) numbers;
    typedef UCS_CONFIG_STRING_ARRAY_FIELD(strings) strings;
    SIZE(numbers);
    NUMBER(offsetof(numbers, values));
    NUMBER(offsetof(numbers, count));
    SIZE(strings);
    NUMBER(offsetof(strings, strings));
}

static void versions(void) {
    NUMBER(UCP_VERSION(1, 13));
    NUMBER(UCP_VERSION(127, 255));
    SIZE(UCP_VERSION(1, 2));
    NUMBER(UCT_VERSION(1, 13));
    SIZE(UCT_VERSION(1, 2));
}

static void processors(void) {
    ucs_cpu_set_t set;
    UCS_CPU_ZERO(&set);
    NUMBER(ucs_cpu_set_find_lcs(&set));
    for (int i = 100; i < UCS_CPU_SETSIZE; i += 129) UCS_CPU_SET(i, &set);
    UCS_CPU_SET(UCS_CPU_SETSIZE, &set);
    UCS_CPU_CLR(100, &set);
    for (int i = 0; i < UCS_CPU_SETSIZE + 2; ++i) NUMBER(ucs_cpu_is_set(i, &set));
    NUMBER(ucs_cpu_set_find_lcs(&set));
    NUMBER(UCS_CPUELT(130));
    NUMBER(UCS_CPUMASK(130));
    SIZE(UCS_CPUMASK(0));
}

static void datatypes(void) {
    NUMBER(ucp_dt_make_contig(1));
    NUMBER(ucp_dt_make_contig((size_t)1 << 40));
    SIZE(ucp_dt_make_contig(1));
    NUMBER(ucp_dt_make_iov());
    SIZE(ucp_dt_make_iov());
    NUMBER(ucp_dt_make_sgl());
    SIZE(ucp_dt_make_sgl());
}

int main(void) {
    bits();
    compiler();
    memory_types();
    statuses();
    configuration();
    versions();
    processors();
    datatypes();
    return 0;
}
