// SPDX-License-Identifier: BSD-3-Clause
#include "rdma/conformance.h"

// Transitions of a queue pair: which are legal, and what each needs.
namespace conformance {

namespace {

constexpr ibv_qp_state kStates[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
                                    IBV_QPS_SQD,   IBV_QPS_SQE,  IBV_QPS_ERR};
constexpr const char* kNames[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};

int go(End& end, const End& peer, ibv_qp_state to) {
    ibv_qp_attr attributes{};
    int mask = IBV_QP_STATE;
    if (to == IBV_QPS_INIT) {
        attributes.port_num = 1;
        attributes.qkey = 7;
        attributes.qp_access_flags = kAllAccess;
        mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                (end.options.type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
    } else if (to == IBV_QPS_RTR) {
        attributes = end.rtr(peer, &mask);
    } else if (to == IBV_QPS_RTS && end.state() == "RTR") {
        attributes = end.rts(&mask);
    }
    attributes.qp_state = to;
    return ibv_modify_qp(end.qp.get(), &attributes, mask);
}

// The states that a program can bring a queue pair into without an error.
bool bring(End& end, const End& peer, ibv_qp_state to) {
    if (to == IBV_QPS_RESET) return true;
    if (to == IBV_QPS_ERR) return go(end, peer, IBV_QPS_INIT) == 0 && go(end, peer, to) == 0;
    for (const ibv_qp_state step : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD}) {
        if (go(end, peer, step) != 0) return false;
        if (step == to) return true;
    }
    return false;
}

void transitions(Adapter& adapter, ibv_qp_type type, const char* name) {
    const Domain pd(ibv_alloc_pd(adapter.context()));
    for (const ibv_qp_state from : kStates) {
        if (from == IBV_QPS_SQE || from == IBV_QPS_SQD) continue;
        for (const ibv_qp_state to : kStates) {
            if (to == IBV_QPS_SQD || to == IBV_QPS_SQE) continue;  // few drivers have them
            End end(adapter, pd.get(), {.type = type}), peer(adapter, pd.get(), {.type = type});
            const std::string what =
                std::string("state/") + name + "/" + kNames[from] + "-" + kNames[to];
            if (!bring(end, peer, from)) {
                say(what, {"cannot be tried"});
                continue;
            }
            const int error = go(end, peer, to);
            say(what, {error_name(error), " then ", end.state()});
        }
    }
}

// Each attribute that a transition needs, left out.
void needed(Adapter& adapter) {
    struct Attribute {
        const char* name;
        int bit;
    };
    static constexpr Attribute kInit[] = {{"pkey_index", IBV_QP_PKEY_INDEX},
                                          {"port", IBV_QP_PORT},
                                          {"access_flags", IBV_QP_ACCESS_FLAGS}};
    static constexpr Attribute kRtr[] = {{"av", IBV_QP_AV},
                                         {"path_mtu", IBV_QP_PATH_MTU},
                                         {"dest_qpn", IBV_QP_DEST_QPN},
                                         {"rq_psn", IBV_QP_RQ_PSN},
                                         {"max_dest_rd_atomic", IBV_QP_MAX_DEST_RD_ATOMIC},
                                         {"min_rnr_timer", IBV_QP_MIN_RNR_TIMER}};
    static constexpr Attribute kRts[] = {{"sq_psn", IBV_QP_SQ_PSN},
                                         {"timeout", IBV_QP_TIMEOUT},
                                         {"retry_cnt", IBV_QP_RETRY_CNT},
                                         {"rnr_retry", IBV_QP_RNR_RETRY},
                                         {"max_rd_atomic", IBV_QP_MAX_QP_RD_ATOMIC}};
    const Domain pd(ibv_alloc_pd(adapter.context()));
    const auto attempt = [&](ibv_qp_state to, const Attribute& without) {
        End end(adapter, pd.get()), peer(adapter, pd.get());
        ibv_qp_attr attributes{};
        int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        attributes.qp_state = IBV_QPS_INIT;
        attributes.port_num = 1;
        if (to != IBV_QPS_INIT) end.to_init();
        if (to == IBV_QPS_RTS) go(end, peer, IBV_QPS_RTR);
        if (to == IBV_QPS_RTR) attributes = end.rtr(peer, &mask);
        if (to == IBV_QPS_RTS) attributes = end.rts(&mask);
        const int error = ibv_modify_qp(end.qp.get(), &attributes, mask & ~without.bit);
        say(std::string("state/without/") + kNames[to] + "/" + without.name, {error_name(error)});
    };
    for (const Attribute& attribute : kInit) attempt(IBV_QPS_INIT, attribute);
    for (const Attribute& attribute : kRtr) attempt(IBV_QPS_RTR, attribute);
    for (const Attribute& attribute : kRts) attempt(IBV_QPS_RTS, attribute);
}

// Values that no adapter can take.
void values(Adapter& adapter) {
    const Domain pd(ibv_alloc_pd(adapter.context()));
    const auto init = [&](const char* name, uint8_t port, uint16_t pkey) {
        End end(adapter, pd.get());
        ibv_qp_attr attributes{};
        attributes.qp_state = IBV_QPS_INIT;
        attributes.port_num = port;
        attributes.pkey_index = pkey;
        say(std::string("state/value/") + name,
            {error_name(ibv_modify_qp(
                end.qp.get(), &attributes,
                IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))});
    };
    init("port0", 0, 0);
    init("port9", 9, 0);
    init("pkey_index9999", 1, 9999);
    const auto rtr = [&](const char* name, auto&& change) {
        End end(adapter, pd.get()), peer(adapter, pd.get());
        end.to_init();
        int mask;
        ibv_qp_attr attributes = end.rtr(peer, &mask);
        change(attributes);
        say(std::string("state/value/") + name,
            {error_name(ibv_modify_qp(end.qp.get(), &attributes, mask))});
    };
    rtr("path_mtu9", [](ibv_qp_attr& a) { a.path_mtu = static_cast<ibv_mtu>(9); });
    rtr("path_mtu_above_port",
        [&](ibv_qp_attr& a) { a.path_mtu = static_cast<ibv_mtu>(adapter.mtu() + 1); });
    rtr("max_dest_rd_atomic255", [](ibv_qp_attr& a) { a.max_dest_rd_atomic = 255; });
    rtr("ah_port9", [](ibv_qp_attr& a) { a.ah_attr.port_num = 9; });
    rtr("gid_index200", [](ibv_qp_attr& a) {
        a.ah_attr.is_global = 1;
        a.ah_attr.grh.sgid_index = 200;
    });
}

}  // namespace

void states(Adapter& adapter) {
    transitions(adapter, IBV_QPT_RC, "rc");
    transitions(adapter, IBV_QPT_UD, "ud");
    needed(adapter);
    values(adapter);
}

}  // namespace conformance
