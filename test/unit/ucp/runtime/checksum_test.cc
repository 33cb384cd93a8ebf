// SPDX-License-Identifier: BSD-3-Clause

// UCX_CHECKSUM: what a transport changes is noticed, whatever it belongs to.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "common/flipping_component.h"
#include "ucp/endpoint/endpoint.h"
#include "ucs/log/log.h"
#include "uct/checked/checked_messages.h"
#include "uct/self/self_interface.h"
#include "unit/ucp/cluster.h"
#include "unit/ucp/host_wire.h"
#include "unit/ucp/region.h"
#include "unit/ucp/runtime/sender_wires.h"
#include "unit/ucs/log/log_capture.h"

namespace ucp::test {
namespace {

// Another wire, with a transport that changes what it carries.
class FlippingWire final : public Wire {
  public:
    explicit FlippingWire(std::unique_ptr<Wire> inner)
        : inner_(std::move(inner)), component_(inner_->component()) {}
    uct::Component& component() override { return component_; }
    void enter(size_t index) override { inner_->enter(index); }
    void leave(size_t index) override { inner_->leave(index); }
    void advance_to(ucs::Time now) override { inner_->advance_to(now); }
    void kill(size_t index) override { inner_->kill(index); }
    size_t dedicated_endpoints(size_t index) const override {
        return inner_->dedicated_endpoints(index);
    }
    uct::test::Flip& flip() { return component_.flip; }

  private:
    std::unique_ptr<Wire> inner_;
    uct::test::FlippingComponent component_;
};

enum class Kind { kTag, kActive, kActiveWithHeader, kStream, kPut, kGet, kAtomic };

// An operation of worker 0 towards the last one, and which of its messages is changed.
struct Operation {
    const char* name;
    Kind kind;
    size_t length;
    size_t least = 0;  // bytes of the message that is changed
    size_t others = 0;
    size_t rendezvous = SIZE_MAX;
    size_t zero_copy = SIZE_MAX;
};

void PrintTo(const Operation& operation, std::ostream* out) {
    *out << operation.name;
}

constexpr Operation kOperations[] = {
    {"tag_short", Kind::kTag, 8},
    {"tag_empty", Kind::kTag, 0},
    {"tag_copied", Kind::kTag, 700, 700},
    {"tag_zero_copy", Kind::kTag, 900, 900, 0, SIZE_MAX, 1},
    {"tag_fragments", Kind::kTag, 100000, 900, 1},
    {"tag_announced", Kind::kTag, 300000, 0, 0, 4096},
    {"tag_rendezvous", Kind::kTag, 300000, 900, 2, 4096},
    {"active_short", Kind::kActive, 8},
    {"active_with_header", Kind::kActiveWithHeader, 500, 500},
    {"active_rendezvous", Kind::kActive, 300000, 900, 1, 4096},
    {"stream", Kind::kStream, 600, 600},
    {"put_short", Kind::kPut, 8, 8},
    {"put", Kind::kPut, 50000, 900},
    {"get", Kind::kGet, 50000, 900},
    {"atomic", Kind::kAtomic, 8},
};

constexpr uint64_t kTag = 5;
constexpr unsigned kActiveId = 3;

std::vector<SenderWire> wires() {
    std::vector<SenderWire> all = sender_wires();
    const auto self = [] { return std::make_unique<HostWire>(uct::self::component()); };
    all.push_back({"self", self, false, {}});
    return all;
}

Cluster::Options options(const SenderWire& kind, Wire& wire, const Operation& operation,
                         Checksum checksum) {
    Cluster::Options options = options_for(kind, wire);
    options.config.checksum = checksum;
    options.config.rndv_threshold = ucs::config::MemorySize{operation.rendezvous};
    options.config.zcopy_threshold = ucs::config::MemorySize{operation.zero_copy};
    // What is read goes by the tests' transport unchanged.
    if (checksum == Checksum::kNone) options.config.rndv_scheme = RndvScheme::kAm;
    return options;
}

class CheckedPair {
  public:
    CheckedPair(const SenderWire& kind, const Operation& operation, Checksum checksum)
        : operation_(operation),
          wire_(kind.make()),
          cluster_(kind.name == "self" ? 1 : 2, options(kind, wire_, operation, checksum)),
          last_(cluster_.size() - 1),
          sent_(pattern(operation.length, 1)),
          original_(sent_),
          got_(operation.length),
          region_(cluster_.context(last_), std::max<size_t>(operation.length, 8)) {
        pass(cluster_, 0, last_, 1);
        pass(cluster_, last_, 0, 2);
        if (kind.has_lanes) {
            join_by_lane(cluster_, 0, last_);
            pass(cluster_, 0, last_, 3);
            pass(cluster_, last_, 0, 4);
        }
        ucp_am_handler_param_t handler{};
        handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                             UCP_AM_HANDLER_PARAM_FIELD_ARG;
        handler.id = kActiveId;
        handler.cb = on_active;
        handler.arg = this;
        EXPECT_EQ(ucp_worker_set_am_recv_handler(cluster_.worker(last_), &handler), UCS_OK);
        region_.open(here());
    }
    ~CheckedPair() {
        region_.close();
        for (ucs_status_ptr_t request : {sending_, receiving_, flush_}) {
            if (!UCS_PTR_IS_PTR(request)) continue;
            if (request == receiving_) ucp_request_cancel(cluster_.worker(last_), request);
            ucp_request_free(request);
        }
    }
    CheckedPair(const CheckedPair&) = delete;

