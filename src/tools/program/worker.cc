// SPDX-License-Identifier: BSD-3-Clause
#include "tools/program/worker.h"

#include <fmt/format.h>

#include <stdexcept>

namespace tools {
void check(ucs_status_t status, const char* what) {
    if (status == UCS_OK) return;
    throw std::runtime_error(fmt::format("{}: {}", what, ucs_status_string(status)));
}

Context::Context(unsigned expected_endpoints) {
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
    params.features = UCP_FEATURE_TAG;
    params.estimated_num_eps = expected_endpoints;
    check(ucp_init(&params, nullptr, &handle_), "context");
}

Context::~Context() {
    ucp_cleanup(handle_);
}

Worker::Worker(ucp_context_h context, const std::string& name) {
    ucp_worker_params_t params{};
    params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    params.thread_mode = UCS_THREAD_MODE_SINGLE;
    if (!name.empty()) {
        params.field_mask |= UCP_WORKER_PARAM_FIELD_NAME;
        params.name = name.c_str();
    }
    check(ucp_worker_create(context, &params, &handle_), "worker");
}

Worker::~Worker() {
    ucp_worker_destroy(handle_);
}

std::string Worker::address() const {
    ucp_address_t* address = nullptr;
    size_t length = 0;
    check(ucp_worker_get_address(handle_, &address, &length), "worker address");
    std::string bytes(reinterpret_cast<const char*>(address), length);
    ucp_worker_release_address(handle_, address);
    return bytes;
}

}  // namespace tools
