// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "uct/base/pending_queue.h"
#include "uct/ib/base/ib_interface.h"
#include "uct/ib/dc/dc_senders.h"
#include "uct/ib/dc/dci_pool.h"

namespace uct::ib {

class DcEndpoint;

// What an endpoint sends to get a grant: the answer needs no endpoint. In the host's byte order.
struct __attribute__((packed)) GrantRequest {
    static constexpr uint8_t kHeader = am_header::kPureRequest;
    uint64_t token;  // and the header, as every message begins
    uint64_t id;     // comes back with the grant; 0 is none
    std::byte port[PortAddress::kLength];
    std::byte target[DctAddress::kLength];
};

struct __attribute__((packed)) Grant {
    static constexpr uint8_t kHeader = am_header::kPureGrant;
    uint64_t token;
    uint64_t id;
};

// dc_mlx5 as the domain of an adapter opens it.
extern const Transport dc_mlx5;

// dc_mlx5: one target that receives from everybody, and a pool of initiators to send with.
class DcInterface final : public IbInterface {
  public:
    static ucs_status_t open(IbDomain& domain, const TransportConfig& config,
                             const ucs::config::Source& source, const InterfaceParams& params,
                             std::unique_ptr<Interface>* interface);
    ~DcInterface() override;

    ucs_status_t get_interface_address(std::span<std::byte> address) const override;
    bool is_reachable(const RemoteAddress& remote) const override;
    ucs_status_t create_endpoint(const RemoteAddress& remote,
                                 std::unique_ptr<Endpoint>* endpoint) override;
    ucs_status_t flush(Completion* completion) override;
    ucs_status_t cut_off(const RemoteAddress& remote, uint64_t number) override;
    uint64_t name_of(const RemoteAddress& remote) const override;

    DciPool& pool() { return *pool_; }
    bool has_flow_control() const { return config_.fc_enable; }
    GrantRequest make_request(uint64_t id) const;
    // The endpoint waits for a grant with the id that this returns, until it is forgotten.
    uint64_t await_grant(DcEndpoint& endpoint);
    void forget_grant(uint64_t id) { awaiting_.erase(id); }

  private:
    DcInterface(IbDomain& domain, const TransportConfig& config, const InterfaceParams& params);

    void received(const ibv_wc& completion, ReceiveBuffer* buffer) override;
    bool after_poll() override;
    void answer(uint64_t token, std::span<const std::byte> request);
    void granted(uint64_t token, std::span<const std::byte> grant);
    DctAddress own_target() const { return {dct_->qp_num, keys_->public_key()}; }

    struct GrantSender;
    struct Cut {
        ucs::Time asked;  // for the last time
        ucs::Time end;    // nothing comes any more
    };

    QpPtr dct_;
    const std::shared_ptr<DcKeys> keys_;
    DcSenders peers_;
    // Under way, by the interface that is cut off and the cut's number.
    std::map<std::tuple<PortAddress, uint32_t, uint64_t>, Cut> cuts_;
    std::unique_ptr<DciPool> pool_;
    uint64_t next_grant_ = 0;
    std::unordered_map<uint64_t, DcEndpoint*> awaiting_;
    std::vector<std::unique_ptr<GrantSender>> senders_;
};

}  // namespace uct::ib
