// SPDX-License-Identifier: BSD-3-Clause
#include "fuzz/message_input.h"

#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "common/mock_transport.h"
#include "ucp/core/address.h"
#include "ucp/core/worker.h"
#include "ucp/mem/memory.h"
#include "ucp/mem/packed_key.h"
#include "ucp/mem/remote_memory.h"
#include "ucp/proto/eager.h"
#include "ucp/tag/engine.h"
#include "ucs/config/source.h"
#include "ucs/log.h"

namespace ucp::fuzz {

namespace {

/**
 * A worker with an endpoint to itself, so that messages can name a sender that it knows, and a
 * buffer that a lucky message may write to.
 */
class Victim {
  public:
    Victim() {
        Config config;
        std::string error;
        kConfigTable.load(ucs::config::Source(), config, error);
        config.rndv_threshold.emplace().bytes = 4096;
        config.lanes = LaneMode::kScalable;
        ContextSeams seams;
        seams.clock = &clock_;
        seams.virtual_time = true;
        seams.seed = 1;
        component_ = &fabric_.component();
        seams.components = std::span<uct::Component* const>(&component_, 1);
        ucp_params_t params{};
        params.field_mask = UCP_PARAM_FIELD_FEATURES;
        params.features = UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_AM;
        if (Context::create(params, config, seams, &context_) != UCS_OK ||
            Worker::create(*context_, ucp_worker_params_t{}, &worker_) != UCS_OK)
            ucs::log_fatal("the fuzzed worker cannot be made");
        ucp_ep_params_t to_itself{};
        to_itself.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        to_itself.address = reinterpret_cast<const ucp_address_t*>(worker_->address().data());
        Endpoint* endpoint = nullptr;
        worker_->create_endpoint(to_itself, &endpoint);
        Memory::create(*context_, mapped_, sizeof(mapped_), &memory_);
        // A send by rendezvous and a receive, both waiting.
        const ucp_request_param_t param{};
        sending_ =
            tag_send(*endpoint, source_, sizeof(source_), 1, TagMode::kNormal, OpParams(&param));
        receiving_ =
            worker_->tags().receive(target_, sizeof(target_), 2, kFullTagMask, OpParams(&param));
        for (int i = 0; i < 200; ++i) worker_->progress();
    }
    ~Victim() {
        for (ucs_status_ptr_t handle : {sending_, receiving_}) {
            if (UCS_PTR_IS_PTR(handle)) worker_->free_request(Request::from_handle(handle));
        }
        worker_.reset();
        Memory::destroy(memory_);
    }

    /** Bytes 1 to 8 of some inputs ask for names that mean something here. */
    void message(std::vector<std::byte> bytes) {
        const auto id = static_cast<uint8_t>(bytes[0]);
        const bool friendly = (id & 0x80) != 0;
        bytes.erase(bytes.begin());
        if (friendly) {
            // Every word that says "sender" or "request" becomes a true one.
            for (size_t at = 0; at + 8 <= bytes.size(); at += 8) {
                uint64_t word;
                std::memcpy(&word, bytes.data() + at, sizeof(word));
                if ((word & 0xff) == 's') word = worker_->uuid();
                if ((word & 0xff) == 'r') word = 1 + (word >> 8) % 4;
                if ((word & 0xff) == 'm') word = reinterpret_cast<uintptr_t>(mapped_);
                if ((word & 0xff) == 'i') word = context_->regions().identity();
                std::memcpy(bytes.data() + at, &word, sizeof(word));
            }
        }
        worker_->deliver_held(id & 0x1f, bytes.data(), bytes.size());
        for (int i = 0; i < 20; ++i) worker_->progress();
    }

    Context& context() { return *context_; }

  private:
    ucs::VirtualClock clock_;
    uct::mock::Fabric fabric_;
    uct::Component* component_ = nullptr;
    std::unique_ptr<Context> context_;
    std::unique_ptr<Worker> worker_;
    Memory* memory_ = nullptr;
    alignas(8) uint8_t mapped_[256] = {};
    uint8_t source_[10000] = {};
    uint8_t target_[10000] = {};
    ucs_status_ptr_t sending_ = nullptr, receiving_ = nullptr;
};

/** Only the first warning is worth seeing; a fuzzer makes millions. */
void silence() {
    static const bool done = [] {
        ucs::set_log_level(ucs::LogLevel::kFatal);
        return true;
    }();
    (void)done;
}

/** A copy of exactly the input's size, so that a sanitizer sees every read past it. */
std::vector<std::byte> copy_of(const uint8_t* data, size_t size) {
    const auto* bytes = reinterpret_cast<const std::byte*>(data);
    return {bytes, bytes + size};
}

}  // namespace

void read_address(const uint8_t* data, size_t size) {
    silence();
    WorkerAddress address;
    unpack_address(copy_of(data, size), &address);
    if (size >= 8) packed_address_length(data);
}

void read_remote_key(const uint8_t* data, size_t size) {
    silence();
    static Victim victim;
    const std::vector<std::byte> bytes = copy_of(data, size);
    PackedKey key;
    if (PackedKey::parse(bytes, &key) != UCS_OK) return;
    RemoteMemory remote;
    const DomainPair pairs[] = {{0, 0}, {0, 1}, {1, 0}};
    remote.open(victim.context(), key, pairs);
    void* pointer = nullptr;
    remote.pointer(key.header().address, &pointer);
}

void read_message(const uint8_t* data, size_t size) {
    silence();
    if (size == 0) return;
    Victim victim;
    victim.message(copy_of(data, size));
}

}  // namespace ucp::fuzz
