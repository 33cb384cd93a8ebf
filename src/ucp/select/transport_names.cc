// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/select/transport_names.h"

#include <fmt/format.h>

#include <algorithm>

#include "ucs/config/spelling.h"
#include "uct/api/module.h"

namespace ucp::select {
namespace {

using Transports = std::vector<uct::TransportDeclaration>;

// What UCX has and this library has not, and what does the work here.
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

bool has(std::span<const std::string_view> words, std::string_view word) {
    return std::ranges::find(words, word) != words.end();
}

// A word that stands for several transports, or for one by another name.
bool is_alias(const Transports& known, std::string_view word) {
    return std::ranges::any_of(known, [&](const auto& each) { return has(each.aliases, word); });
}

bool has_name(const Transports& known, std::string_view word) {
    return std::ranges::find(known, word, &uct::TransportDeclaration::name) != known.end();
}

// A word as a plain name, if it is one by its backslash.
bool is_exact(std::string_view& word) {
    const bool exact = word.starts_with('\\');
    if (exact) word.remove_prefix(1);
    return exact;
}

Permission meaning(std::string_view word, const uct::TransportDeclaration& transport) {
    if (is_exact(word)) return word == transport.name ? Permission::kYes : Permission::kNo;
    if (word == transport.name || word == "all" || has(transport.aliases, word)) {
        return Permission::kYes;
    }
    return has(transport.auxiliary_for, word) ? Permission::kAuxiliary : Permission::kNo;
}

// "; did you mean X?" for the word nearest to a misspelt one; nothing if none is near.
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

Permission permission(const ucs::config::AllowList& list, std::string_view transport) {
    const Transports known = uct::known_transports();
    const auto declared = std::ranges::find(known, transport, &uct::TransportDeclaration::name);
    uct::TransportDeclaration unknown{};
    unknown.name = transport;
    Permission best = Permission::kNo;
    for (const std::string& word : list.names) {
        const Permission said = meaning(word, declared != known.end() ? *declared : unknown);
        // What a negated list names goes, what it would bring along stays.
        if (list.negated && said == Permission::kAuxiliary) continue;
        best = std::max(best, said);
    }
    if (!list.negated) return best;
    return best == Permission::kNo ? Permission::kYes : Permission::kNo;
}

std::vector<std::string> objections(const ucs::config::AllowList& list,
                                    std::span<const std::string_view> found) {
    const Transports known = uct::known_transports();
    std::vector<std::string> result;
    for (const std::string& text : list.names) {
        std::string_view word = text;
        const bool exact = is_exact(word);
        if (std::ranges::find(found, word) != found.end() || (!exact && word == "all")) continue;
        const bool alias = !exact && is_alias(known, word);
        if (alias || has_name(known, word)) {
            const bool serves =
                alias && std::ranges::any_of(known, [&](const uct::TransportDeclaration& each) {
                    return has(each.aliases, word) && has(found, each.name);
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
        std::vector<std::string_view> words(found.begin(), found.end());
        for (const uct::TransportDeclaration& each : known) {
            words.push_back(each.name);
            words.insert(words.end(), each.aliases.begin(), each.aliases.end());
        }
        words.push_back("all");
        result.push_back(fmt::format("there is no transport {}{}", word, suggestion(word, words)));
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
