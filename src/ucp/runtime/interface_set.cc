// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/runtime/interface_set.h"

#include <algorithm>

#include "ucs/log/log.h"

namespace ucp {
namespace {

/** Messages of a worker to itself are there when the call that sent them returns. */
bool can_wake(const uct::InterfaceAttributes& attributes) {
    return (attributes.capabilities & uct::kEventFd) != 0 ||
           attributes.device_type == uct::DeviceType::kSelf;
}

ucs_status_t drop_message(void*, void*, size_t length, uct::ReceiveDescriptor*) {
    ucs::log_warn("a message of {} bytes and unknown kind was dropped", length);
    return UCS_OK;
}

}  // namespace

InterfaceSet::InterfaceSet() {
    handlers_.entries.fill({drop_message, nullptr});
}

void InterfaceSet::deliver(uint8_t id, void* data, size_t length) {
    const uct::AmTable::Entry& entry = handlers_.entries[id % uct::kMaxAmId];
    entry.handler(entry.arg, data, length, nullptr);
}

ucs_status_t InterfaceSet::open_one(Context& context, unsigned index,
                                    const uct::InterfaceParams& params) {
    const TransportResource& resource = context.resources()[index];
    WorkerInterface interface;
    interface.resource = index;
    interface.domain = resource.domain;
    interface.kind = resource.kind;
    // Steps of virtual time are counted.
    interface.may_rest =
        resource.device_type == uct::DeviceType::kNetwork && !context.virtual_time();
    const ucs_status_t status = context.domains()[resource.domain].memory->open_interface(
        resource.transport, params, &interface.transport);
    if (status != UCS_OK) {
        ucs::log_warn("{} on {} cannot be opened: {}", resource.transport, resource.device,
                      ucs_status_string(status));
        return status;
    }
    const auto& attributes = interface.transport->attributes();
    if (context.has_feature(UCP_FEATURE_WAKEUP) && !can_wake(attributes)) {
        ucs::log_info("{} on {} is left out: it can wake nobody, and the program wants to sleep",
                      resource.transport, resource.device);
        return UCS_ERR_UNSUPPORTED;
    }
    interfaces_.push_back(std::move(interface));
    return UCS_OK;
}

ucs_status_t InterfaceSet::open(Context& context, uint64_t uuid, ucs::Random& random,
                                const ErrorHandler& errors) {
    DomainLock lock(context.domains());
    const uct::InterfaceParams params{context.clock(),
                                      random,
                                      handlers_,
                                      errors.callback,
                                      errors.self,
                                      uuid,
                                      context.estimated_endpoints()};
    for (unsigned index = 0; index < context.resources().size(); ++index)
        open_one(context, index, params);
    for (WorkerInterface& interface : interfaces_) {
        const bool is_network =
            interface.transport->attributes().device_type == uct::DeviceType::kNetwork;
        (is_network ? networks_ : memories_).push_back(&interface);
    }
    const bool has_scalable = std::ranges::any_of(interfaces_, [](const auto& interface) {
        return interface.transport->attributes().reach == uct::Reach::kInterface;
    });
    if (!has_scalable) {
        ucs::log_error("no scalable transport works here: UCX_TLS must admit one, dc_mlx5 say");
        return UCS_ERR_NO_DEVICE;
    }
    // The same word must not be updated by an adapter and by a CPU: each would miss the other's.
    const AtomicMode mode = context.config().atomics;
    uses_device_atomics_ = mode == AtomicMode::kDevice;
    if (mode == AtomicMode::kGuess) {
        uses_device_atomics_ = std::ranges::none_of(interfaces_, [](const auto& interface) {
            return (interface.transport->attributes().capabilities & uct::kAtomicCpu) != 0;
        });
    }
    return UCS_OK;
}

size_t InterfaceSet::least_bcopy() const {
    size_t least = SIZE_MAX;
    for (const WorkerInterface& interface : interfaces_)
        least = std::min(least, interface.transport->attributes().am.max_bcopy);
    return least - std::min(least, sizeof(OrderedHeader));  // an OrderedLane takes that much less
}

// To poll an adapter costs many times what a look into shared memory does. One that has had nothing
// for long is polled seldom: its next message waits for a few more calls, which is little beside
// the time that it has been silent.
unsigned InterfaceSet::poll_networks() {
    constexpr uint32_t kQuietPolls = 4096, kSeldom = 16;
    unsigned events = 0;
    for (WorkerInterface* interface : networks_) {
        if (interface->quiet >= kQuietPolls && ++interface->quiet % kSeldom != 0) continue;
        const unsigned found = interface->transport->progress();
        events += found;
        if (interface->may_rest) interface->quiet = found != 0 ? 0 : interface->quiet + 1;
    }
    return events;
}

// The queues in memory that the last messages came through are looked at first, and if there are
// more, mostly alone: the answer to a message need not wait for looks elsewhere. A call that finds
// nothing has looked at all queues in memory; at networks behind look_everywhere().
unsigned InterfaceSet::poll() {
    constexpr uint32_t kAlone = 4;
    uct::Interface* const busy = busy_;
    unsigned events = 0;
    if (busy != nullptr) {
        events = busy->progress();
        if (events != 0 && ++polled_alone_ % kAlone != 0) return events;
    }
    for (WorkerInterface* interface : memories_) {
        uct::Interface& transport = *interface->transport;
        if (&transport == busy) continue;
        const unsigned found = transport.progress();
        if (found == 0) continue;
        events += found;
        if (transport.attributes().device_type == uct::DeviceType::kSharedMemory)
            busy_ = &transport;
    }
    return networks_.empty() ? events : events + poll_networks();
}

void InterfaceSet::look_everywhere() {
    for (WorkerInterface& interface : interfaces_) {
        interface.quiet = 0;
        interface.transport->look_soon();
    }
}

ucs::Time InterfaceSet::next_deadline() const {
    ucs::Time next = ucs::kNever;
    for (const WorkerInterface& interface : interfaces_)
        next = std::min(next, interface.transport->next_deadline());
    return next;
}

}  // namespace ucp
