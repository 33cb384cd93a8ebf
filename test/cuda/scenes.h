// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cuda/device.h"
#include "ucp/api/ucp.h"

// Tests between two processes of a host. The second one is the program started again: both run the
// same scene, each its part of it.

namespace cuda_test {

// What goes wrong ends a scene in either process.
void require(bool is_so, const std::string& what);
void require_ok(ucs_status_t status, const char* what);

// Bytes that go over the socket between the two.
struct Parcel {
    uint64_t address = 0;
    uint64_t length = 0;
    std::array<char, 2000> bytes{};
};

class Stream {
  public:
    Stream();
    ~Stream();
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    uct::cuda::abi::Stream get() const { return stream_; }
    void copy(const Buffer& to, const Buffer& from) const;
    bool is_done() const { return driver().stream_query(stream_) == uct::cuda::abi::kSuccess; }

  private:
    uct::cuda::abi::Stream stream_ = nullptr;
};

// One of the two processes.
class Side {
  public:
    Side(int socket, int rank);
    ~Side();
    Side(const Side&) = delete;
    Side& operator=(const Side&) = delete;

    // Tells the other process something and hears the same of it. Makes progress.
    Parcel exchange(const Parcel& mine);
    void meet() { (void)exchange({}); }

    // Both expose memory; what the other exposes.
    struct Remote {
        uint64_t address;
        ucp_rkey_h key;
    };
    Remote expose(void* address, size_t length);
    // What was exposed last.
    ucp_mem_h exposed() const { return exposed_.back(); }

    void progress() { ucp_worker_progress(worker); }
    ucs_status_t wait(ucs_status_ptr_t operation);
    // Makes progress until the stream has done all.
    void run(const Stream& stream);

    const int rank;
    ucp_worker_h worker = nullptr;
    ucp_ep_h endpoint = nullptr;

  private:
    const int socket_;
    ucp_context_h context_ = nullptr;
    std::vector<ucp_mem_h> exposed_;
    std::vector<ucp_rkey_h> keys_;
};

struct Scene {
    const char* name;
    void (*play)(Side& side);
    bool ends_alive = true;  // the other process
};

// Within a test: starts the other process, and plays rank 0 here.
void play_both(const Scene& scene);
// main() of a program whose tests play these.
int run_scenes(int argc, char** argv, std::span<const Scene> scenes);

}  // namespace cuda_test
