// SPDX-License-Identifier: BSD-3-Clause
#include <cstring>

#include "rdma/conformance.h"

// Correct use: what completions say, and that data is where it belongs.
namespace conformance {

namespace {

std::string same(const End& from, size_t from_offset, const End& to, size_t to_offset, size_t n) {
    const bool equal =
        std::memcmp(from.memory.data() + from_offset, to.memory.data() + to_offset, n) == 0;
    return equal ? " data right" : " data wrong";
}

void messages(Adapter& adapter) {
    for (const size_t length : {size_t{0}, size_t{1}, size_t{64}, size_t{5000}, size_t{30000}}) {
        Pair pair(adapter);
        pair.b.receive(32000);
        for (size_t i = 0; i < length; ++i) pair.a.memory[i] = static_cast<char>(i * 7);
        pair.a.post(send(pair.a.piece(0, length)));
        say("send/" + std::to_string(length) + "_bytes",
            {pair.a.completions(1, true), " | ", pair.b.completions(1, true),
             same(pair.a, 0, pair.b, 32768, length)});
    }
    for (const bool writes : {false, true}) {
        Pair pair(adapter);
        pair.b.receive();
        ibv_sge piece = pair.a.piece();
        ibv_send_wr request =
            writes ? rdma(IBV_WR_RDMA_WRITE_WITH_IMM, piece, pair.b) : send(piece);
        request.opcode = writes ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_SEND_WITH_IMM;
        request.imm_data = htobe32(4711);
        pair.a.post(request);
        say(writes ? "write/immediate" : "send/immediate",
            {pair.a.completions(1, true), " | ", pair.b.completions(1, true)});
    }
    Pair pair(adapter);
    pair.b.receive();
    ibv_sge piece = pair.a.piece(0, 20);
    piece.lkey = 0;
    ibv_send_wr request = send(piece);
    request.send_flags = IBV_SEND_INLINE;
    pair.a.post(request);
    say("send/inline_without_key",
        {pair.a.completions(1, true), " | ", pair.b.completions(1, true)});
}

void one_sided(Adapter& adapter) {
    for (const size_t length : {size_t{0}, size_t{8}, size_t{9000}}) {
        for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
            Pair pair(adapter);
            for (size_t i = 0; i < length; ++i) pair.b.memory[i] = static_cast<char>(i * 3);
            const ibv_sge piece = pair.a.piece(40000, length);
            const std::string outcome = pair.outcome(rdma(opcode, piece, pair.b));
            say(std::string(opcode == IBV_WR_RDMA_WRITE ? "write/" : "read/") +
                    std::to_string(length) + "_bytes",
                {outcome, same(pair.a, 40000, pair.b, 0, length)});
        }
    }
    for (const ibv_wr_opcode opcode : {IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP}) {
        Pair pair(adapter);
        uint64_t value = 5;
        std::memcpy(pair.b.memory.data(), &value, 8);
        const std::string outcome = pair.outcome(atomic(opcode, pair.a.piece(64, 8), pair.b));
        uint64_t old;
        std::memcpy(&old, pair.a.memory.data() + 64, 8);
        std::memcpy(&value, pair.b.memory.data(), 8);
        say(opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? "atomic/add" : "atomic/compare_swap",
            {outcome, " old ", std::to_string(old), " new ", std::to_string(value)});
    }
    Pair fenced(adapter);
    ibv_send_wr read = rdma(IBV_WR_RDMA_READ, fenced.a.piece(0, 4096), fenced.b);
    ibv_send_wr write = rdma(IBV_WR_RDMA_WRITE, fenced.a.piece(8192, 64), fenced.b, 16384);
    write.send_flags = IBV_SEND_FENCE;
    fenced.a.post(read, 1);
    fenced.a.post(write, 2);
    say("fence/read_then_write", {fenced.a.completions(2)});
}

void signalling(Adapter& adapter) {
    Pair pair(adapter, {.signal_all = 0});
    const ibv_sge piece = pair.a.piece();
    for (uint64_t id = 1; id <= 3; ++id) {
        ibv_send_wr request = rdma(IBV_WR_RDMA_WRITE, piece, pair.b);
        request.send_flags = id == 3 ? unsigned{IBV_SEND_SIGNALED} : 0u;
        pair.a.post(request, id);
    }
    say("signalling/last_of_three", {pair.a.completions(2)});
}

}  // namespace

void transfers(Adapter& adapter) {
    messages(adapter);
    one_sided(adapter);
    signalling(adapter);
}

}  // namespace conformance
