------------------------------- MODULE Cascade -------------------------------
(***************************************************************************)
(* Why copies converge: a fan-out of each change of a source, a check of     *)
(* each change of a target, and a walk over the targets of a new pipeline.   *)
(*                                                                         *)
(* One source item, of which src is the log: [v, t], v = 0 says that it     *)
(* goes. Target items, each in a partition, name that source and hold a     *)
(* copy. Pages and repairs are sent by anybody at any time: also by a worker  *)
(* that lost its lease long ago.                                            *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    ItemMax,      \* target items are 1..ItemMax
    PartitionMax, \* item i lies in partition (i % PartitionMax) + 1
    SourceMax,    \* changes of the source, its creation included
    WriteMax,     \* writes of clients to targets
    ClockMax,     \* ticks; commits of one tick have the same time
    OnDelete,     \* "keep", "clear" or "delete"
    Walk,         \* does the pipeline begin while items are there?
    PagesChecked, \* is what a page changed checked like any change?
    Mutation      \* what is wrong, or "None"

Items == 1..ItemMax
Partitions == 1..PartitionMax
Values == 1..2
Of(i) == (i % PartitionMax) + 1
In(p) == {i \in Items : Of(i) = p}
Absent == [there |-> FALSE, copy |-> 0, tag |-> 0, wrote |-> 0, time |-> 0, born |-> 0]

VARIABLES
    src,      \* the source's log
    clock,
    writes,   \* of clients, so far
    item,     \* by id: tag is its etag, wrote and time are of the last client's write, born is what src was then
    lsn,      \* by partition: its log's end
    carried,  \* by partition: the newest change that a page or fence has carried
    left,     \* by partition: items that are not scanned under it
    fence,    \* by change and partition: b, or 0
    armed,    \* changes by which the source goes, whose pages may go out
    pos,      \* the worker's position in the source's log
    job,      \* the change whose fan-out it runs, or 0
    saved,    \* its checkpoint: [pos, job]
    due,      \* items with a change that is not checked
    repairs,  \* under way: [i, tag, do, v, r]; they too are changes, and checked
    tombs,    \* goings behind this position leave tombstones; -1 is none yet
    plant,    \* by partition: from where its feed is checked; 0 is not yet
    todo,     \* items that the walk has not come to
    noted,    \* the end of the source's log as it was noted; -1 is not yet
    harm      \* was something removed that had to stay?

vars == <<src, clock, writes, item, lsn, carried, left, fence, armed, pos, job, saved, due, repairs, tombs, plant, todo, noted, harm>>
clients == <<src, clock, writes>>
fanout == <<carried, left, fence, armed>>
worker == <<pos, job, saved>>
walk == <<tombs, plant, todo, noted>>

Now == Len(src)
Value == src[Now].v
(* What the source was before it went. *)
Last(n) == IF n > 1 THEN src[n - 1].v ELSE 0
Registered == noted >= 0 /\ \A p \in Partitions : plant[p] > 0
Walked == Registered /\ todo = {}

Init ==
    /\ src = <<[v |-> 1, t |-> 0]>> /\ clock = 0 /\ writes = 0
    /\ item = [i \in Items |-> Absent]
    /\ lsn = [p \in Partitions |-> 1]
    /\ carried = [p \in Partitions |-> 1] /\ left = [p \in Partitions |-> {}]
    /\ fence = [r \in 1..SourceMax |-> [p \in Partitions |-> 0]]
    /\ armed = {}
    /\ pos = 1 /\ job = 0 /\ saved = [pos |-> 1, job |-> 0]
    /\ due = {} /\ repairs = {} /\ harm = FALSE
    /\ tombs = IF Walk THEN -1 ELSE 0
    /\ plant = [p \in Partitions |-> IF Walk THEN 0 ELSE 1]
    /\ todo = IF Walk THEN Items ELSE {}
    /\ noted = IF Walk THEN -1 ELSE 0

-----------------------------------------------------------------------------
(* Clients. *)

Tick ==
    /\ clock < ClockMax /\ clock' = clock + 1
    /\ UNCHANGED <<src, writes, item, lsn, fanout, worker, due, repairs, walk, harm>>

(* The source is renamed, goes, or is made again. *)
Change(v) ==
    /\ Now < SourceMax /\ v # Value
    /\ src' = Append(src, [v |-> v, t |-> clock])
    /\ UNCHANGED <<clock, writes, item, lsn, fanout, worker, due, repairs, walk, harm>>

(* From where on the feed of a partition is checked. *)
Follows(p) == plant[p] > 0 /\ (Mutation = "CheckedAfterWalk" => todo = {})

(* An item is created or replaced, with whatever copy its writer has. *)
Write(i, copy) ==
    LET p == Of(i) IN
    /\ writes < WriteMax /\ writes' = writes + 1
    /\ lsn' = [lsn EXCEPT ![p] = @ + 1]
    /\ item' = [item EXCEPT ![i] = [there |-> TRUE, copy |-> copy, tag |-> lsn'[p], wrote |-> lsn'[p], time |-> clock, born |-> Now]]
    /\ due' = IF Follows(p) /\ Mutation # "WriteUnchecked" THEN due \cup {i} ELSE due
    /\ UNCHANGED <<src, clock, fanout, worker, repairs, walk, harm>>

(* A patch that touches no field of the cascade: it is checked only where sources may be  *)
(* cleared or deleted, because it moves the item out of reach of pages.                   *)
Touch(i) ==
    LET p == Of(i) IN
    /\ item[i].there /\ writes < WriteMax /\ writes' = writes + 1
    /\ lsn' = [lsn EXCEPT ![p] = @ + 1]
    /\ item' = [item EXCEPT ![i].tag = lsn'[p], ![i].wrote = lsn'[p], ![i].time = clock, ![i].born = Now]
    /\ due' = IF Follows(p) /\ OnDelete # "keep" /\ Mutation # "TouchUnchecked" THEN due \cup {i} ELSE due
    /\ UNCHANGED <<src, clock, fanout, worker, repairs, walk, harm>>

-----------------------------------------------------------------------------
(* What owners do to an item. do is "set" or "remove"; r is the change that it is for.     *)

Put(i, do, v, r, checked) ==
    LET p == Of(i)
        changes == IF do = "remove" THEN TRUE ELSE item[i].copy # v
    IN  IF ~changes THEN UNCHANGED <<item, lsn, due, harm>>
        ELSE /\ lsn' = [lsn EXCEPT ![p] = @ + 1]
             /\ item' = [item EXCEPT ![i] = IF do = "remove" THEN Absent ELSE [@ EXCEPT !.copy = v, !.tag = lsn'[p]]]
             /\ due' = IF do = "remove" THEN due \ {i} ELSE IF Follows(p) /\ checked THEN due \cup {i} ELSE due
             /\ harm' = (harm \/ (do = "remove" /\ (item[i].born > r \/ item[i].time > src[r].t)))

