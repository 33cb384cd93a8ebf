// SPDX-License-Identifier: BSD-3-Clause
#include "uct/api/module.h"

#include <config.h>
#include "ucs/runtime/runtime.h"
#include "uct/cuda/memory.h"

namespace {

// CUDA memory for the whole library (memory.h). Its buffers are staged: it has no transport.
class CudaComponent final : public uct::Component {
  public:
    CudaComponent() { (void)uct::cuda::CudaMemory::get(); }
    std::string_view name() const override { return "cuda"; }
    std::span<const uct::Resource> resources() override { return {}; }
    ucs_status_t open_domain(std::string_view, std::unique_ptr<uct::MemoryDomain>*) override {
        return UCS_ERR_NO_DEVICE;
    }
};

uct::Component* component(ucs::Runtime& runtime) {
    ucs::adopt_runtime(runtime);
    static auto* const instance = new CudaComponent;
    return instance;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const uct::Module swiftlane_uct_module;
const uct::Module swiftlane_uct_module = {PACKAGE_VERSION, &component};
