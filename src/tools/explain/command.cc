// SPDX-License-Identifier: BSD-3-Clause
#include "tools/explain/command.h"

#include <fmt/format.h>
#include <ucp/api/ucpx.h>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tools/common/printed.h"
#include "tools/common/soft_adapter.h"
#include "tools/explain/document.h"
#include "tools/explain/peer.h"
#include "tools/program/worker.h"
#include "tools/report/json.h"

namespace tools {
namespace {

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

std::vector<std::string> arguments_of(const ExplainCommand& command) {
    std::vector<std::string> arguments{"explain", "--soft"};
    if (command.self) arguments.emplace_back("--self");
    if (command.other_host) arguments.emplace_back("--other-host");
    for (const std::string& setting : command.peer_settings) {
        arguments.insert(arguments.end(), {"--peer-set", setting});
    }
    if (!command.to.empty()) arguments.insert(arguments.end(), {"--to", command.to});
    if (!command.save.empty()) arguments.insert(arguments.end(), {"--save", command.save});
    if (!command.json.empty()) arguments.insert(arguments.end(), {"--json", command.json});
    arguments.insert(arguments.end(), {"--endpoints", std::to_string(command.endpoints)});
    return arguments;
}

void save(const std::string& path, const std::string& address) {
    std::ofstream file(path, std::ios::binary);
    file.write(address.data(), static_cast<std::streamsize>(address.size()));
    file.close();
    if (!file) throw std::runtime_error(path + " cannot be written");
}

void run_explain(const ExplainCommand& command) {
    if (command.soft) restart_with_soft_adapter(arguments_of(command));
    JsonFile file(command.json);
    std::optional<PeerProcess> peer;
    if (!command.self && command.to.empty() && command.save.empty()) {
        peer.emplace(command.peer_settings);
    }
    const Context context(command.endpoints);
    const Worker worker(context.handle());
    if (!command.save.empty()) {
        save(command.save, worker.address());
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
