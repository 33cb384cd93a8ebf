// SPDX-License-Identifier: BSD-3-Clause

// broken EVENT [--seconds S] [--fails no]
//
// Two pairs of workers in one process, one on each of two devices, rxe0 and rxe1, with checked
// traffic in both. Then something happens to the first device, under that traffic:
//
//   rc, ud          a queue pair of this kind is put into the error state behind the library's back
//   key             a remote access that the target does not allow
//   anything else   a command for the shell
//
// Both endpoints of the first pair must fail, and everything that was under way on them end; with
// --fails no, nothing may happen to them. The second pair must go on and lose nothing, and all must
// end cleanly.

#include <dlfcn.h>
#include <fmt/format.h>
#include <infiniband/verbs.h>
#include <spawn.h>

#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "system/traffic.h"

namespace {

// Queue pairs of the process that became ready to send.
class QueuePairs {
  public:
    static QueuePairs& instance() {
        static QueuePairs queue_pairs;
        return queue_pairs;
    }
    void add(ibv_qp* qp) {
        if (device_of(qp) == "rxe0") ready_.push_back(qp);
    }
    void remove(ibv_qp* qp) { std::erase(ready_, qp); }
    ibv_qp* find(ibv_qp_type type) const {
        for (ibv_qp* qp : ready_) {
            if (qp->qp_type == type) return qp;
        }
        return nullptr;
    }

  private:
    static std::string_view device_of(const ibv_qp* qp) { return qp->context->device->name; }
    std::vector<ibv_qp*> ready_;
};

template <typename Function>
Function* real(const char* name) {
    static void* const library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
    return reinterpret_cast<Function*>(dlsym(library, name));
}

}  // namespace

// The library's calls come here first.
[[gnu::visibility("default")]] int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
    const int result = real<decltype(ibv_modify_qp)>("ibv_modify_qp")(qp, attributes, mask);
    if (result == 0 && (mask & IBV_QP_STATE) != 0) {
        QueuePairs::instance().remove(qp);
        if (attributes->qp_state == IBV_QPS_RTS) QueuePairs::instance().add(qp);
    }
    return result;
}

[[gnu::visibility("default")]] int ibv_destroy_qp(ibv_qp* qp) {
    QueuePairs::instance().remove(qp);
    return real<decltype(ibv_destroy_qp)>("ibv_destroy_qp")(qp);
}

namespace ucp::test {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kTimeout = std::chrono::seconds(30);

[[noreturn]] void give_up(std::string_view what) {
    fmt::print(stderr, "{}\n", what);
    std::exit(1);
}

void check(bool is_right, std::string_view what) {
    if (!is_right) give_up(what);
}

// One end of a pair.
class End {
  public:
    End(const char* device, size_t index, uint64_t seed) : index_(index) {
        ucp_config_t* config = nullptr;
        check(ucp_config_read(nullptr, nullptr, &config) == UCS_OK &&
                  ucp_config_modify(config, "NET_DEVICES", device) == UCS_OK,
              "configuration");
        ucp_params_t params{};
        params.field_mask = UCP_PARAM_FIELD_FEATURES;
        params.features = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_RMA | UCP_FEATURE_AMO32 |
                          UCP_FEATURE_AMO64;
        ucp_worker_params_t worker{};
        check(ucp_init(&params, config, &context_) == UCS_OK &&
                  ucp_worker_create(context_, &worker, &worker_) == UCS_OK,
              "library");
        ucp_config_release(config);
        TrafficOptions options;
        options.seed = seed;
        options.operations = ~0u;
        options.max_length = size_t{64} << 10;
        options.slots = 2;
        options.slot_bytes = size_t{16} << 10;
        party_.emplace(options, index, context_, worker_);
    }

