/* One run: its task, two tools, its caller, and whoever stops or cancels it.
 *
 * What it is true to: the acknowledged queue (channels/event_queue.py: turns, targets, the first terminal signal stays),
 * the phase table (phases.pml, generated), how a run ends (_ending.py, _main.py: settle and finish are one step each and
 * do nothing the second time), the exit of the stream (end_run). A cancel is one pending mark, as on asyncio: it is
 * delivered once, wherever the task waits, or never. Between any two steps anybody else may take a step.
 *
 * What it leaves out: time (a wait that is bounded may end at any moment), the store, questions, hooks one by one.
 *
 * Put a mistake back, by -D and its name, and pan must find it: ACKNOWLEDGE_ON_HAND_OVER, NO_SECOND_CANCEL_GUARD,
 * NO_TAKE_OVER, NO_FINISH_INSTEAD, LAST_SIGNAL_WINS, SIGNAL_LEAVES_PUT_PARKED, SETTLE_FORGETS_CALLS. test_model.py does.
 */
#include "phases.pml"

#define RUN 1       /* who may put, and be cancelled; tools are 2 and 3 */
#define TOOL0 2
#define CALLER 4
#define INSTEAD 5   /* the task that ends a run whose own never began */

mtype = { NO_SIGNAL, BY_ERROR, COMPLETE, FINE, BROKEN, CANCELLED_NOW, NOT_STARTED, RUNNING, DONE };

/* ---- the queue -------------------------------------------------------------------------------------------------- */
byte produced, taken, acknowledged, target;
bool held, discarding;
mtype signal = NO_SIGNAL;
byte owner;
chan line = [2] of { byte };

/* ---- the run ---------------------------------------------------------------------------------------------------- */
byte phase = CREATED;
bool ending, settled, finished, main_done, take_over;
bool stop_asked, heard_cancel, failed_once, fatal;
bool session_busy;
bool cancel[6];
byte asked;                 /* how many calls the model has made */
mtype tool[2] = NOT_STARTED;
byte answers[2];
byte announced_at;          /* the event that announced the calls */

/* ---- what an onlooker counts ------------------------------------------------------------------------------------ */
byte passed;                /* events the caller has moved past */
byte terminals, signals, terminal_events;
bool caller_done;

inline go(next) {
    assert(MAY_GO(phase, next));
    phase = next;
    if
    :: IS_TERMINAL(next) -> terminals++
    :: else
    fi
}

inline append(n) {
    if
    :: discarding                                       /* dropped: nothing more to wait for */
    :: else -> produced = produced + n
    fi
}

inline pass_turn() {
    if
    :: nempty(line) -> line?owner
    :: empty(line) -> owner = 0
    fi
}

/* No work for what follows begins while the caller has not moved past everything that was put. */
#define SEEN (discarding || passed == produced)

inline put(me, n, outcome, mine) {
    outcome = FINE;
    if
    :: atomic { signal != NO_SIGNAL -> outcome = BROKEN }
    :: atomic { signal == NO_SIGNAL && owner == 0 -> owner = me }
    :: atomic { signal == NO_SIGNAL && owner != 0 -> line!me };
        if
        :: owner == me
        :: atomic { cancel[me] -> cancel[me] = false; outcome = CANCELLED_NOW;
            if
            :: owner == me -> pass_turn()
            :: else -> line??eval(me)
            fi }
        fi
    fi;
    if
    :: outcome == FINE ->
        atomic {
            if
            :: signal == NO_SIGNAL -> append(n); target = produced; mine = produced
            :: else -> outcome = BROKEN; pass_turn()
            fi
        };
        if
        :: outcome == BROKEN
        :: atomic { outcome == FINE && acknowledged >= mine -> pass_turn() }
#ifndef SIGNAL_LEAVES_PUT_PARKED
        :: atomic { outcome == FINE && acknowledged < mine && signal != NO_SIGNAL -> outcome = BROKEN; pass_turn() }
#endif
        :: atomic { outcome == FINE && cancel[me] -> cancel[me] = false; outcome = CANCELLED_NOW; pass_turn() }
        fi
    :: else
    fi
}

inline give_signal(kind) {
    if
    :: signal == NO_SIGNAL -> signal = kind; signals++
#ifdef LAST_SIGNAL_WINS
    :: signal != NO_SIGNAL -> signal = kind; signals++
#else
    :: else                                             /* the first one stays */
#endif
    fi
}

/* ---- how a run ends --------------------------------------------------------------------------------------------- */

inline answer(i) {
    if
    :: i < asked && answers[i] == 0 -> answers[i]++
    :: else
    fi
}

inline settle() {
    if
    :: !settled ->
        settled = true;
#ifndef SETTLE_FORGETS_CALLS
        answer(0);
        answer(1);
#endif
        if
        :: stop_asked || heard_cancel -> go(CANCELLED)
        :: else -> go(FAILED)
        fi
    :: else
    fi
}

