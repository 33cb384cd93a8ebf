// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/config/source.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>

#include "unit/ucs/config/environment_fixture.h"

namespace ucs::config {
namespace {

class ConfigSource : public test::EnvironmentTest {
  protected:
    ~ConfigSource() override { unlink(file_.c_str()); }

    void write_file(std::string_view text) {
        const int descriptor = mkstemp(file_.data());
        ASSERT_GE(descriptor, 0);
        close(descriptor);
        std::ofstream(file_) << text;
    }

    // The value read, or "-".
    std::string value(std::string_view name) const {
        const Source::Setting* setting = source_.find(name);
        return setting == nullptr ? "-" : setting->value;
    }

    std::string file_ = ::testing::TempDir() + "ucx.conf.XXXXXX";
    Source source_;
    std::string error_;
};

TEST_F(ConfigSource, ReadsTheEnvironment) {
    environment = {{"UCX_TLS", "rc"}, {"PATH", "/bin"}, {"UCX_", "x"}, {"UCXTRA", "y"}};
    ASSERT_EQ(Source::read("", "", source_, error_), UCS_OK);
    EXPECT_EQ(value("TLS"), "rc");
    EXPECT_EQ(source_.settings().size(), 1u);
    EXPECT_EQ(source_.find("TLS")->origin, Origin::kEnvironment);
}

TEST_F(ConfigSource, IsASnapshot) {
    environment = {{"UCX_TLS", "rc"}};
    ASSERT_EQ(Source::read("", "", source_, error_), UCS_OK);
    environment.set("UCX_TLS", "dc");
    EXPECT_EQ(value("TLS"), "rc");
}

TEST_F(ConfigSource, APrefixedNameCountsFirst) {
    environment = {{"UCX_TLS", "rc"}, {"MYPFX_UCX_TLS", "dc"}, {"UCX_NET_DEVICES", "mlx5_0:1"}};
    ASSERT_EQ(Source::read("MYPFX", "", source_, error_), UCS_OK);
    EXPECT_EQ(value("TLS"), "dc");
    EXPECT_EQ(source_.find("TLS")->written_as, "MYPFX_UCX_TLS");
    EXPECT_EQ(value("NET_DEVICES"), "mlx5_0:1");
    ASSERT_EQ(Source::read("OTHER", "", source_, error_), UCS_OK);
    EXPECT_EQ(value("TLS"), "rc");
}

TEST_F(ConfigSource, TheEnvironmentCountsBeforeTheFile) {
    write_file("# a comment\n[section]\n\nUCX_TLS = dc\n  UCX_NET_DEVICES=a,b  \nUCX_EMPTY=\n");
    environment = {{"UCX_TLS", "rc"}};
    ASSERT_EQ(Source::read("", file_, source_, error_), UCS_OK) << error_;
    EXPECT_EQ(value("TLS"), "rc");
    EXPECT_EQ(value("NET_DEVICES"), "a,b");
    EXPECT_EQ(value("EMPTY"), "");
    EXPECT_EQ(source_.find("NET_DEVICES")->origin, Origin::kFile);
}

TEST_F(ConfigSource, AnAbsentFileIsNoError) {
    EXPECT_EQ(Source::read("", "/nowhere/ucx.conf", source_, error_), UCS_OK);
}

TEST_F(ConfigSource, AnUnreadableFileIsAnError) {
    EXPECT_EQ(Source::read("", "/dev/null/ucx.conf", source_, error_), UCS_ERR_IO_ERROR);
    EXPECT_NE(error_.find("/dev/null/ucx.conf"), std::string::npos);
}

TEST_F(ConfigSource, ABadLineIsNamed) {
    for (const char* line : {"UCX_TLS rc", "TLS=rc", "UCX_=rc", "=rc"}) {
        file_ = ::testing::TempDir() + "ucx.conf.XXXXXX";
        write_file(std::string("UCX_A=1\n") + line + "\n");
        EXPECT_EQ(Source::read("", file_, source_, error_), UCS_ERR_INVALID_PARAM);
        EXPECT_NE(error_.find(":2:"), std::string::npos) << error_;
        EXPECT_NE(error_.find(line), std::string::npos) << error_;
        unlink(file_.c_str());
    }
}

}  // namespace
}  // namespace ucs::config
