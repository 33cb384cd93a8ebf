// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "ucs/config/table.h"
#include "ucs/config/values.h"
#include "ucs/sys/time.h"

namespace ucp {

enum class RndvScheme : uint8_t { kAuto, kGet, kPut, kAm };

// UCX_COSTS: where the costs of the machine's processors come from (docs/design/selection.md).
enum class CostSource : uint8_t {
    kFixed,
    kMeasured,
    kAdapted,  // the same, and what messages within a host that are alone turn out to take
    kKept,     // measured once, and kept in the user's cache folder
    kLearned,  // the same, and what messages turn out to take
    kFile,
};
struct CostChoice {
    CostChoice(CostSource from = CostSource::kAdapted)
        : source(from) {}  // NOLINT(google-explicit-constructor)

    CostSource source;
    std::string file;  // of kFile
};

// UCX_LANES: which lanes endpoints may use.
enum class LaneMode : uint8_t {
    kDynamic,    // scalable, and dedicated for the hottest, within the cap
    kScalable,   // scalable only
    kDedicated,  // every endpoint asks for a dedicated lane at once, without a cap, and keeps it
};

// UCX_ATOMIC_MODE: who executes atomics, where an adapter's are not atomic with the CPU's.
enum class AtomicMode : uint8_t {
    kGuess,   // the CPU, if a transport of the worker has it do so; else the adapter
    kCpu,     // the CPU that owns the memory
    kDevice,  // the adapter
};

inline constexpr auto kSlowest = std::chrono::hours(1);  // interval that scores are held for

// UCX_CHECKSUM: by what receivers see that a message is what was sent.
enum class Checksum : uint8_t { kNone, kCrc32c };

// The variables of the protocol layer. Defaults, bounds and help texts stand in kConfigTable.
struct Config {
    ucs::config::AllowList transports;
    ucs::config::AllowList net_devices;
    ucs::config::AllowList shared_memory_devices;
    ucs::config::AllowList self_devices;
    ucs::config::AllowList accelerator_devices;
    std::optional<size_t> estimated_endpoints;
    std::optional<size_t> processes_on_host;
    unsigned max_rails = 0;
    double max_rail_ratio = 0;
    bool prefer_nearest = false;
    std::optional<ucs::config::MemorySize> bcopy_threshold;
    std::optional<ucs::config::MemorySize> zcopy_threshold;
    std::optional<ucs::config::MemorySize> rndv_threshold;
    ucs::config::MemorySize eager_max{};
    ucs::config::MemorySize eager_max_host{};
    std::optional<ucs::config::MemorySize> peer_memory;  // auto: a quarter of the machine's
    Checksum checksum = Checksum::kNone;
    bool has_checksums() const { return checksum != Checksum::kNone; }
    RndvScheme rndv_scheme = RndvScheme::kAuto;
    CostChoice costs;
    bool shows_protocols = false;
    bool shows_statistics = false;
    std::string trace;
    LaneMode lanes = LaneMode::kDynamic;
    AtomicMode atomics = AtomicMode::kGuess;
    ucs::config::Ternary registration_cache = ucs::config::Ternary::kTry;
    size_t cached_regions = 0;
    ucs::config::MemorySize cached_bytes{};
    bool memory_events = false;

    ucs::Duration switch_interval{};
    unsigned progress_factor = 0;
    unsigned max_priority_endpoints = 0;
    unsigned max_host_lanes = 0;
    double hysteresis_margin = 0;
    double confidence = 0;
    ucs::Duration min_residence{};
    double sample_duty = 0;
    unsigned sample_windows = 0;
    double min_score = 0;    // nanoseconds saved a second
    double score_decay = 0;  // per interval
    unsigned score_trend = 0;
    unsigned trickle_ratio = 0;
    std::optional<ucs::config::MemorySize> bytes_per_message;
    std::optional<ucs::Duration> score_hold;
    ucs::Duration hold() const {
        return score_hold.value_or(1200 * std::min<ucs::Duration>(switch_interval, kSlowest));
    }
    unsigned switch_window = 0;
    ucs::Duration lane_patience{};
    unsigned max_parked_lanes = 0;
    ucs::Duration lane_keep{};

