// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tools/common/device_memory.h"
#include "tools/perf/options.h"
#include "tools/program/worker.h"
#include "ucp/api/ucpx.h"

namespace tools::perf {

// A context for all kinds of operations.
class Context {
  public:
    // A device's memory is for all peers of the context.
    Context(const Options& options, bool is_initiator);
    Context(Context&&) = delete;
    ~Context();
    ucp_context_h handle() const { return handle_; }
    // Null: messages lie in host memory that CUDA knows nothing of.
    const CudaDevice* device() const { return device_.get(); }

  private:
    std::unique_ptr<CudaDevice> device_;
    ucp_context_h handle_ = nullptr;
};

// Messages from the initiator's thread to the target's, and back.
struct Instruction {
    enum class Kind : uint32_t { kFill, kCheck, kEcho, kReceive, kEnd, kUsage, kLeave };
    Kind kind;
    uint32_t slots;
    uint64_t size;
    uint64_t sequence;  // of the first slot's content
    uint64_t count;     // kEnd: messages that were sent
};
struct Answer {
    uint64_t wrong;  // messages whose content was not as it should be
    uint64_t value;  // kUsage: processor time of the process, ns
};

inline constexpr unsigned kMessageId = 1;
inline constexpr ucp_tag_t kDataTag = 1;
inline constexpr ucp_tag_t kInstructionTag = 2;
inline constexpr ucp_tag_t kAnswerTag = 3;

// Operations under way at a time. Outlives them.
class Window {
  public:
    // The parameters of each operation.
    ucp_request_param_t params();
    // What the call returned. Throws on an error.
    void started(ucs_status_ptr_t result);
    unsigned outstanding() const { return outstanding_; }
    // Throws the first error of an operation.
    void check() const { tools::check(status_, "operation"); }

  private:
    static void on_done(void* request, ucs_status_t status, void* self);
    unsigned outstanding_ = 0;
    ucs_status_t status_ = UCS_OK;
};

// One thread's half of a pair: a worker, a registered buffer, an endpoint to the other half.
class PairEnd {
  public:
    PairEnd(const Context& context, const Options& options, uint32_t index, bool is_initiator);
    PairEnd(const PairEnd&) = delete;
    ~PairEnd();

    Json introduction() const;
    // With the other half's introduction.
    void connect(const Json& other);

    const Options& options() const { return options_; }
    ucp_worker_h worker() const { return worker_; }
    ucp_ep_h endpoint() const { return endpoint_; }
    ucp_mem_h memory() const { return memory_; }
    // Of an operation on it.
    ucp_request_param_t params() const {
        ucp_request_param_t params{};
        params.op_attr_mask = UCP_OP_ATTR_FIELD_MEMH;
        params.memh = memory_;
        return params;
    }
    ucp_rkey_h remote_key() const { return remote_key_; }
    std::byte* slot(uint64_t index, uint64_t size) const { return buffer_ + index * size; }
    uint64_t remote_slot(uint64_t index, uint64_t size) const { return remote_ + index * size; }

    // Throws if the endpoint has failed: what is waited for may never come then.
    void progress();
    // Until nothing is under way.
    void drain(Window& window);
    void wait(ucs_status_ptr_t operation);
    void flush();

    // Initiator: what the other half is to do. All but kLeave have an answer; that of kEcho and
    // kReceive says that it is ready for messages.
    void instruct(const Instruction& instruction) {
        send(kInstructionTag, &instruction, sizeof(instruction));
    }
    Answer ask(const Instruction& instruction);
    // Target: a receive for an instruction, and the answer.
    ucs_status_ptr_t receive_instruction(Instruction* instruction);
    void answer(const Answer& answer) { send(kAnswerTag, &answer, sizeof(answer)); }

    // Content of slots [0, slots) as of messages `sequence` and so on; `mirrored`: from the last
    // slot to the first.
    void fill(uint64_t sequence, unsigned slots, uint64_t size, bool mirrored) const;
    // @return how many are not as fill() leaves them
    uint64_t count_wrong(uint64_t sequence, unsigned slots, uint64_t size, bool mirrored) const;
    void fill_message(std::span<std::byte> message, uint64_t sequence) const;
    bool is_right(std::span<const std::byte> message, uint64_t sequence) const;
    // Is it of that size and, as far as contents are verified, right?
    bool is_as_sent(std::span<const std::byte> message, uint64_t size, uint64_t sequence) const {
        return message.size() == size && (!options_.verify || is_right(message, sequence));
    }

    // Active messages that came in whole so far, and those with wrong content.
    struct Arrivals {
        uint64_t started = 0;
        uint64_t finished = 0;
        uint64_t wrong = 0;
        uint64_t size = 0;  // expected
        unsigned slots = 1;
        uint64_t notified = 0;
    };
    Arrivals& arrivals() { return arrivals_; }

  private:
    void make_buffer();
    bool is_on_device(const std::byte* data) const {
        return device_ != nullptr && !device_->is_pinned() && data >= buffer_ &&
               data < buffer_ + options_.buffer_length();
    }
    static void on_failed(void* self, ucp_ep_h, ucs_status_t status) {
        static_cast<PairEnd*>(self)->failure_ = status;
    }
    static ucs_status_t on_message(void* self, const void* header, size_t header_length, void* data,
                                   size_t length, const ucp_am_recv_param_t* param);
    static void on_message_received(void* request, ucs_status_t status, size_t length, void* self);
    static void on_notified(void* self, uint64_t sender_uid, uint64_t value) {
        ++static_cast<PairEnd*>(self)->arrivals_.notified;
    }
    void arrived(const std::byte* data, size_t length, uint64_t sequence);
    void send(ucp_tag_t tag, const void* data, size_t length);
    void doze();

    const Options& options_;
    const uint32_t index_;
    const bool is_initiator_;
    const bool shares_cores_;
    const CudaDevice* const device_;
    ucp_context_h context_;
    ucp_worker_h worker_ = nullptr;
    ucp_ep_h endpoint_ = nullptr;
    ucs_status_t failure_ = UCS_OK;  // of the endpoint
    ucp_mem_h memory_ = nullptr;
    ucp_rkey_h remote_key_ = nullptr;
    std::byte* buffer_ = nullptr;
    uint64_t remote_ = 0;
    unsigned idle_ = 0;
    int event_fd_ = -1;
    Arrivals arrivals_;
    struct Fetch {
        PairEnd* peer;
        uint64_t sequence;
    };
    std::vector<Fetch> fetches_;  // data of active messages on its way, by slot
};

// The life of one thread of the target: do as the initiator's thread orders, until it leaves.
void serve(PairEnd& peer);

// Processor time that this process has taken, ns.
uint64_t process_usage();

}  // namespace tools::perf
