// SPDX-License-Identifier: BSD-3-Clause

// The traces of two processes that send to each other, as readers of Chrome's trace format take
// them, beside what the counters of the same processes say.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ucp/api/ucpx.h"
#include "ucp/stats/page_reader.h"
#include "unit/ucp/no_options.h"

namespace ucp::test {
namespace {

using nlohmann::json;

constexpr unsigned kMessagesOfEach = 40;
constexpr size_t kLength = 100000;
constexpr ucp_tag_t kEverything = ~ucp_tag_t{0};

// What a process says of itself: its own count, ucpx_worker_query(), its page of statistics.
struct Report {
    uint64_t announced, announced_bytes;
    uint64_t promotions, demotions;
    uint64_t page_promotions, page_demotions, page_failures;
};

// One of the two processes. Whatever goes wrong ends it.
class Process {
  public:
    explicit Process(int other) : other_(other) {
        ucp_params_t params{};
        params.field_mask = UCP_PARAM_FIELD_FEATURES;
        params.features = UCP_FEATURE_TAG;
        need(ucp_init(&params, nullptr, &context_) == UCS_OK);
        const ucp_worker_params_t worker_params{};
        need(ucp_worker_create(context_, &worker_params, &worker_) == UCS_OK);
        ucp_address_t* address = nullptr;
        size_t length = 0;
        need(ucp_worker_get_address(worker_, &address, &length) == UCS_OK);
        need(write(other_, &length, sizeof(length)) == sizeof(length));
        need(write(other_, address, length) == static_cast<ssize_t>(length));
        ucp_worker_release_address(worker_, address);
        read_all(&length, sizeof(length));
        std::vector<char> peer(length);
        read_all(peer.data(), length);
        ucp_ep_params_t endpoint{};
        endpoint.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        endpoint.address = reinterpret_cast<ucp_address_t*>(peer.data());
        need(ucp_ep_create(worker_, &endpoint, &endpoint_) == UCS_OK);
    }
    Process(const Process&) = delete;
    Process& operator=(const Process&) = delete;
    ~Process() {
        finish(ucp_ep_close_nbx(endpoint_, &kNothing));
        ucp_worker_destroy(worker_);
        ucp_cleanup(context_);
    }

    void send() {
        finish(ucp_tag_send_nbx(endpoint_, data_.data(), data_.size(), 1, &kNothing));
        ++report_.announced;
        report_.announced_bytes += data_.size();
    }
    void receive() {
        finish(ucp_tag_recv_nbx(worker_, data_.data(), data_.size(), 1, kEverything, &kNothing));
    }
    void ask(ucpx_lane_policy_t policy) {
        need(ucpx_ep_lanes_request(endpoint_, policy) == UCS_OK);
    }
    // Progress until the link is in that state.
    void await(ucpx_lane_state_t state) {
        progress_until([&] {
            ucpx_ep_attr_t link{};
            link.field_mask = UCPX_EP_ATTR_FIELD_STATE;
            need(ucpx_ep_query(endpoint_, &link) == UCS_OK);
            return link.state == state;
        });
    }
    // Until the other has come here, too, with progress meanwhile.
    void meet() {
        const char one = 1;
        need(write(other_, &one, 1) == 1);
        progress_until([&] {
            char there = 0;
            return recv(other_, &there, 1, MSG_DONTWAIT) == 1;
        });
    }
    Report report() {
        ucpx_worker_attr_t counters{};
        counters.field_mask = UCPX_WORKER_ATTR_FIELD_SWITCHES;
        need(ucpx_worker_query(worker_, &counters) == UCS_OK);
        report_.promotions = counters.promotions;
        report_.demotions = counters.demotions;
        // The page is filled ten times a second.
        std::vector<stats::PageSample> pages;
        const auto fills = [&] {
            pages = stats::read_pages({getpid()});
            return pages.empty() ? 0 : pages[0].worker.fills;
        };
        const uint64_t before = fills();
        progress_until([&] { return fills() > before; });
        report_.page_promotions = pages[0].worker.promotions;
        report_.page_demotions = pages[0].worker.demotions;
        report_.page_failures = pages[0].worker.failures;
        return report_;
    }

