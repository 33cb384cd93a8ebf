// SPDX-License-Identifier: BSD-3-Clause
#include "uct/api/module.h"

#include <config.h>
#include "ucs/runtime/runtime.h"
#include "uct/cuda/component.h"

namespace {

uct::Component* component(ucs::Runtime& runtime) {
    ucs::adopt_runtime(runtime);
    return &uct::cuda::component();
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const uct::Module swiftlane_uct_module;
const uct::Module swiftlane_uct_module = {PACKAGE_VERSION, &component};
