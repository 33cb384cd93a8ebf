// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/context/config.h"

namespace ucp {
namespace {

using ucs::config::field;

constexpr ucs::config::Field<Config> kFields[] = {
    field<&Config::transports>("TLS", "all",
                               "Transports to use: names, or the groups all, ib, rc, dc, ud, sm; "
                               "^ in front: all but these; \\ before a name: that transport, and "
                               "no group. Self is used only if it is in the list. rc brings a "
                               "scalable transport along, to set up its connections."),
    field<&Config::net_devices>("NET_DEVICES", "all",
                                "Network devices to use, as mlx5_0:1, mlx5_0 (all ports) or eth0; "
                                "^ in front: all but these."),
    field<&Config::shared_memory_devices>("SHM_DEVICES", "all", "Shared-memory devices to use."),
    field<&Config::self_devices>("SELF_DEVICES", "all", "Loopback devices to use."),
    field<&Config::accelerator_devices>("ACC_DEVICES", "all", "Accelerators to use."),
    field<&Config::estimated_endpoints>("NUM_EPS", "auto",
                                        "Number of endpoints to expect, for the cost of transports "
                                        "that grows with it. auto: what the program says.",
                                        {.least = "1"}),
    field<&Config::processes_on_host>(
        "NUM_PPN", "auto",
        "Processes of the job on this host, which share its adapters (UCX_MAX_ADAPTER_QPS). auto: "
        "what the program says, or else the launcher (Open MPI, MPICH, Slurm), or else 1.",
        {.least = "1"}),
    field<&Config::max_rails>("MAX_RNDV_RAILS", "4",
                              "Devices over which an endpoint spreads large messages.",
                              {.least = "1", .most = "8"}),
    field<&Config::max_rail_ratio>("MULTI_LANE_MAX_RATIO", "4",
                                   "A device takes part in large messages if its bandwidth is at "
                                   "least that of the best one divided by this."),
    field<&Config::prefer_nearest>("IB_PREFER_NEAREST_DEVICE", "y",
                                   "Prefer, of adapters that cost the same, the one nearest to the "
                                   "process's CPUs."),
    field<&Config::bcopy_threshold>(
        "BCOPY_THRESH", "auto",
        "Messages of at least this size are copied to a buffer rather than written into the work "
        "request itself."),
    field<&Config::zcopy_threshold>(
        "ZCOPY_THRESH", "auto",
        "Messages of at least this size are sent from the user's memory, if they need not be "
        "registered first or registering pays off."),
    field<&Config::rndv_threshold>("RNDV_THRESH", "auto",
                                   "Messages of at least this size are announced first and sent "
                                   "when the receive is there."),
    field<&Config::eager_max>(
        "EAGER_MAX", "512k",
        "Messages of at least this size are announced however long that takes, unless "
        "UCX_RNDV_THRESH is set: one that is not takes memory of a receiver that has no buffer for "
        "it yet.",
        {.least = "8k"}),
    field<&Config::eager_max_host>("EAGER_MAX_HOST", "16m",
                                   "The same within a host, where messages that are not announced "
                                   "may be the faster ones at any length.",
                                   {.least = "8k"}),
    field<&Config::peer_memory>(
        "PEER_MEMORY", "auto",
        "So much memory at most a peer makes a worker hold by messages and stream data that nobody "
        "receives, and by parts of messages. Who sends more is cut off: endpoints between the two "
        "fail, and what had come before can still be received. auto: a quarter of the machine's "
        "memory; inf: no limit."),
    field<&Config::checksum>(
        "CHECKSUM", "none",
        "crc32c: each message bears a checksum over all that is in it, and endpoints to a peer "
        "whose messages are not what was sent fail. All data goes as messages then, copied by both "
        "processors. All processes of a job must agree."),
    field<&Config::rndv_scheme>("RNDV_SCHEME", "auto",
                                "How announced messages travel: the receiver reads them, the "
                                "sender writes them, or they go as active messages."),
    field<&Config::costs>(
        "COSTS", "adapt",
        "What protocols are chosen by, beside what transports say: measured: "
        "copies by the system are timed once, in less than a millisecond; "
        "adapt: the same, and whether a long message within a host that is alone "
        "is announced, and such a get is copied, follows from what these have "
        "turned out to cost in this process; "
        "keep: as measured, kept for later jobs below ~/.cache/swiftlane; "
        "learn: the same, and whether long messages are announced, alone or among "
        "others, and how puts and gets go, follows from what they have turned out to cost; "
        "fixed: constants, the same on every machine; /path: those of a file "
        "that was kept."),
    field<&Config::shows_protocols>("PROTO_INFO", "n",
                                    "Print by which protocol operations of which length go, and "
                                    "why, once for endpoints alike."),
    field<&Config::shows_statistics>("STATS", "y",
                                     "Show what each worker does, in shared memory that `swiftlane "
                                     "top` and other processes of the same user can read. It costs "
                                     "some microseconds ten times a second."),
    field<&Config::trace>("TRACE", "",
                          "File to write changes of lanes, transfers, registrations and stalls to, "
                          "for Perfetto or Chrome's tracing; %p in it is the process's number. "
                          "Empty: none."),
    field<&Config::lanes>("LANES", "dynamic",
                          "dynamic: the hottest endpoints get dedicated lanes; scalable: none "
                          "does; dedicated: every endpoint asks for one at once, without a limit, "
                          "and keeps it."),
    field<&Config::atomics>("ATOMIC_MODE", "guess",
                            "Who executes atomic operations where an adapter's are not atomic with "
                            "the CPU's: cpu, device, or guess: the device only if no transport in "
                            "use has the CPU do it. All processes of a job must agree."),
    field<&Config::registration_cache>(
        "RCACHE_ENABLE", "try",
        "Keep the registration of a buffer after the transfer, until its memory is unmapped. try: "
        "if memory events are to be had; y: fail without."),
    field<&Config::cached_regions>("RCACHE_MAX_REGIONS", "inf",
                                   "Registrations that are kept at most."),
    field<&Config::cached_bytes>("RCACHE_MAX_SIZE", "inf",
                                 "Bytes of memory that kept registrations hold at most."),
    field<&Config::memory_events>("MEM_EVENTS", "y",
                                  "Watch for memory that is unmapped. n: no registration is kept."),
    field<&Config::switch_interval>("DYNAMIC_TL_SWITCH_INTERVAL", "100ms",
                                    "Time from one ranking of the endpoints to the next; inf turns "
                                    "lane switching off.",
                                    {.least = "1us"}),
    field<&Config::progress_factor>("DYNAMIC_TL_PROGRESS_FACTOR", "32",
                                    "One of so many progress calls looks at the clock.",
                                    {.least = "1"}),
    field<&Config::max_priority_endpoints>("MAX_PRIORITY_EPS", "20",
                                           "Dedicated lanes that a worker holds at most, those "
                                           "within the host apart; 0: none at all."),
    field<&Config::max_host_lanes>(
        "MAX_HOST_LANES", "64",
        "Dedicated lanes within the host that a worker holds at most: "
        "each takes some 60 KiB of memory, and 0.3 MiB if it is filled."),
    field<&Config::hysteresis_margin>("DYNAMIC_TL_MARGIN", "0.2",
                                      "By which part a challenger must beat the holder of a "
                                      "dedicated lane.",
                                      {.least = "0", .most = "4"}),
    field<&Config::confidence>("DYNAMIC_TL_CONFIDENCE", "2",
                               "Standard errors of sampling that are taken off the score of an "
                               "endpoint without a dedicated lane, so that noise moves nothing."),
    field<&Config::min_residence>("DYNAMIC_TL_MIN_RESIDENCE", "200ms",
                                  "A dedicated lane is not taken away before this time."),
    field<&Config::sample_duty>("DYNAMIC_TL_DUTY", "0.1",
                                "Part of the time in which sends are sampled.",
                                {.least = "0.000001", .most = "1"}),
    field<&Config::sample_windows>("DYNAMIC_TL_WINDOWS", "4", "Sampling windows in each interval.",
                                   {.least = "1", .most = "1000"}),
    field<&Config::min_score>("DYNAMIC_TL_MIN_SCORE", "6000",
                              "Nanoseconds that a dedicated lane must save in each second, at both "
                              "ends together, to be worth a switch.",
                              {.least = "1", .most = "1e17"}),
    field<&Config::score_decay>("DYNAMIC_TL_DECAY", "0.8",
                                "Part of a score that is left after an interval without traffic.",
                                {.least = "0", .most = "0.99"}),
    field<&Config::score_trend>(
        "DYNAMIC_TL_TREND", "4",
        "Of intervals in a row that all saw less than half of an endpoint's "
        "score, or all more than twice, the second counts as two, and so on "
        "up to this; 1: each counts once.",
        {.least = "1", .most = "100"}),
    field<&Config::trickle_ratio>(
        "DYNAMIC_TL_TRICKLE_RATIO", "100",
        "With more endpoints that are worth a dedicated lane than there are "
        "lanes, one that saves less than 1/ratio of what the best one of the "
        "worker does gets none, not even a free one; 0: it may."),
    field<&Config::bytes_per_message>("DYNAMIC_TL_BYTES_PER_MESSAGE", "auto",
                                      "So many bytes count as much as one message; inf: bytes do "
                                      "not count. auto: by the transports' costs, a slice of a "
                                      "large transfer at least (UCX_BULK_SLICE_SIZE).",
                                      {.least = "1"}),
    field<&Config::score_hold>("DYNAMIC_TL_HOLD", "auto",
                               "So long scores stand still while a worker sends nothing or hears "
                               "nothing of a peer: programs compute between messages. auto: 1200 "
                               "intervals, two minutes of 100 ms."),
    field<&Config::switch_window>("DYNAMIC_TL_WINDOW", "512",
                                  "Messages on a new lane until the peer has acknowledged the end "
                                  "of the old one; the peer may have to keep as many.",
                                  {.least = "1"}),
    field<&Config::lane_patience>(
        "DYNAMIC_TL_PATIENCE", "20ms",
        "A peer that lets others wait for longer, since its program makes "
        "no progress, does not get or keep the slot that they need."),
    field<&Config::max_parked_lanes>("DYNAMIC_TL_MAX_PARKED", "20",
                                     "Dedicated lanes beside UCX_MAX_PRIORITY_EPS that nobody "
                                     "sends on any more: those that wait for peers that make no "
                                     "progress, to be ended together, and those that are kept "
                                     "(UCX_DYNAMIC_TL_KEEP)."),
    field<&Config::lane_keep>("DYNAMIC_TL_KEEP", "60s",
                              "A dedicated lane that both ends have left is kept so long, to be "
                              "taken back if the peer gets hot again; 0: each is destroyed."),
    field<&Config::bulk_threshold>("BULK_THRESH", "auto",
                                   "Puts, gets and rendezvous of at least this size are cut into "
                                   "slices, which go over all paths to the peer; inf: none are. "
                                   "auto: 64k, less where several slow devices share them."),
    field<&Config::bulk_slice_size>("BULK_SLICE_SIZE", "64k",
                                    "Bytes of a slice, as far as all devices in use take it.",
                                    {.least = "1"}),
    field<&Config::bulk_fragment_limit>("BULK_FRAGMENT_LIMIT", "4k",
                                        "A tail of up to this size joins the slice before it."),
    field<&Config::bulk_window>("BULK_WINDOW", "4m",
                                "Bytes under way on one path at most; less on a slow one.",
                                {.least = "1"}),
    field<&Config::bulk_max_wr_per_post>("BULK_MAX_WR_PER_POST", "64",
                                         "Slices posted by one doorbell.",
                                         {.least = "1", .most = "64"}),
    field<&Config::bulk_max_rails>("BULK_MAX_RAILS", "auto",
                                   "Devices over which an endpoint spreads bulk transfers. "
                                   "auto: UCX_MAX_RNDV_RAILS.",
                                   {.least = "1", .most = "8"}),
    field<&Config::bulk_max_retries>("BULK_MAX_RETRIES", "8",
                                     "A slice that has failed more often ends its transfer."),
    field<&Config::bulk_stall_timeout>("BULK_STALL_TIMEOUT", "400ms",
                                       "A path on which nothing is completed for so long, while "
                                       "others to the same peer went on, has failed."),
    field<&Config::bulk_retry_interval>("BULK_RETRY_INTERVAL", "100ms",
                                        "A path that has failed is tried again after this time, "
                                        "doubled at each failure up to 32 times."),
    field<&Config::bulk_workers>("BULK_WORKERS", "0",
                                 "Threads for each device that move bulk transfers of promoted "
                                 "endpoints, and over TCP of all, while the program computes, and "
                                 "as many for long copies within the host; 0: all is done in its "
                                 "calls of progress.",
                                 {.most = "64"}),
    field<&Config::bulk_shards>("BULK_SHARDS", "4",
                                "Locks that the queues of these threads are spread over, by "
                                "endpoint.",
                                {.least = "1", .most = "64"}),
    field<&Config::bulk_cut_timeout>("BULK_CUT_TIMEOUT", "60s",
                                     "A peer that for so long has not revoked a path that failed "
                                     "is given up; inf: never."),
    field<&Config::bulk_qps>("BULK_QPS", "4",
                             "Queue pairs for bulk transfers that a promoted endpoint has on each "
                             "device beside its lane, and over TCP one with threads: the smaller "
                             "number of both ends.",
                             {.most = "8"}),
    field<&Config::max_dedicated_qps>("MAX_DEDICATED_QPS", "auto",
                                      "Queue pairs of all promoted endpoints of the workers of a "
                                      "context together, lanes and those for bulk, at most. auto: "
                                      "of each worker ten times UCX_MAX_PRIORITY_EPS, and of all "
                                      "what UCX_MAX_ADAPTER_QPS leaves them."),
    field<&Config::max_adapter_qps>(
        "MAX_ADAPTER_QPS", "auto",
        "Queue pairs of promoted endpoints on each adapter at most, of all processes of this host: "
        "each process has an equal part (UCX_NUM_PPN), one at least, for all of its contexts. "
        "auto: 4096, or half of what the adapter can have, if that is less; with "
        "UCX_LANES=dedicated any number.",
        {.least = "1"}),
    field<&Config::keepalive_interval>("KEEPALIVE_INTERVAL", "20s",
                                       "How often peers of idle endpoints are checked, if the "
                                       "endpoint's error handling mode is peer; inf: never."),
    field<&Config::keepalive_endpoints>("KEEPALIVE_NUM_EPS", "128",
                                        "Endpoints that are checked at each interval, at most."),
};

}  // namespace

const ucs::config::Table<Config> kConfigTable("protocols and lanes", {""}, kFields);

}  // namespace ucp
