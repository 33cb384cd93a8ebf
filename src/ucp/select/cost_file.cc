// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/select/cost_file.h"

#include <config.h>  // of the build
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>

#include "ucs/log/log.h"
#include "ucs/runtime/runtime.h"
#include "ucs/sys/environment.h"
#include "ucs/sys/random.h"

namespace ucp::select {
namespace {

constexpr size_t kLongestFile = 128 * 1024;
constexpr std::string_view kFormat = "4";

struct Figure {
    std::string_view name;
    CostEntry CostModel::*entry;
};
constexpr Figure kFigures[] = {{"copy", &CostModel::copy},
                               {"pieces", &CostModel::pieces},
                               {"system_copy", &CostModel::system_copy}};

std::string_view take_word(std::string_view& line) {
    const size_t begin = std::min(line.find_first_not_of(' '), line.size());
    const size_t end = std::min(line.find(' ', begin), line.size());
    const std::string_view word = line.substr(begin, end - begin);
    line.remove_prefix(end);
    return word;
}

struct OperationName {
    std::string_view name;
    Operation operation;
};
constexpr OperationName kOperationNames[] = {{"tag", Operation::kTag},
                                             {"am", Operation::kActiveMessage},
                                             {"put", Operation::kPut},
                                             {"get", Operation::kGet}};
static_assert(std::size(kOperationNames) == kLearnedOperations.size());
struct LoadName {
    std::string_view name;
    Load load;
};
constexpr LoadName kLoadNames[] = {
    {"alone", Load::kAlone}, {"one-way", Load::kOneWay}, {"both-ways", Load::kBothWays}};
struct WayName {
    std::string_view name;
    Way way;
};
constexpr WayName kWayNames[] = {{"eager", Way::kEager},
                                 {"rendezvous", Way::kRendezvous},
                                 {"copy", Way::kCopy},
                                 {"zero-copy", Way::kZeroCopy},
                                 {"bulk", Way::kBulk}};

// The entry of that name; null: there is none.
template <typename Names>
const auto* entry_of(const Names& names, std::string_view word) {
    const auto* const found =
        std::ranges::find_if(names, [&](const auto& each) { return each.name == word; });
    return found == std::end(names) ? nullptr : found;
}

std::string format_learned(const LearnedFigure& figure) {
    std::string_view operation, load, way;
    for (const auto& each : kOperationNames)
        if (each.operation == figure.operation) operation = each.name;
    for (const auto& each : kLoadNames)
        if (each.load == figure.load) load = each.name;
    for (const auto& each : kWayNames)
        if (each.way == figure.way) way = each.name;
    return fmt::format("learned {} {} {} {} {} {:.4g} {}\n", figure.lane, operation, load,
                       figure.size, way, figure.factor, figure.count);
}

// No negative ones, and none that no machine has.
bool parse_number(std::string_view text, double most, double* number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
    return error == std::errc() && end == text.data() + text.size() && std::isfinite(*number) &&
           *number >= 0 && *number <= most;
}

template <typename Number>
bool parse_count(std::string_view text, Number* number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
    return error == std::errc() && end == text.data() + text.size();
}

// @param line  behind its first word
bool parse_learned(std::string_view line, LearnedFigure* figure) {
    figure->lane = take_word(line);
    const auto* const operation = entry_of(kOperationNames, take_word(line));
    const auto* const load = entry_of(kLoadNames, take_word(line));
    const bool has_size = parse_count(take_word(line), &figure->size);
    const auto* const way = entry_of(kWayNames, take_word(line));
    double factor = 0;
    if (figure->lane.empty() || operation == nullptr || load == nullptr || !has_size ||
        way == nullptr || figure->size >= LearnedCosts::kSizes ||
        std::ranges::count(all_ways(operation->operation), way->way) == 0 ||
        !parse_number(take_word(line), LearnedCosts::kMostFactor, &factor) ||
        !parse_count(take_word(line), &figure->count) || !take_word(line).empty())
        return false;
    figure->operation = operation->operation;
    figure->load = load->load;
    figure->way = way->way;
    figure->factor = static_cast<float>(factor);
    return true;
}

std::string processor_name() {
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);) {
        const size_t colon = line.find(": ");
        if (line.starts_with("model name") && colon != std::string::npos)
            return line.substr(colon + 2);
    }
    return "unknown";
}

// A descriptor that is closed with its scope.
struct File {
    explicit File(int number) : descriptor(number) {}
    ~File() {
        if (descriptor >= 0) close(descriptor);
    }
    File(File&&) = delete;
    const int descriptor;
};

bool write_all(int descriptor, std::string_view text) {
    while (!text.empty()) {
        const ssize_t written = write(descriptor, text.data(), text.size());
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return false;
        text.remove_prefix(static_cast<size_t>(written));
    }
    return true;
}

