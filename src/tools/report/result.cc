// SPDX-License-Identifier: BSD-3-Clause
#include "tools/report/result.h"

namespace tools {

Row combine(const std::vector<Sample>& samples) {
    Row row;
    double elapsed = 0;
    double messages = 0;
    double exchange = 0;
    unsigned senders = 0;
    for (const Sample& sample : samples) {
        row.size = sample.size;
        if (sample.elapsed <= 0 || sample.messages == 0) continue;
        ++senders;
        const auto time = static_cast<double>(sample.elapsed);
        elapsed += time;
        messages += static_cast<double>(sample.messages);
        if (sample.rounds != 0) exchange += time / static_cast<double>(sample.rounds);
    }
    if (senders == 0) return row;
    row.messages_per_second = messages / (elapsed / senders) * 1e9;
    row.megabytes_per_second = row.messages_per_second * static_cast<double>(row.size) / 1e6;
    row.latency = exchange / senders / 1e3;
    return row;
}

}  // namespace tools
