// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace ucp {

class Context;

/**
 * Which library is in use, where it lies and what it found, as one line at level info: two
 * libraries of one name are easily mistaken for each other. Once in a process.
 */
void announce_library(const Context& context);

}  // namespace ucp
