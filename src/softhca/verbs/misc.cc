// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>

#include "softhca/adapter/abi.h"

// Small functions whose answer is the same for every emulated device.

SOFTHCA_API int ibv_fork_init() {
    return 0;
}
SOFTHCA_API ibv_fork_status ibv_is_fork_initialized() {
    return IBV_FORK_UNNEEDED;
}
SOFTHCA_API int ibv_dontfork_range(void*, size_t) {
    return 0;
}
SOFTHCA_API int ibv_dofork_range(void*, size_t) {
    return 0;
}

SOFTHCA_API const char* ibv_get_sysfs_path() {
    return "/sys";
}

// Emulated devices have no files in sysfs.
SOFTHCA_API int ibv_read_sysfs_file(const char*, const char*, char*, size_t) {
    errno = ENOENT;
    return -1;
}
SOFTHCA_API int ibv_read_ibdev_sysfs_file(char*, size_t, void*, const char*, ...) {
    errno = ENOENT;
    return -1;
}

// Of the private interface to drivers: the number of attributes a kernel command would get.
// NOLINTNEXTLINE(bugprone-reserved-identifier)
SOFTHCA_API unsigned __ioctl_final_num_attrs(unsigned, void*) {
    return 0;
}
extern "C" __attribute__((visibility("default"))) bool verbs_allow_disassociate_destroy;
bool verbs_allow_disassociate_destroy = false;

namespace {

struct Rate {
    ibv_rate rate;
    int mult;  // of 2.5 Gb/s; -1 where it is none
    int mbps;
};

constexpr Rate kRates[] = {
    {IBV_RATE_2_5_GBPS, 1, 2500},       {IBV_RATE_5_GBPS, 2, 5000},
    {IBV_RATE_10_GBPS, 4, 10000},       {IBV_RATE_20_GBPS, 8, 20000},
    {IBV_RATE_30_GBPS, 12, 30000},      {IBV_RATE_40_GBPS, 16, 40000},
    {IBV_RATE_60_GBPS, 24, 60000},      {IBV_RATE_80_GBPS, 32, 80000},
    {IBV_RATE_120_GBPS, 48, 120000},    {IBV_RATE_14_GBPS, 5, 14062},
    {IBV_RATE_28_GBPS, 11, 28125},      {IBV_RATE_50_GBPS, 20, 53125},
    {IBV_RATE_56_GBPS, 22, 56250},      {IBV_RATE_112_GBPS, 45, 112500},
    {IBV_RATE_168_GBPS, 67, 168750},    {IBV_RATE_25_GBPS, 10, 25781},
    {IBV_RATE_100_GBPS, 41, 103125},    {IBV_RATE_200_GBPS, 82, 206250},
    {IBV_RATE_300_GBPS, 123, 309375},   {IBV_RATE_400_GBPS, 170, 425000},
    {IBV_RATE_600_GBPS, 255, 637500},   {IBV_RATE_800_GBPS, 340, 850000},
    {IBV_RATE_1200_GBPS, 510, 1275000},
};

constexpr const char* kStatus[] = {
    "success",
    "local length error",
    "local QP operation error",
    "local EE context operation error",
    "local protection error",
    "Work Request Flushed Error",
    "memory management operation error",
    "bad response error",
    "local access error",
    "remote invalid request error",
    "remote access error",
    "remote operation error",
    "transport retry counter exceeded",
    "RNR retry counter exceeded",
    "local RDD violation error",
    "remote invalid RD request",
    "aborted error",
    "invalid EE context number",
    "invalid EE context state",
    "fatal error",
    "response timeout error",
    "general error",
    "TM error",
    "TM software rendezvous",
};

constexpr const char* kEvents[] = {
    "CQ error",
    "local work queue catastrophic error",
    "invalid request local work queue error",
    "local access violation work queue error",
    "communication established",
    "send queue drained",
    "path migrated",
    "path migration request error",
    "local catastrophic error",
    "port active",
    "port error",
    "LID change",
    "P_Key change",
    "SM change",
    "SRQ catastrophic error",
    "SRQ limit reached",
    "last WQE reached",
    "client reregistration",
    "GID table change",
    "WQ fatal",
};

constexpr const char* kPortStates[] = {"no state change (NOP)", "down", "init", "armed", "active",
                                       "active deferred"};

constexpr const char* kNodeTypes[] = {"unknown",   "channel adapter", "switch",    "router",
                                      "iWARP NIC", "usNIC",           "usNIC UDP", "unspecified"};

// What stands beside a value in the table of rates; `otherwise` where that is not in it.
template <typename From, typename To>
To beside(From Rate::*from, From value, To Rate::*to, To otherwise) {
    for (const Rate& rate : kRates) {
        if (rate.*from == value) return rate.*to;
    }
    return otherwise;
}

template <size_t N>
const char* name(const char* const (&names)[N], int value) {
    return value >= 0 && size_t(value) < N ? names[value] : "unknown";
}

}  // namespace

SOFTHCA_API const char* ibv_wc_status_str(ibv_wc_status status) {
    return name(kStatus, status);
}
SOFTHCA_API const char* ibv_event_type_str(ibv_event_type event) {
    return name(kEvents, event);
}
SOFTHCA_API const char* ibv_port_state_str(ibv_port_state state) {
    return name(kPortStates, state);
}
SOFTHCA_API const char* ibv_node_type_str(ibv_node_type type) {
    return name(kNodeTypes, type);
}

SOFTHCA_API int ibv_rate_to_mult(ibv_rate rate) {
    return beside(&Rate::rate, rate, &Rate::mult, -1);
}
SOFTHCA_API ibv_rate mult_to_ibv_rate(int mult) {
    return beside(&Rate::mult, mult, &Rate::rate, IBV_RATE_MAX);
}
SOFTHCA_API int ibv_rate_to_mbps(ibv_rate rate) {
    return beside(&Rate::rate, rate, &Rate::mbps, -1);
}
SOFTHCA_API ibv_rate mbps_to_ibv_rate(int mbps) {
    return beside(&Rate::mbps, mbps, &Rate::rate, IBV_RATE_MAX);
}
