/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The lanes of one worker at cap 1, to LINKS peers of whom any may sleep at any moment, for a while or for
 * ever: one in the slot, others parked (rule 30) or kept (rules 35 and 36) in PLACES beside it. Links are agreed on,
 * or denied, and given up, ROUNDS times; a kept lane is offered, taken back, or, EXPIRIES times, dropped when its
 * time is over.
 *   BAD_ABOVE      35: a lane that is taken back does not wait for a free slot
 *   BAD_KEEP_ALL   36: kept lanes have no limit
 *   BAD_STAY       36: a lane that must be parked does not get the place of a kept one
 *   BAD_NO_UNPIN   34: a lane that a denied request has offered stays pinned
 *   BAD_PIN_LONG   34: one that a request which was taken back has offered is pinned until the peer answers
 */
#ifndef LINKS
#define LINKS 3
#endif
#ifndef PLACES
#define PLACES 1
#endif
#ifndef ROUNDS
#define ROUNDS 4
#endif
#ifndef EXPIRIES
#define EXPIRIES 1
#endif
#define NOBODY LINKS

mtype = { Idle, Requested, Withdrawing, Committed, Up, Demoting };

mtype state[LINKS] = Idle;
bool has_slot[LINKS], is_parked[LINKS], is_kept[LINKS], is_pinned[LINKS], asleep[LINKS];
byte age[LINKS];  /* of kept lanes: who was kept first has the least */
byte rounds, expiries, slots, beside, kept_so_far, i, oldest;

#define WAITS(l) (state[l] == Committed)
#define MAY_PARK(l) (state[l] == Demoting && has_slot[l] && asleep[l])

inline drop(l) { is_kept[l] = 0; is_pinned[l] = 0; age[l] = 0; beside-- }

/* Of those that nothing names. */
inline drop_oldest() {
    oldest = NOBODY; i = 0;
    do
    :: i < LINKS ->
        if
        :: is_kept[i] && !is_pinned[i] ->
            if
            :: oldest == NOBODY -> oldest = i
            :: oldest != NOBODY && age[i] < age[oldest % LINKS] -> oldest = i
            :: else
            fi
        :: else
        fi;
        i++
    :: else -> break
    od;
    if
    :: oldest != NOBODY -> drop(oldest)
    :: else
    fi;
    i = 0
}

inline take_slot(l) {
    if
    :: is_kept[l] -> drop(l)
    :: else
    fi;
    is_pinned[l] = 0; has_slot[l] = 1; slots++; state[l] = Up
}

/* The lane leaves the slot, so that `next` gets it; the lane that `next` takes back leaves its place. */
inline park(l, next) {
#ifndef BAD_STAY
    if
    :: beside - is_kept[next] >= PLACES -> drop_oldest()
    :: else
    fi;
#endif
    if
    :: beside - is_kept[next] < PLACES ->
        is_parked[l] = 1; has_slot[l] = 0; slots--; beside++;
        take_slot(next)
    :: else
    fi
}

inline keep(l) {
    if
    :: is_parked[l] -> is_parked[l] = 0; beside--
    :: else -> has_slot[l] = 0; slots--
    fi;
    state[l] = Idle; is_kept[l] = 1; beside++; kept_so_far++; age[l] = kept_so_far;
#ifndef BAD_KEEP_ALL
    do
    :: beside > PLACES ->
        drop_oldest();
        if
        :: oldest == NOBODY -> break
        :: else
        fi
    :: else -> break
    od;
#endif
    oldest = 0
}

#define CAN_PARK(l, next) \
    (WAITS(next) && MAY_PARK(l) && \
     (beside - is_kept[next] < PLACES || HAS_LOOSE))
#ifdef BAD_STAY
#define HAS_LOOSE false
#else
#define LOOSE(l) (is_kept[l] && !is_pinned[l])
#define HAS_LOOSE (LOOSE(0) || LOOSE(1) || LOOSE(2))
#endif
#define OTHER(l, d) (((l) + (d)) % LINKS)

/* One link is agreed on; another one goes for it, if it is up or its peer sleeps. */
#define MAY_COMMIT(l) (state[l] != Committed || asleep[l])
inline stand_back(l) {
    if
    :: state[l] == Committed -> state[l] = Idle; is_pinned[l] = 0
    :: state[l] == Up -> state[l] = Demoting
    :: else
    fi
}

proctype Link(byte me) {
end:
    do
    :: atomic { state[me] == Idle && rounds < ROUNDS ->
        rounds++; state[me] = Requested; is_pinned[me] = is_kept[me] }
    :: atomic { state[me] == Requested && !asleep[me] ->
        if
        :: MAY_COMMIT(OTHER(me, 1)) && MAY_COMMIT(OTHER(me, 2)) ->
            stand_back(OTHER(me, 1));
            stand_back(OTHER(me, 2));
            state[me] = Committed
        :: state[me] = Idle;
#ifndef BAD_NO_UNPIN
            is_pinned[me] = 0
#endif
        fi }
    /* An answer that does not come keeps nobody waiting. */
    :: atomic { state[me] == Requested && asleep[me] ->
        state[me] = Withdrawing;
#ifndef BAD_PIN_LONG
        is_pinned[me] = 0
#endif
        }
    :: atomic { state[me] == Withdrawing && !asleep[me] -> state[me] = Idle; is_pinned[me] = 0 }
    :: atomic { WAITS(me) && (slots == 0
#ifdef BAD_ABOVE
            || is_kept[me]
#endif
            ) -> take_slot(me) }
    :: atomic { CAN_PARK(OTHER(me, 1), me) -> park(OTHER(me, 1), me); oldest = 0 }
    :: atomic { CAN_PARK(OTHER(me, 2), me) -> park(OTHER(me, 2), me); oldest = 0 }
    /* Somebody wants the slot, or the link is cold. */
    :: atomic { state[me] == Up -> state[me] = Demoting }
    :: atomic { state[me] == Demoting && !asleep[me] -> keep(me) }
    :: atomic { is_kept[me] && !is_pinned[me] && expiries < EXPIRIES -> expiries++; drop(me) }
    od
}

proctype Sleeper(byte me) {
    if
    :: asleep[me] = 1;
        if
        :: asleep[me] = 0
        :: skip
        fi
    :: skip
    fi
}

#define STUCK(l) (WAITS(l) && !asleep[l])
#define PARKED (is_parked[0] + is_parked[1] + is_parked[2])

/* At the end nobody waits for a slot that a sleeper has, unless sleepers have all places beside it as well. */
active proctype Monitor() {
end:
    do
    :: atomic { slots > 1 || beside > PLACES -> assert(false) }
    :: timeout -> break
    od;
    assert(PARKED == PLACES || !(STUCK(0) || STUCK(1) || STUCK(2)))
}

init {
    atomic {
        run Link(0); run Link(1); run Link(2);
        run Sleeper(0); run Sleeper(1); run Sleeper(2)
    }
}