(* A page: the owner scans one item for change r, of which it knows none newer. *)
Page(p, r, i) ==
    LET gone == src[r].v = 0
        v == IF gone THEN (IF OnDelete = "keep" THEN Last(r) ELSE 0) ELSE src[r].v
        do == IF gone /\ OnDelete = "delete" THEN "remove" ELSE "set"
        applied == ~(Mutation = "UnsettledPage" /\ item[i].wrote = lsn[p])
        reach == ~gone \/ OnDelete = "keep"
                 \/ /\ item[i].wrote <= fence[r][p] \/ Mutation = "FenceIgnored"
                    /\ OnDelete = "clear" \/ item[i].time <= src[r].t
    IN  /\ gone /\ OnDelete # "keep" => r \in armed
        /\ carried[p] <= r \/ Mutation = "OlderTaken"
        /\ i \in (IF carried[p] < r \/ (Mutation = "OlderTaken" /\ carried[p] > r) THEN In(p) ELSE left[p])
        /\ carried' = [carried EXCEPT ![p] = IF r > @ THEN r ELSE @]
        /\ left' = [left EXCEPT ![p] = (IF carried[p] < r /\ Mutation # "NewerGoesOn" THEN In(p) ELSE @) \ {i}]
        /\ IF item[i].there /\ applied /\ reach THEN Put(i, do, v, r, PagesChecked) ELSE UNCHANGED <<item, lsn, due, harm>>
        /\ UNCHANGED <<clients, fence, armed, worker, repairs, walk>>

