// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "common/mock_transport.h"
#include "ucs/runtime/runtime.h"
#include "ucs/sys/environment.h"
#include "uct/api/module.h"

namespace uct {
namespace {

TEST(Registry, BuiltInComponentsComeFirstAndBrokenModulesAreSkipped) {
    char directory[] = "/tmp/swiftlane-modules-XXXXXX";
    ASSERT_NE(mkdtemp(directory), nullptr);
    std::ofstream(std::string(directory) + "/libuct_broken.so") << "no library";
    std::ofstream(std::string(directory) + "/notes.txt") << "no module";

    ucs::MapEnvironment environment{{"UCX_MODULE_DIR", directory}};
    const auto* previous = ucs::runtime().environment;
    ucs::runtime().environment = &environment;
    static mock::Fabric fabric;  // components stay in the list until the process ends
    add_component(fabric.component());
    const auto found = components();
    ucs::runtime().environment = previous;
    std::filesystem::remove_all(directory);

    ASSERT_EQ(found.size(), 4u);
    EXPECT_EQ(found[0]->name(), "self");
    EXPECT_EQ(found[1]->name(), "sm");
    EXPECT_EQ(found[2]->name(), "tcp");
    EXPECT_EQ(found[3], &fabric.component());
    EXPECT_EQ(components().data(), found.data());
}

}  // namespace
}  // namespace uct
