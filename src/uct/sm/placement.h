// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

// Where the system puts the pages of shared memory, before anybody has touched them.
namespace uct::sm {

// Nodes of this host that have memory: 1 where nobody knows.
unsigned memory_nodes();

// Pages come from the node that the calling thread runs on, whichever process touches them first,
// as long as that node has some.
// @return false: the system refuses; each page comes from the node of who touches it first
bool place_near_caller(std::byte* base, size_t size);

// All of these pages are there when it returns, and mapped here. One that two processes touch first
// at once costs both tens of microseconds, as they wait for each other in the kernel; and many that
// come together cost less than each by itself. Nobody writes there before it returns: where the
// system has no call for it, the pages are written to.
void touch_pages(std::byte* base, size_t size);

// Pages that this mapping touches may be huge ones, if the system gives such to who asks for them.
// No effect on what holds no whole one, nor where the system has none.
void ask_for_huge_pages(std::byte* base, size_t size);

}  // namespace uct::sm
