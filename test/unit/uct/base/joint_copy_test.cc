// SPDX-License-Identifier: BSD-3-Clause
#include "uct/base/joint_copy.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "ucs/sys/sanitizer.h"
#include "unit/uct/base/copy_group.h"
#include "unit/uct/child.h"

namespace uct::test {
namespace {

constexpr size_t kChunk = 64 * 1024;  // of copies of less than 1 MiB

// The same process is owner and partner, if nothing else is said.
class JointCopyTest : public testing::Test {
  protected:
    ~JointCopyTest() override {
        EXPECT_EQ(board.open.load(), 0u);
        munmap(&board, sizeof(board));
    }

    void fill(size_t length) {
        here.resize(length);
        for (size_t i = 0; i < length; ++i) here[i] = static_cast<char>(i * 7 + i / 4096);
        there.assign(length, 't');
    }
    JointCopyTerms terms(CopyDirection direction = CopyDirection::kPut) {
        return {.owner = ucs::Process::self(),
                .local = reinterpret_cast<uint64_t>(here.data()),
                .remote = reinterpret_cast<uint64_t>(there.data()),
                .length = here.size(),
                .chunk = 0,
                .key = 5,
                .key_slot = 3,
                .direction = direction};
    }
    JointCopy offer(CopyDirection direction = CopyDirection::kPut) {
        return {board, terms(direction), ucs::Process::self()};
    }
    // The owner's next chunk. @return false: none is left
    bool copy_one(JointCopy& joint, CopyDirection direction = CopyDirection::kPut) {
        size_t offset, length;
        if (!joint.take(&offset, &length)) return false;
        EXPECT_LE(offset + length, here.size());
        const bool is_put = direction == CopyDirection::kPut;
        const ucs::IgnoredByThreadSanitizer stands_for_a_peer;
        std::memcpy((is_put ? there : here).data() + offset,
                    (is_put ? here : there).data() + offset, length);
        return true;
    }
    static bool may_copy(const void* self, const JointCopyTerms& terms) {
        const auto& test = *static_cast<const JointCopyTest*>(self);
        return test.is_allowed && terms.key == 5 && terms.key_slot == 3;
    }
    size_t free_places() const {
        size_t count = 0;
        for (const JointCopyOffer& place : board.places) count += place.owner == 0;
        return count;
    }

