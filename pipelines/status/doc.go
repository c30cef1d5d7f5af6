// Package status tells where every pipeline stands: its state and the reason for it, its
// lag, what it has copied, its fan-outs, backfill, sink and last verification; and how the
// logs and engines below are.
//
// A Monitor reads checkpoints, leases and the ends of logs. It decides nothing: a state is
// computed from one reading, and from the one before where it matters that nothing has
// moved (watched.go). What cannot be read is named in Problems, and the rest is told.
//
// It is no API: the command millrace is made of it, and it changes without notice.
package status
