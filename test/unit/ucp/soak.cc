// SPDX-License-Identifier: BSD-3-Clause
#include "unit/ucp/soak.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace ucp::test {
namespace {

constexpr unsigned kSlots = 8;
constexpr size_t kSlotBytes = 20000;
constexpr ucp_request_param_t kNothing{};

enum Stream : uint64_t { kTagged = 1, kActive = 2, kPutData = 3, kFenced = 4, kConstant = 5 };

struct AmNumber {
    uint32_t from;
    uint32_t to;
    uint64_t number;
};

}  // namespace

/** One direction of a pair: what is sent, and what the receiver has seen. */
struct Soak::Link {
    Soak* soak;
    size_t from, to;
    ucp_ep_h endpoint;
    unsigned left;  //!< operations to start

    // sender
    uint64_t tagged = 0, active = 0, added = 0, puts = 0, fences = 0;
    std::deque<std::unique_ptr<Operation>> operations;

    // receiver
    uint64_t received = 0, handled = 0;
    ucs_status_ptr_t receive = nullptr;  //!< the posted one
    std::vector<uint8_t> buffer;

    // memory of the receiver: slots for puts, a fenced pair, constant bytes, a counter
    std::vector<uint64_t> memory;
    ucp_mem_h handle = nullptr;
    ucp_rkey_h key = nullptr;
    uint64_t fence_seen = 0;

    static constexpr size_t kFenceData = kSlots * kSlotBytes;
    static constexpr size_t kFenceFlag = kFenceData + kSlotBytes;
    static constexpr size_t kConstantAt = kFenceFlag + 8;
    static constexpr size_t kCounter = kConstantAt + kSlotBytes;
    static constexpr size_t kBytes = kCounter + 8;

    uint8_t* at(size_t offset) { return reinterpret_cast<uint8_t*>(memory.data()) + offset; }
    uint64_t address(size_t offset) { return reinterpret_cast<uint64_t>(at(offset)); }
    std::vector<uint8_t> content(Stream stream, uint64_t number, size_t length) const {
        return pattern(length, soak->options_.seed ^ (stream << 56) ^ (uint64_t{from} << 48) ^
                                   (uint64_t{to} << 40) ^ number);
    }
};

/** Something under way, which looks after itself: step() is true when it is over. */
struct Soak::Operation {
    const char* name;
    std::function<bool()> step;
};

Soak::Options Soak::options_for(uint64_t seed) {
    ucs::Random random(seed);
    Options options;
    options.seed = seed;
    options.workers = 2 + random.below(3);
    options.cap = 1 + static_cast<unsigned>(random.below(2));
    options.operations = 240 / static_cast<unsigned>(options.workers);
    options.switch_every = 20 + static_cast<unsigned>(random.below(100));
    // Most seeds send much that is small; some send up to 4 MiB.
    options.max_length = seed % 16 == 0 ? size_t{4} << 20 : size_t{1} << (4 + random.below(13));
    options.fabric.seed = seed;
    options.fabric.max_delay = 1 + random.below(40);
    options.fabric.stall_probability = random.below(3) == 0 ? 0.02 : 0;
    options.fabric.no_resource_probability = random.below(2) == 0 ? 0 : 0.2;
    options.fabric.transmit_depth = 2 + static_cast<unsigned>(random.below(32));
    if (random.below(3) == 0) options.fabric.capabilities &= ~uint32_t{uct::kGetZcopy};
    if (random.below(4) == 0) options.fabric.capabilities &= ~uint32_t{uct::kAmZcopy};
    return options;
}

