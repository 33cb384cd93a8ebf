// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace ucp {

class Context;
class Worker;

/**
 * Which library is in use, where it lies and what it found, as one line at level info: two
 * libraries of one name are easily mistaken for each other. Once in a process.
 */
void announce_library(const Context& context);

/** What a worker that goes was used for, as one line at level info: transports and lane changes. */
void announce_use(Worker& worker);

}  // namespace ucp
