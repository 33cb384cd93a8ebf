// SPDX-License-Identifier: BSD-3-Clause
#include "tools/commands.h"

#include <fmt/format.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <ucp/api/ucpx.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "tools/common/paths.h"
#include "tools/common/process.h"
#include "tools/common/program_output.h"
#include "tools/program/worker.h"
#include "tools/report/json.h"
#include "ucs/sys/descriptor.h"

namespace tools {
namespace {

// Columns are two or more spaces apart; no cell is empty but at the end of a line.
std::vector<std::string> cells_of(std::string_view line) {
    std::vector<std::string> cells;
    while (!line.empty()) {
        const size_t end = std::min(line.find("  "), line.size());
        cells.emplace_back(line.substr(0, end));
        line.remove_prefix(std::min(line.find_first_not_of(' ', end), line.size()));
    }
    return cells;
}

std::string key_of(std::string_view column) {
    std::string key;
    bool is_apart = false;
    for (char c : column) {
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
        const bool is_word = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if (is_word && is_apart && !key.empty()) key += '_';
        is_apart = !is_word;
        if (is_word) key += c;
    }
    return key;
}

Json value_of(const std::string& cell) {
    uint64_t number = 0;
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), number);
    if (error == std::errc() && end == cell.data() + cell.size()) return number;
    return cell == "-" ? Json() : Json(cell);
}

bool is_head(std::string_view line) {
    return line.starts_with("transport  ") || line.starts_with("role  ") ||
           line.starts_with("operation  ");
}

// The text of ucpx_worker_explain() as a document: each table with its title, its rows as objects
// by the columns' names ("sum [ns]" is "sum_ns"), cells that are numbers as such; what stands
// outside of tables as notes.
Json explanation_json(std::string_view text) {
    Json tables = Json::array(), notes = Json::array();
    std::vector<std::string> columns;
    std::string title;
    while (!text.empty()) {
        std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(line.size() + 1, text.size()));
        if (line.starts_with('#')) line.remove_prefix(1);
        line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
        if (line.empty()) {
            columns.clear();
        } else if (is_head(line)) {
            columns = cells_of(line);
            tables.push_back({{"title", std::exchange(title, {})}, {"rows", Json::array()}});
        } else if (const auto cells = cells_of(line); !columns.empty() && cells.size() > 1) {
            Json row = Json::object();
            for (size_t i = 0; i < columns.size(); ++i)
                row[key_of(columns[i])] = i < cells.size() ? value_of(cells[i]) : Json();
            tables.back()["rows"].push_back(std::move(row));
        } else {
            // A line by itself is the title of the table that follows, or a note.
            if (!title.empty()) notes.push_back(title);
            title = line;
        }
    }
    if (!title.empty()) notes.push_back(title);
    return {{"tables", std::move(tables)}, {"notes", std::move(notes)}};
}

std::string read_all(int file) {
    std::string bytes;
    char buffer[4096];
    for (;;) {
        const ssize_t count = read(file, buffer, sizeof(buffer));
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return bytes;
        bytes.append(buffer, static_cast<size_t>(count));
    }
}

// The peer: tells its address, then waits until the other process wants no more of it.
int run_peer(const std::vector<std::string>& settings, ucs::Descriptor tell, int stop) {
    for (const std::string& setting : settings) {
        const size_t equals = setting.find('=');
        setenv(setting.substr(0, equals).c_str(), setting.substr(equals + 1).c_str(), 1);
    }
    try {
        const Context context(1);
        const Worker worker(context.handle());
        const std::string address = worker.address();
        const bool is_told = write(tell.get(), address.data(), address.size()) ==
                             static_cast<ssize_t>(address.size());
        tell.reset();
        read_all(stop);
        return is_told ? 0 : 1;
    } catch (const std::exception& error) {
        fmt::print(stderr, "swiftlane: the peer: {}\n", error.what());
        return 1;
    }
}

