// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/core/address.h"

#include <cmath>
#include <cstring>

namespace ucp {
namespace {

// Layout, little-endian, packed:
//   magic 4, length 4 (of all), checksum 4 (of what follows), version 1, entries 1, name length 1,
//   reserved 1, uuid 8, host 8, name, entries.
// Entry: kind 4, bandwidth 4, latency 4 (floats), domain 1, device type 1, reach 1, reserved 1,
//   device length 2, interface length 2, device, interface.
constexpr uint32_t kMagic = 0x41574c53;  // "SLWA"
constexpr uint8_t kVersion = 1;
constexpr size_t kHeader = 32;
constexpr size_t kMaxLength = 64 * 1024;

uint32_t checksum(std::span<const std::byte> bytes) {
    uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
    for (const std::byte byte : bytes) {
        hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3u;
    }
    return static_cast<uint32_t>(hash ^ (hash >> 32));
}

class Writer {
  public:
    template <typename T>
    void put(T value) {
        append(&value, sizeof(value));
    }
    void put(std::span<const std::byte> bytes) { append(bytes.data(), bytes.size()); }
    void append(const void* data, size_t length) {
        const auto* bytes = static_cast<const std::byte*>(data);
        bytes_.insert(bytes_.end(), bytes, bytes + length);
    }
    template <typename T>
    void put_at(size_t offset, T value) {
        std::memcpy(bytes_.data() + offset, &value, sizeof(value));
    }
    std::vector<std::byte>& bytes() { return bytes_; }

  private:
    std::vector<std::byte> bytes_;
};

class Reader {
  public:
    explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

    template <typename T>
    T get() {
        T value{};
        const auto part = take(sizeof(value));
        if (part.size() == sizeof(value)) std::memcpy(&value, part.data(), sizeof(value));
        return value;
    }
    std::span<const std::byte> take(size_t length) {
        if (length > bytes_.size()) {
            ok_ = false;
            return {};
        }
        const auto part = bytes_.first(length);
        bytes_ = bytes_.subspan(length);
        return part;
    }
    bool ok() const { return ok_; }
    bool at_end() const { return bytes_.empty(); }

  private:
    std::span<const std::byte> bytes_;
    bool ok_ = true;
};

}  // namespace

uint32_t kind_of(std::string_view name) {
    uint32_t hash = 2166136261u;  // FNV-1a
    for (const char letter : name) hash = (hash ^ static_cast<uint8_t>(letter)) * 16777619u;
    return hash;
}

std::vector<std::byte> pack_address(const WorkerAddress& address) {
    Writer writer;
    writer.put(kMagic);
    writer.put(uint32_t{0});
    writer.put(uint32_t{0});
    writer.put(kVersion);
    writer.put(static_cast<uint8_t>(address.entries.size()));
    writer.put(static_cast<uint8_t>(address.name.size()));
    writer.put(uint8_t{0});
    writer.put(address.uuid);
    writer.put(address.host);
    writer.append(address.name.data(), address.name.size());
    for (const AddressEntry& entry : address.entries) {
        writer.put(entry.kind);
        writer.put(entry.bandwidth);
        writer.put(entry.latency);
        writer.put(entry.domain);
        writer.put(static_cast<uint8_t>(entry.device_type));
        writer.put(static_cast<uint8_t>(entry.reach));
        writer.put(uint8_t{0});
        writer.put(static_cast<uint16_t>(entry.device.size()));
        writer.put(static_cast<uint16_t>(entry.interface.size()));
        writer.put(entry.device);
        writer.put(entry.interface);
    }
    writer.put_at(4, static_cast<uint32_t>(writer.bytes().size()));
    writer.put_at(8, checksum(std::span(writer.bytes()).subspan(12)));
    return std::move(writer.bytes());
}

size_t packed_address_length(const void* packed) {
    uint32_t words[2];
    std::memcpy(words, packed, sizeof(words));
    if (words[0] != kMagic || words[1] < kHeader || words[1] > kMaxLength) return 0;
    return words[1];
}

ucs_status_t unpack_address(std::span<const std::byte> room, WorkerAddress* address) {
    if (room.size() < kHeader) return UCS_ERR_INVALID_ADDR;
    const size_t length = packed_address_length(room.data());
    if (length == 0 || length > room.size()) return UCS_ERR_INVALID_ADDR;
    Reader reader(room.first(length));
    reader.take(8);
    if (reader.get<uint32_t>() != checksum(room.subspan(12, length - 12))) {
        return UCS_ERR_INVALID_ADDR;
    }
    const auto version = reader.get<uint8_t>();
    const auto entries = reader.get<uint8_t>();
    const auto name_length = reader.get<uint8_t>();
    const auto reserved = reader.get<uint8_t>();
    if (version != kVersion || reserved != 0) return UCS_ERR_INVALID_ADDR;
    address->uuid = reader.get<uint64_t>();
    address->host = reader.get<uint64_t>();
    const auto name = reader.take(name_length);
    address->name = {reinterpret_cast<const char*>(name.data()), name.size()};
    address->entries.clear();
    if (!reader.ok() || address->uuid == 0) return UCS_ERR_INVALID_ADDR;
    for (unsigned index = 0; index < entries; ++index) {
        AddressEntry entry;
        entry.kind = reader.get<uint32_t>();
        entry.bandwidth = reader.get<float>();
        entry.latency = reader.get<float>();
        entry.domain = reader.get<uint8_t>();
        const auto device_type = reader.get<uint8_t>();
        const auto reach = reader.get<uint8_t>();
        const auto entry_reserved = reader.get<uint8_t>();
        const auto device_length = reader.get<uint16_t>();
        const auto interface_length = reader.get<uint16_t>();
        entry.device = reader.take(device_length);
        entry.interface = reader.take(interface_length);
        if (!reader.ok() || entry_reserved != 0 ||
            device_type > static_cast<uint8_t>(uct::DeviceType::kAccelerator) ||
            reach > static_cast<uint8_t>(uct::Reach::kEndpoint) ||
            !std::isfinite(entry.bandwidth) || entry.bandwidth < 0 ||
            !std::isfinite(entry.latency) || entry.latency < 0) {
            return UCS_ERR_INVALID_ADDR;
        }
        entry.device_type = static_cast<uct::DeviceType>(device_type);
        entry.reach = static_cast<uct::Reach>(reach);
        address->entries.push_back(entry);
    }
    return reader.ok() && reader.at_end() ? UCS_OK : UCS_ERR_INVALID_ADDR;
}

}  // namespace ucp
