// SPDX-License-Identifier: BSD-3-Clause
#include <poll.h>

#include "rdma/conformance.h"

// Queues: limits, states in which they take work, shared receive queues, events; datagrams.
namespace conformance {

namespace {

void posting(Adapter& adapter) {
    const Domain pd(ibv_alloc_pd(adapter.context()));
    for (const char* state : {"RESET", "INIT", "RTR"}) {
        End end(adapter, pd.get()), peer(adapter, pd.get());
        if (*state != 'R' || state[1] == 'T') end.to_init();
        if (std::string(state) == "RTR") {
            int mask;
            ibv_qp_attr attributes = end.rtr(peer, &mask);
            ibv_modify_qp(end.qp.get(), &attributes, mask);
        }
        say(std::string("post/send/") + state, {error_name(end.post(send(end.piece())))});
        say(std::string("post/receive/") + state, {error_name(end.receive())});
    }
    Pair pair(adapter);
    ibv_sge pieces[64];
    for (ibv_sge& piece : pieces) piece = pair.a.piece(0, 1);
    ibv_send_wr request = send(pieces[0]);
    request.num_sge = 33;
    say("post/send/too_many_pieces", {error_name(pair.a.post(request))});
    say("post/receive/too_many_pieces", {error_name(pair.a.receive(1, 1, 33))});
    ibv_sge long_piece = pair.a.piece(0, 60000);
    request = send(long_piece);
    request.send_flags = IBV_SEND_INLINE;
    say("post/send/inline_too_long", {pair.a.post(request) == 0 ? "OK" : "refused"});
    request = send(pieces[0]);
    request.opcode = static_cast<ibv_wr_opcode>(99);
    say("post/send/unknown_opcode", {error_name(pair.a.post(request))});
    int error = 0;
    for (int i = 0; i < 10000 && error == 0; ++i) error = pair.a.receive();
    say("post/receive/full", {error_name(error)});
}

void shared_receives(Adapter& adapter) {
    const Domain pd(ibv_alloc_pd(adapter.context()));
    ibv_srq_init_attr initial{};
    initial.attr.max_wr = 8;
    initial.attr.max_sge = 4;
    Shared srq(ibv_create_srq(pd.get(), &initial));
    End a(adapter, pd.get()), b(adapter, pd.get(), {.srq = srq.get()});
    a.to_init();
    b.to_init();
    a.connect(b);
    b.connect(a);
    for (uint64_t id = 1; id <= 4; ++id) b.receive(64, id);
    ibv_srq_attr limit{};
    limit.srq_limit = 3;
    say("srq/arm", {error_name(ibv_modify_srq(srq.get(), &limit, IBV_SRQ_LIMIT))});
    a.post(send(a.piece()));
    say("srq/first", {b.completions(), " events ", adapter.events()});
    a.completions();
    a.post(send(a.piece()));
    say("srq/below_limit", {b.completions(), " events ", adapter.events(1)});
    a.completions();
    ibv_srq_attr now{};
    ibv_query_srq(srq.get(), &now);
    say("srq/limit_afterwards", {std::to_string(now.srq_limit)});
    b.receive(64, 5);
    a.post(send(a.piece()));
    a.post(send(a.piece()));
    say("srq/not_again", {b.completions(2), " events ", adapter.events()});
    a.completions(2);
    b.to_error();
    say("srq/queue_pair_in_error", {b.state(), " events ", adapter.events(1)});
    limit.srq_limit = 1000;
    say("srq/limit_too_high", {error_name(ibv_modify_srq(srq.get(), &limit, IBV_SRQ_LIMIT))});
    say("srq/destroy_in_use", {error_name(ibv_destroy_srq(srq.get()))});
    b.qp.reset();
    int error = 0;
    int posted = 0;
    ibv_sge piece = b.piece();
    while (error == 0 && posted < 10000) {
        ibv_recv_wr request{1, nullptr, &piece, 1};
        ibv_recv_wr* bad;
        error = ibv_post_srq_recv(srq.get(), &request, &bad);
        if (error == 0) ++posted;
    }
    say("srq/full", {error_name(error), (posted >= 7 ? "" : " too soon")});
}

void channels(Adapter& adapter) {
    ibv_comp_channel* channel = ibv_create_comp_channel(adapter.context());
    const auto ready = [&](int milliseconds) {
        pollfd descriptor{channel->fd, POLLIN, 0};
        if (poll(&descriptor, 1, milliseconds) != 1) return std::string("quiet");
        ibv_cq* cq;
        void* context;
        if (ibv_get_cq_event(channel, &cq, &context) != 0) return std::string("error");
        ibv_ack_cq_events(cq, 1);
        return std::string("event");
    };
    {
        Pair pair(adapter);
        pair.b.qp.reset();
        pair.b.cq.reset(ibv_create_cq(adapter.context(), 64, nullptr, channel, 0));
        ibv_qp_init_attr attributes{};
        attributes.qp_type = IBV_QPT_RC;
        attributes.send_cq = attributes.recv_cq = pair.b.cq.get();
        attributes.cap = {16, 16, 1, 1, 0};
        pair.b.qp.reset(ibv_create_qp(pair.pd.get(), &attributes));
        ibv_qp_attr reset{};
        reset.qp_state = IBV_QPS_RESET;
        ibv_modify_qp(pair.a.qp.get(), &reset, IBV_QP_STATE);
        pair.a.to_init();
        pair.b.to_init();
        pair.a.connect(pair.b);
        pair.b.connect(pair.a);
        const auto message = [&](bool solicited) {
            pair.b.receive();
            ibv_sge piece = pair.a.piece();
            ibv_send_wr request = send(piece);
            request.send_flags = solicited ? unsigned{IBV_SEND_SOLICITED} : 0u;
            pair.a.post(request);
            return pair.a.completions();
        };
        message(false);
        say("channel/not_armed", {ready(50)});
        ibv_req_notify_cq(pair.b.cq.get(), 0);
        say("channel/armed_with_old_entry", {ready(50)});
        pair.b.completions();
        message(false);
        say("channel/armed", {ready(1000)});
        message(false);
        say("channel/only_once", {ready(50)});
        pair.b.completions(2);
        ibv_req_notify_cq(pair.b.cq.get(), 1);
        message(false);
        say("channel/solicited_only/plain", {ready(50)});
        message(true);
        say("channel/solicited_only/solicited", {ready(1000)});
        pair.b.completions(2);
        ibv_req_notify_cq(pair.b.cq.get(), 1);
        pair.b.receive();
        pair.b.to_error();
        say("channel/solicited_only/error", {ready(1000)});
        pair.b.completions();
        say("channel/destroy_in_use", {error_name(ibv_destroy_comp_channel(channel))});
    }
    say("channel/destroy", {error_name(ibv_destroy_comp_channel(channel))});
}

void ownership(Adapter& adapter) {
    Pair pair(adapter);
    say("destroy/domain_in_use", {error_name(ibv_dealloc_pd(pair.pd.get()))});
    say("destroy/queue_in_use", {error_name(ibv_destroy_cq(pair.a.cq.get()))});
}

void completion_overrun(Adapter& adapter) {
    const Domain pd(ibv_alloc_pd(adapter.context()));
    End a(adapter, pd.get(), {.depth = 1024}), b(adapter, pd.get());
    a.to_init();
    b.to_init();
    a.connect(b);
    b.connect(a);
    const ibv_sge piece = a.piece(0, 8);
    for (int i = 0; i < 300; ++i) a.post(rdma(IBV_WR_RDMA_WRITE, piece, b));
    const std::string events = adapter.events(1) + "," + adapter.events(1);
    say("cq/overrun", {events.find("CQ") != events.npos ? "event" : "no event"});
}

}  // namespace

void queues(Adapter& adapter) {
    posting(adapter);
    shared_receives(adapter);
    channels(adapter);
    ownership(adapter);
    completion_overrun(adapter);
}

void datagrams(Adapter& adapter) {
    const auto attempt = [&](const std::string& what, size_t length, uint32_t key, size_t room) {
        Pair pair(adapter, {.type = IBV_QPT_UD});
        ibv_ah_attr address = adapter.to_itself();
        const Handle handle(ibv_create_ah(pair.pd.get(), &address));
        pair.b.receive(room);
        ibv_sge piece = pair.a.piece(0, length);
        ibv_send_wr request = send(piece);
        request.wr.ud = {handle.get(), pair.b.qp->qp_num, key};
        const int error = pair.a.post(request);
        if (error != 0) {
            say(what, {"refused ", error_name(error)});
            return;
        }
        const std::string sent = pair.a.completions();
        say(what, {sent, " | ", pair.b.completions(1, true), pair.states(adapter)});
    };
    attempt("ud/message", 100, 0x1234, 2000);
    attempt("ud/empty", 0, 0x1234, 2000);
    attempt("ud/largest", 128u << adapter.mtu(), 0x1234, 8000);
    attempt("ud/too_large", (128u << adapter.mtu()) + 1, 0x1234, 8000);
    attempt("ud/wrong_qkey", 100, 0x4321, 2000);
    attempt("ud/receive_too_short", 100, 0x1234, 100);
    {
        Pair pair(adapter, {.type = IBV_QPT_UD});
        ibv_ah_attr address = adapter.to_itself();
        const Handle handle(ibv_create_ah(pair.pd.get(), &address));
        ibv_sge piece = pair.a.piece();
        ibv_send_wr request = send(piece);
        request.wr.ud = {handle.get(), pair.b.qp->qp_num, 0x1234};
        pair.a.post(request);
        say("ud/no_receive", {pair.a.completions(), pair.states(adapter)});
        request.wr.ud.remote_qpn = 0xabcde;
        pair.a.post(request);
        say("ud/no_peer", {pair.a.completions(), pair.states(adapter)});
        request.opcode = IBV_WR_RDMA_WRITE;
        const int error = pair.a.post(request);
        if (error != 0) {
            say("ud/write", {"refused"});
        } else {
            say("ud/write", {pair.a.completions(), pair.states(adapter)});
        }
    }
    ibv_ah_attr address = adapter.to_itself();
    const Domain pd(ibv_alloc_pd(adapter.context()));
    address.port_num = 9;
    const Handle wrong(ibv_create_ah(pd.get(), &address));
    say("ah/wrong_port", {wrong ? "made" : error_name(-1)});
}

}  // namespace conformance
