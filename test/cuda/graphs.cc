// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/graphs.h"

#include "cuda/device.h"

namespace cuda_test {

namespace abi = uct::cuda::abi;

namespace {

// Other streams may be captured meanwhile, and graphs made.
constexpr unsigned kCaptureRelaxed = 2;

template <typename Function>
void look_up(const char* name, int version, Function* function) {
    *function = reinterpret_cast<Function>(driver_function(name, version));
}

Graphs look_up_all() {
    Graphs graphs{};
    look_up("cuStreamBeginCapture", 10010, &graphs.begin_capture);
    look_up("cuStreamEndCapture", 10000, &graphs.end_capture);
    look_up("cuGraphInstantiateWithFlags", 11040, &graphs.instantiate);
    look_up("cuGraphLaunch", 10000, &graphs.launch);
    look_up("cuGraphExecDestroy", 10000, &graphs.destroy_executable);
    look_up("cuGraphDestroy", 10000, &graphs.destroy);
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
