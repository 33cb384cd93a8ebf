// SPDX-License-Identifier: BSD-3-Clause
#include <dlfcn.h>

#include <cstdio>
#include <string>

#include "ucx/services.h"

namespace ucx {
namespace {

// The name alone could lead to the system's libucp, which may be loaded already.
const Services* load() {
    Dl_info own{};
    if (dladdr(reinterpret_cast<void*>(&find_services), &own) == 0) return nullptr;
    std::string path = own.dli_fname;
    path.resize(path.rfind('/') + 1);
    void* const library = dlopen((path + "libucp.so.0").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        std::fprintf(stderr, "%s: %s\n", own.dli_fname, dlerror());
        return nullptr;
    }
    const auto* found = static_cast<const Services*>(dlsym(library, kServicesSymbol));
    if (found != nullptr && found->version == Services::kVersion) return found;
    std::fprintf(stderr, "%s: %slibucp.so.0 is of another version\n", own.dli_fname, path.c_str());
    return nullptr;
}

}  // namespace

const Services* find_services() {
    static const Services* const services = load();
    return services;
}

}  // namespace ucx
