// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>

#include "uct/ib/component.h"
#include "unit/uct/adapter.h"

namespace uct::test {

namespace {

// Short enough for a test, long enough for a software adapter on an emulated processor.
const Settings kPatientSettings = {{"RC_TIMEOUT", "134ms"},
                                   {"RC_RETRY_COUNT", "7"},
                                   {"RC_RNR_TIMEOUT", "1ms"},
                                   {"UD_TIMEOUT", "2s"},
                                   {"UD_TIMER_TICK", "10ms"}};

class RealAdapter final : public Adapter {
  public:
    RealAdapter() : not_ready_before_(counted()) {}

    Settings patient(Settings settings) const override {
        for (auto& [name, value] : settings) {
            for (const auto& [patient_name, patient_value] : kPatientSettings) {
                if (name == patient_name) value = patient_value;
            }
        }
        return settings;
    }
    void step(ucs::VirtualClock& clock, unsigned events) override {
        // The adapter's own threads need the processor that a spinning test would use.
        if (events == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
        clock.advance_to(ucs::Time(std::chrono::steady_clock::now() - start_));
    }
    bool is_idle() override { return false; }  // time goes on by itself
    int patience() const override { return 10; }
    uint64_t receivers_not_ready() override { return counted() - not_ready_before_; }

  private:
    // Kept by Soft-RoCE; other drivers have other names.
    static uint64_t counted() {
        const std::string device = ib::component().resources()[0].device;
        const std::string adapter = device.substr(0, device.find(':'));
        std::ifstream file("/sys/class/infiniband/" + adapter +
                           "/ports/1/hw_counters/rcvd_rnr_err");
        uint64_t count = 0;
        file >> count;
        return count;
    }

    const uint64_t not_ready_before_;
    // The clock of a World starts at 0.
    const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

std::unique_ptr<Adapter> Adapter::open(unsigned, unsigned) {
    return std::make_unique<RealAdapter>();
}

bool Adapter::serves(const std::string& transport) {
    const auto resources = ib::component().resources();
    return std::ranges::any_of(
        resources, [&](const Resource& resource) { return resource.transport == transport; });
}

}  // namespace uct::test
