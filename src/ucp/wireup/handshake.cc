// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/wireup/handshake.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

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

namespace {

constexpr uint32_t kMagic = 0x4d434c53;  // "SLCM"
constexpr uint8_t kVersion = 2;
constexpr size_t kMaxAddress = 64 * 1024;

#pragma pack(push, 1)
struct FrameHeader {
    uint32_t magic;
    uint8_t version;
    uint8_t kind;
    uint8_t has_client_id;
    uint8_t reserved;  // 0
    uint64_t client_id;
    uint64_t stream;
    uint32_t address_length;  // bytes behind the header
};
#pragma pack(pop)

bool is_sound(const FrameHeader& header) {
    const auto kind = static_cast<FrameKind>(header.kind);
    const bool has_address = kind == FrameKind::kConnect || kind == FrameKind::kAccept;
    return header.magic == kMagic && header.version == kVersion && header.reserved == 0 &&
           header.has_client_id <= 1 && kind >= FrameKind::kConnect && kind <= FrameKind::kBye &&
           (header.address_length != 0) == has_address && header.address_length <= kMaxAddress;
}

}  // namespace

std::vector<std::byte> pack_frame(const Frame& frame) {
    const FrameHeader header{kMagic,
                             kVersion,
                             static_cast<uint8_t>(frame.kind),
                             frame.has_client_id,
                             0,
                             frame.client_id,
                             frame.stream,
                             static_cast<uint32_t>(frame.address.size())};
    std::vector<std::byte> bytes(sizeof(header) + frame.address.size());
    std::memcpy(bytes.data(), &header, sizeof(header));
    std::ranges::copy(frame.address, bytes.begin() + sizeof(header));
    return bytes;
}

// How many bytes the frame has, as far as they tell.
size_t FrameReader::wanted(size_t seal) const {
    FrameHeader header;
    if (bytes_.size() < sizeof(header)) return sizeof(header);
    std::memcpy(&header, bytes_.data(), sizeof(header));
    return is_sound(header) ? sizeof(header) + header.address_length + seal : 0;
}

ucs_status_t FrameReader::read(ucs::net::Socket& socket, FrameSeal& seal, Frame* frame) {
    for (;;) {
        const size_t have = bytes_.size();
        const size_t end = wanted(seal.length());
        if (end == 0) return UCS_ERR_INVALID_PARAM;
        if (have >= sizeof(FrameHeader) && have == end) break;
        bytes_.resize(end);
        const ssize_t got = socket.read(bytes_.data() + have, end - have);
        bytes_.resize(have + static_cast<size_t>(got > 0 ? got : 0));
        if (got == 0) return UCS_INPROGRESS;
        if (got < 0) return static_cast<ucs_status_t>(got);
    }
    const auto text = std::span(bytes_).first(bytes_.size() - seal.length());
    if (!seal.accepts(text, std::span(bytes_).subspan(text.size()))) return UCS_ERR_REJECTED;
    FrameHeader header;
    std::memcpy(&header, bytes_.data(), sizeof(header));
    frame->kind = static_cast<FrameKind>(header.kind);
    frame->has_client_id = header.has_client_id != 0;
    frame->client_id = header.client_id;
    frame->stream = header.stream;
    frame->address.assign(text.begin() + sizeof(header), text.end());
    bytes_.clear();
    return UCS_OK;
}

void FrameWriter::add(const Frame& frame, FrameSeal& seal) {
    auto bytes = pack_frame(frame);
    seal.append(bytes);
    add_bytes(bytes);
}

ucs_status_t FrameWriter::write(ucs::net::Socket& socket) {
    while (!is_done()) {
        const ssize_t put = socket.write(bytes_.data() + offset_, bytes_.size() - offset_);
        if (put == 0) return UCS_INPROGRESS;
        if (put < 0) return static_cast<ucs_status_t>(put);
        offset_ += static_cast<size_t>(put);
    }
    return UCS_OK;
}

}  // namespace ucp::wireup
