// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/config/table.h"

#include <gtest/gtest.h>

#include "ucs/config/registry.h"
#include "unit/ucs/config/environment_fixture.h"

namespace ucs::config {
namespace {

struct LaneConfig {
    MemorySize threshold;
    std::optional<unsigned> depth;
    Duration timeout;
    std::vector<std::string> devices;
};

constexpr Field<LaneConfig> kFields[] = {
    field<&LaneConfig::threshold>("ZCOPY_THRESHOLD", "16k",
                                  "Messages from this size on are not\n"
                                  "copied."),
    field<&LaneConfig::depth>("TX_DEPTH", "auto", "Work requests in a send queue.", {"2", "1024"}),
    field<&LaneConfig::timeout>("TIMEOUT", "1s", "Time without an answer.", {.least = "1us"}),
    field<&LaneConfig::devices>("DEVICES", "", "Devices to use."),
};

const Table<LaneConfig> kTable("test lanes", {"TESTDC_", "TESTIB_"}, kFields);

class ConfigTable : public test::EnvironmentTest {
  protected:
    ucs_status_t load() {
        const ucs_status_t status = Source::read("", "", source_, error_);
        return status != UCS_OK ? status : kTable.load(source_, values_, error_);
    }

    Source source_;
    LaneConfig values_;
    std::string error_;
};

TEST_F(ConfigTable, DefaultsApplyWhereNothingIsSet) {
    ASSERT_EQ(load(), UCS_OK) << error_;
    EXPECT_EQ(values_.threshold, 16384u);
    EXPECT_FALSE(values_.depth);
    EXPECT_EQ(values_.timeout, Duration(1s));
    EXPECT_TRUE(values_.devices.empty());
}

TEST_F(ConfigTable, TheSpecificPrefixWins) {
    environment = {{"UCX_TESTIB_TX_DEPTH", "64"},
                   {"UCX_TESTDC_TX_DEPTH", "128"},
                   {"UCX_TESTIB_TIMEOUT", "2s"},
                   {"UCX_TX_DEPTH", "1"}};
    ASSERT_EQ(load(), UCS_OK) << error_;
    EXPECT_EQ(values_.depth, 128u);
    EXPECT_EQ(values_.timeout, Duration(2s));
}

TEST_F(ConfigTable, ABadValueSaysWhatIsExpected) {
    environment = {{"UCX_TESTIB_TIMEOUT", "soon"}};
    EXPECT_EQ(load(), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(
        error_,
        "UCX_TESTIB_TIMEOUT=soon: expected a time such as 10us, 1.5ms, 2s, 1m, or inf, at least "
        "1us");
}

TEST_F(ConfigTable, AValueOutOfBoundsIsBroughtToTheNearestAndWarnedOf) {
    environment = {
        {"UCX_TESTDC_TX_DEPTH", "1"}, {"UCX_TESTIB_TX_DEPTH", "1025"}, {"UCX_TESTDC_TIMEOUT", "0"}};
    ASSERT_EQ(load(), UCS_OK) << error_;
    EXPECT_EQ(values_.depth, 2u);
    EXPECT_EQ(values_.timeout, Duration(1us));
    const std::vector<std::string> warnings = new_warnings(source_);
    ASSERT_EQ(warnings.size(), 3u);
    EXPECT_EQ(warnings[0],
              "UCX_TESTDC_TIMEOUT=0 is out of bounds, 1us is used: expected a time such as 10us, "
              "1.5ms, 2s, 1m, or inf, at least 1us");
    EXPECT_NE(warnings[2].find("UCX_TESTIB_TX_DEPTH=1025 is out of bounds, 1024 is used"),
              std::string::npos);
    EXPECT_TRUE(new_warnings(source_).empty());
}

TEST_F(ConfigTable, BoundsBelongToTheRangeAndLeaveAutoAlone) {
    for (const std::string_view depth : {"2", "1024", "auto"}) {
        environment = {{"UCX_TESTIB_TX_DEPTH", std::string(depth)}};
        ASSERT_EQ(load(), UCS_OK) << error_;
        EXPECT_EQ(Codec<std::optional<unsigned>>::print(values_.depth), depth);
    }
}

TEST_F(ConfigTable, TheProgramMayChangeAVariable) {
    environment = {{"UCX_TESTDC_TX_DEPTH", "128"}};
    ASSERT_EQ(load(), UCS_OK);
    ASSERT_EQ(source_.modify("TESTDC_TX_DEPTH", "256", error_), UCS_OK) << error_;
    ASSERT_EQ(source_.modify("UCX_TESTIB_TIMEOUT", "5ms", error_), UCS_OK) << error_;
    ASSERT_EQ(kTable.load(source_, values_, error_), UCS_OK);
    EXPECT_EQ(values_.depth, 256u);
    EXPECT_EQ(values_.timeout, Duration(5ms));
    EXPECT_EQ(source_.find("TESTIB_TIMEOUT")->origin, Origin::kProgram);
}

TEST_F(ConfigTable, AChangeIsChecked) {
    EXPECT_EQ(source_.modify("TESTDC_TX_DEPTH", "-3", error_), UCS_ERR_INVALID_PARAM);
    EXPECT_NE(error_.find("UCX_TESTDC_TX_DEPTH=-3: expected"), std::string::npos) << error_;
    EXPECT_EQ(source_.modify("TESTDC_TX_DEPHT", "3", error_), UCS_ERR_NO_ELEM);
    EXPECT_NE(error_.find("did you mean UCX_TESTDC_TX_DEPTH?"), std::string::npos) << error_;
    EXPECT_EQ(source_.find("TESTDC_TX_DEPTH"), nullptr);
}

TEST_F(ConfigTable, TheNearestNameIsFound) {
    EXPECT_EQ(nearest("TESTDC_TX_DPETH"), "TESTDC_TX_DEPTH");
    EXPECT_EQ(nearest("TESTIB_ZCOPY_TRESHOLD"), "TESTIB_ZCOPY_THRESHOLD");
    EXPECT_EQ(nearest("LOG_LEVLE"), "LOG_LEVEL");
    EXPECT_EQ(nearest("SOMETHING_ELSE_ALTOGETHER"), "");
    EXPECT_TRUE(is_known("TESTIB_DEVICES"));
    EXPECT_FALSE(is_known("DEVICES"));
}

TEST_F(ConfigTable, UnknownVariablesAreWarnedOfOnce) {
    environment = {{"UCX_TESTDC_TIMEOTU", "1s"},
                   {"UCX_POSIX_HUGETLB_MODE_UNRELATED", "y"},
                   {"UCX_TESTDC_DEVICES", "a"}};
    ASSERT_EQ(load(), UCS_OK);
    const std::vector<std::string> warnings = new_warnings(source_);
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_EQ(warnings[0],
              "UCX_POSIX_HUGETLB_MODE_UNRELATED, UCX_TESTDC_TIMEOTU (did you mean "
              "UCX_TESTDC_TIMEOUT?) are set, but nothing reads them "
              "(UCX_WARN_UNUSED_ENV_VARS=n silences this)");
    EXPECT_TRUE(new_warnings(source_).empty());
}

TEST_F(ConfigTable, OneProcessOfAJobWarnsOfUnknownVariables) {
    environment = {{"UCX_TESTDC_NOWHERE_READ", "1"}, {"OMPI_COMM_WORLD_RANK", "3"}};
    ASSERT_EQ(load(), UCS_OK);
    EXPECT_TRUE(new_warnings(source_).empty());
    environment = {{"UCX_TESTDC_NOWHERE_READ", "1"}, {"PMIX_RANK", "0"}};
    ASSERT_EQ(load(), UCS_OK);
    EXPECT_EQ(new_warnings(source_).size(), 1u);
}

TEST_F(ConfigTable, TheWarningCanBeTurnedOff) {
    environment = {{"UCX_TESTDC_TX_DEPTHS", "1"}, {"UCX_WARN_UNUSED_ENV_VARS", "n"}};
    ASSERT_EQ(load(), UCS_OK);
    EXPECT_TRUE(new_warnings(source_).empty());
}

TEST_F(ConfigTable, PrintsEveryVariable) {
    environment = {{"UCX_TESTIB_TX_DEPTH", "0x40"}};
    ASSERT_EQ(load(), UCS_OK);
    const std::string plain = print(source_, {});
    EXPECT_NE(plain.find("UCX_TESTDC_ZCOPY_THRESHOLD=16k\nUCX_TESTDC_TX_DEPTH=64\n"
                         "UCX_TESTDC_TIMEOUT=1s\nUCX_TESTDC_DEVICES=\n"),
              std::string::npos)
        << plain;
    EXPECT_NE(plain.find("UCX_LOG_LEVEL=warn\n"), std::string::npos);
    EXPECT_EQ(plain.find('#'), std::string::npos);

    const std::string full =
        print(source_, {.title = "Swiftlane", .docs = true, .comment_defaults = true});
    EXPECT_NE(
        full.find("# Messages from this size on are not\n# copied.\n# default: 16k; expected:"),
        std::string::npos)
        << full;
    EXPECT_NE(full.find("# UCX_TESTDC_TIMEOUT=1s\n"), std::string::npos);
    EXPECT_NE(full.find(", or auto, at least 2, at most 1024\n"), std::string::npos);
    EXPECT_NE(full.find("\nUCX_TESTDC_TX_DEPTH=64\n"), std::string::npos);
    EXPECT_NE(full.find("# falls back to: UCX_TESTIB_TX_DEPTH\n"), std::string::npos);
}

TEST_F(ConfigTable, EveryDefaultIsAValue) {
    for (const TableBase* table : tables()) {
        for (size_t index = 0; index < table->size(); ++index) {
            const TableBase::Variable variable = table->variable(index);
            std::string canonical;
            EXPECT_EQ(table->check(index, variable.default_text, canonical),
                      TableBase::Verdict::kFits)
                << variable.name;
            EXPECT_FALSE(variable.help.empty()) << variable.name;
        }
    }
}

}  // namespace
}  // namespace ucs::config
