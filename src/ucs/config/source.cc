// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/config/source.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "ucs/config/values.h"
#include "ucs/runtime/runtime.h"

namespace ucs::config {

namespace {

constexpr std::string_view kUcx = "UCX_";

}  // namespace

std::string_view without_ucx(std::string_view name) {
    return name.starts_with(kUcx) ? name.substr(kUcx.size()) : name;
}

ucs_status_t Source::read(std::string_view prefix, std::string_view file, Source& source,
                          std::string& error) {
    source.settings_.clear();
    if (!file.empty()) {
        const ucs_status_t status = source.take_file(file, error);
        if (status != UCS_OK) return status;
    }
    source.take(kUcx);
    if (!prefix.empty()) source.take(fmt::format("{}_{}", prefix, kUcx));
    return UCS_OK;
}

Source Source::from_environment() {
    Source source;
    source.take(kUcx);
    return source;
}

void Source::take(std::string_view environment_prefix) {
    const Environment& environment = *runtime().environment;
    for (const std::string& name : environment.names(environment_prefix)) {
        if (name.size() == environment_prefix.size()) continue;
        if (std::optional<std::string> value = environment.get(name)) {
            settings_.insert_or_assign(name.substr(environment_prefix.size()),
                                       Setting{std::move(*value), Origin::kEnvironment, name});
        }
    }
}

ucs_status_t Source::take_file(std::string_view file, std::string& error) {
    const std::string path(file);
    errno = 0;
    std::ifstream stream(path);
    if (!stream) {
        if (errno == ENOENT) return UCS_OK;
        error = fmt::format("{}: {}", path, std::strerror(errno));
        return UCS_ERR_IO_ERROR;
    }
    std::string raw;
    for (unsigned number = 1; std::getline(stream, raw); ++number) {
        const std::string_view line = internal::trim(raw);
        if (line.empty() || line.starts_with('#') || line.starts_with('[')) continue;
        const size_t equals = line.find('=');
        const std::string_view name = internal::trim(line.substr(0, equals));
        if (equals == line.npos || name.size() <= kUcx.size() || !name.starts_with(kUcx)) {
            error = fmt::format("{}:{}: expected UCX_NAME = value, found '{}'", path, number, line);
            return UCS_ERR_INVALID_PARAM;
        }
        settings_.insert_or_assign(
            std::string(without_ucx(name)),
            Setting{std::string(internal::trim(line.substr(equals + 1))), Origin::kFile,
                    fmt::format("{} ({}:{})", name, path, number)});
    }
    if (stream.bad()) {
        error = fmt::format("{}: {}", path, std::strerror(errno));
        return UCS_ERR_IO_ERROR;
    }
    return UCS_OK;
}

void Source::set(std::string_view bare_name, std::string_view value) {
    settings_.insert_or_assign(std::string(bare_name), Setting{std::string(value), Origin::kProgram,
                                                               fmt::format("UCX_{}", bare_name)});
}

const Source::Setting* Source::find(std::string_view name) const {
    const auto found = settings_.find(name);
    return found == settings_.end() ? nullptr : &found->second;
}

}  // namespace ucs::config
