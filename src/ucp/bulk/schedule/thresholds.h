// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

// From which length on a message goes by rendezvous, so that its data moves when the receiver has a
// buffer for it. Pure: times and rates in, bytes out.
namespace ucp::bulk {

inline constexpr double kCopyBandwidth = 8e9;        //!< bytes per second, one copy by a processor
inline constexpr size_t kMinRendezvous = 8 * 1024;   //!< whatever the figures say
inline constexpr size_t kBulkThreshold = 64 * 1024;  //!< of a single device: a slice

/** What is known of an endpoint's devices. */
struct TransportCosts {
    double latency = 0;       //!< seconds, one way
    double overhead = 0;      //!< seconds of a processor for a message, at either end
    double registration = 0;  //!< seconds
    double bandwidth = 0;     //!< bytes per second, of the device that messages go over
    double together = 0;      //!< the same of all devices that share its data
    size_t slice = 65536;     //!< what one device takes of it at a time

    bool are_shared() const { return together > bandwidth; }
};

/**
 * For a message that its sender waits for: a rendezvous costs a round trip and a registration at
 * either end; an eager message costs a copy at either end, and what several devices save if the
 * message has slices for them.
 */
size_t rendezvous_threshold(const TransportCosts& costs);

/**
 * For one of several that are under way: the round trip goes on beside the others' data, so that
 * a rendezvous costs either end three messages and a registration. It pays where what several
 * devices save is twice as much. SIZE_MAX: never.
 */
size_t rendezvous_threshold_in_window(const TransportCosts& costs);

}  // namespace ucp::bulk
