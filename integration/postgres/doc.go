// Package postgres starts throw-away PostgreSQL servers, for tests and benchmarks
// that need a real one:
//
//	server := postgres.Start(t)       // skips the test if PostgreSQL is not installed
//	dsn := server.Database(t)         // a new, empty database
//	server.Kill()                     // kill -9 of all its processes
//	server.Run(t.Context())           // and back again, on the same port
//
// The binaries are those of Debian's package postgresql, the newest that is
// installed, or what PATH has. A server listens on loopback only, at a port that
// was free, asks for a password, and dies with the process that started it.
// PostgreSQL refuses to run as root: started by root it runs as the user postgres,
// whom the package makes, and its directory must be one that others may enter.
//
// A Server is safe for concurrent use, but for Run, Stop, Kill and Close among
// themselves.
package postgres
