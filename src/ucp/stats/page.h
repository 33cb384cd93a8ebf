// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace ucp::stats {

// The page of statistics of one worker: what a running process shows to `swiftlane top` and others
// of the same user. An anonymous file of shared memory that its process holds open under kFileName,
// so that nothing is left of it when the process has gone, however that came about. The worker
// writes, others read; docs/observability.md says what the fields mean.
//
// The layout is that of one version and of this machine's byte order: a reader takes no other. It
// holds no pointers, and no reader believes a count in it.

inline constexpr char kFileName[] = "swiftlane-stats";
inline constexpr uint64_t kMagic = 0x7374617473'6c77;  // "wlstats"
inline constexpr uint32_t kVersion = 1;
inline constexpr size_t kMaxEndpoints = 64;
inline constexpr size_t kMaxTransports = 16;
inline constexpr uint8_t kNoTransport = 0xff;

// Written once, but for the sequence.
struct PageHeader {
    uint64_t magic;
    uint32_t version;
    uint32_t size;        // of the page, in bytes
    uint64_t start_time;  // of the process: with its number the name of one process for good
    uint32_t pid;         // as the process knows it
    uint32_t reserved;
    uint64_t sequence;  // odd while the rest is being written; grows
};

struct TransportRecord {
    char name[16];  // ends with a zero, as all texts
    char device[32];
    uint64_t endpoints_made;   // so far, closed ones included
    uint64_t retransmissions;  // packets that the transport's software has sent again
};

// The lane that an endpoint's messages take, and why.
struct EndpointRecord {
    enum Flag : uint32_t {
        kFailed = 1u << 0,
        kUsers = 1u << 1,     // the program made it; else it is the library's own
        kHasLink = 1u << 2,   // state, reason, scores and switches are those of its link
        kMeasured = 1u << 3,  // the rates are known
    };

    uint64_t peer;  // worker id
    uint64_t local_score, advertised_score, remote_score;
    double messages_per_second, bytes_per_second;  // sent
    int64_t state_since;                           // CLOCK_MONOTONIC, nanoseconds
    uint32_t promotions, demotions, denials;
    uint32_t waiting;  // requests in the send queue, counted up to kMaxWaiting
    uint32_t flags;
    uint8_t state;   // ucpx_lane_state_t
    uint8_t reason;  // ucpx_lane_reason_t
    uint8_t lane;    // of messages: index of a transport, or kNoTransport
    uint8_t other;   // the dedicated lane on its way up or down, or kNoTransport
};
inline constexpr uint32_t kMaxWaiting = 100;

struct WorkerRecord {
    char name[64];
    uint64_t id;
    uint64_t context;           // the same for workers that share registered memory
    int64_t made, filled;       // CLOCK_MONOTONIC, nanoseconds
    uint64_t fills;             // so far, this one included
    uint64_t endpoints, links;  // all
    uint64_t cap, dedicated, dedicated_peak;
    uint64_t promotions, demotions, failures;
    uint64_t requests, denials_sent, denials_received, withdrawals, violations;
    uint64_t replays, held_messages;
    uint64_t windows, samples;              // of the usage tracker
    uint64_t regions, region_bytes;         // mapped for peers
    uint64_t cached_regions, cached_bytes;  // registrations that are kept
    uint64_t registrations_made, registrations_found;
    uint32_t transport_count, endpoint_count;  // of the entries that follow
    TransportRecord transports[kMaxTransports];
    EndpointRecord entries[kMaxEndpoints];  // the highest scores first
};

struct Page {
    PageHeader head;
    WorkerRecord worker;
};

static_assert(std::is_trivially_copyable_v<Page>);
static_assert(sizeof(PageHeader) == 40 && sizeof(TransportRecord) == 64 &&
              sizeof(EndpointRecord) == 80 &&
              sizeof(WorkerRecord) == 64 + 28 * 8 + 2 * 4 + 16 * 64 + 64 * 80);

}  // namespace ucp::stats
