// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "common/mock_transport.h"
#include "ucs/runtime/runtime.h"
#include "ucs/sys/environment.h"
#include "uct/api/module.h"
#include "uct/ib/base/transports.h"

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

const TransportDeclaration* declaration_of(const std::vector<TransportDeclaration>& known,
                                           std::string_view name) {
    const auto found = std::ranges::find(known, name, &TransportDeclaration::name);
    return found == known.end() ? nullptr : &*found;
}

TEST(KnownTransports, AreThoseOfAllModulesWhateverLoads) {
    const std::vector<TransportDeclaration> known = known_transports();
    for (const char* name : {"self", "sm_fifo", "sm_ring", "tcp", "dc_mlx5", "rc_mlx5", "rc_verbs",
                             "ud_verbs", "cuda_copy", "cuda_ipc"}) {
        EXPECT_NE(declaration_of(known, name), nullptr) << name;
    }
    for (const TransportDeclaration& each : known) {
        EXPECT_EQ(std::ranges::count(known, each.name, &TransportDeclaration::name), 1);
    }
}

TEST(KnownTransports, AnAliasOfADedicatedTransportBringsAScalableOneAlong) {
    const std::vector<TransportDeclaration> known = known_transports();
    for (const TransportDeclaration& dedicated : ib::kTransports) {
        if (dedicated.reach != Reach::kEndpoint) continue;
        for (const std::string_view word : dedicated.aliases) {
            EXPECT_TRUE(std::ranges::any_of(known, [&](const TransportDeclaration& other) {
                return other.reach == Reach::kInterface &&
                       (std::ranges::count(other.aliases, word) > 0 ||
                        std::ranges::count(other.auxiliary_for, word) > 0);
            })) << word;
        }
    }
}

}  // namespace
}  // namespace uct
