// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/queues/history.h"

#include <string>

#include "unit/uct/world.h"

namespace uct::test {
namespace {

TEST(TcpHistory, KeepsWhatIsAskedForAndNoMore) {
    tcp::OutputPools pools(64);
    tcp::History history(pools);
    std::string all;
    for (size_t length : {1, 63, 64, 65, 200, 7}) {
        std::string bytes = pattern(length, static_cast<unsigned>(length));
        const iovec pieces[] = {{bytes.data(), length / 2},
                                {bytes.data() + length / 2, length - length / 2}};
        history.record(pieces, length);
        all += bytes;
    }
    EXPECT_FALSE(history.is_replaying());
    for (const size_t from : {0, 1, 64, 100, 393, 400}) {
        history.forget_until(from);
        ASSERT_TRUE(history.replay_from(from));
        std::string got;
        while (history.is_replaying()) {
            iovec pieces[3];
            const size_t count = history.gather(pieces);
            ASSERT_GT(count, 0u);
            size_t taken = 0;
            for (size_t i = 0; i < count; ++i) {
                got.append(static_cast<char*>(pieces[i].iov_base), pieces[i].iov_len);
                taken += pieces[i].iov_len;
            }
            history.replayed(taken);
        }
        EXPECT_EQ(got, all.substr(from));
        if (from > 0) {
            EXPECT_FALSE(history.replay_from(from - 1));
        }
        ASSERT_TRUE(history.replay_from(all.size()));
    }
    EXPECT_FALSE(history.replay_from(all.size() + 1));
    EXPECT_EQ(pools.copied.in_use(), 1u);  // the spare one
}

}  // namespace
}  // namespace uct::test
