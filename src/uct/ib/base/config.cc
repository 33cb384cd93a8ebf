// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/base/config.h"

#include <algorithm>
#include <array>

namespace uct::ib {

namespace {

using ucs::config::field;
using C = TransportConfig;

constexpr ucs::config::Field<C> kCommon[] = {
    field<&C::tx_queue_len>("TX_QUEUE_LEN", "256",
                            "Work requests that a send queue holds; of datagrams also the packets "
                            "that an endpoint takes before the first of them is acknowledged.",
                            {.least = "4"}),
    field<&C::tx_cq_moderation>("TX_CQ_MODERATION", "64",
                                "Work requests of one send queue for each that asks for a "
                                "completion, where nobody waits for one earlier.",
                                {.least = "1"}),
    field<&C::tx_max_poll>("TX_MAX_POLL", "16", "Send completions taken by one progress call.",
                           {"1", "64"}),
    field<&C::tx_min_inline>("TX_MIN_INLINE", "64",
                             "Bytes that a work request can at least carry inside itself; the "
                             "limit of the short protocols, header of 9 bytes included."),
    field<&C::rx_queue_len>("RX_QUEUE_LEN", "4095",
                            "Receive buffers of an interface, shared by all its peers.",
                            {.least = "16"}),
    field<&C::rx_queue_initial>("RX_QUEUE_INITIAL", "512",
                                "Receive buffers posted at first; doubled whenever a burst uses up "
                                "half of them, up to RX_QUEUE_LEN.",
                                {.least = "16"}),
    field<&C::rx_max_poll>("RX_MAX_POLL", "16", "Messages or packets taken by one progress call.",
                           {"1", "64"}),
    field<&C::segment_size>("SEG_SIZE", "8256",
                            "The limit of an active message, and the size of the buffers that it "
                            "is copied to; datagrams are cut at the path MTU. The same on all "
                            "hosts of a job."),
    field<&C::service_level>("SL", "0", "InfiniBand service level.", {.most = "15"}),
    field<&C::traffic_class>("TRAFFIC_CLASS", "0", "Traffic class of packets with a GRH.",
                             {.most = "255"}),
    field<&C::hop_limit>("HOP_LIMIT", "255", "Hop limit of packets with a GRH.", {.most = "255"}),
    field<&C::gid_index>("GID_INDEX", "auto",
                         "Entry of the port's GID table. auto: 0 on InfiniBand; on Ethernet RoCE "
                         "v2, of an IPv4 address if there is one, else of one that is not "
                         "link-local."),
    field<&C::pkey>("PKEY", "auto", "Partition key, lower 15 bits. auto: the first of the port."),
    field<&C::path_mtu>("PATH_MTU", "auto",
                        "256, 512, 1024, 2048 or 4096 bytes. auto: what both ports can."),
};

constexpr ucs::config::Field<C> kConnected[] = {
    field<&C::tx_cq_len>("TX_CQ_LEN", "4096",
                         "Work requests that may be outstanding on all send queues of an interface "
                         "together: the length of their completion queue."),
    field<&C::tx_min_sge>("TX_MIN_SGE", "5",
                          "Pieces of memory that one work request can carry, a message's header "
                          "included.",
                          {"2", "5"}),
    field<&C::max_rd_atomic>("MAX_RD_ATOMIC", "4",
                             "Reads and atomics that one queue pair keeps in flight."),
    field<&C::retry_count>("RETRY_COUNT", "7", "Retransmissions before a peer counts as dead.",
                           {.most = "7"}),
    field<&C::rnr_retry_count>("RNR_RETRY_COUNT", "7",
                               "Retries when the peer has no receive buffer; 7 is without end.",
                               {.most = "7"}),
    field<&C::timeout>("TIMEOUT", "1s",
                       "Wait for an acknowledgement before a retransmission. Rounded up to a power "
                       "of two times 4.096 us."),
    field<&C::rnr_timeout>("RNR_TIMEOUT", "1ms",
                           "Time that a peer is told to wait when no receive buffer is there."),
    field<&C::fc_enable>("FC_ENABLE", "y",
                         "Flow control: a sender stops before it overruns a slow receiver."),
    field<&C::fc_window>("FC_WND_SIZE", "512",
                         "Active messages that an endpoint may send before its peer grants more.",
                         {"2", "32767"}),
    field<&C::fc_hard_threshold>("FC_HARD_THRESH", "0.25",
                                 "Part of the window that is left when more is asked for."),
    field<&C::fc_request_timeout>("FC_HARD_REQ_TIMEOUT", "5s",
                                  "An endpoint that waits for a grant asks again after this time, "
                                  "so that a dead peer is noticed."),
};

constexpr auto kAll = [] {
    std::array<ucs::config::Field<C>, std::size(kCommon) + std::size(kConnected)> all{};
    std::ranges::copy(kConnected, std::ranges::copy(kCommon, all.begin()).out);
    return all;
}();

}  // namespace

std::span<const ucs::config::Field<TransportConfig>> datagram_fields() {
    return kCommon;
}

std::span<const ucs::config::Field<TransportConfig>> connected_fields() {
    return kAll;
}

}  // namespace uct::ib
