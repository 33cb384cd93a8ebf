// SPDX-License-Identifier: BSD-3-Clause
#include "tools/common/paths.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <ucp/api/ucp.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace tools {
namespace {

namespace fs = std::filesystem;

// Libtool runs uninstalled programs from BUILD/src/tools/.libs.
fs::path build_tree_of(const fs::path& program) {
    const fs::path folder = program.parent_path();
    if (folder.filename() != ".libs") return {};
    return folder.parent_path().parent_path().parent_path();
}

}  // namespace

Paths Paths::find() {
    Paths paths;
    const fs::path program = fs::read_symlink("/proc/self/exe");
    paths.program = program.string();
    if (const fs::path build = build_tree_of(program); !build.empty()) {
        paths.libraries = (build / "src/ucx/.libs").string();
        paths.modules = (build / "modules").string();
        paths.softhca = (build / ".libs").string();
        paths.simulator = (build / "src/tools/swiftlane-sim").string();
        return paths;
    }
    // The configured folders as seen from the program's own.
    const fs::path bin = program.parent_path();
    const auto installed = [&bin](const char* configured, const char* part) {
        const fs::path from_bin = fs::path(configured).lexically_relative(SWIFTLANE_BINDIR);
        return (bin / from_bin / part).lexically_normal().string();
    };
    paths.libraries = installed(SWIFTLANE_LIBDIR, "swiftlane/ucx");
    paths.softhca = installed(SWIFTLANE_LIBDIR, "swiftlane/softhca");
    paths.simulator = installed(SWIFTLANE_LIBEXECDIR, "swiftlane/swiftlane-sim");
    return paths;
}

void require_own_library() {
    const fs::path own = fs::path(Paths::find().libraries) / "libucp.so.0";
    Dl_info info{};
    const bool is_found = dladdr(reinterpret_cast<void*>(&ucp_get_version_string), &info) != 0;
    std::error_code error;
    if (is_found && fs::equivalent(info.dli_fname, own, error)) return;
    throw std::runtime_error(
        fmt::format("the loader took {} in place of {}: see LD_LIBRARY_PATH and LD_PRELOAD",
                    is_found ? info.dli_fname : "an unknown library", own.string()));
}

std::string prepend_path(const std::string& folder, const char* list) {
    if (list == nullptr || *list == '\0') return folder;
    return folder + ":" + list;
}

void write_file(const std::string& path, const std::string& text) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << text;
    file.close();
    if (!file)
        throw std::runtime_error(fmt::format("cannot write {}: {}", path, std::strerror(errno)));
}

}  // namespace tools
