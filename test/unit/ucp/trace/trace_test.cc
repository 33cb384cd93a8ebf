// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/trace/trace.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "unit/ucp/cluster.h"

namespace ucp::test {
namespace {

using nlohmann::json;

// A trace of the scope, in a file of its own.
class Traced {
  public:
    Traced() {
        std::string name = "/tmp/swiftlane-trace-XXXXXX";
        const int file = mkstemp(name.data());
        EXPECT_GE(file, 0);
        close(file);
        name_ = name;
        Trace::open(name_);
    }
    ~Traced() {
        Trace::close();
        std::remove(name_.c_str());
    }
    Traced(const Traced&) = delete;
    Traced& operator=(const Traced&) = delete;

    json read() const {
        std::ifstream file(name_);
        return json::parse(file, nullptr, false);
    }
    json events() const {
        Trace::active()->flush();
        json all = read();
        EXPECT_TRUE(all.is_array());
        return all;
    }

  private:
    std::string name_;
};

unsigned count(const json& events, const std::function<bool(const json&)>& matches) {
    return static_cast<unsigned>(std::count_if(events.begin(), events.end(), matches));
}
unsigned count(const json& events, const std::string& category, const std::string& phase) {
    return count(events, [&](const json& event) {
        return event.at("cat") == category && event.at("ph") == phase;
    });
}

TEST(Trace, IsAListFromItsBeginningAndAfterEachFlush) {
    const Traced traced;
    EXPECT_EQ(traced.read(), json::array());
    Trace& trace = *Trace::active();
    trace.instant("test", "one", 1, {});
    EXPECT_EQ(traced.events().size(), 1u);
    trace.instant("test", "two", 1, {});
    EXPECT_EQ(traced.read().size(), 1u) << "it waits in the buffer";
    EXPECT_EQ(traced.events().size(), 2u);
    EXPECT_EQ(traced.events().size(), 2u);
}

TEST(Trace, GoesToTheFileByTurns) {
    const Traced traced;
    constexpr unsigned kEvents = 5000;
    for (unsigned i = 0; i < kEvents; ++i) Trace::active()->instant("test", "event", i, {});
    const size_t written = traced.read().size();
    EXPECT_GT(written, 0u) << "without a flush";
    EXPECT_LT(written, kEvents);
    EXPECT_EQ(traced.events().size(), kEvents);
}

TEST(Trace, HasTheMembersThatReadersExpect) {
    const Traced traced;
    Trace& trace = *Trace::active();
    const ucs::Time start = Trace::now();
    int thing = 0;
    trace.name_track(~uint64_t{0}, "a \"name\"\\\n");
    trace.begin("test", "long", 7, &thing, {{"bytes", uint64_t{1} << 40}});
    trace.end("test", "long", 7, &thing);
    trace.complete("test", "took", 7, start, {{"text", std::string_view("\"\033")}});
    const json events = traced.events();
    ASSERT_EQ(events.size(), 4u);
    for (const json& event : events) {
        EXPECT_EQ(event.at("pid"), getpid());
        EXPECT_TRUE(event.at("tid").is_number_unsigned());
        EXPECT_LT(event.at("tid").get<uint64_t>(), uint64_t{1} << 31);
        EXPECT_GT(event.at("ts").get<double>(), 0);
        EXPECT_TRUE(event.at("args").is_object());
    }
    EXPECT_EQ(events[0].at("ph"), "M");
    EXPECT_EQ(events[0].at("name"), "thread_name");
    EXPECT_EQ(events[0].at("args").at("name"), "a \"name\"\\?");
    EXPECT_EQ(events[1].at("ph"), "b");
    EXPECT_EQ(events[1].at("id"), events[2].at("id"));
    EXPECT_EQ(events[1].at("args").at("bytes"), uint64_t{1} << 40);
    EXPECT_EQ(events[2].at("ph"), "e");
    EXPECT_EQ(events[3].at("ph"), "X");
    EXPECT_GE(events[3].at("dur").get<double>(), 0);
    EXPECT_EQ(events[3].at("args").at("text"), "\"?");
}

TEST(Trace, OfAParentIsNothingToItsChild) {
    const Traced traced;
    Trace::active()->instant("test", "waits", 1, {});
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        Trace::active()->instant("test", "child", 1, {});
        Trace::close();
        _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT_EQ(traced.read().size(), 0u);
    const json events = traced.events();
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].at("name"), "waits");
}