Soak::Soak(const Options& options) : options_(options), random_(ucs::mix64(options.seed)) {
    Cluster::Options cluster;
    cluster.fabric = options.fabric;
    cluster.seed = options.seed;
    cluster.config.max_priority_endpoints = options.cap;
    // A run takes some milliseconds of the virtual clock: rankings, and waits after denials, must
    // be short beside it.
    cluster.config.switch_interval = std::chrono::microseconds(100);
    cluster.config.switch_window = 1 + static_cast<unsigned>(random_.below(16));
    cluster.config.rndv_scheme = static_cast<RndvScheme>(random_.below(4));
    if (random_.below(2) == 0) cluster.config.zcopy_threshold = ucs::config::MemorySize{600};
    if (random_.below(2) == 0) cluster.config.rndv_threshold = ucs::config::MemorySize{3000};
    cluster_ = std::make_unique<Cluster>(options.workers, cluster);
    for (size_t to = 0; to < options.workers; ++to) {
        ucp_am_handler_param_t handler{};
        handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                             UCP_AM_HANDLER_PARAM_FIELD_ARG;
        handler.id = static_cast<unsigned>(to);
        handler.cb = on_active;
        handler.arg = this;
        if (ucp_worker_set_am_recv_handler(cluster_->worker(to), &handler) != UCS_OK) fail("set");
        for (size_t from = 0; from < options.workers; ++from) {
            if (from == to) continue;
            auto link = std::make_unique<Link>();
            link->soak = this;
            link->from = from;
            link->to = to;
            link->left = options.operations;
            link->endpoint = cluster_->endpoint(from, to);
            link->memory.resize(Link::kBytes / 8);
            const auto constant = link->content(kConstant, 0, kSlotBytes);
            std::memcpy(link->at(Link::kConstantAt), constant.data(), kSlotBytes);
            ucp_mem_map_params_t params{};
            params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
            params.address = link->memory.data();
            params.length = Link::kBytes;
            void* packed = nullptr;
            size_t size = 0;
            if (ucp_mem_map(cluster_->context(to), &params, &link->handle) != UCS_OK ||
                ucp_rkey_pack(cluster_->context(to), link->handle, &packed, &size) != UCS_OK ||
                ucp_ep_rkey_unpack(link->endpoint, packed, &link->key) != UCS_OK) {
                fail("memory cannot be mapped");
            }
            ucp_rkey_buffer_release(packed);
            links_.push_back(std::move(link));
        }
    }
}

// Also ends a run that failed: the workers go before the memory that they may still write to.
Soak::~Soak() {
    for (const auto& link : links_) {
        if (link->receive != nullptr) ucp_request_cancel(cluster_->worker(link->to), link->receive);
    }
    cluster_->steps(2);
    for (size_t index = 0; index < cluster_->size(); ++index) cluster_->destroy(index);
    for (const auto& link : links_) {
        ucp_rkey_destroy(link->key);
        ucp_mem_unmap(cluster_->context(link->to), link->handle);
    }
}

void Soak::fail(const std::string& what) {
    if (++errors_ <= 16) {
        result_.errors.push_back(
            fmt::format("seed {} step {}: {}", options_.seed, result_.steps, what));
    }
}

// Half of the messages are tiny, the others spread over all orders of magnitude.
size_t Soak::length_of(const Link& link, uint64_t number) const {
    const uint64_t draw = ucs::mix64(options_.seed ^ (link.from << 8) ^ link.to ^ (number << 20));
    if (draw % 2 == 0) return (draw >> 8) % 65;
    size_t bits = 0;
    while ((size_t{1} << bits) < options_.max_length) ++bits;
    return std::min((draw >> 8) % (size_t{1} << ((draw >> 40) % (bits + 1))), options_.max_length);
}

// --- operations
// ------------------------------------------------------------------------------------

namespace {

/** A step that waits for an operation and then does what follows. */
template <typename Then>
std::function<bool()> when_done(ucs_status_ptr_t operation, Then then) {
    return [operation, then]() mutable {
        ucs_status_t status = UCS_PTR_RAW_STATUS(operation);
        if (UCS_PTR_IS_PTR(operation)) {
            status = ucp_request_check_status(operation);
            if (status == UCS_INPROGRESS) return false;
            ucp_request_free(operation);
        }
        then(status);
        return true;
    };
}

}  // namespace

void Soak::send_tagged(Link& link, bool sync) {
    const uint64_t number = link.tagged++;
    auto bytes = std::make_shared<std::vector<uint8_t>>(
        link.content(kTagged, number, length_of(link, number)));
    const ucs_status_ptr_t sending =
        sync ? ucp_tag_send_sync_nbx(link.endpoint, bytes->data(), bytes->size(), link.from,
                                     &kNothing)
             : ucp_tag_send_nbx(link.endpoint, bytes->data(), bytes->size(), link.from, &kNothing);
    link.operations.push_back(std::make_unique<Operation>(
        Operation{"tagged send", when_done(sending, [this, bytes](ucs_status_t status) {
                      if (status != UCS_OK)
                          fail(fmt::format("a tagged send ended with {}", int{status}));
                  })}));
}

