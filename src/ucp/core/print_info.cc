// SPDX-License-Identifier: BSD-3-Clause

// What ucp_*_print_info() write: text for people, and for runtimes that look for names in it.

#include <cinttypes>

#include "ucp/core/context.h"
#include "ucp/core/endpoint.h"
#include "ucp/core/worker.h"
#include "ucp/lanes/lane_driver.h"

namespace ucp {

void Context::print_info(FILE* stream) const {
    fprintf(stream, "#\n# Swiftlane context %s\n#\n", name_.c_str());
    for (size_t index = 0; index < domains_.size(); ++index) {
        fprintf(stream, "#            md %zu  :  component %.*s, device %s\n", index,
                static_cast<int>(domains_[index].component->name().size()),
                domains_[index].component->name().data(), domains_[index].device.c_str());
    }
    fprintf(stream, "#\n");
    for (size_t index = 0; index < resources_.size(); ++index) {
        const TransportResource& resource = resources_[index];
        fprintf(stream, "#      resource %zu  :  md %u, %s/%s\n", index, resource.domain,
                resource.transport.c_str(), resource.device.c_str());
    }
    fprintf(stream, "#\n");
}

void Worker::print_info(FILE* stream) const {
    fprintf(stream, "#\n# Swiftlane worker %s (%016" PRIx64 ")\n#\n", name_.c_str(), uuid_);
    fprintf(stream, "#     address: %zu bytes, endpoints: %zu\n", address_.size(), endpoint_count_);
    for (const WorkerInterface& interface : interfaces_) {
        const auto& attributes = interface.transport->attributes();
        const char* reach = attributes.reach == uct::Reach::kInterface ? "scalable" : "dedicated";
        fprintf(stream, "#     %s/%s: %s\n", attributes.transport.c_str(),
                attributes.device.c_str(), reach);
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
    const lanes::Link* link = worker_->lanes().link_of(*this);
    if (link != nullptr) {
        fprintf(stream, "#     link: %s (%s), score %" PRIu64 "\n", lanes::name(link->state),
                lanes::name(link->reason), link->score());
    }
    fprintf(stream, "#     short messages: up to %zd bytes\n#\n",
            static_cast<ssize_t>(short_limit_));
}

}  // namespace ucp
