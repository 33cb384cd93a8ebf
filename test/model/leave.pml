/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One link from READY to FLUSHED, both directions, where an end may leave a lane that has no room
 * (rule 31a), also before the peer has moved to it, and sends ordered messages meanwhile (rule 18).
 * States and names of src/ucp/lanes/switch.h and rounds.h. Node 0 sends MESSAGES, node 1 one.
 * ROOM messages lie on a dedicated lane that is not read; WINDOW is that of rules 17 and 18.
 *   SLEEP      node 1 makes no progress any more, from any moment on: node 0 sends all the same
 *   DEMOTIONS  ends also leave for other reasons, once both directions have moved
 *   BAD_STAY       31a: who finds no room stays
 *   BAD_LATE       31a: who finds no room stays until the peer's MARK has come
 *   BAD_NO_EARLY   18: ordered messages are delivered before DMARK
 *   BAD_EARLY_ACK  21: DMARK is answered while the own MARK waits for room
 */
#ifndef MESSAGES
#define MESSAGES 5
#endif
#ifndef WINDOW
#define WINDOW 3
#endif
#ifndef ROOM
#define ROOM 2
#endif

mtype = { READY, MARK, MARK_ACK, DMARK, DMARK_ACK, FLUSHED, MESSAGE, ORDERED };
mtype:tx = { Scalable, Marking, Windowed, Dedicated, Leaving, Left, Back };
#define kNone 0
#define kReady 1
#define kMark 2
#define kDmark 3
#define kFlushed 4

chan scalable[2] = [12] of { mtype, byte };  /* to that node */
chan dedicated[2] = [ROOM] of { mtype, byte };
chan held[2] = [ROOM + WINDOW] of { mtype, byte };
chan early[2] = [WINDOW] of { byte };
mtype:tx tx[2] = Scalable;
byte peer[2] = kNone;  /* the last of the peer's steps that was processed */
byte sent[2], delivered[2], room[2], acknowledged[2];
bool flushed[2];
bool asleep;

#define is_demoting (tx[me] == Leaving || tx[me] == Left || tx[me] == Back)
#define has_more (sent[me] < (me == 0 -> MESSAGES : 1))
#ifdef BAD_LATE
#define may_leave (peer[me] >= kMark)
#else
#define may_leave true
#endif
#define is_awake (!(asleep && me == 1))

inline deliver(n) { delivered[me]++; assert(delivered[me] == n) }

inline demote() { tx[me] = Leaving; room[me] = WINDOW }

/* A message of the dedicated lane, behind its gate. */
inline process(m, n) {
    if
    :: m == MESSAGE -> deliver(n)
    :: else ->
        assert(peer[me] == kMark);
        peer[me] = kDmark;
        do
        :: nempty(early[me]) -> early[me]?n; deliver(n)
        :: empty(early[me]) -> break
        od;
        if
        :: tx[me] == Marking ->
#ifdef BAD_EARLY_ACK
            scalable[1 - me]!DMARK_ACK, 0
#else
            skip
#endif
        :: else ->
            if
            :: !is_demoting -> demote()
            :: else
            fi;
            scalable[1 - me]!DMARK_ACK, 0
        fi
    fi
}

