# SPDX-License-Identifier: BSD-3-Clause
"""A mutant for each rule of docs/design/lanes.md: the rule is taken out, and the tests of the
negotiator, of its simulated clusters or its explored interleavings must notice. In the form of
safety.py; several mutants of one rule have a letter.
"""

BOARD = "src/ucp/lanes/scoreboard.cc"
RANKING = "src/ucs/datastruct/ranking.h"
NEGOTIATOR = "src/ucp/lanes/negotiator.cc"
AGREEMENT = "src/ucp/lanes/agreement.cc"
ROUNDS = "src/ucp/lanes/rounds.cc"
ROUNDS_HEADER = "src/ucp/lanes/rounds.h"
LINK = "src/ucp/lanes/link.h"
SWITCH = "src/ucp/lanes/switch.h"
KEPT = "src/ucp/lanes/kept_lanes.cc"
TESTS = ("lanes_test", "lanes_explore_test")

# rule: source, replacements
RULES = {
    "1: scores that moved are not said": (BOARD, {"    advertise(link);\n    say(link);\n}": "    advertise(link);\n}"}),
    "1, refresh: scores are not repeated": (BOARD, {"        link.advertised_at = now;\n        say(link);\n": "        link.advertised_at = now;\n"}),
    "1a: SCOREs are never held back": (BOARD, {"link.owes_score = unheard > Link::kMostUnheard && link.life == Link::Life::kOpen;": "link.owes_score = false;"}),
    "1a, answer: what was held back is never said": (BOARD, {"    link.owes_score = false;\n    send_score(link);\n}": "    link.owes_score = false;\n}"}),
    "1b: all that moves is said": (BOARD, {"is_denied(link, local) || is_far(link, local);": "is_denied(link, local);"}),
    "1c: all moves of a denied link are said": (BOARD, {"is_denied(link, local) || is_far": "is_far"}),
    "2: low scores count": (BOARD, {"return counts(link.local) ? link.local : 0;": "return link.local;"}),
    "2, bound: records without number": (NEGOTIATOR, {"if (links_.size() >= state_.config.max_links && ": "if (false && "}),
    "3: what is not repeated stands for ever": (BOARD, {"is_pinned(link.remote) ? 0 : link.remote / 2;": "link.remote;"}),
    "3, hold: silence counts at once": (BOARD, {"std::max(state_.config.hold, state_.config.stale_after)": "state_.config.stale_after"}),
    "3, late: who looked late blames the peer": (BOARD, {"if (now >= link.remote_due + config.refresh) {": "if (false) {"}),
    "4: incumbents have no advantage": (RANKING, {"with_margin(rank.score, options_.margin_permille)": "rank.score"}),
    "4a: doubt keeps nobody out": (NEGOTIATOR, {"score -= std::min(score, measured.doubt);": ";"}),
    "5: trickle takes the last slots": (RANKING, {"if (options_.trickle_ratio == 0 || worthy_ <= enough)": "if (true)"}),
    "5, least: any score earns a free slot": (RANKING, {"Rank floor{admission(), {}};": "Rank floor{};"}),
    "5, cold: nobody is demoted for little": (RANKING, {"worst == nullptr || worst->standing.rank.score >= least) return true;": "true) return true;"}),
    "5, many: all cold links go at once": (NEGOTIATOR, {"demote_cold(*this, moves_left_)": "demote_cold(*this, SIZE_MAX)"}),
    "6: several requests at a time": (NEGOTIATOR, {"(outstanding() == nullptr || yields_request())": "true"}),
    "7: the asker's floor does not count": (AGREEMENT, {"link.rank() <= floor || link.rank() <= asked.floor": "link.rank() <= floor"}),
    "7, own: the own floor does not count": (AGREEMENT, {"link.rank() <= floor || link.rank() <= asked.floor": "link.rank() <= asked.floor"}),
    "8: a lane is made before its slot is free": (NEGOTIATOR, {"    if (held() < state_.config.cap) return true;\n    Ranking": "    return true;\n    Ranking"}),
    "9: links on their way up are victims": (BOARD, {": link.is_overdue();": ": true;"}),
    "10: nobody waits for the own answer": (AGREEMENT, {"if (Rank{link.deferred->estimate, link.id()} > Rank{own.estimate, own.id()}) {": "if (false) {"}),
    "10, all: everybody waits for it": (AGREEMENT, {"if (Rank{link.deferred->estimate, link.id()} > Rank{own.estimate, own.id()}) {": "if (true) {"}),
    "10, order: the worst is answered first": (AGREEMENT, {"return one->rank() < other->rank();": "return one->rank() > other->rank();"}),
    "10a: each message is decided on by itself": (NEGOTIATOR, {"    Event event(*this);\n    is_unsettled_ = true;": "    Event event(*this);\n    is_unsettled_ = false;"}),
    "10a, scores: decisions before the last score": (NEGOTIATOR, {"scores_are_partial_ = !are_all;": "scores_are_partial_ = false;"}),
    "10b, lanes: one call makes all that are agreed": (NEGOTIATOR, {"if (!find_slot(link) || !may_move(kMovesOfALane)) return;": "if (!find_slot(link)) return;"}),
    "10b, all: an event moves any number of links": (NEGOTIATOR, {"    moves_left_ -= moves;\n": ""}),
    "11: both answer crossing requests": (AGREEMENT, {"        if (link.low_end) return;  // crossing: the other end answers ours\n": ""}),
    "11, none: nobody answers crossing requests": (AGREEMENT, {"if (link.low_end) return;  // crossing": "return;  // crossing"}),
    "12: a floor does not expire": (AGREEMENT, {"if (state_.now >= link.retry_at) return true;": "if (state_.now >= link.retry_at && !link.denied_floor) return true;"}),
    "12, wanted: a request ends no back-off": (AGREEMENT, {"if (link.rank() > message.floor) {": "if (false) {"}),
    "12, grown: growth ends no back-off": (BOARD, {"    if (link.denials == 0 ||\n": "    if (true ||\n"}),
    "12, doubling: the back-off stays": (ROUNDS, {"std::min(link.denials, 30u);": "0;"}),
    "12, jitter: equals move in step": (ROUNDS, {"return delay / 1024 * ((hash >> 40) % 512);": "return 0 * hash * delay;"}),
    "13: a worker without a record is silent": (NEGOTIATOR, {"                state_.actions.send(peer, std::move(denial));\n": ""}),
    "13, withdrawn: nobody answers what was withdrawn": (AGREEMENT, {"        drop_deferred(link);\n        deny(link, message.epoch, DenyReason::kBusy, {});\n        return UCS_OK;": "        drop_deferred(link);\n        return UCS_OK;"}),
    "13, many: a worker without a record names no floor": (NEGOTIATOR, {"message.estimate < floor.score) {": "false) {"}),
    "14: WITHDRAW after READY": (NEGOTIATOR, {"        case LinkState::kConnecting:\n            rounds_.withdraw(link, why);": "        case LinkState::kConnecting:\n        case LinkState::kReady:\n            rounds_.withdraw(link, why);"}),
    "15: an end switches before the peer is ready": (ROUNDS, {"if (link.state != LinkState::kReady || link.round.peer != PeerStep::kReady) return;": "if (link.state != LinkState::kReady) return;"}),
    "16: the gate is open before MARK": (ROUNDS, {"    state_.actions.add<&Sink::start_tx_switch>": "    state_.actions.add<&Sink::open_rx_gate>(link.peer);\n    state_.actions.add<&Sink::start_tx_switch>"}),
    "17: a window without end": (SWITCH, {"(state_ != State::kMarking && room_ > 0);": "state_ != State::kMarking;"}),
    "17, grant: the peer's limit does not count": (ROUNDS, {"std::min(state_.config.window, message.window);": "state_.config.window;"}),
    "18: ordered messages pass DMARK": (NEGOTIATOR, {"return link->round.peer < Round::PeerStep::kDmark ? Order::kHold : Order::kDeliver;": "return Order::kDeliver;"}),
    "18, lost round: its messages are delivered": (NEGOTIATOR, {"if (!is_switched) return Order::kDrop;": "if (!is_switched) return Order::kDeliver;"}),
    "19: acknowledgements wait behind a stopped direction": (ROUNDS, {"            state_.actions.send(link, MessageType::kMarkAck);\n": "            if (round.direction.tx.may_post()) state_.actions.send(link, MessageType::kMarkAck);\n"}),
    "20: FLUSHED before the own flush": (ROUNDS, {"if (round.flushed) state_.actions.send(link, MessageType::kFlushed);": "state_.actions.send(link, MessageType::kFlushed);"}),
    "20, DMARK_ACK: FLUSHED before it": (ROUNDS, {"if (link.round.is_drained()) state_.actions.send(link, MessageType::kFlushed);": "state_.actions.send(link, MessageType::kFlushed);"}),
    "20, peer: a lane goes before the peer's FLUSHED": (LINK, {"return is_drained() && peer == PeerStep::kFlushed;": "return is_done();"}),
    "21: DMARK leaves the other direction": (ROUNDS, {"            if (state != LinkState::kDemoting) demote(link, Reason::kPeer);\n": ""}),
    "21, late: DMARK before the own MARK is posted is refused": (ROUNDS, {"if (state == LinkState::kSwitching && !may_demote(link)) {": "if (state == LinkState::kSwitching && !may_demote(link)) break;\n            if (false) {"}),
    "21, after: nobody follows when MARK is posted": (ROUNDS, {"if (link.state != LinkState::kSwitching || round.peer != PeerStep::kDmark) return;": "return;"}),
    "22: a lane that fails is no error": (ROUNDS, {"    } else if (link.round.lane == Lane::kConnected) {\n        fail(link, status);": "    } else if (link.round.lane == Lane::kConnected) {\n        release(link, Reason::kFailed);"}),
    "22, done: a lane that fails after all is an error": (ROUNDS, {"link.round.lane == Lane::kConnected && link.round.is_done()) {": "false) {"}),
    "23: nobody asks who does not answer": (NEGOTIATOR, {"    state_.actions.send(link, MessageType::kPing);\n": ""}),
    "23, seldom: sleepers are asked all the time": (ROUNDS, {"std::min(link.pings, kMostDoublings);": "0;"}),
    "23, request: is never withdrawn": (NEGOTIATOR, {"link.pings >= state_.config.request_pings) {": "false) {"}),
    "24: a dead peer's slot stays": (NEGOTIATOR, {"    if (link->state != LinkState::kReleasing) rounds_.release(*link, Reason::kDied);\n": ""}),
    "24, waiting: those who waited stay unanswered": (NEGOTIATOR, {"    if (link == nullptr) return;\n    drop_deferred(*link);": "    if (link == nullptr) return;"}),
    "25: nobody hears that a link is closed": (ROUNDS, {"    if (link.life == Link::Life::kClosing) state_.actions.add<&Sink::closed>(link.peer);\n": ""}),
    "25, demotion: a lane outlives its endpoint": (NEGOTIATOR, {"        if (link.life == Link::Life::kClosing) {\n            rounds_.demote(link, Reason::kClosing);\n        } else if": "        if"}),
    "26: everybody is in every round": (NEGOTIATOR, {"is_known ? MessageType::kPong : MessageType::kGone;": "MessageType::kPong;"}),
    "26, GONE: nobody heeds it": (NEGOTIATOR, {"            } else if (in_round(link.state)) {\n                rounds_.on_lost(link);": "            } else if (false) {"}),
    "27: an established link never asks": (ROUNDS, {"link.timer = state_.now + (config.stale_after << doublings);": "link.timer = kNever;"}),
    "28: nobody is overdue": (LINK, {"return patience == Patience::kOver;": "return false;"}),
    "28, twice: patience ends once": (ROUNDS, {"if (link.patience == Link::Patience::kFirst) {": "if (false) {"}),
    "28, candidate: an overdue request stands back for nobody": (AGREEMENT, {"if (!own.is_overdue()) return false;": "return false;"}),
    "29: a victim withdraws after READY": (ROUNDS, {"        case LinkState::kCommitted:\n        case LinkState::kConnecting:\n            withdraw": "        case LinkState::kCommitted:\n        case LinkState::kReady:\n        case LinkState::kConnecting:\n            withdraw"}),
    "29, yield: a victim that went on stays": (ROUNDS, {"    if (link.round.slot != Slot::kOwn) demote(link, Reason::kOutranked);\n": ""}),
    "30: no lane is parked": (ROUNDS_HEADER, {"return link.is_leaving() && link.is_overdue();": "return false;"}),
    "30, most: any number is parked": (ROUNDS, {"return taken < state_.config.max_parked || kept_.drop_oldest();": "return true;"}),
    "31: sleepers go first": (AGREEMENT, {"return awake != nullptr ? awake : worst;": "return worst;"}),
    "31, margin: a better one goes before a sleeper": (AGREEMENT, {"member.standing.rank <= highest &&": "true &&"}),
    "31a: a full lane is not left": (NEGOTIATOR, {"    rounds_.demote(*link, Reason::kFull);\n": ""}),
    "32: no lane is kept": (ROUNDS, {"if (kept_.is_on() && !link.round.broken) {": "if (false) {"}),
    "32, broken: a broken lane is kept": (ROUNDS, {"if (kept_.is_on() && !link.round.broken) {": "if (kept_.is_on()) {"}),
    "33: one end takes back what the other has not": (AGREEMENT, {"if (kept_.epoch_of(link.id()) == asked.kept) message.kept": "message.kept"}),
    "33, alone: what one end alone has stays": (ROUNDS, {"    if (kept == 0) kept_.drop(link.id());\n": ""}),
    "34: a lane that was named may go": (ROUNDS, {"            kept_.pin(link.id());\n": "            ;\n"}),
    "35: a lane is taken back above the cap": (NEGOTIATOR, {"if (!find_slot(link) || !may_move(kMovesOfALane)) return;": "if ((link.round.kept == 0 && !find_slot(link)) || !may_move(kMovesOfALane)) return;"}),
    "36: kept lanes have no limit": (ROUNDS, {"parked_ + kept_.size() > state_.config.max_parked && kept_.drop_oldest()": "false"}),
    "36, place: a kept lane keeps others from parking": (ROUNDS, {"return taken < state_.config.max_parked || kept_.drop_oldest();": "return taken < state_.config.max_parked;"}),
    "36, want: a kept lane keeps others from being made": (ROUNDS, {"if (link.state == LinkState::kCreating && has_made_room()) {": "if (false) {"}),
    "36, adapter: one of another adapter goes as well": (KEPT, {"        if (!sink_.makes_room(peer_of(link), peer)) continue;\n": ""}),
    "36, memory: it goes for no lack of memory": (ROUNDS, {"return status == UCS_ERR_NO_MEMORY && kept_.drop_oldest();": "return false;"}),
    "36, time: kept lanes are kept for ever": (KEPT, {"if (deadline() <= state_.now) drop_oldest();": ""}),
}
MUTANTS = {f"rule {rule}": (*mutant, TESTS, "*") for rule, mutant in RULES.items()}
