// Package steps lets a test see each step in which a child process changes its files, and
// kill it at one that the test chooses, without a hook in the product.
//
//	test ── Command ──▶ helper ── filter, exec ──▶ the program
//	  ▲                                               │ renameat "newest.json.tmp", ...
//	  └── see(Call) ◀── held by the kernel ───────────┘
//	        Go on | Kill
//
// A step is a system call: a file is created, written at a place, synced, renamed,
// removed, cut, a directory is made. The kernel holds the calling thread until the test has
// said what becomes of it (seccomp's user notification), so a process that is killed there
// has done all steps before that one, and none of what comes after it on that thread. Writes
// that follow a file's creation are not steps, unless Watcher.Writes is set: they lie between
// its creation and its sync.
//
// It takes Linux 5.5 on amd64 or arm64 and no special right. Where it may not be, New skips
// the test with the reason. The helper is the test's own binary: TestMain of a package that
// uses this one begins with Main.
package steps
