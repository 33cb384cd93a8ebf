// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace softhca {

// What the emulated adapter and wire cost, in nanoseconds unless said otherwise. Nothing here was
// measured by us on hardware: results that rest on it are "modelled". Each default names its
// source. Every field can be set from the environment as SOFTHCA_MODEL_<FIELD IN CAPITALS>.
struct Model {
    // Host side, charged to the node's CPU time. UCX's selection estimates for rc_mlx5.
    double doorbell = 40;
    double wqe_post = 40;
    double cqe_poll = 20;
    double empty_poll = 10;  // one missed cache look-up; an assumption

    // The adapter reads a work request that is not inline from host memory (UCX's estimates).
    double wqe_fetch = 350;
    // Wire and switch, each way (UCX's estimates for InfiniBand).
    double one_way = 600;
    // The responder's read of host memory: what is left of FaSST's 1.9 us for one DC READ to a
    // fixed target after doorbell, fetch, two ways and the completion.
    double responder_read = 290;
    // Reading memory is a round trip over PCIe, an atomic is one too and locks; same figure.
    double responder_atomic = 290;

    // A DCI that changes its target: FaSST's 2.9 us less 1.9 us, serial, and only after all
    // operations to the former target are acknowledged.
    double dci_switch = 1000;

    // Least time between two work requests of one context (a thread's doorbell register) and of
    // one adapter. FaSST: 10.9 M/s (RC) and 7.2 M/s (DC) a thread; 50 and 39 M/s an adapter.
    double thread_gap_rc = 1e3 / 10.9;
    double thread_gap_dc = 1e3 / 7.2;
    double nic_gap_rc = 1e3 / 50;
    double nic_gap_dc = 1e3 / 39;
    // Least time between two messages at a responder. FaSST: 94.6 M/s with 140 contexts.
    double responder_gap = 1e3 / 94.6;

    // Context caches (entries; least recently used goes) and the price of a miss: the latency of a
    // fetch over PCIe (239 to 2802 ns, mean 800), and how long it keeps the adapter's pipeline.
    // The latter from READ and WRITE rates of ConnectX-6 at 32 and 4096 QPs (83 -> 21 M/s at the
    // responder, 123 -> 105 M/s at the requester). Sizes lie where those rates bend.
    double requester_cache = 4096;
    double responder_cache = 512;
    double cache_miss = 800;
    double requester_miss_gap = 1.4;
    double responder_miss_gap = 35;

    // Gb/s of a port, each direction; and header bytes a packet costs on the wire (LRH, BTH,
    // CRCs).
    double link_gbps = 400;
    double packet_header = 30;
    // Gb/s of a node's devices but the first; 0: as link_gbps. For studies of unequal rails.
    double other_link_gbps = 0;
    // Gb/s that one connection (an RC queue pair, a DCI) moves at most; 0: as much as the port.
    // NCCL finds that one fills 400 Gb/s (380 with messages of 16 KiB, 392 of 128 KiB): no limit
    // by default. Set it for an adapter, or a network of many paths, where several are needed.
    double qp_gbps = 0;
    // Extra header of a DC request (DETH and connect), amortised.
    double dc_header = 16;

    // Multiplies 4.096 us * 2^timeout, the wait before a lost message is sent again.
    double retry_timeout_scale = 1;
    // Multiplies the responder's RNR timer.
    double rnr_timer_scale = 1;

    // Everything free, events still in order: for unit tests.
    static Model instant();
    // The defaults, changed by SOFTHCA_MODEL_* variables.
    static Model from_environment();

    // Calls visit(name, field) for each field. Names are those of the members.
    template <class Self, class Visit>
    static void for_each(Self& m, Visit&& visit) {
        visit("doorbell", m.doorbell);
        visit("wqe_post", m.wqe_post);
        visit("cqe_poll", m.cqe_poll);
        visit("empty_poll", m.empty_poll);
        visit("wqe_fetch", m.wqe_fetch);
        visit("one_way", m.one_way);
        visit("responder_read", m.responder_read);
        visit("responder_atomic", m.responder_atomic);
        visit("dci_switch", m.dci_switch);
        visit("thread_gap_rc", m.thread_gap_rc);
        visit("thread_gap_dc", m.thread_gap_dc);
        visit("nic_gap_rc", m.nic_gap_rc);
        visit("nic_gap_dc", m.nic_gap_dc);
        visit("responder_gap", m.responder_gap);
        visit("requester_cache", m.requester_cache);
        visit("responder_cache", m.responder_cache);
        visit("cache_miss", m.cache_miss);
        visit("requester_miss_gap", m.requester_miss_gap);
        visit("responder_miss_gap", m.responder_miss_gap);
        visit("link_gbps", m.link_gbps);
        visit("packet_header", m.packet_header);
        visit("other_link_gbps", m.other_link_gbps);
        visit("qp_gbps", m.qp_gbps);
        visit("dc_header", m.dc_header);
        visit("retry_timeout_scale", m.retry_timeout_scale);
        visit("rnr_timer_scale", m.rnr_timer_scale);
    }
};

}  // namespace softhca
