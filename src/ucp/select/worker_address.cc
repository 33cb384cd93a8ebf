// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/select/worker_address.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace ucp {
namespace {

// Layout, little-endian, packed:
//   magic 4, length 4 (of all), checksum 4 (of what follows), version 1, devices 1, name length 1,
//   features 1, uuid 8, host 8, name, devices.
// Device: domain 1, type 1, distance 2, address length 1, transports 1, address, transports.
// Transport: kind 4, bandwidth 2, latency 2, overhead 2, flags 1, interface length 1, interface.
// Costs are the upper halves of floats.
constexpr uint32_t kMagic = 0x41574c53;  // "SLWA"
constexpr uint8_t kVersion = 4;
constexpr size_t kHeader = 32;
constexpr size_t kMaxLength = 64 * 1024;
constexpr size_t kMaxEntries = 255;

enum Feature : uint8_t { kChecksums = 1 };

enum TransportFlag : uint8_t { kDedicated = 1u << 0, kAuxiliary = 1u << 1, kAllFlags = 3 };

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

uint16_t pack_cost(float cost) {
    return static_cast<uint16_t>(std::bit_cast<uint32_t>(wire_cost(cost)) >> 16);
}

// @return false for what pack_cost() does not write
bool unpack_cost(uint16_t packed, float* cost) {
    *cost = std::bit_cast<float>(uint32_t{packed} << 16);
    return std::isfinite(*cost) && !std::signbit(*cost);
}

bool share_device(const AddressEntry& left, const AddressEntry& right) {
    return left.domain == right.domain && left.device_type == right.device_type &&
           pack_cost(left.distance) == pack_cost(right.distance) &&
           std::ranges::equal(left.device, right.device);
}

}  // namespace

float wire_cost(double cost) {
    if (!(cost > 0)) return 0;
    constexpr float kMaxCost = 3e38f;
    const uint32_t bits =
        std::bit_cast<uint32_t>(static_cast<float>(std::min<double>(cost, kMaxCost)));
    const uint32_t rounded = bits + 0x8000;  // to the nearest; a carry into the exponent is right
    return std::bit_cast<float>(rounded & 0xffff0000);
}

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
    constexpr size_t kDevicesAt = 13;
    writer.put(uint8_t{0});
    writer.put(static_cast<uint8_t>(address.name.size()));
    writer.put(static_cast<uint8_t>(address.has_checksums ? kChecksums : 0));
    writer.put(address.uuid);
    writer.put(address.host);
    writer.append(address.name.data(), address.name.size());
    uint8_t devices = 0;
    for (auto first = address.entries.begin(); first != address.entries.end(); ++devices) {
        const auto last = std::find_if_not(first, address.entries.end(), [&](const auto& entry) {
            return share_device(*first, entry);
        });
        writer.put(first->domain);
        writer.put(static_cast<uint8_t>(first->device_type));
        writer.put(pack_cost(first->distance));
        writer.put(static_cast<uint8_t>(first->device.size()));
        writer.put(static_cast<uint8_t>(last - first));
        writer.put(first->device);
        for (; first != last; ++first) {
            const bool is_dedicated = first->reach == uct::Reach::kEndpoint;
            writer.put(first->kind);
            writer.put(pack_cost(first->bandwidth));
            writer.put(pack_cost(first->latency));
            writer.put(pack_cost(first->overhead));
            writer.put(static_cast<uint8_t>((is_dedicated ? kDedicated : 0) |
                                            (first->auxiliary ? kAuxiliary : 0)));
            writer.put(static_cast<uint8_t>(first->interface.size()));
            writer.put(first->interface);
        }
    }
    writer.put_at(kDevicesAt, devices);
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
    const auto devices = reader.get<uint8_t>();
    const auto name_length = reader.get<uint8_t>();
    const auto features = reader.get<uint8_t>();
    if (version != kVersion || features > kChecksums) return UCS_ERR_INVALID_ADDR;
    address->has_checksums = (features & kChecksums) != 0;
    address->uuid = reader.get<uint64_t>();
    address->host = reader.get<uint64_t>();
    const auto name = reader.take(name_length);
    address->name = {reinterpret_cast<const char*>(name.data()), name.size()};
    address->entries.clear();
    if (!reader.ok() || address->uuid == 0) return UCS_ERR_INVALID_ADDR;
    for (unsigned device = 0; device < devices; ++device) {
        AddressEntry entry;
        entry.domain = reader.get<uint8_t>();
        const auto type = reader.get<uint8_t>();
        bool is_sound = unpack_cost(reader.get<uint16_t>(), &entry.distance);
        const auto device_length = reader.get<uint8_t>();
        const auto transports = reader.get<uint8_t>();
        entry.device = reader.take(device_length);
        entry.device_type = static_cast<uct::DeviceType>(type);
        if (transports == 0 || type > static_cast<uint8_t>(uct::DeviceType::kAccelerator)) {
            return UCS_ERR_INVALID_ADDR;
        }
        for (unsigned index = 0; index < transports; ++index) {
            entry.kind = reader.get<uint32_t>();
            is_sound &= unpack_cost(reader.get<uint16_t>(), &entry.bandwidth);
            is_sound &= unpack_cost(reader.get<uint16_t>(), &entry.latency);
            is_sound &= unpack_cost(reader.get<uint16_t>(), &entry.overhead);
            const auto flags = reader.get<uint8_t>();
            entry.reach =
                (flags & kDedicated) != 0 ? uct::Reach::kEndpoint : uct::Reach::kInterface;
            entry.auxiliary = (flags & kAuxiliary) != 0;
            entry.interface = reader.take(reader.get<uint8_t>());
            if (!reader.ok() || !is_sound || (flags & ~kAllFlags) != 0 ||
                address->entries.size() >= kMaxEntries) {
                return UCS_ERR_INVALID_ADDR;
            }
            address->entries.push_back(entry);
        }
    }
    return reader.ok() && reader.at_end() ? UCS_OK : UCS_ERR_INVALID_ADDR;
}

}  // namespace ucp
