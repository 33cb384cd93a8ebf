// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/trace/trace.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "ucs/log/log.h"
#include "ucs/sys/host.h"

namespace ucp {
namespace {

constexpr std::string_view kStart = "[\n";
constexpr std::string_view kEnd = "\n]\n";

std::string escaped(std::string_view text) {
    std::string result;
    for (const char c : text) {
        if (c == '"' || c == '\\') result += '\\';
        result += c >= ' ' && c <= '~' ? c : '?';
    }
    return result;
}

std::string file_name(std::string_view pattern) {
    std::string name(pattern);
    constexpr std::string_view kProcess = "%p";
    for (size_t at = 0; (at = name.find(kProcess, at)) != std::string::npos;)
        name.replace(at, kProcess.size(), std::to_string(ucs::process_id()));
    return name;
}

// Readers take numbers as doubles, so tracks have 31 bits.
uint32_t number_of(uint64_t track) {
    return static_cast<uint32_t>(track ^ track >> 32) & 0x7fffffff;
}

// Readers tell operations of all processes apart by it, and ranks have the same addresses.
std::string id_member(uint32_t process, const void* id) {
    return fmt::format(",\"id\":\"{:x}.{}\"", process, fmt::ptr(id));
}

// Ends the trace with the process, or with the library if that is unloaded before.
struct AtExit {
    ~AtExit() { Trace::close(); }
};

}  // namespace

Trace::Trace(int descriptor, std::string path)
    : descriptor_(descriptor), path_(std::move(path)), process_(ucs::process_id()) {
    buffer_.reserve(kBuffer + 1024);
}

void Trace::open(std::string_view pattern) {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    if (pattern.empty() || active() != nullptr) return;
    // A program with more rights than its user writes no file that he names.
    if (getauxval(AT_SECURE) != 0) return;
    std::string path = file_name(pattern);
    const int descriptor =
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (descriptor < 0) {
        ucs::log_error("UCX_TRACE: {} cannot be written: {}", path, std::strerror(errno));
        return;
    }
    auto* trace = new Trace(descriptor, std::move(path));
    active_.store(trace, std::memory_order_release);
    static const AtExit at_exit;
    trace->flush();
}

void Trace::close() {
    Trace* const trace = active_.exchange(nullptr);
    if (trace == nullptr) return;
    trace->flush();
    if (ucs::process_id() == trace->process_) ::close(trace->descriptor_);
    // Whoever has just asked for it may still use it, so it stays.
    static auto* const closed = new std::vector<Trace*>;
    closed->push_back(trace);
}

void Trace::flush() {
    const std::lock_guard lock(mutex_);
    write();
}

void Trace::name_track(uint64_t track, std::string_view name) {
    add('M', "track", "thread_name", track, now(), "",
        {{"name", name}, {"id", fmt::format("{:016x}", track)}});
}
void Trace::begin(const char* category, std::string_view name, uint64_t track, const void* id,
                  Arguments arguments) {
    add('b', category, name, track, now(), id_member(process_, id), arguments);
}

void Trace::end(const char* category, std::string_view name, uint64_t track, const void* id,
                Arguments arguments) {
    add('e', category, name, track, now(), id_member(process_, id), arguments);
}

void Trace::complete(const char* category, std::string_view name, uint64_t track, ucs::Time start,
                     Arguments arguments) {
    const std::string duration = fmt::format(",\"dur\":{:.3f}", ucs::seconds(now() - start) * 1e6);
    add('X', category, name, track, start, duration, arguments);
}

void Trace::add(char phase, const char* category, std::string_view name, uint64_t track,
                ucs::Time time, std::string_view more, Arguments arguments) {
    std::string members;
    for (const Argument& argument : arguments) {
        const auto* text = std::get_if<std::string_view>(&argument.value);
        members += fmt::format("{}\"{}\":", members.empty() ? "" : ",", argument.key);
        members += text != nullptr ? fmt::format("\"{}\"", escaped(*text))
                                   : fmt::format("{}", *std::get_if<uint64_t>(&argument.value));
    }
    const double microseconds = ucs::seconds(time.time_since_epoch()) * 1e6;
    const std::lock_guard lock(mutex_);
    // A child that was forked has its parent's file open, and not its own.
    if (is_full_ || ucs::process_id() != process_) return;
    const bool is_first = end_ <= kStart.size() && buffer_.empty();
    buffer_ += fmt::format(
        "{}{{\"ph\":\"{}\",\"cat\":\"{}\",\"name\":\"{}\",\"pid\":{},\"tid\":{},"
        "\"ts\":{:.3f}{},\"args\":{{{}}}}}",
        is_first ? "" : ",\n", phase, category, escaped(name), process_, number_of(track),
        microseconds, more, members);
    if (buffer_.size() >= kBuffer) write();
}

void Trace::write() {
    if (is_full_ || ucs::process_id() != process_) return;
    std::string text = std::exchange(buffer_, {});
    buffer_.reserve(kBuffer + 1024);
    if (end_ == 0) text.insert(0, kStart);
    const size_t length = text.size();
    text += kEnd;
    for (size_t done = 0; done < text.size();) {
        const ssize_t written = pwrite(descriptor_, text.data() + done, text.size() - done,
                                       static_cast<off_t>(end_ + done));
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) {
            ucs::log_error("UCX_TRACE: {} cannot be written: {}", path_, std::strerror(errno));
            is_full_ = true;
            return;
        }
        done += static_cast<size_t>(written);
    }
    end_ += length;
    if (end_ >= kLongestFile) {
        ucs::log_warn("UCX_TRACE: {} has {} bytes: no more is traced", path_, end_);
        is_full_ = true;
    }
}

}  // namespace ucp
