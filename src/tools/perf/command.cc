// SPDX-License-Identifier: BSD-3-Clause
#include "tools/commands.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "tools/bench/channel.h"
#include "tools/common/device_memory.h"
#include "tools/common/interrupt.h"
#include "tools/common/live_line.h"
#include "tools/common/soft_adapter.h"
#include "tools/common/units.h"
#include "tools/perf/run.h"
#include "tools/program/bench_options.h"

namespace tools {
namespace perf {
namespace {

constexpr uint16_t kDefaultPort = 13340;
constexpr const char* kSoftTransports = "self,dc_mlx5,rc_mlx5";

struct PerfCommand {
    Options options;
    std::vector<std::string> metrics{"latency", "bandwidth"};
    std::string device = "auto";
    std::string transports;
    std::string json;
    std::string prefix;
    std::string connect;
    unsigned queue_pairs = 0;
    unsigned rails = 0;
    bool pin = false;
    bool one_process = false;
};

struct HostPort {
    std::string host;
    uint16_t port;
};

// "HOST", "HOST:PORT", "[ADDRESS]:PORT", ":PORT".
HostPort parse_host(const std::string& text) {
    HostPort result{text, kDefaultPort};
    const size_t colon = text.rfind(':');
    const size_t bracket = text.rfind(']');
    if (colon != text.npos && (bracket == text.npos || colon > bracket)) {
        const char* end = text.data() + text.size();
        const auto [rest, error] = std::from_chars(text.data() + colon + 1, end, result.port);
        if (error != std::errc() || rest != end) {
            throw std::invalid_argument(fmt::format("'{}' is no HOST:PORT", text));
        }
        result.host = text.substr(0, colon);
    }
    if (result.host.starts_with('[') && result.host.ends_with(']')) {
        result.host = result.host.substr(1, result.host.size() - 2);
    }
    return result;
}

Environment environment_of(const PerfCommand& command) {
    const bool soft = command.device == "soft";
    std::string transports = command.transports;
    if (transports.empty() && soft) transports = kSoftTransports;
    Environment environment = library_environment(soft, transports);
    if (command.queue_pairs != 0) {
        environment.emplace_back("UCX_BULK_QPS", std::to_string(command.queue_pairs));
    }
    if (command.rails != 0) {
        environment.emplace_back("UCX_MAX_RNDV_RAILS", std::to_string(command.rails));
    }
    return environment;
}

// What comes before the table.
std::string title(const PerfCommand& command) {
    const Options& options = command.options;
    std::string text =
        fmt::format("# swiftlane perf {}: window {}, {} thread{}", to_string(options.operation),
                    options.window, options.threads, options.threads == 1 ? "" : "s");
    if (options.operation == Operation::kBatch) {
        text += fmt::format(", {} pieces", options.pieces);
        if (options.batch_gets) text += ", gets";
        if (options.notify) text += ", notified";
    }
    if (options.memory != "host" || options.target_memory != "host")
        text += fmt::format(", memory {} to {}", options.memory, options.target_memory);
    if (options.verify) text += ", verified";
    return text;
}

void write_results(JsonFile& json, const Options& options, bool is_emulated,
                   const std::vector<Row>& rows) {
    Json document{{"benchmark", to_string(options.operation)},
                  {"modelled", false},
                  {"emulated", is_emulated},
                  {"interrupted", Interrupt::is_requested()},
                  {"version", SWIFTLANE_VERSION},
                  {"options", to_json(options)},
                  {"rows", Json::array()}};
    for (const Row& row : rows) document["rows"].push_back(to_json(options, row));
    json.write(document);
}

void initiate(Channel& channel, const PerfCommand& command) {
    const Options& options = command.options;
    bool is_emulated = false;
    JsonFile json(command.json);
    const Interrupt interrupt;
    const LiveLine line;
    Observer observer;
    fmt::print("{}\n", title(command));
    observer.on_lane = [&](const std::string& lane) {
        line.clear();
        is_emulated = command.device == "soft" && is_over_adapter(lane);
        fmt::print("{}# lanes: {}\n{}", is_emulated ? kEmulatedNote : "", lane,
                   table_header(options));
    };
    observer.on_row = [&](const Row& row) {
        line.clear();
        fmt::print("{}", table_line(options, row));
        std::fflush(stdout);
    };
    if (line.enabled()) {
        observer.on_progress = [&](const std::string& text) { line.show(text); };
    }
    const auto write = [&](const std::vector<Row>& rows) {
        line.clear();
        write_results(json, options, is_emulated, rows);
    };
    observer.on_interrupt = [&](const std::vector<Row>& rows) {
        write(rows);
        std::fflush(nullptr);
        _exit(kInterrupted);
    };
    write(run_initiator(channel, options, observer));
}

// Runs one of the two processes. What the library holds refers to a stack that is gone after an
// exception: no clean-up then.
template <typename Function>
void run_or_die(Function function) {
    try {
        function();
    } catch (const std::exception& error) {
        std::fflush(stdout);
        fmt::print(stderr, "swiftlane: {}\n", error.what());
        std::fflush(nullptr);
        _exit(1);
    }
}

// The target is a thread, with a context of the library's of its own.
void run_both(const PerfCommand& command) {
    restart(environment_of(command));
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        throw std::system_error(errno, std::generic_category(), "socketpair");
    std::thread target([end = ends[1]] {
        run_or_die([&] {
            Channel channel(end);
            run_target(channel);
        });
    });
    run_or_die([&] {
        Channel channel(ends[0]);
        initiate(channel, command);
    });
    target.join();
}

void run_perf(PerfCommand& command) {
    const bool is_on_device =
        command.options.memory != "host" || command.options.target_memory != "host";
    // Between GPUs the emulated adapter is in the way of what is to be measured.
    command.device = chosen_device(command.device, !command.connect.empty() || is_on_device);
    if (const auto place = JobPlace::find(1)) {
        run_or_die([&] {
            Channel channel(place->inherited[0]);
            place->rank == 0 ? initiate(channel, command) : run_target(channel);
        });
        return;
    }
    if (command.one_process) return run_both(command);
    if (command.connect.empty()) {
        // Before there are processes, each of which would say that the other has gone.
        if (!command.json.empty() && command.json != "-") const JsonFile probe(command.json);
        launch({environment_of(command), command.prefix, command.pin});
        return;
    }
    restart(environment_of(command));
    run_or_die([&] {
        const auto [host, port] = parse_host(command.connect);
        Channel channel = Channel::connect(host, port, [&] {
            fmt::print(stderr, "swiftlane: nobody listens at {} yet: waiting for 10 s\n",
                       command.connect);
        });
        initiate(channel, command);
    });
}

void run_copies(const PerfCommand& command) {
    run_or_die([&] {
        JsonFile json(command.json);
        const Interrupt interrupt;
        fmt::print("{}\n{}", title(command), table_header(command.options));
        const auto on_row = [&](const Row& row) {
            fmt::print("{}", table_line(command.options, row));
            std::fflush(stdout);
        };
        write_results(json, command.options, false, measure_driver_copies(command.options, on_row));
        if (Interrupt::is_requested()) std::exit(kInterrupted);
    });
}

void run_server(PerfCommand& command) {
    command.device = chosen_device(command.device, true);
    restart(environment_of(command));
    run_or_die([&] {
        const auto [host, port] = parse_host(command.connect);
        Channel channel = Channel::accept(host, port, [](uint16_t bound) {
            fmt::print("# waiting for `swiftlane perf` at port {}\n", bound);
            std::fflush(stdout);
        });
        run_target(channel);
    });
}

// --- options

void add_library_options(CLI::App& app, PerfCommand& command) {
    add_device_options(app, command.device);
    app.add_option("--tls", command.transports,
                   fmt::format("Transports, unless UCX_TLS is set (soft: {})", kSoftTransports));
    app.add_option("--qps", command.queue_pairs,
                   "Queue pairs for bulk of a promoted endpoint: sets UCX_BULK_QPS, unless 0")
        ->check(CLI::Range(0, 8));
    app.add_option("--rails", command.rails,
                   "Rails of an endpoint: sets UCX_MAX_RNDV_RAILS, unless 0")
        ->check(CLI::Range(0, 64));
}

void add_size(CLI::App& app, const std::string& name, uint64_t& bytes, const std::string& help) {
    add_parsed(app, name, help, [&bytes](const std::string& text) { bytes = parse_size(text); })
        ->type_name("SIZE")
        ->default_str(fmt::format("{}M", bytes >> 20));
}

void add_measure_options(CLI::App& app, const std::shared_ptr<PerfCommand>& command) {
    Options& options = command->options;
    add_sizes(app, options.size_min, options.size_max,
              "Sizes of messages or pieces, each the double of the one before; units K, M, G");
    app.add_option("--window", options.window, "Operations under way at a time (bandwidth)")
        ->check(CLI::Range(1, 1 << 20));
    add_time(app, "--time", options.time, "Time of each measurement");
    app.add_option("--iterations", options.iterations,
                   "Operations of each measurement; 0: as many as fit --time");
    app.add_option("--warmup", options.warmup, "Operations before each measurement");
    app.add_option("--measure", command->metrics, "latency, bandwidth or both")
        ->delimiter(',')
        ->check(CLI::IsMember({"latency", "bandwidth"}));
    add_size(app, "--buffer", options.buffer,
             "Memory of each thread for messages; there is room for one message at least");
    const auto read_memory = [&options](const std::string& text) {
        const size_t comma = text.find(',');
        options.memory = text.substr(0, comma);
        options.target_memory = comma == text.npos ? options.memory : text.substr(comma + 1);
        (void)MemoryPlace::parse(options.memory);
        (void)MemoryPlace::parse(options.target_memory);
    };
    add_parsed(
        app, "--memory",
        "Where messages lie: host, pinned (host memory that CUDA knows), cuda or cuda:DEVICE, "
        "vmm or vmm:DEVICE (virtual memory made to be shared), "
        "for both ends or, after a comma, for the target. cuda: the first device and, at the "
        "target, the second one",
        read_memory)
        ->type_name("PLACE[,PLACE]")
        ->default_str(options.memory);
    app.add_option("--json", command->json, "Write the results there")->type_name("FILE");
    app.callback([command] {
        Options& options = command->options;
        if (options.iterations == 0 && options.time == 0) {
            throw CLI::ValidationError("--time", "must be more than 0, or give --iterations");
        }
        const auto wants = [&](const char* metric) {
            return std::ranges::find(command->metrics, metric) != command->metrics.end();
        };
        options.latency = wants("latency");
        options.bandwidth = wants("bandwidth");
        options.operation == Operation::kCopy ? run_copies(*command) : run_perf(*command);
    });
}

void add_contents_options(CLI::App& app, Options& options) {
    app.add_option("--threads", options.threads,
                   "Threads at each end, each with a worker and an endpoint of its own")
        ->check(CLI::Range(1, 256));
    app.add_option("--seed", options.seed, "Of the contents");
    app.add_flag("--verify", options.verify,
                 "Check every byte. Windows of put, get and batch are checked one by one, and only "
                 "the transfers are timed; with tag and am the checks are in the figures");
    app.add_flag("--sleep", options.sleep, "Sleep while nothing happens, instead of polling");
}

void add_operation(CLI::App& perf, Operation operation, const std::string& help) {
    auto command = std::make_shared<PerfCommand>();
    command->options.operation = operation;
    CLI::App& app = *perf.add_subcommand(to_string(operation), help);
    if (operation == Operation::kBatch) {
        command->options.size_min = 4096;
        command->options.size_max = 64 << 10;
        command->options.window = 1;
        app.add_option("--pieces", command->options.pieces, "Pieces of a batch")
            ->check(CLI::Range(1, 1 << 24));
        app.add_flag("--get", command->options.batch_gets, "Read instead of write");
        app.add_flag("--notify", command->options.notify,
                     "The target is notified of each batch, and the last notification ends the "
                     "measurement");
    }
    add_measure_options(app, command);
    add_contents_options(app, command->options);
    add_library_options(app, *command);
    auto* connect = app.add_option("--connect", command->connect,
                                   "Where `swiftlane perf server` waits, instead of a process of "
                                   "this machine")
                        ->type_name("HOST[:PORT]");
    auto* prefix =
        app.add_option("--prefix", command->prefix,
                       "Words before the command of each process, %r is its number (0 initiates): "
                       "\"ip netns exec node%r\"")
            ->type_name("COMMAND")
            ->excludes(connect);
    auto* pin =
        app.add_flag("--pin", command->pin, "Bind each process to a processor")->excludes(connect);
    app.add_flag("--one-process", command->one_process,
                 "Both ends in one process, the target a thread; both figures of processors are "
                 "the whole process's then")
        ->excludes(connect)
        ->excludes(prefix)
        ->excludes(pin);
}

void add_copies(CLI::App& perf) {
    auto command = std::make_shared<PerfCommand>();
    command->options.operation = Operation::kCopy;
    command->options.memory = command->options.target_memory = "cuda";
    add_measure_options(*perf.add_subcommand("copy",
                                             "Copies by the CUDA driver alone, in one "
                                             "process: what the others compare with"),
                        command);
}

void add_server(CLI::App& perf) {
    auto command = std::make_shared<PerfCommand>();
    CLI::App& app =
        *perf.add_subcommand("server", "Wait for one `swiftlane perf ... --connect`, and serve it");
    app.add_option("--listen", command->connect,
                   fmt::format("Address and port; default: port {} of all", kDefaultPort))
        ->type_name("[HOST]:PORT");
    add_library_options(app, *command);
    app.callback([command] { run_server(*command); });
}

}  // namespace
}  // namespace perf

void add_perf(CLI::App& app) {
    using perf::Operation;
    CLI::App& perf = *app.add_subcommand(
        "perf", "Latency, bandwidth and message rate between two processes or hosts");
    perf.require_subcommand(1);
    perf.option_defaults()->always_capture_default();
    perf::add_operation(perf, Operation::kPut, "One-sided writes");
    perf::add_operation(perf, Operation::kGet, "One-sided reads");
    perf::add_operation(perf, Operation::kTag, "Tagged messages");
    perf::add_operation(perf, Operation::kAm, "Active messages");
    perf::add_operation(perf, Operation::kBatch, "Many pieces as one request");
    perf::add_copies(perf);
    perf::add_server(perf);
}

}  // namespace tools
