// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "ucs/sys/random.h"
#include "ucs/sys/time.h"
#include "uct/ib/ud/ud_connection.h"

// Connections of ud_verbs over a network of queues that loses, doubles and reorders packets.
namespace uct::ib::ud::test {

using Bytes = std::vector<std::byte>;

inline Settings default_settings() {
    return {std::chrono::seconds(5), std::chrono::microseconds(200), 2, kMaxAhead};
}

// An end of a conversation whose messages are numbered from 0 in the packets' payload.
class End {
  public:
    End(const Settings& settings, uint32_t name, uint64_t start)
        : connection(settings, name, start) {}
    ~End() {
        SentList rest;
        connection.sender().take_all(&rest);
        give_back(rest);
        HeldList held;
        connection.receiver().restart(&held);
        give_back(held);
    }

    void send(uint64_t value) {
        auto* packet = new Sent;
        packet->value = value;
        connection.sender().add(*packet);
    }
    // Packets that are to leave now.
    template <typename Transmit>
    void transmit(ucs::Time now, Transmit&& out) {
        Sender& sender = connection.sender();
        while (SentPacket* packet = sender.next()) {
            Header header;
            header.is_numbered = true;
            header.number = packet->number();
            header.asks_acknowledgement = sender.fills_window();
            sender.transmitted(*packet, now);
            connection.receiver().acknowledge(&header, false);
            ++transmissions;
            out(encode(header, &static_cast<Sent*>(packet)->value));
        }
        if (connection.receiver().deadline() > now) return;
        Header header;
        connection.receiver().acknowledge(&header, true);
        out(encode(header, nullptr));
    }
    // @return what became of it
    UdConnection::Match arrive(const Bytes& bytes, ucs::Time now) {
        const auto header = Header::read(bytes);
        if (!header) return UdConnection::Match::kStale;
        const UdConnection::Match match = connection.match(*header);
        if (match == UdConnection::Match::kStale || match == UdConnection::Match::kReplaced)
            return match;
        if (match == UdConnection::Match::kAnew) {
            HeldList held;
            connection.receiver().restart(&held);
            give_back(held);
        }
        SentList done;
        is_sound = connection.acknowledged(*header, now, &done) && is_sound;
        give_back(done);
        if (!header->is_numbered) return match;
        uint64_t value;
        std::memcpy(&value, bytes.data() + header->length(), sizeof(value));
        Receiver& receiver = connection.receiver();
        switch (receiver.arrived(header->number, header->asks_acknowledgement, now)) {
            case Receiver::Verdict::kDeliver:
                received.push_back(value);
                while (HeldPacket* held = receiver.next()) {
                    received.push_back(static_cast<Held*>(held)->value);
                    delete static_cast<Held*>(held);
                }
                break;
            case Receiver::Verdict::kHold: {
                auto* held = new Held(header->number);
                held->value = value;
                receiver.hold(*held);
                break;
            }
            case Receiver::Verdict::kDrop:
                break;
        }
        return match;
    }

    static void release(SentPacket& packet) { delete static_cast<Sent*>(&packet); }

    UdConnection connection;
    std::vector<uint64_t> received;
    uint64_t transmissions = 0;
    bool is_sound = true;

  private:
    struct Sent : SentPacket {
        uint64_t value = 0;
    };
    struct Held : HeldPacket {
        using HeldPacket::HeldPacket;
        uint64_t value = 0;
    };

    Bytes encode(Header& header, const uint64_t* value) const {
        Hello self;
        self.port = {.mtu = 5, .lid = 7, .gid = {0xfe, 0x80, 1}};
        self.address = {100 + connection.name(), connection.name()};
        connection.address(&header, self);
        Bytes bytes(header.length() + (value != nullptr ? sizeof(*value) : 0));
        header.write(bytes.data());
        if (value != nullptr) {
            std::memcpy(bytes.data() + header.length(), value, sizeof(*value));
        }
        return bytes;
    }
    static void give_back(SentList& list) {
        list.clear_and_dispose([](SentPacket* packet) { delete static_cast<Sent*>(packet); });
    }
    static void give_back(HeldList& list) {
        list.clear_and_dispose([](HeldPacket* packet) { delete static_cast<Held*>(packet); });
    }
};

// Two ends and what is between them.
class Network {
  public:
    struct Faults {
        double loss = 0, duplication = 0, delay = 0;
    };

    Network(uint64_t seed, const Faults& faults, const Settings& settings = default_settings())
        : settings_(settings), faults_(faults), random_(seed) {
        restart(0);
        restart(1);
    }

    End& end(unsigned index) { return *ends_[index]; }
    // The end forgets all, as a connection that was given up.
    void restart(unsigned index) {
        const uint64_t start = ++starts_;
        ends_[index] = std::make_unique<End>(settings_, static_cast<uint32_t>(start + 40), start);
    }
    // Packets under way of this end, oldest first, taken out of the network.
    std::vector<Bytes> take_flying() {
        std::vector<Bytes> flying;
        for (auto& [time, packet] : flying_) flying.push_back(packet.bytes);
        flying_.clear();
        return flying;
    }

    void transmit(unsigned index) {
        ends_[index]->transmit(now, [&](const Bytes& bytes) { launch(1 - index, bytes); });
    }
    // Everything up to the next event. @return false if nothing will ever happen
    bool step() {
        transmit(0);
        transmit(1);
        ucs::Time next = flying_.empty() ? ucs::kNever : flying_.begin()->first;
        for (const auto& end : ends_) next = std::min(next, end->connection.deadline());
        if (next == ucs::kNever) return false;
        now = std::max(now, next);
        while (!flying_.empty() && flying_.begin()->first <= now) {
            const Flying packet = flying_.begin()->second;
            flying_.erase(flying_.begin());
            const UdConnection::Match match = ends_[packet.to]->arrive(packet.bytes, now);
            if (match == UdConnection::Match::kReplaced) ++replaced;
            if (match == UdConnection::Match::kStale) ++stale;
        }
        for (const auto& end : ends_) {
            if (end->connection.sender().on_timer(now) == Sender::Verdict::kDead) is_dead = true;
        }
        return !is_dead;
    }
    template <typename Condition>
    bool until(Condition&& condition, unsigned steps = 200000) {
        for (; steps != 0; --steps) {
            if (condition()) return true;
            if (!step()) return condition();
        }
        return false;
    }
    void cut(bool on) { is_cut_ = on; }

    ucs::Time now{std::chrono::seconds(1)};
    bool is_dead = false;
    unsigned replaced = 0, stale = 0;

  private:
    struct Flying {
        unsigned to;
        Bytes bytes;
    };
    static constexpr ucs::Duration kOneWay = std::chrono::microseconds(1);

    void launch(unsigned to, const Bytes& bytes) {
        if (is_cut_) return;
        for (int copies = random_.chance(faults_.duplication) ? 2 : 1; copies != 0; --copies) {
            if (random_.chance(faults_.loss)) continue;
            ucs::Duration delay = kOneWay;
            if (random_.chance(faults_.delay)) {
                delay += ucs::Duration(static_cast<int64_t>(random_.below(50000)));
            }
            flying_.emplace(now + delay, Flying{to, bytes});
        }
    }

    const Settings settings_;
    const Faults faults_;
    ucs::Random random_;
    std::unique_ptr<End> ends_[2];
    std::multimap<ucs::Time, Flying> flying_;
    uint64_t starts_ = 0;
    bool is_cut_ = false;
};

}  // namespace uct::ib::ud::test
