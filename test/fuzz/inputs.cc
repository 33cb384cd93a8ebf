// SPDX-License-Identifier: BSD-3-Clause
#include "fuzz/inputs.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "fuzz/victim.h"
#include "ucp/lanes/messages.h"
#include "ucp/mem/packed_key.h"
#include "ucp/mem/remote_memory.h"
#include "ucp/select/worker_address.h"

namespace ucp::fuzz {

namespace {

// A copy of exactly the input's size, so that a sanitizer sees every read past it.
std::vector<std::byte> copy_of(std::span<const uint8_t> input) {
    const auto bytes = std::as_bytes(input);
    return {bytes.begin(), bytes.end()};
}

template <typename Value>
void put_at(std::vector<std::byte>& bytes, size_t offset, Value value) {
    std::memcpy(bytes.data() + offset, &value, sizeof(value));
}

bool repair_remote_key(std::vector<std::byte>& bytes) {
    if (bytes.size() < sizeof(PackedKeyHeader)) return false;
    put_at(bytes, 0, PackedKeyHeader::kMagic);
    put_at(bytes, offsetof(PackedKeyHeader, size), static_cast<uint32_t>(bytes.size()));
    put_at(bytes, offsetof(PackedKeyHeader, checksum),
           key_checksum(
               std::span<const std::byte>(bytes).subspan(offsetof(PackedKeyHeader, version))));
    return true;
}

void open_remote_key(Victim& victim, const std::vector<std::byte>& bytes) {
    PackedKey key;
    if (PackedKey::parse(bytes, &key) != UCS_OK) return;
    RemoteMemory remote;
    const DomainPair pairs[] = {{0, 0}, {0, 1}, {1, 0}};
    remote.open(victim.context().domains(), key, pairs);
    void* pointer = nullptr;
    remote.pointer(key.header().address, &pointer);
}

}  // namespace

bool repair_address(std::vector<std::byte>& bytes) {
    constexpr size_t kLength = 4, kChecksum = 8, kChecked = 12;
    if (bytes.size() < 32) return false;
    put_at(bytes, 0, uint32_t{0x41574c53});
    put_at(bytes, kLength, static_cast<uint32_t>(bytes.size()));
    uint64_t hash = 0xcbf29ce484222325u;
    for (const std::byte byte : std::span(bytes).subspan(kChecked))
        hash = (hash ^ std::to_integer<uint8_t>(byte)) * 0x100000001b3u;
    put_at(bytes, kChecksum, static_cast<uint32_t>(hash ^ (hash >> 32)));
    return true;
}

void read_address(std::span<const uint8_t> input) {
    std::vector<std::byte> bytes = copy_of(input);
    WorkerAddress address;
    unpack_address(bytes, &address);
    if (bytes.size() >= 8) packed_address_length(bytes.data());
    if (!repair_address(bytes)) return;
    Victim victim(Victim::Links::kScalable);
    victim.connect(bytes);
}

void read_remote_key(std::span<const uint8_t> input) {
    static Victim victim(Victim::Links::kScalable);
    std::vector<std::byte> bytes = copy_of(input);
    open_remote_key(victim, bytes);
    if (repair_remote_key(bytes)) open_remote_key(victim, bytes);
}

void read_messages(std::span<const uint8_t> input) {
    if (input.empty()) return;
    const uint8_t mode = input[0];
    Victim victim(static_cast<Victim::Links>(mode & 3));
    for (input = input.subspan(1); input.size() > 2;) {
        const uint8_t id = input[0];
        const size_t length = std::min<size_t>(input[1], input.size() - 2);
        std::vector<std::byte> bytes = copy_of(input.subspan(2, length));
        if ((mode & 0x80) != 0) victim.speak_to(bytes);
        victim.message(id, bytes);
        input = input.subspan(2 + length);
    }
    victim.settle();
}

void read_lane_message(std::span<const uint8_t> input) {
    const std::vector<uint8_t> bytes(input.begin(), input.end());
    lanes::Message message;
    if (lanes::decode(bytes, message) != UCS_OK) return;
    std::vector<uint8_t> again(lanes::encoded_size(message));
    if (lanes::encode(message, again) != again.size() || again != bytes) std::abort();
}

}  // namespace ucp::fuzz
