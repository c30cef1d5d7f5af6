package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/store/featurelevel"
)

func newUpgrade(a *app) *cobra.Command {
	var finish bool
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Tell how far an upgrade is, and finish it",
		Long: `Upgrade tells the feature level of the data, which says what the releases that
share it may write, and which running processes do not know the newest one.

An upgrade is: stop each process, replace the program, start it; stores before
workers, one after the other where there are several. Until --finish the data keeps
its level, and you can go back to the release before in the same way.

With --finish the level is raised to that of this release, once all processes that
run know it. What the level allows begins by itself; there is no way back from it.
A process of an earlier release that is started later does not know that and takes
what it reads for damage: take the old program away first.

It exits with 1 if --finish is refused because of a process of an earlier release.`,
		Example: "  millrace upgrade\n  millrace upgrade --finish",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withSession(cmd.Context(), func(ctx context.Context, s *session) error { return a.upgrade(ctx, s, finish) })
		},
	}
	cmd.Flags().BoolVar(&finish, "finish", false, "raise the level of the data; there is no way back")
	return cmd
}

// upgradeState is what upgrade tells.
type upgradeState struct {
	Level    int              `json:"level"`    // of the data
	Newest   int              `json:"newest"`   // that this program knows
	Behind   []leases.Process `json:"behind"`   // processes that do not know it
	Finished bool             `json:"finished"` // by this command
	// Logs are those in streams of an earlier release, which deny purges.
	Logs int `json:"logs"`
}

func (a *app) upgrade(ctx context.Context, s *session, finish bool) error {
	state := &upgradeState{Newest: featurelevel.Newest}
	var err error
	if state.Level, err = featurelevel.Read(ctx, s.js); err != nil {
		return err
	}
	if state.Behind, err = featurelevel.Behind(ctx, s.js, s.cfg.Leases.Bucket); err != nil {
		return err
	}
	if state.Logs, err = untrimmableLogs(ctx, s.js); err != nil {
		return err
	}
	// Asked even without --finish, so that the command tells what is in the way. A process of an
	// earlier release that starts between this and Raise is the operator's to prevent.
	refused := finish && state.Level < state.Newest && len(state.Behind) > 0
	if finish && !refused {
		// Also at the newest level: an earlier attempt may have ended half-way.
		if err := featurelevel.Raise(ctx, s.js); err != nil {
			return err
		}
		state.Level, state.Finished = state.Newest, state.Level < state.Newest
	}
	if err := a.print(state, func(w io.Writer) error { return printUpgrade(w, state, refused) }); err != nil {
		return err
	}
	if refused {
		return &badNews{errTold}
	}
	return nil
}

// untrimmableLogs counts the logs whose streams deny purges.
func untrimmableLogs(ctx context.Context, js jetstream.JetStream) (n int, err error) {
	lister := js.ListStreams(ctx)
	for info := range lister.Info() {
		if _, isLog := feed.ParseStream(info.Config.Name); isLog && info.Config.DenyPurge {
			n++
		}
	}
	if err := lister.Err(); err != nil {
		return 0, fmt.Errorf("list the streams: %w", err)
	}
	return n, nil
}

// printUpgrade prints the level, the processes that are behind, and what to do next.
func printUpgrade(w io.Writer, s *upgradeState, refused bool) error {
	var next string
	switch {
	case s.Finished:
		next = "the upgrade is finished: releases before this one cannot read the data any more"
	case s.Level == s.Newest:
		next = "nothing is left to do"
	case refused:
		next = "not finished: upgrade the processes above and try again"
	case len(s.Behind) > 0:
		next = "next: upgrade the processes above, then millrace upgrade --finish"
	default:
		next = "next: millrace upgrade --finish, when you do not want to go back to the release before"
	}
	errs := []error{}
	line := func(format string, args ...any) {
		_, err := fmt.Fprintf(w, format+"\n", args...)
		errs = append(errs, err)
	}
	line("the data has feature level %d, this release knows up to %d", s.Level, s.Newest)
	for i := range s.Behind {
		line("  %s is of an earlier release", &s.Behind[i])
	}
	if s.Logs > 0 {
		then := "once the upgrade is finished"
		if s.Level >= featurelevel.Trims {
			then = "by itself, when at least half of it may go, or it is small and at rest"
		}
		line("  %s in streams that an earlier release made, which deny purges: each goes on in a new one %s; millrace describe container tells how far it is",
			format.Plural(s.Logs, "log is", "logs are"), then)
	}
	line("%s", next)
	return errors.Join(errs...)
}
