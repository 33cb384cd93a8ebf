// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>
#include <vector>

#include "uct/api/memory_domain.h"

namespace ucs {
struct Runtime;
}

namespace uct {

// What an on-demand module (libuct_NAME.so) exports, as `swiftlane_uct_module`.
//
// The library opens modules at context creation; one whose driver libraries are not installed
// fails to load, which is no error. Module and library are built together: the version must match.
struct Module {
    const char* version;
    Component* (*component)(ucs::Runtime& runtime);  // lives until the process ends
};

inline constexpr const char* kModuleSymbol = "swiftlane_uct_module";

// All components of this process: the built-in ones, statically linked ones, and modules found in
// the module directory (UCX_MODULE_DIR, else relative to the library). Found once, in a fixed
// order.
std::span<Component* const> components();

// Add a component that is linked in (tests, simulator). Before the first call of components().
void add_component(Component& component);

// All transports that this library knows, here or elsewhere: those of the components that were
// found or added so far, and those of its own modules, whether they load on this machine or not.
std::vector<TransportDeclaration> known_transports();

}  // namespace uct
