-------------------------------- MODULE Split --------------------------------
(***************************************************************************)
(* A partition becomes two, while it is written, read, counted and swept.     *)
(*                                                                         *)
(* The parent's log ends with the split commit, which decides. What comes     *)
(* before it is preparation and may be done again; what comes after it        *)
(* follows from it, and is done by whoever finds it not done, by two at once   *)
(* too. A child's state is the parent's up to that commit, of the child's      *)
(* keys, and then its own log. Key 1 goes to child 1, key 2 to child 2.        *)
(*                                                                         *)
(* Appends to the parent are atomic here: that they have one owner is         *)
(* Takeover. An owner that dies is one that does nothing more.                *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    WriteMax,  \* operations of clients; operation w is of key (w % 2) + 1
    Room,      \* LSNs between the prepare commit and the children's first
    Feeds,     \* is there a pipeline that counts what the feed brings?
    Walks,     \* does it begin with the items that are there?
    FoldMax,   \* changes elsewhere that are counted in this partition; change i is of group i
    Sweeps,    \* has a source gone, whose items a fan-out removes?
    Keeps,     \* are engines lost, snapshots taken and the parent deleted?
    Mutation   \* what is wrong, or "None"

Children == {1, 2}
Makers == {1, 2}   \* who completes a split
None == -1

VARIABLES
    plog,    \* the parent's log: [k, x, y]
    clog,    \* by child; under ChildrenAnew by who made it as well
    born,    \* geneses on their way: <<maker, child>>
    have,    \* by child: the parent's LSN up to which its engine has the parent's
    kept,    \* children with a snapshot of their own that was read back
    gone,    \* is the parent deleted?
    route,   \* what the catalog names: 0 the parent, else whose children
    answers, \* does the parent's owner answer reads?
    acked,   \* operations that were acknowledged
    lease,   \* by partition, 0 is the parent: [pos, cursor]; pos None is no lease
    fed,     \* operations that the pipeline has counted, in order
    scanned, \* by partition: keys that the fan-out has looked at
    swept,   \* does the fan-out count as done?
    harm     \* was an item removed that is newer than the fan-out?

vars == <<plog, clog, born, have, kept, gone, route, answers, acked, lease, fed, scanned, swept, harm>>
catalog == <<born, kept, gone, route, answers>>
logs == <<plog, clog, have>>
pipeline == <<lease, fed>>
fanout == <<scanned, swept, harm>>

Key(w) == (w % 2) + 1
Keys(p) == IF p = 0 THEN {1, 2} ELSE {p}
NoLease == [pos |-> None, cursor |-> 2]
Entry(k, x, y) == [k |-> k, x |-> x, y |-> y]

Init ==
    /\ plog = <<>> /\ clog = [m \in Makers |-> [c \in Children |-> <<>>]] /\ born = {}
    /\ have = [c \in Children |-> 0] /\ kept = {} /\ gone = FALSE /\ route = 0 /\ answers = TRUE
    /\ acked = {}
    /\ lease = [p \in {0} \cup Children |->
                 IF p = 0 /\ Feeds /\ ~Walks THEN [pos |-> 0, cursor |-> 2] ELSE NoLease]
    /\ fed = <<>>
    /\ scanned = [p \in {0} \cup Children |-> {}] /\ swept = FALSE /\ harm = FALSE

-----------------------------------------------------------------------------
(* What the logs say. *)

Max(S) == CHOOSE x \in S : \A y \in S : x >= y
Upto(l) == SubSeq(plog, 1, l)
Is(seq, kind) == {i \in 1..Len(seq) : seq[i].k = kind}
Prepared == Is(plog, "prepare") # {}
IsCut == Is(plog, "split") # {}
CutAt == IF IsCut THEN CHOOSE i \in Is(plog, "split") : TRUE ELSE None
(* What the prepare commit says: the children's first LSN. *)
First == plog[CHOOSE i \in Is(plog, "prepare") : TRUE].x
Before == IF Mutation = "Restarts" \/ ~Prepared THEN 0 ELSE First - 1
Whose == IF route = 0 THEN 1 ELSE route
Child(c) == clog[Whose][c]

(* A child's log begins with its genesis; a second one would begin it anew. *)
Own(c) == LET g == Is(Child(c), "genesis") IN IF g = {} THEN <<>> ELSE SubSeq(Child(c), Max(g) + 1, Len(Child(c)))
Inherited(c) == SelectSeq(Upto(have[c]), LAMBDA e :
    \/ e.k = "op" /\ Key(e.x) = c
    \/ e.k \in {"fold", "plant"}
    \/ e.k = "remove" /\ e.x = c)
(* What happened to the items of a partition. *)
History(p) == IF p = 0 THEN plog ELSE Inherited(p) \o Own(p)
Ops(seq) == {seq[i].x : i \in Is(seq, "op")}

(* Who serves: the parent until it is cut, a child when it is born and has all that was the parent's. *)
Serves(p) ==
    IF p = 0 THEN ~IsCut \/ Mutation = "OpenedAnew"
    ELSE route # 0 /\ Child(p) # <<>> /\ (have[p] = CutAt \/ Mutation = "BornBehind")
(* The parent's log may grow until the first LSN of its children, less one for the cut. *)
HasRoom == IF Prepared /\ Mutation # "CutAbove" THEN Len(plog) + 1 < First - 1 ELSE TRUE

Add(p, e) ==
    IF p = 0 THEN HasRoom /\ plog' = Append(plog, e) /\ UNCHANGED clog
    ELSE clog' = [clog EXCEPT ![Whose][p] = Append(@, e)] /\ UNCHANGED plog

-----------------------------------------------------------------------------
(* Clients: an operation has an idempotency key, and is sent until it is acknowledged. *)

Knows(p, w) ==
    \/ w \in Ops(IF p = 0 THEN plog ELSE Own(p))
    \/ p # 0 /\ w \in Ops(Inherited(p)) /\ Mutation # "KeysLost"

Do(w) ==
    \E p \in {0} \cup Children : \E heard \in BOOLEAN :
        /\ w \notin acked /\ Key(w) \in Keys(p) /\ Serves(p)
        /\ w = 1 \/ \E q \in {0} \cup Children : w - 1 \in Ops(History(q))
        /\ IF Knows(p, w) THEN heard /\ UNCHANGED <<plog, clog>> ELSE Add(p, Entry("op", w, 0))
        /\ acked' = IF heard THEN acked \cup {w} ELSE acked
        /\ UNCHANGED <<have, catalog, pipeline, fanout>>

-----------------------------------------------------------------------------
(* The split. *)

Prepare ==
    /\ ~Prepared
    /\ plog' = Append(plog, Entry("prepare", Len(plog) + 1 + Room, 0))
    /\ UNCHANGED <<clog, have, catalog, acked, pipeline, fanout>>

(* A child follows, from where it is; after a crash from anywhere before. *)
Follow(c) ==
    /\ Prepared /\ have[c] < Len(plog) /\ ~gone
    /\ have' = [have EXCEPT ![c] = Len(plog)]
    /\ UNCHANGED <<plog, clog, catalog, acked, pipeline, fanout>>

Walking == lease[0].pos # None /\ lease[0].cursor < 2

(* The owner answers nothing any more, then appends the last commit. *)
Stop ==
    /\ Prepared /\ ~IsCut /\ answers
    /\ answers' = FALSE
    /\ UNCHANGED <<logs, born, kept, gone, route, acked, pipeline, fanout>>

CutOver ==
    /\ Prepared /\ ~IsCut
    /\ ~answers \/ Mutation = "AnswersOn"
    /\ ~Walking \/ Mutation = "CutDuringWalk"
    /\ Len(plog) + 1 < First \/ Mutation = "CutAbove"
    /\ plog' = Append(plog, Entry("split", 0, 0))
    /\ UNCHANGED <<clog, have, catalog, acked, pipeline, fanout>>

(* Whoever opens the parent finds how it ends, and makes what is not there. *)
SendGenesis(m, c) ==
    /\ IsCut /\ <<m, c>> \notin born
    /\ clog[IF Mutation = "ChildrenAnew" THEN m ELSE 1][c] = <<>>
    /\ have[c] = CutAt \/ Mutation = "BornBehind"
    /\ born' = born \cup {<<m, c>>}
    /\ UNCHANGED <<logs, kept, gone, route, answers, acked, pipeline, fanout>>

(* It names the sequence before the first one, so that there is one, whoever comes late. *)
Genesis(m, c) ==
    LET of == IF Mutation = "ChildrenAnew" THEN m ELSE 1 IN
    /\ <<m, c>> \in born
    /\ born' = born \ {<<m, c>>}
    /\ clog' = IF clog[of][c] = <<>> \/ Mutation = "GenesisUnfenced"
               THEN [clog EXCEPT ![of][c] = Append(@, Entry("genesis", 0, 0))] ELSE clog
    /\ UNCHANGED <<plog, have, kept, gone, route, answers, acked, pipeline, fanout>>

(* The catalog names the children when both are there. *)
Publish(m) ==
    LET of == IF Mutation = "ChildrenAnew" THEN m ELSE 1 IN
    /\ route # of /\ \A c \in Children : clog[of][c] # <<>>
    /\ route' = of
    /\ UNCHANGED <<logs, born, kept, gone, answers, acked, pipeline, fanout>>

-----------------------------------------------------------------------------
(* Engines are lost; the parent's log and snapshots are part of a child until it has its own. *)

Lose(c) ==
    /\ Keeps /\ have[c] > 0
    /\ have' = [have EXCEPT ![c] = IF c \in kept THEN CutAt ELSE 0]
    /\ UNCHANGED <<plog, clog, catalog, acked, pipeline, fanout>>

Keep(c) ==
    /\ Keeps /\ c \notin kept /\ Serves(c)
    /\ kept' = kept \cup {c}
    /\ UNCHANGED <<logs, born, gone, route, answers, acked, pipeline, fanout>>

Delete ==
    /\ Keeps /\ IsCut /\ ~gone /\ route # 0
    /\ kept = Children \/ (Mutation = "DeletedEarly" /\ kept # {})
    /\ lease[0].pos = None \/ Mutation = "DeletedUnread"
    /\ gone' = TRUE
    /\ UNCHANGED <<logs, born, kept, route, answers, acked, pipeline, fanout>>

-----------------------------------------------------------------------------
(* A pipeline counts each operation once, and a key's in their order. What it has counted   *)
(* and its position go together: that is Fold. Leases of the children are made when the     *)
(* parent was read to its end, before the parent's is removed.                              *)

Of(seq, keys) == SelectSeq(SelectSeq(seq, LAMBDA e : e.k = "op"), LAMBDA e : Key(e.x) \in keys)
Ids(seq) == [i \in 1..Len(seq) |-> seq[i].x]

Read(p) ==
    LET from == lease[p].pos log == IF p = 0 THEN plog ELSE Own(p) IN
    /\ from # None /\ lease[p].cursor = 2 /\ from < Len(log) /\ (p = 0 => ~gone)
    /\ lease' = [lease EXCEPT ![p].pos = from + 1]
    /\ fed' = fed \o Ids(Of(<<log[from + 1]>>, Keys(p)))
    /\ UNCHANGED <<logs, catalog, acked, fanout>>

Register ==
    /\ Walks /\ lease[0].pos = None /\ fed = <<>> /\ ~IsCut
    /\ lease' = [lease EXCEPT ![0] = [pos |-> Len(plog), cursor |-> 0]]
    /\ UNCHANGED <<logs, catalog, acked, fed, fanout>>

(* The log behind the cursor, then a page. *)
Page ==
    LET from == lease[0].pos c == lease[0].cursor IN
    /\ Walking /\ ~IsCut
    /\ lease' = [lease EXCEPT ![0] = [pos |-> Len(plog), cursor |-> c + 1]]
    /\ fed' = fed \o Ids(Of(SubSeq(plog, from + 1, Len(plog)), 1..c)) \o Ids(Of(plog, {c + 1}))
    /\ UNCHANGED <<logs, catalog, acked, fanout>>

(* The worker finds that the walk's partition has gone, and goes on with the log alone. *)
WalkCut ==
    /\ Walking /\ IsCut
    /\ lease' = [lease EXCEPT ![0].cursor = 2]
    /\ UNCHANGED <<logs, catalog, acked, fed, fanout>>

AtEnd == IsCut /\ lease[0].pos >= CutAt

LeaseChild(c) ==
    /\ Feeds /\ route # 0 /\ lease[0].pos # None /\ lease[c].pos = None
    /\ AtEnd \/ Mutation = "OpenedBeforeEnd"
    /\ lease' = [lease EXCEPT ![c] = [pos |-> IF Mutation = "ChildFromNow" THEN Len(Own(c)) ELSE 0, cursor |-> 2]]
    /\ UNCHANGED <<logs, catalog, acked, fed, fanout>>

LeaseGone ==
    /\ Feeds /\ lease[0].pos # None /\ AtEnd
    /\ (\A c \in Children : lease[c].pos # None) \/ Mutation = "ParentLeaseFirst"
    /\ lease' = [lease EXCEPT ![0] = NoLease]
    /\ UNCHANGED <<logs, catalog, acked, fed, fanout>>

(* A worker that starts finds a partition without a lease: the pipeline is new to it, and   *)
(* begins with its items. Not while the parent has one.                                    *)
LeaseNew(c) ==
    /\ Feeds /\ route # 0 /\ lease[c].pos = None
    /\ lease[0].pos = None \/ Mutation = "ChildWhileParent"
    /\ ~(Walks /\ fed = <<>>)
    /\ lease' = [lease EXCEPT ![c] = [pos |-> Len(Own(c)), cursor |-> 2]]
    /\ fed' = fed \o Ids(Of(History(c), {c}))
    /\ UNCHANGED <<logs, catalog, acked, fanout>>

-----------------------------------------------------------------------------
(* Sums of this partition: requests of any worker, with whatever it believes, late or twice. *)

Folds(seq) == {seq[i].y : i \in Is(seq, "fold")} \cup {0}
Recorded(p) ==
    IF p = 0 THEN Max(Folds(plog))
    ELSE Max(Folds(Own(p)) \cup IF Mutation = "PositionsToOne" /\ p = 2 THEN {} ELSE Folds(Inherited(p)))

Fold(p, after, upTo) ==
    /\ Serves(p) /\ after < upTo
    /\ Recorded(p) = after
    /\ Add(p, Entry("fold", after, upTo))
    /\ UNCHANGED <<have, catalog, acked, pipeline, fanout>>

Covers(seq, g) == Cardinality({i \in Is(seq, "fold") : seq[i].x < g /\ g <= seq[i].y})
Sum(p, g) == IF g \in Keys(p) \/ Mutation = "SumsToBoth" THEN Covers(History(p), g) ELSE 0

-----------------------------------------------------------------------------
(* A fan-out removes what was last written at or before b, the LSN of its first page's     *)
(* commit. In the children it starts again, with the same b.                               *)

Plants(p) == Is(IF p = 0 THEN plog ELSE Own(p), "plant")
(* LSNs as numbers: b as the partition knows it. *)
B(p) ==
    IF p # 0 /\ (Plants(0) = {} \/ (Mutation = "PlantedAnew" /\ Plants(p) # {}))
    THEN (IF Plants(p) = {} THEN 0 ELSE Before + 1 + Max(Plants(p)))
    ELSE (IF Plants(0) = {} THEN 0 ELSE Max(Plants(0)))

Plant(p) ==
    /\ Sweeps /\ Serves(p) /\ Plants(p) = {}
    /\ p # 0 => Plants(0) = {} \/ Mutation = "PlantedAnew"
    /\ Add(p, Entry("plant", 0, 0))
    /\ UNCHANGED <<have, catalog, acked, pipeline, fanout>>

(* The item of a key: where its last operation stands, as an LSN, and whether it was        *)
(* written behind the fan-out's beginning; LSN 0 is none.                                  *)
LastOf(seq, k) == Max({0} \cup {i \in Is(seq, "op") : Key(seq[i].x) = k})
Removed(seq, k, i) == \E j \in Is(seq, "remove") : j > i /\ seq[j].x = k
Item(p, k) ==
    LET own == IF p = 0 THEN <<>> ELSE Own(p) up == IF p = 0 THEN plog ELSE Upto(have[p])
        o == LastOf(own, k) i == LastOf(up, k)
    IN  IF o > 0 THEN [lsn |-> IF Removed(own, k, o) THEN 0 ELSE Before + 1 + o,
                       late |-> Plants(0) # {} \/ (Plants(p) # {} /\ o > Max(Plants(p)))]
        ELSE IF i > 0 THEN [lsn |-> IF Removed(up, k, i) \/ Removed(own, k, 0) THEN 0 ELSE i,
                            late |-> Plants(0) # {} /\ i > Max(Plants(0))]
        ELSE [lsn |-> 0, late |-> FALSE]

Scan(p, k) ==
    LET it == Item(p, k) IN
    /\ Sweeps /\ Serves(p) /\ B(p) > 0 /\ k \in Keys(p) /\ k \notin scanned[p]
    /\ scanned' = [scanned EXCEPT ![p] = @ \cup {k}]
    /\ IF it.lsn > 0 /\ it.lsn <= B(p)
       THEN Add(p, Entry("remove", k, 0)) /\ harm' = (harm \/ it.late)
       ELSE UNCHANGED <<plog, clog, harm>>
    /\ UNCHANGED <<have, catalog, acked, pipeline, swept>>

Done(p) == scanned[p] = Keys(p)
Finish ==
    /\ Sweeps /\ ~swept
    /\ \/ Done(0)
       \/ \A c \in Children : Done(c)
       \/ Mutation = "OneChildDone" /\ \E c \in Children : Done(c)
       \/ Mutation = "FanOutDropped" /\ IsCut /\ Plants(0) # {}
    /\ swept' = TRUE
    /\ UNCHANGED <<logs, catalog, acked, pipeline, scanned, harm>>

Next ==
    \/ \E w \in 1..WriteMax : Do(w)
    \/ Prepare \/ Stop \/ CutOver \/ Delete
    \/ \E c \in Children : Follow(c) \/ Lose(c) \/ Keep(c) \/ LeaseChild(c) \/ LeaseNew(c)
    \/ \E m \in Makers : Publish(m) \/ \E c \in Children : SendGenesis(m, c) \/ Genesis(m, c)
    \/ \E p \in {0} \cup Children :
        \/ Read(p) \/ Plant(p)
        \/ \E k \in Keys(p) : Scan(p, k)
        \/ \E a, u \in 0..FoldMax : Fold(p, a, u)
    \/ Register \/ Page \/ WalkCut \/ LeaseGone \/ Finish

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------

(* What was acknowledged is there, where clients look. *)
Kept ==
    \A w \in acked :
        IF route = 0 THEN w \in Ops(plog) ELSE Serves(Key(w)) => w \in Ops(History(Key(w)))

(* An operation happens once. *)
Once ==
    \A c \in Children : Serves(c) =>
        LET h == Of(plog, {c}) \o Of(Own(c), {c}) IN Cardinality(Ops(h)) = Len(h)

(* Every LSN of a child is greater than all of its parent's. *)
Grows == \A c \in Children : Child(c) # <<>> => Before + 1 > Len(plog)

(* The parent answers no read when a child has acknowledged what it lacks. *)
NotStale == answers => \A c \in Children : acked \cap (Ops(Own(c)) \ Ops(plog)) = {}

(* A child's state can be made again, and the parent's end be read by who has not read it. *)
Recoverable ==
    gone => /\ \A c \in Children : c \in kept
            /\ lease[0].pos # None => AtEnd

(* The feed: each operation once, a key's in their order, and in the end all. *)
All(k) == Ids(Of(plog, {k}) \o Of(Own(k), {k}))
Fed ==
    Feeds /\ lease[0].cursor = 2 =>
        /\ \A k \in {1, 2} :
            LET f == SelectSeq(fed, LAMBDA w : Key(w) = k) IN
            Len(f) <= Len(All(k)) /\ f = SubSeq(All(k), 1, Len(f))
        /\ (IsCut /\ lease[0].pos = None /\ \A c \in Children : lease[c].pos # None /\ lease[c].pos = Len(Own(c)))
            => Len(fed) = Len(All(1)) + Len(All(2))

(* Sums: each change once, whoever adds up all partitions. *)
Exact ==
    \A g \in 1..FoldMax :
        IF route = 0 THEN Sum(0, g) <= 1
        ELSE (\A c \in Children : Serves(c)) =>
            Sum(1, g) + Sum(2, g) = IF Recorded(g) >= g THEN 1 ELSE 0

(* The fan-out: nothing newer goes, and when it counts as done nothing older is left. *)
NoHarm == ~harm
Swept ==
    swept => \A k \in {1, 2} :
        LET p == IF IsCut THEN k ELSE 0 IN
        (p = 0 \/ Serves(p)) => Item(p, k).lsn = 0 \/ Item(p, k).late
=============================================================================
