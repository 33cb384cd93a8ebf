// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/uio.h>

#include <span>

namespace uct::tcp {

/**
 * Can the kernel read a byte of every page of that memory? For when it has found that it cannot
 * read something: this takes a system call a page.
 */
bool is_readable(std::span<const iovec> pieces);

}  // namespace uct::tcp
