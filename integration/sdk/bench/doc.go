// Command bench measures the Cosmos DB protocol of a millrace process beside that of
// the cosmium emulator, driven by the same programs, with the clients on the same
// cores:
//
//	cd integration/sdk && go run ./bench [-time 5s] [-connections 64] [-rounds 3]
//
// "http" sends signed requests over 64 connections and does nothing with the answers
// but check their status: what the server can do. "azcosmos" is the official SDK for
// Go, whose own work counts too: what an application sees. Millrace syncs each write
// to disk before it answers; cosmium keeps its items in memory.
//
// Go's HTTP server by itself, which answers the "http" cases without looking at them, stands beside both, which are
// built on it.
//
// The systems take turns, round by round; the best round counts, because others may
// use the machine. CPU is what the server's process used for each operation: it says
// more than rates where client and server share the cores.
package main
