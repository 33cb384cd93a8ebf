// SPDX-License-Identifier: BSD-3-Clause
#include "system/soak.h"

#include <fmt/format.h>

#include <algorithm>

namespace ucp::test {
namespace {

// Lanes beside the cap.
constexpr unsigned kMostKept = 1;

uct::mock::Config mock_config(uint64_t seed, ucs::Random& random) {
    uct::mock::Config config;
    config.seed = seed;
    config.max_delay = 1 + random.below(40);
    config.stall_probability = random.below(3) == 0 ? 0.02 : 0;
    config.no_resource_probability = random.below(2) == 0 ? 0 : random.below(2) == 0 ? 0.2 : 0.7;
    config.sudden_room_probability = random.below(2) == 0 ? 0 : 0.5;
    config.transmit_depth = 2 + static_cast<unsigned>(random.below(32));
    if (random.below(3) == 0) config.capabilities &= ~uint32_t{uct::kGetZcopy};
    if (random.below(4) == 0) config.capabilities &= ~uint32_t{uct::kAmZcopy};
    return config;
}

// Adapters of every kind: from ones that are never full to ones that always are.
SoftWire::Variables adapter_settings(ucs::Random& random) {
    const char* const policies[] = {"dcs", "dcs_quota", "rand"};
    const auto number = [&](uint64_t least, uint64_t range) {
        return std::to_string(least + random.below(range));
    };
    SoftWire::Variables settings = {
        // Waits must be short beside a run, which takes some milliseconds.
        {"RC_TIMEOUT", "16us"},
        {"RC_RNR_TIMEOUT", "20us"},
        {"RC_FC_HARD_REQ_TIMEOUT", "1ms"},
        {"DC_MLX5_TX_POLICY", policies[random.below(3)]},
        {"RC_RX_QUEUE_LEN", number(64, 512)},
    };
    if (random.below(2) == 0) settings.push_back({"DC_MLX5_NUM_DCI", number(1, 4)});
    if (random.below(2) == 0) settings.push_back({"RC_TX_QUEUE_LEN", number(4, 60)});
    if (random.below(2) == 0) settings.push_back({"RC_TX_CQ_LEN", number(16, 100)});
    if (random.below(2) == 0) settings.push_back({"RC_TX_CQ_MODERATION", number(1, 64)});
    if (random.below(2) == 0) settings.push_back({"RC_FC_WND_SIZE", number(4, 60)});
    if (random.below(3) == 0) settings.push_back({"RC_MAX_RD_ATOMIC", number(1, 4)});
    if (random.below(4) == 0) settings.push_back({"RC_SEG_SIZE", "2112"});
    return settings;
}

// Datagrams that are lost, doubled and overtaken, up to one in ten.
// Emulated reads and writes wait for each part, so there is less and smaller traffic.
void add_datagrams(Soak::Options& options, ucs::Random& random) {
    const double rates[] = {0, 0.01, 0.03, 0.1};
    options.traffic.operations /= 2;
    options.traffic.max_length = std::min(options.traffic.max_length, size_t{1} << 15);
    options.faults.ud_drop = rates[random.below(4)];
    options.faults.ud_duplicate = rates[random.below(4)];
    options.faults.ud_delay = rates[random.below(4)];
    options.faults.ud_delay_ns = 20000;
    const auto number = [&](uint64_t least, uint64_t range) {
        return std::to_string(least + random.below(range));
    };
    options.variables.push_back({"UD_TIMER_TICK", "30us"});
    if (random.below(2) == 0) options.variables.push_back({"UD_TX_QUEUE_LEN", number(4, 60)});
    if (random.below(2) == 0) options.variables.push_back({"UD_MAX_WINDOW", number(4, 250)});
    if (random.below(2) == 0) options.variables.push_back({"UD_RX_QUEUE_LEN", number(32, 200)});
    if (random.below(3) == 0) options.variables.push_back({"UD_PATH_MTU", "1024"});
}

}  // namespace

Soak::Options Soak::options_for(Fabric fabric, uint64_t seed) {
    ucs::Random random(seed * 2 + (fabric == Fabric::kMock ? 0 : 1));
    Options options;
    options.fabric = fabric;
    // Most seeds send much that is small; some send up to 4 MiB.
    const bool is_large = seed % 16 == 0;
    options.traffic.seed = seed;
    options.traffic.workers = is_large ? 2 : 2 + random.below(3);
    options.traffic.operations = 600 / static_cast<unsigned>(options.traffic.workers);
    options.traffic.max_length = size_t{1} << (is_large ? 22 : 4 + random.below(13));
    if (is_large) {
        options.traffic.slots = 2;
        options.traffic.slot_bytes = size_t{4} << 20;
    }
    options.cap = 1 + static_cast<unsigned>(random.below(2));
    options.bulk_queue_pairs = (seed + seed / 16) % 2 == 0;  // half of the large ones too
    options.switch_every = 5 + static_cast<unsigned>(random.below(30));
    options.scheme = static_cast<RndvScheme>(random.below(4));
    options.early_zcopy = random.below(2) == 0;
    options.early_rndv = random.below(2) == 0;
    options.keep = seed % 3 != 0;
    options.window = 1 + static_cast<unsigned>(random.below(16));
    options.mock = mock_config(seed, random);
    options.verbs_lanes = random.below(4) == 0;
    options.variables = adapter_settings(random);
    if (random.below(2) == 0) {
        options.model = softhca::Model();
        options.tick = ucs::Duration(200 + random.below(2000));
    }
    options.faults.seed = seed;
    if (random.below(3) == 0) options.faults.drop = 0.01;
    if (random.below(3) == 0) options.faults.delay = 0.1;
    options.faults.delay_ns = 5000;
    if (fabric == Fabric::kDatagram) add_datagrams(options, random);
    return options;
}

Soak::Result& Soak::Result::operator+=(const Result& other) {
    errors.insert(errors.end(), other.errors.begin(), other.errors.end());
    traffic.messages += other.traffic.messages;
    traffic.operations += other.traffic.operations;
    traffic.bytes += other.traffic.bytes;
    promotions += other.promotions;
    demotions += other.demotions;
    replays += other.replays;
    held += other.held;
    reused += other.reused;
    steps += other.steps;
    return *this;
}

Soak::Soak(const Options& options) : options_(options), random_(ucs::mix64(options.traffic.seed)) {
    const size_t workers = options.traffic.workers;
    Cluster::Options cluster;
    cluster.fabric = options.mock;
    if (options.fabric != Fabric::kMock) {
        wire_ = std::make_unique<SoftWire>(static_cast<unsigned>(workers), options.model,
                                           options.faults, options.variables);
        cluster.wire = wire_.get();
        cluster.tick = options.tick;
        cluster.config.transports = {false,
                                     {options.fabric == Fabric::kVirtual ? "dc_mlx5" : "ud_verbs",
                                      options.verbs_lanes ? "rc_verbs" : "rc_mlx5"}};
    }
    cluster.seed = options.traffic.seed;
    cluster.config.max_priority_endpoints = options.cap;
    if (!options.bulk_queue_pairs) cluster.config.bulk_qps = 0;
    // A run takes some milliseconds of the virtual clock: rankings, and waits after denials, must
    // be short beside it.
    cluster.config.switch_interval = std::chrono::microseconds(100);
    cluster.config.switch_window = options.window;
    cluster.config.max_parked_lanes = kMostKept;
    if (options.keep) cluster.config.lane_keep = std::chrono::seconds(60);
    cluster.config.rndv_scheme = options.scheme;
    if (options.early_zcopy) cluster.config.zcopy_threshold = ucs::config::MemorySize{600};
    if (options.early_rndv) cluster.config.rndv_threshold = ucs::config::MemorySize{3000};
    cluster_ = std::make_unique<Cluster>(workers, cluster);
    for (size_t index = 0; index < workers; ++index) {
        parties_.push_back(std::make_unique<Party>(options.traffic, index, cluster_->context(index),
                                                   cluster_->worker(index)));
    }
    for (size_t from = 0; from < workers; ++from) {
        for (size_t to = 0; to < workers; ++to) {
            if (from == to) continue;
            parties_[from]->connect(to, cluster_->endpoint(from, to),
                                    parties_[to]->region_for(from));
        }
    }
}

// Also ends a run that failed: the workers go before the memory that they may still write to.
Soak::~Soak() {
    for (const auto& party : parties_) party->abandon();
    cluster_->steps(2);
    for (size_t index = 0; index < cluster_->size(); ++index) cluster_->destroy(index);
    parties_.clear();
    cluster_.reset();
}

bool Soak::has_failed() const {
    return !result_.errors.empty() || std::ranges::any_of(parties_, [](const auto& party) {
        return !party->errors().empty();
    });
}

bool Soak::is_done() const {
    return std::ranges::all_of(parties_, [](const auto& party) { return party->is_done(); });
}

// What the transport has, and what the library ever had.
void Soak::check_caps() {
    for (size_t index = 0; index < cluster_->size(); ++index) {
        const size_t held = cluster_->dedicated_endpoints(index);
        // Those for bulk are of the same kind; the mock fabric's transports have none.
        const bool has_queue_pairs = options_.bulk_queue_pairs && options_.fabric != Fabric::kMock;
        const size_t limit =
            has_queue_pairs ? cluster_->inner(index).config().dedicated_qps() : options_.cap;
        if (held > limit + (options_.keep ? kMostKept : 0)) {
            result_.errors.push_back(
                fmt::format("seed {}: {} dedicated lanes at cap {} on worker {}",
                            options_.traffic.seed, held, options_.cap, index));
        }
    }
}

void Soak::verify_end() {
    for (size_t index = 0; index < cluster_->size(); ++index) {
        const auto fail = [&](const char* what) {
            result_.errors.push_back(
                fmt::format("seed {} worker {}: {}", options_.traffic.seed, index, what));
        };
        const ucs_status_ptr_t flush = ucp_worker_flush_nbx(cluster_->worker(index), &kNothing);
        if (cluster_->finish(flush) != UCS_OK) fail("the last flush failed");
        const auto counters = cluster_->counters(index);
        if (counters.violations != 0) fail("a correct peer was taken for a wrong one");
        if (counters.failures != 0) fail("a lane failed");
        if (counters.dedicated_peak > options_.cap) fail("the cap was exceeded");
        result_.promotions += counters.promotions;
        result_.demotions += counters.demotions;
        result_.replays += counters.replays;
        result_.held += counters.held;
        result_.reused += counters.lanes_reused;
        const TrafficTotals& totals = parties_[index]->totals();
        result_.traffic.messages += totals.messages;
        result_.traffic.operations += totals.operations;
        result_.traffic.bytes += totals.bytes;
    }
}

Soak::Result Soak::run() {
    // Without any event for so long on the virtual clock, or in so many steps.
    constexpr ucs::Duration kLongestIdle = std::chrono::milliseconds(100);
    constexpr uint64_t kMostSteps = 2000000;
    ucs::Time active = cluster_->clock.now();
    while (!is_done() && !has_failed()) {
        for (const auto& party : parties_) party->step();
        if (random_.below(options_.switch_every) == 0) {
            parties_[random_.below(parties_.size())]->force_switch();
        }
        if (cluster_->step() != 0) active = cluster_->clock.now();
        check_caps();
        if (cluster_->clock.now() - active > kLongestIdle || ++result_.steps > kMostSteps) {
            result_.errors.push_back(
                fmt::format("seed {}: the traffic hangs", options_.traffic.seed));
            for (const auto& party : parties_) result_.errors.push_back(party->describe());
        }
    }
    if (!has_failed()) verify_end();
    for (const auto& party : parties_) {
        result_.errors.insert(result_.errors.end(), party->errors().begin(), party->errors().end());
    }
    return result_;
}

}  // namespace ucp::test
