// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/runtime/runtime.h"

#include "ucs/config/registry.h"
#include "ucs/config/source.h"
#include "ucs/memory/detector.h"

namespace ucs {

namespace {

constinit const config::ProcessEnvironment process_environment;
constinit const WallClock wall_clock;
constinit SystemEntropy system_entropy;

constinit Runtime own_runtime{
    .environment = &process_environment, .clock = &wall_clock, .entropy = &system_entropy};

}  // namespace

namespace internal {

constinit Runtime* current_runtime = &own_runtime;

}  // namespace internal

void adopt_runtime(Runtime& shared) {
    Runtime& own = runtime();
    if (&own == &shared) return;
    config::Registry::move(own, shared);
    move_memory_detectors(own, shared);
    internal::current_runtime = &shared;
}

}  // namespace ucs
