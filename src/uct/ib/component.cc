// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/component.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <vector>

#include "uct/ib/base/transports.h"
#include "uct/ib/dc/dc_interface.h"
#include "uct/ib/rc/rc_interface.h"
#include "uct/ib/ud/ud_interface.h"

namespace uct::ib {

namespace {

// Best first.
constexpr const Transport* kOffered[] = {&dc_mlx5, &rc_mlx5, &rc_verbs, &ud::ud_verbs};

class IbComponent final : public Component {
  public:
    std::string_view name() const override { return "ib"; }
    std::span<const TransportDeclaration> transports() const override { return kTransports; }

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
        return IbDomain::open(device, kOffered, domain);
    }

  private:
    static std::vector<Resource> search() {
        std::vector<Resource> resources;
        for (const std::string& name : Device::find_all()) {
            std::unique_ptr<Device> device;
            if (Device::open(name, &device) != UCS_OK) continue;
            for (const Transport* offered : kOffered) {
                if (!offered->is_supported(*device)) continue;
                const TransportDeclaration& transport = offered->declaration;
                resources.push_back({std::string(transport.name), name, transport.device_type});
            }
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
