/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Negotiation and switch between N workers at cap 1, states and messages named as in src/ucp/lanes.
 * docs/design/lanes.md numbers the rules; a BAD_* flag leaves one out and must be found out.
 *
 * Simplified: a lane is made and destroyed at once; a marker is posted at once (switch.pml has the
 * window and the queues); what is advertised is the local score itself. Time is abstract: the back-off of
 * a denied link is over when something has changed at the denier, since before that the answer would be
 * the same.
 *
 * Parameters: N (2, 3), MARGIN, SCORES (changes of a local score), PUTS, DATA (messages each way on link 0-1),
 * DEMOTIONS (unasked), WITHDRAWALS, DEATH (the worker that dies at some moment), KNOWN (scores advertised),
 * FORGETS (rounds that an end loses, and lives), SLEEP (the worker that makes no progress for a while, or for
 * ever, from any moment on: who waits for it loses its patience then, rules 28 to 30), MAX_PARKED. PING is not
 * modelled, but that GONE may answer one at any moment.
 */
#ifndef N
#define N 2
#endif
#ifndef MARGIN
#define MARGIN 0
#endif
#ifndef SCORES
#define SCORES 0
#endif
#ifndef PUTS
#define PUTS 0
#endif
#ifndef DATA
#define DATA 0
#endif
#ifndef DEMOTIONS
#define DEMOTIONS 0
#endif
#ifndef WITHDRAWALS
#define WITHDRAWALS 0
#endif
#ifndef FORGETS
#define FORGETS 0
#endif

#ifndef MAX_PARKED
#define MAX_PARKED 1
#endif

#define AT(a, b) ((a) * N + (b))
#define NOBODY N

/* LinkState; Creating and Releasing pass at once and do not appear. */
#define Idle 0
#define Requested 1
#define Withdrawing 2
#define Committed 3
#define Connecting 4
#define Ready 5
#define Switching 6
#define Established 7
#define Demoting 8

/* Round::PeerStep: each comes after the one before. */
#define StepLane 1
#define StepReady 2
#define StepMark 3
#define StepDmark 4
#define StepFlushed 5
#define STEP(x, s) assert(peer_step[x] + 1 == s); peer_step[x] = s

/* Round::Acknowledged */
#define AckMark 1
#define AckDmark 2
#define ACKNOWLEDGE(x, s) assert(acknowledged[x] + 1 == s); acknowledged[x] = s

/* TxDirection */
#define Scalable 0
#define Dedicated 1
#define Stopped 2

mtype = { SCORE, REQUEST, ACCEPT, DENY, WITHDRAW, LANE, READY, MARK, MARK_ACK, DMARK, DMARK_ACK,
          FLUSHED, GONE, MESSAGE };

chan scalable[N * N] = [9] of { mtype, byte, byte, byte, byte }; /* type, epoch, local score, and two more */
chan dedicated[N * N] = [4] of { mtype, byte };

byte state[N * N], tx[N * N], local_score[N * N], remote_score[N * N];
byte epoch[N * N], estimate[N * N];
byte peer_step[N * N], acknowledged[N * N]; /* of the round, as in Round of src/ucp/lanes/link.h */
bool flushed_sent[N * N];
bool put[N * N];                                   /* a one-sided operation under way */
bool deferred[N * N], denied[N * N], over[N * N];  /* over: the back-off is */
byte deferred_epoch[N * N], deferred_floor[N * N];
#ifdef BAD_THRESHOLD
byte threshold[N * N];
#endif
bool overdue[N * N], yields[N * N], parked[N * N];
byte sent[N * N], delivered[N * N];
bool asleep[N], has_slept, wakes;
bool dead[N], noticed[N * N], said_gone[N * N];
byte scores_changed = 0, puts_made = 0, demotions_made = 0, withdrawals_made = 0, forgotten = 0;

