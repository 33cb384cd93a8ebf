# SPDX-License-Identifier: BSD-3-Clause
"""Mutants of the budget of dedicated queue pairs (docs/design/lanes.md) and of how those for bulk are shared out
(docs/design/bulk.md), in the form of safety.py.
"""

BUDGET = "src/ucp/context/queue_pair_budget.cc"
CONTEXT = "src/ucp/context/context.cc"
LANES = "src/ucp/lanes/driver/lane_driver.cc"
ACTIONS = "src/ucp/lanes/driver/lane_actions.cc"
REVIEW = "src/ucp/bulk/queue_pairs/review.cc"
DRIVER = "src/ucp/bulk/queue_pairs/queue_pair_driver.cc"
SET = "src/ucp/bulk/queue_pairs/queue_pair_set.cc"

OF_BUDGET = (("ucp_test",), "*QueuePairBudget*:*QueuePairLimit*:*SharedQueuePairs*")
OF_BULK = (("bulk_test",), "*QueuePair*:*Scarce*")

MUTANTS = {
    # --- what there is
    "budget: an adapter has no limit": (
        BUDGET, {"if (take_one(count, found->second.most)) return": "if (take_one(count, UINT32_MAX)) return"}, *OF_BUDGET),
    "budget: a context has no limit": (
        BUDGET, {"if (!take_one(all_, most_)) return {};": "take_one(all_, UINT32_MAX);"}, *OF_BUDGET),
    "budget: what an adapter refuses is counted of the context": (
        BUDGET, {"    all_.taken.fetch_sub(1, std::memory_order_relaxed);\n": ""}, *OF_BUDGET),
    "budget: what was taken is not given back": (
        BUDGET, {"    count.taken.fetch_sub(1, std::memory_order_relaxed);\n": ""}, *OF_BUDGET),
    "budget: ports of an adapter count apart": (
        CONTEXT, {"const std::string adapter(adapter_of(domain.device));": "const std::string adapter(domain.device);"}, *OF_BUDGET),
    "budget: each process has all of an adapter": (
        CONTEXT, {"std::max<size_t>(most / processes, 1)": "std::max<size_t>(most, 1)"}, *OF_BUDGET),
    "budget: of many processes some have none": (
        CONTEXT, {"std::max<size_t>(most / processes, 1)": "most / processes"}, *OF_BUDGET),
    "budget: more than the adapter has": (
        CONTEXT, {"std::min<size_t>(config_.max_adapter_qps.value_or(kAtHand), room)": "config_.max_adapter_qps.value_or(kAtHand)"},
        *OF_BUDGET),
    # --- who stands back
    "budget: nobody hears what a lane lacks": (
        BUDGET, {"if (!is_taken && use == Use::kLane)": "if (false)"}, *OF_BUDGET),
    "budget: bulk is heard as lanes are": (
        BUDGET, {"if (!is_taken && use == Use::kLane)": "if (!is_taken)"}, *OF_BUDGET),
    "budget: what was given back is wanted on": (
        BUDGET, {"    count.is_wanted.store(false, std::memory_order_relaxed);\n": ""}, *OF_BUDGET),
    "budget: kept lanes stay": (
        LANES, {"    if (!kept_.empty() && interfaces_.is_lane_wanted()) [[unlikely]]\n        drop_wanted_lanes();\n": ""}, *OF_BUDGET),
    "budget: a kept lane stays where its device has no more": (
        ACTIONS, {"           interfaces_.share_an_adapter(lane.interface_index, endpoint(peer).dedicated_index());\n": "           endpoint(peer).serial() == 0;\n"},
        *OF_BUDGET),
    "budget: bulk does not give way to lanes": (
        DRIVER, {"        if (held_ != 0 && interfaces_.is_lane_wanted()) [[unlikely]]\n            give_way();\n": ""}, *OF_BULK),
    "budget: bulk takes what lanes may need": (
        DRIVER, {"    return options_.total - std::min(options_.total, options_.lane_cap);\n": "    return options_.total;\n"}, *OF_BULK),
    "budget: the first takes all": (
        DRIVER, {"return left > later ? left - later : 1;": "return left + 0 * later;"}, *OF_BULK),
    "budget: what others have is counted on": (
        DRIVER, {"limit(), room = interfaces_.queue_pair_room();\n": "limit(), room = UINT32_MAX;\n"}, *OF_BULK),
    # --- how it is shared out
    "review: who holds more is due as much again": (
        REVIEW, {"std::tuple(claim.worth / (due[index] + 1),": "std::tuple(claim.worth,"}, *OF_BULK),
    "review: of equals anybody is due": (
        REVIEW, {"claim.held > due[index],": "false,"}, *OF_BULK),
    "review: more are due than full": (
        REVIEW, {"            if (due[index] == claims[index].full) continue;\n": ""}, *OF_BULK),
    "review: a step beside another": (
        REVIEW, {"        if (claim.state == Claim::State::kMoving) return {};\n": ""}, *OF_BULK),
    "review: a step before the last one could show": (
        REVIEW, {"        if (!claim.is_settled) continue;\n": ""}, *OF_BULK),
    "review: who would get no more is asked": (
        REVIEW, {"            if (has_room && !claim.can_grow) continue;\n": ""}, *OF_BULK),
    "review: whoever comes first opens": (
        REVIEW, {"opening == claims.size() || claim.worth > claims[opening].worth;": "opening == claims.size();"}, *OF_BULK),
    "review: the best of those that have too many loses": (
        REVIEW, {"last_value(claim) < last_value(claims[losing])": "last_value(claim) > last_value(claims[losing])"}, *OF_BULK),
    "review: any gain is enough": (
        REVIEW, {"constexpr double kMuchMore = 2;": "constexpr double kMuchMore = 0;"}, *OF_BULK),
    "review: nothing is given up where there is room": (
        REVIEW, {"    if (has_room) return {Kind::kGiveUp, lacking};\n": "    if (has_room) return {};\n"}, *OF_BULK),
    "review: a device that is full has more": (
        SET, {"               driver_.interfaces().queue_pair_room_of(rail.interface) != 0;\n": "               true;\n"}, *OF_BULK),
    "review: the peer's transfers do not count": (
        SET, {".worth = worth(now) + peer_worth,": ".worth = worth(now),"}, *OF_BULK),
}
