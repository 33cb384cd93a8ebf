// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/runtime/runtime.h"

namespace ucs {

namespace {

constinit const ProcessEnvironment process_environment;
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
    own.tables.move_to(shared.tables);
    own.memory_detectors.move_to(shared.memory_detectors);
    internal::current_runtime = &shared;
}

}  // namespace ucs