/* Rank: the agreed score first, the link's number among equals. 0: nothing to rank. */
#define SUM(a, b) (local_score[AT(a, b)] + remote_score[AT(a, b)])
#define NUMBER(a, b) ((a) + (b) - 1)
#define RANK(a, b) (SUM(a, b) == 0 -> 0 : SUM(a, b) * 4 + NUMBER(a, b) + 1)
#define WITH_MARGIN(r) ((r) + 4 * MARGIN)
#define BUSY 255

#define IN_ROUND(a, b, e) \
    (state[AT(a, b)] != Idle && epoch[AT(a, b)] == (e) || \
     deferred[AT(a, b)] && deferred_epoch[AT(a, b)] == (e))

#define GO(x, s) state[x] = s; overdue[x] = 0
/* Has a slot by agreement; and leaves it for a better link. */
#define BOOKED(x) (state[x] >= Committed && state[x] <= Established && !yields[x])
#define INCUMBENT(x) (BOOKED(x) && (state[x] == Established || overdue[x]))

/* No own request keeps others waiting. */
#define CAN_ANSWER(a) (asked == NOBODY || overdue[AT(a, asked % N)])

inline send(a, b, type, e, x, y, z) {
    if
    :: noticed[AT(a, b)] || dead[b] -> skip
    :: else -> assert(nfull(scalable[AT(a, b)])); scalable[AT(a, b)]!type, e, x, y, z
    fi
}

/* What worker a has: asked (own request), rising (on its way up), victim (who leaves for a better one), leaving
   (whose slot only a peer who does not answer keeps), held (in slots), beside (parked). */
inline survey(a) {
    asked = NOBODY; rising = NOBODY; victim = NOBODY; leaving = NOBODY; held = 0; beside = 0; k = 0;
    do
    :: k < N ->
        if
        :: k == a -> skip
        :: else ->
            if
            :: state[AT(a, k)] == Requested -> asked = k
            :: INCUMBENT(AT(a, k)) -> victim = k
            :: BOOKED(AT(a, k)) && !INCUMBENT(AT(a, k)) -> rising = k
            :: else -> skip
            fi;
            if
            :: parked[AT(a, k)] -> beside++
            :: state[AT(a, k)] >= Connecting && !parked[AT(a, k)] ->
                held++;
                if
                :: overdue[AT(a, k)] && (state[AT(a, k)] == Demoting || yields[AT(a, k)]) -> leaving = k
                :: else -> skip
                fi
            :: else -> skip
            fi
        fi;
        k++
    :: else -> break
    od;
    own_floor = 0;
    if
    :: victim != NOBODY -> own_floor = WITH_MARGIN(RANK(a, victim))
    :: victim == NOBODY && rising != NOBODY -> own_floor = WITH_MARGIN(RANK(a, rising))
    :: else -> skip
    fi
}

/* Something changed at a: what it denied may be answered otherwise now. */
inline changed(a) {
    k = 0;
    do
    :: k < N -> over[AT(k, a)] = 1; k++
    :: else -> break
    od
}

inline deny(a, b, e, t) {
    over[AT(b, a)] = 0;
#ifdef BAD_THRESHOLD
    send(a, b, DENY, e, local_score[AT(a, b)], t, 0)
#else
    send(a, b, DENY, e, local_score[AT(a, b)], 0, 0)
#endif
}

inline demote(a, b) {
    GO(AT(a, b), Demoting); tx[AT(a, b)] = Stopped;
    if
    :: noticed[AT(a, b)] || dead[b] || !IN_ROUND(b, a, epoch[AT(a, b)]) -> skip
    :: else -> assert(nfull(dedicated[AT(a, b)])); dedicated[AT(a, b)]!DMARK, 0
    fi
}

inline start_round(y) {
    peer_step[y] = 0; acknowledged[y] = 0; flushed_sent[y] = 0;
    put[y] = 0; tx[y] = Scalable; yields[y] = 0; parked[y] = 0
}

