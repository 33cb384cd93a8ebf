// SPDX-License-Identifier: BSD-3-Clause

// What ucp_*_print_info() write: text for people, and for runtimes that look for names in it.

#include <fmt/format.h>

#include <cinttypes>
#include <iterator>
#include <string>

#include "ucp/context/context.h"
#include "ucp/endpoint/endpoint.h"
#include "ucp/worker/worker.h"
#include "ucp/lanes/driver/lane_driver.h"

namespace ucp {

namespace {

/** What endpoints can be given of a transport. */
std::string use_of(const uct::InterfaceAttributes& attributes, bool auxiliary) {
    if (attributes.device_type == uct::DeviceType::kAccelerator) return "memory of the device";
    if (attributes.reach == uct::Reach::kEndpoint) return "hot peers: a dedicated lane each";
    if (auxiliary) return "sets up dedicated lanes";
    switch (attributes.device_type) {
        case uct::DeviceType::kSelf:
            return "messages of the worker to itself";
        case uct::DeviceType::kSharedMemory:
            return "all peers on this host";
        default:
            return "all peers on other hosts, and on this one if nothing nearer reaches them";
    }
}

}  // namespace

void Context::print_info(FILE* stream) const {
    std::string text = fmt::format("#\n# Swiftlane context {}\n#\n", name_);
    auto out = std::back_inserter(text);
    for (size_t index = 0; index < domains_.size(); ++index) {
        const Domain& domain = domains_[index];
        fmt::format_to(out, "#            md {}  :  component {}, device {}\n", index,
                       domain.component->name(), domain.device);
        for (const uct::DeviceFact& fact : domain.memory->describe()) {
            fmt::format_to(out, "#                     {}: {}\n", fact.name, fact.value);
        }
        for (const TransportResource& resource : resources_) {
            if (resource.domain != index || resource.distance == 0) continue;
            fmt::format_to(out, "#                     distance: {:.0f} ns from the CPUs\n",
                           double{resource.distance} * 1e9);
            break;
        }
    }
    text += "#\n";
    // Open MPI looks for transports and devices that it trusts in lines of just this form.
    for (size_t index = 0; index < resources_.size(); ++index) {
        const TransportResource& resource = resources_[index];
        fmt::format_to(out, "#      resource {}  :  md {}  dev {}  flags -- {}/{}\n", index,
                       resource.domain, resource.domain, resource.transport, resource.device);
    }
    for (const LeftOut& left_out : left_out_) {
        fmt::format_to(out, "#      not used:  {}/{}, {}\n", left_out.transport, left_out.device,
                       left_out.reason);
    }
    text += "#\n";
    fwrite(text.data(), 1, text.size(), stream);
}

void Worker::print_info(FILE* stream) const {
    fprintf(stream, "#\n# Swiftlane worker %s (%016" PRIx64 ")\n#\n", name_.c_str(), uuid_);
    fprintf(stream, "#     address: %zu bytes, endpoints: %zu\n", address_.size(), endpoint_count_);
    for (const WorkerInterface& interface : interfaces_) {
        const auto& attributes = interface.transport->attributes();
        const bool auxiliary = context_.resources()[interface.resource].auxiliary;
        fprintf(stream, "#     %s/%s: %s\n", attributes.transport.c_str(),
                attributes.device.c_str(), use_of(attributes, auxiliary).c_str());
        fprintf(
            stream,
            "#         latency %.0f ns + %.1f ns for each endpoint, %.2f GB/s, overhead %.0f ns, "
            "short up to %zu bytes\n",
            attributes.latency.base * 1e9, attributes.latency.per_endpoint * 1e9,
            attributes.bandwidth * 1e-9, attributes.overhead * 1e9, attributes.am.max_short);
    }
    const lanes::Negotiator& negotiator = lanes_->negotiator();
    fprintf(stream, "#     dedicated lanes: %" PRIu32 " of %" PRIu32 "\n#\n", negotiator.held(),
            negotiator.config().cap);
}

void Endpoint::print_info(FILE* stream) const {
    fprintf(stream, "#\n# Swiftlane endpoint to worker %016" PRIx64 "\n#\n", remote_uuid_);
    const auto& scalable = scalable_lane().attributes;
    fprintf(stream, "#     scalable lane: %s/%s\n", scalable.transport.c_str(),
            scalable.device.c_str());
    if (lane_state_ != nullptr) {
        const auto& dedicated = dedicated_lane().attributes;
        fprintf(stream, "#     dedicated lane: %s/%s\n", dedicated.transport.c_str(),
                dedicated.device.c_str());
    }
    const char* promotion = "yes";
    if (!has_flag(kPromotable)) {
        promotion = "no: the two ends have nothing dedicated in common on these devices";
    } else if (!is_primary()) {
        promotion = "no: another endpoint to the same worker takes part";
    } else if (!worker_->lanes().is_adaptive(*this)) {
        promotion = "no: lane switching is off (UCX_LANES, UCX_MAX_PRIORITY_EPS)";
    }
    fprintf(stream, "#     a dedicated lane when hot: %s\n", promotion);
    const lanes::Link* link = worker_->lanes().link_of(*this);
    if (link != nullptr) {
        fprintf(stream, "#     link: %s (%s), score %" PRIu64 "\n", lanes::name(link->state),
                lanes::name(link->reason), link->score());
    }
    fprintf(stream, "#     short messages: up to %zd bytes\n#\n",
            static_cast<ssize_t>(short_limit_));
}

}  // namespace ucp
