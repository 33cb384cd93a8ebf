// SPDX-License-Identifier: BSD-3-Clause

// conformance [DEVICE]: prints what the adapter answers in each case, for comparison.

#include "rdma/conformance.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace conformance {

namespace {

using Clock = std::chrono::steady_clock;

// An answer that takes longer will not come. Retries of a missing peer take half of it.
constexpr auto kTimeout = std::chrono::milliseconds(1500);

[[noreturn]] void give_up(const std::string& what) {
    std::fprintf(stderr, "conformance: %s: %s\n", what.c_str(), std::strerror(errno));
    std::exit(2);
}

void must(bool condition, const std::string& what) {
    if (!condition) give_up(what);
}

std::string join(const std::vector<std::string>& words) {
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : ",") + word;
    return text.empty() ? "none" : text;
}

// Short names without spaces, from the library's texts.
std::string word(const char* text) {
    std::string name = text;
    std::ranges::replace(name, ' ', '_');
    return name;
}

}  // namespace

Adapter::Adapter(const char* name) {
    int count = 0;
    list_ = ibv_get_device_list(&count);
    for (int i = 0; i < count && context_ == nullptr; ++i) {
        if (name == nullptr || std::strcmp(name, ibv_get_device_name(list_[i])) == 0) {
            context_ = ibv_open_device(list_[i]);
        }
    }
    must(context_ != nullptr, "no adapter");
    must(ibv_query_port(context_, 1, &port_) == 0, "port 1");
    fcntl(context_->async_fd, F_SETFL, fcntl(context_->async_fd, F_GETFL) | O_NONBLOCK);
    ibv_gid_entry entry{};
    for (uint32_t i = 0; i < static_cast<uint32_t>(port_.gid_tbl_len); ++i) {
        if (ibv_query_gid_ex(context_, 1, i, &entry, 0) == 0 &&
            entry.gid_type == IBV_GID_TYPE_ROCE_V2) {
            gid_index_ = static_cast<int>(i);
        }
    }
}

Adapter::~Adapter() {
    ibv_close_device(context_);
    ibv_free_device_list(list_);
}

ibv_ah_attr Adapter::to_itself() const {
    ibv_ah_attr attributes{};
    attributes.port_num = 1;
    attributes.dlid = port_.lid;
    if (port_.link_layer == IBV_LINK_LAYER_ETHERNET) {
        attributes.is_global = 1;
        attributes.grh.hop_limit = 64;
        attributes.grh.sgid_index = static_cast<uint8_t>(gid_index_);
        must(ibv_query_gid(context_, 1, gid_index_, &attributes.grh.dgid) == 0, "gid");
    }
    return attributes;
}

