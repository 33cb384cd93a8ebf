// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

// What an adapter answers to correct and to wrong use, one line a case: run on two adapters, the
// texts can be compared. Plain verbs, no library of ours, so that nothing of it can hide a
// difference.
namespace conformance {

template <auto Destroy>
struct Deleter {
    template <typename T>
    void operator()(T* object) const {
        Destroy(object);
    }
};
using Domain = std::unique_ptr<ibv_pd, Deleter<ibv_dealloc_pd>>;
using Region = std::unique_ptr<ibv_mr, Deleter<ibv_dereg_mr>>;
using Queue = std::unique_ptr<ibv_cq, Deleter<ibv_destroy_cq>>;
using Shared = std::unique_ptr<ibv_srq, Deleter<ibv_destroy_srq>>;
using QueuePair = std::unique_ptr<ibv_qp, Deleter<ibv_destroy_qp>>;
using Handle = std::unique_ptr<ibv_ah, Deleter<ibv_destroy_ah>>;

constexpr int kAllAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                           IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr size_t kBytes = 65536;

// The adapter under test, its first port, and the address by which the port reaches itself.
class Adapter {
  public:
    explicit Adapter(const char* name);
    ~Adapter();
    Adapter(const Adapter&) = delete;

    ibv_context* context() const { return context_; }
    ibv_ah_attr to_itself() const;
    ibv_mtu mtu() const { return port_.active_mtu; }
    // Asynchronous events since the last call, sorted, comma between; those of starting are left
    // out: whether a connection's first packet is reported is the adapter's choice.
    // @param least  waits two seconds for so many, else just a moment for any
    std::string events(size_t least = 0);

  private:
    ibv_device** list_;
    ibv_context* context_ = nullptr;
    ibv_port_attr port_{};
    int gid_index_ = 0;
};

struct QueuePairOptions {
    ibv_qp_type type = IBV_QPT_RC;
    ibv_srq* srq = nullptr;
    unsigned depth = 16;
    unsigned inline_bytes = 32;
    int access = kAllAccess;
    int signal_all = 1;
};

// One end: a queue pair with its completion queue and some memory.
struct End {
    End(Adapter& adapter, ibv_pd* pd, const QueuePairOptions& options = {},
        int access = kAllAccess);

    void to_init();
    int modify_to_init(ibv_qp_attr attributes, int mask);
    ibv_qp_attr rtr(const End& peer, int* mask) const;
    ibv_qp_attr rts(int* mask) const;
    void connect(const End& peer);
    void to_error();
    std::string state() const;

    ibv_sge piece(size_t offset = 0, size_t length = 64) const;
    // @return what ibv_post_send answers
    int post(ibv_send_wr request, uint64_t id = 1);
    int receive(size_t length = 64, uint64_t id = 100, int pieces = 1);
    // "id:STATUS" of each completion, up to `most`, waiting until there are so many or it is
    // clear that none comes.
    std::string completions(unsigned most = 1, bool details = false);

    Adapter& adapter;
    QueuePairOptions options;
    std::vector<char> memory;
    Region region;
    Queue cq;
    QueuePair qp;
    bool failed = false;  // a completion said so
    uint8_t timeout = 14, retries = 1, rnr_retries = 0;
};

// Two ends, connected.
struct Pair {
    explicit Pair(Adapter& adapter, const QueuePairOptions& options = {}, int access = kAllAccess);
    // Post at the requester; then both ends' completions, states and the events, in words.
    std::string outcome(ibv_send_wr request);
    std::string states(Adapter& adapter) const;

    Domain pd;
    End a, b;
};

ibv_send_wr send(const ibv_sge& piece);
ibv_send_wr rdma(ibv_wr_opcode opcode, const ibv_sge& piece, const End& target, size_t offset = 0);
ibv_send_wr atomic(ibv_wr_opcode opcode, const ibv_sge& piece, const End& target,
                   size_t offset = 0);

std::string error_name(int error);
// The parts are made in their order, which operands of + are not.
void say(const std::string& what, std::initializer_list<std::string> parts);

void states(Adapter& adapter);
void transfers(Adapter& adapter);
void errors(Adapter& adapter);
void queues(Adapter& adapter);
void datagrams(Adapter& adapter);

}  // namespace conformance
