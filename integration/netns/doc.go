// Package netns gives tests a network of their own, which they may break: hosts in
// network namespaces of Linux, joined by a switch.
//
//	test ── starts ──▶ process in host a ──┐
//	                   process in host b ──┤ switch, itself a namespace
//	                   process in host c ──┘
//
// A host that is cut loses what it sends and gets nothing, and neither side is
// told: no reset, no refusal, as when a cable is pulled or a switch dies. A link may
// also be cut one way, or be slow. A process is reached only by processes of the network;
// the test starts those by Command, talks to them over their standard streams and
// signals, and reaches them by [Host.Dial] as if it ran on a host itself.
//
// Nothing outside the namespaces is changed, and no traffic leaves them. They need
// the right to make namespaces; where a test may not, [New] skips it with the
// reason. They go when the test ends. Package hosts does the work, for programs that are
// no tests too.
package netns