void Soak::send_active(Link& link) {
    const uint64_t number = link.active++;
    auto header = std::make_shared<AmNumber>(
        AmNumber{static_cast<uint32_t>(link.from), static_cast<uint32_t>(link.to), number});
    auto bytes = std::make_shared<std::vector<uint8_t>>(
        link.content(kActive, number, length_of(link, number)));
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_AM_SEND_FLAG_EAGER;
    if (number % 3 == 0) param.flags |= UCP_AM_SEND_FLAG_REPLY;
    const ucs_status_ptr_t sending =
        ucp_am_send_nbx(link.endpoint, static_cast<unsigned>(link.to), header.get(),
                        sizeof(*header), bytes->data(), bytes->size(), &param);
    link.operations.push_back(std::make_unique<Operation>(
        Operation{"active message", when_done(sending, [this, bytes, header](ucs_status_t status) {
                      if (status != UCS_OK)
                          fail(fmt::format("an active message ended with {}", int{status}));
                  })}));
}

ucs_status_t Soak::on_active(void* arg, const void* header, size_t header_length, void* data,
                             size_t length, const ucp_am_recv_param_t*) {
    auto& self = *static_cast<Soak*>(arg);
    AmNumber number;
    if (header_length != sizeof(number)) {
        self.fail("an active message has a wrong header");
        return UCS_OK;
    }
    std::memcpy(&number, header, sizeof(number));
    for (const auto& link : self.links_) {
        if (link->from != number.from || link->to != number.to) continue;
        const auto expected =
            link->content(kActive, number.number, self.length_of(*link, number.number));
        const bool is_next = link->handled++ == number.number;
        if (is_next && expected.size() == length &&
            std::memcmp(expected.data(), data, length) == 0) {
            return UCS_OK;
        }
    }
    self.fail(fmt::format("active message {} of worker {} is out of order or damaged",
                          number.number, number.from));
    return UCS_OK;
}

// The data of a put must be there when a message sent after its flush arrives; the receiver checks
// the slot that the message's number names.
void Soak::put_and_claim(Link& link) {
    const uint64_t number = link.puts++;
    const size_t offset = number % kSlots * kSlotBytes;
    const size_t length = std::min(length_of(link, number), kSlotBytes);
    auto bytes = std::make_shared<std::vector<uint8_t>>(link.content(kPutData, number, length));
    const ucs_status_ptr_t put = ucp_put_nbx(link.endpoint, bytes->data(), length,
                                             link.address(offset), link.key, &kNothing);
    const ucs_status_ptr_t flush = ucp_ep_flush_nbx(link.endpoint, &kNothing);
    link.operations.push_back(std::make_unique<Operation>(
        Operation{"put", when_done(put, [this, bytes](ucs_status_t status) {
                      if (status != UCS_OK) fail(fmt::format("a put ended with {}", int{status}));
                  })}));
    link.operations.push_back(std::make_unique<Operation>(Operation{
        "flush", when_done(flush, [this, &link, bytes, offset, number](ucs_status_t status) {
            if (status != UCS_OK) fail(fmt::format("a flush ended with {}", int{status}));
            if (number + kSlots > link.puts &&
                std::memcmp(link.at(offset), bytes->data(), bytes->size()) != 0) {
                fail(fmt::format("put {} is not there after its flush", number));
            }
        })}));
}

