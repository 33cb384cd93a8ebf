// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/network/config.h"

namespace uct::tcp {

namespace {

using ucs::config::field;
using C = Config;

constexpr ucs::config::Field<C> kFields[] = {
    field<&C::tx_seg_size>(
        "TX_SEG_SIZE", "8kb",
        "Size of a copy-out buffer: the limit of a message that is copied, unless its "
        "bytes can travel in no other way: then that is UCX_TCP_RX_SEG_SIZE.",
        {"1k", "1g"}),
    field<&C::rx_seg_size>("RX_SEG_SIZE", "64kb",
                           "Size of a receive buffer: the limit of an active message. The same on "
                           "all hosts of a job.",
                           {"1k", "1g"}),
    field<&C::max_iov>("MAX_IOV", "6", "Pieces of memory in one zero-copy operation.", {"1", "16"}),
    field<&C::sendv_thresh>("SENDV_THRESH", "2kb",
                            "Short messages from this size on are handed to the kernel where they "
                            "are; smaller ones are first copied behind their header."),
    field<&C::prefer_default>("PREFER_DEFAULT", "y",
                              "Among interfaces of one speed, prefer that of the default route."),
    field<&C::put_enable>("PUT_ENABLE", "y", "Offer remote writes."),
    field<&C::conn_nb>("CONN_NB", "y",
                       "Go on while a connection is being made; n: wait for it in the call that "
                       "needs it."),
    field<&C::max_poll>("MAX_POLL", "4",
                        "Reads from one connection in one progress call, while it has more.",
                        {.least = "1"}),
    field<&C::turn>(
        "TURN", "inf",
        "Bytes that one progress call reads and sends at most over all connections of "
        "an interface; 512k take some 50 to 100 us. inf: what the kernel has and takes, "
        "several MiB at times, which is faster within a host.",
        {.least = "64k"}),
    field<&C::max_conn_retries>("MAX_CONN_RETRIES", "25",
                                "How often a connection that breaks before it is agreed on is "
                                "tried again."),
    field<&C::nodelay>("NODELAY", "y", "Send small messages at once (no Nagle algorithm)."),
    field<&C::burst>(
        "BURST", "8",
        "Short messages to a peer interface, between two calls of progress, that leave one by one. "
        "Those behind them are gathered: they leave together, when what went before has been "
        "acknowledged, and at the latest with the next call. inf: all leave one by one.",
        {.least = "1"}),
    field<&C::sndbuf>("SNDBUF", "auto", "Send buffer of a socket. auto: the kernel sizes it.",
                      {.most = "1g"}),
    field<&C::rcvbuf>("RCVBUF", "auto", "Receive buffer of a socket. auto: the kernel sizes it.",
                      {.most = "1g"}),
    field<&C::send_ahead>(
        "SEND_AHEAD", "auto",
        "Bytes of large transfers that the kernel takes from a connection ahead "
        "of what it can send: few, so that they are still in the cache when "
        "they are sent. inf: what the socket's buffer holds. auto: inf where both "
        "ends have the same address, else 128k."),
    field<&C::congestion>("CONGESTION", "auto",
                          "Congestion control of connections: a name of those that "
                          "/proc/sys/net/ipv4/tcp_allowed_congestion_control lists. system: the "
                          "system's. auto: reno on the loopback, where nothing is congested and "
                          "the pacing of bbr costs a third of the rate, else the system's."),
    field<&C::port_range>("PORT_RANGE", "0",
                          "Ports that a listener may take, tried from a random one of them on. 0: "
                          "any free port."),
    field<&C::max_num_eps>("MAX_NUM_EPS", "256",
                           "Endpoints of an interface that selection reckons with."),
    field<&C::af_prio>("AF_PRIO", "inet,inet6",
                       "Address families, best first, of an interface with several addresses."),
    field<&C::busy_poll>("BUSY_POLL", "0",
                         "Microseconds for which a look for what has come asks the device itself "
                         "(SO_BUSY_POLL), where its driver can; 0: as the system is set. More than "
                         "that takes CAP_NET_ADMIN.",
                         {.most = "1000000"}),
    field<&C::keepidle>("KEEPIDLE", "10s",
                        "Silence after which the kernel asks whether the peer lives, in whole "
                        "seconds; inf: never.",
                        {.least = "1s"}),
    field<&C::keepcnt>("KEEPCNT", "3",
                       "Questions without an answer before a peer counts as dead; more, if "
                       "USER_TIMEOUT is not over by then.",
                       {"1", "127"}),
    field<&C::keepintvl>("KEEPINTVL", "2s", "Time between such questions, in whole seconds.",
                         {.least = "1s"}),
    field<&C::user_timeout>("USER_TIMEOUT", "auto",
                            "How long the kernel of a peer may leave packets unanswered before "
                            "the peer counts as dead. One whose program does not read answers. "
                            "auto: KEEPIDLE + KEEPCNT * KEEPINTVL; inf: as the kernel does."),
    field<&C::failover>("FAILOVER", "try",
                        "Messages move to another interface when theirs fails, and nothing is "
                        "lost. try: where either end has several; y: also over the same one, when "
                        "a connection breaks."),
    field<&C::connections>("CONNECTIONS", "2",
                           "Connections to one peer interface. Messages keep to the first; "
                           "large remote reads and writes go over all of them.",
                           {"1", "8"}),
    field<&C::stripe_size>("STRIPE_SIZE", "256kb",
                           "Large remote reads and writes are cut into pieces of this size, each "
                           "to the connection with the least to send.",
                           {"1k", "1g"}),
    field<&C::tx_queue_len>("TX_QUEUE_LEN", "64",
                            "Zero-copy operations, and copy-out buffers, that wait on a connection "
                            "before its endpoints have to.",
                            {.least = "1"}),
    field<&C::conn_timeout>("CONN_TIMEOUT", "10s",
                            "How long a connection may take to come up. A peer whose program is "
                            "busy answers later: its kernel must be there.",
                            {.most = "1h"}),
    field<&C::hello_timeout>("HELLO_TIMEOUT", "3s",
                             "How long somebody who connects may take to prove that it belongs to "
                             "the job."),
    field<&C::max_handshakes>("MAX_HANDSHAKES", "128",
                              "Connections that have yet to prove it, at most; the oldest gives "
                              "way to the newest.",
                              {.least = "1"}),
    field<&C::job_key>("JOB_KEY", "",
                       "A word that all processes of a job share, asked for besides the secret "
                       "that each worker address carries. It never travels; as long as `openssl "
                       "rand -hex 16` makes it, it cannot be guessed either."),
    field<&C::encrypt>("ENCRYPT", "n",
                       "Encrypt connections (TLS 1.3), the same in all processes of a job. Needs "
                       "UCX_TCP_JOB_KEY, which proves who the other end is."),
};

const ucs::config::Table<C> table("tcp transport", {"TCP_"}, kFields);

}  // namespace

const ucs::config::Table<Config>& config_table() {
    return table;
}

}  // namespace uct::tcp