std::string Adapter::events(size_t least) {
    std::vector<std::string> found;
    const auto start = Clock::now();
    const auto end = start + std::chrono::milliseconds(20);
    const auto last = start + std::chrono::seconds(2);
    do {
        ibv_async_event event;
        if (ibv_get_async_event(context_, &event) == 0) {
            if (event.event_type != IBV_EVENT_COMM_EST) {
                found.push_back(word(ibv_event_type_str(event.event_type)));
            }
            ibv_ack_async_event(&event);
        } else {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    } while (Clock::now() < end || (found.size() < least && Clock::now() < last));
    std::ranges::sort(found);
    return join(found);
}

End::End(Adapter& adapter, ibv_pd* pd, const QueuePairOptions& options, int access)
    : adapter(adapter), options(options), memory(2 * kBytes) {
    for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<char>(i);
    region.reset((ibv_reg_mr)(pd, memory.data(), kBytes, access));
    cq.reset(ibv_create_cq(adapter.context(), 128, nullptr, nullptr, 0));
    ibv_qp_init_attr attributes{};
    attributes.qp_type = options.type;
    attributes.send_cq = attributes.recv_cq = cq.get();
    attributes.srq = options.srq;
    attributes.sq_sig_all = options.signal_all;
    attributes.cap = {options.depth, options.srq ? 0 : options.depth, 4, options.srq ? 0u : 4u,
                      options.inline_bytes};
    qp.reset(ibv_create_qp(pd, &attributes));
    must(region && cq && qp, "objects of an end");
}

int End::modify_to_init(ibv_qp_attr attributes, int mask) {
    return ibv_modify_qp(qp.get(), &attributes, mask);
}

void End::to_init() {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.port_num = 1;
    attributes.qkey = 0x1234;
    attributes.qp_access_flags = static_cast<unsigned>(options.access);
    const int last = options.type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
    must(modify_to_init(attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | last) == 0,
         "init");
}

ibv_qp_attr End::rtr(const End& peer, int* mask) const {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RTR;
    *mask = IBV_QP_STATE;
    if (options.type == IBV_QPT_UD) return attributes;
    attributes.ah_attr = adapter.to_itself();
    attributes.path_mtu = IBV_MTU_1024;
    attributes.dest_qp_num = peer.qp->qp_num;
    attributes.rq_psn = 77;
    attributes.max_dest_rd_atomic = 4;
    attributes.min_rnr_timer = 1;
    *mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    return attributes;
}

ibv_qp_attr End::rts(int* mask) const {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RTS;
    attributes.sq_psn = 77;
    *mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (options.type == IBV_QPT_UD) return attributes;
    attributes.timeout = timeout;
    attributes.retry_cnt = retries;
    attributes.rnr_retry = rnr_retries;
    attributes.max_rd_atomic = 4;
    *mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    return attributes;
}

void End::connect(const End& peer) {
    int mask;
    ibv_qp_attr attributes = rtr(peer, &mask);
    must(ibv_modify_qp(qp.get(), &attributes, mask) == 0, "rtr");
    attributes = rts(&mask);
    must(ibv_modify_qp(qp.get(), &attributes, mask) == 0, "rts");
}

void End::to_error() {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_ERR;
    must(ibv_modify_qp(qp.get(), &attributes, IBV_QP_STATE) == 0, "error state");
}

std::string End::state() const {
    static constexpr const char* kNames[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
    // A completion in error may come before the state that follows from it.
    const auto end = Clock::now() + std::chrono::milliseconds(failed ? 500 : 0);
    for (;;) {
        ibv_qp_attr attributes{};
        ibv_qp_init_attr initial{};
        must(ibv_query_qp(qp.get(), &attributes, IBV_QP_STATE, &initial) == 0, "query");
        if (attributes.qp_state != IBV_QPS_RTS || Clock::now() >= end) {
            return kNames[attributes.qp_state];
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

ibv_sge End::piece(size_t offset, size_t length) const {
    return {reinterpret_cast<uintptr_t>(memory.data() + offset), static_cast<uint32_t>(length),
            region->lkey};
}

int End::post(ibv_send_wr request, uint64_t id) {
    request.wr_id = id;
    ibv_send_wr* bad;
    return ibv_post_send(qp.get(), &request, &bad);
}

int End::receive(size_t length, uint64_t id, int pieces) {
    std::vector<ibv_sge> list(static_cast<size_t>(pieces), piece(32768, length));
    ibv_recv_wr request{id, nullptr, list.data(), pieces};
    ibv_recv_wr* bad;
    return options.srq != nullptr ? ibv_post_srq_recv(options.srq, &request, &bad)
                                  : ibv_post_recv(qp.get(), &request, &bad);
}

std::string End::completions(unsigned most, bool details) {
    std::vector<std::string> found;
    const auto end = Clock::now() + kTimeout;
    while (found.size() < most && Clock::now() < end) {
        ibv_wc completion{};
        const int count = ibv_poll_cq(cq.get(), 1, &completion);
        must(count >= 0, "poll");
        if (count == 0) {
            std::this_thread::sleep_for(std::chrono::microseconds(200));
            continue;
        }
        std::string text =
            std::to_string(completion.wr_id) + ":" + word(ibv_wc_status_str(completion.status));
        failed = failed || completion.status != IBV_WC_SUCCESS;
        if (details && completion.status == IBV_WC_SUCCESS) {
            text += "/opcode" + std::to_string(completion.opcode);
            if (completion.opcode & IBV_WC_RECV) {
                text += "/bytes" + std::to_string(completion.byte_len);
                if (completion.wc_flags & IBV_WC_WITH_IMM) {
                    text += "/immediate" + std::to_string(be32toh(completion.imm_data));
                }
            }
        }
        found.push_back(text);
    }
    return join(found);
}

Pair::Pair(Adapter& adapter, const QueuePairOptions& options, int access)
    : pd(ibv_alloc_pd(adapter.context())),
      a(adapter, pd.get(), options),
      b(adapter, pd.get(), options, access) {
    a.to_init();
    b.to_init();
    a.connect(b);
    b.connect(a);
}

std::string Pair::states(Adapter& adapter) const {
    const std::string events = adapter.events();
    return " states " + a.state() + "," + b.state() + " events " + events;
}

std::string Pair::outcome(ibv_send_wr request) {
    const int error = a.post(request);
    if (error != 0) return "refused " + error_name(error);
    std::string text = a.completions();
    return text + states(a.adapter);
}

ibv_send_wr send(const ibv_sge& piece) {
    ibv_send_wr request{};
    request.opcode = IBV_WR_SEND;
    request.sg_list = const_cast<ibv_sge*>(&piece);
    request.num_sge = 1;
    return request;
}

ibv_send_wr rdma(ibv_wr_opcode opcode, const ibv_sge& piece, const End& target, size_t offset) {
    ibv_send_wr request = send(piece);
    request.opcode = opcode;
    request.wr.rdma = {reinterpret_cast<uintptr_t>(target.memory.data()) + offset,
                       target.region->rkey};
    return request;
}

ibv_send_wr atomic(ibv_wr_opcode opcode, const ibv_sge& piece, const End& target, size_t offset) {
    ibv_send_wr request = send(piece);
    request.opcode = opcode;
    request.wr.atomic = {reinterpret_cast<uintptr_t>(target.memory.data()) + offset, 5, 9,
                         target.region->rkey};
    return request;
}

std::string error_name(int error) {
    return error == 0 ? "OK" : strerrorname_np(std::abs(error == -1 ? errno : error));
}

void say(const std::string& what, std::initializer_list<std::string> parts) {
    std::printf("%s: ", what.c_str());
    for (const std::string& part : parts) std::printf("%s", part.c_str());
    std::printf("\n");
    std::fflush(stdout);
}

}  // namespace conformance

int main(int argc, char** argv) {
    conformance::Adapter adapter(argc > 1 ? argv[1] : nullptr);
    conformance::states(adapter);
    conformance::transfers(adapter);
    conformance::errors(adapter);
    conformance::queues(adapter);
    conformance::datagrams(adapter);
    return 0;
}
