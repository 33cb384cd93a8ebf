// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/component.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <vector>

#include "ucs/config/source.h"
#include "ucs/log/log.h"
#include "uct/tcp/interface/tcp_domain.h"
#include "uct/tcp/interface/tcp_interface.h"
#include "uct/tcp/network/config.h"
#include "uct/tcp/network/device.h"

namespace uct::tcp {

namespace {

// @return false if a variable of this transport is wrong, which is logged
bool load_config(Config& config) {
    std::string error;
    if (config_table().load(ucs::config::Source::from_environment(), config, error) == UCS_OK) {
        return true;
    }
    ucs::log_error("{}", error);
    return false;
}

std::vector<NetworkDevice> find_devices() {
    Config config;
    if (!load_config(config)) return {};
    return network_devices(config.af_prio);
}

class TcpComponent final : public Component {
  public:
    std::string_view name() const override { return "tcp"; }
    std::span<const TransportDeclaration> transports() const override {
        return {&TcpInterface::kDeclaration, 1};
    }

    std::span<const Resource> resources() override {
        // Looked up anew for each context: associations come up and go down, and a process may
        // change its network namespace. Lists given out before stay valid.
        std::vector<Resource> found;
        for (const NetworkDevice& device : find_devices()) {
            found.push_back({"tcp", device.name, DeviceType::kNetwork});
        }
        std::lock_guard lock(mutex_);
        for (const std::vector<Resource>& known : lists_) {
            if (std::ranges::equal(known, found, {}, &Resource::device, &Resource::device)) {
                return known;
            }
        }
        return lists_.emplace_back(std::move(found));
    }

    ucs_status_t open_domain(std::string_view device,
                             std::unique_ptr<MemoryDomain>* domain) override {
        for (const NetworkDevice& found : find_devices()) {
            if (found.name != device) continue;
            *domain = std::make_unique<TcpDomain>(found);
            return UCS_OK;
        }
        return UCS_ERR_NO_DEVICE;
    }

  private:
    std::mutex mutex_;
    std::deque<std::vector<Resource>> lists_;
};

}  // namespace

Component& component() {
    static auto* instance = new TcpComponent;
    return *instance;
}

std::string job_key() {
    Config config;
    return load_config(config) ? config.job_key : std::string();
}

}  // namespace uct::tcp
