// SPDX-License-Identifier: BSD-3-Clause

// A libFuzzer target: one program for each reader, chosen by FUZZ_READER.

#include "fuzz/inputs.h"
#include "ucs/log/log.h"

#define ENTRY extern "C" __attribute__((visibility("default")))

// Messages may announce any amount of data: no memory for it is an answer, not a finding.
ENTRY const char* __asan_default_options() {
    return "allocator_may_return_null=1:max_allocation_size_mb=256";
}

ENTRY int LLVMFuzzerInitialize(int*, char***) {
    ucs::set_log_level(ucs::LogLevel::kFatal);
    return 0;
}

ENTRY int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    ucp::fuzz::FUZZ_READER({data, size});
    return 0;
}