inline finish() {
    if
    :: finished
    :: else ->
        if
        :: settled
        :: else -> settle()
        fi;
        finished = true;
        session_busy = false;
        if
        :: signal == NO_SIGNAL -> append(1); terminal_events++
        :: else
        fi;
        if
        :: phase == COMPLETED -> give_signal(COMPLETE)
        :: else -> give_signal(BY_ERROR)
        fi
    fi
}

/* A wait of the ending: it comes back, or one more cancel arrives. */
#ifdef NO_SECOND_CANCEL_GUARD
#define LATE(me) goto gone
#else
#define LATE(me) goto over
#endif

inline ending_wait(me, condition) {
    if
    :: condition
    :: atomic { cancel[me] -> cancel[me] = false }; LATE(me)
    fi
}

#define IDLE(i) (tool[i] != RUNNING)

inline end(me) {
    atomic { ending = true; cancel[TOOL0] = tool[0] == RUNNING; cancel[TOOL0 + 1] = tool[1] == RUNNING };
    ending_wait(me, (IDLE(0) && IDLE(1)) || true);      /* or the grace time is over */
    atomic { settle() };
    ending_wait(me, true);                              /* the flush */
    ending_wait(me, true)                               /* on_error or on_cancel, close_run */
}

/* ---- the task of the run ---------------------------------------------------------------------------------------- */

inline emit(n) {
    put(RUN, n, outcome, mine);
    if
    :: outcome == FINE
    :: outcome == BROKEN -> failed_once = true; goto broken
    :: outcome == CANCELLED_NOW -> heard_cancel = true; goto broken
    fi
}

/* The numbers of events begin again where all were seen: what came before makes no difference, and no more states. */
inline forget() {
    produced = 0;
    taken = 0;
    acknowledged = 0;
    target = 0;
    passed = 0;
    mine = 0
}

/* A model call, a hook or a write: begins, and then returns, fails, or hears a cancel. */
inline work() {
    atomic { assert(SEEN); assert(!settled); forget() };
    if
    :: true
    :: true -> failed_once = true; goto broken
    :: atomic { cancel[RUN] -> cancel[RUN] = false; heard_cancel = true }; goto broken
    fi
}

inline check() {
    if
    :: stop_asked -> goto broken
    :: else
    fi
}

inline collect(i) {
    if
    :: i < asked && !(answers[i] > 0 && tool[i] == NOT_STARTED) ->
        if
        :: tool[i] == DONE
        :: fatal -> failed_once = true; goto broken
        :: atomic { cancel[RUN] -> cancel[RUN] = false; heard_cancel = true }; goto broken
        fi;
        if
        :: fatal -> failed_once = true; goto broken
        :: else
        fi;
        emit(1)             /* ToolCompleted */
    :: else
    fi
}

inline start(i) {
    if
    :: i < asked && answers[i] == 0 -> tool[i] = RUNNING
    :: else
    fi
}

inline take_over_unless_ended() {
    if
#ifndef NO_TAKE_OVER
    :: !finished && !ending -> heard_cancel = true; ending = true; take_over = true
#endif
    :: else
    fi
}

proctype Run() {
    mtype outcome = FINE;
    byte mine, turn;

    if
    :: true
    :: atomic { cancel[RUN] ->                          /* before its first step: nobody has ended the run yet */
        cancel[RUN] = false;
        main_done = true;
        take_over_unless_ended() };
        goto gone
    fi;
    emit(1);
    work();                                             /* on_tool, on_state, on_message */
    atomic { go(READY) };
again:
    turn++;
    check();
    if
    :: true
    :: turn == 1 -> atomic { go(COMPACTING) }; emit(1); work(); atomic { go(READY) }
    fi;
    emit(2);                                            /* the phase, TurnStarted */
    check();
    work();                                             /* before_turn, on_model_request */
    atomic { go(GENERATING) };
    emit(1);
    work();                                             /* the model */
    emit(1);                                            /* a delta */
    atomic {
        go(READY);
        if
        :: turn == 1 -> asked = 1
        :: turn == 1 -> asked = 2
        :: true
        fi
    };
    emit(1);
    check();
    if
    :: turn == 1 && asked > 0 ->
        work();                                         /* decide_tool */
        atomic {
            if
            :: true
            :: answers[0] = 1                           /* denied */
            fi;
            go(RUNNING_TOOL)
        };
        emit(2);                                        /* the phase, ToolStarted for each */
        atomic {
            if
            :: stop_asked -> answer(0); answer(1)       /* not started */
            :: else -> assert(SEEN); announced_at = produced; start(0); start(1)
            fi
        };
        collect(0);
        collect(1);
        atomic { go(READY) };
        if
        :: stop_asked -> goto broken
        :: else -> goto again
        fi
    :: else
    fi;
    work();                                             /* on_answer, and the flush of the answer */
    check();
    atomic { go(COMPLETED); settled = true; ending = true };
    ending_wait(RUN, true);                             /* after_run, on_success */
    ending_wait(RUN, true);                             /* close_run, the last flush */
    goto over;

broken:
    end(RUN);
over:
    atomic { finish(); main_done = true };
    goto out;
gone:
    main_done = true;
out:
    skip
}