    void connect(End& other) {
        ucp_address_t* address = nullptr;
        size_t length = 0;
        check(ucp_worker_get_address(other.worker_, &address, &length) == UCS_OK, "address");
        ucp_ep_params_t params{};
        params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                            UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
        params.address = address;
        params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
        params.err_handler = {[](void* arg, ucp_ep_h, ucs_status_t status) {
                                  auto& self = *static_cast<End*>(arg);
                                  self.failure_ = status;
                                  ++self.failures_;
                              },
                              this};
        check(ucp_ep_create(worker_, &params, &endpoint_) == UCS_OK, "endpoint");
        ucp_worker_release_address(other.worker_, address);
        party_->connect(1 - index_, endpoint_, other.party_->region_for(index_));
    }

    void turn() {
        party_->step();
        ucp_worker_progress(worker_);
    }
    void expect_failure() { party_->expect_failure(1 - index_); }
    unsigned failures() const { return failures_; }
    ucs_status_t failure() const { return failure_; }
    bool is_sound() const { return failures_ == 0 && party_->errors().empty(); }
    uint64_t messages() const { return party_->totals().messages; }
    std::string errors() const {
        std::string text = failures_ > 0 ? ucs_status_string(failure_) : "";
        for (const std::string& error : party_->errors()) text += "\n" + error;
        return text;
    }
    const Party& party() const { return *party_; }
    size_t pending() const { return party_->pending(1 - index_); }
    void stop() { party_->stop(); }
    void forgive() { party_->forgive(1 - index_); }
    // After this nothing of it is left.
    void end() {
        party_->abandon();
        for (int i = 0; i < 100; ++i) ucp_worker_progress(worker_);
        if (UCS_PTR_IS_PTR(put_)) {
            check(ucp_request_check_status(put_) < 0, "a put without a right has not failed");
            ucp_request_free(put_);
        }
        if (key_ != nullptr) ucp_rkey_destroy(key_);
        ucp_worker_destroy(worker_);
        party_.reset();
        ucp_cleanup(context_);
    }

    // A put with the key of memory that is no longer mapped.
    void put_without_right(End& target) {
        static uint64_t word = 1;
        ucp_mem_map_params_t params{};
        params.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
        params.length = 4096;
        params.flags = UCP_MEM_MAP_ALLOCATE;
        ucp_mem_h memory = nullptr;
        check(ucp_mem_map(target.context_, &params, &memory) == UCS_OK, "ucp_mem_map");
        ucp_mem_attr_t attributes{};
        attributes.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
        check(ucp_mem_query(memory, &attributes) == UCS_OK, "ucp_mem_query");
        void* packed = nullptr;
        size_t length = 0;
        ucp_rkey_h key = nullptr;
        check(ucp_rkey_pack(target.context_, memory, &packed, &length) == UCS_OK &&
                  ucp_ep_rkey_unpack(endpoint_, packed, &key) == UCS_OK,
              "remote key");
        ucp_rkey_buffer_release(packed);
        check(ucp_mem_unmap(target.context_, memory) == UCS_OK, "ucp_mem_unmap");
        const ucp_request_param_t none{};
        const auto address = reinterpret_cast<uintptr_t>(attributes.address);
        put_ = ucp_put_nbx(endpoint_, &word, sizeof(word), address, key, &none);
        key_ = key;
    }

  private:
    const size_t index_;
    ucp_context_h context_ = nullptr;
    ucp_worker_h worker_ = nullptr;
    ucp_ep_h endpoint_ = nullptr;
    ucs_status_ptr_t put_ = nullptr;
    ucp_rkey_h key_ = nullptr;
    std::optional<Party> party_;
    unsigned failures_ = 0;
    ucs_status_t failure_ = UCS_OK;
};

struct Pair {
    Pair(const char* device, uint64_t seed) : a(device, 0, seed), b(device, 1, seed) {
        a.connect(b);
        b.connect(a);
    }
    void turn() {
        a.turn();
        b.turn();
    }
    bool is_sound() const { return a.is_sound() && b.is_sound(); }
    bool is_done() const { return a.party().is_done() && b.party().is_done(); }
    uint64_t messages() const { return a.messages() + b.messages(); }
    std::string errors() const { return a.errors() + b.errors(); }

