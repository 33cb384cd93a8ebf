// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/endpoint/ordered_lane.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace ucp {

OrderedLane::OrderedLane(const Lane& scalable, uint64_t sender, uint32_t epoch)
    : scalable_(scalable.endpoint),
      attributes_(scalable.attributes),
      domains_(scalable.domains),
      most_short_((scalable.attributes.capabilities & uct::kAmShort) != 0
                      ? std::min(scalable.attributes.am.max_short, kMostShort)
                      : 0),
      header_{.sender = sender, .epoch = epoch, .id = 0, .unused = {}} {
    auto& am = attributes_.am;
    for (size_t* const limit : {&am.max_bcopy, &am.max_long_bcopy})
        *limit -= std::min(*limit, sizeof(OrderedHeader));
    am.max_short = std::min(am.max_short, am.max_bcopy - std::min(am.max_bcopy, sizeof(uint64_t)));
    am.max_zcopy = 0;
    attributes_.capabilities &= ~uint32_t{uct::kAmZcopy};
}

struct OrderedLane::Short {
    OrderedHeader ordered;
    uint64_t header;
    const void* payload;
    uint32_t length;
};

size_t OrderedLane::pack_short(void* destination, void* arg) {
    const auto& message = *static_cast<Short*>(arg);
    auto* out = static_cast<std::byte*>(destination);
    std::memcpy(out, &message.ordered, sizeof(message.ordered));
    out += sizeof(message.ordered);
    std::memcpy(out, &message.header, sizeof(message.header));
    if (message.length != 0) {
        std::memcpy(out + sizeof(message.header), message.payload, message.length);
    }
    return sizeof(message.ordered) + sizeof(message.header) + message.length;
}

ucs_status_t OrderedLane::am_short(uint8_t id, uint64_t header, const void* payload,
                                   uint32_t length) {
    header_.id = id;
    Short message{header_, header, payload, length};
    const size_t size = sizeof(OrderedHeader) + sizeof(header) + length;
    if (size <= sizeof(uint64_t) + most_short_) {
        std::array<std::byte, sizeof(uint64_t) + kMostShort> bytes;
        pack_short(bytes.data(), &message);
        uint64_t first;
        std::memcpy(&first, bytes.data(), sizeof(first));
        return scalable_.am_short(static_cast<uint8_t>(AmId::kOrdered), first,
                                  bytes.data() + sizeof(first),
                                  static_cast<uint32_t>(size - sizeof(first)));
    }
    const ssize_t sent =
        scalable_.am_bcopy(static_cast<uint8_t>(AmId::kOrdered), pack_short, &message);
    return sent < 0 ? static_cast<ucs_status_t>(sent) : UCS_OK;
}

struct OrderedLane::Wrapped {
    OrderedHeader ordered;
    uct::PackCallback pack;
    void* arg;
};

size_t OrderedLane::pack_wrapped(void* destination, void* arg) {
    const auto& message = *static_cast<Wrapped*>(arg);
    std::memcpy(destination, &message.ordered, sizeof(message.ordered));
    auto* rest = static_cast<std::byte*>(destination) + sizeof(message.ordered);
    return sizeof(message.ordered) + message.pack(rest, message.arg);
}

ssize_t OrderedLane::am_bcopy(uint8_t id, uct::PackCallback pack, void* arg) {
    header_.id = id;
    Wrapped message{header_, pack, arg};
    const ssize_t sent =
        scalable_.am_bcopy(static_cast<uint8_t>(AmId::kOrdered), pack_wrapped, &message);
    return sent < 0 ? sent : sent - static_cast<ssize_t>(sizeof(OrderedHeader));
}

}  // namespace ucp
