// SPDX-License-Identifier: BSD-3-Clause
// libucs.so.0: what programs call of UCX's libucs, beside names and status texts.
#include <strings.h>

#include <cstdlib>
#include <cstring>

#include "ucs/config/global_opts.h"
#include "ucs/debug/debug_int.h"
#include "ucs/debug/memtrack_int.h"
#include "ucs/memory/memtype_cache.h"
#include "ucs/sys/string.h"
#include "ucx/services.h"

void ucs_log_dispatch(const char* file, unsigned line, const char* function, ucs_log_level_t level,
                      ucs_log_component_config_t* comp_conf, const char* format, ...) {
    const ucx::Services* services = ucx::find_services();
    if (services == nullptr) return;
    va_list ap;
    va_start(ap, format);
    services->write_log(file, line, function, level, comp_conf, format, ap);
    va_end(ap);
}

void ucs_log_push_handler(ucs_log_func_t handler) {
    if (const ucx::Services* services = ucx::find_services()) services->push_log_handler(handler);
}

void ucs_log_pop_handler() {
    if (const ucx::Services* services = ucx::find_services()) services->pop_log_handler();
}

unsigned ucs_log_num_handlers() {
    const ucx::Services* services = ucx::find_services();
    return services == nullptr ? 0 : services->num_log_handlers();
}

ucs_status_t ucs_global_opts_set_value(const char* name, const char* value) {
    const ucx::Services* services = ucx::find_services();
    return services == nullptr ? UCS_ERR_NO_ELEM : services->set_option(name, value);
}

void ucs_debug_disable_signals() {}

ucs_status_t ucs_memtype_cache_lookup(const void* address, size_t size,
                                      ucs_memory_info_t* mem_info) {
    const ucx::Services* services = ucx::find_services();
    return services == nullptr ? UCS_ERR_UNSUPPORTED
                               : services->find_memory(address, size, mem_info);
}

void* ucs_malloc(size_t size, const char* name) {
    return std::malloc(size);
}

void ucs_free(void* ptr) {
    std::free(ptr);
}

ssize_t ucs_string_find_in_list(const char* str, const char** string_list, int case_sensitive) {
    for (ssize_t index = 0; string_list[index] != nullptr; ++index) {
        const int difference = case_sensitive != 0 ? std::strcmp(string_list[index], str)
                                                   : strcasecmp(string_list[index], str);
        if (difference == 0) return index;
    }
    return -1;
}
