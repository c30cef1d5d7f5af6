// Package s3 tests what is kept in a bucket (Parquet files, snapshots, backups) on a real
// S3-compatible server: the Versity gateway, in process. It is a module of its own, so that
// the product and its go.mod stay free of that server. To compile the server and the SDK that
// it uses takes some 90 s of CPU where nothing of it is in Go's cache, and then none.
// Tests of a bucket that is full mount a small disk, where they may. Run it with
//
//	cd integration/s3 && go test ./...
package s3
