// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/select/costs.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>

#include "ucs/log/log.h"
#include "ucs/type/names.h"

namespace ucp::select {
namespace {

constexpr size_t kLittle = 4096;
constexpr size_t kMuch = 128 * 1024;
constexpr unsigned kRounds = 5;

// Seconds of the fastest of some calls: others' use of the processor only adds to it.
template <typename Call>
double fastest(Call call) {
    using Clock = std::chrono::steady_clock;
    double best = 1;
    for (unsigned round = 0; round < kRounds; ++round) {
        const Clock::time_point begin = Clock::now();
        if (!call()) return -1;
        best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
    }
    return best;
}

// A line through the times of few and of many bytes.
CostEntry line(double little, double much, const CostEntry& otherwise) {
    if (little <= 0 || much <= little) return otherwise;
    const double per_byte = (much - little) / (kMuch - kLittle);
    return {std::max(little - per_byte * kLittle, 0.0), per_byte, Origin::kMeasured};
}

// A copy within this process costs the system the same work as one from another.
bool system_copy(std::byte* to, std::byte* from, size_t length) {
    const iovec here{to, length};
    const iovec there{from, length};
    return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == static_cast<ssize_t>(length);
}

CostModel measure() {
    CostModel costs;
    const auto memory = std::make_unique<std::array<std::array<std::byte, kMuch>, 2>>();
    std::byte* to = (*memory)[0].data();
    std::byte* from = (*memory)[1].data();
    std::memset(from, 1, kMuch);
    std::memset(to, 1, kMuch);
    const auto time = [&](size_t length) {
        return fastest([&] { return system_copy(to, from, length); });
    };
    costs.system_copy = line(time(kLittle), time(kMuch), costs.system_copy);
    ucs::log_debug("measured: a copy by the system takes {:.2f} us and {:.3f} ns a byte ({})",
                   costs.system_copy.base * 1e6, costs.system_copy.per_byte * 1e9,
                   name(costs.system_copy.origin));
    return costs;
}

}  // namespace

std::string_view name(Origin origin) {
    static constexpr const char* kNames[] = {"assumed", "measured", "kept", "learned", "set"};
    return ucs::name_in<Origin::kUser>(kNames, origin);
}

const CostModel& CostModel::measured() {
    static const CostModel costs = measure();
    return costs;
}

}  // namespace ucp::select
