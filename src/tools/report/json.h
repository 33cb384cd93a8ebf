// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "tools/program/options.h"
#include "tools/report/result.h"

namespace tools {

// Keys keep the order in which they were written, so that equal runs give equal bytes.
using Json = nlohmann::ordered_json;

Json to_json(const BenchOptions& options);
Json to_json(const LaneEntry& entry);
Json to_json(const LaneCounters& counters);
Json to_json(const RankMemory& memory);

// "rows" of all runs, "lanes" of the dynamic one (else the only or last one), and each run by its
// mode under "modes". docs/benchmarks.md describes the keys.
void add_runs(Json& document, std::span<const RunResult> runs);

// Where results go: opened before anything is measured, written when all is known. "-" is standard
// output, and what is printed for people goes to standard error from then on; an empty path:
// nowhere. Throws std::runtime_error if the file cannot be written.
class JsonFile {
  public:
    explicit JsonFile(const std::string& path);
    ~JsonFile();
    JsonFile(const JsonFile&) = delete;

    bool is_wanted() const { return descriptor_ >= 0; }
    void write(const Json& document);  // once

  private:
    [[noreturn]] void fail() const;

    const std::string path_;
    int descriptor_ = -1;
};

}  // namespace tools
