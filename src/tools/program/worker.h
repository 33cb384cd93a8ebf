// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ucp/api/ucp.h>

#include <string>

namespace tools {

// Throws std::runtime_error unless the status is UCS_OK.
void check(ucs_status_t status, const char* what);

// A context for tagged messages, configured by the environment. Throws std::runtime_error.
class Context {
  public:
    explicit Context(unsigned expected_endpoints);
    Context(Context&&) = delete;
    ~Context();

    ucp_context_h handle() const { return handle_; }

  private:
    ucp_context_h handle_ = nullptr;
};

// A worker of one thread. Throws std::runtime_error.
class Worker {
  public:
    // An empty name: the library chooses one.
    explicit Worker(ucp_context_h context, const std::string& name = {});
    Worker(Worker&&) = delete;
    ~Worker();

    ucp_worker_h handle() const { return handle_; }
    std::string address() const;

  private:
    ucp_worker_h handle_ = nullptr;
};

}  // namespace tools
