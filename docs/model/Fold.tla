-------------------------------- MODULE Fold --------------------------------
(***************************************************************************)
(* How an aggregate counts each change once: intervals, walks with a        *)
(* cursor for each target, generations, both consistencies, dead letters.   *)
(*                                                                         *)
(* One partition of the source has a log. An item is in group 0 (it is not  *)
(* there) or in the group of a target. A target keeps, in one commit, what  *)
(* it has added up and its own position (l, c): the log is done up to l for *)
(* keys up to c, keys beyond c are not begun. A worker is nothing but the   *)
(* requests that it has sent: they may come late, in any order, or never,   *)
(* and any number of workers may send them. So a crash is a lost request,   *)
(* and a late worker is a late one.                                         *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    KeyMax,         \* keys are 1..KeyMax, in key order
    TargetMax,      \* targets, and groups, are 1..TargetMax
    LogMax,         \* commits in the source's log
    RequestMax,     \* requests under way at once
    GenerationMax,  \* generations; the second one means something else
    Transactional,  \* may consistency be switched? then target 1 is the source's partition
    Lazy,           \* may a step that means nothing to a target stay unrecorded there?
    LetterMax,      \* shares that may be given up
    Expiry,         \* may an item's time pass before its expiry is in the log?
    Mutation        \* what is wrong, or "None"

Keys == 1..KeyMax
Targets == 1..TargetMax
Groups == 0..TargetMax
Start == [l |-> 0, c |-> 0]
Nothing == [k \in Keys |-> 0]

VARIABLES
    log,        \* the source's commits: [key, old, new, fold]
    late,       \* keys of items whose time has passed
    wish,       \* is consistency transactional?
    gen,        \* the generation that is built
    shown,      \* are its fields published?
    at,         \* by target: its position
    sum,        \* by target and key: how often the item is counted
    owed,       \* by target: what was given up there: [l, k, g]
    letters,    \* all that was ever given up
    memory,     \* by target: what a worker remembers and the target does not: <<from, done>>, or <<>>
    checkpoint, \* of the worker's lease
    requests    \* under way: [t, gen, from, to, d, owe]

vars == <<log, late, wish, gen, shown, at, sum, owed, letters, memory, checkpoint, requests>>

Min(S) == CHOOSE x \in S : \A y \in S : x <= y
Max(a, b) == IF a >= b THEN a ELSE b

(* The group of k after the first n commits. *)
RECURSIVE GroupAt(_, _)
GroupAt(k, n) == IF n = 0 THEN 0 ELSE IF log[n].key = k THEN log[n].new ELSE GroupAt(k, n - 1)

(* What a group means: the target that counts it. A second generation counts it elsewhere. *)
Counts(g, group, t) ==
    IF group = 0 THEN 0
    ELSE IF (IF g = 1 THEN group ELSE (group % TargetMax) + 1) = t THEN 1 ELSE 0

(* What commit i means to t. *)
Share(g, i, t) == Counts(g, log[i].new, t) - Counts(g, log[i].old, t)

RECURSIVE LogShare(_, _, _, _, _)
(* What the commits lo+1..hi on key k that the owner has not folded mean to t. *)
LogShare(g, t, k, lo, hi) ==
    IF hi <= lo THEN 0
    ELSE LogShare(g, t, k, lo, hi - 1) +
         (IF log[hi].key = k /\ (~log[hi].fold \/ Mutation = "FoldedTwice") THEN Share(g, hi, t) ELSE 0)

RECURSIVE OwnFolds(_, _, _)
(* What the owner has folded of k behind lo: it is counted, and not yet read. *)
OwnFolds(t, k, lo) ==
    IF lo >= Len(log) THEN 0
    ELSE (IF log[lo + 1].key = k /\ log[lo + 1].fold THEN Share(gen, lo + 1, t) ELSE 0) + OwnFolds(t, k, lo + 1)

(* A position that a target may go to from p. *)
Forward(p, q) == q.l >= p.l /\ q.c >= p.c /\ q # p

-----------------------------------------------------------------------------

Init ==
    /\ log = <<>> /\ late = {} /\ wish = FALSE /\ gen = 1 /\ shown = FALSE
    /\ at = [t \in Targets |-> Start]
    /\ sum = [t \in Targets |-> Nothing]
    /\ owed = [t \in Targets |-> {}]
    /\ letters = {}
    /\ memory = [t \in Targets |-> <<>>]
    /\ checkpoint = Start
    /\ requests = {}

(* A client writes, or a sweep puts an expiry into the log. The owner folds what it   *)
(* decides only behind the end of its partition's walk.                               *)
Write(k, group) ==
    LET old == GroupAt(k, Len(log))
        fold == /\ Transactional /\ wish
                /\ at[1].c = KeyMax \/ Mutation = "OwnerFoldsDuringWalk"
        commit == [key |-> k, old |-> old, new |-> group, fold |-> fold]
    IN  /\ Len(log) < LogMax
        /\ group # old
        /\ k \in late => group = 0
        /\ log' = Append(log, commit)
        /\ late' = late \ {k}
        /\ sum' = IF fold
                  THEN [sum EXCEPT ![1][k] = @ + Counts(gen, group, 1) - Counts(gen, old, 1)]
                  ELSE sum
        /\ UNCHANGED <<wish, gen, shown, at, owed, letters, memory, checkpoint, requests>>

(* The time of an item passes. Its expiry is not in the log yet. *)
TimePasses(k) ==
    /\ Expiry /\ k \notin late /\ GroupAt(k, Len(log)) # 0
    /\ late' = late \cup {k}
    /\ UNCHANGED <<log, wish, gen, shown, at, sum, owed, letters, memory, checkpoint, requests>>

(* An operator switches consistency: a control commit of the source's partition. *)
Switch ==
    /\ Transactional /\ wish' = ~wish
    /\ UNCHANGED <<log, late, gen, shown, at, sum, owed, letters, memory, checkpoint, requests>>

-----------------------------------------------------------------------------
(* What a worker sends to a target.                                          *)

(* From where a worker believes that it must go on for t, and what it must name. *)
From(t) == IF memory[t] = <<>> THEN at[t] ELSE memory[t][1]
Done(t) ==
    LET own == IF memory[t] = <<>> THEN at[t] ELSE memory[t][2]
        least == [l |-> Min({at[u].l : u \in Targets}), c |-> Min({at[u].c : u \in Targets})]
    IN  CASE Mutation = "CheckpointBeforeWrite" ->
                 [l |-> Max(own.l, checkpoint.l), c |-> Max(own.c, checkpoint.c)]
          [] Mutation = "OneCursorForAll" -> least
          [] OTHER -> own

PageStart == Min({Done(t).c : t \in Targets})

(* What the page shows of k at LSN n. *)
Shown(k, n) == IF Mutation = "ExpiredLeftOut" /\ k \in late THEN 0 ELSE GroupAt(k, n)

(* The log part: changes of keys <= c are taken, changes of keys > c are passed over. *)
LogPart(t, done, n) ==
    [k \in Keys |-> IF k <= done.c \/ Mutation = "AheadTaken" THEN LogShare(gen, t, k, done.l, n) ELSE 0]

(* The page part: items with keys in (c, e] as of LSN n, as creates. *)
PagePart(t, done, n, e) ==
    LET from == IF Mutation = "FirstPageMissing" THEN Max(done.c, 1) ELSE done.c
    IN  [k \in Keys |-> IF k > from /\ k <= e THEN Counts(gen, Shown(k, n), t) ELSE 0]

Plus(a, b) == [k \in Keys |-> a[k] + b[k]]

Request(t, from, to, d, owe) == [t |-> t, gen |-> gen, from |-> from, to |-> to, d |-> d, owe |-> owe]

Send(new) ==
    /\ Cardinality(requests \cup new) <= RequestMax
    /\ requests' = requests \cup new
    /\ memory' = [memory EXCEPT ![(CHOOSE r \in new : TRUE).t] = <<>>]

Reach(t, n, e) ==
    [l |-> IF Mutation = "UnsettledPage" THEN Max(n, Done(t).l) ELSE n,
     c |-> IF Mutation = "CursorLowered" THEN e ELSE Max(Done(t).c, e)]

Saved(n, e) ==
    checkpoint' = IF Mutation = "CheckpointBeforeWrite"
                  THEN [l |-> Max(checkpoint.l, n), c |-> Max(checkpoint.c, e)] ELSE checkpoint

(* A page is read in an engine's state at any LSN n that a log reaches: also an owner   *)
(* that is behind or was deposed may answer. It ends at any key e, because pages end     *)
(* differently the second time. behind is 0, or by how much what is published is behind. *)
Step(t, n, e, behind) ==
    LET done == Done(t)
        d == Plus(LogPart(t, done, n - behind), PagePart(t, done, n, e))
        to == [Reach(t, n, e) EXCEPT !.l = @ - behind]
    IN  /\ e > PageStart \/ e = KeyMax
        /\ n - behind >= done.l \/ Mutation \in {"UnsettledPage", "LogLowered"}
        /\ to # From(t)
        /\ Send({Request(t, From(t), to, d, {})})
        /\ Saved(n, e)
        /\ UNCHANGED <<log, late, wish, gen, shown, at, sum, owed, letters>>

(* A step that was cut: the log part first. *)
CutStep(t, n, e) ==
    LET done == Done(t)
        first == LogPart(t, done, n)
        second == PagePart(t, done, n, e)
        middle == IF Mutation = "PagePartFirst" THEN [l |-> done.l, c |-> Max(done.c, e)] ELSE [l |-> n, c |-> done.c]
    IN  /\ e > PageStart /\ e > done.c /\ n > done.l
        /\ Send(IF Mutation = "PagePartFirst"
                THEN {Request(t, From(t), middle, second, {}), Request(t, middle, Reach(t, n, e), first, {})}
                ELSE {Request(t, From(t), middle, first, {}), Request(t, middle, Reach(t, n, e), second, {})})
        /\ Saved(n, e)
        /\ UNCHANGED <<log, late, wish, gen, shown, at, sum, owed, letters>>

(* A step that means nothing to t is remembered, not recorded. *)
Idle(t, n, e) ==
    LET done == Done(t) IN
    /\ Lazy
    /\ e > PageStart \/ e = KeyMax
    /\ n >= done.l /\ Reach(t, n, e) # done
    /\ Plus(LogPart(t, done, n), PagePart(t, done, n, e)) = Nothing
    /\ memory' = [memory EXCEPT ![t] = <<From(t), Reach(t, n, e)>>]
    /\ UNCHANGED <<log, late, wish, gen, shown, at, sum, owed, letters, checkpoint, requests>>

(* A worker dies, or asks again. *)
Forget(t) ==
    /\ memory[t] # <<>>
    /\ memory' = [memory EXCEPT ![t] = <<>>]
    /\ UNCHANGED <<log, late, wish, gen, shown, at, sum, owed, letters, checkpoint, requests>>

(* A page's item is given up for t: a dead letter carries it. That it is owed there is   *)
(* recorded with the interval that passes it.                                            *)
GiveUp(t, n, e, k) ==
    LET done == Done(t)
        item == [l |-> n, k |-> k, g |-> GroupAt(k, n)]
        d == [Plus(LogPart(t, done, n), PagePart(t, done, n, e)) EXCEPT ![k] = 0]
        before == Mutation = "OwedBeforeInterval"
    IN  /\ Cardinality(letters) < LetterMax
        /\ n >= done.l /\ k > done.c /\ k <= e
        /\ Counts(gen, GroupAt(k, n), t) = 1
        /\ letters' = letters \cup {[item EXCEPT !.l = IF Mutation = "OwedByKey" THEN 0 ELSE n]}
        /\ owed' = IF before THEN [owed EXCEPT ![t] = @ \cup {item}] ELSE owed
        /\ Send({Request(t, From(t), Reach(t, n, e), d, IF before THEN {} ELSE {item})})
        /\ Saved(n, e)
        /\ UNCHANGED <<log, late, wish, gen, shown, at, sum>>

-----------------------------------------------------------------------------

(* The owner of a target takes an interval that begins where the last one ended. *)
Takes(r) ==
    /\ r.gen = gen \/ Mutation = "GenerationIgnored"
    /\ r.from = at[r.t] \/ Mutation = "IntervalIgnored"
    /\ \/ Forward(at[r.t], r.to)
       \/ Mutation \in {"CursorLowered", "LogLowered"}
       \/ Mutation = "IntervalIgnored"

Hopeless(r, positions) == ~(r.gen = gen /\ (r.from = positions[r.t] \/ Forward(positions[r.t], r.from)))

Keep(r, positions) ==
    IF Mutation \in {"None"} THEN ~Hopeless(r, positions) ELSE TRUE

Take(r) ==
    /\ Takes(r)
    /\ at' = [at EXCEPT ![r.t] = r.to]
    /\ sum' = [sum EXCEPT ![r.t] = Plus(@, r.d)]
    /\ owed' = [owed EXCEPT ![r.t] = @ \cup r.owe]
    /\ requests' = {q \in requests : Keep(q, at')}
    /\ UNCHANGED <<log, late, wish, gen, shown, letters, memory, checkpoint>>

Lose(r) ==
    /\ requests' = requests \ {r}
    /\ UNCHANGED <<log, late, wish, gen, shown, at, sum, owed, letters, memory, checkpoint>>

(* A dead letter is tried again: a target takes what it owes, once. *)
Retry(t, letter) ==
    LET due == IF Mutation = "OwedByKey" THEN {o \in owed[t] : o.k = letter.k} ELSE owed[t] \cap {letter}
    IN  /\ due # {} \/ (Mutation = "RetryUnasked" /\ Counts(gen, letter.g, t) = 1)
        /\ sum' = [sum EXCEPT ![t][letter.k] = @ + Counts(gen, letter.g, t)]
        /\ owed' = [owed EXCEPT ![t] = @ \ due]
        /\ letters' = letters
        /\ UNCHANGED <<log, late, wish, gen, shown, at, memory, checkpoint, requests>>

(* A new generation begins: other producers, empty accumulators, a walk of its own. *)
Generation ==
    /\ gen < GenerationMax
    /\ gen' = gen + 1 /\ shown' = FALSE
    /\ at' = [t \in Targets |-> Start]
    /\ sum' = [t \in Targets |-> Nothing]
    /\ owed' = [t \in Targets |-> {}]
    /\ memory' = [t \in Targets |-> <<>>]
    /\ checkpoint' = Start
    /\ UNCHANGED <<log, late, wish, letters, requests>>

(* Fields are published when the cursor is "all" everywhere. *)
Publish ==
    /\ ~shown
    /\ IF Mutation = "PublishedEarly" THEN \E t \in Targets : at[t].c = KeyMax
       ELSE \A t \in Targets : at[t].c = KeyMax
    /\ shown' = TRUE
    /\ UNCHANGED <<log, late, wish, gen, at, sum, owed, letters, memory, checkpoint, requests>>

Next ==
    \/ \E k \in Keys, g \in Groups : Write(k, g)
    \/ \E k \in Keys : TimePasses(k)
    \/ Switch
    \/ \E t \in Targets, n \in 0..Len(log), e \in Keys :
        \/ \E b \in 0..(IF Mutation = "PublishedLSN" THEN n ELSE 0) : Step(t, n, e, b)
        \/ CutStep(t, n, e)
        \/ Idle(t, n, e)
        \/ \E k \in Keys : GiveUp(t, n, e, k)
    \/ \E t \in Targets : Forget(t)
    \/ \E r \in requests : Take(r) \/ Lose(r)
    \/ \E t \in Targets, x \in letters : Retry(t, x)
    \/ Generation
    \/ Publish

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------

RECURSIVE Owes(_, _, _)
Owes(t, k, S) == IF S = {} THEN 0
                 ELSE LET o == CHOOSE x \in S : TRUE
                      IN  (IF o.k = k THEN Counts(gen, o.g, t) ELSE 0) + Owes(t, k, S \ {o})

(* I5: a target has counted exactly the items up to its cursor as they were at its LSN,  *)
(* what the owner folded since, and not what it owes.                                    *)
Exact ==
    \A t \in Targets, k \in Keys :
        sum[t][k] + Owes(t, k, owed[t])
            = (IF k <= at[t].c THEN Counts(gen, GroupAt(k, at[t].l), t) ELSE 0) + OwnFolds(t, k, at[t].l)

(* What a client can see: a target that has read everything counts what is there. *)
Right ==
    \A t \in Targets : at[t] = [l |-> Len(log), c |-> KeyMax] /\ owed[t] = {} =>
        \A k \in Keys : sum[t][k] = Counts(gen, GroupAt(k, Len(log)), t)

(* Published fields count every item that there was at the target's LSN. *)
Whole ==
    shown => \A t \in Targets, k \in Keys :
        sum[t][k] + Owes(t, k, owed[t]) = Counts(gen, GroupAt(k, at[t].l), t) + OwnFolds(t, k, at[t].l)

(* No position of a target goes back, within a generation. *)
Monotone == [][gen' = gen => \A t \in Targets : at'[t].l >= at[t].l /\ at'[t].c >= at[t].c]_vars
=============================================================================