    std::optional<ucs::config::MemorySize> bulk_threshold;
    ucs::config::MemorySize bulk_slice_size{};
    ucs::config::MemorySize bulk_fragment_limit{};
    ucs::config::MemorySize bulk_window{};
    unsigned bulk_max_wr_per_post = 0;
    std::optional<unsigned> bulk_max_rails;
    unsigned bulk_max_retries = 0;
    ucs::Duration bulk_stall_timeout{};
    ucs::Duration bulk_retry_interval{};
    ucs::Duration bulk_cut_timeout{};

    unsigned bulk_workers = 0;
    unsigned bulk_shards = 0;
    unsigned bulk_qps = 0;
    std::optional<unsigned> max_dedicated_qps;
    std::optional<unsigned> max_adapter_qps;  // of all processes of the host
    // Queue pairs of promoted endpoints, lanes and those for bulk together; UINT32_MAX: any
    // number.
    unsigned dedicated_qps() const {
        return max_dedicated_qps.value_or(
            lanes == LaneMode::kDedicated ? UINT32_MAX : 10 * max_priority_endpoints);
    }

    ucs::Duration keepalive_interval{};
    unsigned keepalive_endpoints = 0;  // at each interval; 0: none
};

extern const ucs::config::Table<Config> kConfigTable;

}  // namespace ucp

namespace ucs::config {

template <>
struct EnumNames<ucp::RndvScheme> {
    static constexpr EnumName<ucp::RndvScheme> kNames[] = {
        {"auto", ucp::RndvScheme::kAuto},     {"get_zcopy", ucp::RndvScheme::kGet},
        {"put_zcopy", ucp::RndvScheme::kPut}, {"am", ucp::RndvScheme::kAm},
        {"get", ucp::RndvScheme::kGet},       {"put", ucp::RndvScheme::kPut},
    };
};

template <>
struct EnumNames<ucp::CostSource> {
    static constexpr EnumName<ucp::CostSource> kNames[] = {
        {"fixed", ucp::CostSource::kFixed},   {"measured", ucp::CostSource::kMeasured},
        {"adapt", ucp::CostSource::kAdapted}, {"keep", ucp::CostSource::kKept},
        {"learn", ucp::CostSource::kLearned},
    };
};

// One of the names, or the path of a file.
template <>
struct Codec<ucp::CostChoice> {
    static bool parse(std::string_view text, ucp::CostChoice& value) {
        ucp::CostChoice parsed;
        if (text.starts_with('/')) {
            parsed.source = ucp::CostSource::kFile;
            parsed.file = text;
        } else if (!Codec<ucp::CostSource>::parse(text, parsed.source)) {
            return false;
        }
        value = parsed;
        return true;
    }
    static std::string print(const ucp::CostChoice& value) {
        return value.source == ucp::CostSource::kFile ? value.file
                                                      : Codec<ucp::CostSource>::print(value.source);
    }
    static std::string expected() {
        return Codec<ucp::CostSource>::expected() + ", or the path of a file";
    }
};

template <>
struct EnumNames<ucp::AtomicMode> {
    static constexpr EnumName<ucp::AtomicMode> kNames[] = {
        {"guess", ucp::AtomicMode::kGuess},
        {"cpu", ucp::AtomicMode::kCpu},
        {"device", ucp::AtomicMode::kDevice},
    };
};

template <>
struct EnumNames<ucp::Checksum> {
    static constexpr EnumName<ucp::Checksum> kNames[] = {
        {"none", ucp::Checksum::kNone},
        {"crc32c", ucp::Checksum::kCrc32c},
    };
};

template <>
struct EnumNames<ucp::LaneMode> {
    static constexpr EnumName<ucp::LaneMode> kNames[] = {
        {"dynamic", ucp::LaneMode::kDynamic},
        {"scalable", ucp::LaneMode::kScalable},
        {"dedicated", ucp::LaneMode::kDedicated},
    };
};

}  // namespace ucs::config
