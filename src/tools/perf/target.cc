// SPDX-License-Identifier: BSD-3-Clause
#include "tools/perf/peer.h"

#include <sys/resource.h>

#include <stdexcept>
#include <vector>

namespace tools::perf {
namespace {

// The order that ends what is being done.
class NextOrder {
  public:
    explicit NextOrder(Peer& peer) : peer_(peer), receive_(peer.receive_order(&order_)) {}
    bool has_come() const {
        return !UCS_PTR_IS_PTR(receive_) || ucp_request_is_completed(receive_) != 0;
    }
    Order take() {
        peer_.wait(receive_);
        return order_;
    }

  private:
    Peer& peer_;
    Order order_{};
    ucs_status_ptr_t receive_;
};

// A receive that is posted again and again.
class DataReceive {
  public:
    void post(Peer& peer, std::byte* buffer, uint64_t size) {
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
    void cancel(Peer& peer) {
        ucp_request_cancel(peer.worker(), request_);
        while (!is_done()) peer.progress();
        ucp_request_free(request_);
    }

  private:
    ucs_status_ptr_t request_ = nullptr;
};

void echo_messages(Peer& peer, const Order& order) {
    NextOrder next(peer);
    Answer result{};
    DataReceive receive;
    std::byte* buffer = peer.slot(0, order.size);
    receive.post(peer, buffer, order.size);
    peer.answer({});
    const ucp_request_param_t params = peer.params();
    for (uint64_t sequence = 0; !next.has_come();) {
        peer.progress();
        if (!receive.is_done()) continue;
        const size_t length = receive.take();
        result.wrong += !peer.is_as_sent({buffer, length}, order.size, sequence);
        ++sequence;
        peer.wait(ucp_tag_send_nbx(peer.endpoint(), buffer, order.size, kDataTag, &params));
        receive.post(peer, buffer, order.size);
    }
    next.take();
    receive.cancel(peer);
    peer.answer(result);
}

void echo_active_messages(Peer& peer, const Order& order) {
    NextOrder next(peer);
    peer.arrivals() = {.size = order.size, .slots = order.slots};
    const ucp_request_param_t params = peer.params();
    peer.answer({});
    for (uint64_t sequence = 0; !next.has_come();) {
        peer.progress();
        if (peer.arrivals().finished == sequence) continue;
        std::byte* buffer = peer.slot(sequence % order.slots, order.size);
        if (peer.options().verify) peer.fill_message({buffer, order.size}, sequence);
        ++sequence;
        peer.wait(
            ucp_am_send_nbx(peer.endpoint(), kMessageId, nullptr, 0, buffer, order.size, &params));
    }
    next.take();
    peer.answer({peer.arrivals().wrong, 0});
}

void receive_messages(Peer& peer, const Order& order) {
    NextOrder next(peer);
    Answer result{};
    std::vector<DataReceive> receives(order.slots);
    for (unsigned i = 0; i < order.slots; ++i) {
        receives[i].post(peer, peer.slot(i, order.size), order.size);
    }
    peer.answer({});
    uint64_t sequence = 0;
    const auto take_one = [&] {
        const unsigned place = static_cast<unsigned>(sequence % order.slots);
        std::byte* buffer = peer.slot(place, order.size);
        const size_t length = receives[place].take();
        result.wrong += !peer.is_as_sent({buffer, length}, order.size, sequence);
        ++sequence;
        receives[place].post(peer, buffer, order.size);
    };
    while (!next.has_come()) {
        peer.progress();
        while (receives[sequence % order.slots].is_done()) take_one();
    }
    for (const uint64_t count = next.take().count; sequence < count;) {
        if (receives[sequence % order.slots].is_done()) {
            take_one();
        } else {
            peer.progress();
        }
    }
    // The time is being taken: the answer first.
    peer.answer(result);
    for (DataReceive& receive : receives) receive.cancel(peer);
}

void receive_active_messages(Peer& peer, const Order& order) {
    NextOrder next(peer);
    peer.arrivals() = {.size = order.size, .slots = order.slots};
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

void serve(Peer& peer) {
    const bool is_am = peer.options().operation == Operation::kAm;
    const uint64_t room = peer.options().buffer_length();
    for (;;) {
        const Order order = NextOrder(peer).take();
        if (order.slots > 0 && order.size > room / order.slots) {
            throw std::runtime_error("an order for more memory than there is");
        }
        switch (order.kind) {
            case Order::Kind::kFill:
                peer.fill(order.sequence, order.slots, order.size, false);
                peer.answer({});
                break;
            case Order::Kind::kCheck:
                peer.answer({peer.count_wrong(order.sequence, order.slots, order.size, false), 0});
                break;
            case Order::Kind::kEcho:
                is_am ? echo_active_messages(peer, order) : echo_messages(peer, order);
                break;
            case Order::Kind::kReceive:
                is_am ? receive_active_messages(peer, order) : receive_messages(peer, order);
                break;
            case Order::Kind::kEnd:
                while (peer.arrivals().notified < order.count) peer.progress();
                peer.arrivals().notified -= order.count;
                peer.answer({});
                break;
            case Order::Kind::kUsage:
                peer.answer({0, process_usage()});
                break;
            case Order::Kind::kLeave:
                peer.flush();
                return;
        }
    }
}

}  // namespace tools::perf
