// SPDX-License-Identifier: BSD-3-Clause

// A message between device buffers while a kernel of the program's runs and waits for its arrival,
// as kernels that compute and communicate do. Its pieces are copied by a kernel of the library's.
// If that is not loaded yet, its load waits for the program's, which waits for the message: with
// UCX_CUDA_PRELOAD=n this program hangs, and its watchdog ends it with status 2.

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "cuda/device.h"
#include "cuda/kernels.h"
#include "ucp/api/ucp.h"

namespace {

using cuda_test::Buffer;
using cuda_test::driver;
using cuda_test::Kind;
namespace cu = uct::cuda::abi;

// A driver takes seconds for its first launch, the stand-in none.
const unsigned kWatchdogSeconds = cuda_test::is_real() ? 10 : 4;
constexpr size_t kPieces = 200, kPiece = 100;

void need(bool is_true, const char* what) {
    if (is_true) return;
    std::fprintf(stderr, "%s failed\n", what);
    std::exit(1);
}

void watchdog(int) {
    constexpr char kText[] = "hangs: ended by the watchdog\n";
    (void)!write(STDOUT_FILENO, kText, sizeof(kText) - 1);
    _exit(2);
}

}  // namespace

// What is thrown ends the program.
int main() {  // NOLINT(bugprone-exception-escape)
    cuda_test::choose_driver();
    cuda_test::use_device(0);

    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_TAG;
    ucp_context_h context = nullptr;
    need(ucp_init(&params, nullptr, &context) == UCS_OK, "ucp_init");
    const ucp_worker_params_t worker_params{};
    ucp_worker_h worker = nullptr;
    need(ucp_worker_create(context, &worker_params, &worker) == UCS_OK, "ucp_worker_create");
    ucp_address_t* address = nullptr;
    size_t length = 0;
    need(ucp_worker_get_address(worker, &address, &length) == UCS_OK, "ucp_worker_get_address");
    ucp_ep_params_t ep_params{};
    ep_params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    ep_params.address = address;
    ucp_ep_h endpoint = nullptr;
    need(ucp_ep_create(worker, &ep_params, &endpoint) == UCS_OK, "ucp_ep_create");
    ucp_worker_release_address(worker, address);

    Buffer source(Kind::kDevice, 2 * kPieces * kPiece);
    Buffer target(Kind::kDevice, kPieces * kPiece);
    source.fill(1);
    std::vector<ucp_dt_iov_t> pieces;
    for (size_t i = 0; i < kPieces; ++i) pieces.push_back({source.data() + 2 * i * kPiece, kPiece});

    void* host = nullptr;
    need(driver().host_allocate(&host, 4096, cu::kHostAllocMapped) == cu::kSuccess,
         "pinned memory");
    auto* const words = static_cast<volatile uint32_t*>(host);
    std::memset(host, 0, 4096);
    cu::Module module = nullptr;
    cu::Function function = nullptr;
    cu::Stream stream = nullptr;
    need(driver().module_load(&module, test_kernel_image) == cu::kSuccess &&
             driver().module_get_function(&function, module, kSpinKernel) == cu::kSuccess &&
             driver().stream_create(&stream, cu::kStreamNonBlocking) == cu::kSuccess,
         "the program's kernel");
    void* arguments[] = {&host};
    need(driver().launch(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr) == cu::kSuccess,
         "its launch");
    while (words[0] == 0) {
    }

    (void)std::signal(SIGALRM, watchdog);
    alarm(kWatchdogSeconds);
    ucp_request_param_t plain{};
    ucp_request_param_t iov{};
    iov.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
    iov.datatype = ucp_dt_make_iov();
    ucs_status_ptr_t receive =
        ucp_tag_recv_nbx(worker, target.data(), target.length(), 1, ~0ul, &plain);
    ucs_status_ptr_t send = ucp_tag_send_nbx(endpoint, pieces.data(), pieces.size(), 1, &iov);
    for (ucs_status_ptr_t operation : {send, receive}) {
        if (!UCS_PTR_IS_PTR(operation)) continue;
        while (ucp_request_check_status(operation) == UCS_INPROGRESS) ucp_worker_progress(worker);
        need(ucp_request_check_status(operation) == UCS_OK, "the message");
        ucp_request_free(operation);
    }
    alarm(0);
    words[1] = 1;  // the message has come: the program's kernel may end
    need(driver().stream_synchronize(stream) == cu::kSuccess, "the program's kernel");
    const std::vector<std::byte> bytes = target.bytes();
    for (size_t i = 0; i < bytes.size(); ++i)
        need(bytes[i] == Buffer::expected(1, i / kPiece * 2 * kPiece + i % kPiece), "a byte");
    ucp_ep_destroy(endpoint);
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    std::puts("passes");
    return 0;
}