TEST(Trace, TellsWhatTheCountersCount) {
    const Traced traced;
    Cluster cluster(3);
    const ucp_ep_h endpoints[] = {cluster.endpoint(0, 1), cluster.endpoint(0, 2)};
    for (const ucp_ep_h endpoint : endpoints) {
        ASSERT_EQ(ucpx_ep_lanes_request(endpoint, UCPX_LANE_POLICY_DEDICATED), UCS_OK);
        ASSERT_TRUE(cluster.until(
            [&] { return cluster.lane_state(endpoint) == UCPX_LANE_STATE_ESTABLISHED; }));
    }
    ASSERT_EQ(ucpx_ep_lanes_request(endpoints[0], UCPX_LANE_POLICY_SCALABLE), UCS_OK);
    ASSERT_TRUE(cluster.until(
        [&] { return cluster.lane_state(endpoints[0]) == UCPX_LANE_STATE_SCALABLE; }));
    cluster.steps(1000);
    uint64_t promotions = 0, demotions = 0;
    for (size_t index = 0; index < cluster.size(); ++index) {
        promotions += cluster.counters(index).promotions;
        demotions += cluster.counters(index).demotions;
    }
    const json events = traced.events();
    EXPECT_EQ(promotions, 4u);
    EXPECT_EQ(count(events,
                    [](const json& event) {
                        return event.at("cat") == "lane" && event.at("name") == "established" &&
                               event.at("args").at("from") != "established";
                    }),
              promotions);
    EXPECT_EQ(count(events,
                    [](const json& event) {
                        return event.at("cat") == "lane" && event.at("name") != "established" &&
                               event.at("args").at("from") == "established";
                    }),
              demotions);
}

TEST(Trace, HasABeginningAndAnEndOfEachTransfer) {
    const Traced traced;
    constexpr unsigned kMessages = 5;
    Cluster::Options options;
    options.config.rndv_threshold = ucs::config::MemorySize{1000};
    Cluster cluster(2, options);
    const ucp_ep_h endpoint = cluster.endpoint(0, 1);
    const std::vector<uint8_t> sent(100000, 1);
    std::vector<uint8_t> received(sent.size());
    for (unsigned i = 0; i < kMessages; ++i) {
        const ucs_status_ptr_t receiving = ucp_tag_recv_nbx(
            cluster.worker(1), received.data(), received.size(), 1, ~uint64_t{0}, &kNothing);
        EXPECT_EQ(
            cluster.finish(ucp_tag_send_nbx(endpoint, sent.data(), sent.size(), 1, &kNothing)),
            UCS_OK);
        EXPECT_EQ(cluster.finish(receiving), UCS_OK);
    }
    const json events = traced.events();
    const auto is_send = [](const char* phase) {
        return [phase](const json& event) {
            return event.at("name") == "rendezvous send" && event.at("ph") == phase;
        };
    };
    EXPECT_EQ(count(events, is_send("b")), kMessages);
    EXPECT_EQ(count(events, is_send("e")), kMessages);
    for (const char* category : {"rendezvous", "bulk", "stall"})
        EXPECT_EQ(count(events, category, "b"), count(events, category, "e")) << category;
    for (const json& event : events) {
        if (is_send("b")(event)) {
            EXPECT_EQ(event.at("args").at("bytes"), sent.size());
        } else if (is_send("e")(event)) {
            EXPECT_EQ(event.at("args").at("way"), "get");
        }
    }
}

TEST(Trace, TellsHowLongRequestsWaitForRoom) {
    const Traced traced;
    Cluster::Options options;
    options.fabric.transmit_depth = 1;
    Cluster cluster(2, options);
    const ucp_ep_h endpoint = cluster.endpoint(0, 1);
    const unsigned value = 7;
    std::vector<ucs_status_ptr_t> sends;
    for (unsigned i = 0; i < 20; ++i)
        sends.push_back(ucp_tag_send_nbx(endpoint, &value, sizeof(value), i, &kNothing));
    for (const ucs_status_ptr_t send : sends) EXPECT_EQ(cluster.finish(send), UCS_OK);
    const json events = traced.events();
    EXPECT_GE(count(events, "stall", "b"), 1u);
    EXPECT_EQ(count(events, "stall", "b"), count(events, "stall", "e"));
}

TEST(Trace, IsOpenedByItsVariable) {
    std::string folder = "/tmp/swiftlane-trace-XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    const pid_t child = fork();  // the trace lives as long as its process
    ASSERT_GE(child, 0);
    if (child == 0) {
        setenv("UCX_TRACE", (folder + "/trace-%p.json").c_str(), 1);
        setenv("UCX_TLS", "self", 1);
        ucp_params_t params{};
        params.field_mask = UCP_PARAM_FIELD_FEATURES;
        params.features = UCP_FEATURE_TAG;
        ucp_context_h context = nullptr;
        if (ucp_init(&params, nullptr, &context) != UCS_OK) _exit(1);
        const ucp_worker_params_t worker_params{};
        ucp_worker_h worker = nullptr;
        if (ucp_worker_create(context, &worker_params, &worker) != UCS_OK) _exit(1);
        ucp_worker_destroy(worker);
        ucp_cleanup(context);
        _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    const std::string written = folder + "/trace-" + std::to_string(child) + ".json";
    std::ifstream stream(written);
    const json events = json::parse(stream, nullptr, false);
    ASSERT_TRUE(events.is_array());
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].at("name"), "thread_name");
    std::remove(written.c_str());
    rmdir(folder.c_str());
}

}  // namespace
}  // namespace ucp::test