/* Takes back the own request that is not answered. */
inline take_back(a, b) {
    denied[AT(a, b)] = 1; over[AT(a, b)] = 1;
#ifdef BAD_FORGET
    GO(AT(a, b), Idle);
#else
    GO(AT(a, b), Withdrawing);
#endif
    send(a, b, WITHDRAW, epoch[AT(a, b)], 0, 0, 0)
}

/* Leaves a round in which this end has not sent READY. */
inline leave(a, b) {
    send(a, b, WITHDRAW, epoch[AT(a, b)], 0, 0, 0);
    denied[AT(a, b)] = 1; over[AT(a, b)] = 1;
    start_round(AT(a, b)); GO(AT(a, b), Idle)
}

/* An incumbent gives its slot up, in whatever state it is. */
inline give_up(a, b) {
    if
    :: state[AT(a, b)] == Established -> demote(a, b)
#ifdef BAD_LATE_WITHDRAW
    :: state[AT(a, b)] <= Ready -> leave(a, b)
    :: state[AT(a, b)] == Switching -> yields[AT(a, b)] = 1
#else
    :: state[AT(a, b)] <= Connecting -> leave(a, b)
    :: state[AT(a, b)] == Ready || state[AT(a, b)] == Switching -> yields[AT(a, b)] = 1
#endif
    fi
}

inline decide(a, b, e, asker_floor) {
    survey(a);
    if
    :: RANK(a, b) <= own_floor || RANK(a, b) <= asker_floor -> deny(a, b, e, own_floor)
    :: else ->
        if
        :: rising != NOBODY -> deny(a, b, e, BUSY)
        :: else ->
            start_round(AT(a, b)); epoch[AT(a, b)] = e;
            send(a, b, ACCEPT, e, local_score[AT(a, b)], 0, 0);
            if
            :: asked != NOBODY -> take_back(a, asked)
            :: else -> skip
            fi;
            if
            :: victim != NOBODY -> give_up(a, victim)
            :: else -> skip
            fi;
            GO(AT(a, b), Committed)
        fi
    fi
}

inline answer_deferred(a) {
    do
    :: survey(a);
        best = NOBODY; k = 0;
        do
        :: k < N ->
            if
            :: k != a && deferred[AT(a, k)] && CAN_ANSWER(a) ->
                if
                :: best == NOBODY -> best = k
                :: else ->
                    if
                    :: RANK(a, k) > RANK(a, best) -> best = k
                    :: else -> skip
                    fi
                fi
            :: else -> skip
            fi;
            k++
        :: else -> break
        od;
        if
        :: best == NOBODY -> break
        :: else ->
            deferred[AT(a, best)] = 0;
            decide(a, best, deferred_epoch[AT(a, best)], deferred_floor[AT(a, best)])
        fi
    od
}

/* Ends a round: the lane, if any, is destroyed. */
inline release(a, b) {
    start_round(AT(a, b)); GO(AT(a, b), Idle); changed(a)
}

