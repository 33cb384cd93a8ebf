/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One direction on its way up, and two on their way down, with the queues that negotiation.pml leaves
 * out: states and names of src/ucp/lanes/switch.h.
 *
 * Up: the sender posts MESSAGES in all, moving to the dedicated lane at any moment. RECEIVES buffers
 * are shared by both lanes at the receiver; a held message keeps its buffer. WINDOW bounds what goes
 * to the dedicated lane before MARK_ACK.
 *   BAD_TWO_QUEUES  the scalable lane of one endpoint is spread over two DCIs
 *   BAD_NO_HOLD     the receiver delivers from the dedicated lane before MARK
 * -DDOWN: both directions demote at once.
 *   BAD_ACK_PENDING  acknowledgements wait in the pending queue of a stopped direction
 */
#ifndef MESSAGES
#define MESSAGES 5
#endif
#ifndef WINDOW
#define WINDOW 2
#endif
#ifndef RECEIVES
#define RECEIVES 3
#endif

mtype = { MESSAGE, MARK, MARK_ACK, DMARK, DMARK_ACK };

#ifndef DOWN
mtype:tx = { Scalable, Windowed, Dedicated };
chan scalable = [8] of { mtype, byte };
chan scalable2 = [8] of { mtype, byte };
chan dedicated = [8] of { mtype, byte };
chan back = [2] of { mtype };
chan held = [8] of { byte };
byte delivered = 0, used = 0;
bool marked = 0;

active proctype Sender() {
    mtype:tx tx = Scalable;
    byte sent = 0, room = WINDOW;
    do
    :: atomic { tx == Scalable && sent < MESSAGES ->
        sent++;
#ifdef BAD_TWO_QUEUES
        if
        :: scalable!MESSAGE, sent
        :: scalable2!MESSAGE, sent
        fi
#else
        scalable!MESSAGE, sent
#endif
    }
    :: atomic { tx == Scalable -> scalable!MARK, 0; tx = Windowed }
    :: atomic { tx == Windowed && room > 0 && sent < MESSAGES ->
        sent++; room--; dedicated!MESSAGE, sent }
    :: atomic { tx == Windowed && nempty(back) -> back?MARK_ACK; tx = Dedicated }
    :: atomic { tx == Dedicated && sent < MESSAGES && nfull(dedicated) ->
        sent++; dedicated!MESSAGE, sent }
    :: tx == Dedicated && sent == MESSAGES -> break
    od
}

inline deliver(n) { delivered++; assert(delivered == n) }

active proctype Receiver() {
    mtype m;
    byte n;
end:
    do
    :: atomic { used < RECEIVES && nempty(scalable) ->
        scalable?m, n;
        if
        :: m == MESSAGE -> deliver(n)
        :: else -> marked = 1; back!MARK_ACK
        fi;
        m = 0; n = 0 }
    :: atomic { used < RECEIVES && nempty(scalable2) ->
        scalable2?m, n; deliver(n); m = 0; n = 0 }
    :: atomic { used < RECEIVES && nempty(dedicated) ->
        dedicated?m, n;
#ifdef BAD_NO_HOLD
        deliver(n);
#else
        if
        :: marked && empty(held) -> deliver(n)
        :: else -> used++; held!n
        fi;
#endif
        m = 0; n = 0 }
    :: atomic { marked && nempty(held) -> held?n; used--; deliver(n); n = 0 }
    od
}

active proctype Monitor() { timeout -> assert(delivered == MESSAGES) }
#else
mtype:tx = { Dedicated, Stopped, Scalable };
chan dedicated[2] = [2] of { mtype };
chan scalable[2] = [4] of { mtype };
bool pending[2];
mtype:tx tx[2];

proctype Node(byte me) {
    tx[me] = Dedicated;
    atomic { dedicated[me]!DMARK; tx[me] = Stopped }
end:
    do
    :: atomic { nempty(dedicated[1 - me]) -> dedicated[1 - me]?DMARK; pending[me] = 1 }
#ifdef BAD_ACK_PENDING
    :: atomic { pending[me] && tx[me] != Stopped -> pending[me] = 0; scalable[me]!DMARK_ACK }
#else
    :: atomic { pending[me] -> pending[me] = 0; scalable[me]!DMARK_ACK }
#endif
    :: atomic { nempty(scalable[1 - me]) -> scalable[1 - me]?DMARK_ACK; tx[me] = Scalable }
    od
}

active proctype Monitor() { timeout -> assert(tx[0] == Scalable && tx[1] == Scalable) }
init { atomic { run Node(0); run Node(1) } }
#endif
