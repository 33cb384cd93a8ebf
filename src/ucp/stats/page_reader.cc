// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/stats/page_reader.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <cmath>
#include <memory>
#include <span>
#include <string_view>
#include <tuple>

#include "ucs/sys/descriptor.h"
#include "ucs/sys/process.h"

namespace ucp::stats {
namespace {

constexpr unsigned kTries = 100;

// The numbers that name entries of a folder of /proc.
std::vector<unsigned> numbers_in(const std::string& folder) {
    std::vector<unsigned> numbers;
    const std::unique_ptr<DIR, int (*)(DIR*)> open_folder(opendir(folder.c_str()), closedir);
    if (open_folder == nullptr) return numbers;
    while (const dirent* entry = readdir(open_folder.get())) {
        const std::string_view name = entry->d_name;
        unsigned number = 0;
        const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
        if (error == std::errc() && end == name.data() + name.size()) numbers.push_back(number);
    }
    return numbers;
}

std::string read_text(const std::string& path) {
    const ucs::Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    char text[8192];
    const ssize_t length = file ? read(file.get(), text, sizeof(text)) : -1;
    return length > 0 ? std::string(text, static_cast<size_t>(length)) : std::string();
}

std::string path_of(pid_t pid, const char* entry) {
    return "/proc/" + std::to_string(pid) + "/" + entry;
}

// The number of a process in the innermost namespace that it has one in: what it knows itself.
uint32_t own_number(pid_t pid) {
    constexpr std::string_view kKey = "\nNSpid:";
    const std::string status = read_text(path_of(pid, "status"));
    const size_t at = status.find(kKey);
    if (at == std::string::npos) return static_cast<uint32_t>(pid);
    const std::string_view line = std::string_view(status).substr(
        at + kKey.size(), status.find('\n', at + 1) - at - kKey.size());
    const std::string_view last = line.substr(line.find_last_of("\t ") + 1);
    uint32_t number = 0;
    std::from_chars(last.data(), last.data() + last.size(), number);
    return number;
}

bool is_page(const std::string& link) {
    char target[PATH_MAX];
    const ssize_t length = readlink(link.c_str(), target, sizeof(target));
    constexpr std::string_view kPrefix = "/memfd:";
    std::string_view name(target, static_cast<size_t>(std::max<ssize_t>(length, 0)));
    if (!name.starts_with(kPrefix)) return false;
    name.remove_prefix(kPrefix.size());
    // The kernel adds that the file has no name.
    return name == kFileName || name == std::string(kFileName) + " (deleted)";
}

bool read_at(int file, void* to, size_t length, size_t offset) {
    return pread(file, to, length, static_cast<off_t>(offset)) == static_cast<ssize_t>(length);
}

// By copies of the kernel's: a page that is cut or written meanwhile can do no harm.
bool read_whole(int file, Page* page) {
    for (unsigned attempt = 0; attempt < kTries; ++attempt) {
        uint64_t after = 0;
        if (!read_at(file, page, sizeof(*page), 0)) return false;
        // The sequence was read with the rest, so it must have been even before, and the same
        // after.
        if (!read_at(file, &after, sizeof(after), offsetof(Page, head.sequence))) return false;
        uint64_t before = page->head.sequence;
        if (before % 2 == 0 && before == after && before != 0) return true;
    }
    return false;
}

// Printable, and with an end.
void clean(std::span<char> text) {
    text.back() = '\0';
    for (char& c : text) {
        if (c == '\0') return;
        if (c < ' ' || c > '~') c = '?';
    }
}

double clean(double value) {
    return std::isfinite(value) && value > 0 ? value : 0;
}

void clean(WorkerRecord& worker) {
    clean(worker.name);
    worker.transport_count = std::min<uint32_t>(worker.transport_count, kMaxTransports);
    worker.endpoint_count = std::min<uint32_t>(worker.endpoint_count, kMaxEndpoints);
    for (TransportRecord& transport : worker.transports) {
        clean(transport.name);
        clean(transport.device);
    }
    for (EndpointRecord& endpoint : worker.entries) {
        endpoint.messages_per_second = clean(endpoint.messages_per_second);
        endpoint.bytes_per_second = clean(endpoint.bytes_per_second);
        if (endpoint.lane >= worker.transport_count) endpoint.lane = kNoTransport;
        if (endpoint.other >= worker.transport_count) endpoint.other = kNoTransport;
        endpoint.waiting = std::min(endpoint.waiting, kMaxWaiting);
    }
}

}  // namespace

std::optional<PageSample> read_page(pid_t pid, unsigned descriptor) {
    const std::string link = path_of(pid, "fd/") + std::to_string(descriptor);
    // Before it is opened, since opening a device may do something.
    if (!is_page(link)) return {};
    const ucs::Descriptor file(open(link.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    struct stat info {};
    const bool is_sound = file && fstat(file.get(), &info) == 0 && S_ISREG(info.st_mode) &&
                          info.st_size == sizeof(Page) &&
                          (info.st_uid == geteuid() || geteuid() == 0);
    auto page = std::make_unique<Page>();
    if (!is_sound || !read_whole(file.get(), page.get())) return {};
    const PageHeader& head = page->head;
    const std::optional<ucs::Process> process = ucs::Process::find(static_cast<uint32_t>(pid));
    if (head.magic != kMagic || head.version != kVersion || head.size != sizeof(Page) || !process ||
        head.start_time != process->start_time || head.pid != own_number(pid))
        return {};
    PageSample sample{.pid = pid, .descriptor = descriptor, .program = {}, .worker = page->worker};
    clean(sample.worker);
    sample.program = read_text(path_of(pid, "comm"));
    while (sample.program.ends_with('\n')) sample.program.pop_back();
    sample.program.push_back('\0');
    clean(sample.program);
    sample.program.pop_back();
    return sample;
}

std::vector<PageSample> read_pages(const std::vector<pid_t>& only) {
    std::vector<PageSample> samples;
    for (const unsigned number : numbers_in("/proc")) {
        const auto pid = static_cast<pid_t>(number);
        if (!only.empty() && std::ranges::find(only, pid) == only.end()) continue;
        for (const unsigned descriptor : numbers_in(path_of(pid, "fd"))) {
            if (auto sample = read_page(pid, descriptor)) samples.push_back(std::move(*sample));
        }
    }
    std::ranges::sort(samples, {}, [](const PageSample& sample) {
        return std::tuple(sample.pid, sample.worker.made, sample.descriptor);
    });
    return samples;
}

}  // namespace ucp::stats
