package netns

import "strings"

// Cut pulls the host's plug at the switch.
func (h *Host) Cut() {
	h.n.t.Helper()
	h.n.must("-n", h.n.room("switch"), "link", "set", h.port(), "down")
}

// CutSending loses at the switch what the host sends. What is sent to the host arrives: it
// hears everybody, and nobody hears it. It skips the test where that cannot be had.
func (h *Host) CutSending() {
	h.n.t.Helper()
	// A port that is locked takes frames only of senders that the switch knows there, and it is to know none.
	if out, err := ip(h.atSwitch("learning", "off", "locked", "on", "fdb_flush")...); err != nil {
		h.n.t.Skipf("one way of a link cannot be cut here; Linux 5.18 can, with an ip that is as new: %v: %s", err, out)
	}
}

// CutReceiving loses at the switch what is sent to the host. What it sends arrives: everybody
// hears it, and it hears nobody.
func (h *Host) CutReceiving() {
	h.n.t.Helper()
	// The switch does not know where the host is, and sends there neither what is for such hosts nor what is for all.
	h.n.must(h.atSwitch("learning", "off", "flood", "off", "mcast_flood", "off", "bcast_flood", "off", "fdb_flush")...)
}

// Slow makes the host's link slow, each way, and tells in what sense: each packet comes late,
// where the kernel has netem; else the link carries little, so that packets queue, and those
// that do not fit are lost. It skips the test where there is no tc.
func (h *Host) Slow() (how string) {
	h.n.t.Helper()
	if _, err := h.shape("netem", "delay", "150ms", "50ms"); err == nil {
		return "each packet comes 100 to 200 ms late"
	}
	if out, err := h.shape("tbf", "rate", "1mbit", "burst", "4kb", "latency", "500ms"); err != nil {
		h.n.t.Skipf("a link cannot be made slow here: %v: %s", err, out)
	}
	return "it carries 1 Mbit/s, and queues half a second of that; the kernel has no netem"
}

// shape sets the discipline in which packets leave, at both ends of the host's link.
func (h *Host) shape(discipline ...string) (out string, err error) {
	for _, end := range h.ends() {
		if out, err = run("tc", append([]string{"-n", end.room, "qdisc", "replace", "dev", end.device, "root"}, discipline...)...); err != nil {
			return out, err
		}
	}
	return "", nil
}

// Heal makes the host's link whole again, whatever was done to it.
func (h *Host) Heal() {
	h.n.t.Helper()
	h.n.must("-n", h.n.room("switch"), "link", "set", h.port(), "up")
	h.n.must(h.atSwitch("learning", "on", "flood", "on", "mcast_flood", "on", "bcast_flood", "on")...)
	_, _ = ip(h.atSwitch("locked", "off")...) // where there are no locks, nothing is locked
	for _, end := range h.ends() {
		_, _ = run("tc", "-n", end.room, "qdisc", "del", "dev", end.device, "root") // there is none if it was not slow
	}
}

type linkEnd struct{ room, device string }

// ends are those of the host's link: the host's own, and that at the switch.
func (h *Host) ends() [2]linkEnd {
	return [2]linkEnd{{h.n.room(h.Name), "net"}, {h.n.room("switch"), h.port()}}
}

// atSwitch are the arguments with which ip sets what the switch does at the host's port.
func (h *Host) atSwitch(settings ...string) []string {
	return append(strings.Fields("-n "+h.n.room("switch")+" link set dev "+h.port()+" type bridge_slave"), settings...)
}
