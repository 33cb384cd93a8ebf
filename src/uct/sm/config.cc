// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/config.h"

#include <bit>

#include "ucs/config/table.h"
#include "ucs/log/log.h"
#include "ucs/type/bits.h"
#include "uct/sm/placement.h"

namespace uct::sm {

namespace {

using ucs::config::field;

constexpr ucs::config::Field<Config> kFields[] = {
    field<&Config::fifo_size>(
        "FIFO_SIZE", "128",
        "Messages that a receiver's shared queue holds, rounded up to a power "
        "of two.",
        {"8", "65536"}),
    field<&Config::ring_size>("RING_SIZE", "128",
                              "Messages that the queue of one pair holds, rounded up to a power of "
                              "two.",
                              {"8", "65536"}),
    field<&Config::ring_buffers>("RING_BUFFERS", "32",
                                 "Memory of the queue of one pair for long messages, in pieces of "
                                 "UCX_SM_SEG_SIZE.",
                                 {"4", "1024"}),
    field<&Config::segment_size>("SEG_SIZE", "8256",
                                 "The longest message that goes through shared memory in one "
                                 "piece, rounded up to 64 bytes.",
                                 {"512", "1m"}),
    field<&Config::kept_buffers>("RX_KEPT", "128",
                                 "Buffers of a queue that receivers may keep without a copy.",
                                 {.most = "65536"}),
    field<&Config::max_poll>("RX_MAX_POLL", "16", "Messages taken from a queue in one call.",
                             {"1", "65536"}),
    field<&Config::single_copy>("SINGLE_COPY", "y",
                                "Read and write memory of other processes directly, where the "
                                "system permits it; n: two copies through shared memory."),
    field<&Config::joint_copies>(
        "JOINT_COPY", "y",
        "Copies of 128 KiB and more to and from memory of other processes are done by both "
        "processes, each a part, while the other one makes progress, too."),
    field<&Config::places_queues>(
        "NUMA", "auto",
        "Have the pages of a worker's queues lie on the NUMA node of the thread that made them, "
        "which polls them; n: where who writes first runs; auto: where there are several nodes."),
    field<&Config::asks_for_huge_pages>(
        "HUGE_PAGES", "y",
        "Ask the system for huge pages for memory that is allocated for the program (2 MiB and "
        "more); queues have small ones."),
};

const ucs::config::Table<Config> table("shared memory transports", {"SM_"}, kFields);

}  // namespace

ucs_status_t load_config(const ucs::config::Source* source, Config* config) {
    constexpr size_t kLine = 64;
    std::string problem;
    const ucs_status_t status = table.load(
        source != nullptr ? *source : ucs::config::Source::from_environment(), *config, problem);
    if (status != UCS_OK) {
        ucs::log_error("{}", problem);
        return status;
    }
    config->fifo_size = std::bit_ceil(config->fifo_size);
    config->ring_size = std::bit_ceil(config->ring_size);
    config->joint_copies = config->joint_copies && config->single_copy;
    if (!config->places_queues) config->places_queues = memory_nodes() > 1;
    config->segment_size = {ucs::align_up(config->segment_size.bytes, kLine)};
    return UCS_OK;
}

}  // namespace uct::sm