/* What follows inside worker a, to a fixpoint. */
inline settle(a) {
    answer_deferred(a);
    t = 0;
    do
    :: t < N && t == a -> t++
    :: t < N && t != a ->
        x = AT(a, t);
        survey(a);
        if
        :: state[x] == Committed && held == 1 && leaving != NOBODY && beside < MAX_PARKED ->
#ifdef BAD_DROP
            release(a, leaving);
#else
            parked[AT(a, leaving)] = 1;
#endif
            survey(a)
        :: else -> skip
        fi;
        if
#ifdef BAD_OVERLAP
        :: state[x] == Committed ->
#else
        :: state[x] == Committed && held == 0 ->
#endif
            GO(x, Connecting);
            survey(a); assert(held <= 1 && beside <= MAX_PARKED);
            send(a, t, LANE, epoch[x], 0, 0, 0)
        :: else -> skip
        fi;
        if
        :: state[x] == Connecting && peer_step[x] >= StepLane ->
            GO(x, Ready); send(a, t, READY, epoch[x], 0, 0, 0)
        :: else -> skip
        fi;
        if
#ifdef BAD_NO_READY
        :: (state[x] == Ready || state[x] == Connecting && peer_step[x] >= StepLane) ->
#else
        :: state[x] == Ready && peer_step[x] == StepReady ->
#endif
            GO(x, Switching); tx[x] = Dedicated; send(a, t, MARK, epoch[x], 0, 0, 0)
        :: else -> skip
        fi;
        if
        :: state[x] == Switching && peer_step[x] == StepMark && acknowledged[x] == AckMark ->
            GO(x, Established); changed(a);
            if
            :: yields[x] -> demote(a, t)
            :: else -> skip
            fi
        :: else -> skip
        fi;
        if
        :: state[x] == Demoting && acknowledged[x] == AckDmark && !put[x] && !flushed_sent[x] ->
            flushed_sent[x] = 1; send(a, t, FLUSHED, epoch[x], 0, 0, 0)
        :: else -> skip
        fi;
        if
#ifdef BAD_LOCAL_FLUSH
        :: state[x] == Demoting && flushed_sent[x] && peer_step[x] >= StepDmark ->
#else
        :: state[x] == Demoting && flushed_sent[x] && peer_step[x] == StepFlushed ->
#endif
            assert(len(dedicated[AT(t, a)]) == 0);
            assert(!put[AT(t, a)] || dead[t]);
            release(a, t);
            t = 255 /* a slot came free: look again */
        :: else -> skip
        fi;
        t++
    :: else -> break
    od;
    t = 0
}

inline on_request(a, b) {
    survey(a);
#ifndef BAD_THRESHOLD
    if
    :: RANK(a, b) > p3 -> denied[AT(a, b)] = 0 /* the asker would take it */
    :: else -> skip
    fi;
#endif
    if
    :: state[AT(a, b)] == Requested || state[AT(a, b)] == Withdrawing ->
#ifdef BAD_CROSS
        deny(a, b, e, estimate[AT(a, b)])
#else
        if
        :: a < b -> skip /* the other end answers ours */
        :: else -> GO(AT(a, b), Idle); decide(a, b, e, p3); changed(a)
        fi
#endif
#if FORGETS > 0
    :: state[AT(a, b)] >= Committed -> deny(a, b, e, BUSY)
#endif
    :: else ->
#if FORGETS > 0
        deferred[AT(a, b)] = 0;
#endif
        assert(state[AT(a, b)] == Idle && !deferred[AT(a, b)]);
        if
        :: CAN_ANSWER(a) -> decide(a, b, e, p3)
        :: else ->
            if
#ifndef BAD_NO_DEFER
            :: p2 > estimate[AT(a, asked)] ->
                deferred[AT(a, b)] = 1; deferred_epoch[AT(a, b)] = e; deferred_floor[AT(a, b)] = p3
#endif
            :: else -> deny(a, b, e, BUSY)
            fi
        fi
    fi
}

#define CURRENT(a, b) (e == epoch[AT(a, b)])
#define ANSWERS(a, b) \
    (CURRENT(a, b) && (state[AT(a, b)] == Requested || state[AT(a, b)] == Withdrawing))
#define OF_ROUND(a, b) (CURRENT(a, b) && state[AT(a, b)] >= Committed)

inline lose(a, b) {
    do
    :: len(dedicated[AT(a, b)]) > 0 -> dedicated[AT(a, b)]?_, _
    :: len(dedicated[AT(b, a)]) > 0 -> dedicated[AT(b, a)]?_, _
    :: else -> break
    od;
    denied[AT(a, b)] = 0; deferred[AT(a, b)] = 0;
    release(a, b)
}

/* From Switching on the endpoint fails, and a new one takes its place. */
inline on_gone(a, b) {
    if
    :: CURRENT(a, b) && state[AT(a, b)] != Idle -> assert(forgotten > 0); lose(a, b)
    :: else -> skip
    fi
}