    uct::test::Flip& flip() { return wire_.flip(); }
    Cluster& cluster() { return cluster_; }

    void start() {
        uint64_t word = 1;
        ucp_request_param_t param{};
        switch (operation_.kind) {
            case Kind::kTag:
                receiving_ = ucp_tag_recv_nbx(cluster_.worker(last_), got_.data(), got_.size(),
                                              kTag, UINT64_MAX, &kNothing);
                sending_ = ucp_tag_send_nbx(here(), sent_.data(), sent_.size(), kTag, &kNothing);
                break;
            case Kind::kActive:
            case Kind::kActiveWithHeader: {
                const bool has_header = operation_.kind == Kind::kActiveWithHeader;
                sending_ =
                    ucp_am_send_nbx(here(), kActiveId, has_header ? "header" : nullptr,
                                    has_header ? 6 : 0, sent_.data(), sent_.size(), &kNothing);
                break;
            }
            case Kind::kStream: {
                param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
                param.flags = UCP_STREAM_RECV_FLAG_WAITALL;
                sending_ = ucp_stream_send_nbx(here(), sent_.data(), sent_.size(), &kNothing);
                receiving_ =
                    ucp_stream_recv_nbx(there(), got_.data(), got_.size(), &stream_length_, &param);
                break;
            }
            case Kind::kPut:
                sending_ = ucp_put_nbx(here(), sent_.data(), sent_.size(), region_.address(),
                                       region_.key, &kNothing);
                break;
            case Kind::kGet:
                region_.fill(1);
                sending_ = ucp_get_nbx(here(), got_.data(), got_.size(), region_.address(),
                                       region_.key, &kNothing);
                break;
            case Kind::kAtomic:
                std::memcpy(region_.bytes.data(), &word, sizeof(word));
                std::memcpy(original_.data(), &word, sizeof(word));
                param.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER;
                param.datatype = ucp_dt_make_contig(8);
                param.reply_buffer = got_.data();
                sending_ = ucp_atomic_op_nbx(here(), UCP_ATOMIC_OP_ADD, &word_, 1,
                                             region_.address(), region_.key, &param);
                break;
        }
        if (operation_.kind == Kind::kPut) flush_ = ucp_ep_flush_nbx(here(), &kNothing);
    }

    // Has the data got to where it goes, as far as the program is told?
    bool has_arrived() {
        switch (operation_.kind) {
            case Kind::kTag:
            case Kind::kStream:
                return has_succeeded(receiving_);
            case Kind::kActive:
            case Kind::kActiveWithHeader:
                return has_active_;
            case Kind::kPut:
                return has_succeeded(flush_);
            default:
                return has_succeeded(sending_);
        }
    }
    bool is_right() const {
        const auto& where = operation_.kind == Kind::kPut ? region_.bytes : got_;
        return std::equal(original_.begin(), original_.end(), where.begin());
    }
    bool has_failed() {
        return unwrap(here()).status() != UCS_OK && unwrap(there()).status() != UCS_OK;
    }
    // Nothing that says that it has ended well is wrong.
    bool is_over() {
        return is_done(sending_) && is_done(flush_) &&
               (operation_.kind != Kind::kStream || is_done(receiving_));
    }

