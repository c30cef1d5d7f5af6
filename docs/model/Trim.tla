-------------------------------- MODULE Trim --------------------------------
(***************************************************************************)
(* How the beginning of a log goes, and nothing with it: snapshots that are *)
(* read back, a pointer changed by compare-and-set, a trim point that is in *)
(* the log before anything is purged, readers and walks that it waits for.  *)
(*                                                                         *)
(* One partition. Two nodes have engines; one of them owns the partition,   *)
(* which the log decides, and the other is a standby, or an owner that was  *)
(* deposed and goes on with what it had begun. Engines are lost at any time. *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    LastMax,    \* commits in the log
    SnapMax,    \* snapshots that are written
    DamageMax,  \* snapshots that go bad after they were read back
    Rest,       \* do writes rest? then the newest snapshot is the floor, else the older one
    Synced,     \* does the trim point wait for what the owner's engine has synced?
    Reads,      \* is there a pipeline that reads the log?
    Walks,      \* is there a walk?
    Comes,      \* does a reader come that begins below the log's end?
    Mutation    \* what is wrong, or "None"

Nodes == {1, 2}
None == -1

VARIABLES
    first, last, \* of the log's stream
    point,       \* the trim point: every commit repeats it, so the last one tells it
    owner,       \* who wrote the last takeover commit
    engine,      \* by node: the LSN that it has applied
    synced,      \* by node: what a crash leaves of it
    hole,        \* nodes whose engine passed over something
    snaps,       \* in the snapshot store, by id: [lsn, whole, there]
    pointer,     \* ids of the newest snapshots, the newest first, at most two
    work,        \* by node: the snapshot that it writes: [id, seen, checked]; id 0 is none
    damages,
    reader,      \* a pipeline: [saved, at], its checkpoint and where it is
    walk,        \* [registered, recorded]: what the trim point waits for, and what targets have
    view,        \* what the owner knows of readers: [saved, registered, end], end is the log's then
    comer,       \* the reader that comes: [begin, step], which is none, looked, written, held
    granted      \* how far somebody was told that he may purge

vars == <<first, last, point, owner, engine, synced, hole, snaps, pointer, work, damages, reader, walk, view, comer, granted>>
late == <<comer, granted>>
log == <<first, last, point>>
nodes == <<owner, engine, synced, hole>>
store == <<snaps, pointer, work, damages>>
readers == <<reader, walk>>

Idle == [id |-> 0, seen |-> <<>>, checked |-> FALSE]
Unknown == [saved |-> 0, registered |-> None, end |-> 0]
Min(S) == CHOOSE x \in S : \A y \in S : x <= y
Newest == IF pointer = <<>> THEN 0 ELSE snaps[pointer[1]].lsn
Oldest == IF pointer = <<>> THEN 0 ELSE snaps[pointer[Len(pointer)]].lsn

Init ==
    /\ first = 1 /\ last = 0 /\ point = 0 /\ owner = 1
    /\ engine = [n \in Nodes |-> 0] /\ synced = [n \in Nodes |-> 0] /\ hole = {}
    /\ snaps = <<>> /\ pointer = <<>> /\ damages = 0
    /\ work = [n \in Nodes |-> Idle]
    /\ reader = [saved |-> 0, at |-> 0]
    /\ walk = [registered |-> None, recorded |-> None]
    /\ view = Unknown
    /\ comer = [begin |-> None, step |-> "none"] /\ granted = 0

-----------------------------------------------------------------------------
(* The log and the engines. *)

Write ==
    /\ last < LastMax /\ engine[owner] = last
    /\ last' = last + 1
    /\ engine' = [engine EXCEPT ![owner] = last + 1]
    /\ UNCHANGED <<first, point, owner, synced, hole, store, readers, view>>

Sync(n) ==
    /\ Synced /\ synced[n] # engine[n]
    /\ synced' = [synced EXCEPT ![n] = engine[n]]
    /\ UNCHANGED <<log, owner, engine, hole, store, readers, view>>

Crash(n) ==
    /\ Synced
    /\ engine' = [engine EXCEPT ![n] = synced[n]]
    /\ work' = [work EXCEPT ![n] = Idle]
    /\ view' = IF n = owner THEN Unknown ELSE view
    /\ UNCHANGED <<log, owner, synced, hole, snaps, pointer, damages, readers>>

LoseEngine(n) ==
    /\ engine' = [engine EXCEPT ![n] = 0] /\ synced' = [synced EXCEPT ![n] = 0]
    /\ hole' = hole \ {n}
    /\ UNCHANGED <<log, owner, store, readers, view>>

(* A node applies the log up to any commit. What it needs next must be there: a consumer *)
(* that asks for what is gone begins with the first message, without a word.             *)
Replay(n, upTo) ==
    /\ engine[n] < upTo /\ upTo <= last
    /\ engine[n] + 1 >= first \/ Mutation = "GapUnseen"
    /\ upTo >= first
    /\ engine' = [engine EXCEPT ![n] = upTo]
    /\ hole' = IF engine[n] + 1 >= first THEN hole ELSE hole \cup {n}
    /\ UNCHANGED <<log, owner, synced, store, readers, view>>

(* An engine that ends below the log's beginning is loaded from a snapshot. *)
Load(n) ==
    \E i \in 1..Len(pointer) :
        LET s == snaps[pointer[i]] IN
        /\ engine[n] + 1 < first
        /\ s.there /\ s.whole /\ s.lsn + 1 >= first
        /\ engine' = [engine EXCEPT ![n] = s.lsn]
        /\ synced' = [synced EXCEPT ![n] = s.lsn]
        /\ hole' = hole \ {n}
        /\ UNCHANGED <<log, owner, store, readers, view>>

TakeOver(n) ==
    /\ n # owner /\ engine[n] = last /\ last < LastMax
    /\ owner' = n /\ last' = last + 1
    /\ engine' = [engine EXCEPT ![n] = last + 1]
    /\ view' = Unknown
    /\ UNCHANGED <<first, point, synced, hole, store, readers>>

-----------------------------------------------------------------------------
(* Snapshots: written, read back, pointed to. A standby writes them too.     *)

WriteSnapshot(n, whole) ==
    /\ work[n].id = 0 /\ Len(snaps) < SnapMax
    /\ engine[n] > Newest
    /\ snaps' = Append(snaps, [lsn |-> engine[n], whole |-> whole, there |-> TRUE])
    /\ work' = [work EXCEPT ![n] = [id |-> Len(snaps) + 1, seen |-> pointer, checked |-> FALSE]]
    /\ UNCHANGED <<log, nodes, pointer, damages, readers, view>>

ReadBack(n) ==
    /\ work[n].id # 0 /\ ~work[n].checked
    /\ LET s == snaps[work[n].id] IN
        work' = [work EXCEPT ![n] = IF s.there /\ s.whole THEN [@ EXCEPT !.checked = TRUE] ELSE Idle]
    /\ UNCHANGED <<log, nodes, snaps, pointer, damages, readers, view>>

(* The pointer moves by compare-and-set, and to greater LSNs alone. *)
MovePointer(n) ==
    /\ work[n].id # 0
    /\ work[n].checked \/ Mutation = "PointerBeforeReadBack"
    /\ LET own == work[n].id
           before == IF Mutation = "PointerNotCompared" THEN work[n].seen ELSE pointer
           moves == /\ pointer = work[n].seen \/ Mutation = "PointerNotCompared"
                    /\ snaps[own].lsn > Newest \/ Mutation = "PointerNotCompared"
       IN  /\ pointer' = IF ~moves THEN pointer ELSE IF before = <<>> THEN <<own>> ELSE <<own, before[1]>>
           /\ work' = [work EXCEPT ![n] = Idle]
    /\ UNCHANGED <<log, nodes, snaps, damages, readers, view>>

(* What no pointer will ever name again goes: it is older than all that are named. What   *)
(* is newer may be another node's, who is about to name it.                               *)
Sweep ==
    /\ \E i \in 1..Len(snaps) :
        /\ snaps[i].there
        /\ \A j \in 1..Len(pointer) : pointer[j] # i
        /\ snaps[i].lsn < Oldest \/ (Mutation = "SweptUnnamed" /\ pointer # <<>>)
        /\ snaps' = [snaps EXCEPT ![i].there = FALSE]
    /\ UNCHANGED <<log, nodes, pointer, work, damages, readers, view>>

(* A snapshot that was whole goes bad. *)
Damage ==
    /\ damages < DamageMax
    /\ \E i \in 1..Len(snaps) :
        /\ snaps[i].there /\ snaps[i].whole
        /\ \E j \in 1..Len(pointer) : pointer[j] = i
        /\ snaps' = [snaps EXCEPT ![i].whole = FALSE]
    /\ damages' = damages + 1
    /\ UNCHANGED <<log, nodes, pointer, work, readers, view>>

-----------------------------------------------------------------------------
(* Readers: a pipeline with a checkpoint, and a walk that registers its LSN. *)

Read ==
    /\ Reads /\ reader.at < last
    /\ reader.at + 1 >= first
    /\ reader' = [reader EXCEPT !.at = last]
    /\ UNCHANGED <<log, nodes, store, walk, view>>

Save ==
    /\ reader.saved # reader.at
    /\ reader' = [reader EXCEPT !.saved = reader.at]
    /\ UNCHANGED <<log, nodes, store, walk, view>>

ReaderCrash ==
    /\ reader' = [reader EXCEPT !.at = reader.saved]
    /\ UNCHANGED <<log, nodes, store, walk, view>>

(* A walk registers the log's end before it reads its first page. *)
Register ==
    /\ Walks /\ walk.registered = None
    /\ walk.recorded = None \/ Mutation = "RegisteredLate"
    /\ walk' = [walk EXCEPT !.registered = IF walk.recorded = None THEN last ELSE walk.recorded]
    /\ UNCHANGED <<log, nodes, store, reader, view>>

(* A step: a page of any engine's state, and the log up to it. A page below what is       *)
(* registered, of an owner that was deposed, is asked for again.                          *)
WalkStep(n) ==
    /\ Walks
    /\ walk.registered # None \/ (Mutation = "RegisteredLate" /\ walk.recorded = None)
    /\ engine[n] >= walk.registered \/ Mutation = "OldPageTaken"
    /\ walk.recorded = None \/ (engine[n] > walk.recorded /\ walk.recorded + 1 >= first)
    /\ walk' = IF Mutation = "RaisedBeforeWrite" /\ walk.recorded # None
               THEN [walk EXCEPT !.registered = engine[n]] ELSE [walk EXCEPT !.recorded = engine[n]]
    /\ UNCHANGED <<log, nodes, store, reader, view>>

(* What is registered is raised behind what is recorded. *)
Raise ==
    /\ walk.registered # None /\ walk.recorded > walk.registered
    /\ walk' = [walk EXCEPT !.registered = walk.recorded]
    /\ UNCHANGED <<log, nodes, store, reader, view>>

(* A walk ends, or its time runs out: then nothing waits for it. *)
WalkEnds ==
    /\ walk.registered # None
    /\ walk' = [registered |-> None, recorded |-> None]
    /\ UNCHANGED <<log, nodes, store, reader, view>>

-----------------------------------------------------------------------------
(* Trimming. *)

(* The owner asks who reads, and notes where the log ended then. *)
Ask ==
    /\ Reads \/ Walks
    /\ view' = [saved |-> IF Mutation = "PositionHolds" THEN reader.at ELSE reader.saved,
                registered |-> walk.registered, end |-> last]
    /\ UNCHANGED <<log, nodes, store, readers>>

Floor ==
    IF Rest \/ Mutation = "NewestIsFloor" THEN Newest
    ELSE IF Len(pointer) < 2 THEN 0 ELSE Oldest

(* How far the owner may trim. A reader that came after it asked registered at or above   *)
(* the log's end then, so beyond that end nothing is known.                               *)
May ==
    Min({Floor}
        \cup (IF Reads THEN {view.saved} ELSE {})
        \cup (IF view.registered = None THEN {} ELSE {view.registered})
        \cup (IF ~(Reads \/ Walks) \/ Mutation = "AnswerTooOld" THEN {} ELSE {view.end})
        \cup (IF Synced THEN {synced[owner]} ELSE {}))

(* The trim point goes into the log. It is below the commit that carries it. *)
TrimCommit ==
    /\ last < LastMax /\ engine[owner] = last
    /\ May > point
    /\ point' = IF Mutation = "EndTrimmed" /\ May = last THEN last + 1 ELSE May
    /\ last' = last + 1
    /\ engine' = [engine EXCEPT ![owner] = last + 1]
    /\ UNCHANGED <<first, owner, synced, hole, store, readers, view>>

(* Whoever read the last commit purges what it allows, in steps: also a deposed owner. *)
Purge(to) ==
    /\ to >= first
    /\ to <= point \/ (Mutation = "PurgeBeforeCommit" /\ to <= May)
    /\ ~Comes \/ to <= granted \/ Mutation = "PurgedUnasked"
    /\ first' = to + 1
    /\ UNCHANGED <<last, point, nodes, store, readers, view>>

-----------------------------------------------------------------------------
(* A reader comes that begins with what is there, or is set back: it looks where the log   *)
(* begins, writes its record, and looks at the trim point then. Whoever purges asks who    *)
(* reads when the trim point is in the log; the answer may be used much later.             *)

Look ==
    /\ Comes /\ comer.step = "none"
    /\ \E b \in first - 1..last : b >= point /\ comer' = [begin |-> b, step |-> "looked"]
    /\ UNCHANGED granted

Record ==
    /\ comer.step = "looked"
    /\ comer' = [comer EXCEPT !.step = IF Mutation = "NotLookedAgain" THEN "held" ELSE "written"]
    /\ UNCHANGED granted

(* Where the trim point has passed it, it begins anew with the items of a snapshot, by a   *)
(* record that is looked at in the same way.                                               *)
LookAgain ==
    /\ comer.step = "written"
    /\ comer' = IF point <= comer.begin THEN [comer EXCEPT !.step = "held"]
                ELSE [begin |-> point, step |-> "looked"]
    /\ UNCHANGED granted

AskAgain ==
    /\ Comes
    /\ LET may == IF comer.step \in {"written", "held"} THEN Min({point, comer.begin}) ELSE point
       IN  granted < may /\ granted' = may
    /\ UNCHANGED comer

Come ==
    /\ Look \/ Record \/ LookAgain \/ AskAgain
    /\ UNCHANGED <<log, nodes, store, readers, view>>

Stay ==
    \/ Write \/ TrimCommit \/ Ask \/ Sweep \/ Damage
    \/ \E to \in 1..LastMax + 1 : Purge(to)
    \/ \E n \in Nodes :
        \/ Sync(n) \/ Crash(n) \/ LoseEngine(n) \/ Load(n) \/ TakeOver(n)
        \/ \E upTo \in 1..last : Replay(n, upTo)
        \/ \E whole \in BOOLEAN : WriteSnapshot(n, whole)
        \/ ReadBack(n) \/ MovePointer(n) \/ WalkStep(n)
    \/ Read \/ Save \/ ReaderCrash \/ Register \/ Raise \/ WalkEnds

Next == Come \/ (Stay /\ UNCHANGED late)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------

(* If every engine is lost, the state can be made again. *)
Recoverable ==
    \/ first = 1
    \/ \E i \in 1..Len(pointer) : LET s == snaps[pointer[i]] IN s.there /\ s.whole /\ s.lsn + 1 >= first

(* What the log lacks at its beginning is what its last commit says may be gone, and the  *)
(* last commit is there to say so.                                                        *)
Explained == first <= point + 1 /\ (last > 0 => first <= last)

(* No engine has passed over a commit. *)
NoHole == hole = {}

(* Nobody that the trim point waits for is cut off. *)
Held ==
    /\ Reads => reader.saved + 1 >= first
    /\ walk.registered # None /\ walk.recorded # None => walk.recorded + 1 >= first
    /\ comer.step = "held" => comer.begin + 1 >= first
=============================================================================