inline on_message(a, b) {
    if
    :: m == SCORE || m == REQUEST || ANSWERS(a, b) && (m == ACCEPT || m == DENY) ->
        if
        :: remote_score[AT(a, b)] != p1 -> remote_score[AT(a, b)] = p1; changed(a)
        :: else -> skip
        fi
    :: else -> skip
    fi;
    if
    :: m == SCORE -> skip
    :: m == REQUEST -> on_request(a, b)
    :: m == ACCEPT && ANSWERS(a, b) ->
        if
        :: state[AT(a, b)] == Withdrawing -> GO(AT(a, b), Idle)
        :: else ->
            survey(a);
            if
            :: victim != NOBODY -> give_up(a, victim)
            :: else -> skip
            fi;
            GO(AT(a, b), Committed);
            /* One that was overdue may have gone on meanwhile, and may not go any more. */
            if
            :: rising != NOBODY -> leave(a, b)
            :: else -> skip
            fi
        fi
    :: m == DENY && ANSWERS(a, b) ->
        GO(AT(a, b), Idle); denied[AT(a, b)] = 1; changed(a);
#ifdef BAD_THRESHOLD
        threshold[AT(a, b)] = p2
#endif
    :: m == WITHDRAW ->
        if
        :: deferred[AT(a, b)] && deferred_epoch[AT(a, b)] == e ->
            deferred[AT(a, b)] = 0; deny(a, b, e, BUSY)
        :: else ->
            if
            :: OF_ROUND(a, b) -> assert(state[AT(a, b)] <= Ready); release(a, b)
            :: else -> skip
            fi
        fi
    :: m == LANE && OF_ROUND(a, b) -> STEP(AT(a, b), StepLane)
    :: m == READY && OF_ROUND(a, b) -> STEP(AT(a, b), StepReady)
    :: m == MARK && OF_ROUND(a, b) ->
        STEP(AT(a, b), StepMark); send(a, b, MARK_ACK, e, 0, 0, 0)
    :: m == MARK_ACK && OF_ROUND(a, b) -> ACKNOWLEDGE(AT(a, b), AckMark)
    :: m == DMARK_ACK && OF_ROUND(a, b) ->
        assert(state[AT(a, b)] == Demoting);
        ACKNOWLEDGE(AT(a, b), AckDmark); tx[AT(a, b)] = Scalable
    :: m == FLUSHED && OF_ROUND(a, b) ->
        STEP(AT(a, b), StepFlushed)
    :: m == MESSAGE -> delivered[AT(b, a)]++; assert(p1 == delivered[AT(b, a)])
#if FORGETS > 0
    :: m == GONE -> said_gone[AT(b, a)] = 0; on_gone(a, b)
#endif
    :: else -> skip /* stale */
    fi;
    skip
}

/* From the dedicated lane, in order, once MARK has been received. */
inline on_dedicated(a, b) {
    if
    :: m == MESSAGE -> delivered[AT(b, a)]++; assert(p1 == delivered[AT(b, a)])
    :: m == DMARK ->
        assert(state[AT(a, b)] >= Switching);
        if
        :: state[AT(a, b)] != Demoting -> demote(a, b)
        :: else -> skip
        fi;
        STEP(AT(a, b), StepDmark);
        send(a, b, DMARK_ACK, epoch[AT(a, b)], 0, 0, 0); changed(a)
    fi;
    skip
}

inline on_peer_died(a, b) {
    noticed[AT(a, b)] = 1;
    do
    :: len(scalable[AT(b, a)]) > 0 -> scalable[AT(b, a)]?m, e, p1, p2, p3
    :: len(dedicated[AT(b, a)]) > 0 -> dedicated[AT(b, a)]?m, p1
    :: else -> break
    od;
    local_score[AT(a, b)] = 0; remote_score[AT(a, b)] = 0; deferred[AT(a, b)] = 0;
    release(a, b)
}

