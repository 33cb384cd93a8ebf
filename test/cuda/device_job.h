// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "ucp/api/device/ucp_device_impl.h"

#ifndef __CUDACC__
#include <sched.h>
#endif

namespace cuda_test {

// What came of a job; in memory of the device.
struct JobResult {
    uint32_t errors = 0;       // bytes that were not what they should be, calls that failed
    uint64_t nanoseconds = 0;  // of all rounds but the first
    uint32_t is_over = 0;      // other blocks end
};

// What a kernel that communicates does: its argument.
struct DeviceJob {
    enum class What : uint32_t {
        kPut,       // put once and raise the counter
        kExchange,  // rounds to and fro: put, raise the peer's counter; each checks what came
        kMessages,  // the same for its time: nothing is filled in or checked
        kNumbered,  // as kExchange, with numbered messages and no counter
        kNumberedMessages,  // as kMessages
        kFlags,  // the least there is: a store into the peer's memory, and a loop that reads
    };

    What what = What::kPut;
    uint32_t rank = 0;  // 0 begins
    uint32_t rounds = 1;
    ucp_device_local_mem_list_h local = nullptr;
    ucp_device_remote_mem_list_h remote = nullptr;
    uint32_t source = 0, target = 0, counter = 1;  // elements of those
    uint64_t source_offset = 0, target_offset = 0, counter_offset = 0;
    uint64_t length = 0;
    uint64_t flags = UCP_DEVICE_FLAG_NODELAY;
    uint8_t* sent = nullptr;           // where the source's bytes are
    uint8_t* taken = nullptr;          // where numbered messages are taken to
    const uint8_t* arrived = nullptr;  // where the peer's puts go to
    uint64_t* counted = nullptr;       // the counter that the peer raises
    uint64_t noise = 0;  // bytes of the last elements that blocks but the first copy meanwhile
    JobResult* result = nullptr;
};

UCS_F_DEVICE uint64_t job_time() {
#ifdef __CUDA_ARCH__
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
#else
    return 0;
#endif
}

// Between looks at a word. A processor may have other work, such as the peer's kernel.
UCS_F_DEVICE void job_pause() {
#ifndef __CUDACC__
    (void)sched_yield();
#endif
}

UCS_F_DEVICE void job_error(const DeviceJob& job) {
#ifdef __CUDA_ARCH__
    atomicAdd(&job.result->errors, 1u);
#else
    ++job.result->errors;
#endif
}

UCS_F_DEVICE uint8_t job_byte(uint32_t round, uint64_t place) {
    return static_cast<uint8_t>(round * 37 + place * 11 + (place >> 8));
}

template <ucs_device_level_t level>
UCS_F_DEVICE void job_send(const DeviceJob& job) {
    ucp_device_request_t request;
    const ucs_status_t put =
        ucp_device_put<level>(job.local, job.source, job.source_offset, job.remote, job.target,
                              job.target_offset, job.length, 0, job.flags, &request);
    if (put != UCS_OK || ucp_device_progress_req<level>(&request) != UCS_OK) job_error(job);
    if (ucp_device_counter_inc<level>(1, job.remote, job.counter, job.counter_offset, 0, job.flags,
                                      nullptr) != UCS_OK)
        job_error(job);
}

template <ucs_device_level_t level>
UCS_F_DEVICE void job_wait(const DeviceJob& job, uint32_t round) {
    while (ucp_device_counter_read<level>(job.counted) < round) job_pause();
}

template <ucs_device_level_t level>
UCS_F_DEVICE void job_fill(const DeviceJob& job, uint32_t round) {
    using Team = ucp_device_team<level>;
    for (uint64_t i = Team::rank(); i < job.length; i += Team::size())
        job.sent[i] = job_byte(round, i);
    Team::sync();
}

template <ucs_device_level_t level>
UCS_F_DEVICE void job_check(const DeviceJob& job, const uint8_t* bytes, uint32_t round) {
    using Team = ucp_device_team<level>;
    for (uint64_t i = Team::rank(); i < job.length; i += Team::size())
        if (bytes[i] != job_byte(round, i)) job_error(job);
}

template <ucs_device_level_t level, bool kChecked>
UCS_F_DEVICE void job_exchange(const DeviceJob& job) {
    uint64_t begin = 0;
    for (uint32_t round = 1; round <= job.rounds; ++round) {
        if (job.rank == 1) job_wait<level>(job, round);
        if (kChecked && job.rank == 1) job_check<level>(job, job.arrived, round);
        if (kChecked) job_fill<level>(job, round);
        job_send<level>(job);
        if (job.rank == 0) job_wait<level>(job, round);
        if (kChecked && job.rank == 0) job_check<level>(job, job.arrived, round);
        if (round == 1) begin = job_time();
    }
    if (ucp_device_team<level>::rank() == 0) job.result->nanoseconds = job_time() - begin;
}

template <ucs_device_level_t level, bool kChecked>
UCS_F_DEVICE void job_take(const DeviceJob& job, uint32_t round) {
    while (ucpx_device_take_numbered<level>(job.arrived, round, job.taken, job.length) != UCS_OK)
        job_pause();
    ucp_device_team<level>::sync();
    if (kChecked) job_check<level>(job, job.taken, round);
}

template <ucs_device_level_t level, bool kChecked>
UCS_F_DEVICE void job_numbered(const DeviceJob& job) {
    uint64_t begin = 0;
    for (uint32_t round = 1; round <= job.rounds; ++round) {
        if (job.rank == 1) job_take<level, kChecked>(job, round);
        if (kChecked) job_fill<level>(job, round);
        if (ucpx_device_put_numbered<level>(job.local, job.source, job.source_offset, job.remote,
                                            job.target, job.target_offset, job.length,
                                            round) != UCS_OK)
            job_error(job);
        if (job.rank == 0) job_take<level, kChecked>(job, round);
        if (round == 1) begin = job_time();
    }
    if (ucp_device_team<level>::rank() == 0) job.result->nanoseconds = job_time() - begin;
}

// Keeps the links busy.
UCS_F_DEVICE void job_noise(const DeviceJob& job) {
#ifdef __CUDA_ARCH__
    const uint64_t part = job.noise / gridDim.x, place = part * blockIdx.x;
    while (*static_cast<volatile uint32_t*>(&job.result->is_over) == 0)
        (void)ucp_device_put<UCS_DEVICE_LEVEL_BLOCK>(job.local, 1, place, job.remote, 2, place,
                                                     part, 0, 0, nullptr);
#else
    (void)job;
#endif
}

UCS_F_DEVICE bool job_is_noise() {
#ifdef __CUDA_ARCH__
    return blockIdx.x != 0;
#else
    return false;
#endif
}

UCS_F_DEVICE void job_flags(const DeviceJob& job) {
    void* there = nullptr;
    if (ucp_device_get_ptr(job.remote, job.counter, &there) != UCS_OK) job_error(job);
    auto* const flag = static_cast<volatile uint64_t*>(there) + job.counter_offset / 8;
    const auto* const own = static_cast<const volatile uint64_t*>(job.counted);
    uint64_t begin = 0;
    for (uint32_t round = 1; round <= job.rounds; ++round) {
        if (job.rank == 0) *flag = round;
        while (*own < round) job_pause();
        if (job.rank == 1) *flag = round;
        if (round == 1) begin = job_time();
    }
    job.result->nanoseconds = job_time() - begin;
}

template <ucs_device_level_t level>
UCS_F_DEVICE void run_job(const DeviceJob& job) {
    if (job.noise != 0 && job_is_noise()) return job_noise(job);
    switch (job.what) {
        case DeviceJob::What::kPut:
            job_send<level>(job);
            break;
        case DeviceJob::What::kExchange:
            job_exchange<level, true>(job);
            break;
        case DeviceJob::What::kMessages:
            job_exchange<level, false>(job);
            break;
        case DeviceJob::What::kNumbered:
            job_numbered<level, true>(job);
            break;
        case DeviceJob::What::kNumberedMessages:
            job_numbered<level, false>(job);
            break;
        case DeviceJob::What::kFlags:
            if (ucp_device_team<level>::rank() == 0) job_flags(job);
            break;
    }
    job.result->is_over = 1;
}

}  // namespace cuda_test
