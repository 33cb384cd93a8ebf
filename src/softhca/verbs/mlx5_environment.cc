// SPDX-License-Identifier: BSD-3-Clause
#include "softhca/verbs/mlx5_environment.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdlib>
#include <string_view>

namespace softhca {
namespace {

constexpr size_t kHugePage = 2 * 1024 * 1024;

bool huge_page_free() {
    void* page = mmap(nullptr, kHugePage, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    if (page == MAP_FAILED) return false;
    munmap(page, kHugePage);
    return true;
}

}  // namespace

int check_queue_memory(const char* variable) {
    const char* type = std::getenv(variable);
    return type != nullptr && std::string_view(type) == "HUGE" && !huge_page_free() ? ENOMEM : 0;
}

int check_cqe_size(unsigned long size) {
    return size == 64 || size == 128 ? 0 : EINVAL;
}

int check_cqe_size_variable() {
    const char* size = std::getenv("MLX5_CQE_SIZE");
    return size == nullptr ? 0 : check_cqe_size(std::strtoul(size, nullptr, 10));
}

}  // namespace softhca