void Soak::put_fenced(Link& link) {
    if (link.fences != link.fence_seen) return;
    const uint64_t number = ++link.fences;
    const size_t length = 1 + std::min(length_of(link, number), kSlotBytes - 1);
    auto bytes = std::make_shared<std::vector<uint8_t>>(link.content(kFenced, number, length));
    auto flag = std::make_shared<uint64_t>(number);
    const ucs_status_ptr_t data = ucp_put_nbx(link.endpoint, bytes->data(), length,
                                              link.address(Link::kFenceData), link.key, &kNothing);
    if (ucp_worker_fence(cluster_->worker(link.from)) != UCS_OK) fail("a fence failed");
    const ucs_status_ptr_t raised = ucp_put_nbx(
        link.endpoint, flag.get(), 8, link.address(Link::kFenceFlag), link.key, &kNothing);
    for (const ucs_status_ptr_t put : {data, raised}) {
        link.operations.push_back(std::make_unique<Operation>(
            Operation{"fenced put", when_done(put, [this, bytes, flag](ucs_status_t status) {
                          if (status != UCS_OK)
                              fail(fmt::format("a fenced put ended with {}", int{status}));
                      })}));
    }
}

void Soak::get(Link& link) {
    const size_t length = std::min(length_of(link, random_()), kSlotBytes);
    auto bytes = std::make_shared<std::vector<uint8_t>>(length);
    const ucs_status_ptr_t getting = ucp_get_nbx(
        link.endpoint, bytes->data(), length, link.address(Link::kConstantAt), link.key, &kNothing);
    link.operations.push_back(std::make_unique<Operation>(Operation{
        "get", when_done(getting, [this, &link, bytes](ucs_status_t status) {
            if (status != UCS_OK) fail(fmt::format("a get ended with {}", int{status}));
            if (std::memcmp(link.at(Link::kConstantAt), bytes->data(), bytes->size()) != 0) {
                fail("a get brought other bytes");
            }
        })}));
}

void Soak::add(Link& link) {
    ++link.added;
    if (random_.below(2) == 0) {
        if (ucp_atomic_post(link.endpoint, UCP_ATOMIC_POST_OP_ADD, 1, 8,
                            link.address(Link::kCounter), link.key) < 0) {
            fail("an atomic addition failed");
        }
        return;
    }
    auto value = std::make_shared<std::pair<uint64_t, uint64_t>>(1, ~uint64_t{0});
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER;
    param.datatype = ucp_dt_make_contig(8);
    param.reply_buffer = &value->second;
    const ucs_status_ptr_t adding =
        ucp_atomic_op_nbx(link.endpoint, UCP_ATOMIC_OP_ADD, &value->first, 1,
                          link.address(Link::kCounter), link.key, &param);
    link.operations.push_back(std::make_unique<Operation>(
        Operation{"fetching add", when_done(adding, [this, &link, value](ucs_status_t status) {
                      if (status != UCS_OK)
                          fail(fmt::format("a fetching add ended with {}", int{status}));
                      if (value->second >= link.added)
                          fail("a fetching add brought an impossible value");
                  })}));
}

void Soak::start_operation(Link& link) {
    --link.left;
    const uint64_t draw = random_.below(20);
    if (draw < 7) return send_tagged(link, false);
    if (draw < 8) return send_tagged(link, true);
    if (draw < 13) return send_active(link);
    if (draw < 15) return put_and_claim(link);
    if (draw < 16) return put_fenced(link);
    if (draw < 18) return get(link);
    add(link);
}

// --- the receiving side
// ----------------------------------------------------------------------------

void Soak::post_receive(Link& link) {
    link.buffer.resize(std::max<size_t>(options_.max_length, 64) + 1);
    ucp_request_param_t param{};
    param.op_attr_mask =
        UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    param.user_data = &link;
    param.cb.recv = [](void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                       void* user_data) {
        auto& link = *static_cast<Link*>(user_data);
        link.receive = nullptr;
        ucp_request_free(request);
        if (status == UCS_ERR_CANCELED) return;
        const uint64_t number = link.received++;
        const auto expected = link.content(kTagged, number, link.soak->length_of(link, number));
        if (status != UCS_OK || info->length != expected.size() ||
            std::memcmp(link.buffer.data(), expected.data(), expected.size()) != 0) {
            link.soak->fail(fmt::format(
                "tagged message {} from {} to {} is out of order or damaged: status {}, {} bytes "
                "instead of {}",
                number, link.from, link.to, int{status}, info->length, expected.size()));
        }
    };
    link.receive = ucp_tag_recv_nbx(cluster_->worker(link.to), link.buffer.data(),
                                    link.buffer.size(), link.from, ~uint64_t{0}, &param);
    if (!UCS_PTR_IS_PTR(link.receive)) fail("a receive cannot be posted");
}

