// SPDX-License-Identifier: BSD-3-Clause
// libuct.so.0: which transports and devices there are.
#include "uct/api/uct.h"

#include <cstdlib>

#include "ucx/services.h"

static_assert(UCT_API == UCT_VERSION(UCT_VERNO_MAJOR, UCT_VERNO_MINOR));

ucs_status_t uct_query_components(uct_component_h** components_p, unsigned* num_components_p) {
    const ucx::Services* services = ucx::find_services();
    return services == nullptr ? UCS_ERR_NO_DEVICE
                               : services->query_components(components_p, num_components_p);
}

void uct_release_component_list(uct_component_h* components) {
    std::free(components);
}

// Whoever has a component, or an md, has got it from the services.
ucs_status_t uct_component_query(uct_component_h component, uct_component_attr_t* component_attr) {
    return ucx::find_services()->component_query(component, component_attr);
}

ucs_status_t uct_md_config_read(uct_component_h, const char*, const char*,
                                uct_md_config_t** config_p) {
    *config_p = static_cast<uct_md_config_t*>(std::malloc(1));
    return *config_p == nullptr ? UCS_ERR_NO_MEMORY : UCS_OK;
}

void uct_config_release(void* config) {
    std::free(config);
}

ucs_status_t uct_md_open(uct_component_h component, const char* md_name, const uct_md_config_t*,
                         uct_md_h* md_p) {
    return ucx::find_services()->md_open(component, md_name, md_p);
}

void uct_md_close(uct_md_h md) {
    ucx::find_services()->md_close(md);
}

ucs_status_t uct_md_query_tl_resources(uct_md_h md, uct_tl_resource_desc_t** resources_p,
                                       unsigned* num_resources_p) {
    return ucx::find_services()->md_query(md, resources_p, num_resources_p);
}

void uct_release_tl_resource_list(uct_tl_resource_desc_t* resources) {
    std::free(resources);
}