inline request(a, b) {
    survey(a);
    if
    :: asked != NOBODY -> take_back(a, asked)
    :: else -> skip
    fi;
    start_round(AT(a, b));
#if WITHDRAWALS > 0 || FORGETS > 0 || defined(SLEEP)
    round = (round + 1) % 4;
#endif
    epoch[AT(a, b)] = 2 * round + (a > b -> 1 : 0) + 1;
    estimate[AT(a, b)] = RANK(a, b);
    denied[AT(a, b)] = 0; GO(AT(a, b), Requested);
    send(a, b, REQUEST, epoch[AT(a, b)], local_score[AT(a, b)], RANK(a, b), own_floor)
}

inline forget_temporaries() {
    m = 0; e = 0; p1 = 0; p2 = 0; p3 = 0; k = 0; t = 0; x = 0; asked = 0; rising = 0; victim = 0;
    held = 0; own_floor = 0; best = 0; c = 0; leaving = 0; beside = 0
}

/* What nothing reads before it is written again must not make two states of one. */
inline forget_what_is_over(a) {
    k = 0;
    do
    :: k < N ->
        x = AT(a, k);
        if
        :: !deferred[x] -> deferred_epoch[x] = 0; deferred_floor[x] = 0
        :: else -> skip
        fi;
        if
        :: state[x] != Requested && state[x] != Withdrawing ->
            estimate[x] = 0;
            if
            :: !denied[x] -> over[x] = 1
            :: else -> skip
            fi
        :: else -> skip
        fi;
#if FORGETS == 0
        if
        :: state[x] == Idle -> epoch[x] = 0
        :: else -> skip
        fi;
#endif
        k++
    :: else -> break
    od
}

#ifdef BAD_THRESHOLD
#define MAY_RETRY(a, b) (!denied[AT(a, b)] || RANK(a, b) > threshold[AT(a, b)])
#else
#define MAY_RETRY(a, b) (!denied[AT(a, b)] || over[AT(a, b)])
#endif

#if N == 2
#define HAS_ROOM(a, b) (true)
#else
#define THIRD(a, b) ((2 * N - (a) - (b)) % N)
#define HAS_ROOM(a, b) \
    ((state[AT(a, THIRD(a, b))] != Requested || overdue[AT(a, THIRD(a, b))]) && \
     (!BOOKED(AT(a, THIRD(a, b))) || INCUMBENT(AT(a, THIRD(a, b))) && \
      RANK(a, b) > WITH_MARGIN(RANK(a, THIRD(a, b)))))
#endif
#define MAY_ASK(a, b) \
    (state[AT(a, b)] == Idle && !deferred[AT(a, b)] && RANK(a, b) > 0 && MAY_RETRY(a, b) && \
     HAS_ROOM(a, b))

#define KNOWS(c) (!dead[me] && !asleep[me] && c < N && c != me && !noticed[AT(me, (c) % N)])
#define OTHER ((1 - me) % N)
#define TALKS (me < 2 && !dead[me] && !asleep[me] && !noticed[AT(me, OTHER)])


/* An event: what may happen to the link to worker i. One of them is picked, then all that follows from it
   inside the worker is done. */
#define HEARS(i) (KNOWS(i) && len(scalable[AT((i) % N, me)]) > 0)
#define HEARS_DEDICATED(i) \
    (KNOWS(i) && len(dedicated[AT((i) % N, me)]) > 0 && peer_step[AT(me, (i) % N)] >= StepMark)
#define ASKS(i) (KNOWS(i) && MAY_ASK(me, (i) % N))
#define GIVES(i) \
    (KNOWS(i) && demotions_made < DEMOTIONS && state[AT(me, (i) % N)] == Established)
#define WITHDRAWS(i) \
    (KNOWS(i) && withdrawals_made < WITHDRAWALS && state[AT(me, (i) % N)] == Requested)
#define FORGETS_ONE(i) (KNOWS(i) && forgotten < FORGETS && epoch[AT(me, (i) % N)] != 0)
#define LACKS(i) \
    (KNOWS(i) && state[AT((i) % N, me)] != Idle && !said_gone[AT(me, (i) % N)] && \
     len(scalable[AT((i) % N, me)]) == 0 && !IN_ROUND(me, (i) % N, epoch[AT((i) % N, me)]))
