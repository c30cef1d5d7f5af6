module github.com/millrace/millrace/integration/bench/anchors

go 1.26.0

replace github.com/millrace/millrace => ../../..

require (
	github.com/mattn/go-sqlite3 v1.14.53
	github.com/millrace/millrace v0.0.0
	github.com/redis/go-redis/v9 v9.23.0
	golang.org/x/sync v0.24.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)
