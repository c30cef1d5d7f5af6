package hosts

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Cut pulls the host's plug at the switch.
func (h *Host) Cut(ctx context.Context) error {
	return h.n.in(ctx, "switch", []string{"link", "set", h.port(), "down"})
}

// CutSending loses at the switch what the host sends. What is sent to the host arrives: it hears everybody, and nobody
// hears it. The error is errors.ErrUnsupported where that cannot be had.
func (h *Host) CutSending(ctx context.Context) error {
	// A port that is locked takes frames only of senders that the switch knows there, and it is to know none.
	if err := h.atSwitch(ctx, "learning", "off", "locked", "on", "fdb_flush"); err != nil {
		return fmt.Errorf("%w: one way of a link cannot be cut here; Linux 5.18 can, with an ip that is as new: %w", errors.ErrUnsupported, err)
	}
	return nil
}

// CutReceiving loses at the switch what is sent to the host. What it sends arrives: everybody hears it, and it hears
// nobody.
func (h *Host) CutReceiving(ctx context.Context) error {
	// The switch does not know where the host is, and sends there neither what is for such hosts nor what is for all.
	return h.atSwitch(ctx, "learning", "off", "flood", "off", "mcast_flood", "off", "bcast_flood", "off", "fdb_flush")
}

// Slow makes the host's link slow, each way, and tells in what sense: each packet comes late, where the kernel has netem;
// else the link carries little, so that packets queue, and those that do not fit are lost. The error is
// errors.ErrUnsupported where there is no tc.
func (h *Host) Slow(ctx context.Context) (how string, err error) {
	if err := h.shape(ctx, "netem", "delay", "150ms", "50ms"); err == nil {
		return "each packet comes 100 to 200 ms late", nil
	}
	if err := h.shape(ctx, "tbf", "rate", "1mbit", "burst", "4kb", "latency", "500ms"); err != nil {
		return "", fmt.Errorf("%w: a link cannot be made slow here: %w", errors.ErrUnsupported, err)
	}
	return "it carries 1 Mbit/s, and queues half a second of that; the kernel has no netem", nil
}

// shape sets the discipline in which packets leave, at both ends of the host's link.
func (h *Host) shape(ctx context.Context, discipline ...string) error {
	for _, end := range h.ends() {
		if err := run(ctx, "tc", append([]string{"-n", end.room, "qdisc", "replace", "dev", end.device, "root"}, discipline...)...); err != nil {
			return err
		}
	}
	return nil
}

// Heal makes the host's link whole again, whatever was done to it.
func (h *Host) Heal(ctx context.Context) error {
	if err := h.n.in(ctx, "switch", []string{"link", "set", h.port(), "up"}); err != nil {
		return err
	}
	if err := h.atSwitch(ctx, "learning", "on", "flood", "on", "mcast_flood", "on", "bcast_flood", "on"); err != nil {
		return err
	}
	_ = h.atSwitch(ctx, "locked", "off") // where there are no locks, nothing is locked
	for _, end := range h.ends() {
		_ = run(ctx, "tc", "-n", end.room, "qdisc", "del", "dev", end.device, "root") // there is none if it was not slow
	}
	return nil
}

type linkEnd struct{ room, device string }

// ends are those of the host's link: the host's own, and that at the switch.
func (h *Host) ends() [2]linkEnd {
	return [2]linkEnd{{h.n.full(h.Name), "net"}, {h.n.full("switch"), h.port()}}
}

// atSwitch sets what the switch does at the host's port.
func (h *Host) atSwitch(ctx context.Context, settings ...string) error {
	return h.n.in(ctx, "switch", append(strings.Fields("link set dev "+h.port()+" type bridge_slave"), settings...))
}
