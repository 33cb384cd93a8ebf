// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/sys/host.h"

#include <limits.h>
#include <unistd.h>

#include <fstream>

#include "ucs/sys/random.h"

namespace ucs {

namespace {

uint64_t hash(std::string_view text) {
    uint64_t value = mix64(text.size());
    for (const char character : text) value = mix64(value ^ static_cast<unsigned char>(character));
    return value;
}

}  // namespace

const std::string& host_name() {
    static const std::string name = [] {
        char buffer[HOST_NAME_MAX + 1] = {};
        if (gethostname(buffer, sizeof(buffer) - 1) != 0) return std::string("unknown");
        const std::string full = buffer;
        return full.substr(0, full.find('.'));
    }();
    return name;
}

uint64_t host_id() {
    static const uint64_t id = [] {
        std::string boot_id;
        std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
        return hash(boot_id.empty() ? host_name() : boot_id);
    }();
    return id;
}

size_t physical_memory() {
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (pages <= 0 || page <= 0) return SIZE_MAX;
    return static_cast<size_t>(pages) * static_cast<size_t>(page);
}

uint32_t process_id() {
    return static_cast<uint32_t>(getpid());
}

}  // namespace ucs
