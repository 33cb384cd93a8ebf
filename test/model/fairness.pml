/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Three workers in a ring at cap 1 whose two views of a link differ by SPREAD percent for good (scores
 * that are advertised late or too seldom). A link is taken when both of its ends see it beat what they
 * have, the incumbents' MARGIN (percent) included: docs/design/lanes.md, rule 4. With the margin above the spread
 * it ends; below, links chase one another round the ring for ever.
 */
#ifndef MARGIN
#define MARGIN 20
#endif
#ifndef SPREAD
#define SPREAD 10
#endif

#define NOBODY 3
#define VIEW(i, j) (((j) == ((i) + 1) % 3) -> 100 + SPREAD : 100)

byte partner[3];
byte left;

#define FLOOR(i) (partner[i] == NOBODY -> 0 : VIEW(i, partner[i]) * (100 + MARGIN))
#define BEATS(i, j) (VIEW(i, j) * 100 > FLOOR(i))

#define LINK(i, j) \
    :: atomic { partner[i] != j && BEATS(i, j) && BEATS(j, i) -> leave(i); leave(j); \
        partner[i] = j; partner[j] = i }

inline leave(i) {
    left = partner[i];
    if
    :: left != NOBODY -> partner[left] = NOBODY
    :: else -> skip
    fi;
    left = 0
}

active proctype Ring() {
    atomic { partner[0] = NOBODY; partner[1] = NOBODY; partner[2] = NOBODY }
end:
    do
    LINK(0, 1) LINK(1, 2) LINK(2, 0)
    od
}
