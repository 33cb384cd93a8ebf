// SPDX-License-Identifier: BSD-3-Clause
#include "uct/cuda/component.h"

#include "uct/cuda/memory.h"

namespace uct::cuda {

namespace {

class CudaComponent final : public Component {
  public:
    CudaComponent() { (void)Memory::get(); }
    std::string_view name() const override { return "cuda"; }
    std::span<const Resource> resources() override { return {}; }
    ucs_status_t open_domain(std::string_view, std::unique_ptr<MemoryDomain>*) override {
        return UCS_ERR_NO_DEVICE;
    }
};

}  // namespace

Component& component() {
    static auto* const instance = new CudaComponent;
    return *instance;
}

}  // namespace uct::cuda
