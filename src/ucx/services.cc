// SPDX-License-Identifier: BSD-3-Clause
#include "ucx/services.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "ucs/config/source.h"
#include "ucs/memory/detector.h"
#include "uct/api/memory_domain.h"
#include "uct/api/module.h"
#include "ucx/log_handlers.h"

// What uct_md_h points at: nothing is opened for a question.
struct uct_md {
    uct::Component* component;
    std::string device;
};

namespace {

using ucx::LogHandlers;

uct::Component& unwrap(uct_component_h component) {
    return *reinterpret_cast<uct::Component*>(component);
}

template <size_t N>
void put_text(char (&place)[N], std::string_view text) {
    const size_t length = std::min(text.size(), N - 1);
    std::memcpy(place, text.data(), length);
    place[length] = '\0';
}

// A list for the program, to be given to free(). Programs ask for no more if there is nothing.
template <typename T>
T* make_list(size_t count) {
    return static_cast<T*>(std::calloc(std::max<size_t>(count, 1), sizeof(T)));
}

std::vector<std::string> devices_of(uct::Component& component) {
    std::vector<std::string> devices;
    for (const uct::Resource& resource : component.resources()) {
        if (std::ranges::find(devices, resource.device) == devices.end())
            devices.push_back(resource.device);
    }
    return devices;
}

uct_device_type_t type_of(uct::DeviceType type) {
    switch (type) {
        case uct::DeviceType::kSelf:
            return UCT_DEVICE_TYPE_SELF;
        case uct::DeviceType::kSharedMemory:
            return UCT_DEVICE_TYPE_SHM;
        case uct::DeviceType::kAccelerator:
            return UCT_DEVICE_TYPE_ACC;
        case uct::DeviceType::kNetwork:
            break;
    }
    return UCT_DEVICE_TYPE_NET;
}

ucs_status_t query_components(uct_component_h** components, unsigned* count) {
    const std::span<uct::Component* const> all = uct::components();
    *components = make_list<uct_component_h>(all.size());
    if (*components == nullptr) return UCS_ERR_NO_MEMORY;
    for (size_t i = 0; i < all.size(); ++i)
        (*components)[i] = reinterpret_cast<uct_component_h>(all[i]);
    *count = static_cast<unsigned>(all.size());
    return UCS_OK;
}

ucs_status_t component_query(uct_component_h handle, uct_component_attr_t* attr) {
    uct::Component& component = unwrap(handle);
    const auto wants = [&](uint64_t field) { return (attr->field_mask & field) != 0; };
    const std::vector<std::string> devices = devices_of(component);
    if (wants(UCT_COMPONENT_ATTR_FIELD_NAME)) put_text(attr->name, component.name());
    if (wants(UCT_COMPONENT_ATTR_FIELD_FLAGS)) attr->flags = 0;
    if (wants(UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES)) {
        for (size_t i = 0; i < devices.size(); ++i)
            put_text(attr->md_resources[i].md_name, devices[i]);
    }
    if (wants(UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT))
        attr->md_resource_count = static_cast<unsigned>(devices.size());
    return UCS_OK;
}

ucs_status_t md_open(uct_component_h component, const char* name, uct_md_h* md) {
    for (const std::string& device : devices_of(unwrap(component))) {
        char shown[UCT_MD_NAME_MAX];
        put_text(shown, device);
        if (std::strcmp(shown, name) != 0) continue;
        *md = new (std::nothrow) uct_md{&unwrap(component), device};
        return *md == nullptr ? UCS_ERR_NO_MEMORY : UCS_OK;
    }
    return UCS_ERR_NO_DEVICE;
}

void md_close(uct_md_h md) {
    delete md;
}

ucs_status_t md_query(uct_md_h md, uct_tl_resource_desc_t** resources, unsigned* count) {
    const std::span<const uct::Resource> all = md->component->resources();
    *resources = make_list<uct_tl_resource_desc_t>(all.size());
    if (*resources == nullptr) return UCS_ERR_NO_MEMORY;
    *count = 0;
    for (const uct::Resource& resource : all) {
        if (resource.device != md->device) continue;
        uct_tl_resource_desc_t& entry = (*resources)[(*count)++];
        put_text(entry.tl_name, resource.transport);
        put_text(entry.dev_name, resource.device);
        entry.dev_type = type_of(resource.device_type);
        entry.sys_device = UCS_SYS_DEVICE_ID_UNKNOWN;
    }
    return UCS_OK;
}

void write_log(const char* file, unsigned line, const char* function, ucs_log_level_t level,
               const ucs_log_component_config_t* component, const char* format, va_list ap) {
    LogHandlers::instance().dispatch(file, line, function, level, component, format, ap);
}

// What is read later is read from the environment, as are the program's other wishes.
ucs_status_t set_option(const char* name, const char* value) {
    ucs::config::Source source = ucs::config::Source::from_environment();
    std::string error;
    const ucs_status_t status = source.modify(name, value, error);
    if (status != UCS_OK) return status;
    const std::string full = "UCX_" + std::string(ucs::config::without_ucx(name));
    if (setenv(full.c_str(), value, 1) != 0) return UCS_ERR_NO_MEMORY;
    if (full == "UCX_LOG_LEVEL") ucs::reload_log_level();
    return UCS_OK;
}

ucs_status_t find_memory(const void* address, size_t size, ucs_memory_info_t* info) {
    if (size == 0) return UCS_ERR_NO_ELEM;
    const ucs::MemoryInfo found = ucs::detect_memory(address, size);
    if (found.type == UCS_MEMORY_TYPE_HOST) return UCS_ERR_NO_ELEM;
    if (info != nullptr) {
        *info = {.type = found.type,
                 .sys_dev = UCS_SYS_DEVICE_ID_UNKNOWN,
                 .base_address = const_cast<void*>(found.base),
                 .alloc_length = found.length};
    }
    return UCS_OK;
}

}  // namespace

extern "C" {
[[gnu::visibility("default")]] extern const ucx::Services swiftlane_services;
const ucx::Services swiftlane_services{
    .version = ucx::Services::kVersion,
    .write_log = write_log,
    .push_log_handler = [](ucs_log_func_t handler) { LogHandlers::instance().push(handler); },
    .pop_log_handler = [] { LogHandlers::instance().pop(); },
    .num_log_handlers = [] { return LogHandlers::instance().count(); },
    .set_option = set_option,
    .find_memory = find_memory,
    .query_components = query_components,
    .component_query = component_query,
    .md_open = md_open,
    .md_close = md_close,
    .md_query = md_query,
};
}