  private:
    static bool is_done(ucs_status_ptr_t request) {
        return !UCS_PTR_IS_PTR(request) || ucp_request_check_status(request) != UCS_INPROGRESS;
    }
    static bool has_succeeded(ucs_status_ptr_t request) {
        return UCS_PTR_IS_PTR(request) ? ucp_request_check_status(request) == UCS_OK
                                       : UCS_PTR_RAW_STATUS(request) == UCS_OK;
    }
    static ucs_status_t on_active(void* arg, const void*, size_t, void* data, size_t length,
                                  const ucp_am_recv_param_t* param) {
        CheckedPair& self = *static_cast<CheckedPair*>(arg);
        EXPECT_EQ(length, self.got_.size());
        if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) {
            std::memcpy(self.got_.data(), data, std::min(length, self.got_.size()));
            self.has_active_ = true;
            return UCS_OK;
        }
        ucp_request_param_t options{};
        options.op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
        options.cb.recv_am = [](void* request, ucs_status_t status, size_t, void* user) {
            static_cast<CheckedPair*>(user)->has_active_ = status == UCS_OK;
            ucp_request_free(request);
        };
        options.user_data = &self;
        ucp_am_recv_data_nbx(self.cluster_.worker(self.last_), data, self.got_.data(),
                             self.got_.size(), &options);
        return UCS_INPROGRESS;
    }

    ucp_ep_h here() { return cluster_.endpoint(0, last_); }
    ucp_ep_h there() { return cluster_.endpoint(last_, 0); }

    const Operation operation_;
    FlippingWire wire_;
    Cluster cluster_;
    const size_t last_;
    std::vector<uint8_t> sent_, original_, got_;
    uint64_t word_ = 1;
    Region region_;
    size_t stream_length_ = 0;
    ucs_status_ptr_t sending_ = nullptr, receiving_ = nullptr, flush_ = nullptr;
    bool has_active_ = false;
};

class Checksums : public testing::TestWithParam<std::tuple<SenderWire, Operation>> {
  protected:
    const SenderWire& kind() const { return std::get<0>(GetParam()); }
    const Operation& operation() const { return std::get<1>(GetParam()); }

