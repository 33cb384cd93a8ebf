// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/capi/announce.h"

#include <config.h>  // of the build, not its namesake in this folder
#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>

#include "ucp/api/ucp.h"
#include "ucp/context/context.h"
#include "ucs/log/log.h"

namespace ucp {
namespace {

/** The file that this code was loaded from: the library, or a program that links it statically. */
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

}  // namespace

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

}  // namespace ucp
