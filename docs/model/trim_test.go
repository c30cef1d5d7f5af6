package model_test

var trim = model{
	name:      "Trim",
	constants: "LastMax=3 SnapMax=1 DamageMax=0 Rest=TRUE Synced=FALSE Reads=FALSE Walks=FALSE Comes=FALSE",
	always:    []string{"Recoverable", "Explained", "NoHole", "Held"},
	holds: []check{
		{name: "under writes, one snapshot goes bad", constants: "SnapMax=2 DamageMax=1 Rest=FALSE"},
		{name: "at rest"},
		{name: "a pipeline", constants: "Reads=TRUE"},
		{name: "a walk", constants: "Walks=TRUE"},
		{name: "a reader comes", constants: "Comes=TRUE"},
		{name: "under writes, larger", constants: "LastMax=5 SnapMax=3 DamageMax=1 Rest=FALSE", large: true},
		{name: "a pipeline and synced engines, larger", constants: "Reads=TRUE Synced=TRUE", large: true},
		{name: "a walk, larger", constants: "LastMax=4 Walks=TRUE", large: true},
	},
	mutations: []check{
		{name: "PointerBeforeReadBack"},
		{name: "PointerNotCompared", constants: "SnapMax=2"},
		{name: "SweptUnnamed", constants: "SnapMax=2"},
		{name: "NewestIsFloor", constants: "DamageMax=1 Rest=FALSE"},
		{name: "PurgeBeforeCommit", invariants: "Explained"},
		{name: "EndTrimmed", invariants: "Explained"},
		{name: "GapUnseen", invariants: "NoHole"},
		{name: "PositionHolds", constants: "Reads=TRUE", invariants: "Held"},
		{name: "AnswerTooOld", constants: "LastMax=2 Walks=TRUE", invariants: "Held"},
		{name: "NotLookedAgain", constants: "LastMax=2 Comes=TRUE", invariants: "Held"},
		{name: "PurgedUnasked", constants: "LastMax=2 Comes=TRUE", invariants: "Held"},
		{name: "RegisteredLate", constants: "LastMax=2 Walks=TRUE", invariants: "Held"},
		{name: "RaisedBeforeWrite", constants: "LastMax=2 Walks=TRUE", invariants: "Held"},
		{name: "OldPageTaken", constants: "LastMax=2 Walks=TRUE", invariants: "Held"},
	},
}
