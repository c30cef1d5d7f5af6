// Package parquetsink keeps the rows of a projection in Parquet files that a stock
// reader (DuckDB, Spark, pandas) reads as the current state of each table at a
// position: in a local directory, or in a bucket of an S3-compatible server.
//
//	store := parquetsink.NewDir("./analytics")             // or Bucket
//	sink, err := parquetsink.New(store, parquetsink.Config{})
//
// # Reading
//
// The folder of each table is a Delta Lake table, which every tool with support for
// Delta opens by its path; docs/analytics.md has the recipes, one for DuckDB without its
// extension among them. Each table is as one commit left it. _current.json names, for one
// commit, the versions of all tables.
//
// The folder data does not show the current state: superseded files stay in it for
// Config.Grace, so that a reader of a version can open its files.
//
// Columns have the declared names and types. Names that engines cannot read are
// mapped, and the mapping is kept. Two columns come last: _element, the place of
// the element in the item that made the row, and _source, the item. The rejects of
// a table, pending rows among them, are the table TABLE_rejects.
//
// # Writing
//
// Write takes batches into memory. Flush commits what all writers of the sink hold, and
// so does the sink by itself when they hold much. A commit
//
//  1. finds the live files that hold its rows, by an index of hashes (rewrite.go),
//  2. resolves what several say about one key: a row is put, replaced or dropped, or is
//     pending until its key is free (resolve.go),
//  3. writes a new file for each one that changes, and files of new rows; small files
//     are merged on the way (fileset.go),
//  4. makes the next manifest, _manifest/NUMBER.json, which names all live files and
//     the position and epoch of each source partition (rowcommit.go, commit.go),
//  5. shows it to readers: the Delta logs, and then _current.json.
//
// Step 4 is the commit. A manifest is made exclusively (by a hard link, or
// If-None-Match: *), so of two processes that commit at once one wins. The other reads
// the winner's manifest, writes again the files that it touches, and tries the next
// number. A process may stand still while others use its number and remove that
// manifest. It then sees later manifests that do not follow on its own, and tries again
// too. This needs no lease and no clock. Epochs older than the recorded one are refused,
// with an error that matches processors.ErrFenced.
//
// A process that is killed leaves either a commit or nothing. Files that no manifest
// names are removed later, after a manifest that forbids commits begun before it (its
// floor). So nothing is lost, and nothing happens twice: a batch whose position is
// recorded is skipped, and one that may have been carried out changes nothing when it
// is carried out again.
//
// # Limits
//
// A row that changes has its file written anew, at most Config.FileRowsMax rows and
// FileBytesMax bytes. Memory is bounded by twice BufferBytesMax for batches that were
// taken and those under commit, IndexBytesMax for the index, and for each of up to four cores
// about four times FileBytesMax for files at work. Nothing is spilled.
//
// One thing in memory has no bound of its own: all pending rows of the keys that a commit
// touches, as JSON, because the one with the smallest source may be next and the reasons of all
// others name the holder. Their number in TABLE_rejects bounds it. Where thousands wait for one
// key, the declared key does not tell rows apart; each commit that touches it reads all of them,
// and writes their files anew where its holder changes.
//
// A manifest
// takes about 200 bytes a file; tables of more than ten thousand files make commits
// slow. The clocks of processes that write the same tables decide only when a superseded
// file goes; they should not differ by more than a small part of Grace.
//
// A Sink, a Dir and everything else exported is safe for concurrent use, except for
// a Writer, which is used by one goroutine at a time. FORMAT.md describes what is
// stored.
//
// It is no API: the command millrace is made of it, and it changes without notice.
package parquetsink