// A worker in a process of its own, as another rank would be. It lives until this object goes.
class PeerProcess {
  public:
    // Forks: call it before this process has a context. `settings` are NAME=VALUE pairs for the
    // peer's environment. Throws std::system_error, or std::runtime_error if it has no worker.
    explicit PeerProcess(const std::vector<std::string>& settings) {
        auto [heard, told] = open_pipe();
        auto [stopped, stop] = open_pipe();
        process_ = fork();
        if (process_ < 0) throw std::system_error(errno, std::generic_category(), "fork");
        if (process_ == 0) {
            stop.reset();
            std::_Exit(run_peer(settings, std::move(told), stopped.get()));
        }
        told.reset();
        stop_ = std::move(stop);
        address_ = read_all(heard.get());
        if (!address_.empty()) return;
        end();
        throw std::runtime_error("the peer has no worker");
    }
    ~PeerProcess() { end(); }
    PeerProcess(PeerProcess&&) = delete;

    const std::string& address() const { return address_; }

  private:
    void end() {
        stop_.reset();
        waitpid(process_, nullptr, 0);
    }
    static std::pair<ucs::Descriptor, ucs::Descriptor> open_pipe() {
        int ends[2];
        if (pipe(ends) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
        return {ucs::Descriptor(ends[0]), ucs::Descriptor(ends[1])};
    }

    pid_t process_ = -1;
    ucs::Descriptor stop_;  // the peer ends when this is closed
    std::string address_;
};

struct ExplainCommand {
    bool self = false;
    bool other_host = false;
    bool soft = false;
    std::string to;
    std::string save;
    std::string json;
    std::vector<std::string> peer_settings;
    unsigned endpoints = 1;
};

std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error(path + " cannot be read");
    return {std::istreambuf_iterator<char>(file), {}};
}

void run_explain(const ExplainCommand& command) {
    if (command.soft) restart(library_environment(true, ""));
    JsonFile file(command.json);
    std::optional<PeerProcess> peer;
    if (!command.self && command.to.empty() && command.save.empty()) {
        peer.emplace(command.peer_settings);
    }
    const Context context(command.endpoints);
    const Worker worker(context.handle());
    if (!command.save.empty()) {
        write_file(command.save, worker.address());
        return;
    }
    const std::string address = command.self          ? worker.address()
                                : !command.to.empty() ? read_file(command.to)
                                                      : peer->address();
    const unsigned flags = command.other_host ? unsigned{UCPX_EXPLAIN_FLAG_OTHER_HOST} : 0;
    ucs_status_t status = UCS_OK;
    const std::string text = printed([&](std::FILE* stream) {
        const auto* bytes = reinterpret_cast<const ucp_address_t*>(address.data());
        status = ucpx_worker_explain(worker.handle(), bytes, address.size(), flags, stream);
    });
    if (status != UCS_OK) {
        throw std::runtime_error(fmt::format("the address: {}", ucs_status_string(status)));
    }
    if (file.is_wanted()) {
        file.write(explanation_json(text));
    } else {
        fmt::print("{}", text);
    }
}

}  // namespace

void add_explain(CLI::App& app) {
    auto command = std::make_shared<ExplainCommand>();
    CLI::App* explain = app.add_subcommand(
        "explain", "Which transports join two workers, what each costs, and why it won or lost");
    auto* self = explain->add_flag("--self", command->self, "A worker to itself");
    auto* to = explain->add_option("--to,--peer", command->to,
                                   "A worker whose address is in this file (see --save)");
    auto* json = explain->add_option("--json", command->json,
                                     "The same in JSON, to this file; -: standard output");
    auto* save = explain->add_option("--save", command->save,
                                     "Write an address to this file, for --to elsewhere");
    explain->add_flag("--other-host", command->other_host, "As if the peer were on another host");
    auto* set = explain
                    ->add_option("--peer-set", command->peer_settings,
                                 "A variable of the peer's environment, as NAME=VALUE")
                    ->check([](const std::string& text) {
                        return text.find('=') == text.npos || text[0] == '='
                                   ? std::string("expected NAME=VALUE")
                                   : std::string();
                    });
    explain->add_option("--endpoints", command->endpoints,
                        "Endpoints to expect, for costs that grow with them");
    explain->add_flag("--soft", command->soft, "On the emulated adapter");
    save->excludes(json);
    self->excludes(to)->excludes(save)->excludes(set);
    to->excludes(save)->excludes(set);
    explain->callback([command] { run_explain(*command); });
}

}  // namespace tools