/* Ends the run in the stead of a task that was cancelled before its first step. */
proctype Instead() {
    if
    :: take_over -> end(INSTEAD)
    :: atomic { take_over && cancel[INSTEAD] -> cancel[INSTEAD] = false };      /* before its own first step, too */
#ifdef NO_FINISH_INSTEAD
        goto gone
#endif
    :: caller_done -> goto out
    fi;
over:
    atomic { finish(); take_over = false };
    goto out;
gone:
    take_over = false;
out:
    skip
}

/* ---- a tool ------------------------------------------------------------------------------------------------------ */

proctype Tool(byte i) {
    mtype outcome = FINE;
    byte mine;

    if
    :: tool[i] == RUNNING
    :: finished && tool[i] != RUNNING -> goto out
    fi;
    assert(discarding || passed >= announced_at);
    if
    :: true
    :: i == 1 -> put(TOOL0 + i, 1, outcome, mine)       /* progress; it may swallow the cancel that comes of it */
    fi;
    atomic {
        cancel[TOOL0 + i] = false;
        mine = 0;
        if
        :: finished                                     /* given up: it does nothing more */
        :: !finished && answers[i] == 0 -> answers[i]++ /* a result, an error, or that it was cut off */
        :: !finished && answers[i] == 0 -> fatal = true /* on_error="raise" */
        :: !finished && answers[i] > 0                  /* the run was settled without it */
        fi;
        tool[i] = DONE
    };
out:
    skip
}

/* ---- the caller --------------------------------------------------------------------------------------------------- */

inline acknowledge() {
    if
    :: held ->
        held = false;
#ifndef ACKNOWLEDGE_ON_HAND_OVER
        acknowledged++;
#endif
        passed++
    :: else
    fi
}

inline discard() {
    discarding = true;
    held = false;
    taken = produced;
    acknowledged = produced
}

proctype Caller() {
    bool cancelled;
next:
    atomic { acknowledge() };
    if
    :: atomic { taken < produced ->
        taken++;
        held = true;
#ifdef ACKNOWLEDGE_ON_HAND_OVER
        acknowledged++;
#endif
        };
        if
        :: goto next
        :: goto leave                                   /* break, or an exception of its own */
        :: atomic { signal == NO_SIGNAL && !finished -> give_signal(BY_ERROR) };   /* forward: its sink has failed */
            goto attend
        :: atomic { !finished -> discard() };           /* wait(): nobody reads any more */
            goto attend
        fi
    :: atomic { taken == produced && signal != NO_SIGNAL }; goto leave
    :: atomic { cancel[CALLER] -> cancel[CALLER] = false; cancelled = true }; goto leave
    fi;
attend:
    if
    :: finished
    :: atomic { cancel[CALLER] -> cancel[CALLER] = false; cancelled = true }
    fi;
leave:
    atomic {
        if
        :: finished
        :: else -> stop_asked = true; cancel[RUN] = cancel[RUN] || !main_done
        fi
    };
    /* end_run: waits through cancels, and cancels again what does not hear. */
    do
    :: main_done && !take_over && finished -> break
    :: atomic { main_done && !take_over && !finished ->
        if
        :: !ending -> ending = true; take_over = true
        :: else -> break
        fi
        }
    :: atomic { cancel[CALLER] -> cancel[CALLER] = false; cancelled = true };
#ifdef NO_SECOND_CANCEL_GUARD
        goto left
#endif
    :: atomic { !main_done && !ending && !cancel[RUN] -> cancel[RUN] = true }
    od;
#ifndef NO_SECOND_CANCEL_GUARD
    atomic { finish() };
#endif
left:
    atomic {
        discard();
        caller_done = true;
        /* What must hold when the call has returned. */
        assert(IS_TERMINAL(phase));
        assert(terminals == 1);
        assert(signals == 1 && signal != NO_SIGNAL);
        assert(terminal_events <= 1);
        assert(!session_busy);
        assert(answers[0] == (asked > 0) && answers[1] == (asked > 1));
        assert(phase != FAILED || failed_once)
    }
}

/* ---- everybody else ------------------------------------------------------------------------------------------------ */

proctype Outside() {
    byte cancels;
    do
    :: !stop_asked -> stop_asked = true                 /* stop(), steering that ends the batch */
    :: cancels < 2 -> cancels++; cancel[CALLER] = true
    :: cancels < 2 -> cancels++; cancel[RUN] = !main_done
    :: cancels < 2 && take_over -> cancels++; cancel[INSTEAD] = true
    :: break
    od
}

init {
    atomic {
        session_busy = true;
        go(LOADING_CONTEXT);                            /* synchronous, when the stream is entered */
        run Run();
        run Instead();
        run Tool(0);
        run Tool(1);
        run Caller();
        run Outside()
    }
}
