// SPDX-License-Identifier: BSD-3-Clause
#include <config.h>  // of the build, not its namesake in this folder
#include <dlfcn.h>
#include <fmt/format.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <new>
#include <string>

#include "ucp/api/ucp.h"
#include "ucp/base/handles.h"
#include "ucp/base/request.h"
#include "ucp/capi/compat.h"
#include "ucp/context/context.h"
#include "ucs/config/registry.h"
#include "ucs/config/source.h"
#include "ucs/log/log.h"
#include "ucs/memory/detector.h"
#include "uct/api/module.h"

using namespace ucp;

// What ucp_config_t is: the user's settings as they were read.
struct ucp_config {
    ucs::config::Source source;
};

namespace {

// The file that this code was loaded from: the library, or a program that links it statically.
std::string own_file() {
    Dl_info info;
    if (dladdr(reinterpret_cast<void*>(&ucp_init_version), &info) == 0) return "an unknown file";
    const std::unique_ptr<char, decltype(&std::free)> path(realpath(info.dli_fname, nullptr),
                                                           &std::free);
    return path ? path.get() : info.dli_fname;
}

void append(std::string& list, const std::string& item) {
    if (!list.empty()) list += ", ";
    list += item;
}

// Which library is in use, where it lies and what it found, as one line at level info: two
// libraries of one name are easily mistaken for each other. Once in a process.
void announce_library(const Context& context) {
    if (!ucs::log_enabled(ucs::LogLevel::kInfo)) return;
    static std::atomic_flag announced;
    if (announced.test_and_set()) return;
    std::string found;
    for (const TransportResource& resource : context.resources()) {
        append(found, resource.transport + "/" + resource.device);
    }
    ucs::log_info("Swiftlane {} (UCX's interface {}) in {}, transports: {}", PACKAGE_VERSION,
                  ucp_get_version_string(), own_file(), found);
}

}  // namespace

ucs_status_t ucp_lib_query(ucp_lib_attr_t* attr) {
    if ((attr->field_mask & UCP_LIB_ATTR_FIELD_MAX_THREAD_LEVEL) != 0) {
        attr->max_thread_level = UCS_THREAD_MODE_MULTI;
    }
    return UCS_OK;
}

void ucp_get_version(unsigned* major_version, unsigned* minor_version, unsigned* release_number) {
    *major_version = UCP_API_MAJOR;
    *minor_version = UCP_API_MINOR;
    *release_number = 0;
}

const char* ucp_get_version_string(void) {
    static const std::string text = fmt::format("{}.{}.0", UCP_API_MAJOR, UCP_API_MINOR);
    return text.c_str();
}

ucs_status_t ucp_config_read(const char* env_prefix, const char* filename,
                             ucp_config_t** config_p) try {
    auto config = std::make_unique<ucp_config>();
    std::string error;
    const ucs_status_t status =
        ucs::config::Source::read(env_prefix == nullptr ? "" : env_prefix,
                                  filename == nullptr ? "" : filename, config->source, error);
    if (status != UCS_OK) {
        ucs::log_error("{}", error);
        return status;
    }
    *config_p = config.release();
    return UCS_OK;
} catch (const std::bad_alloc&) {
    return UCS_ERR_NO_MEMORY;
}

void ucp_config_release(ucp_config_t* config) {
    delete config;
}

ucs_status_t ucp_config_modify(ucp_config_t* config, const char* name, const char* value) try {
    std::string error;
    const ucs_status_t status = config->source.modify(name, value, error);
    // As UCX: programs name variables of other versions. ucp_init() warns of them, once.
    if (status == UCS_ERR_NO_ELEM) {
        config->source.set(ucs::config::without_ucx(name), value);
        return UCS_OK;
    }
    if (status != UCS_OK) ucs::log_error("{}", error);
    return status;
} catch (const std::bad_alloc&) {
    return UCS_ERR_NO_MEMORY;
}

void ucp_config_print(const ucp_config_t* config, FILE* stream, const char* title,
                      ucs_config_print_flags_t print_flags) {
    uct::components();  // modules bring variables of their own
    ucs::config::PrintOptions options;
    if ((print_flags & UCS_CONFIG_PRINT_HEADER) != 0 && title != nullptr) options.title = title;
    options.values = (print_flags & UCS_CONFIG_PRINT_CONFIG) != 0;
    options.docs = (print_flags & UCS_CONFIG_PRINT_DOC) != 0;
    options.comment_defaults = (print_flags & UCS_CONFIG_PRINT_COMMENT_DEFAULT) != 0;
    const std::string text = ucs::config::print(config->source, options);
    fwrite(text.data(), 1, text.size(), stream);
}

