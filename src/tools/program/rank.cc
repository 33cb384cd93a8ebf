// SPDX-License-Identifier: BSD-3-Clause
#include "tools/program/rank.h"

#include <fmt/format.h>

#include <stdexcept>

namespace tools {
namespace {

[[noreturn]] void fail(const std::string& what, ucs_status_t status) {
    throw std::runtime_error(fmt::format("{}: {}", what, ucs_status_string(status)));
}

}  // namespace

void Rank::connect(unsigned peer) {
    if (endpoints_[peer] != nullptr) return;
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                        UCP_EP_PARAM_FIELD_ERR_HANDLER;
    // Who waits for a message of a peer that is gone would wait for ever.
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler.cb = [](void* self, ucp_ep_h, ucs_status_t failure) {
        static_cast<Rank*>(self)->peer_failure_ = failure;
    };
    params.err_handler.arg = this;
    params.address = reinterpret_cast<const ucp_address_t*>(addresses_[peer].data());
    const ucs_status_t status = ucp_ep_create(worker_, &params, &endpoints_[peer]);
    if (status != UCS_OK) {
        endpoints_[peer] = nullptr;
        fail(fmt::format("no endpoint to rank {}", peer), status);
    }
}

void Rank::spawn(Task task) {
    make_ready(task.handle());
    tasks_.push_back(std::move(task));
}

void Rank::wake_due() {
    if (at_barrier_ && host_.barrier_open(barriers_entered_)) {
        make_ready(std::exchange(at_barrier_, nullptr));
    }
    while (!timers_.empty() && timers_.top().when <= host_.now()) {
        make_ready(timers_.top().sleeper);
        timers_.pop();
    }
}

void Rank::reap() {
    for (auto task = tasks_.begin(); task != tasks_.end();) {
        if (!task->done()) {
            ++task;
            continue;
        }
        task->check();
        task = tasks_.erase(task);
    }
}

bool Rank::step() {
    wake_due();
    resumed_ = !ready_.empty();
    while (!ready_.empty()) {
        const std::coroutine_handle<> next = ready_.front();
        ready_.pop_front();
        next.resume();
    }
    if (resumed_) reap();
    const bool progressed = ucp_worker_progress(worker_) != 0;
    if (peer_failure_ != UCS_OK) fail("a peer is gone", peer_failure_);
    ready_.insert(ready_.end(), yielded_.begin(), yielded_.end());
    yielded_.clear();
    return resumed_ || progressed;
}

Task Rank::disconnect(unsigned peer) {
    Batch batch(*this);
    if (endpoints_[peer] != nullptr) batch.close(std::exchange(endpoints_[peer], nullptr));
    co_await batch.done();
}

Task Rank::leave() {
    co_await barrier();
    Batch batch(*this);
    for (ucp_ep_h& endpoint : endpoints_) {
        if (endpoint != nullptr) batch.close(std::exchange(endpoint, nullptr));
    }
    co_await batch.done();
    co_await barrier();
}

void Batch::send(unsigned peer, ucp_tag_t tag, const void* buffer, size_t length) {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.cb.send = on_sent;
    param.user_data = this;
    started(ucp_tag_send_nbx(rank_.endpoint(peer), buffer, length, tag, &param));
}

void Batch::receive(ucp_tag_t tag, ucp_tag_t mask, void* buffer, size_t length) {
    ucp_request_param_t param{};
    param.op_attr_mask =
        UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_RECV_INFO;
    param.cb.recv = on_received;
    param.user_data = this;
    param.recv_info.tag_info = &received_;
    const ucs_status_ptr_t request =
        ucp_tag_recv_nbx(rank_.worker(), buffer, length, tag, mask, &param);
    if (request == nullptr) delivered(received_);
    last_receive_ = UCS_PTR_IS_PTR(request) ? request : nullptr;
    started(request);
}

void Batch::close(ucp_ep_h endpoint) {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.cb.send = on_closed;
    param.user_data = this;
    started(ucp_ep_close_nbx(endpoint, &param));
}
void Batch::started(ucs_status_ptr_t request) {
    if (UCS_PTR_IS_PTR(request)) {
        ++outstanding_;
    } else if (status_ == UCS_OK) {
        status_ = UCS_PTR_STATUS(request);
    }
}

void Batch::completed(ucs_status_t status) {
    if (status == UCS_ERR_CANCELED) {
        cancelled_ = true;
    } else if (status != UCS_OK && status_ == UCS_OK) {
        status_ = status;
    }
    if (--outstanding_ <= wanted_ && waiter_) rank_.make_ready(std::exchange(waiter_, nullptr));
}
void Batch::check() const {
    if (status_ != UCS_OK) fail("an operation failed", status_);
}

void Batch::on_sent(void* request, ucs_status_t status, void* user_data) {
    ucp_request_free(request);
    static_cast<Batch*>(user_data)->completed(status);
}

void Batch::on_received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                        void* user_data) {
    auto& batch = *static_cast<Batch*>(user_data);
    if (request == batch.last_receive_) batch.last_receive_ = nullptr;
    if (status == UCS_OK) {
        batch.received_ = *info;
        batch.delivered(*info);
    }
    ucp_request_free(request);
    batch.completed(status);
}

// A peer that closed first is no error: all data was awaited before.
void Batch::on_closed(void* request, ucs_status_t, void* user_data) {
    ucp_request_free(request);
    static_cast<Batch*>(user_data)->completed(UCS_OK);
}

}  // namespace tools
