// SPDX-License-Identifier: BSD-3-Clause

// UCX_IB_PCI_RELAXED_ORDERING: which memory an adapter may write out of order.

#include <infiniband/verbs.h>

#include <optional>
#include <vector>

#include "system/soft_wire.h"
#include "unit/ucp/cluster.h"
#include "unit/ucp/region.h"

namespace ucp::test {
namespace {

constexpr size_t kTransfer = 1 << 20;

// Two workers on adapters, with that value of the variable.
class RelaxedOrdering : public testing::Test {
  protected:
    void open(const char* value) {
        SoftWire::Variables variables;
        if (value != nullptr) variables.emplace_back("IB_PCI_RELAXED_ORDERING", value);
        wire_.emplace(2, softhca::Model(), softhca::FaultPlan(), variables);
        Cluster::Options options;
        options.wire = &*wire_;
        cluster_.emplace(2, options);
    }
    // May writes pass each other in the registrations that hold the byte? Nothing: there are none.
    std::optional<bool> is_relaxed(const void* byte) {
        std::optional<bool> relaxed;
        for (const softhca::RegisteredMemory& memory : wire_->fabric().registered()) {
            const auto* const begin = static_cast<const std::byte*>(memory.address);
            if (byte < begin || byte >= begin + memory.length) continue;
            const bool is = (memory.access & IBV_ACCESS_RELAXED_ORDERING) != 0;
            EXPECT_TRUE(!relaxed || *relaxed == is) << "some are and some are not";
            relaxed = is;
        }
        return relaxed;
    }
    // A message long enough to be read from where it is to where it belongs; the registrations of
    // its buffers go with it.
    void exchange(bool is_to_be_relaxed) {
        const std::vector<uint8_t> sent = pattern(kTransfer, 3);
        std::vector<uint8_t> got(kTransfer);
        const ucs_status_ptr_t receive =
            ucp_tag_recv_nbx(cluster_->worker(1), got.data(), got.size(), 1, UINT64_MAX, &kNothing);
        const ucs_status_ptr_t send =
            ucp_tag_send_nbx(cluster_->endpoint(0, 1), sent.data(), sent.size(), 1, &kNothing);
        unsigned source = 0, target = 0;
        EXPECT_TRUE(cluster_->until([&] {
            const auto look = [&](const std::vector<uint8_t>& buffer, unsigned& seen) {
                const std::optional<bool> relaxed = is_relaxed(&buffer[kTransfer / 2]);
                if (!relaxed) return;
                ++seen;
                EXPECT_EQ(*relaxed, is_to_be_relaxed);
            };
            look(sent, source);
            look(got, target);
            return ucp_request_check_status(receive) != UCS_INPROGRESS;
        }));
        EXPECT_EQ(cluster_->finish(receive), UCS_OK);
        EXPECT_EQ(cluster_->finish(send), UCS_OK);
        EXPECT_EQ(sent, got);
        EXPECT_NE(source, 0u);
        EXPECT_NE(target, 0u);
    }

    std::optional<SoftWire> wire_;
    std::optional<Cluster> cluster_;
};

TEST_F(RelaxedOrdering, IsForMemoryThatNoPeerWritesToByItself) {
    open("on");
    exchange(true);
}

TEST_F(RelaxedOrdering, IsNeverForMemoryWithFlagsOrAtomics) {
    open("on");
    Region local(cluster_->context(0), kTransfer), remote(cluster_->context(1), kTransfer);
    remote.open(cluster_->endpoint(0, 1));
    EXPECT_EQ(is_relaxed(&remote.bytes[kTransfer / 2]), false);
    // Nor when it has been the buffer of puts, with its handle or without, and of atomics.
    ucp_request_param_t with_handle{};
    with_handle.op_attr_mask = UCP_OP_ATTR_FIELD_MEMH;
    with_handle.memh = local.memory;
    local.fill(4);
    EXPECT_EQ(cluster_->finish(ucp_put_nbx(cluster_->endpoint(0, 1), local.bytes.data(), kTransfer,
                                           remote.address(), remote.key, &with_handle)),
              UCS_OK);
    EXPECT_EQ(cluster_->finish(ucp_ep_flush_nbx(cluster_->endpoint(0, 1), &kNothing)), UCS_OK);
    EXPECT_EQ(local.bytes, remote.bytes);
    uint64_t one = 1;
    ucp_request_param_t word{};
    word.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
    word.datatype = ucp_dt_make_contig(8);
    EXPECT_EQ(cluster_->finish(ucp_atomic_op_nbx(cluster_->endpoint(0, 1), UCP_ATOMIC_OP_ADD, &one,
                                                 1, remote.address(), remote.key, &word)),
              UCS_OK);
    EXPECT_EQ(cluster_->finish(ucp_ep_flush_nbx(cluster_->endpoint(0, 1), &kNothing)), UCS_OK);
    EXPECT_EQ(is_relaxed(&remote.bytes[kTransfer / 2]), false);
    EXPECT_EQ(is_relaxed(&local.bytes[kTransfer / 2]), false);
    remote.close();
}

TEST_F(RelaxedOrdering, OfMappedMemoryGoesByTheRightsOfPeers) {
    open("on");
    const struct {
        unsigned prot;
        bool is_relaxed;
    } cases[] = {{0, true},
                 {UCP_MEM_MAP_PROT_REMOTE_READ, true},
                 {UCP_MEM_MAP_PROT_REMOTE_WRITE, false},
                 {UCP_MEM_MAP_PROT_REMOTE_READ | UCP_MEM_MAP_PROT_REMOTE_WRITE, false}};
    for (const auto& each : cases) {
        SCOPED_TRACE(each.prot);
        std::vector<uint8_t> bytes(kTransfer);
        ucp_mem_map_params_t params{};
        params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                            UCP_MEM_MAP_PARAM_FIELD_PROT;
        params.address = bytes.data();
        params.length = bytes.size();
        params.prot = UCP_MEM_MAP_PROT_LOCAL_READ | UCP_MEM_MAP_PROT_LOCAL_WRITE | each.prot;
        ucp_mem_h memory = nullptr;
        ASSERT_EQ(ucp_mem_map(cluster_->context(0), &params, &memory), UCS_OK);
        EXPECT_EQ(is_relaxed(&bytes[kTransfer / 2]), each.is_relaxed);
        EXPECT_EQ(ucp_mem_unmap(cluster_->context(0), memory), UCS_OK);
    }
}

TEST_F(RelaxedOrdering, IsOffWhereTheVariableSaysSo) {
    for (const char* value : {"off", "no"}) {
        open(value);
        exchange(false);
        cluster_.reset();
        wire_.reset();
    }
}

}  // namespace
}  // namespace ucp::test
