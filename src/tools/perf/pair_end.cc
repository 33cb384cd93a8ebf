// SPDX-License-Identifier: BSD-3-Clause
#include "tools/perf/pair_end.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "tools/bench/channel.h"
#include "tools/program/verify.h"

namespace tools::perf {
namespace {

constexpr unsigned kPollsToYield = 100;   // polls without an event before others may run
constexpr unsigned kPollsToSleep = 1000;  // and before it sleeps
constexpr int kLongestSleep = 100;        // ms

}  // namespace

// --- context and window

Context::Context(const Options& options, bool is_initiator) {
    // First, so that the library finds the device's context and gets ready for it.
    const auto place = MemoryPlace::parse(is_initiator ? options.memory : options.target_memory);
    if (place.is_device || place.is_pinned)
        device_ = std::make_unique<CudaDevice>(place, is_initiator);
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
    params.features = UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_AM;
    if (options.sleep) params.features |= UCP_FEATURE_WAKEUP;
    params.mt_workers_shared = options.threads > 1;
    check(ucp_init(&params, nullptr, &handle_), "context");
}

Context::~Context() {
    ucp_cleanup(handle_);
}

ucp_request_param_t Window::params() {
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    params.cb.send = on_done;
    params.user_data = this;
    return params;
}

void Window::started(ucs_status_ptr_t result) {
    if (UCS_PTR_IS_PTR(result)) {
        ++outstanding_;
    } else {
        tools::check(UCS_PTR_RAW_STATUS(result), "operation");
    }
}

void Window::on_done(void* request, ucs_status_t status, void* self) {
    auto& window = *static_cast<Window*>(self);
    --window.outstanding_;
    if (status != UCS_OK && window.status_ == UCS_OK) window.status_ = status;
    ucp_request_free(request);
}

// --- set-up

PairEnd::PairEnd(const Context& context, const Options& options, uint32_t index, bool is_initiator)
    : options_(options),
      index_(index),
      is_initiator_(is_initiator),
      shares_cores_(2 * options.threads > std::thread::hardware_concurrency()),
      device_(context.device()),
      context_(context.handle()),
      fetches_(options.window) {
    ucp_worker_params_t params{};
    params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    params.thread_mode = UCS_THREAD_MODE_SINGLE;
    check(ucp_worker_create(context_, &params, &worker_), "worker");
    if (options.sleep) {
        check(ucp_worker_get_efd(worker_, &event_fd_), "sleeping on these transports");
    }

    make_buffer();

    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                         UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = kMessageId;
    handler.cb = on_message;
    handler.arg = this;
    check(ucp_worker_set_am_recv_handler(worker_, &handler), "handler");
    check(ucpx_worker_set_notify_handler(worker_, on_notified, this), "handler");
}

void PairEnd::make_buffer() {
    const size_t length = options_.buffer_length();
    ucp_mem_map_params_t map{};
    map.length = length;
    if (device_ != nullptr && device_->is_virtual()) {
        buffer_ = device_->allocate(length);
        map.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
        map.address = buffer_;
        check(ucp_mem_map(context_, &map, &memory_), "registration");
        return;
    }
    if (device_ != nullptr && !device_->is_pinned()) {
        map.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS |
                         UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
        map.flags = UCP_MEM_MAP_ALLOCATE;
        map.memory_type = UCS_MEMORY_TYPE_CUDA;
        check(ucp_mem_map(context_, &map, &memory_), "device memory");
        ucp_mem_attr_t attributes{};
        attributes.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
        check(ucp_mem_query(memory_, &attributes), "device memory");
        buffer_ = static_cast<std::byte*>(attributes.address);
        return;
    }
    void* memory = mmap(nullptr, length, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) {
        throw std::system_error(errno, std::generic_category(),
                                fmt::format("a buffer of {} bytes", length));
    }
    buffer_ = static_cast<std::byte*>(memory);
    map.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    map.address = memory;
    if (device_ != nullptr) device_->pin(memory, length);
    check(ucp_mem_map(context_, &map, &memory_), "registration");
}

PairEnd::~PairEnd() {
    if (remote_key_ != nullptr) ucp_rkey_destroy(remote_key_);
    if (memory_ != nullptr) ucp_mem_unmap(context_, memory_);
    if (worker_ != nullptr) ucp_worker_destroy(worker_);
    if (buffer_ != nullptr && device_ != nullptr && device_->is_virtual())
        device_->free(buffer_, options_.buffer_length());
    if (buffer_ == nullptr || (device_ != nullptr && !device_->is_pinned())) return;
    if (device_ != nullptr) device_->unpin(buffer_);
    munmap(buffer_, options_.buffer_length());
}

Json PairEnd::introduction() const {
    ucp_address_t* address = nullptr;
    size_t length = 0;
    check(ucp_worker_get_address(worker_, &address, &length), "worker address");
    const std::string address_bytes(reinterpret_cast<const char*>(address), length);
    ucp_worker_release_address(worker_, address);
    void* key = nullptr;
    check(ucp_rkey_pack(context_, memory_, &key, &length), "remote key");
    const std::string key_bytes(static_cast<const char*>(key), length);
    ucp_rkey_buffer_release(key);
    return {{"address", to_hex(address_bytes)},
            {"key", to_hex(key_bytes)},
            {"buffer", reinterpret_cast<uintptr_t>(buffer_)}};
}

void PairEnd::connect(const Json& other) {
    const std::string address = from_hex(other.at("address"));
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                        UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.address = reinterpret_cast<const ucp_address_t*>(address.data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler = {on_failed, this};
    check(ucp_ep_create(worker_, &params, &endpoint_), "endpoint");
    const std::string key = from_hex(other.at("key"));
    check(ucp_ep_rkey_unpack(endpoint_, key.data(), &remote_key_), "remote key");
    remote_ = other.at("buffer").get<uint64_t>();
}

// --- progress

void PairEnd::progress() {
    if (ucp_worker_progress(worker_) != 0) {
        idle_ = 0;
        check(failure_, "the way to the other process");
        return;
    }
    if (++idle_ < kPollsToYield) return;
    if (event_fd_ >= 0 && idle_ >= kPollsToSleep) {
        doze();
    } else if (shares_cores_) {
        sched_yield();
    }
}

void PairEnd::doze() {
    const ucs_status_t status = ucp_worker_arm(worker_);
    if (status == UCS_ERR_BUSY) return;
    check(status, "sleeping");
    pollfd wait{event_fd_, POLLIN, 0};
    poll(&wait, 1, kLongestSleep);
}

void PairEnd::drain(Window& window) {
    while (window.outstanding() != 0) progress();
    window.check();
}

void PairEnd::wait(ucs_status_ptr_t operation) {
    if (!UCS_PTR_IS_PTR(operation)) {
        check(UCS_PTR_RAW_STATUS(operation), "operation");
        return;
    }
    ucs_status_t status;
    while ((status = ucp_request_check_status(operation)) == UCS_INPROGRESS) progress();
    ucp_request_free(operation);
    check(status, "operation");
}

void PairEnd::flush() {
    const ucp_request_param_t params{};
    wait(ucp_ep_flush_nbx(endpoint_, &params));
}

// --- orders

void PairEnd::send(ucp_tag_t tag, const void* data, size_t length) {
    const ucp_request_param_t params{};
    wait(ucp_tag_send_nbx(endpoint_, data, length, tag, &params));
}
Answer PairEnd::ask(const Instruction& instruction) {
    Answer answer{};
    const ucp_request_param_t params{};
    const ucs_status_ptr_t receive =
        ucp_tag_recv_nbx(worker_, &answer, sizeof(answer), kAnswerTag, ~ucp_tag_t{0}, &params);
    instruct(instruction);
    wait(receive);
    return answer;
}

ucs_status_ptr_t PairEnd::receive_instruction(Instruction* instruction) {
    const ucp_request_param_t params{};
    return ucp_tag_recv_nbx(worker_, instruction, sizeof(*instruction), kInstructionTag,
                            ~ucp_tag_t{0}, &params);
}
// --- content

void PairEnd::fill_message(std::span<std::byte> message, uint64_t sequence) const {
    if (!is_on_device(message.data())) {
        fill_payload(message, {options_.seed, 0, 1, index_, sequence});
        return;
    }
    std::vector<std::byte> content(message.size());
    fill_payload(content, {options_.seed, 0, 1, index_, sequence});
    device_->copy(message.data(), content.data(), content.size());
}

bool PairEnd::is_right(std::span<const std::byte> message, uint64_t sequence) const {
    std::vector<std::byte> content;
    if (is_on_device(message.data())) {
        content.resize(message.size());
        device_->copy(content.data(), message.data(), content.size());
        message = content;
    }
    return check_payload(message, {options_.seed, 0, 1, index_, sequence}) == message.size();
}

void PairEnd::fill(uint64_t sequence, unsigned slots, uint64_t size, bool mirrored) const {
    for (unsigned i = 0; i < slots; ++i) {
        fill_message({slot(mirrored ? slots - 1 - i : i, size), size}, sequence + i);
    }
}

uint64_t PairEnd::count_wrong(uint64_t sequence, unsigned slots, uint64_t size,
                              bool mirrored) const {
    uint64_t wrong = 0;
    for (unsigned i = 0; i < slots; ++i) {
        wrong += !is_right({slot(mirrored ? slots - 1 - i : i, size), size}, sequence + i);
    }
    return wrong;
}

// --- active messages

void PairEnd::arrived(const std::byte* data, size_t length, uint64_t sequence) {
    ++arrivals_.finished;
    arrivals_.wrong += !is_as_sent({data, length}, arrivals_.size, sequence);
}

ucs_status_t PairEnd::on_message(void* self, const void*, size_t, void* data, size_t length,
                                 const ucp_am_recv_param_t* param) {
    auto& peer = *static_cast<PairEnd*>(self);
    Arrivals& arrivals = peer.arrivals_;
    const uint64_t sequence = arrivals.started++;
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) {
        peer.arrived(static_cast<const std::byte*>(data), length, sequence);
        return UCS_OK;
    }
    const uint64_t place = sequence % arrivals.slots;
    std::byte* buffer = peer.slot(place, arrivals.size);
    peer.fetches_[place] = {&peer, sequence};
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                          UCP_OP_ATTR_FIELD_MEMH | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    params.cb.recv_am = on_message_received;
    params.user_data = &peer.fetches_[place];
    params.memh = peer.memory_;
    ucp_am_recv_data_nbx(peer.worker_, data, buffer, std::min<size_t>(length, arrivals.size),
                         &params);
    return UCS_INPROGRESS;
}

void PairEnd::on_message_received(void* request, ucs_status_t status, size_t length, void* fetch) {
    const auto& [peer, sequence] = *static_cast<Fetch*>(fetch);
    ucp_request_free(request);
    const Arrivals& arrivals = peer->arrivals_;
    peer->arrived(peer->slot(sequence % arrivals.slots, arrivals.size),
                  status == UCS_OK ? length : 0, sequence);
}
}  // namespace tools::perf
