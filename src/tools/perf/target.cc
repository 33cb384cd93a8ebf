// SPDX-License-Identifier: BSD-3-Clause
#include "tools/perf/pair_end.h"

#include <sys/resource.h>

#include <cassert>
#include <stdexcept>
#include <vector>

namespace tools::perf {
namespace {

// The instruction that ends what is being done.
class NextInstruction {
  public:
    explicit NextInstruction(PairEnd& peer)
        : peer_(peer), receive_(peer.receive_instruction(&instruction_)) {}
    bool has_come() const {
        return !UCS_PTR_IS_PTR(receive_) || ucp_request_is_completed(receive_) != 0;
    }
    Instruction take() {
        peer_.wait(receive_);
        return instruction_;
    }

  private:
    PairEnd& peer_;
    Instruction instruction_{};
    ucs_status_ptr_t receive_;
};

// A receive that is posted again and again.
class DataReceive {
  public:
    void post(PairEnd& peer, std::byte* buffer, uint64_t size) {
        ucp_request_param_t params = peer.params();
        params.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
        request_ = ucp_tag_recv_nbx(peer.worker(), buffer, size, kDataTag, ~ucp_tag_t{0}, &params);
        if (UCS_PTR_IS_ERR(request_)) check(UCS_PTR_STATUS(request_), "receive");
    }
    bool is_done() const { return ucp_request_is_completed(request_) != 0; }
    // @return bytes, of a receive that is done
    size_t take() {
        ucp_tag_recv_info_t info{};
        const ucs_status_t status = ucp_tag_recv_request_test(request_, &info);
        ucp_request_free(request_);
        check(status, "receive");
        return info.length;
    }
    void cancel(PairEnd& peer) {
        ucp_request_cancel(peer.worker(), request_);
        while (!is_done()) peer.progress();
        ucp_request_free(request_);
    }

  private:
    ucs_status_ptr_t request_ = nullptr;
};

void echo_messages(PairEnd& peer, const Instruction& instruction) {
    NextInstruction next(peer);
    Answer result{};
    DataReceive receive;
    std::byte* buffer = peer.slot(0, instruction.size);
    receive.post(peer, buffer, instruction.size);
    peer.answer({});
    const ucp_request_param_t params = peer.params();
    for (uint64_t sequence = 0; !next.has_come();) {
        peer.progress();
        if (!receive.is_done()) continue;
        const size_t length = receive.take();
        result.wrong += !peer.is_as_sent({buffer, length}, instruction.size, sequence);
        ++sequence;
        peer.wait(ucp_tag_send_nbx(peer.endpoint(), buffer, instruction.size, kDataTag, &params));
        receive.post(peer, buffer, instruction.size);
    }
    next.take();
    receive.cancel(peer);
    peer.answer(result);
}

void echo_active_messages(PairEnd& peer, const Instruction& instruction) {
    NextInstruction next(peer);
    peer.arrivals() = {.size = instruction.size, .slots = instruction.slots};
    const ucp_request_param_t params = peer.params();
    peer.answer({});
    for (uint64_t sequence = 0; !next.has_come();) {
        peer.progress();
        if (peer.arrivals().finished == sequence) continue;
        std::byte* buffer = peer.slot(sequence % instruction.slots, instruction.size);
        if (peer.options().verify) peer.fill_message({buffer, instruction.size}, sequence);
        ++sequence;
        peer.wait(ucp_am_send_nbx(peer.endpoint(), kMessageId, nullptr, 0, buffer, instruction.size,
                                  &params));
    }
    next.take();
    peer.answer({peer.arrivals().wrong, 0});
}

void receive_messages(PairEnd& peer, const Instruction& instruction) {
    assert(instruction.slots != 0);  // serve()
    NextInstruction next(peer);
    Answer result{};
    std::vector<DataReceive> receives(instruction.slots);
    for (unsigned i = 0; i < instruction.slots; ++i) {
        receives[i].post(peer, peer.slot(i, instruction.size), instruction.size);
    }
    peer.answer({});
    uint64_t sequence = 0;
    const auto take_one = [&] {
        const unsigned place = static_cast<unsigned>(sequence % instruction.slots);
        std::byte* buffer = peer.slot(place, instruction.size);
        const size_t length = receives[place].take();
        result.wrong += !peer.is_as_sent({buffer, length}, instruction.size, sequence);
        ++sequence;
        receives[place].post(peer, buffer, instruction.size);
    };
    while (!next.has_come()) {
        peer.progress();
        while (receives[sequence % instruction.slots].is_done()) take_one();
    }
    for (const uint64_t count = next.take().count; sequence < count;) {
        if (receives[sequence % instruction.slots].is_done()) {
            take_one();
        } else {
            peer.progress();
        }
    }
    // The time is being taken: the answer first.
    peer.answer(result);
    for (DataReceive& receive : receives) receive.cancel(peer);
}

void receive_active_messages(PairEnd& peer, const Instruction& instruction) {
    NextInstruction next(peer);
    peer.arrivals() = {.size = instruction.size, .slots = instruction.slots};
    peer.answer({});
    while (!next.has_come()) peer.progress();
    const uint64_t count = next.take().count;
    while (peer.arrivals().finished < count) peer.progress();
    peer.answer({peer.arrivals().wrong, 0});
}

}  // namespace

uint64_t process_usage() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto nanoseconds = [](const timeval& time) {
        return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 +
               static_cast<uint64_t>(time.tv_usec) * 1000;
    };
    return nanoseconds(usage.ru_utime) + nanoseconds(usage.ru_stime);
}

void serve(PairEnd& peer) {
    const bool is_am = peer.options().operation == Operation::kAm;
    const uint64_t room = peer.options().buffer_length();
    for (;;) {
        const Instruction instruction = NextInstruction(peer).take();
        if (instruction.slots > 0 && instruction.size > room / instruction.slots) {
            throw std::runtime_error("an order for more memory than there is");
        }
        const bool has_messages = instruction.kind == Instruction::Kind::kEcho ||
                                  instruction.kind == Instruction::Kind::kReceive;
        if (has_messages && instruction.slots == 0)
            throw std::runtime_error("an order for messages without a place for them");
        switch (instruction.kind) {
            case Instruction::Kind::kFill:
                peer.fill(instruction.sequence, instruction.slots, instruction.size, false);
                peer.answer({});
                break;
            case Instruction::Kind::kCheck:
                peer.answer({peer.count_wrong(instruction.sequence, instruction.slots,
                                              instruction.size, false),
                             0});
                break;
            case Instruction::Kind::kEcho:
                is_am ? echo_active_messages(peer, instruction) : echo_messages(peer, instruction);
                break;
            case Instruction::Kind::kReceive:
                is_am ? receive_active_messages(peer, instruction)
                      : receive_messages(peer, instruction);
                break;
            case Instruction::Kind::kEnd:
                while (peer.arrivals().notified < instruction.count) peer.progress();
                peer.arrivals().notified -= instruction.count;
                peer.answer({});
                break;
            case Instruction::Kind::kUsage:
                peer.answer({0, process_usage()});
                break;
            case Instruction::Kind::kLeave:
                peer.flush();
                return;
        }
    }
}

}  // namespace tools::perf
