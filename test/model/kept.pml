/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Lanes that are kept (rules 32 to 35): ROUNDS rounds of one link, opened by either end, each of which
 * leaves a lane at both ends. An end may drop what it has kept, without a word, unless a round names
 * it. A lane has a number; where it leads to is known from the peer's LANE. In each round each end sends a
 * message on the scalable lane, MARK, and a message on the dedicated one, whose receive gate MARK opens.
 *   LOSSES         so many kept lanes are lost by their transport, also while they are named
 *   BAD_ALONE      33: the answerer agrees to the lane that is offered, whatever it has kept itself
 *   BAD_NO_PIN     34: a lane that is named may be dropped
 *   BAD_NO_CHECK   34: who has its lane back does not look where it leads to
 *   BAD_OPEN_GATE  35: the gate of a lane that is taken back stays open
 *   BAD_NO_READY   35: on a lane that is taken back messages go before the peer's READY
 */
#ifndef ROUNDS
#define ROUNDS 3
#endif
#ifndef LOSSES
#define LOSSES 0
#endif

mtype = { REQUEST, ACCEPT, LANE, READY, WITHDRAW, MESSAGE, MARK, DOWN };
mtype:state = { Idle, Requested, Committed, Connecting, Ready, Established, Down };

chan inbox[2] = [7] of { mtype, byte, byte };  /* epoch, kept or lane or number */
chan dedicated[2] = [1] of { byte };
mtype:state state[2] = Idle;
byte epoch, kept_epoch[2], kept_lane[2], kept_to[2];
byte named[2], lane[2], leads_to[2], comes[2];
bool is_back[2], is_ready[2], has_switched[2], is_open[2];
byte sent[2], delivered[2];
byte lanes_made, losses = LOSSES, strangers;

#ifdef BAD_NO_PIN
#define pinned false
#else
#define pinned (named[me] != 0 && (state[me] == Requested || state[me] == Committed))
#endif

inline forget_kept() { kept_epoch[me] = 0; kept_lane[me] = 0; kept_to[me] = 0 }

inline reset() {
    state[me] = Idle; lane[me] = 0; leads_to[me] = 0; named[me] = 0; comes[me] = 0;
    is_back[me] = 0; is_ready[me] = 0; has_switched[me] = 0
}

inline deliver(n) { delivered[me]++; assert(delivered[me] == n) }

/* The own direction moves to the dedicated lane, with a message before and one behind MARK. */
inline switch_over() {
    has_switched[me] = 1;
    inbox[1 - me]!MESSAGE, epoch, sent[me] + 1;
    inbox[1 - me]!MARK, epoch, 0;
    sent[me] = sent[me] + 2;
    dedicated[1 - me]!sent[me]
}

/* What one end alone has kept is of no use. */
inline commit(e) {
    named[me] = e;
    if
    :: e == 0 -> forget_kept()
    :: else
    fi;
    state[me] = Committed
}

inline connect() {
    if
#ifndef BAD_NO_CHECK
    :: is_back[me] && leads_to[me] != comes[me] ->
        strangers++;
        /* Without a loss both ends take the same lane, or none. */
        assert(losses < LOSSES);
        inbox[1 - me]!WITHDRAW, epoch, 0;
        reset()
    :: else ->
#else
    :: true ->
#endif
        if
        :: is_back[me]
        :: else -> leads_to[me] = comes[me]
        fi;
        state[me] = Ready;
        inbox[1 - me]!READY, epoch, 0
    fi
}

proctype End(byte me) {
    mtype m;
    byte e, k;
end:
    do
    :: atomic { state[me] == Idle && state[1 - me] == Idle && empty(inbox[0]) && empty(inbox[1]) && epoch < ROUNDS ->
        epoch++;
        named[me] = kept_epoch[me];
        state[me] = Requested;
        inbox[1 - me]!REQUEST, epoch, named[me] }
    :: atomic { kept_epoch[me] != 0 && !pinned -> forget_kept() }
    :: atomic { kept_epoch[me] != 0 && losses > 0 -> losses--; forget_kept() }
    :: atomic { state[me] == Committed ->
        if
        :: named[me] != 0 && kept_epoch[me] == named[me] ->
            is_back[me] = 1; lane[me] = kept_lane[me]; leads_to[me] = kept_to[me]; forget_kept();
#ifndef BAD_OPEN_GATE
            is_open[me] = 0
#endif
        :: else -> forget_kept(); lanes_made++; lane[me] = lanes_made; is_open[me] = 0
        fi;
        state[me] = Connecting;
        inbox[1 - me]!LANE, epoch, lane[me];
#ifdef BAD_NO_READY
        if
        :: is_back[me] -> switch_over()
        :: else
        fi;
#endif
        if
        :: comes[me] != 0 -> connect()
        :: else
        fi }
    :: atomic { state[me] == Ready && is_ready[me] ->
        state[me] = Established;
        /* The first message. */
        assert(lane[1 - me] == leads_to[me] && lane[1 - me] != 0);
        if
        :: has_switched[me]
        :: else -> switch_over()
        fi }
    /* What comes on the dedicated lane finds it there, and waits at its gate. */
    :: atomic { nempty(dedicated[me]) && (lane[me] == 0 || is_open[me]) ->
        assert(lane[me] != 0);
        dedicated[me]?k; deliver(k); k = 0 }
    :: atomic { state[me] == Established && state[1 - me] == Established && empty(dedicated[0]) && empty(dedicated[1]) ->
        state[me] = Down; inbox[1 - me]!DOWN, epoch, 0 }
    :: atomic { nempty(inbox[me]) ->
        inbox[me]?m, e, k;
        if
        :: e != epoch || (state[me] == Idle && m != REQUEST)
        :: else ->
            if
            :: m == REQUEST ->
#ifndef BAD_ALONE
                if
                :: k != kept_epoch[me] -> k = 0
                :: else
                fi;
#endif
                inbox[1 - me]!ACCEPT, epoch, k;
                commit(k)
            :: m == ACCEPT -> assert(k == 0 || k == named[me]); commit(k)
            :: m == LANE ->
                comes[me] = k;
                if
                :: state[me] == Connecting -> connect()
                :: else
                fi
            :: m == READY -> is_ready[me] = 1
            :: m == MESSAGE -> deliver(k)
            :: m == MARK -> is_open[me] = 1
            :: m == WITHDRAW -> reset()
            :: m == DOWN ->
                /* Both ends are through with it: each puts its own aside. */
                if
                :: state[me] == Established -> inbox[1 - me]!DOWN, epoch, 0
                :: else
                fi;
                kept_epoch[me] = epoch; kept_lane[me] = lane[me]; kept_to[me] = leads_to[me];
                reset()
            fi
        fi;
        m = 0; e = 0; k = 0 }
    od
}

/* Nothing is left half done. */
active proctype Monitor() { timeout -> assert(epoch == ROUNDS && state[0] == Idle && state[1] == Idle) }

init { atomic { run End(0); run End(1) } }
