// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

// On which processors threads run.
namespace ucs {

// The CPUs that the calling thread may run on, by their numbers in the system.
std::vector<unsigned> allowed_cpus();
// Where the calling thread is bound to it computes, and threads that serve it run elsewhere if they
// may: of these CPUs those that it may not run on; if it may run on all of them, all.
std::vector<unsigned> beside_caller(const std::vector<unsigned>& cpus);
// The calling thread runs on these CPUs alone from now on; none: as before. @return 0, or an errno
int bind_caller(const std::vector<unsigned>& cpus);

}  // namespace ucs
