// SPDX-License-Identifier: BSD-3-Clause

// What programs call of libucs and libuct, as they do: by the libraries.

#include <gtest/gtest.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "ucp/api/ucp.h"
#include "ucs/config/global_opts.h"
#include "ucs/debug/debug_int.h"
#include "ucs/debug/log_def.h"
#include "ucs/debug/memtrack_int.h"
#include "ucs/memory/memtype_cache.h"
#include "ucs/sys/string.h"
#include "uct/api/uct.h"

namespace {

struct Line {
    std::string file, component, text;
    unsigned number;
    ucs_log_level_t level;
};

std::vector<Line> lines;
ucs_log_func_rc_t answer = UCS_LOG_FUNC_RC_STOP;
unsigned others = 0;

ucs_log_func_rc_t note(const char* file, unsigned line, const char*, ucs_log_level_t level,
                       const ucs_log_component_config_t* component, const char* message,
                       va_list ap) {
    char text[500];
    std::vsnprintf(text, sizeof(text), message, ap);
    lines.push_back({file, component->name, text, line, level});
    return answer;
}

ucs_log_func_rc_t count(const char*, unsigned, const char*, ucs_log_level_t,
                        const ucs_log_component_config_t*, const char*, va_list) {
    ++others;
    return UCS_LOG_FUNC_RC_STOP;
}

class Log : public testing::Test {
  protected:
    void SetUp() override {
        lines.clear();
        others = 0;
        answer = UCS_LOG_FUNC_RC_STOP;
    }
    void TearDown() override {
        while (ucs_log_num_handlers() != 0) ucs_log_pop_handler();
    }
    // The library warns of a program that is newer than it is.
    static void make_the_library_warn() {
        ucp_params_t params{};
        params.field_mask = UCP_PARAM_FIELD_FEATURES;
        params.features = UCP_FEATURE_TAG;
        ucp_context_h context = nullptr;
        ASSERT_EQ(ucp_init_version(1, 99, &params, nullptr, &context), UCS_OK);
        ucp_cleanup(context);
    }
};

TEST_F(Log, OfTheLibraryGoesToTheProgramsHandler) {
    ucs_log_push_handler(note);
    EXPECT_EQ(ucs_log_num_handlers(), 1u);
    make_the_library_warn();
    ASSERT_FALSE(lines.empty());
    EXPECT_NE(lines[0].text.find("1.99"), std::string::npos) << lines[0].text;
    EXPECT_EQ(lines[0].level, UCS_LOG_LEVEL_WARN);
    EXPECT_EQ(lines[0].component, "swiftlane");
    EXPECT_EQ(lines[0].file, "context.cc");
    EXPECT_NE(lines[0].number, 0u);
    ucs_log_pop_handler();
    lines.clear();
    testing::internal::CaptureStderr();
    make_the_library_warn();
    EXPECT_NE(testing::internal::GetCapturedStderr().find("1.99"), std::string::npos);
    EXPECT_TRUE(lines.empty());
}

TEST_F(Log, HandlersAreAskedFromTheLastToTheFirst) {
    ucs_log_push_handler(count);
    ucs_log_push_handler(note);
    ucs_log_component_config_t mine{UCS_LOG_LEVEL_INFO, "mine", nullptr};
    ucs_log_dispatch("a.c", 7, "f", UCS_LOG_LEVEL_INFO, &mine, "%d apples", 3);
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_EQ(lines[0].text, "3 apples");
    EXPECT_EQ(lines[0].component, "mine");
    EXPECT_EQ(lines[0].number, 7u);
    EXPECT_EQ(others, 0u);
    answer = UCS_LOG_FUNC_RC_CONTINUE;
    ucs_log_dispatch("a.c", 7, "f", UCS_LOG_LEVEL_INFO, &mine, "%d pears", 4);
    EXPECT_EQ(others, 1u);
}

TEST_F(Log, WhatHandlersLeaveIsWritten) {
    ucs_log_component_config_t mine{UCS_LOG_LEVEL_INFO, "mine", nullptr};
    answer = UCS_LOG_FUNC_RC_CONTINUE;
    ucs_log_push_handler(note);
    for (const char* fruit : {"plum", "quince"}) {
        testing::internal::CaptureStdout();
        ucs_log_dispatch("/src/a.c", 7, "f", UCS_LOG_LEVEL_INFO, &mine, "a %s", fruit);
        const std::string written = testing::internal::GetCapturedStdout();
        EXPECT_NE(written.find(std::string("a.c:7 INFO a ") + fruit), std::string::npos) << written;
        ucs_log_pop_handler();
    }
}

TEST(Options, AreSetByTheProgram) {
    EXPECT_EQ(ucs_global_opts_set_value("LOG_LEVEL", "info"), UCS_OK);
    EXPECT_STREQ(std::getenv("UCX_LOG_LEVEL"), "info");
    EXPECT_EQ(ucs_global_opts_set_value("LOG_LEVEL", "loud"), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(ucs_global_opts_set_value("NO_SUCH_THING", "1"), UCS_ERR_NO_ELEM);
    EXPECT_EQ(ucs_global_opts_set_value("LOG_LEVEL", "warn"), UCS_OK);
    ucs_debug_disable_signals();
}

TEST(Strings, AreFoundInLists) {
    const char* list[] = {"one", "Two", nullptr};
    EXPECT_EQ(ucs_string_find_in_list("one", list, 1), 0);
    EXPECT_EQ(ucs_string_find_in_list("two", list, 1), -1);
    EXPECT_EQ(ucs_string_find_in_list("two", list, 0), 1);
}

TEST(Memory, OfTheHostIsNothingSpecial) {
    // As libfabric calls it once, before anything else.
    EXPECT_EQ(ucs_memtype_cache_lookup(nullptr, 0, nullptr), UCS_ERR_NO_ELEM);
    void* const memory = ucs_malloc(64, "of a test");
    ASSERT_NE(memory, nullptr);
    ucs_memory_info_t info{};
    EXPECT_EQ(ucs_memtype_cache_lookup(memory, 64, &info), UCS_ERR_NO_ELEM);
    ucs_free(memory);
}

TEST(Transports, AreListedByComponentAndDevice) {
    uct_component_h* components = nullptr;
    unsigned num_components = 0;
    ASSERT_EQ(uct_query_components(&components, &num_components), UCS_OK);
    bool has_self = false;
    bool has_tcp = false;
    for (unsigned i = 0; i < num_components; ++i) {
        uct_component_attr_t attr{};
        attr.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME |
                          UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT |
                          UCT_COMPONENT_ATTR_FIELD_FLAGS;
        ASSERT_EQ(uct_component_query(components[i], &attr), UCS_OK);
        std::vector<uct_md_resource_desc_t> names(attr.md_resource_count + 1);
        attr.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
        attr.md_resources = names.data();
        ASSERT_EQ(uct_component_query(components[i], &attr), UCS_OK);
        for (unsigned j = 0; j < attr.md_resource_count; ++j) {
            uct_md_config_t* config = nullptr;
            uct_md_h md = nullptr;
            ASSERT_EQ(uct_md_config_read(components[i], nullptr, nullptr, &config), UCS_OK);
            ASSERT_EQ(uct_md_open(components[i], names[j].md_name, config, &md), UCS_OK);
            uct_config_release(config);
            uct_tl_resource_desc_t* resources = nullptr;
            unsigned count = 0;
            ASSERT_EQ(uct_md_query_tl_resources(md, &resources, &count), UCS_OK);
            EXPECT_GT(count, 0u) << attr.name;
            for (unsigned k = 0; k < count; ++k) {
                const std::string name = resources[k].tl_name;
                has_self |= name == "self" && resources[k].dev_type == UCT_DEVICE_TYPE_SELF;
                has_tcp |= name == "tcp" && resources[k].dev_type == UCT_DEVICE_TYPE_NET;
            }
            uct_release_tl_resource_list(resources);
            uct_md_close(md);
        }
        uct_md_h none = nullptr;
        EXPECT_EQ(uct_md_open(components[i], "no such device", nullptr, &none), UCS_ERR_NO_DEVICE);
    }
    uct_release_component_list(components);
    EXPECT_TRUE(has_self);
    EXPECT_TRUE(has_tcp);
}

}  // namespace
