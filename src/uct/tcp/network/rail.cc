// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/network/rail.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "ucs/runtime/runtime.h"
#include "ucs/type/bits.h"

namespace uct::tcp {

namespace {

uint64_t nonzero_id() {
    for (;;) {
        if (const uint64_t drawn = ucs::unique_id(); drawn != 0) return drawn;
    }
}

}  // namespace

std::shared_ptr<Family> Family::of(const AmTable& worker) {
    static std::mutex mutex;
    static auto* families = new std::unordered_map<const AmTable*, std::weak_ptr<Family>>;
    std::lock_guard lock(mutex);
    std::erase_if(*families, [](const auto& entry) { return entry.second.expired(); });
    std::weak_ptr<Family>& known = (*families)[&worker];
    std::shared_ptr<Family> family = known.lock();
    if (family == nullptr) known = family = std::make_shared<Family>();
    return family;
}

Rail::Rail(const NetworkDevice& device, const Config& config, const InterfaceParams& params)
    : device_(device),
      config_(config),
      params_(params),
      place_(network_namespace_id()),
      max_message_(ucs::align_up(size_t{config.rx_seg_size}, wire::kAlignment) -
                   sizeof(wire::Frame)),
      carrier_(device_),
      family_(Family::of(params.am_table)) {
    address_.id = nonzero_id();
    address_.secret = {ucs::unique_id(), ucs::unique_id()};
    family_->members.push_back(this);
}

Rail::~Rail() {
    leave_family();
}

void Rail::leave_family() {
    std::erase(family_->members, this);
}

bool Rail::reaches(const DeviceAddress& device) const {
    if (device.ip.version != device_.address.version) return false;
    if (device.loopback || device_.loopback) {
        return device.loopback && device_.loopback && device.place == place_;
    }
    return device_.address.shares_prefix(device.ip, device_.prefix) || device.place == place_ ||
           routes_through(device_, device.ip);
}

bool Rail::is_on_link(const DeviceAddress& device) const {
    return !device_.loopback && device.place != place_ &&
           device_.address.shares_prefix(device.ip, device_.prefix);
}

Rail* Rail::relative(uint64_t id) const {
    const auto found = std::ranges::find(family_->members, id, &Rail::id);
    return found == family_->members.end() ? nullptr : *found;
}

uint8_t Rail::session_flags() const {
    using ucs::config::Ternary;
    if (config_.failover == Ternary::kNo) return 0;
    const auto others = std::ranges::count_if(
        family_->members, [](const Rail* member) { return !member->device().loopback; });
    const bool many = config_.failover == Ternary::kYes || (!device_.loopback && others > 1);
    return many ? wire::kCanResume | wire::kManyWays : wire::kCanResume;
}

bool Rail::keeps_sessions_with(uint8_t peer_flags) const {
    const uint8_t own = session_flags();
    return (own & peer_flags & wire::kCanResume) != 0 &&
           ((own | peer_flags) & wire::kManyWays) != 0;
}

}  // namespace uct::tcp