proctype Node(byte me) {
    mtype m;
    byte n;
    scalable[1 - me]!READY, 0;
end:
    do
    /* Messages. */
    :: atomic { is_awake && has_more && (tx[me] == Scalable || (tx[me] == Back)) ->
        sent[me]++; scalable[1 - me]!MESSAGE, sent[me] }
    :: atomic { is_awake && has_more && tx[me] == Windowed && room[me] > 0 && nfull(dedicated[1 - me]) ->
        sent[me]++; room[me]--; dedicated[1 - me]!MESSAGE, sent[me] }
    :: atomic { is_awake && has_more && tx[me] == Dedicated && nfull(dedicated[1 - me]) ->
        sent[me]++; dedicated[1 - me]!MESSAGE, sent[me] }
    :: atomic { is_awake && has_more && (tx[me] == Leaving || tx[me] == Left) && room[me] > 0 ->
        sent[me]++; room[me]--; scalable[1 - me]!ORDERED, sent[me] }
    /* Steps. */
    :: atomic { is_awake && tx[me] == Marking ->
        scalable[1 - me]!MARK, 0; tx[me] = Windowed; room[me] = WINDOW;
        if
        :: peer[me] == kDmark -> demote();
#ifndef BAD_EARLY_ACK
            scalable[1 - me]!DMARK_ACK, 0
#endif
        :: else
        fi }
#ifndef BAD_STAY
    :: atomic { is_awake && has_more && (tx[me] == Windowed || tx[me] == Dedicated) && may_leave &&
        full(dedicated[1 - me]) -> demote() }
#endif
#ifdef DEMOTIONS
    :: atomic { is_awake && tx[me] == Dedicated && peer[me] == kMark -> demote() }
#endif
    :: atomic { is_awake && tx[me] == Leaving && nfull(dedicated[1 - me]) ->
        dedicated[1 - me]!DMARK, 0; tx[me] = Left }
    :: atomic { is_awake && tx[me] == Back && acknowledged[me] == 2 && !flushed[me] && empty(dedicated[1 - me]) ->
        flushed[me] = 1; scalable[1 - me]!FLUSHED, 0 }
    /* What comes. */
    :: atomic { is_awake && nempty(scalable[me]) ->
        scalable[me]?m, n;
        if
        :: m == READY -> peer[me] = kReady; tx[me] = Marking
        :: m == MARK ->
            assert(peer[me] == kReady && tx[me] != Scalable);
            peer[me] = kMark;
            scalable[1 - me]!MARK_ACK, 0;
            do
            :: nempty(held[me]) -> held[me]?m, n; process(m, n)
            :: empty(held[me]) -> break
            od
        :: m == MARK_ACK ->
            assert(acknowledged[me] == 0 && tx[me] >= 1 && (tx[me] == Windowed || is_demoting));
            acknowledged[me] = 1;
            if
            :: tx[me] == Windowed -> tx[me] = Dedicated
            :: else
            fi
        :: m == MESSAGE ->
            assert(peer[me] <= kReady || (peer[me] >= kDmark && empty(early[me])));
            deliver(n)
        :: m == ORDERED ->
#ifdef BAD_NO_EARLY
            deliver(n)
#else
            if
            :: peer[me] >= kDmark -> deliver(n)
            :: else -> assert(nfull(early[me])); early[me]!n
            fi
#endif
        :: m == DMARK_ACK -> assert(tx[me] == Left); tx[me] = Back; acknowledged[me] = 2
        :: m == FLUSHED -> assert(is_demoting && peer[me] == kDmark); peer[me] = kFlushed
        fi;
        m = 0; n = 0 }
    :: atomic { is_awake && nempty(dedicated[me]) ->
        dedicated[me]?m, n;
        if
        :: peer[me] >= kMark -> process(m, n)
        :: else -> held[me]!m, n
        fi;
        m = 0; n = 0 }
    od
}

#ifdef SLEEP
active proctype Sleep() { asleep = 1 }
#endif

/* All is sent, or as much as a scalable lane takes of one sender, whether the peer sleeps or not. If it does not, all
 * has come, and both ends are where the other one is. */
active proctype Monitor() {
    timeout ->
    assert(sent[0] == MESSAGES || (asleep && room[0] == 0 && tx[0] != Dedicated && tx[0] != Marking));
    assert(asleep || (delivered[1] == MESSAGES && delivered[0] == 1));
    assert(asleep || (peer[0] == kMark && peer[1] == kMark && tx[0] == Dedicated && tx[1] == Dedicated) ||
           (peer[0] == kFlushed && peer[1] == kFlushed))
}

init { atomic { run Node(0); run Node(1) } }
