// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "ucs/config/types.h"
#include "ucs/memory/memory_type.h"
#include "ucs/type/status.h"
#include "ucs/type/thread_mode.h"

namespace {

TEST(StatusString, EveryCodeHasItsOwn) {
    std::set<std::string> texts;
    int codes = 0;
    for (int value = UCS_INPROGRESS; value > UCS_ERR_LAST; --value) {
        const std::string text = ucs_status_string(static_cast<ucs_status_t>(value));
        if (text.find("unknown") != std::string::npos) {
            EXPECT_EQ(text, "unknown status (" + std::to_string(value) + ")");
            continue;
        }
        ++codes;
        EXPECT_TRUE(texts.insert(text).second) << text;
    }
    EXPECT_EQ(codes, 2 + 25 + 5);
}

template <size_t N>
void expect_names(const char* const* names, const char* const (&wanted)[N]) {
    for (size_t i = 0; i < N; ++i) EXPECT_STREQ(names[i], wanted[i]);
    EXPECT_EQ(names[N], nullptr);
}

// Programs print these and parse them in their own options: they are part of the interface.
TEST(Names, OfEnumerators) {
    expect_names(ucs_thread_mode_names, {"single", "serialized", "multi"});
    expect_names(ucs_async_mode_names, {"signal", "thread_spinlock", "thread_mutex", "poll"});
    expect_names(ucs_memory_type_names,
                 {"host", "cuda", "cuda-managed", "rocm", "rocm-managed", "rdma", "unknown"});
    EXPECT_STREQ(ucs_memory_type_names[UCS_MEMORY_TYPE_UNKNOWN], "unknown");
}

}  // namespace
