package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/internal/secrets"
	"github.com/millrace/millrace/feed/natsd"
)

func newCredentials(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "credentials",
		Short: "Replace the credentials for NATS, or make those of a cluster",
		Long: `Credentials are what a NATS server asks of commands and processes. Millrace up
makes two at its first start, in files of its directory that their owner alone can
read: credentials/admin.json, for everything, and credentials/read-only.json, which
is enough for status, feed, get, describe, query, export and monitoring.`,
		Args: cobra.NoArgs,
	}
	for _, verb := range []*cobra.Command{newCredentialsRotate(a), newCredentialsNew(a)} {
		checkArgs(verb)
		cmd.AddCommand(verb)
	}
	return cmd
}

// credentialFiles are the files of credentials by their names on the command line.
var credentialFiles = map[string]struct{ file, user string }{
	"admin": {natsd.FileAdmin, natsd.UserAdmin}, "read-only": {natsd.FileReadOnly, natsd.UserReadOnly},
}

func newCredentialsRotate(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "rotate admin|read-only",
		Short: "Replace the credentials of millrace up",
		Long: `Rotate replaces one of the two files of credentials in a node's directory. The new
ones count at once for who connects; who is connected stays until its connection ends,
so restart the node if the former ones are known to others.`,
		Example: "  millrace credentials rotate read-only --dir shop",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			cfg, err := a.config()
			if err != nil {
				return err
			}
			which, ok := credentialFiles[args[0]]
			if !ok {
				return &usageError{fmt.Errorf("there are no credentials %s; admin or read-only is expected", args[0])}
			}
			path := filepath.Join(cfg.NATS.Credentials, which.file)
			if _, err := natsd.ReadCredentials(path); err != nil {
				return err
			}
			if err := natsd.WriteCredentials(path, natsd.NewCredentials(which.user)); err != nil {
				return err
			}
			return a.printText(map[string]string{"file": path}, "%s\n", path)
		},
	}
}

func newCredentialsNew(a *app) *cobra.Command {
	var servers []string
	cmd := &cobra.Command{
		Use:   "new DIR",
		Short: "Make the credentials and certificates of a NATS cluster",
		Long: `New makes what deploy/nats/nats.conf and the processes of a cluster need: a CA and a
certificate for the servers, credentials for everything and for reading only, and their
hashes for nats.conf. What is in DIR already stays, so run it again after deleting
server.pem to renew the certificate, which is good for a year.`,
		Example: "  millrace credentials new deploy/secrets",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			wrote, err := secrets.Make(args[0], servers)
			if err != nil {
				return err
			}
			v := map[string]any{"dir": args[0], "wrote": wrote}
			if len(wrote) == 0 {
				return a.printText(v, "%s has everything already\n", args[0])
			}
			return a.printText(v, "%s: %s\n", args[0], strings.Join(wrote, ", "))
		},
	}
	cmd.Flags().StringSliceVar(&servers, "server-names", []string{"nats-1", "nats-2", "nats-3"}, "names or addresses of the NATS servers")
	return cmd
}
