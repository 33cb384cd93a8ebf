// SPDX-License-Identifier: BSD-3-Clause
#include "tools/sim/study.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <exception>
#include <map>
#include <memory>
#include <stdexcept>
#include <system_error>

namespace tools {
namespace {

struct CloseFile {
    void operator()(FILE* file) const { fclose(file); }
};
using File = std::unique_ptr<FILE, CloseFile>;

struct Child {
    uint64_t seed;
    File output;
};

[[noreturn]] void be_child(FILE* output, const std::function<void(uint64_t)>& run, uint64_t seed) {
    dup2(fileno(output), STDOUT_FILENO);
    dup2(fileno(output), STDERR_FILENO);
    int status = 0;
    try {
        run(seed);
    } catch (const std::exception& error) {
        fmt::print("swiftlane: {}\n", error.what());
        status = 1;
    }
    std::fflush(nullptr);
    _exit(status);
}

void copy(FILE* from) {
    rewind(from);
    char block[4096];
    while (const size_t length = fread(block, 1, sizeof(block), from)) {
        fwrite(block, 1, length, stdout);
    }
}

uint64_t parse_number(const std::string& all, std::string_view text) {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || text.empty()) {
        throw std::invalid_argument(fmt::format("'{}' is not FIRST:COUNT", all));
    }
    return value;
}

}  // namespace

SeedRange parse_seeds(const std::string& text) {
    const size_t colon = text.find(':');
    if (colon == text.npos)
        throw std::invalid_argument(fmt::format("'{}' is not FIRST:COUNT", text));
    const std::string_view view(text);
    const SeedRange seeds{parse_number(text, view.substr(0, colon)),
                          parse_number(text, view.substr(colon + 1))};
    if (seeds.count == 0 || seeds.count > UINT64_MAX - seeds.first) {
        throw std::invalid_argument(fmt::format("'{}' names no seeds", text));
    }
    return seeds;
}

unsigned run_seeds(const SeedRange& seeds, unsigned jobs,
                   const std::function<void(uint64_t seed)>& run) {
    const uint64_t end = seeds.first + seeds.count;
    std::map<pid_t, Child> running;
    struct Ended {
        File output;
        bool is_good;
    };
    std::map<uint64_t, Ended> ended;
    std::string failed;
    unsigned failures = 0;
    uint64_t next = seeds.first, printed = seeds.first;
    while (printed < end) {
        while (running.size() < jobs && next < end) {
            File output(tmpfile());
            if (output == nullptr)
                throw std::system_error(errno, std::generic_category(), "tmpfile");
            std::fflush(nullptr);
            const pid_t child = fork();
            if (child < 0) throw std::system_error(errno, std::generic_category(), "fork");
            if (child == 0) be_child(output.get(), run, next);
            running[child] = {next, std::move(output)};
            ++next;
        }
        int status = 0;
        const pid_t child = waitpid(-1, &status, 0);
        const auto found = running.find(child);
        if (found == running.end()) continue;
        ended[found->second.seed] = {std::move(found->second.output),
                                     WIFEXITED(status) && WEXITSTATUS(status) == 0};
        running.erase(found);
        for (auto at = ended.find(printed); at != ended.end(); at = ended.find(printed)) {
            copy(at->second.output.get());
            if (!at->second.is_good) {
                ++failures;
                failed += fmt::format(" {}", printed);
            }
            ended.erase(at);
            ++printed;
        }
    }
    fmt::print("\n# seeds {} to {}: {}\n", seeds.first, end - 1,
               failures == 0 ? "all ran" : "these failed:" + failed);
    return failures;
}

}  // namespace tools
