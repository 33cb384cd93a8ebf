// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/graphs.h"

#include <dlfcn.h>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace cuda_test {

namespace abi = uct::cuda::abi;

namespace {

// Other streams may be captured meanwhile, and graphs made.
constexpr unsigned kCaptureRelaxed = 2;

void check(abi::Result result, const char* what) {
    if (result != abi::kSuccess)
        throw std::runtime_error(std::string(what) + ": error " + std::to_string(result));
}

template <typename Function>
void look_up(void* library, const char* name, int version, Function* function) {
    using GetAddress = abi::Result (*)(const char*, void**, int, uint64_t, int*);
    const auto get = reinterpret_cast<GetAddress>(dlsym(library, "cuGetProcAddress_v2"));
    void* address = nullptr;
    check(get(name, &address, version, 0, nullptr), name);
    *function = reinterpret_cast<Function>(address);
}

Graphs look_up_all() {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    Graphs graphs{};
    look_up(library, "cuStreamBeginCapture", 10010, &graphs.begin_capture);
    look_up(library, "cuStreamEndCapture", 10000, &graphs.end_capture);
    look_up(library, "cuGraphInstantiateWithFlags", 11040, &graphs.instantiate);
    look_up(library, "cuGraphLaunch", 10000, &graphs.launch);
    look_up(library, "cuGraphExecDestroy", 10000, &graphs.destroy_executable);
    look_up(library, "cuGraphDestroy", 10000, &graphs.destroy);
    return graphs;
}

}  // namespace

const Graphs& Graphs::get() {
    static const Graphs graphs = look_up_all();
    return graphs;
}

CapturedGraph::CapturedGraph(abi::Stream stream) : stream_(stream) {
    check(Graphs::get().begin_capture(stream, kCaptureRelaxed), "cuStreamBeginCapture");
}

void CapturedGraph::end() {
    check(Graphs::get().end_capture(stream_, &graph_), "cuStreamEndCapture");
    check(Graphs::get().instantiate(&executable_, graph_, 0), "cuGraphInstantiate");
}

void CapturedGraph::launch() {
    check(Graphs::get().launch(executable_, stream_), "cuGraphLaunch");
}

CapturedGraph::~CapturedGraph() {
    if (executable_ != nullptr) (void)Graphs::get().destroy_executable(executable_);
    if (graph_ != nullptr) (void)Graphs::get().destroy(graph_);
}

}  // namespace cuda_test
