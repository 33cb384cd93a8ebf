// SPDX-License-Identifier: BSD-3-Clause
#include "fuzz/message_input.h"

extern "C" __attribute__((visibility("default"))) int LLVMFuzzerTestOneInput(const uint8_t* data,
                                                                             size_t size) {
    ucp::fuzz::read_remote_key(data, size);
    return 0;
}
