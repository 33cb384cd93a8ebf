// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/proto/rndv/rndv_wire.h"

#include <cstring>

namespace ucp {

namespace {

// The key must speak of the memory that the message speaks of.
bool parse_key(std::span<const std::byte> bytes, uint64_t address, uint64_t length,
               PackedKey* key) {
    if (PackedKey::parse(bytes, key) != UCS_OK) return false;
    const PackedKeyHeader& header = key->header();
    return address >= header.address && address - header.address <= header.length &&
           length <= header.length - (address - header.address);
}

bool parse_export(std::span<const std::byte> bytes, uint64_t length,
                  ucs::MemoryExport* description) {
    if (bytes.size() != sizeof(*description)) return false;
    std::memcpy(description, bytes.data(), sizeof(*description));
    return description->offset <= description->size &&
           length <= description->size - description->offset;
}

}  // namespace

bool parse_announcement(std::span<const std::byte> bytes, Announcement* announcement) {
    RndvRts& rts = announcement->rts;
    std::span<const std::byte> rest;
    if (!read_header(bytes.data(), bytes.size(), &rts, &rest)) return false;
    if (rts.sender == 0 || rts.request == 0) return false;
    if (uint64_t{rts.key_length} + rts.export_length + rts.header_length != rest.size())
        return false;
    announcement->has_key = rts.key_length != 0;
    const auto described = rest.subspan(rts.key_length, rts.export_length);
    announcement->is_described_before = described.size() == sizeof(DescribedBefore);
    announcement->has_export = !described.empty() && !announcement->is_described_before;
    if (announcement->is_described_before)
        std::memcpy(&announcement->described, described.data(), sizeof(DescribedBefore));
    if (announcement->has_export && !parse_export(described, rts.length, &announcement->exported))
        return false;
    announcement->header = rest.subspan(size_t{rts.key_length} + rts.export_length);
    return !announcement->has_key ||
           PackedKey::parse_entries(rest.first(rts.key_length), rts.address, rts.length,
                                    &announcement->key) == UCS_OK;
}

bool parse_clear_to_send(std::span<const std::byte> bytes, ClearToSend* message) {
    RndvRtr& rtr = message->rtr;
    std::span<const std::byte> rest;
    if (!read_header(bytes.data(), bytes.size(), &rtr, &rest)) return false;
    if (rtr.request == 0 || rtr.receiver == 0 || rtr.from == 0) return false;
    if (rtr.offset >= rtr.end || uint64_t{rtr.key_length} + rtr.export_length != rest.size())
        return false;
    const uint64_t length = rtr.end - rtr.offset;
    message->has_key = rtr.key_length != 0;
    message->has_export = rtr.export_length != 0;
    if (message->has_export &&
        !parse_export(rest.subspan(rtr.key_length), length, &message->exported))
        return false;
    return !message->has_key ||
           parse_key(rest.first(rtr.key_length), rtr.address, length, &message->key);
}

bool parse_done(std::span<const std::byte> bytes, RndvDone* done) {
    return read_whole(bytes.data(), bytes.size(), done) && done->request != 0 &&
           done->status <= 0 && done->status > UCS_ERR_LAST;
}

}  // namespace ucp