/* Waits for somebody who sleeps. */
#define LOSES_PATIENCE(i) \
    (KNOWS(i) && asleep[(i) % N] && !overdue[AT(me, (i) % N)] && state[AT(me, (i) % N)] != Idle && \
     state[AT(me, (i) % N)] != Established)
#define MEASURES(i) (KNOWS(i) && scores_changed < SCORES)

#if N == 2
#define ANY(event) (event(0) || event(1))
#define PICK(event) if :: event(0) -> c = 0 :: event(1) -> c = 1 fi
#else
#define ANY(event) (event(0) || event(1) || event(2))
#define PICK(event) if :: event(0) -> c = 0 :: event(1) -> c = 1 :: event(2) -> c = 2 fi
#endif

inline measure(a, b) {
    scores_changed++;
    if
    :: local_score[AT(a, b)] != 0 -> local_score[AT(a, b)] = 0
    :: local_score[AT(a, b)] != 3 -> local_score[AT(a, b)] = 3
    fi;
    changed(a); send(a, b, SCORE, 0, local_score[AT(a, b)], 0, 0)
}

proctype Node(byte me) {
    mtype m;
    byte e, p1, p2, p3, k, t, x, asked, rising, victim, held, own_floor, best, round, c,
        leaving, beside;
    forget_temporaries();
end:
    do
    :: atomic {
        if
        :: ANY(HEARS) ->
            PICK(HEARS); scalable[AT(c, me)]?m, e, p1, p2, p3; on_message(me, c)
        :: ANY(HEARS_DEDICATED) ->
            PICK(HEARS_DEDICATED); dedicated[AT(c, me)]?m, p1; on_dedicated(me, c)
        :: ANY(ASKS) -> PICK(ASKS); request(me, c)
#if DEMOTIONS > 0
        :: ANY(GIVES) -> PICK(GIVES); demotions_made++; demote(me, c)
#endif
#if WITHDRAWALS > 0
        :: ANY(WITHDRAWS) -> PICK(WITHDRAWS); withdrawals_made++; take_back(me, c)
#endif
#if FORGETS > 0
        :: ANY(FORGETS_ONE) -> PICK(FORGETS_ONE); forgotten++; lose(me, c)
#ifndef BAD_NO_GONE
        :: ANY(LACKS) ->
            PICK(LACKS); said_gone[AT(me, c)] = 1; send(me, c, GONE, epoch[AT(c, me)], 0, 0, 0)
#endif
#endif
#ifdef SLEEP
#ifndef BAD_PATIENT
        :: ANY(LOSES_PATIENCE) -> PICK(LOSES_PATIENCE); overdue[AT(me, c)] = 1; changed(me)
#endif
        :: me == SLEEP && !has_slept -> has_slept = 1; asleep[me] = 1
        :: asleep[me] && wakes -> asleep[me] = 0
#endif
#if SCORES > 0
        :: ANY(MEASURES) -> PICK(MEASURES); measure(me, c)
#endif
#if DATA > 0
        :: TALKS && sent[AT(me, OTHER)] < DATA && tx[AT(me, OTHER)] == Scalable &&
            len(scalable[AT(me, OTHER)]) < 5 ->
            sent[AT(me, OTHER)]++; send(me, OTHER, MESSAGE, 0, sent[AT(me, OTHER)], 0, 0)
        :: TALKS && sent[AT(me, OTHER)] < DATA && tx[AT(me, OTHER)] == Dedicated &&
            len(dedicated[AT(me, OTHER)]) < 3 ->
            assert(state[AT(OTHER, me)] >= Ready || dead[OTHER]);
            sent[AT(me, OTHER)]++; dedicated[AT(me, OTHER)]!MESSAGE, sent[AT(me, OTHER)]
#endif
#if PUTS > 0
        :: TALKS && puts_made < PUTS && tx[AT(me, OTHER)] == Dedicated && !put[AT(me, OTHER)] ->
            puts_made++; put[AT(me, OTHER)] = 1
        :: TALKS && put[AT(me, OTHER)] && !dead[OTHER] ->
            assert(state[AT(OTHER, me)] >= Ready); put[AT(me, OTHER)] = 0
#endif
#ifdef DEATH
        :: me != DEATH && dead[DEATH] && !noticed[AT(me, DEATH)] -> on_peer_died(me, DEATH)
        :: me == DEATH && !dead[DEATH] -> dead[DEATH] = 1
#endif
        fi;
        if
        :: !dead[me] && !asleep[me] -> settle(me)
        :: else -> skip
        fi;
        forget_what_is_over(me);
        forget_temporaries()
    }
    od
}

