// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/component.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <vector>

#include "uct/ib/base/domain.h"

namespace uct::ib {

namespace {

class IbComponent final : public Component {
  public:
    std::string_view name() const override { return "ib"; }

    std::span<const Resource> resources() override {
        // Looked up anew for each context: ports come up and go down, and a simulated host has
        // adapters of its own. Lists given out before stay valid.
        std::vector<Resource> found = search();
        std::lock_guard lock(mutex_);
        for (const std::vector<Resource>& known : lists_) {
            if (std::ranges::equal(known, found, [](const Resource& a, const Resource& b) {
                    return a.transport == b.transport && a.device == b.device;
                })) {
                return known;
            }
        }
        return lists_.emplace_back(std::move(found));
    }

    ucs_status_t open_domain(std::string_view device,
                             std::unique_ptr<MemoryDomain>* domain) override {
        return Domain::open(device, domain);
    }

  private:
    static std::vector<Resource> search() {
        std::vector<Resource> resources;
        for (const Device::Found& found : Device::find_all()) {
            std::unique_ptr<Device> device;
            if (found.mlx5 && Device::open(found.name, &device) == UCS_OK) {
                if (device->supports_dc()) {
                    resources.push_back({"dc_mlx5", found.name, DeviceType::kNetwork});
                }
                resources.push_back({"rc_mlx5", found.name, DeviceType::kNetwork});
            }
            resources.push_back({"rc_verbs", found.name, DeviceType::kNetwork});
            resources.push_back({"ud_verbs", found.name, DeviceType::kNetwork});
        }
        return resources;
    }

    std::mutex mutex_;
    std::deque<std::vector<Resource>> lists_;
};

}  // namespace

Component& component() {
    static auto* instance = new IbComponent;
    return *instance;
}

}  // namespace uct::ib