  private:
    static void need(bool holds) {
        if (!holds) _exit(1);
    }
    void read_all(void* data, size_t length) const {
        need(recv(other_, data, length, MSG_WAITALL) == static_cast<ssize_t>(length));
    }
    template <typename Condition>
    void progress_until(Condition condition) {
        const time_t limit = time(nullptr) + 60;
        while (!condition()) {
            need(time(nullptr) < limit);
            ucp_worker_progress(worker_);
        }
    }
    void finish(ucs_status_ptr_t operation) {
        if (!UCS_PTR_IS_PTR(operation)) return need(operation == nullptr);
        progress_until([&] { return ucp_request_check_status(operation) != UCS_INPROGRESS; });
        need(ucp_request_check_status(operation) == UCS_OK);
        ucp_request_free(operation);
    }

    int other_;
    ucp_context_h context_ = nullptr;
    ucp_worker_h worker_ = nullptr;
    ucp_ep_h endpoint_ = nullptr;
    std::vector<char> data_ = std::vector<char>(kLength);
    Report report_{};
};

// Over shared memory: both send, in turns; a dedicated lane comes and goes.
Report talk(int other, bool is_first) {
    Process process(other);
    process.meet();
    const auto send = [&](bool is_sender) {
        for (unsigned i = 0; i < kMessagesOfEach; ++i)
            is_sender ? process.send() : process.receive();
    };
    send(is_first);
    if (is_first) process.ask(UCPX_LANE_POLICY_DEDICATED);
    process.await(UCPX_LANE_STATE_ESTABLISHED);
    process.meet();
    send(!is_first);
    process.meet();
    if (is_first) process.ask(UCPX_LANE_POLICY_SCALABLE);
    process.await(UCPX_LANE_STATE_SCALABLE);
    process.meet();
    const Report report = process.report();
    process.meet();
    return report;
}

class TwoTraces : public testing::Test {
  protected:
    static void SetUpTestSuite() {
        ASSERT_NE(mkdtemp(folder_.data()), nullptr);
        int sockets[2];
        ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
        for (size_t index = 0; index < 2; ++index) {
            int pipes[2];
            ASSERT_EQ(pipe2(pipes, O_CLOEXEC), 0);
            const pid_t child = fork();
            ASSERT_GE(child, 0);
            if (child == 0) {
                setenv("UCX_TRACE", (folder_ + "/%p.json").c_str(), 1);
                setenv("UCX_TLS", "sm", 1);
                setenv("UCX_RNDV_THRESH", "1000", 1);
                close(sockets[1 - index]);
                const Report report = talk(sockets[index], index == 0);
                _exit(write(pipes[1], &report, sizeof(report)) == sizeof(report) ? 0 : 1);
            }
            close(pipes[1]);
            children_[index] = child;
            reports_[index] = {};
            results_[index] = pipes[0];
        }
        for (const int socket : sockets) close(socket);
        for (size_t index = 0; index < 2; ++index) {
            int status = 0;
            ASSERT_EQ(waitpid(children_[index], &status, 0), children_[index]);
            ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << index;
            ASSERT_EQ(read(results_[index], &reports_[index], sizeof(Report)),
                      static_cast<ssize_t>(sizeof(Report)));
            close(results_[index]);
            std::ifstream file(folder_ + "/" + std::to_string(children_[index]) + ".json");
            traces_[index] = json::parse(file, nullptr, false);
            ASSERT_TRUE(traces_[index].is_array());
            ASSERT_FALSE(traces_[index].empty());
        }
    }
    static void TearDownTestSuite() { std::filesystem::remove_all(folder_); }

    template <typename Matches>
    static uint64_t count(size_t index, Matches matches) {
        return static_cast<uint64_t>(
            std::count_if(traces_[index].begin(), traces_[index].end(), matches));
    }

