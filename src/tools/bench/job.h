// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "tools/bench/channel.h"
#include "tools/common/process.h"
#include "tools/program/options.h"
#include "tools/program/patterns.h"
#include "tools/report/result.h"

namespace tools {

// A launcher and its ranks share a page or two, and each rank has a channel to the launcher.
//
//   rank -> launcher   {"address": HEX}, then {"sample": ...} a size, {"lane": ...} an endpoint,
//                      {"counters": ...}, {"memory": ...}, {"done": true}
//   launcher -> rank   {"address": HEX} of every rank, in order

// Shared counters, in a memory file that both map; it goes with the last of them.
class SharedPage {
  public:
    // The launcher's: a new file for so many ranks. Throws std::system_error.
    static SharedPage create(unsigned ranks);
    // A rank's: the file that it inherited.
    static SharedPage open(int fd, unsigned ranks) { return SharedPage(fd, ranks); }
    SharedPage(SharedPage&& other) noexcept;
    SharedPage& operator=(SharedPage&&) = delete;
    ~SharedPage();

    int fd() const { return fd_; }

    struct Counters {
        std::atomic<uint64_t> barriers_entered{0};  // by all ranks together
    };
    Counters& counters() const { return *static_cast<Counters*>(memory_); }

    // Messages that a rank sent so far; each on a cache line of its own.
    std::atomic<uint64_t>& messages(unsigned rank) const {
        return *reinterpret_cast<std::atomic<uint64_t>*>(static_cast<std::byte*>(memory_) +
                                                         kLine * (1 + rank));
    }

  private:
    static constexpr size_t kLine = 64;

    SharedPage(int fd, unsigned ranks);

    int fd_;
    size_t length_;
    void* memory_;
};

// The life of one rank of a benchmark. Throws on any failure.
void run_child(const JobPlace& place, const Pattern<BenchOptions>& pattern, BenchOptions options,
               const std::string& memory);

struct LaunchSettings {
    ExecSettings exec;
    std::function<void(const Row&)> on_row;
    // Called a few times a second with the messages per second of late; may be empty.
    std::function<void(double)> on_progress;
};

// Run one process a rank of this executable to the end. If a rank fails or dies, the others are
// killed and std::runtime_error says which it was. After Ctrl-C, if there is an Interrupt, what was
// finished until then is returned.
RunResult launch(const BenchOptions& options, const LaunchSettings& settings);

}  // namespace tools