void Soak::poll(Link& link) {
    for (size_t index = 0; index < link.operations.size();) {
        if (link.operations[index]->step()) {
            link.operations.erase(link.operations.begin() + static_cast<ptrdiff_t>(index));
        } else {
            ++index;
        }
    }
    if (link.receive == nullptr) post_receive(link);
    uint64_t flag;
    std::memcpy(&flag, link.at(Link::kFenceFlag), 8);
    if (flag == link.fence_seen) return;
    const size_t length = 1 + std::min(length_of(link, flag), kSlotBytes - 1);
    const auto expected = link.content(kFenced, flag, length);
    if (flag != link.fence_seen + 1 ||
        std::memcmp(link.at(Link::kFenceData), expected.data(), length) != 0) {
        fail("a put overtook a fence");
    }
    link.fence_seen = flag;
}

// --- the run
// ---------------------------------------------------------------------------------------

void Soak::check_caps() {
    for (size_t index = 0; index < cluster_->size(); ++index) {
        const size_t held = cluster_->fabric.dedicated_endpoints(cluster_->uuid(index));
        if (held > options_.cap)
            fail(fmt::format("{} dedicated lanes at cap {}", held, options_.cap));
    }
}

void Soak::force_switch() {
    Link& link = *links_[random_.below(links_.size())];
    const auto policy = static_cast<ucpx_lane_policy_t>(random_.below(UCPX_LANE_POLICY_LAST));
    if (ucpx_ep_lanes_request(link.endpoint, policy) != UCS_OK) fail("a lane cannot be asked for");
}

bool Soak::is_done() const {
    return std::all_of(links_.begin(), links_.end(), [](const auto& link) {
        return link->left == 0 && link->operations.empty() && link->received == link->tagged &&
               link->handled == link->active && link->fence_seen == link->fences;
    });
}

void Soak::verify_end() {
    for (size_t index = 0; index < cluster_->size(); ++index) {
        const ucs_status_ptr_t flush = ucp_worker_flush_nbx(cluster_->worker(index), &kNothing);
        if (cluster_->finish(flush) != UCS_OK) fail("the last flush failed");
    }
    for (const auto& link : links_) {
        uint64_t count;
        std::memcpy(&count, link->at(Link::kCounter), 8);
        if (count != link->added) {
            fail(fmt::format("{} additions make {}", link->added, count));
        }
    }
    for (size_t index = 0; index < cluster_->size(); ++index) {
        const auto counters = cluster_->counters(index);
        if (counters.violations != 0) fail("a correct peer was taken for a wrong one");
        if (counters.failures != 0) fail("a lane failed");
        result_.promotions += counters.promotions;
        result_.demotions += counters.demotions;
        result_.replays += counters.replays;
        result_.held += counters.held;
    }
}

Soak::Result Soak::run() {
    constexpr uint64_t kStuck = 100000;
    uint64_t quiet = 0;
    while (!is_done() && errors_ == 0) {
        for (const auto& link : links_) {
            if (link->left != 0 && link->operations.size() < 12 && random_.below(6) == 0) {
                start_operation(*link);
            }
            poll(*link);
        }
        if (random_.below(options_.switch_every) == 0) force_switch();
        quiet = cluster_->step() == 0 ? quiet + 1 : 0;
        check_caps();
        ++result_.steps;
        if (quiet > kStuck || result_.steps > 20 * kStuck) {
            fail("the traffic hangs");
            for (const auto& link : links_) {
                fail(
                    fmt::format("{} -> {}: {} operations ({}), lane {}, {} to start, tagged {} of "
                                "{}, active {} "
                                "of {}, fences {} of {}",
                                link->from, link->to, link->operations.size(),
                                link->operations.empty() ? "" : link->operations.front()->name,
                                ucpx_lane_state_string(cluster_->lane_state(link->endpoint)),
                                link->left, link->received, link->tagged, link->handled,
                                link->active, link->fence_seen, link->fences));
            }
        }
    }
    if (errors_ == 0) verify_end();
    return result_;
}

}  // namespace ucp::test
