// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// What programs ask of mlx5 by environment variables. Entries and queues are laid out in our own
/// way, but what an adapter would refuse is refused here too. All return 0 or an errno.
namespace softhca {

/// MLX_CQ_ALLOC_TYPE and its like for QPs and SRQs: HUGE wants a huge page, or nothing.
int check_queue_memory(const char* variable);

/// Completion entries are 64 or 128 bytes long.
int check_cqe_size(unsigned long size);
int check_cqe_size_variable();

}  // namespace softhca
