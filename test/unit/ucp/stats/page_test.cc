// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <limits>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include "ucp/stats/collector.h"
#include "ucp/stats/page_reader.h"
#include "ucs/sys/descriptor.h"
#include "ucs/sys/process.h"
#include "ucs/sys/random.h"

namespace ucp::stats::test {
namespace {

std::vector<PageSample> own_pages() {
    return read_pages({getpid()});
}

std::unique_ptr<WorkerRecord> record(uint64_t id) {
    auto worker = std::make_unique<WorkerRecord>();
    worker->id = id;
    std::strcpy(worker->name, "worker");
    return worker;
}

TEST(Page, ShowsWhatWasPublishedLast) {
    std::unique_ptr<PageWriter> writer;
    ASSERT_EQ(PageWriter::create(&writer), UCS_OK);
    EXPECT_TRUE(own_pages().empty()) << "nothing was published";
    writer->publish(*record(1));
    auto worker = record(2);
    worker->endpoint_count = 1;
    worker->entries[0].peer = 77;
    writer->publish(*worker);
    const std::vector<PageSample> samples = own_pages();
    ASSERT_EQ(samples.size(), 1u);
    EXPECT_EQ(samples[0].pid, getpid());
    EXPECT_FALSE(samples[0].program.empty());
    EXPECT_STREQ(samples[0].worker.name, "worker");
    EXPECT_EQ(samples[0].worker.id, 2u);
    EXPECT_EQ(samples[0].worker.endpoint_count, 1u);
    EXPECT_EQ(samples[0].worker.entries[0].peer, 77u);
}

TEST(Page, GoesWithItsWriter) {
    {
        std::unique_ptr<PageWriter> one, other;
        ASSERT_EQ(PageWriter::create(&one), UCS_OK);
        ASSERT_EQ(PageWriter::create(&other), UCS_OK);
        one->publish(*record(1));
        other->publish(*record(2));
        EXPECT_EQ(own_pages().size(), 2u);
    }
    EXPECT_TRUE(own_pages().empty());
}

// Its number in /proc/self/fd.
unsigned descriptor_of_only_page() {
    const std::vector<PageSample> samples = own_pages();
    EXPECT_EQ(samples.size(), 1u);
    return samples.empty() ? 0 : samples[0].descriptor;
}

TEST(Page, IsItsUsersAloneAndKeepsItsSize) {
    std::unique_ptr<PageWriter> writer;
    ASSERT_EQ(PageWriter::create(&writer), UCS_OK);
    writer->publish(*record(1));
    const auto descriptor = static_cast<int>(descriptor_of_only_page());
    struct stat info {};
    ASSERT_EQ(fstat(descriptor, &info), 0);
    EXPECT_EQ(info.st_mode & 07777, mode_t{0600});
    EXPECT_NE(ftruncate(descriptor, 0), 0);
    const int seals = fcntl(descriptor, F_GET_SEALS);
    EXPECT_EQ(seals & (F_SEAL_SHRINK | F_SEAL_GROW), F_SEAL_SHRINK | F_SEAL_GROW);
    if ((seals & 0x10) != 0) {  // F_SEAL_FUTURE_WRITE
        EXPECT_EQ(pwrite(descriptor, "x", 1, 0), -1);
    }
    EXPECT_NE(fcntl(descriptor, F_GETFD) & FD_CLOEXEC, 0);
}

TEST(Page, OfAParentIsNotThatOfItsChild) {
    std::unique_ptr<PageWriter> writer;
    ASSERT_EQ(PageWriter::create(&writer), UCS_OK);
    writer->publish(*record(1));
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) _exit(own_pages().empty() ? 0 : 1);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT_EQ(own_pages().size(), 1u);
}

TEST(Page, AFileThatTookItsNumberIsNotClosed) {
    std::unique_ptr<PageWriter> writer;
    ASSERT_EQ(PageWriter::create(&writer), UCS_OK);
    writer->publish(*record(1));
    const auto descriptor = static_cast<int>(descriptor_of_only_page());
    const ucs::Descriptor other(open("/dev/null", O_RDONLY | O_CLOEXEC));
    ASSERT_EQ(dup2(other.get(), descriptor), descriptor);
    writer.reset();
    EXPECT_EQ(fcntl(descriptor, F_GETFD), 0);
    close(descriptor);
}

TEST(Page, IsReadAsAWholeWhileItIsWritten) {
    std::unique_ptr<PageWriter> writer;
    ASSERT_EQ(PageWriter::create(&writer), UCS_OK);
    std::atomic<bool> is_over = false;
    std::thread thread([&] {
        auto worker = record(0);
        while (!is_over) {
            ++worker->id;
            worker->entries[kMaxEndpoints - 1].peer = worker->endpoints = worker->id;
            writer->publish(*worker);
            // A worker publishes now and then; without a pause a reader may never come between.
            std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
    });
    for (unsigned seen = 0; seen < 200;) {
        for (const PageSample& sample : own_pages()) {
            ++seen;
            EXPECT_EQ(sample.worker.id, sample.worker.endpoints);
            EXPECT_EQ(sample.worker.id, sample.worker.entries[kMaxEndpoints - 1].peer);
        }
    }
    is_over = true;
    thread.join();
}

// --- pages of somebody who means ill

// A file of the name that pages have, with any content.
class Forgery {
  public:
    explicit Forgery(std::string_view name = kFileName)
        : file_(memfd_create(std::string(name).c_str(), MFD_CLOEXEC)) {
        const ucs::Process self = ucs::Process::self();
        page->head = {kMagic, kVersion, sizeof(Page), self.start_time, self.pid, 0, 2};
    }
    void write(size_t length = sizeof(Page)) {
        ASSERT_EQ(ftruncate(file_.get(), 0), 0);
        ASSERT_EQ(pwrite(file_.get(), page.get(), length, 0), static_cast<ssize_t>(length));
    }
    std::optional<PageSample> read() const {
        return read_page(getpid(), static_cast<unsigned>(file_.get()));
    }

    std::unique_ptr<Page> page = std::make_unique<Page>();

  private:
    ucs::Descriptor file_;
};

TEST(HostilePage, IsTakenIfItIsRight) {
    Forgery forgery;
    forgery.write();
    EXPECT_TRUE(forgery.read());
}

TEST(HostilePage, WithAnotherHeadIsPassedOver) {
    const struct {
        const char* what;
        void (*spoil)(PageHeader&);
    } cases[] = {
        {"magic", [](PageHeader& head) { ++head.magic; }},
        {"version", [](PageHeader& head) { ++head.version; }},
        {"size", [](PageHeader& head) { ++head.size; }},
        {"start", [](PageHeader& head) { ++head.start_time; }},
        {"process", [](PageHeader& head) { ++head.pid; }},
        {"never published", [](PageHeader& head) { head.sequence = 0; }},
        {"being written", [](PageHeader& head) { head.sequence = 3; }},
    };
    for (const auto& [what, spoil] : cases) {
        Forgery forgery;
        spoil(forgery.page->head);
        forgery.write();
        EXPECT_FALSE(forgery.read()) << what;
    }
}

TEST(HostilePage, OfAnotherSizeOrNameIsPassedOver) {
    Forgery short_one;
    short_one.write(sizeof(Page) - 1);
    EXPECT_FALSE(short_one.read());
    short_one.write(0);
    EXPECT_FALSE(short_one.read());
    Forgery other("swiftlane-stats2");
    other.write();
    EXPECT_FALSE(other.read());
    Forgery spaced("swiftlane-stats (deleted)x");
    spaced.write();
    EXPECT_FALSE(spaced.read());
    EXPECT_FALSE(read_page(getpid(), 1u << 30));
}

TEST(HostilePage, ItsCountsTextsAndNumbersAreBrought) {
    Forgery forgery;
    WorkerRecord& worker = forgery.page->worker;
    std::memset(worker.name, '\033', sizeof(worker.name));
    std::memset(worker.transports, 'x', sizeof(worker.transports));
    worker.transport_count = worker.endpoint_count = UINT32_MAX;
    worker.entries[0].messages_per_second = std::numeric_limits<double>::quiet_NaN();
    worker.entries[0].bytes_per_second = -std::numeric_limits<double>::infinity();
    worker.entries[0].lane = 200;
    worker.entries[0].waiting = UINT32_MAX;
    forgery.write();
    const std::optional<PageSample> sample = forgery.read();
    ASSERT_TRUE(sample);
    EXPECT_EQ(std::string_view(sample->worker.name), std::string(sizeof(worker.name) - 1, '?'));
    EXPECT_EQ(sample->worker.transport_count, kMaxTransports);
    EXPECT_EQ(sample->worker.endpoint_count, kMaxEndpoints);
    EXPECT_EQ(std::string_view(sample->worker.transports[0].name), std::string(15, 'x'));
    EXPECT_EQ(sample->worker.entries[0].messages_per_second, 0);
    EXPECT_EQ(sample->worker.entries[0].bytes_per_second, 0);
    EXPECT_EQ(sample->worker.entries[0].lane, kNoTransport);
    EXPECT_EQ(sample->worker.entries[0].waiting, kMaxWaiting);
}

TEST(HostilePage, OfAnyBytesIsSurvived) {
    ucs::Random random(1);
    Forgery forgery;
    for (int round = 0; round < 200; ++round) {
        auto* bytes = reinterpret_cast<uint8_t*>(&forgery.page->worker);
        for (size_t i = 0; i < sizeof(WorkerRecord); ++i) bytes[i] = static_cast<uint8_t>(random());
        forgery.write();
        const std::optional<PageSample> sample = forgery.read();
        ASSERT_TRUE(sample);
        EXPECT_LE(sample->worker.endpoint_count, kMaxEndpoints);
        for (const EndpointRecord& endpoint : sample->worker.entries) {
            EXPECT_TRUE(endpoint.lane == kNoTransport ||
                        endpoint.lane < sample->worker.transport_count);
        }
    }
}

}  // namespace
}  // namespace ucp::stats::test
