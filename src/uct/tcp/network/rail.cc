// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/network/rail.h"

#include <linux/if.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ucs/log/log.h"
#include "ucs/runtime/runtime.h"
#include "ucs/type/bits.h"
#include "uct/base/per_worker.h"

namespace uct::tcp {
namespace {

uint64_t nonzero_id() {
    for (;;) {
        if (const uint64_t drawn = ucs::unique_id(); drawn != 0) return drawn;
    }
}

}  // namespace

Rail::Rail(const NetworkDevice& device, const Config& config, const InterfaceParams& params)
    : device_(device),
      config_(config),
      params_(params),
      place_(network_namespace_id()),
      max_message_(ucs::align_up(size_t{config.rx_seg_size}, wire::kAlignment) -
                   sizeof(wire::FrameHeader)),
      encryption_(config.encrypt ? std::make_shared<TlsContext>() : nullptr),
      carrier_(device_),
      routes_(device_),
      rails_(shared_by_worker<RailSet>(params.am_table)) {
    address_.id = nonzero_id();
    address_.secret = {ucs::unique_id(), ucs::unique_id()};
    rails_->members.push_back(this);
}

Rail::~Rail() {
    leave_set();
}

void Rail::leave_set() {
    std::erase(rails_->members, this);
}

bool Rail::reaches(const DeviceAddress& device) const {
    if (device.ip.version != device_.address.version) return false;
    if (device.loopback || device_.loopback) {
        return device.loopback && device_.loopback && device.place == place_;
    }
    return device_.address.shares_prefix(device.ip, device_.prefix) || device.place == place_ ||
           routes_.lead_to(device.ip, now());
}

bool Rail::is_on_link(const DeviceAddress& device) const {
    return !device_.loopback && device.place != place_ &&
           device_.address.shares_prefix(device.ip, device_.prefix);
}

Rail* Rail::relative(uint64_t id) const {
    const auto found = std::ranges::find(rails_->members, id, &Rail::id);
    return found == rails_->members.end() ? nullptr : *found;
}

uint8_t Rail::session_flags() const {
    using ucs::config::Ternary;
    if (config_.failover == Ternary::kNo) return 0;
    const auto others = std::ranges::count_if(
        rails_->members, [](const Rail* member) { return !member->device().loopback; });
    const bool many = config_.failover == Ternary::kYes || (!device_.loopback && others > 1);
    return many ? wire::kCanResume | wire::kManyWays : wire::kCanResume;
}

bool Rail::keeps_sessions_with(uint8_t peer_flags) const {
    const uint8_t own = session_flags();
    return (own & peer_flags & wire::kCanResume) != 0 &&
           ((own | peer_flags) & wire::kManyWays) != 0;
}

bool Carrier::open() {
    if (device_.loopback) return false;
    socket_.reset(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE));
    sockaddr_nl groups{};
    groups.nl_family = AF_NETLINK;
    groups.nl_groups = RTMGRP_LINK;
    if (!socket_ ||
        bind(socket_.get(), reinterpret_cast<const sockaddr*>(&groups), sizeof(groups)) != 0) {
        ucs::log_debug("{}: no word of its link: {}", device_.name, std::strerror(errno));
        socket_.reset();
        return false;
    }
    ask();
    return true;
}

void Carrier::ask() {
    ifreq request{};
    device_.name.copy(request.ifr_name, sizeof(request.ifr_name) - 1);
    const ucs::Descriptor any(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (ioctl(any.get(), SIOCGIFFLAGS, &request) != 0) {
        is_up_ = errno != ENODEV;
        return;
    }
    is_up_ = (request.ifr_flags & IFF_UP) != 0 && (request.ifr_flags & IFF_RUNNING) != 0;
}

unsigned Carrier::on_event(uint32_t events) {
    const bool was_up = is_up_;
    for (;;) {
        alignas(nlmsghdr) std::byte buffer[8192];
        const ssize_t got = recv(socket_.get(), buffer, sizeof(buffer), 0);
        if (got < 0 && errno == ENOBUFS) {
            ask();  // some were lost
            continue;
        }
        if (got <= 0) break;
        auto left = static_cast<unsigned>(got);
        const auto* message = reinterpret_cast<const nlmsghdr*>(buffer);
        for (; NLMSG_OK(message, left); message = NLMSG_NEXT(message, left)) {
            if (message->nlmsg_type != RTM_NEWLINK && message->nlmsg_type != RTM_DELLINK) continue;
            if (message->nlmsg_len < NLMSG_LENGTH(sizeof(ifinfomsg))) continue;
            const auto* about = static_cast<const ifinfomsg*>(NLMSG_DATA(message));
            if (about->ifi_family != AF_UNSPEC ||
                about->ifi_index != static_cast<int>(device_.index)) {
                continue;
            }
            constexpr unsigned kNeeded = IFF_UP | IFF_RUNNING | IFF_LOWER_UP;
            is_up_ = message->nlmsg_type == RTM_NEWLINK && (about->ifi_flags & kNeeded) == kNeeded;
        }
    }
    changed_ = changed_ || is_up_ != was_up;
    if (is_up_ != was_up) ucs::log_diag("{}: the link is {}", device_.name, is_up_ ? "up" : "down");
    return is_up_ != was_up ? 1 : 0;
}

}  // namespace uct::tcp