    static inline std::string folder_ = "/tmp/swiftlane-traces-XXXXXX";
    static inline std::array<pid_t, 2> children_{};
    static inline std::array<int, 2> results_{};
    static inline std::array<Report, 2> reports_{};
    static inline std::array<json, 2> traces_;
};

TEST_F(TwoTraces, HaveWhatTheFormatWants) {
    for (size_t index = 0; index < 2; ++index) {
        for (const json& event : traces_[index]) {
            SCOPED_TRACE(event.dump());
            const std::string phase = event.at("ph");
            EXPECT_NE(std::string("MibeX").find(phase), std::string::npos);
            EXPECT_FALSE(event.at("name").get<std::string>().empty());
            EXPECT_FALSE(event.at("cat").get<std::string>().empty());
            EXPECT_EQ(event.at("pid"), children_[index]);
            EXPECT_TRUE(event.at("tid").is_number_unsigned());
            EXPECT_GT(event.at("ts").get<double>(), 0);
            EXPECT_EQ(event.contains("dur"), phase == "X");
            EXPECT_EQ(event.contains("id"), phase == "b" || phase == "e");
            if (phase == "i") {
                EXPECT_EQ(event.at("s"), "t");
            }
        }
    }
}

TEST_F(TwoTraces, BeginEachOperationOnceAndEndIt) {
    std::set<std::string> ids[2];
    for (size_t index = 0; index < 2; ++index) {
        std::map<std::pair<std::string, std::string>, std::string> open;  // names
        for (const json& event : traces_[index]) {
            if (!event.contains("id")) continue;
            const std::pair<std::string, std::string> key{event.at("cat"), event.at("id")};
            ids[index].insert(key.second);
            if (event.at("ph") == "b") {
                EXPECT_TRUE(open.emplace(key, event.at("name")).second) << event;
            } else {
                const auto begun = open.extract(key);
                ASSERT_FALSE(begun.empty()) << event;
                EXPECT_EQ(begun.mapped(), event.at("name").get<std::string>());
            }
        }
        EXPECT_TRUE(open.empty()) << open.begin()->second;
    }
    // Who shows both on one line of time takes what has the same id for the same operation.
    for (const std::string& id : ids[0]) EXPECT_EQ(ids[1].count(id), 0u) << id;
    EXPECT_FALSE(ids[0].empty() || ids[1].empty());
}

TEST_F(TwoTraces, GoForwardOnEachTrack) {
    for (const json& trace : traces_) {
        std::map<uint64_t, double> last;
        for (const json& event : trace) {
            const double end = event.at("ts").get<double>() + event.value("dur", 0.0);
            double& before = last[event.at("tid").get<uint64_t>()];
            // Of what took time, beginning and length are rounded to nanoseconds, each.
            EXPECT_GE(end, before - 0.002) << event;
            before = std::max(before, end);
        }
    }
}

TEST_F(TwoTraces, CountWhatTheCountersCount) {
    for (size_t index = 0; index < 2; ++index) {
        const Report& report = reports_[index];
        EXPECT_EQ(report.promotions, 1u);
        EXPECT_EQ(report.demotions, 1u);
        EXPECT_EQ(report.page_promotions, report.promotions);
        EXPECT_EQ(report.page_demotions, report.demotions);
        EXPECT_EQ(report.page_failures, 0u);
        EXPECT_EQ(count(index,
                        [](const json& event) {
                            return event.at("cat") == "lane" && event.at("name") == "established";
                        }),
                  report.promotions);
        EXPECT_EQ(count(index,
                        [](const json& event) {
                            return event.at("cat") == "lane" && event.at("name") != "established" &&
                                   event.at("args").at("from") == "established";
                        }),
                  report.demotions);
        EXPECT_EQ(count(index,
                        [](const json& event) {
                            return event.at("name") == "rendezvous send" && event.at("ph") == "e" &&
                                   event.at("args").at("status") == "Success";
                        }),
                  report.announced);
        uint64_t bytes = 0;
        for (const json& event : traces_[index]) {
            if (event.at("name") == "rendezvous send" && event.at("ph") == "b") {
                bytes += event.at("args").at("bytes").get<uint64_t>();
            }
        }
        EXPECT_EQ(bytes, report.announced_bytes);
        EXPECT_EQ(report.announced, kMessagesOfEach);
    }
}

}  // namespace
}  // namespace ucp::test
