/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file uct.h
 * Which transports and devices there are, as programs ask for it that choose among them
 * (libuct.so.0). The rest of UCX's transport interface is not offered to programs.
 */
#ifndef UCT_H_
#define UCT_H_

#include <stdint.h>

#include "ucs/sys/compiler_def.h"
#include "ucs/sys/sys_device.h"
#include "ucs/type/status.h"
#include "uct/api/version.h"

BEGIN_C_DECLS
#pragma GCC visibility push(default)

/* Room for names, terminating zero included. */
#define UCT_COMPONENT_NAME_MAX 16
#define UCT_TL_NAME_MAX 10
#define UCT_MD_NAME_MAX 16
#define UCT_DEVICE_NAME_MAX 32

/** A family of transports: "tcp", "ib". */
typedef struct uct_component* uct_component_h;
/** A device of a component. */
typedef struct uct_md* uct_md_h;
/** Nothing: devices have their variables from the environment. */
typedef struct uct_md_config uct_md_config_t;

typedef enum {
    UCT_DEVICE_TYPE_NET,  /**< leads to other hosts */
    UCT_DEVICE_TYPE_SHM,  /**< shared memory */
    UCT_DEVICE_TYPE_ACC,  /**< accelerators */
    UCT_DEVICE_TYPE_SELF, /**< within a worker */
    UCT_DEVICE_TYPE_LAST
} uct_device_type_t;

typedef struct uct_md_resource_desc {
    char md_name[UCT_MD_NAME_MAX];
} uct_md_resource_desc_t;

/** A transport on a device. */
typedef struct uct_tl_resource_desc {
    char tl_name[UCT_TL_NAME_MAX];
    char dev_name[UCT_DEVICE_NAME_MAX];
    uct_device_type_t dev_type;
    ucs_sys_device_t sys_device;
} uct_tl_resource_desc_t;

/** Fields of uct_component_attr_t. */
enum uct_component_attr_field {
    UCT_COMPONENT_ATTR_FIELD_NAME = UCS_BIT(0),
    UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT = UCS_BIT(1),
    UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES = UCS_BIT(2),
    UCT_COMPONENT_ATTR_FIELD_FLAGS = UCS_BIT(3)
};

typedef struct uct_component_attr {
    uint64_t field_mask; /**< which to fill; bits of uct_component_attr_field */
    char name[UCT_COMPONENT_NAME_MAX];
    unsigned md_resource_count;
    uct_md_resource_desc_t* md_resources; /**< in: room for md_resource_count of them */
    uint64_t flags;                       /**< none: 0 */
} uct_component_attr_t;

/** @param components_p  for uct_release_component_list. @return UCS_OK or UCS_ERR_NO_MEMORY. */
ucs_status_t uct_query_components(uct_component_h** components_p, unsigned* num_components_p);
/** Release what uct_query_components gave. */
void uct_release_component_list(uct_component_h* components);
/** What field_mask asks for. @return UCS_OK. */
ucs_status_t uct_component_query(uct_component_h component, uct_component_attr_t* component_attr);

/** @param config_p  for uct_config_release. */
ucs_status_t uct_md_config_read(uct_component_h component, const char* env_prefix,
                                const char* filename, uct_md_config_t** config_p);
/** Release what uct_md_config_read gave. */
void uct_config_release(void* config);

/** @return UCS_OK, UCS_ERR_NO_DEVICE (the component has no such device) or UCS_ERR_NO_MEMORY. */
ucs_status_t uct_md_open(uct_component_h component, const char* md_name,
                         const uct_md_config_t* config, uct_md_h* md_p);
/** Undo uct_md_open. */
void uct_md_close(uct_md_h md);
/** @param resources_p  for uct_release_tl_resource_list. @return UCS_OK or UCS_ERR_NO_MEMORY. */
ucs_status_t uct_md_query_tl_resources(uct_md_h md, uct_tl_resource_desc_t** resources_p,
                                       unsigned* num_resources_p);
/** Release what uct_md_query_tl_resources gave. */
void uct_release_tl_resource_list(uct_tl_resource_desc_t* resources);

#pragma GCC visibility pop
END_C_DECLS

#endif
