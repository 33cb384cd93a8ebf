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

using namespace std::chrono_literals;

const CostOwner kOwner{"A Processor @ 3.00GHz", 32, "6.1.0-7", "1.2.3"};

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
    // As if the file had been written a while ago.
    void age() const {
        std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) - 1s);
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
    for (const CostOwner& other : {CostOwner{"Another", 32, "6.1.0-7", "1.2.3"},
                                   CostOwner{kOwner.processor, 31, "6.1.0-7", "1.2.3"},
                                   CostOwner{kOwner.processor, 32, "6.1.0-8", "1.2.3"},
                                   CostOwner{kOwner.processor, 32, "6.1.0-7", "1.2.4"}}) {
        KeptCosts untouched;
        EXPECT_NE(parse_costs(text, other, Origin::kKept, &untouched), "");
        EXPECT_EQ(untouched.model.system_copy.origin, Origin::kAssumed);
    }
    // Sizes of classes are others in each format.
    for (const char* other : {"format 3\n", "format 5\n"}) {
        std::string changed = text;
        changed.replace(changed.find("format 4\n"), 9, other);
        KeptCosts untouched;
        EXPECT_NE(parse_costs(changed, kOwner, Origin::kKept, &untouched), "");
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
    costs.learned = {
        {"sm_ring/memory", Operation::kTag, Load::kAlone, 6, Way::kRendezvous, 0.5F, 12},
        {"sm_ring/memory", Operation::kActiveMessage, Load::kAlone, 6, Way::kRendezvous, 0.25F, 2},
        {"sm_ring/memory", Operation::kTag, Load::kOneWay, 6, Way::kRendezvous, 0.75F, 1},
        {"rc_mlx5/mlx5_0:1", Operation::kPut, Load::kAlone, 4, Way::kCopy, 0.5F, 12},
        {"rc_mlx5/mlx5_0:1", Operation::kPut, Load::kOneWay, 7, Way::kBulk, 1.5F, 7},
        {"sm_ring/memory", Operation::kGet, Load::kAlone, 1, Way::kZeroCopy, 2.5F, 3},
        {"tcp/eth0", Operation::kTag, Load::kBothWays, 0, Way::kEager, 3.25F, UINT32_MAX}};
    const std::string text = format_costs(costs, kOwner);
    KeptCosts read;
    ASSERT_EQ(parse_costs(text, kOwner, Origin::kKept, &read), "");
    ASSERT_EQ(read.learned.size(), costs.learned.size());
    for (size_t i = 0; i < read.learned.size(); ++i) {
        EXPECT_TRUE(read.learned[i].is_of(costs.learned[i]));
        EXPECT_EQ(read.learned[i].factor, costs.learned[i].factor);
        EXPECT_EQ(read.learned[i].count, costs.learned[i].count);
    }
    for (const char* line :
         {"learned", "learned a/b tag", "learned a/b tag alone 6 rendezvous",
          "learned a/b tag alone 6 rendezvous 1", "learned a/b get alone 6 rendezvous 1 1",
          "learned a/b stream alone 6 rendezvous 1 1", "learned a/b tag alone 6 copy 1 1",
          "learned a/b put alone 6 eager 1 1", "learned a/b tag both 6 rendezvous 1 1",
          "learned a/b tag alone 99 rendezvous 1 1", "learned a/b tag alone -1 rendezvous 1 1",
          "learned a/b tag alone 6 rendezvous nan 1", "learned a/b tag alone 6 rendezvous 1e9 1",
          "learned a/b tag alone 6 rendezvous 1 -1", "learned a/b tag alone 6 rendezvous 1 1 1"}) {
        KeptCosts untouched;
        EXPECT_NE(parse_costs(text + line + "\n", kOwner, Origin::kKept, &untouched), "") << line;
        EXPECT_TRUE(untouched.learned.empty());
    }
}

constexpr auto kClass = [] { return LearnedCosts::class_of_size(Load::kAlone, 6); };

// A worker that has seen so many messages.
void see(LearnedBook& book, Way way, unsigned messages) {
    for (unsigned i = 0; i < messages; ++i) {
        ASSERT_TRUE(book.of("lane", Operation::kTag)
                        .observe(kClass(), way, 1e-6, {.receiving = 9us, .took = 2us}));
    }
}

ucs::Time after(ucs::Duration span) {
    return ucs::Time(span);
}

