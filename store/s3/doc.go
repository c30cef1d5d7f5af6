// Package s3 keeps objects in a bucket of an S3-compatible server. It is no API: it is for
// the Parquet sink, for snapshots and for backups.
//
// # What it promises
//
// An object appears whole or not at all, and who reads or lists after a write has returned
// sees it: S3 promises both. PutExclusive makes an object only if there is none, PutMatching
// replaces one only if it is what was seen: the conditional writes (If-None-Match, If-Match)
// of AWS, MinIO and R2. A server that pays no heed to them is found out by Prove, or by who
// writes an object twice on purpose, as the sink does.
//
// After an error a write may have happened or not. A request that a server does not answer
// ends with ErrSlow, and one whose answer was lost is sent again by the client library:
// a conditional write may then be refused because of itself. Who must know looks.
//
// Objects are written in one request, which all servers take up to 5 GB: what is cut off
// leaves nothing, where an upload in parts leaves parts that no list shows and that cost
// until somebody aborts them. None that Millrace writes is larger than 64 MiB.
//
// # Keys
//
// The keys of the account are read from the environment, from the shared credentials file
// or from the machine's role. They stand in no configuration, no error and no log.
//
// All methods may be used by many goroutines at once, and by several processes.
package s3
