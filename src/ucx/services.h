// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdarg>

#include "ucs/debug/log_def.h"
#include "ucs/memory/memtype_cache.h"
#include "ucs/type/status.h"
#include "uct/api/uct.h"

// What libucs.so.0 and libuct.so.0 need of the state that lies in libucp.so.0. libucp exports the
// table under a name of its own, so that it can be beside the system's UCX in one process: there
// libucs is the system's, and asks for nothing.
namespace ucx {

struct Services {
    static constexpr unsigned kVersion = 2;  // changes with the layout
    unsigned version;
    // the log
    void (*write_log)(const char* file, unsigned line, const char* function, ucs_log_level_t level,
                      const ucs_log_component_config_t* component, const char* format, va_list ap);
    void (*push_log_handler)(ucs_log_func_t handler);
    void (*pop_log_handler)();
    unsigned (*num_log_handlers)();
    ucs_status_t (*set_option)(const char* name, const char* value);
    ucs_status_t (*find_memory)(const void* address, size_t size, ucs_memory_info_t* info);
    // components and devices, as the functions of uct.h
    ucs_status_t (*query_components)(uct_component_h** components, unsigned* count);
    ucs_status_t (*component_query)(uct_component_h component, uct_component_attr_t* attr);
    ucs_status_t (*md_open)(uct_component_h component, const char* name, uct_md_h* md);
    void (*md_close)(uct_md_h md);
    ucs_status_t (*md_query)(uct_md_h md, uct_tl_resource_desc_t** resources, unsigned* count);
};

inline constexpr const char* kServicesSymbol = "swiftlane_services";

// Those of the libucp.so.0 that lies beside the calling library; null, after a line on standard
//  error, if there is none.
const Services* find_services();

}  // namespace ucx
