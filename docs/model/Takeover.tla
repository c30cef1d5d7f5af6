------------------------------ MODULE Takeover ------------------------------
(***************************************************************************)
(* One owner at a time, though nodes die, sleep and are cut off, and no      *)
(* clock is compared. Writes are fenced by the log: each append names the    *)
(* sequence that it expects to be last, and a new owner begins with a        *)
(* takeover commit. Reads rest on time: a node has a read right, counted     *)
(* from when it sent what renewed it, and a successor waits until that of     *)
(* its predecessor has surely run out.                                       *)
(*                                                                         *)
(* One partition. Messages come late, and answers not at all. A node that is  *)
(* cut off or asleep is one that takes no step while others do. Whoever       *)
(* does not own the partition is a standby: it applies the log.              *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    NodeMax,  \* nodes are 1..NodeMax; node 1 owns the partition at first
    LogMax,   \* commits in the log
    Restarts, \* nodes that are killed and come back, once each
    RightMax, \* ticks that a read right holds
    Drift,    \* ticks by which a slow clock may be late meanwhile
    TryMax,   \* how often a renewal is sent, 1 or 2
    Renews,   \* nodes that renew their keys: what others do not rests on appends alone
    Stops,    \* does an owner hand over as planned?
    Mutation  \* what is wrong, or "None"

Nodes == 1..NodeMax
None == -1
Late == RightMax + Drift
Wait == IF Mutation = "NoDrift" THEN RightMax ELSE Late

VARIABLES
    log,     \* of commits [kind, by, inc, at]; at is the sequence that was expected to be last
    net,     \* appends under way: each may arrive at any time, and once
    node,    \* what each node knows, see Fresh
    key,     \* by node, in the bucket: [inc, up]; deposing it sets up to FALSE
    acked,   \* {<<lsn, node>>}: who acknowledged a write of a client
    refused, \* commits of which a client was told that they did not happen
    seen,    \* the newest write that a read has shown
    cut      \* where the log ended when its leader was cut off; None is not yet

vars == <<log, net, node, key, acked, refused, seen, cut>>

NoAppend == [kind |-> "none", at |-> 0, age |-> None, last |-> None]
NoRenewal == [a |-> None, b |-> None, stored |-> "none"]
NoDepose == [by |-> 0, inc |-> 0, done |-> FALSE, trusted |-> FALSE]

(* A process that begins. role is off, taking, owner, leaving or dropped; term the LSN of   *)
(* its takeover commit; right the ticks that are left of its read right; append what is in  *)
(* flight; bad: a read is under way whose snapshot lacks what was seen before it came.      *)
Begin(eng, inc) ==
    [role |-> "off", eng |-> eng, inc |-> inc, term |-> 0, right |-> 0, wait |-> None, bad |-> FALSE,
     append |-> NoAppend, renewal |-> NoRenewal, depose |-> NoDepose]

Init ==
    /\ log = <<[kind |-> "take", by |-> 1, inc |-> 1, at |-> 0]>> /\ net = {}
    /\ node = [n \in Nodes |-> IF n = 1 THEN [Begin(1, 1) EXCEPT !.role = "owner", !.term = 1] ELSE Begin(1, 1)]
    /\ key = [n \in Nodes |-> [inc |-> 1, up |-> TRUE]]
    /\ acked = {} /\ refused = {} /\ seen = 0 /\ cut = None

Max(S) == CHOOSE x \in S : \A y \in S : x >= y
Min(S) == CHOOSE x \in S : \A y \in S : x <= y
Last == Len(log)
Writes(upTo) == {0} \cup {l \in 1..upTo : log[l].kind = "write"}
(* The commit that says who owns the partition as of LSN l. *)
OwnerAt(l) == log[Max({i \in 1..l : log[i].kind # "write"})]
Set(n, r) == node' = [node EXCEPT ![n] = r]

-----------------------------------------------------------------------------
(* Time. All ticks are true time; a slow clock is one whose right is longer (Gain). *)

Older(a) == IF a = None \/ a = Late THEN a ELSE a + 1
Down(w) == IF w <= 0 THEN w ELSE w - 1

(* In those that sleep with a clock that sleeps too, the right does not run out. *)
Tick ==
    \E asleep \in IF Mutation = "SleepUncounted" THEN SUBSET Nodes ELSE {{}} :
        node' = [n \in Nodes |-> [node[n] EXCEPT
            !.right = IF n \in asleep THEN @ ELSE Down(@), !.wait = Down(@),
            !.append.age = Older(@), !.append.last = Older(@),
            !.renewal.a = Older(@), !.renewal.b = Older(@)]]
    /\ UNCHANGED <<log, net, key, acked, refused, seen, cut>>

(* The right after something that was sent age ago, by a clock that is slow by d. *)
Gain(r, age, d) == Max({r, RightMax + d - age})

-----------------------------------------------------------------------------
(* The node's own key: renewals by compare-and-set, and deposing.            *)

Renew(n) ==
    LET r == node[n].renewal IN
    /\ n \in Renews /\ node[n].role # "dropped"
    /\ \/ r.a = None /\ Set(n, [node[n] EXCEPT !.renewal.a = 0])
       \/ TryMax > 1 /\ r.a # None /\ r.b = None /\ Set(n, [node[n] EXCEPT !.renewal.b = 0])
    /\ UNCHANGED <<log, net, key, acked, refused, seen, cut>>

(* A try arrives at the bucket: one of them is stored, unless the key was changed since.   *)
Store(n) ==
    LET r == node[n].renewal IN
    \E try \in {"a", "b"} :
        /\ r.stored = "none" /\ r[try] # None
        /\ key[n].up \/ Mutation = "RenewalUnconditional"
        /\ key' = [key EXCEPT ![n].up = TRUE]
        /\ Set(n, [node[n] EXCEPT !.renewal.stored = try])
        /\ UNCHANGED <<log, net, acked, refused, seen, cut>>

(* The node learns which of its tries was stored, from the answer, or from the key after   *)
(* a refusal. The key is read where it may be old: so the other try proves nothing.        *)
Renewed(n) ==
    \E d \in 0..Drift :
        LET r == node[n].renewal
            age == IF Mutation = "RenewalFromAnswer" THEN 0
                   ELSE IF Mutation = "RenewalFromRetry" /\ r.b # None THEN r.b ELSE r[r.stored]
        IN  /\ r.stored # "none"
            /\ Set(n, [node[n] EXCEPT !.right = Gain(@, age, d), !.renewal = NoRenewal])
            /\ UNCHANGED <<log, net, key, acked, refused, seen, cut>>

Dropped(r) == [Begin(r.eng, r.inc) EXCEPT !.role = "dropped"]

(* A node learns that it was deposed: it drops all, what it is about to answer too. *)
LearnDeposed(n) ==
    /\ node[n].role # "dropped"
    /\ ~key[n].up \/ (Mutation = "RefusedIsDeposed" /\ node[n].renewal.stored = "a" /\ node[n].renewal.b # None)
    /\ Set(n, IF Mutation = "DeposedTakes" THEN [node[n] EXCEPT !.role = "off"] ELSE Dropped(node[n]))
    /\ UNCHANGED <<log, net, key, acked, refused, seen, cut>>

(* A process is killed, or gave up what it was; the next one of the directory writes a new *)
(* key. The directory's lock says that there is no other.                                  *)
Restart(n) ==
    /\ n \in Restarts /\ node[n].inc = 1
    /\ Set(n, Begin(node[n].eng, 2))
    /\ key' = [key EXCEPT ![n] = [inc |-> 2, up |-> TRUE]]
    /\ UNCHANGED <<log, net, acked, refused, seen, cut>>

-----------------------------------------------------------------------------
(* Appends. *)

Send(n, kind, at) ==
    LET r == [node[n] EXCEPT !.append = [kind |-> kind, at |-> at, age |-> 0, last |-> 0]] IN
    /\ node[n].append = NoAppend
    /\ net' = net \cup {[kind |-> kind, by |-> n, inc |-> r.inc, at |-> at]}
    /\ Set(n, CASE kind = "release" /\ Mutation # "ReleaseBeforeStop" -> [r EXCEPT !.role = "leaving"]
                [] kind = "write" /\ Mutation = "AppliedBefore" -> [r EXCEPT !.eng = at + 1]
                [] OTHER -> r)
    /\ UNCHANGED <<log, key, acked, refused, seen, cut>>

(* The stream takes an append whose expected sequence is the last one. *)
Land(m) ==
    /\ Last < LogMax
    /\ m.at = Last \/ Mutation = "Unfenced"
    /\ log' = Append(log, m)
    /\ net' = {x \in net \ {m} : x.at > Last \/ Mutation = "Unfenced"}
    /\ UNCHANGED <<node, key, acked, refused, seen, cut>>

MayWrite(r) ==
    \/ r.role = "owner"
    \/ Mutation \in {"AcksInWait", "AppendsInWait"} /\ r.role = "taking" /\ r.term > 0 /\ r.eng >= r.term

Write(n) == MayWrite(node[n]) /\ node[n].eng < LogMax /\ Send(n, "write", node[n].eng)

(* The same bytes once more, with the same expected sequence. *)
Retry(n) ==
    /\ Mutation = "AppendFromRetry" /\ node[n].append # NoAppend
    /\ Set(n, [node[n] EXCEPT !.append.last = 0])
    /\ UNCHANGED <<log, net, key, acked, refused, seen, cut>>

(* An owner that did not hear answers all the same. *)
AnswerUnknown(n) ==
    LET a == node[n].append IN
    /\ a.kind = "write"
    /\ \/ Mutation = "UnknownAcked" /\ acked' = acked \cup {<<a.at + 1, n>>} /\ UNCHANGED refused
       \/ Mutation = "UnknownRefused" /\ refused' = refused \cup {[kind |-> "write", by |-> n, inc |-> node[n].inc, at |-> a.at]}
          /\ UNCHANGED acked
    /\ Set(n, [node[n] EXCEPT !.append = NoAppend])
    /\ UNCHANGED <<log, net, key, seen, cut>>

(* What wait the log's end before a takeover asks for. A release says that nobody answers   *)
(* any more. A write of this node's earlier process says that nobody before it does, and   *)
(* the directory's lock that it does not.                                                  *)
WaitAfter(n, at) ==
    LET o == OwnerAt(at) IN
    IF \/ o.kind = "release"
       \/ o.by = n /\ (log[at].kind = "write" \/ Mutation = "LockEndsWait")
       \/ Mutation = "SecondTrusts" /\ node[n].depose.trusted
    THEN 0 ELSE Wait

(* The outcome of an append is learned, by its answer or by reading what is there. *)
Learn(n) ==
    \E d \in 0..Drift :
    LET r == node[n] a == r.append lsn == a.at + 1
        own == log[lsn].by = n /\ log[lsn].inc = r.inc /\ log[lsn].kind = a.kind
        age == IF Mutation = "AppendFromAnswer" THEN 0 ELSE IF Mutation = "AppendFromRetry" THEN a.last ELSE a.age
        done == [r EXCEPT !.append = NoAppend]
        held == [done EXCEPT !.right = Gain(@, age, d), !.eng = IF @ = a.at THEN lsn ELSE @]
        waits == IF r.wait # None /\ Mutation = "WaitFromDepose" THEN r.wait ELSE WaitAfter(n, a.at)
    IN  /\ a # NoAppend /\ Last >= lsn
        /\ CASE own /\ a.kind = "write" ->
                   /\ acked' = IF r.role = "taking" /\ Mutation = "AppendsInWait" THEN acked ELSE acked \cup {<<lsn, n>>}
                   /\ Set(n, held)
             [] own /\ a.kind = "take" -> Set(n, [held EXCEPT !.term = lsn, !.wait = waits]) /\ UNCHANGED acked
             [] own /\ a.kind = "release" -> Set(n, [done EXCEPT !.role = "off", !.eng = lsn, !.term = 0]) /\ UNCHANGED acked
             [] ~own /\ a.kind = "take" -> Set(n, done) /\ UNCHANGED acked
             [] ~own /\ a.kind # "take" ->
                   /\ acked' = IF Mutation = "RefusedIsOurs" THEN acked \cup {<<lsn, n>>} ELSE acked
                   /\ Set(n, IF Mutation \in {"DeposedTakes", "NotDeposed"} THEN [done EXCEPT !.role = "off", !.term = 0] ELSE Dropped(r))
        /\ UNCHANGED <<log, net, key, refused, seen, cut>>

(* Behind a node's own takeover commit there is nothing to replay but another's, which ends *)
(* its term: it does not go on with that.                                                  *)
Replay(n) ==
    LET to == IF node[n].term > 0 /\ Mutation # "ReplaysOn" THEN node[n].term ELSE Last IN
    /\ node[n].eng < to
    /\ node[n].append.kind \notin {"write", "release"}
    /\ node[n].role \in {"off", "taking"}
    /\ Set(n, [node[n] EXCEPT !.eng = to])
    /\ UNCHANGED <<log, net, key, acked, refused, seen, cut>>

-----------------------------------------------------------------------------
(* Taking over: depose, takeover commit, wait, serve. Anybody suspects anybody at any time. *)

(* Whom a node takes over from: the owner as of the commit that its takeover follows. *)
Victim(n) == OwnerAt(IF node[n].term > 0 THEN node[n].term - 1 ELSE Last)
Deposes(n) == Victim(n).kind = "take" /\ Victim(n).by # n
HasDeposed(n) == LET d == node[n].depose v == Victim(n) IN d.by = v.by /\ d.inc = v.inc /\ d.done

Take(n) ==
    /\ node[n].role = "off"
    /\ Set(n, [node[n] EXCEPT !.role = "taking", !.term = 0, !.depose = NoDepose,
                              !.wait = IF Mutation = "WaitFromSuspicion" THEN Wait ELSE None])
    /\ UNCHANGED <<log, net, key, acked, refused, seen, cut>>

(* Somebody else deposes it, or it is back as a new process: the key says so as well. *)
Depose(n) ==
    LET v == Victim(n) r == node[n] gone == key[v.by].inc # v.inc \/ ~key[v.by].up IN
    /\ r.role = "taking" /\ Deposes(n) /\ ~HasDeposed(n)
    /\ \/ /\ Mutation = "WaitFromSending" /\ r.depose = NoDepose
          /\ Set(n, [r EXCEPT !.depose = [by |-> v.by, inc |-> v.inc, done |-> FALSE, trusted |-> FALSE], !.wait = Wait])
          /\ UNCHANGED key
       \/ /\ Mutation # "WaitFromSending" \/ r.depose.by = v.by
          /\ key' = [key EXCEPT ![v.by].up = @ /\ gone /\ key[v.by].inc # v.inc]
          /\ Set(n, [r EXCEPT !.depose = [by |-> v.by, inc |-> v.inc, done |-> TRUE, trusted |-> gone],
                              !.wait = IF Mutation = "WaitFromDepose" \/ (Mutation = "TakeFirst" /\ r.term > 0) THEN Wait ELSE @])
    /\ UNCHANGED <<log, net, acked, refused, seen, cut>>

SendTake(n) ==
    /\ node[n].role = "taking" /\ node[n].term = 0 /\ Last < LogMax
    /\ Deposes(n) => HasDeposed(n) \/ Mutation \in {"NotDeposed", "TakeFirst", "WaitFromTakeover", "WaitFromSending", "WaitFromSuspicion"}
    /\ Send(n, "take", Last)

Serve(n) ==
    LET r == node[n] IN
    /\ r.role = "taking"
    /\ r.term > 0 \/ (Mutation = "NoTakeoverCommit" /\ r.eng = Last /\ (Deposes(n) => HasDeposed(n)))
    /\ r.eng >= r.term \/ Mutation = "NotReplayed"
    /\ Deposes(n) => HasDeposed(n) \/ Mutation = "NotDeposed"
    /\ r.wait = 0 \/ Mutation = "NoTakeoverCommit"
    /\ Set(n, [r EXCEPT !.role = "owner", !.wait = None, !.depose = NoDepose])
    /\ UNCHANGED <<log, net, key, acked, refused, seen, cut>>

(* A planned hand-over: the owner stops answering, then says so in the log. *)
Release(n) ==
    /\ Stops
    /\ node[n].role = "owner" \/ (Mutation = "ReleaseUnserved" /\ node[n].role = "taking" /\ node[n].term > 0 /\ node[n].eng >= node[n].term)
    /\ node[n].eng < LogMax
    /\ Send(n, "release", node[n].eng)

-----------------------------------------------------------------------------
(* Reads, of the owner as it thinks. One that came when more was seen than is in its        *)
(* snapshot is bad; only such are remembered. A settled read, on which a copy rests, must   *)
(* hold what the feed has shown, and the feed shows what is in the log; it waits for the    *)
(* append in flight. Every answer checks the right when its snapshot was taken.             *)

Answers(n) ==
    \/ node[n].role = "owner"
    \/ Mutation = "AnswersInWait" /\ node[n].role = "taking" /\ node[n].term > 0 /\ node[n].eng >= node[n].term

Has(n) == Max(Writes(Min({node[n].eng, Last})))
Snapshot(n) ==
    LET settled == node[n].append = NoAppend \/ Mutation = "UnsettledRead"
        must == Max({seen} \cup {a[1] : a \in acked} \cup IF settled THEN Writes(Last) ELSE {})
    IN  /\ Answers(n) /\ ~node[n].bad /\ Has(n) < must
        /\ Set(n, [node[n] EXCEPT !.bad = TRUE])
        /\ UNCHANGED <<log, net, key, acked, refused, seen, cut>>

MayAnswer(n) == Answers(n) /\ (node[n].right > 0 \/ Mutation = "RightUnchecked")

(* An answer that shows more than was acknowledged. *)
Answer(n) ==
    /\ MayAnswer(n) /\ ~node[n].bad /\ Has(n) > Max({seen} \cup {a[1] : a \in acked})
    /\ seen' = Has(n)
    /\ UNCHANGED <<log, net, node, key, acked, refused, cut>>

(* A leader of the stream is cut off and does not know it: it says what is the last one as *)
(* far as it has heard, to whoever is cut off with it.                                     *)
Cut ==
    /\ Mutation = "LeaderProves" /\ cut = None
    /\ cut' = Last /\ UNCHANGED <<log, net, node, key, acked, refused, seen>>
AskLeader(n) ==
    /\ cut # None /\ node[n].role = "owner" /\ node[n].eng = cut
    /\ Set(n, [node[n] EXCEPT !.right = RightMax])
    /\ UNCHANGED <<log, net, key, acked, refused, seen, cut>>

Next ==
    \/ Tick \/ Cut
    \/ \E m \in net : Land(m)
    \/ \E n \in Nodes :
        \/ Renew(n) \/ Store(n) \/ Renewed(n) \/ LearnDeposed(n) \/ Restart(n)
        \/ Write(n) \/ Retry(n) \/ AnswerUnknown(n) \/ Learn(n) \/ Replay(n)
        \/ Take(n) \/ Depose(n) \/ SendTake(n) \/ Serve(n) \/ Release(n)
        \/ Snapshot(n) \/ Answer(n) \/ AskLeader(n)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------

(* No answer lacks what was acknowledged, or read, or in the feed, before it was asked. *)
NotStale == \A n \in Nodes : node[n].bad => ~MayAnswer(n)

(* What was acknowledged is in the log, written by who acknowledged it; one acknowledges. *)
Durable ==
    \A a \in acked :
        /\ a[1] <= Last /\ log[a[1]].kind = "write" /\ log[a[1]].by = a[2]
        /\ \A b \in acked : b[1] = a[1] => b = a

(* Who writes took over last: the writes of a term are of one owner. *)
OneOwner ==
    \A l \in 1..Last : log[l].kind # "take" =>
        LET o == OwnerAt(l - 1) IN o.kind = "take" /\ o.by = log[l].by /\ o.inc = log[l].inc

(* What was refused did not happen. *)
NotRefused == \A l \in 1..Last : log[l] \notin refused

(* No state is ahead of the log, so a session token says the same to every node. *)
InLog == \A n \in Nodes : node[n].eng <= Last

(* Who drops all was deposed. *)
ForCause == \A n \in Nodes : node[n].role = "dropped" => ~key[n].up
=============================================================================