bool exists(const std::string& path) {
    struct stat info {};
    return lstat(path.c_str(), &info) == 0;
}

int64_t nanoseconds(const timespec& time) {
    return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// When a file was written last, in nanoseconds; 0: there is none.
int64_t written_at(const std::string& path) {
    struct stat info {};
    return lstat(path.c_str(), &info) == 0 ? nanoseconds(info.st_mtim) : 0;
}

int64_t calendar() {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    return nanoseconds(now);
}

void make_folders(const std::string& path) {
    for (size_t slash = path.find('/', 1); slash != std::string::npos;
         slash = path.find('/', slash + 1)) {
        mkdir(path.substr(0, slash).c_str(), 0700);
    }
}

// The right to write a file, for one process at a time. Nobody waits for it: who does not get it
// has figures like those that are being written.
class FolderLock {
  public:
    // @param path  of the file; "": no right
    explicit FolderLock(const std::string& path)
        : folder_(path.empty() ? -1
                               : open(path.substr(0, path.rfind('/')).c_str(),
                                      O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
          is_ours_(folder_.descriptor >= 0 && flock(folder_.descriptor, LOCK_EX | LOCK_NB) == 0) {}

    bool is_ours() const { return is_ours_; }

  private:
    const File folder_;
    const bool is_ours_;
};

}  // namespace

CostOwner CostOwner::own() {
    const long cores = sysconf(_SC_NPROCESSORS_CONF);
    utsname system{};
    return {processor_name(), cores > 0 ? static_cast<unsigned>(cores) : 0,
            uname(&system) == 0 ? system.release : "unknown", PACKAGE_VERSION};
}

std::string format_costs(const KeptCosts& costs, const CostOwner& owner) {
    std::string text = fmt::format(
        "# What this machine's processors need to move bytes, as Swiftlane has measured it\n"
        "# (UCX_COSTS=keep, learn). Delete the file to have it measured anew;\n"
        "# UCX_COSTS=/path/of/a/copy keeps to the figures of a copy. A figure is seconds for a "
        "call\n"
        "# and seconds for a byte; a learned one how many times the assumed time messages took:\n"
        "# lane, operation, load, class of length, way, times, number of messages.\n"
        "format {}\nversion {}\nprocessor {}\ncores {}\nkernel {}\n",
        kFormat, owner.version, owner.processor, owner.cores, owner.kernel);
    for (const Figure& figure : kFigures) {
        const CostEntry& entry = costs.model.*figure.entry;
        if (entry.origin == Origin::kAssumed) continue;
        text += fmt::format("{} {:.4g} {:.4g}\n", figure.name, entry.base, entry.per_byte);
    }
    for (const LearnedFigure& figure : costs.learned) text += format_learned(figure);
    return text;
}

std::string parse_costs(std::string_view text, const CostOwner& owner, Origin origin,
                        KeptCosts* costs) {
    constexpr double kMostBase = 1e-3, kMostPerByte = 1e-6;
    KeptCosts read{costs->model, {}};
    constexpr unsigned kFacts = 5;
    unsigned facts = 0, figures = 0;
    const auto is_own = [&](std::string_view value, const std::string& expected) {
        ++facts;
        return value == expected;
    };
    while (!text.empty()) {
        const size_t end = std::min(text.find('\n'), text.size());
        std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (line.empty() || line.front() == '#') continue;
        const std::string_view name = take_word(line);
        const std::string_view rest = line.empty() ? line : line.substr(1);
        if (name == "format" && !is_own(rest, std::string(kFormat))) return "another format";
        if (name == "version" && !is_own(rest, owner.version)) return "another version's";
        if (name == "processor" && !is_own(rest, owner.processor)) return "another processor's";
        if (name == "cores" && !is_own(rest, std::to_string(owner.cores)))
            return "of another number of cores";
        if (name == "kernel" && !is_own(rest, owner.kernel)) return "another kernel's";
        if (name == "learned") {
            LearnedFigure figure;
            if (!parse_learned(rest, &figure)) return "a learned figure is none";
            read.learned.push_back(std::move(figure));
            ++figures;
        }
        for (const Figure& figure : kFigures) {
            if (name != figure.name) continue;
            CostEntry entry{0, 0, origin};
            if (!parse_number(take_word(line), kMostBase, &entry.base) ||
                !parse_number(take_word(line), kMostPerByte, &entry.per_byte) ||
                !take_word(line).empty())
                return fmt::format("{} has no figures", figure.name);
            read.model.*figure.entry = entry;
            ++figures;
        }
    }
    if (facts != kFacts) return "it does not say whose figures these are";
    if (figures == 0) return "no figures";
    *costs = std::move(read);
    return "";
}

std::string default_cost_file(const ucs::Environment& environment, const CostOwner& owner) {
    // A file for each kind of host: several may share a home directory.
    uint64_t hash = owner.cores;
    for (const std::string* fact : {&owner.processor, &owner.kernel, &owner.version}) {
        for (const char letter : *fact) hash = ucs::mix64(hash ^ static_cast<uint8_t>(letter));
        hash = ucs::mix64(hash ^ (uint64_t{1} << 8));
    }
    const std::string file = fmt::format("/swiftlane/costs-{:08x}", static_cast<uint32_t>(hash));
    const auto cache = environment.get("XDG_CACHE_HOME");
    if (cache && cache->starts_with('/')) return *cache + file;
    const auto home = environment.get("HOME");
    return home && home->starts_with('/') ? *home + "/.cache" + file : "";
}

std::string load_costs(const std::string& path, const CostOwner& owner, Origin origin,
                       KeptCosts* costs) {
    const File file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    struct stat info {};
    if (file.descriptor < 0 || fstat(file.descriptor, &info) != 0) return std::strerror(errno);
    if (!S_ISREG(info.st_mode) || info.st_uid != geteuid() ||
        (info.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return "it is not a file that only its user may write";
    if (static_cast<size_t>(info.st_size) > kLongestFile) return "it is too long";
    std::string text(static_cast<size_t>(info.st_size), '\0');
    const ssize_t length = read(file.descriptor, text.data(), text.size());
    if (length < 0) return std::strerror(errno);
    text.resize(static_cast<size_t>(length));
    return parse_costs(text, owner, origin, costs);
}

std::string save_costs(const std::string& path, const CostOwner& owner, const KeptCosts& costs) {
    make_folders(path);
    const std::string draft = fmt::format("{}.{}", path, getpid());
    {
        const File file(
            open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
        if (file.descriptor < 0) return std::strerror(errno);
        if (!write_all(file.descriptor, format_costs(costs, owner))) {
            const int error = errno;
            unlink(draft.c_str());
            return std::strerror(error);
        }
    }
    if (rename(draft.c_str(), path.c_str()) == 0) return "";
    const int error = errno;
    unlink(draft.c_str());
    return std::strerror(error);
}

const KeptCosts& kept_costs() {
    static const KeptCosts costs = [] {
        const CostOwner owner = CostOwner::own();
        const std::string path = default_cost_file(*ucs::runtime().environment, owner);
        KeptCosts kept;
        if (!path.empty() && exists(path)) {
            const std::string problem = load_costs(path, owner, Origin::kKept, &kept);
            if (problem.empty()) return kept;
            ucs::log_warn("{} is not believed: {}; costs are measured, and it is replaced", path,
                          problem);
        }
        kept = {CostModel::measured(), {}};
        if (path.empty() || kept.model.system_copy.origin != Origin::kMeasured) return kept;
        make_folders(path);
        const FolderLock lock(path);
        if (!lock.is_ours()) return kept;
        if (const std::string error = save_costs(path, owner, kept); !error.empty())
            ucs::log_debug("costs are not kept: {}: {}", path, error);
        return kept;
    }();
    return costs;
}

KeptCosts pinned_costs(const std::string& path) {
    KeptCosts costs;
    const std::string problem = load_costs(path, CostOwner::own(), Origin::kUser, &costs);
    if (problem.empty()) return costs;
    ucs::log_warn("UCX_COSTS={}: not believed: {}; costs are measured", path, problem);
    return {CostModel::measured(), {}};
}

// --- sharing ---

void CostSharing::exchange(LearnedBook& book, ucs::Time now) {
    next_ = ucs::deadline(now, interval_);
    interval_ = std::min(2 * interval_, kLongest);
    if (path_.empty()) return;
    constexpr int64_t kFresh = 100'000'000;
    const int64_t written = written_at(path_);
    // A negative age: the clock was set back since.
    const int64_t age = calendar() - written;
    const bool is_fresh = written != 0 && age >= 0 && age < kFresh;
    const FolderLock lock(is_fresh ? "" : path_);
    if (!lock.is_ours() && written == read_) return;
    KeptCosts kept;
    if (!load_costs(path_, owner_, Origin::kKept, &kept).empty()) kept = {kept_costs().model, {}};
    read_ = written;
    book.restore(kept.learned);
    if (!lock.is_ours()) return;
    const std::vector<LearnedFigure> news = book.take_news();
    if (news.empty()) return;
    kept.learned = merge(std::move(kept.learned), news);
    if (const std::string error = save_costs(path_, owner_, kept); !error.empty())
        ucs::log_debug("costs are not kept: {}: {}", path_, error);
    read_ = written_at(path_);
}

}  // namespace ucp::select
