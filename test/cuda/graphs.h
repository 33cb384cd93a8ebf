// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "uct/cuda/abi.h"

namespace cuda_test {

using Graph = struct GraphHandle*;
using GraphExecutable = struct GraphExecutableHandle*;

// What the driver, or the stand-in, has for graphs; the library itself makes none.
struct Graphs {
    static const Graphs& get();

    uct::cuda::abi::Result (*begin_capture)(uct::cuda::abi::Stream, unsigned mode);
    uct::cuda::abi::Result (*end_capture)(uct::cuda::abi::Stream, Graph*);
    uct::cuda::abi::Result (*instantiate)(GraphExecutable*, Graph, unsigned long long);
    uct::cuda::abi::Result (*launch)(GraphExecutable, uct::cuda::abi::Stream);
    uct::cuda::abi::Result (*destroy_executable)(GraphExecutable);
    uct::cuda::abi::Result (*destroy)(Graph);
};

// What is put into a stream between begin() and end(), to be launched again and again.
class CapturedGraph {
  public:
    explicit CapturedGraph(uct::cuda::abi::Stream stream);
    ~CapturedGraph();
    CapturedGraph(const CapturedGraph&) = delete;
    CapturedGraph& operator=(const CapturedGraph&) = delete;

    void end();
    void launch();

  private:
    const uct::cuda::abi::Stream stream_;
    Graph graph_ = nullptr;
    GraphExecutable executable_ = nullptr;
};

}  // namespace cuda_test