/* --- what must hold once nothing can happen any more */
#define UP(a, b) (state[AT(a, b)] == Established)
#define ALIVE(a, b) (!dead[a] && !dead[b] && !asleep[a] && !asleep[b])
#define AGREE(a, b) \
    (!ALIVE(a, b) || UP(a, b) && UP(b, a) || state[AT(a, b)] == Idle && state[AT(b, a)] == Idle)
#define TRUE_SUM(a, b) (local_score[AT(a, b)] + local_score[AT(b, a)])
#define TRUE_RANK(a, b) (TRUE_SUM(a, b) == 0 -> 0 : TRUE_SUM(a, b) * 4 + NUMBER(a, b) + 1)
#if N == 2
#define BLOCKS(a, b, c) (ALIVE(a, b) && !UP(a, b) && TRUE_RANK(a, b) > 0)
#else
#define FLOOR_AT(a, c) (BOOKED(AT(a, c)) -> WITH_MARGIN(TRUE_RANK(a, c)) : 0)
#define BLOCKS(a, b, c) \
    (ALIVE(a, b) && !UP(a, b) && TRUE_RANK(a, b) > FLOOR_AT(a, c) && \
     TRUE_RANK(a, b) > FLOOR_AT(b, c))
#endif

proctype Monitor() {
    timeout ->
    assert(AGREE(0, 1) && !deferred[AT(0, 1)] && !deferred[AT(1, 0)]);
    assert(!BLOCKS(0, 1, 2));
    assert(!ALIVE(0, 1) || delivered[AT(0, 1)] == DATA && delivered[AT(1, 0)] == DATA);
#if N > 2
    assert(AGREE(0, 2) && AGREE(1, 2));
    assert(!deferred[AT(0, 2)] && !deferred[AT(2, 0)] && !deferred[AT(1, 2)] && !deferred[AT(2, 1)]);
    assert(!BLOCKS(0, 2, 1) && !BLOCKS(1, 2, 0));
#endif
#ifdef DEATH
    assert(DEATH == 0 || state[AT(0, DEATH)] == Idle);
    assert(DEATH == 1 || state[AT(1, DEATH)] == Idle);
#endif
    skip
}

#ifndef H01
#define H01 1
#define H10 1
#define H02 1
#define H20 2
#define H12 2
#define H21 0
#endif
init {
    atomic {
        local_score[AT(0, 1)] = H01; local_score[AT(1, 0)] = H10;
#if N > 2
        local_score[AT(0, 2)] = H02; local_score[AT(2, 0)] = H20;
        local_score[AT(1, 2)] = H12; local_score[AT(2, 1)] = H21;
#endif
#ifdef KNOWN
        remote_score[AT(0, 1)] = H10; remote_score[AT(1, 0)] = H01;
#if N > 2
        remote_score[AT(0, 2)] = H20; remote_score[AT(2, 0)] = H02;
        remote_score[AT(1, 2)] = H21; remote_score[AT(2, 1)] = H12;
#endif
#endif
#ifdef SLEEP
        if
        :: wakes = 1
        :: skip
        fi;
#endif
        run Node(0); run Node(1);
#if N > 2
        run Node(2);
#endif
        run Monitor()
    }
}
