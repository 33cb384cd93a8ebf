// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/select/cost_file.h"

#include <config.h>  // of the build
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "ucp/context/config.h"
#include "ucs/sys/environment.h"

namespace ucp::select {
namespace {

const CostOwner kOwner{"A Processor @ 3.00GHz", 32, "1.2.3"};

KeptCosts measured() {
    KeptCosts costs;
    costs.model.system_copy = {0.75e-6, 6.7e-11, Origin::kMeasured};
    return costs;
}

class CostFile : public testing::Test {
  protected:
    CostFile() {
        char name[] = "/tmp/costs-XXXXXX";
        folder = mkdtemp(name);
        path = folder + "/cache/swiftlane/costs";
    }
    ~CostFile() override { std::filesystem::remove_all(folder); }
    std::string text() const {
        std::ifstream file(path);
        std::ostringstream content;
        content << file.rdbuf();
        return content.str();
    }
    std::string folder, path;
};

TEST_F(CostFile, WhatIsSavedIsReadAgain) {
    ASSERT_EQ(save_costs(path, kOwner, measured()), "");
    KeptCosts costs;
    ASSERT_EQ(load_costs(path, kOwner, Origin::kKept, &costs), "");
    EXPECT_DOUBLE_EQ(costs.model.system_copy.base, 0.75e-6);
    EXPECT_DOUBLE_EQ(costs.model.system_copy.per_byte, 6.7e-11);
    EXPECT_EQ(costs.model.system_copy.origin, Origin::kKept);
    // What was assumed is not kept.
    EXPECT_EQ(costs.model.copy.origin, Origin::kAssumed);
    // It takes the place of the former one, and leaves no draft behind.
    KeptCosts other = measured();
    other.model.system_copy.base = 2e-6;
    ASSERT_EQ(save_costs(path, kOwner, other), "");
    ASSERT_EQ(load_costs(path, kOwner, Origin::kKept, &costs), "");
    EXPECT_DOUBLE_EQ(costs.model.system_copy.base, 2e-6);
    const auto folder_of_it = std::filesystem::path(path).parent_path();
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_of_it), {}), 1);
    struct stat info {};
    ASSERT_EQ(stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(CostFile, OfAnotherMachineOrVersionIsNotBelieved) {
    const std::string text = format_costs(measured(), kOwner);
    KeptCosts costs;
    EXPECT_EQ(parse_costs(text, kOwner, Origin::kKept, &costs), "");
    for (const CostOwner& other :
         {CostOwner{"Another", 32, "1.2.3"}, CostOwner{kOwner.processor, 31, "1.2.3"},
          CostOwner{kOwner.processor, 32, "1.2.4"}}) {
        KeptCosts untouched;
        EXPECT_NE(parse_costs(text, other, Origin::kKept, &untouched), "");
        EXPECT_EQ(untouched.model.system_copy.origin, Origin::kAssumed);
    }
}

TEST_F(CostFile, NonsenseIsNotBelieved) {
    const std::string good = format_costs(measured(), kOwner);
    const std::string head = good.substr(0, good.find("system_copy"));
    for (const std::string& text :
         {std::string(), std::string("\n\n"), head, std::string("system_copy 1e-6 1e-11\n"),
          head + "system_copy\n", head + "system_copy 1e-6\n", head + "system_copy -1e-6 1e-11\n",
          head + "system_copy nan 1e-11\n", head + "system_copy inf 1e-11\n",
          head + "system_copy 1e-6 1\n", head + "system_copy 1e-6 1e-11 7\n",
          head + "system_copy 1e-6 x\n", std::string(1000, '\0')}) {
        KeptCosts untouched;
        EXPECT_NE(parse_costs(text, kOwner, Origin::kKept, &untouched), "") << text;
        EXPECT_EQ(untouched.model.system_copy.origin, Origin::kAssumed);
    }
    // Lines of later versions say nothing to this one.
    KeptCosts costs;
    EXPECT_EQ(parse_costs(good + "later 1 2 3\n", kOwner, Origin::kKept, &costs), "");
}

TEST_F(CostFile, WhatWasLearnedIsReadAgain) {
    KeptCosts costs = measured();
    costs.learned = {{"sm_ring/memory", Situation::kAlone, 6, Way::kAnnounced, 0.5F},
                     {"tcp/eth0", Situation::kAmongOthers, 0, Way::kAtOnce, 3.25F}};
    const std::string text = format_costs(costs, kOwner);
    KeptCosts read;
    ASSERT_EQ(parse_costs(text, kOwner, Origin::kKept, &read), "");
    ASSERT_EQ(read.learned.size(), 2u);
    for (size_t i = 0; i < 2; ++i) {
        EXPECT_TRUE(read.learned[i].is_of(costs.learned[i]));
        EXPECT_EQ(read.learned[i].factor, costs.learned[i].factor);
    }
    for (const char* line :
         {"learned", "learned a/b tag", "learned a/b tag alone 6 announced",
          "learned a/b get alone 6 announced 1", "learned a/b am alone 6 announced 1",
          "learned a/b tag alone 99 announced 1", "learned a/b tag alone -1 announced 1",
          "learned a/b tag alone 6 announced nan", "learned a/b tag alone 6 announced 1e9",
          "learned a/b tag alone 6 announced 1 1"}) {
        KeptCosts untouched;
        EXPECT_NE(parse_costs(text + line + "\n", kOwner, Origin::kKept, &untouched), "") << line;
        EXPECT_TRUE(untouched.learned.empty());
    }
}

TEST_F(CostFile, ProcessesShareWhatTheyLearn) {
    const LearnedFigure one{"sm_ring/memory", Situation::kAlone, 6, Way::kAnnounced, 2};
    LearnedFigure same = one, other = one;
    same.factor = 4;
    other.way = Way::kAtOnce;
    const std::vector<LearnedFigure> merged = merge({one}, std::vector{same, other});
    ASSERT_EQ(merged.size(), 2u);
    EXPECT_EQ(merged[0].factor, 3);
    EXPECT_TRUE(merged[1].is_of(other));
}

TEST_F(CostFile, OnlyAFileOfTheUsersIsRead) {
    KeptCosts costs;
    EXPECT_NE(load_costs(path, kOwner, Origin::kKept, &costs), "");
    ASSERT_EQ(save_costs(path, kOwner, measured()), "");
    ASSERT_EQ(chmod(path.c_str(), 0620), 0);
    EXPECT_NE(load_costs(path, kOwner, Origin::kKept, &costs), "");
    ASSERT_EQ(chmod(path.c_str(), 0644), 0);
    EXPECT_EQ(load_costs(path, kOwner, Origin::kKept, &costs), "");
    const std::string link = folder + "/link";
    ASSERT_EQ(symlink(path.c_str(), link.c_str()), 0);
    EXPECT_NE(load_costs(link, kOwner, Origin::kKept, &costs), "");
    EXPECT_NE(load_costs(folder, kOwner, Origin::kKept, &costs), "");
    EXPECT_NE(save_costs("/proc/none/costs", kOwner, measured()), "");
}

TEST_F(CostFile, LiesInTheCacheFolder) {
    EXPECT_EQ(default_cost_file(ucs::MapEnvironment({{"XDG_CACHE_HOME", "/c"}, {"HOME", "/h"}})),
              "/c/swiftlane/costs");
    EXPECT_EQ(default_cost_file(ucs::MapEnvironment({{"HOME", "/h"}})),
              "/h/.cache/swiftlane/costs");
    EXPECT_EQ(default_cost_file(ucs::MapEnvironment({{"XDG_CACHE_HOME", "c"}})), "");
    EXPECT_EQ(default_cost_file(ucs::MapEnvironment()), "");
}

TEST_F(CostFile, IsWhatTheVariableNames) {
    using Codec = ucs::config::Codec<CostChoice>;
    CostChoice choice;
    ASSERT_TRUE(Codec::parse("keep", choice));
    EXPECT_EQ(choice.source, CostSource::kKept);
    ASSERT_TRUE(Codec::parse("learn", choice));
    EXPECT_EQ(choice.source, CostSource::kLearned);
    ASSERT_TRUE(Codec::parse("keep", choice));
    EXPECT_FALSE(Codec::parse("costs", choice));
    EXPECT_EQ(choice.source, CostSource::kKept);
    ASSERT_TRUE(Codec::parse("/a/file", choice));
    EXPECT_EQ(choice.source, CostSource::kFile);
    EXPECT_EQ(choice.file, "/a/file");
    EXPECT_EQ(Codec::print(choice), "/a/file");
    // A file that is not believed is no error: costs are measured.
    EXPECT_NE(pinned_costs(path).model.system_copy.origin, Origin::kUser);
    ASSERT_EQ(save_costs(path, CostOwner::own(), measured()), "");
    EXPECT_EQ(pinned_costs(path).model.system_copy.origin, Origin::kUser);
}

TEST_F(CostFile, NamesThisMachine) {
    const CostOwner owner = CostOwner::own();
    EXPECT_FALSE(owner.processor.empty());
    EXPECT_GT(owner.cores, 0u);
    EXPECT_EQ(owner.version, PACKAGE_VERSION);
}

}  // namespace
}  // namespace ucp::select
