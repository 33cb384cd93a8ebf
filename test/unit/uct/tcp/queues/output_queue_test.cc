// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/queues/output_queue.h"

#include <sys/mman.h>

#include <algorithm>
#include <string>
#include <vector>

#include "unit/uct/world.h"

namespace uct::test {
namespace {

// A queue over buffers of 64 bytes, and two that use it.
class TcpOutput : public testing::Test {
  protected:
    bool copy(std::string text, const tcp::AssociationUser* owner) {
        const iovec piece{text.data(), text.size()};
        return queue_.append({&piece, 1}, 0, owner);
    }
    // An operation whose payload stays where it is.
    void refer(std::string& text, const tcp::AssociationUser* owner, Completion* completion) {
        tcp::ReferringOutput* item = queue_.make();
        item->set_head('<');
        item->pieces[0] = {text.data(), text.size()};
        item->pieces_count = 1;
        item->owner = owner;
        item->completion = completion;
        queue_.append(item);
    }
    // What the kernel takes of at most `most` bytes.
    std::string send(size_t most = SIZE_MAX) {
        std::vector<iovec> pieces(16);
        const int count = queue_.gather(pieces, nullptr);
        std::string sent;
        for (int i = 0; i < count; ++i) {
            const iovec& piece = pieces[static_cast<size_t>(i)];
            sent.append(static_cast<const char*>(piece.iov_base), piece.iov_len);
        }
        sent.resize(std::min(sent.size(), most));
        tcp::OutputList done;
        queue_.consume(sent.size(), done);
        complete_all(pools_, done, UCS_OK);
        return sent;
    }

    tcp::OutputPools pools_{64};
    tcp::OutputQueue queue_{pools_};
    // Nobody looks into who has an operation.
    const char users_[2] = {};
    const tcp::AssociationUser* const one_ = user(0);
    const tcp::AssociationUser* const two_ = user(1);

  private:
    const tcp::AssociationUser* user(size_t index) const {
        return reinterpret_cast<const tcp::AssociationUser*>(&users_[index]);
    }
};

TEST_F(TcpOutput, GoesInOrderHoweverTheKernelCutsIt) {
    for (size_t cut = 1; cut < 12; ++cut) {
        std::string payload = "payload";
        Waiter waiter;
        ASSERT_TRUE(copy("first.", one_));
        refer(payload, one_, &waiter);
        ASSERT_TRUE(copy("last.", two_));
        EXPECT_EQ(queue_.bytes(), 19u);
        std::string sent;
        while (!queue_.empty()) {
            EXPECT_EQ(waiter.done, sent.size() >= 14) << sent;
            sent += send(cut);
        }
        EXPECT_EQ(sent, "first.<payloadlast.");
        EXPECT_EQ(queue_.bytes(), 0u);
    }
}

TEST_F(TcpOutput, CopiesOfOneOwnerShareABuffer) {
    for (int i = 0; i < 8; ++i) ASSERT_TRUE(copy("8 bytes.", one_));
    EXPECT_EQ(queue_.size(), 1u);
    ASSERT_TRUE(copy("8 bytes.", one_));
    EXPECT_EQ(queue_.size(), 2u) << "64 bytes are full";
    ASSERT_TRUE(copy("8 bytes.", two_));
    EXPECT_EQ(queue_.size(), 3u);
}

TEST_F(TcpOutput, AMarkerEndsWithWhatIsBeforeIt) {
    Waiter waiter;
    ASSERT_TRUE(copy("before", one_));
    ASSERT_TRUE(queue_.append_marker(one_, &waiter));
    ASSERT_TRUE(copy("behind", one_));
    send(5);
    EXPECT_FALSE(waiter.done);
    send(1);
    EXPECT_TRUE(waiter.done);
    EXPECT_EQ(send(), "behind");
}

TEST_F(TcpOutput, WhatIsForgottenIsNotSentNorAnythingOfItsOwnerBehindIt) {
    std::string half = "half", gone = "gone";
    Waiter first, second;
    refer(half, one_, &first);
    ASSERT_TRUE(copy("[one]", one_));
    refer(gone, one_, &second);
    ASSERT_TRUE(copy("[lost]", one_));
    ASSERT_TRUE(copy("[two]", two_));
    EXPECT_EQ(send(3), "<ha");
    tcp::OutputList removed;
    queue_.forget(one_, removed);
    complete_all(pools_, removed, UCS_ERR_CANCELED);
    EXPECT_TRUE(first.done && second.done);
    // The rest of a frame that has begun was copied: its memory may go.
    half = "????";
    EXPECT_EQ(queue_.bytes(), 12u);
    EXPECT_EQ(send(), "lf[one][two]");
}

TEST_F(TcpOutput, FindsTheOperationWhoseMemoryIsGone) {
    std::string good = "good";
    refer(good, one_, nullptr);
    void* const page = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(page, MAP_FAILED);
    tcp::ReferringOutput* bad = queue_.make();
    bad->set_head('<');
    bad->pieces[0] = {page, 4096};
    bad->pieces_count = 1;
    queue_.append(bad);
    EXPECT_EQ(queue_.find_unreadable(), bad);
    queue_.remove(*bad);
    pools_.destroy(bad);
    EXPECT_EQ(queue_.find_unreadable(), nullptr);
    EXPECT_EQ(send(), "<good");
    munmap(page, 4096);
}

}  // namespace
}  // namespace uct::test
