// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace tools {

// Where the parts of Swiftlane lie, found from the running program, so that an installation can be
// moved. Inside a build tree the parts are found there.
struct Paths {
    std::string program;    // this executable
    std::string libraries;  // folder of libucp.so.0
    std::string modules;    // folder of libuct_*.so; empty where the library finds them itself
    std::string softhca;    // folder of the emulated adapter's libibverbs.so.1 and libmlx5.so.1
    std::string simulator;  // executable

    // Throws std::runtime_error if /proc is not there.
    static Paths find();
};

// Throws std::runtime_error if the loader has given this program another libucp than the one it was
// installed with, UCX's for instance.
void require_own_library();

// Throws std::runtime_error if the file cannot be written.
void write_file(const std::string& path, const std::string& bytes);

// `folder` in front of a list of folders that are separated by colons.
std::string prepend_path(const std::string& folder, const char* list);

}  // namespace tools
