// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/runtime/runtime.h"

#include <gtest/gtest.h>

#include "ucs/config/registry.h"
#include "ucs/log/log.h"
#include "ucs/memory/detector.h"
#include "unit/ucs/log/log_capture.h"

namespace ucs {
namespace {

class NoMemory final : public MemoryDetector {
  public:
    bool detect(const void*, size_t, MemoryInfo&) const override { return false; }
};

// This program plays the module: it hands over to a main library's runtime and back.
TEST(Runtime, AModuleAdoptsTheMainLibrarysState) {
    Runtime& own = runtime();
    const VirtualClock clock(Time(42s));
    SeededEntropy entropy(1);
    const MapEnvironment environment;
    Runtime shared{.environment = &environment, .clock = &clock, .entropy = &entropy};
    NoMemory detector;
    register_memory_detector(detector);
    const size_t tables = config::tables().size();
    ASSERT_GT(tables, 0u);

    adopt_runtime(shared);
    EXPECT_EQ(&runtime(), &shared);
    EXPECT_EQ(now(), Time(42s));
    EXPECT_EQ(config::tables().size(), tables);
    EXPECT_EQ(shared.memory_detectors.first(), &detector);
    EXPECT_EQ(own.tables.first(), nullptr);
    EXPECT_EQ(own.memory_detectors.first(), nullptr);
    adopt_runtime(shared);  // no effect
    EXPECT_EQ(config::tables().size(), tables);
    {
        LogCapture log;
        log_warn("from the module");
        EXPECT_TRUE(log.contains("from the module"));
    }

    shared.memory_detectors.reset();
    adopt_runtime(own);
    EXPECT_EQ(config::tables().size(), tables);
}

struct Empty {
    bool flag;
};

constexpr config::Field<Empty> kFields[] = {config::field<&Empty::flag>("FLAG", "n", "A flag.")};

// Both link ucs, and with it the tables of ucs itself.
TEST(Runtime, ATableThatTheModuleHasTooIsListedOnce) {
    Runtime& own = runtime();
    const size_t tables = config::tables().size();
    Runtime of_module{.environment = own.environment, .clock = own.clock, .entropy = own.entropy};
    internal::current_runtime = &of_module;
    const config::Table<Empty> copy("logging", {"TESTCOPY_"}, kFields);
    const config::Table<Empty> fresh("test of a module", {"TESTMODULE_"}, kFields);
    EXPECT_EQ(config::tables().size(), 2u);
    adopt_runtime(own);
    EXPECT_EQ(config::tables().size(), tables + 1);
    EXPECT_TRUE(config::is_known("TESTMODULE_FLAG"));
    EXPECT_FALSE(config::is_known("TESTCOPY_FLAG"));
    EXPECT_EQ(own.tables.first(), &fresh);
    own.tables.reset(fresh.next());
}

}  // namespace
}  // namespace ucs