    ucs::LogCapture log_{ucs::LogLevel::kWarn};
};

std::string name_of_transfer(const testing::TestParamInfo<Checksums::ParamType>& info) {
    return std::get<0>(info.param).name + "_" + std::get<1>(info.param).name;
}

auto over_wires(bool (*condition)(const Operation&)) {
    std::vector<Operation> chosen;
    std::ranges::copy_if(kOperations, std::back_inserter(chosen), condition);
    return testing::Combine(testing::ValuesIn(wires()), testing::ValuesIn(chosen));
}

INSTANTIATE_TEST_SUITE_P(Wires, Checksums, over_wires([](const Operation&) { return true; }),
                         name_of_transfer);

TEST_P(Checksums, WhatIsNotChangedArrives) {
    CheckedPair pair(kind(), operation(), Checksum::kCrc32c);
    pair.start();
    EXPECT_TRUE(pair.cluster().until([&] { return pair.has_arrived() && pair.is_over(); }));
    EXPECT_TRUE(pair.is_right());
    EXPECT_TRUE(log_.entries().empty());
}

TEST_P(Checksums, AChangedByteIsNoticed) {
    for (const size_t byte : {0, 5}) {
        CheckedPair pair(kind(), operation(), Checksum::kCrc32c);
        pair.flip().arm(operation().least, operation().others, byte);
        pair.start();
        EXPECT_TRUE(pair.cluster().until([&] { return pair.has_failed() && pair.is_over(); }));
        EXPECT_TRUE(pair.flip().has_happened);
        EXPECT_TRUE(log_.contains("is not what was sent"));
        if (operation().kind != Kind::kTag || operation().length != 0) {
            EXPECT_FALSE(pair.has_arrived());
        }
    }
}

// Operations of which the tests' transport can change data that nobody looks at.
class NoChecksums : public Checksums {};

INSTANTIATE_TEST_SUITE_P(Wires, NoChecksums, over_wires([](const Operation& operation) {
                             const bool is_read =
                                 operation.kind == Kind::kGet || operation.kind == Kind::kAtomic;
                             const bool is_announcement =
                                 operation.rendezvous != SIZE_MAX && operation.least == 0;
                             return !is_read && !is_announcement && operation.length != 0;
                         }),
                         name_of_transfer);

// What the tests above rest on: without the checks the same change goes through as success.
TEST_P(NoChecksums, NoticeNothing) {
    CheckedPair pair(kind(), operation(), Checksum::kNone);
    // Behind the data of an active message comes the program's header.
    const size_t byte = operation().kind == Kind::kActiveWithHeader ? 100 : 0;
    pair.flip().arm(operation().least, operation().others, byte);
    pair.start();
    EXPECT_TRUE(pair.cluster().until([&] { return pair.has_arrived() && pair.is_over(); }));
    EXPECT_TRUE(pair.flip().has_happened);
    EXPECT_FALSE(pair.is_right());
    EXPECT_FALSE(log_.contains("is not what was sent"));
}

// Messages that no later one may overtake.
class OrderedChecksums : public Checksums {};

INSTANTIATE_TEST_SUITE_P(Wires, OrderedChecksums, over_wires([](const Operation& operation) {
                             const bool is_data =
                                 operation.rendezvous != SIZE_MAX && operation.least != 0;
                             return operation.kind == Kind::kTag && !is_data;
                         }),
                         name_of_transfer);

// No later message is taken in the place of one that was changed.
TEST_P(OrderedChecksums, NothingBehindItIsHeard) {
    CheckedPair pair(kind(), operation(), Checksum::kCrc32c);
    pair.flip().arm(operation().least, operation().others, 0);
    pair.start();
    Cluster& cluster = pair.cluster();
    const uint64_t later = 1;
    uint64_t got = 0;
    const ucs_status_ptr_t sending = ucp_tag_send_nbx(cluster.endpoint(0, cluster.size() - 1),
                                                      &later, sizeof(later), 99, &kNothing);
    const ucs_status_ptr_t receiving = ucp_tag_recv_nbx(cluster.worker(cluster.size() - 1), &got,
                                                        sizeof(got), 99, UINT64_MAX, &kNothing);
    EXPECT_TRUE(cluster.until([&] { return pair.has_failed() && pair.is_over(); }));
    cluster.steps(2000);
    EXPECT_EQ(ucp_request_check_status(receiving), UCS_INPROGRESS);
    ucp_request_cancel(cluster.worker(cluster.size() - 1), receiving);
    ucp_request_free(receiving);
    if (UCS_PTR_IS_PTR(sending)) ucp_request_free(sending);
}

class ChecksumsAgree : public testing::TestWithParam<SenderWire> {};

INSTANTIATE_TEST_SUITE_P(Wires, ChecksumsAgree, testing::ValuesIn(sender_wires()),
                         [](const auto& info) { return info.param.name; });

TEST_P(ChecksumsAgree, WhoHasNoneIsRefused) {
    const std::unique_ptr<Wire> wire = GetParam().make();
    Cluster::Options with = options_for(GetParam(), *wire), without = with;
    with.config.checksum = Checksum::kCrc32c;
    Cluster checked(1, with), plain(1, without);
    for (const auto& [from, to] : {std::pair(&checked, &plain), std::pair(&plain, &checked)}) {
        ucs::LogCapture log(ucs::LogLevel::kError);
        ucp_ep_params_t params{};
        params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        params.address = reinterpret_cast<const ucp_address_t*>(to->inner(0).address().data());
        ucp_ep_h endpoint = nullptr;
        EXPECT_EQ(ucp_ep_create(from->worker(0), &params, &endpoint), UCS_ERR_REJECTED);
        EXPECT_EQ(log.entries().size(), 1u);
        EXPECT_TRUE(log.contains("UCX_CHECKSUM must be the same at both ends"));
    }
}

// Transports below leave messages for the next call as they do without checksums.
TEST(CheckedMessages, SayWhenHandlersHaveEnough) {
    const bool is_enough = true;
    uct::AmTable handlers{};
    handlers.is_enough = &is_enough;
    const uct::CheckedMessages checked(handlers, {});
    EXPECT_EQ(checked.table().is_enough, &is_enough);
}

}  // namespace
}  // namespace ucp::test