TEST_F(CostFile, ProcessesShareWhatTheyLearn) {
    ASSERT_EQ(save_costs(path, kOwner, measured()), "");
    LearnedBook one, other;
    CostSharing first(path, kOwner), second(path, kOwner);
    see(one, Way::kEager, 5);
    see(other, Way::kRendezvous, 3);
    age();
    first.exchange(one, after(1s));
    age();
    second.exchange(other, after(1s));
    EXPECT_EQ(other.of("lane", Operation::kTag).kept(kClass(), Way::kEager), 5U);
    EXPECT_FLOAT_EQ(other.of("lane", Operation::kTag).factor(kClass(), Way::kEager), 2);
    age();
    first.exchange(one, after(3s));
    EXPECT_EQ(one.of("lane", Operation::kTag).kept(kClass(), Way::kRendezvous), 3U);
    // What was told is not told again.
    KeptCosts costs;
    ASSERT_EQ(load_costs(path, kOwner, Origin::kKept, &costs), "");
    ASSERT_EQ(costs.learned.size(), 2U);
    EXPECT_EQ(costs.learned[0].count, 5U);
    EXPECT_EQ(costs.learned[1].count, 3U);
    EXPECT_EQ(costs.model.system_copy.per_byte, measured().model.system_copy.per_byte);
}

TEST_F(CostFile, ProcessesThatEndTogetherDoNotAllWrite) {
    ASSERT_EQ(save_costs(path, kOwner, measured()), "");
    LearnedBook one, other;
    see(one, Way::kEager, 5);
    see(other, Way::kRendezvous, 5);
    age();
    CostSharing(path, kOwner).exchange(one, after(1s));
    CostSharing(path, kOwner).exchange(other, after(1s));
    KeptCosts costs;
    ASSERT_EQ(load_costs(path, kOwner, Origin::kKept, &costs), "");
    EXPECT_EQ(costs.learned.size(), 1U);
}

// Until the old time comes again nobody would tell anything.
TEST_F(CostFile, AClockThatWasSetBackStopsNoExchange) {
    ASSERT_EQ(save_costs(path, kOwner, measured()), "");
    std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) + 1h);
    LearnedBook book;
    see(book, Way::kEager, 5);
    CostSharing(path, kOwner).exchange(book, after(1s));
    KeptCosts costs;
    ASSERT_EQ(load_costs(path, kOwner, Origin::kKept, &costs), "");
    EXPECT_EQ(costs.learned.size(), 1U);
}

TEST_F(CostFile, ExchangesBecomeSeldom) {
    CostSharing sharing(path, kOwner);
    LearnedBook book;
    unsigned exchanges = 0;
    for (ucs::Duration now = 5s; now < 1h; now += 100ms) {
        if (!sharing.is_due(after(now))) continue;
        EXPECT_GE(now, 6s);
        ++exchanges;
        sharing.exchange(book, after(now));
    }
    EXPECT_GE(exchanges, 12U);
    EXPECT_LE(exchanges, 18U);
    // Nothing was learned.
    EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(CostFile, AFileThatIsDeletedIsForgotten) {
    ASSERT_EQ(save_costs(path, kOwner, measured()), "");
    LearnedBook book;
    CostSharing sharing(path, kOwner);
    see(book, Way::kEager, 5);
    age();
    sharing.exchange(book, after(1s));
    ASSERT_TRUE(std::filesystem::remove(path));
    sharing.exchange(book, after(3s));
    EXPECT_FALSE(std::filesystem::exists(path));
    see(book, Way::kRendezvous, 2);
    sharing.exchange(book, after(7s));
    KeptCosts costs;
    ASSERT_EQ(load_costs(path, kOwner, Origin::kKept, &costs), "");
    ASSERT_EQ(costs.learned.size(), 1U);
    EXPECT_EQ(costs.learned[0].way, Way::kRendezvous);
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
    const auto file = [](const ucs::Environment& environment, const CostOwner& owner = kOwner) {
        return default_cost_file(environment, owner);
    };
    const ucs::MapEnvironment both({{"XDG_CACHE_HOME", "/c"}, {"HOME", "/h"}});
    EXPECT_TRUE(file(both).starts_with("/c/swiftlane/costs-")) << file(both);
    EXPECT_TRUE(
        file(ucs::MapEnvironment({{"HOME", "/h"}})).starts_with("/h/.cache/swiftlane/costs-"));
    EXPECT_EQ(file(ucs::MapEnvironment({{"XDG_CACHE_HOME", "c"}})), "");
    EXPECT_EQ(file(ucs::MapEnvironment()), "");
    // Machines of several kinds may share a folder.
    CostOwner other = kOwner;
    other.kernel += "1";
    EXPECT_NE(file(both), file(both, other));
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
    EXPECT_FALSE(owner.kernel.empty());
    EXPECT_EQ(owner.version, PACKAGE_VERSION);
}

}  // namespace
}  // namespace ucp::select
