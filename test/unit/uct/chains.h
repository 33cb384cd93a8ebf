// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "unit/uct/world.h"

// What tests of chains have in common.
namespace uct::test {

inline const Settings kImpatient = {
    {"RC_TIMEOUT", "10us"}, {"RC_RETRY_COUNT", "1"}, {"RC_TX_QUEUE_LEN", "32"}};
inline constexpr size_t kPiece = 1000;

// Counts its calls: one is right.
struct Once : Completion {
    Once() {
        count = 1;
        callback = [](Completion* self) { ++static_cast<Once*>(self)->calls; };
    }
    int calls = 0;
};

class Chains : public testing::TestWithParam<TransportCase> {
  protected:
    explicit Chains(const Settings& settings = kImpatient)
        : world(GetParam(), 3, settings),
          near(world.peer(0)),
          far(world.peer(1)),
          endpoint(&world.connect(0, 1)) {}

    void SetUp() override {
        constexpr uint32_t kBoth = kPutChain | kGetChain;
        if ((near.interface->attributes().capabilities & kBoth) != kBoth) {
            GTEST_SKIP() << "has no chains";
        }
    }

    // `count` pieces of two buffers, the remote ones from last to first.
    std::vector<ChainPiece> pieces(Buffer& local, Buffer& remote, size_t count) {
        const RemoteKey key = remote.key_for(near);
        const Iov whole = local.iov(0, local.size());
        std::vector<ChainPiece> list;
        for (size_t i = 0; i < count; ++i) {
            list.push_back({local.data() + i * kPiece, kPiece, whole.memory,
                            remote.address() + (count - 1 - i) * kPiece, key});
        }
        return list;
    }
    static std::string reversed(const std::string& text, size_t count) {
        std::string result;
        for (size_t i = count; i-- > 0;) result += text.substr(i * kPiece, kPiece);
        return result;
    }
    ssize_t post(bool put, std::span<const ChainPiece> list, Completion* completion) {
        return put ? endpoint->put_chain(list, completion) : endpoint->get_chain(list, completion);
    }
    // All of the list, with waiting for room; returns the number of chains.
    size_t post_all(bool put, std::span<const ChainPiece> list, std::vector<Once>& completions) {
        size_t chains = 0;
        while (!list.empty()) {
            ssize_t taken = 0;
            world.until([&] {
                taken = post(put, list, &completions[chains]);
                return taken != 0;
            });
            EXPECT_GT(taken, 0);
            if (taken <= 0) break;
            list = list.subspan(static_cast<size_t>(taken));
            ++chains;
        }
        return chains;
    }
    // Chains may end in any order.
    static bool all_called(std::span<const Once> completions, size_t count) {
        return std::ranges::all_of(completions.first(count),
                                   [](const Once& once) { return once.calls != 0; });
    }

    World world;
    Peer& near;
    Peer& far;
    Endpoint* endpoint;
};

}  // namespace uct::test
