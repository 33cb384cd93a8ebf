// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/wireup/handshake.h"

#include <fmt/format.h>

#include <algorithm>

namespace ucp::wireup {

Call new_call(std::string_view job_key) {
    Call call{};
    call.magic = kHandshakeMagic;
    call.version = kProtocol;
    call.oldest = kOldestProtocol;
    call.has_key = job_key.empty() ? 0 : 1;
    call.nonce = ucs::net::new_nonce();
    return call;
}

CallAnswer answer_to(const Call& call, std::string_view job_key) {
    CallAnswer answer{};
    answer.magic = kHandshakeMagic;
    answer.version = std::min(call.version, kProtocol);
    answer.oldest = kOldestProtocol;
    answer.nonce = ucs::net::new_nonce();
    if (answer.version < std::max(call.oldest, kOldestProtocol)) {
        answer.version = kProtocol;
        answer.verdict = Verdict::kOtherVersion;
    } else if (call.has_key != 0) {
        answer.verdict = job_key.empty() ? Verdict::kKeyUnknown : Verdict::kProve;
    } else {
        answer.verdict = job_key.empty() ? Verdict::kOpen : Verdict::kKeyMissing;
    }
    return answer;
}

std::string refusal(const CallAnswer& answer) {
    switch (answer.verdict) {
        case Verdict::kKeyMissing:
            return "the listener serves only clients with its UCX_TCP_JOB_KEY, and the client has "
                   "none";
        case Verdict::kKeyUnknown:
            return "the client has a UCX_TCP_JOB_KEY, and the listener has none";
        case Verdict::kOtherVersion:
            return fmt::format(
                "the listener speaks versions {} to {} of the protocol: use one version of the "
                "library at both ends",
                answer.oldest, answer.version);
        case Verdict::kOpen:
        case Verdict::kProve:
            break;
    }
    if (answer.version < kOldestProtocol || answer.version > kProtocol) {
        return fmt::format("the listener chose version {}, which was not offered", answer.version);
    }
    return {};
}

FrameSeal::FrameSeal(End own, std::string_view job_key, const Call& call, const CallAnswer& answer)
    : is_used_(answer.verdict == Verdict::kProve), own_(own) {
    if (is_used_) {
        key_ = ucs::net::MacWriter(job_key)
                   .add("swiftlane call key")
                   .add_object(call)
                   .add_object(answer)
                   .end();
    }
}

ucs::net::Mac FrameSeal::of(End sender, uint64_t number, std::span<const std::byte> frame) const {
    return ucs::net::MacWriter(key_)
        .add(sender == End::kClient ? "swiftlane call client" : "swiftlane call server")
        .add_object(number)
        .add(frame)
        .end();
}

void FrameSeal::append(std::vector<std::byte>& frame) {
    if (!is_used_) return;
    const ucs::net::Mac mac = of(own_, sent_++, frame);
    frame.insert(frame.end(), mac.begin(), mac.end());
}

bool FrameSeal::accepts(std::span<const std::byte> frame, std::span<const std::byte> seal) {
    if (!is_used_) return seal.empty();
    const End other = own_ == End::kClient ? End::kServer : End::kClient;
    const ucs::net::Mac expected = of(other, received_++, frame);
    ucs::net::Mac said;
    if (seal.size() != said.size()) return false;
    std::ranges::copy(seal, said.begin());
    return ucs::net::are_equal(expected, said);
}

}  // namespace ucp::wireup
