// SPDX-License-Identifier: BSD-3-Clause
#include "uct/cuda/config.h"

#include "ucs/config/table.h"
#include "ucs/log/log.h"

namespace uct::cuda {

namespace {

using ucs::config::field;

constexpr ucs::config::Field<Config> kFields[] = {
    field<&Config::staging>("STAGING", "16mb",
                            "Pinned host memory that copies from and to devices pass through, in "
                            "a process. Taken when the program first uses CUDA.",
                            {"512kb", "64mb"}),
    field<&Config::preload>("PRELOAD", "y",
                            "Load the library's kernels when a context is first seen at start-up. "
                            "n: at their first use, which may wait for a kernel of the program's "
                            "that runs for long."),
    field<&Config::stream_writes>("STREAM_WRITES", "y",
                                  "The device tells the end of a copy by writing to host memory; "
                                  "n: the driver is asked. Operations on a program's streams: the "
                                  "stream waits for host memory; n: a kernel does."),
    field<&Config::stream_ops>("STREAM_OPS", "512",
                               "The most operations on a program's streams that are under way, or "
                               "captured, in a context at a time.",
                               {.least = "16", .most = "65536"}),
    field<&Config::direct>("DIRECT", "y",
                           "Within a host, messages between devices are copied by the devices "
                           "themselves; n: all go through host memory."),
    field<&Config::mappings>("MAPPINGS", "256",
                             "The most allocations of other processes that are mapped at a time.",
                             {.least = "1", .most = "65536"}),
    field<&Config::relay>("RELAY", "28mb",
                          "Memory of a device for messages between memory that no other process "
                          "can open, at either end: the sender's device writes to it. Taken when "
                          "the first such message is received; in windows of 4 MiB, of which a "
                          "sender gets up to three. 0: such messages are staged.",
                          {"0", "1gb"}),
    field<&Config::resident>(
        "RESIDENT", "n",
        "Copies of at most 16 KiB are done by a kernel that stays on the "
        "device while there are any: less latency, but what waits for the "
        "whole device (cudaDeviceSynchronize, cudaFree) may wait for it, up to "
        "50 ms. It ends by itself when nothing came for 2 ms."),
};

const ucs::config::Table<Config> table("CUDA", {"CUDA_"}, kFields);

Config load() {
    Config config;
    std::string problem;
    if (table.load(ucs::config::Source::from_environment(), config, problem) != UCS_OK) {
        ucs::log_error("{}", problem);
        (void)table.load(ucs::config::Source(), config, problem);
    }
    return config;
}

}  // namespace

const Config& Config::get() {
    static const Config config = load();
    return config;
}

}  // namespace uct::cuda
