// SPDX-License-Identifier: BSD-3-Clause
#include "uct/api/module.h"

#include "config.h"
#include "ucs/runtime/runtime.h"
#include "uct/ib/component.h"

namespace {

uct::Component* component(ucs::Runtime& runtime) {
    ucs::adopt_runtime(runtime);
    return &uct::ib::component();
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const uct::Module swiftlane_uct_module;
const uct::Module swiftlane_uct_module = {PACKAGE_VERSION, &component};