    End a, b;
};

void run_in_shell(const char* command) {
    const char* const arguments[] = {"sh", "-c", command, nullptr};
    pid_t child;
    // Not waited for: it may have to wait for this process.
    check(posix_spawn(&child, "/bin/sh", nullptr, nullptr, const_cast<char**>(arguments),
                      environ) == 0,
          "no shell");
}

void put_into_error(ibv_qp_type type) {
    ibv_qp* const qp = QueuePairs::instance().find(type);
    check(qp != nullptr, "no such queue pair");
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_ERR;
    check(ibv_modify_qp(qp, &attributes, IBV_QP_STATE) == 0, "ibv_modify_qp");
}

void make_happen(std::string_view event, Pair& pair) {
    if (event == "rc") {
        put_into_error(IBV_QPT_RC);
    } else if (event == "ud") {
        put_into_error(IBV_QPT_UD);
    } else if (event == "key") {
        pair.a.put_without_right(pair.b);
    } else {
        run_in_shell(event.data());
    }
}

int run(const char* event, unsigned seconds, bool fails) {
    Pair broken("rxe0:1", 1), other("rxe1:1", 2);
    const auto turn_until = [&](auto&& condition, Clock::duration patience) {
        const auto limit = Clock::now() + patience;
        while (!condition() && Clock::now() < limit) {
            broken.turn();
            other.turn();
            check(other.is_sound(), "the second pair has failed");
        }
        return condition();
    };
    const auto never = [] { return false; };
    constexpr uint64_t kSome = 20;
    check(
        turn_until([&] { return broken.messages() > kSome && other.messages() > kSome; }, kTimeout),
        "no traffic");
    check(broken.is_sound(), "the first pair failed before anything happened");

    if (fails) {
        broken.a.expect_failure();
        broken.b.expect_failure();
    }
    const auto start = Clock::now();
    const uint64_t before = other.messages();
    make_happen(event, broken);
    if (fails) {
        const bool is_noticed = turn_until(
            [&] { return broken.a.failures() > 0 && broken.b.failures() > 0; }, kTimeout);
        check(is_noticed, fmt::format("not noticed: {} and {} failures", broken.a.failures(),
                                      broken.b.failures()));
        const std::chrono::duration<double> took = Clock::now() - start;
        fmt::print("figure: \"{}\": the ends fail with \"{}\" and \"{}\", after {:.1f} s\n", event,
                   ucs_status_string(broken.a.failure()), ucs_status_string(broken.b.failure()),
                   took.count());
        check(broken.a.failure() != UCS_ERR_CANCELED && broken.b.failure() != UCS_ERR_CANCELED,
              "nobody cancelled anything");
        broken.a.forgive();
        broken.b.forgive();
        check(turn_until([&] { return broken.a.pending() + broken.b.pending() == 0; }, kTimeout),
              "operations of the first pair do not end");
        check(broken.a.failures() == 1 && broken.b.failures() == 1, "failures told twice");
    }
    turn_until(never, std::chrono::seconds(seconds));
    check(other.messages() > before + kSome, "the second pair stands still");
    if (!fails) check(broken.is_sound(), "the first pair has failed: " + broken.errors());
    other.a.stop();
    other.b.stop();
    if (!fails) {
        broken.a.stop();
        broken.b.stop();
    }
    check(turn_until([&] { return other.is_done() && (fails || broken.is_done()); }, kTimeout),
          "the second pair does not end");
    fmt::print("figure: \"{}\": {} messages on the other device since, none lost{}\n", event,
               other.messages() - before, fails ? "" : "; nothing failed");
    for (Pair* pair : {&broken, &other}) {
        pair->a.end();
        pair->b.end();
    }
    return 0;
}

}  // namespace
}  // namespace ucp::test

int main(int argc, char** argv) {
    unsigned seconds = 3;
    bool fails = true;
    for (int index = 2; index + 1 < argc; index += 2) {
        const std::string_view name = argv[index];
        if (name == "--seconds") seconds = static_cast<unsigned>(std::atoi(argv[index + 1]));
        if (name == "--fails") fails = argv[index + 1] != std::string_view("no");
    }
    if (argc < 2) return 2;
    return ucp::test::run(argv[1], seconds, fails);
}
