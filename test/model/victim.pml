/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Whose slot is taken (rule 31): one worker at cap 2 with LINKS links of any scores, whose peers sleep or not. A
 * candidate that beats the floor of the victim takes its place; the peer of one that sleeps agrees to nothing, so
 * that it only leaves. Its lane must be parked then, which takes time.
 *   BAD_WORST   the worst goes, whether its peer sleeps or not
 *   BAD_AWAKE   somebody awake goes before a sleeper, however much better
 */
#ifndef LINKS
#define LINKS 4
#endif
#define NOBODY LINKS
#define FLOOR(l) (score[l] * 12 / 10)  /* margin 0.2 */

byte score[LINKS];
bool asleep[LINKS], has_slot[LINKS], has_left[LINKS];
byte i, worst, awake, victim;

/* The worst of those who have a slot, whether its peer sleeps or not. */
inline find_worst() {
    worst = NOBODY; i = 0;
    do
    :: i < LINKS ->
        if
        :: has_slot[i] && (worst == NOBODY || score[i] < score[worst % LINKS]) -> worst = i
        :: else
        fi;
        i++
    :: else -> break
    od;
    i = 0
}

/* The worst of those awake whose place the challenger may have, and who are of about the rank of the worst. */
#ifdef BAD_AWAKE
#define IS_ALIKE(l) true
#else
#define IS_ALIKE(l) (score[l] <= FLOOR(worst))
#endif
inline find_victim(challenger) {
    awake = NOBODY; i = 0;
    do
    :: i < LINKS ->
        if
        :: has_slot[i] && !asleep[i] && score[challenger] > FLOOR(i) && IS_ALIKE(i) &&
            (awake == NOBODY || score[i] < score[awake % LINKS]) -> awake = i
        :: else
        fi;
        i++
    :: else -> break
    od;
    victim = worst;
#ifndef BAD_WORST
    if
    :: asleep[worst] && awake != NOBODY -> victim = awake
    :: else
    fi;
#endif
    i = 0
}

#define COULD_GO(l, c) (has_slot[l] && !asleep[l] && score[l] <= FLOOR(worst) && score[c] > FLOOR(l))

#define CHALLENGE(c) \
    :: atomic { !has_slot[c] && !asleep[c] && score[c] > FLOOR(worst) -> \
        find_victim(c); \
        /* While somebody awake of its rank could go, no sleeper does. */ \
        assert(!asleep[victim] || !(COULD_GO(0, c) || COULD_GO(1, c) || COULD_GO(2, c) || COULD_GO(3, c))); \
        /* Who had to go does not take a slot back. */ \
        assert(!has_left[c]); \
        has_slot[victim] = 0; has_left[victim] = 1; has_slot[c] = 1; \
        find_worst(); awake = 0; victim = 0 }

active proctype Worker() {
    byte at;
    atomic {
        do
        :: at < LINKS ->
            if
            :: score[at] = 100
            :: score[at] = 115
            :: score[at] = 130
            :: score[at] = 150
            :: score[at] = 200
            fi;
            if
            :: asleep[at] = 1
            :: skip
            fi;
            at++
        :: else -> break
        od;
        has_slot[0] = 1; has_slot[1] = 1;
        find_worst()
    }
end:
    do
    CHALLENGE(0) CHALLENGE(1) CHALLENGE(2) CHALLENGE(3)
    od
}
