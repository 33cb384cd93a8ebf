// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace tools {

// What one rank measured over one stretch of a program.
struct Sample {
    uint64_t size = 0;      // bytes of one message
    uint64_t messages = 0;  // that this rank sent
    int64_t elapsed = 0;    // nanoseconds; 0 if the rank only took part
    uint64_t rounds = 0;    // alltoall: complete exchanges
};

// Where a rank runs: a process of its own (bench) or one of many workers in a process on virtual
// time (sim). Everything that a rank program needs besides its worker.
class Host {
  public:
    // Nanoseconds since a start common to all ranks of the job.
    virtual int64_t now() = 0;

    // Barriers are out of band, so that they heat no link. Every rank enters each in turn;
    // `ticket` counts a rank's barriers from 1.
    virtual void barrier_enter(uint64_t ticket) = 0;
    virtual bool barrier_open(uint64_t ticket) = 0;

    // A finished measurement; every rank reports one per size, in the same order.
    virtual void report(const Sample& sample) = 0;

    // The rank does something else for so many nanoseconds: no progress. Rank::compute() calls it.
    virtual void compute(int64_t nanoseconds) = 0;

    // A message of this rank took so many nanoseconds to complete locally.
    virtual void completed(int64_t nanoseconds) = 0;

    // Messages that this rank sent since the last call, for live progress.
    virtual void progressed(uint64_t messages) = 0;

  protected:
    ~Host() = default;
};

}  // namespace tools