(* The fence of a going: it is carried, nothing is touched; its LSN is b. *)
Fence(p, r) ==
    /\ src[r].v = 0 /\ OnDelete # "keep"
    /\ fence[r][p] = 0 /\ carried[p] < r
    /\ Mutation = "FenceAfterRead" => r \in armed
    /\ lsn' = [lsn EXCEPT ![p] = @ + 1]
    /\ fence' = [fence EXCEPT ![r][p] = lsn'[p]]
    /\ carried' = [carried EXCEPT ![p] = r]
    /\ left' = [left EXCEPT ![p] = In(p)]
    /\ UNCHANGED <<clients, item, armed, worker, due, repairs, walk, harm>>

(* Behind all fences the source is read: if it is still gone, pages may go out. *)
Arm(r) ==
    /\ src[r].v = 0 /\ r = Now
    /\ \A p \in Partitions : fence[r][p] > 0 \/ Mutation = "FenceAfterRead"
    /\ armed' = armed \cup {r}
    /\ UNCHANGED <<clients, item, lsn, carried, left, fence, worker, due, repairs, walk, harm>>

-----------------------------------------------------------------------------
(* The worker of the source's role. *)

(* It takes the next change: a newer one supersedes the fan-out under way. *)
Take ==
    /\ noted >= 0 /\ pos < Now
    /\ pos' = pos + 1 /\ job' = pos + 1
    /\ saved' = IF Mutation = "CheckpointBeforeJob" THEN [pos |-> pos + 1, job |-> 0] ELSE saved
    /\ UNCHANGED <<clients, item, lsn, fanout, due, repairs, walk, harm>>

DoneIn(p, r) ==
    IF Mutation = "OnePartition" /\ p # 1 THEN TRUE
    ELSE carried[p] > r \/ (carried[p] = r /\ left[p] = {})

(* A fan-out has ended when every partition says so. One that was superseded there goes   *)
(* on under the newer change. Of a going the source was read once more.                   *)
Done ==
    /\ job > 0
    /\ \A p \in Partitions : DoneIn(p, job)
    /\ job' = 0
    /\ UNCHANGED <<clients, item, lsn, fanout, pos, saved, due, repairs, walk, harm>>

Save ==
    /\ saved' = [pos |-> pos, job |-> job]
    /\ UNCHANGED <<clients, item, lsn, fanout, pos, job, due, repairs, walk, harm>>

(* A worker takes over from the checkpoint. It holds no values, so the source is read:   *)
(* the fan-out goes on under the change that is there now.                               *)
Restart ==
    /\ pos' = saved.pos
    /\ job' = IF saved.job > 0 THEN Now ELSE 0
    /\ UNCHANGED <<clients, item, lsn, fanout, saved, due, repairs, walk, harm>>

-----------------------------------------------------------------------------
(* The check of the targets' role: the source is read, a repair sent. *)

Tombstone(n) == src[n].v = 0 /\ tombs >= 0 /\ n > tombs

(* What an item must be, by the source as of its change n. *)
Want(i, n) ==
    IF src[n].v # 0 THEN [do |-> "set", v |-> src[n].v]
    ELSE IF ~Tombstone(n) THEN [do |-> "none", v |-> 0]
    ELSE CASE OnDelete = "keep" -> [do |-> "set", v |-> Last(n)]
           [] OnDelete = "clear" -> [do |-> "set", v |-> 0]
           [] OTHER -> IF (IF Mutation = "PlantForTime" /\ item[i].wrote <= plant[Of(i)] THEN TRUE ELSE item[i].time <= src[n].t)
                       THEN [do |-> "remove", v |-> 0] ELSE [do |-> "none", v |-> 0]

Check(i, n) ==
    LET want == Want(i, n)
        right == want.do = "none" \/ (want.do = "set" /\ want.v = item[i].copy)
    IN  /\ i \in due /\ item[i].there
        /\ due' = due \ {i}
        /\ repairs' = IF right THEN repairs
                      ELSE repairs \cup {[i |-> i, tag |-> item[i].tag, do |-> want.do, v |-> want.v, r |-> n]}
        /\ UNCHANGED <<clients, item, lsn, fanout, worker, walk, harm>>

(* A repair is guarded by the etag that was looked at. If it is refused, the item is read *)
(* and checked again.                                                                     *)
Repair(q) ==
    /\ repairs' = repairs \ {q}
    /\ IF item[q.i].there /\ (item[q.i].tag = q.tag \/ Mutation = "RepairUnguarded")
       THEN Put(q.i, q.do, q.v, q.r, TRUE)
       ELSE /\ due' = IF item[q.i].there /\ Mutation # "RefusedDropped" THEN due \cup {q.i} ELSE due
            /\ UNCHANGED <<item, lsn, harm>>
    /\ UNCHANGED <<clients, fanout, worker, walk>>

-----------------------------------------------------------------------------
(* A new pipeline: tombstones are in force, the ends of the source's logs are noted, b is *)
(* planted in each target partition, then its items are walked.                           *)

Tombstones ==
    /\ tombs = -1 /\ tombs' = Now
    /\ Mutation = "TombstonesLate" => Walked
    /\ UNCHANGED <<clients, item, lsn, fanout, worker, due, repairs, plant, todo, noted, harm>>

Note ==
    /\ noted = -1
    /\ tombs >= 0 \/ Mutation = "TombstonesLate"
    /\ Mutation = "NotedAfterWalk" => todo = {}
    /\ noted' = Now
    /\ pos' = Now /\ saved' = [pos |-> Now, job |-> 0] /\ job' = 0
    /\ carried' = [p \in Partitions |-> Now]
    /\ UNCHANGED <<clients, item, lsn, left, fence, armed, due, repairs, tombs, plant, todo, harm>>

Plant(p) ==
    /\ plant[p] = 0
    /\ noted >= 0 \/ Mutation = "NotedAfterWalk"
    /\ lsn' = [lsn EXCEPT ![p] = @ + 1]
    /\ plant' = [plant EXCEPT ![p] = lsn'[p]]
    /\ UNCHANGED <<clients, item, fanout, worker, due, repairs, tombs, todo, noted, harm>>

(* The walk comes to an item, which is checked as if it had changed. *)
Visit(i) ==
    /\ i \in todo
    /\ \A p \in Partitions : plant[p] > 0
    /\ todo' = todo \ {i}
    /\ due' = IF item[i].there THEN due \cup {i} ELSE due
    /\ UNCHANGED <<clients, item, lsn, fanout, worker, repairs, tombs, plant, noted, harm>>

Next ==
    \/ Tick
    \/ \E v \in 0..2 : Change(v)
    \/ \E i \in Items : (\E c \in Values : Write(i, c)) \/ Touch(i) \/ Visit(i)
    \/ \E i \in Items, n \in (IF Mutation = "UnsettledRead" THEN 1..Now ELSE {Now}) : Check(i, n)
    \/ \E r \in 1..Now :
        /\ noted >= 0
        /\ \/ \E p \in Partitions : Fence(p, r) \/ \E i \in In(p) : Page(p, r, i)
           \/ Arm(r)
    \/ Take \/ Done \/ Save \/ Restart
    \/ \E q \in repairs : Repair(q)
    \/ Tombstones \/ Note \/ \E p \in Partitions : Plant(p)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------

(* Nothing is left to do. *)
Settled == Walked /\ pos = Now /\ job = 0 /\ due = {} /\ repairs = {}

(* I6: then every copy is what its source says. *)
Converged ==
    Settled => \A i \in Items :
        item[i].there =>
            IF Value # 0 THEN item[i].copy = Value
            ELSE Tombstone(Now) \/ Now > noted =>
                CASE OnDelete = "keep" -> item[i].copy = Last(Now)
                  [] OnDelete = "clear" -> item[i].copy = 0
                  [] OTHER -> item[i].time > src[Now].t

(* What a client wrote after a source was made again, or later than it went, is not removed. *)
NoHarm == ~harm
=============================================================================
