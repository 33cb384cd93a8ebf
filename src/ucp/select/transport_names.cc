// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/select/transport_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "ucs/config/spelling.h"

namespace ucp::select {
namespace {

using Names = std::array<std::string_view, 5>;

/** A word of UCX_TLS that stands for several transports. */
struct Alias {
    std::string_view word;
    Names transports;
    Names auxiliary = {};
};

constexpr Names kShared = {"sm_fifo", "sm_ring"};
constexpr Names kBootstrap = {"ud_verbs", "dc_mlx5"};

// UCX's words, the names of its own shared-memory transports among them: programs and job scripts
// use them.
constexpr Alias kAliases[] = {
    {"sm", kShared},
    {"shm", kShared},
    {"mm", kShared},
    {"posix", kShared},
    {"sysv", kShared},
    {"xpmem", kShared},
    {"cma", kShared},
    {"knem", kShared},
    {"ib", {"rc_verbs", "ud_verbs", "rc_mlx5", "dc_mlx5"}},
    {"ud", {"ud_verbs"}},
    {"ud_v", {"ud_verbs"}},
    {"rc", {"rc_mlx5", "rc_verbs"}, kBootstrap},
    {"rc_x", {"rc_mlx5"}, kBootstrap},
    {"rc_v", {"rc_verbs"}, kBootstrap},
    {"rc_mlx5", {"rc_mlx5"}, kBootstrap},
    {"rc_verbs", {"rc_verbs"}, kBootstrap},
    {"dc", {"dc_mlx5"}},
    {"dc_x", {"dc_mlx5"}},
    {"cuda", {"cuda_copy", "cuda_ipc", "gdr_copy"}},
    {"loopback", {"self"}},
};

constexpr std::string_view kTransports[] = {
    "self",     "sm_fifo",  "sm_ring",  "tcp",       "dc_mlx5",  "rc_mlx5",
    "rc_verbs", "ud_verbs", "cuda_ipc", "cuda_copy", "gdr_copy",
};

/** What UCX has and this library has not, and what does the work here. */
struct Foreign {
    std::string_view word;
    std::string_view advice;
};
constexpr Foreign kForeign[] = {
    {"ud_x", "ud_verbs serves mlx5 adapters as well"},
    {"ud_mlx5", "ud_verbs serves mlx5 adapters as well"},
    {"rdmacm", "addresses are exchanged over TCP"},
    {"sockcm", "addresses are exchanged over TCP"},
    {"ugni", "Cray Gemini and Aries adapters are not supported"},
    {"rocm", "AMD GPUs are not supported"},
    {"rocm_copy", "AMD GPUs are not supported"},
    {"rocm_ipc", "AMD GPUs are not supported"},
    {"ze", "Intel GPUs are not supported"},
    {"ze_copy", "Intel GPUs are not supported"},
};

bool has(const Names& names, std::string_view name) {
    return std::ranges::find(names, name) != names.end();
}

const Alias* find_alias(std::string_view word) {
    const auto* found = std::ranges::find(kAliases, word, &Alias::word);
    return found == std::end(kAliases) ? nullptr : found;
}

/** A word as a plain name, if it is one by its backslash. */
bool is_exact(std::string_view& word) {
    const bool exact = word.starts_with('\\');
    if (exact) word.remove_prefix(1);
    return exact;
}

Admission meaning(std::string_view word, std::string_view transport) {
    if (is_exact(word)) return word == transport ? Admission::kYes : Admission::kNo;
    if (word == transport || word == "all") return Admission::kYes;
    const Alias* alias = find_alias(word);
    if (alias == nullptr) return Admission::kNo;
    if (has(alias->transports, transport)) return Admission::kYes;
    return has(alias->auxiliary, transport) ? Admission::kAuxiliary : Admission::kNo;
}

/** "; did you mean X?" for the word nearest to a misspelt one; nothing if none is near. */
template <typename Words>
std::string suggestion(std::string_view word, const Words& words) {
    std::string_view best;
    size_t best_distance = ucs::config::edit_limit(word) + 1;
    for (const std::string_view known : words) {
        const size_t distance = ucs::config::edit_distance(word, known);
        if (distance < best_distance || (distance == best_distance && known < best)) {
            best = known;
            best_distance = distance;
        }
    }
    return best.empty() ? std::string() : fmt::format("; did you mean {}?", best);
}

template <typename Words>
std::string join(const Words& words) {
    std::vector<std::string_view> distinct(std::begin(words), std::end(words));
    std::ranges::sort(distinct);
    distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
    return fmt::format("{}", fmt::join(distinct, ", "));
}

}  // namespace

Admission admission(const ucs::config::AllowList& list, std::string_view transport) {
    Admission best = Admission::kNo;
    for (const std::string& word : list.names) {
        const Admission said = meaning(word, transport);
        // What a negated list names goes, what it would bring along stays.
        if (list.negated && said == Admission::kAuxiliary) continue;
        best = std::max(best, said);
    }
    if (!list.negated) return best;
    return best == Admission::kNo ? Admission::kYes : Admission::kNo;
}

std::vector<std::string> objections(const ucs::config::AllowList& list,
                                    std::span<const std::string_view> found) {
    std::vector<std::string> result;
    for (const std::string& text : list.names) {
        std::string_view word = text;
        const bool exact = is_exact(word);
        if (std::ranges::find(found, word) != found.end() || (!exact && word == "all")) continue;
        const Alias* alias = exact ? nullptr : find_alias(word);
        const bool is_transport = std::ranges::find(kTransports, word) != std::end(kTransports);
        if (alias != nullptr || is_transport) {
            const bool serves = alias != nullptr && std::ranges::any_of(found, [&](auto name) {
                                    return has(alias->transports, name);
                                });
            if (serves || list.negated) continue;
            result.push_back(
                fmt::format("{} is not available here; there are {}", word, join(found)));
            continue;
        }
        const auto* foreign = std::ranges::find(kForeign, word, &Foreign::word);
        if (foreign != std::end(kForeign)) {
            if (list.negated) continue;
            result.push_back(fmt::format("Swiftlane has no {}: {}", word, foreign->advice));
            continue;
        }
        std::vector<std::string_view> known(found.begin(), found.end());
        known.insert(known.end(), std::begin(kTransports), std::end(kTransports));
        for (const Alias& each : kAliases) known.push_back(each.word);
        known.push_back("all");
        result.push_back(fmt::format("there is no transport {}{}", word, suggestion(word, known)));
    }
    return result;
}

bool means_device(std::string_view word, std::string_view device) {
    if (word == "all" || word == device) return true;
    // UCX numbers the memory of self and sm: memory0.
    if (device == "memory") return word == "memory0";
    const size_t colon = device.rfind(':');
    return colon != device.npos && word == device.substr(0, colon);
}

bool allows_device(const ucs::config::AllowList& list, std::string_view device) {
    const bool named = std::ranges::any_of(
        list.names, [&](const std::string& word) { return means_device(word, device); });
    return named != list.negated;
}

std::vector<std::string> device_objections(std::string_view variable,
                                           const ucs::config::AllowList& list,
                                           std::span<const std::string_view> found) {
    std::vector<std::string> result;
    if (list.negated || found.empty()) return result;
    for (const std::string& word : list.names) {
        const auto means = [&](std::string_view device) { return means_device(word, device); };
        if (std::ranges::any_of(found, means)) continue;
        result.push_back(fmt::format("{}: there is no device {}{} (there are {})", variable, word,
                                     suggestion(word, found), join(found)));
    }
    return result;
}

}  // namespace ucp::select