    JointCopyBoard& board = shared<JointCopyBoard>();
    bool is_allowed = true;
    JointCopyPartner partner{may_copy, this};
    std::string here, there;
};

TEST_F(JointCopyTest, OfAnyShareOfBothIsWhole) {
    std::mt19937 random(1);
    for (const CopyDirection direction : {CopyDirection::kPut, CopyDirection::kGet}) {
        for (const size_t length :
             {JointCopy::kLeast, 5 * kChunk + 1, size_t{3} << 20, (size_t{3} << 20) + 5}) {
            for (int share = 0; share <= 4; ++share) {  // of the partner, in quarters
                fill(length);
                JointCopy joint = offer(direction);
                ASSERT_TRUE(joint);
                size_t helped = 0;
                bool is_left = true;
                while (is_left) {
                    if (static_cast<int>(random() % 4) < share) helped += partner.help(board, 1);
                    if (share < 4 || helped >= length - kChunk)
                        is_left = copy_one(joint, direction);
                }
                EXPECT_EQ(joint.own_bytes() + helped, length);
                EXPECT_EQ(joint.look(), UCS_OK);
                EXPECT_FALSE(joint);
                EXPECT_TRUE(here == there) << length << " bytes, share " << share;
                EXPECT_EQ(free_places(), JointCopyBoard::kPlaces);
            }
        }
    }
}

TEST_F(JointCopyTest, WhatThePartnerMayNotCopyTheOwnerDoes) {
    fill(8 * kChunk);
    JointCopy joint = offer();
    EXPECT_EQ(partner.help(board, kChunk), kChunk);
    EXPECT_TRUE(copy_one(joint));
    is_allowed = false;
    EXPECT_EQ(partner.help(board, 8 * kChunk), 0u);
    EXPECT_FALSE(copy_one(joint)) << "what has failed once is not gone on with";
    EXPECT_EQ(joint.look(), UCS_ERR_REJECTED);
    EXPECT_EQ(joint.own_bytes(), kChunk);
    EXPECT_TRUE(there.substr(kChunk, 6 * kChunk) == std::string(6 * kChunk, 't'));
}

TEST_F(JointCopyTest, AddressesThatAreNoneFailTheCopyAlone) {
    fill(4 * kChunk);
    JointCopyTerms nowhere = terms();
    nowhere.local = 4096;
    JointCopy joint(board, nowhere, ucs::Process::self());
    EXPECT_EQ(partner.help(board, kChunk), 0u);
    EXPECT_FALSE(copy_one(joint));
    EXPECT_EQ(joint.look(), UCS_ERR_REJECTED);
    JointCopy next = offer();
    EXPECT_EQ(partner.help(board, kChunk), kChunk) << "the next copy is another matter";
}

TEST_F(JointCopyTest, NonsenseOnTheBoardCopiesNothing) {
    fill(4 * kChunk);
    int number = 0;
    const auto with = [&](auto change) {
        JointCopy joint = offer();
        JointCopyOffer& place = board.places[ucs::Process::self().pid % JointCopyBoard::kPlaces];
        change(place);
        EXPECT_EQ(partner.help(board, SIZE_MAX), 0u) << number;
        EXPECT_TRUE(there == std::string(4 * kChunk, 't')) << number;
        ++number;
        place.left = static_cast<uint32_t>(place.chunks & 0xfffff);
    };
    with([](JointCopyOffer& place) { place.terms.chunk = 0; });
    with([](JointCopyOffer& place) { place.terms.chunk = SIZE_MAX; });
    with([](JointCopyOffer& place) { place.terms.length = 0; });
    with([](JointCopyOffer& place) { place.terms.key = 6; });
    // Who has the number now is another process than the one that had it.
    const Child other([] {});
    with([&](JointCopyOffer& place) {
        place.terms.owner = {static_cast<uint32_t>(other.pid()), place.terms.owner.start_time - 1};
    });
    with([](JointCopyOffer& place) { place.chunks = place.chunks | 0xfffff; });
    board.open = ~uint64_t{0};
    EXPECT_EQ(partner.help(board, SIZE_MAX), 0u);
    board.open = 0;
}

TEST_F(JointCopyTest, ThereIsRoomForSoMany) {
    fill(JointCopy::kLeast);
    std::vector<JointCopy> all;
    for (size_t i = 0; i < JointCopyBoard::kPlaces; ++i) all.push_back(offer());
    for (const JointCopy& joint : all) EXPECT_TRUE(joint);
    EXPECT_FALSE(offer());
    EXPECT_EQ(partner.help(board, SIZE_MAX), JointCopyBoard::kPlaces * here.size());
    all.pop_back();
    EXPECT_TRUE(offer());
}

TEST_F(JointCopyTest, PlacesOfTheDeadAreTakenOver) {
    fill(JointCopy::kLeast);
    Child child([&] {
        for (size_t i = 0; i < JointCopyBoard::kPlaces; ++i) {
            JointCopyTerms its = terms();
            its.owner = *ucs::Process::find(static_cast<uint32_t>(getpid()));
            new JointCopy(board, its, ucs::Process::self());
        }
    });
    EXPECT_FALSE(offer());
    child.kill();
    EXPECT_EQ(partner.help(board, SIZE_MAX), 0u) << "copied for a dead process";
    EXPECT_TRUE(there == std::string(here.size(), 't'));
    // In one of them the partner is at work yet.
    board.places[(ucs::Process::self().pid + 15) % JointCopyBoard::kPlaces].left -= 1;
    EXPECT_FALSE(offer());
    board.places[(ucs::Process::self().pid + 15) % JointCopyBoard::kPlaces].left += 1;
    {
        JointCopy joint = offer();
        EXPECT_TRUE(joint);
        EXPECT_EQ(partner.help(board, SIZE_MAX), here.size());
    }
    child.reap();
    board.open = 0;
}

TEST_F(JointCopyTest, APartnerThatDiesInAChunkFailsTheCopy) {
    fill(JointCopy::kLeast);
    const pid_t pid = fork();
    if (pid == 0) {
        JointCopyPartner its(
            [](const void*, const JointCopyTerms&) { return kill(getpid(), SIGKILL) == 0; },
            nullptr);
        for (;;) its.help(board, 1);
    }
    JointCopy joint(board, terms(), *ucs::Process::find(static_cast<uint32_t>(pid)));
    siginfo_t info;
    waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT);
    EXPECT_TRUE(copy_one(joint));
    EXPECT_FALSE(copy_one(joint));
    ucs_status_t status = UCS_INPROGRESS;
    for (int i = 0; i < 1000000 && status == UCS_INPROGRESS; ++i) status = joint.look();
    EXPECT_EQ(status, UCS_ERR_ENDPOINT_TIMEOUT);
    waitpid(pid, nullptr, 0);
}

// One thread is the partner, and this one withdraws its copies at any time: from then on its memory
// is its own.
TEST_F(JointCopyTest, NothingIsCopiedAfterWithdrawal) {
    fill(4 * kChunk);
    std::atomic<bool> ends = false;
    std::thread other([&] {
        JointCopyPartner its(may_copy, this);
        while (!ends) its.help(board, kChunk);
    });
    std::mt19937 random(2);
    for (int round = 0; round < 300; ++round) {
        JointCopy joint = offer(CopyDirection::kGet);
        const unsigned chunks = random() % 3;
        for (unsigned i = 0; i < chunks; ++i) copy_one(joint, CopyDirection::kGet);
        const JointCopyOffer& place =
            board.places[ucs::Process::self().pid % JointCopyBoard::kPlaces];
        while ((place.chunks & 0xfffff) == 4) std::this_thread::yield();  // the partner has one
        joint.withdraw();
        std::memset(here.data(), 'x', here.size());
        for (unsigned wait = random() % 1000; wait > 0; --wait) asm volatile("" ::: "memory");
        ASSERT_EQ(here.find_first_not_of('x'), std::string::npos) << "round " << round;
    }
    ends = true;
    other.join();
}

}  // namespace
}  // namespace uct::test
