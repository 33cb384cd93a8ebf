// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/component.h"

#include <array>

#include "uct/sm/fifo_interface.h"
#include "uct/sm/ring_interface.h"
#include "uct/sm/sm_domain.h"

namespace uct::sm {

namespace {

class SmComponent final : public Component {
  public:
    std::string_view name() const override { return "sm"; }
    std::span<const TransportDeclaration> transports() const override { return kTransports; }
    std::span<const Resource> resources() override {
        // Without /proc there is no way to another process's segment.
        return pid_namespace() != 0 ? std::span<const Resource>(resources_)
                                    : std::span<const Resource>();
    }
    ucs_status_t open_domain(std::string_view device,
                             std::unique_ptr<MemoryDomain>* domain) override {
        if (device != kDevice) return UCS_ERR_NO_DEVICE;
        Config config;
        const ucs_status_t status = load_config(nullptr, &config);
        if (status == UCS_OK) *domain = std::make_unique<SmDomain>(config);
        return status;
    }

  private:
    static constexpr TransportDeclaration kTransports[] = {FifoInterface::kDeclaration,
                                                           RingInterface::kDeclaration};
    static constexpr const char* kDevice = "memory";
    const std::array<Resource, 2> resources_{
        Resource{"sm_fifo", kDevice, DeviceType::kSharedMemory},
        Resource{"sm_ring", kDevice, DeviceType::kSharedMemory}};
};

}  // namespace

Component& component() {
    static auto* component = new SmComponent;
    return *component;
}

}  // namespace uct::sm
