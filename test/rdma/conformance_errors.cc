// SPDX-License-Identifier: BSD-3-Clause
#include "rdma/conformance.h"

// Wrong use: status at each end, states and events after it.
namespace conformance {

namespace {

struct Operation {
    const char* name;
    ibv_wr_opcode opcode;
    int right;  // that the target's region must give
};
constexpr Operation kOneSided[] = {
    {"write", IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_WRITE},
    {"read", IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_READ},
    {"atomic", IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_ACCESS_REMOTE_ATOMIC}};

ibv_send_wr make(const Operation& operation, const ibv_sge& piece, const End& target,
                 size_t offset = 0) {
    return operation.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD
               ? atomic(operation.opcode, piece, target, offset)
               : rdma(operation.opcode, piece, target, offset);
}

// Its key in the place that the operation reads.
void set_key(ibv_send_wr& request, uint32_t key) {
    if (request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        request.wr.atomic.rkey = key;
    } else {
        request.wr.rdma.rkey = key;
    }
}

void remote_access(Adapter& adapter) {
    for (const Operation& operation : kOneSided) {
        const std::string prefix = std::string("remote/") + operation.name + "/";
        {
            Pair pair(adapter);
            const ibv_sge piece = pair.a.piece(0, 8);
            ibv_send_wr request = make(operation, piece, pair.b);
            set_key(request, pair.b.region->rkey ^ 0x5500);
            say(prefix + "wrong_key", {pair.outcome(request)});
        }
        {
            Pair pair(adapter);
            const ibv_sge piece = pair.a.piece(0, 8);
            say(prefix + "past_the_end", {pair.outcome(make(operation, piece, pair.b, kBytes))});
        }
        if (operation.opcode != IBV_WR_ATOMIC_FETCH_AND_ADD) {
            Pair pair(adapter);
            const ibv_sge piece = pair.a.piece(0, 16);
            say(prefix + "over_the_end",
                {pair.outcome(make(operation, piece, pair.b, kBytes - 15))});
        }
        {
            Pair pair(adapter, {}, kAllAccess & ~operation.right);
            const ibv_sge piece = pair.a.piece(0, 8);
            say(prefix + "region_forbids", {pair.outcome(make(operation, piece, pair.b))});
        }
        {
            Pair pair(adapter, {.access = kAllAccess & ~operation.right});
            const ibv_sge piece = pair.a.piece(0, 8);
            say(prefix + "queue_pair_forbids", {pair.outcome(make(operation, piece, pair.b))});
        }
        {
            Pair pair(adapter);
            const Domain other(ibv_alloc_pd(adapter.context()));
            const Region region(
                (ibv_reg_mr)(other.get(), pair.b.memory.data(), kBytes, kAllAccess));
            const ibv_sge piece = pair.a.piece(0, 8);
            ibv_send_wr request = make(operation, piece, pair.b);
            set_key(request, region->rkey);
            say(prefix + "key_of_another_domain", {pair.outcome(request)});
        }
        {
            Pair pair(adapter);
            const uint32_t key = pair.b.region->rkey;
            pair.b.region.reset();
            const ibv_sge piece = pair.a.piece(0, 8);
            ibv_send_wr request = make(operation, piece, pair.a);
            set_key(request, key);
            if (operation.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
                request.wr.atomic.remote_addr = reinterpret_cast<uintptr_t>(pair.b.memory.data());
            } else {
                request.wr.rdma.remote_addr = reinterpret_cast<uintptr_t>(pair.b.memory.data());
            }
            say(prefix + "key_gone", {pair.outcome(request)});
        }
    }
    Pair pair(adapter);
    const ibv_sge piece = pair.a.piece(0, 8);
    say("remote/atomic/misaligned", {pair.outcome(make(kOneSided[2], piece, pair.b, 4))});
}

void local_access(Adapter& adapter) {
    const auto attempt = [&](const std::string& what, auto&& change) {
        for (const bool reads : {false, true}) {
            Pair pair(adapter);
            pair.b.receive();
            ibv_sge piece = pair.a.piece(0, 32);
            Region readable((ibv_reg_mr)(pair.pd.get(), pair.a.memory.data(), kBytes, 0));
            change(pair, piece, *readable);
            const ibv_send_wr request = reads ? rdma(IBV_WR_RDMA_READ, piece, pair.b) : send(piece);
            say("local/" + what + (reads ? "/read" : "/send"), {pair.outcome(request)});
        }
    };
    attempt("wrong_key", [](Pair&, ibv_sge& piece, ibv_mr&) { piece.lkey ^= 0x5500; });
    attempt("past_the_end", [](Pair&, ibv_sge& piece, ibv_mr&) { piece.addr += kBytes; });
    attempt("read_only", [](Pair&, ibv_sge& piece, ibv_mr& region) { piece.lkey = region.lkey; });
    {
        Pair pair(adapter);
        ibv_sge wrong = pair.b.piece();
        wrong.lkey ^= 0x5500;
        ibv_recv_wr request{100, nullptr, &wrong, 1};
        ibv_recv_wr* bad;
        const int error = ibv_post_recv(pair.b.qp.get(), &request, &bad);
        say("local/wrong_key/receive/post", {error_name(error)});
        if (error == 0) {
            pair.a.post(send(pair.a.piece()));
            say("local/wrong_key/receive",
                {pair.a.completions(), " | ", pair.b.completions(), pair.states(adapter)});
        }
    }
    {
        Pair pair(adapter);
        pair.b.receive(32);
        pair.a.post(send(pair.a.piece(0, 64)));
        say("receive/too_short",
            {pair.a.completions(), " | ", pair.b.completions(), pair.states(adapter)});
    }
}

void missing_peers(Adapter& adapter) {
    {
        Pair pair(adapter);
        pair.b.qp.reset();
        pair.a.post(send(pair.a.piece()));
        const std::string outcome = pair.a.completions();
        say("peer/destroyed", {outcome, " state ", pair.a.state()});
    }
    {
        Pair pair(adapter);
        pair.b.to_error();
        pair.a.post(send(pair.a.piece()));
        say("peer/in_error", {pair.a.completions(), pair.states(adapter)});
    }
    {
        Pair pair(adapter);
        ibv_qp_attr attributes{};
        attributes.qp_state = IBV_QPS_RESET;
        ibv_modify_qp(pair.b.qp.get(), &attributes, IBV_QP_STATE);
        pair.a.post(send(pair.a.piece()));
        say("peer/reset", {pair.a.completions(), pair.states(adapter)});
    }
    {
        Pair pair(adapter);
        pair.a.post(send(pair.a.piece()));
        say("peer/no_receive/no_retry", {pair.a.completions(), pair.states(adapter)});
    }
    {
        const Domain pd(ibv_alloc_pd(adapter.context()));
        End a(adapter, pd.get()), b(adapter, pd.get());
        a.rnr_retries = 7;  // without end
        a.to_init();
        b.to_init();
        a.connect(b);
        b.connect(a);
        a.post(send(a.piece()));
        const std::string before = a.completions();
        b.receive();
        say("peer/no_receive/endless_retry",
            {before, " then ", a.completions(), " | ", b.completions(), " state ", a.state()});
    }
}

void flush(Adapter& adapter) {
    {
        Pair pair(adapter);
        for (uint64_t id = 10; id < 13; ++id) pair.a.receive(64, id);
        pair.a.to_error();
        say("flush/receives", {pair.a.completions(3), pair.states(adapter)});
        say("flush/send_afterwards",
            {error_name(pair.a.post(send(pair.a.piece()), 20)), " ", pair.a.completions()});
        say("flush/receive_afterwards",
            {error_name(pair.a.receive(64, 21)), " ", pair.a.completions()});
    }
    {
        Pair pair(adapter);
        const ibv_sge piece = pair.a.piece(0, 8);
        ibv_send_wr wrong = rdma(IBV_WR_RDMA_WRITE, piece, pair.b);
        wrong.wr.rdma.rkey ^= 0x5500;
        pair.a.post(rdma(IBV_WR_RDMA_WRITE, piece, pair.b), 1);
        pair.a.post(wrong, 2);
        pair.a.post(rdma(IBV_WR_RDMA_READ, piece, pair.b), 3);
        pair.a.post(send(piece), 4);
        say("flush/behind_a_failure", {pair.a.completions(4), pair.states(adapter)});
    }
    {
        Pair pair(adapter, {.signal_all = 0});
        const ibv_sge piece = pair.a.piece(0, 8);
        ibv_send_wr wrong = rdma(IBV_WR_RDMA_WRITE, piece, pair.b);
        wrong.wr.rdma.rkey ^= 0x5500;
        pair.a.post(rdma(IBV_WR_RDMA_WRITE, piece, pair.b), 1);
        pair.a.post(wrong, 2);
        pair.a.post(rdma(IBV_WR_RDMA_WRITE, piece, pair.b), 3);
        say("flush/unsignalled", {pair.a.completions(2), pair.states(adapter)});
    }
    {
        Pair pair(adapter);
        pair.a.receive();
        pair.a.to_error();
        ibv_qp_attr attributes{};
        attributes.qp_state = IBV_QPS_RESET;
        pair.a.completions();
        say("flush/reset_and_again",
            {error_name(ibv_modify_qp(pair.a.qp.get(), &attributes, IBV_QP_STATE)), " ",
             pair.a.state()});
        Pair fresh(adapter);
        pair.a.to_init();
        pair.a.connect(fresh.b);
        fresh.b.to_error();
        ibv_modify_qp(fresh.b.qp.get(), &attributes, IBV_QP_STATE);
        fresh.b.to_init();
        fresh.b.connect(pair.a);
        fresh.b.receive();
        pair.a.post(send(pair.a.piece()));
        say("flush/reconnected", {pair.a.completions(), " | ", fresh.b.completions()});
    }
}

}  // namespace

void errors(Adapter& adapter) {
    remote_access(adapter);
    local_access(adapter);
    missing_peers(adapter);
    flush(adapter);
}

}  // namespace conformance
