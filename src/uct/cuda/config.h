// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "ucs/config/values.h"

namespace uct::cuda {

struct Config {
    ucs::config::MemorySize staging;
    bool preload;
    bool stream_writes;
    unsigned stream_ops;
    bool direct;
    unsigned mappings;
    ucs::config::MemorySize relay;
    bool resident;

    // The environment's settings, read once.
    static const Config& get();
};

}  // namespace uct::cuda
