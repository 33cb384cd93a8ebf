// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/base/port_tables.h"

#include <cstring>

namespace uct::ib {

namespace {

bool is_mapped_ipv4(const ibv_gid& gid) {
    static constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return std::memcmp(gid.raw, kMapped, sizeof(kMapped)) == 0;
}

/** Of fe80::/10. */
bool is_link_local(const ibv_gid& gid) {
    return gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80;
}

int rank(const ibv_gid_entry& entry) {
    const int version = entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? 3 : 0;
    if (is_mapped_ipv4(entry.gid)) return version + 2;
    return version + (is_link_local(entry.gid) ? 0 : 1);
}

}  // namespace

const ibv_gid_entry* preferred_gid(std::span<const ibv_gid_entry> table) {
    const ibv_gid_entry* best = nullptr;
    for (const ibv_gid_entry& entry : table) {
        if (best == nullptr || rank(entry) > rank(*best)) best = &entry;
    }
    return best;
}

std::optional<uint16_t> find_partition(std::span<const uint16_t> table,
                                       std::optional<unsigned> wanted) {
    constexpr unsigned kKey = 0x7fff;
    for (size_t i = 0; i < table.size(); ++i) {
        const unsigned key = table[i] & kKey;
        if (wanted ? key == (*wanted & kKey) : key != 0) return static_cast<uint16_t>(i);
    }
    if (wanted) return {};
    return uint16_t{0};
}

}  // namespace uct::ib