ucs_status_t ucp_init_version(unsigned api_major_version, unsigned api_minor_version,
                              const ucp_params_t* params, const ucp_config_t* config,
                              ucp_context_h* context_p) try {
    if (api_major_version != UCP_API_MAJOR || api_minor_version > UCP_API_MINOR) {
        ucs::log_warn(
            "the program was built for version {}.{} of the interface, the library "
            "offers {}.{}",
            api_major_version, api_minor_version, UCP_API_MAJOR, UCP_API_MINOR);
    }
    uct::components();  // modules bring variables of their own
    const ucs::config::Source source =
        config != nullptr ? config->source : ucs::config::Source::from_environment();
    for (const std::string& warning : ucs::config::new_warnings(source)) {
        ucs::log_warn("{}", warning);
    }
    Config values;
    std::string error;
    ucs_status_t status = kConfigTable.load(source, values, error);
    if (status != UCS_OK) {
        ucs::log_error("{}", error);
        return status;
    }
    std::unique_ptr<Context> context;
    status = Context::create(*params, values, {}, &context);
    if (status != UCS_OK) return status;
    announce_library(*context);
    context->set_interface_minor(api_minor_version);
    *context_p = wrap(context.release());
    return UCS_OK;
} catch (const std::bad_alloc&) {
    return UCS_ERR_NO_MEMORY;
}

void ucp_cleanup(ucp_context_h context_p) {
    if (!unwrap(context_p).is_inherited()) delete &unwrap(context_p);
}

ucs_status_t ucp_context_query(ucp_context_h context_p, ucp_context_attr_t* attr) {
    const auto wants = wanted_of(attr);
    const Context& context = unwrap(context_p);
    if (wants(UCP_ATTR_FIELD_REQUEST_SIZE)) attr->request_size = sizeof(Request);
    if (wants(UCP_ATTR_FIELD_THREAD_MODE)) {
        attr->thread_mode =
            context.domains().is_shared() ? UCS_THREAD_MODE_MULTI : UCS_THREAD_MODE_SINGLE;
    }
    if (wants(UCP_ATTR_FIELD_MEMORY_TYPES)) attr->memory_types = ucs::MemoryDetectors::types();
    if (wants(UCP_ATTR_FIELD_NAME))
        snprintf(attr->name, sizeof(attr->name), "%s", context.name().c_str());
    if (wants(UCP_ATTR_FIELD_DEVICE_COUNTER_SIZE)) {
        const bool has_kernels = ucs::MemoryDetectors::of_type(UCS_MEMORY_TYPE_CUDA) != nullptr;
        attr->device_counter_size = has_kernels ? sizeof(uint64_t) : 0;
    }
    return UCS_OK;
}

namespace {

// Runtimes look for names in this text.
void print_info(const Context& context, FILE* stream) {
    std::string text = fmt::format("#\n# Swiftlane context {}\n#\n", context.name());
    auto out = std::back_inserter(text);
    for (size_t index = 0; index < context.domains().size(); ++index) {
        const Domain& domain = context.domains()[index];
        fmt::format_to(out, "#            md {}  :  component {}, device {}\n", index,
                       domain.component->name(), domain.device);
        for (const uct::DeviceFact& fact : domain.memory->describe()) {
            fmt::format_to(out, "#                     {}: {}\n", fact.name, fact.value);
        }
        for (const TransportResource& resource : context.resources()) {
            if (resource.domain != index || resource.distance == 0) continue;
            fmt::format_to(out, "#                     distance: {:.0f} ns from the CPUs\n",
                           double{resource.distance} * 1e9);
            break;
        }
    }
    text += "#\n";
    // Open MPI looks for transports and devices that it trusts in lines of just this form.
    for (size_t index = 0; index < context.resources().size(); ++index) {
        const TransportResource& resource = context.resources()[index];
        fmt::format_to(out, "#      resource {}  :  md {}  dev {}  flags -- {}/{}\n", index,
                       resource.domain, resource.domain, resource.transport, resource.device);
    }
    for (const LeftOut& left_out : context.left_out()) {
        fmt::format_to(out, "#      not used:  {}/{}, {}\n", left_out.transport, left_out.device,
                       left_out.reason);
    }
    text += "#\n";
    fwrite(text.data(), 1, text.size(), stream);
}

}  // namespace

void ucp_context_print_info(const ucp_context_h context, FILE* stream) {
    print_info(unwrap(context), stream);
}
