package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/store/gateway"
)

func newKeys(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Show or replace the keys with which applications sign their requests",
		Long: `Keys shows and replaces the master keys of the Cosmos DB protocol. They lie in a
file of the node's directory that its owner alone can read, and are made at the
first start.`,
		Args: cobra.NoArgs,
	}
	cmd.PersistentFlags().String("dir", configs.DirDefault, "directory of the node (MILLRACE_DIR)")
	for _, verb := range []*cobra.Command{newKeysShow(a), newKeysRotate(a)} {
		checkArgs(verb)
		cmd.AddCommand(verb)
	}
	return cmd
}

func newKeysShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "show [KEY]",
		Short: "Show all keys, or one of them alone",
		Long: `Show prints the keys. With a name it prints that key and nothing else, for scripts:
` + strings.Join(gateway.KeyNames, ", ") + `.`,
		Example: "  millrace keys show --dir shop\n  export COSMOS_KEY=$(millrace keys show primary --dir shop)",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			cfg, err := a.config()
			if err != nil {
				return err
			}
			keys, err := currentKeys(cfg)
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return a.printKeys(cfg, &keys)
			}
			if err := checkKeyName(args[0]); err != nil {
				return err
			}
			key := string(keys.Named(args[0]))
			return a.printText(map[string]string{args[0]: key}, "%s\n", key)
		},
	}
}

func newKeysRotate(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "rotate KEY",
		Short: "Replace one key by a new one",
		Long: `Rotate replaces one key. A running node takes the new one within seconds and
refuses the old one from then on; the others stay. To replace keys without an
interruption, give clients the secondary key, rotate the primary one, give them
that, and rotate the secondary one.`,
		Example: "  millrace keys rotate primary --dir shop",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			cfg, err := a.config()
			if err != nil {
				return err
			}
			if err := checkKeyName(args[0]); err != nil {
				return err
			}
			// Keys of the configuration override the file: rotating the file would do nothing.
			if cfg.Gateway.Keys != (gateway.Keys{}) {
				return bad("the keys are set by gateway.keys of the configuration or its environment; change them there")
			}
			keys, err := gateway.RotateKey(cfg.Gateway.KeyPath(), args[0])
			if err != nil {
				return err
			}
			return a.printKeys(cfg, &keys)
		},
	}
}

// checkKeyName returns a usage error that names the known keys, if name is none of them.
func checkKeyName(name string) error {
	if slices.Contains(gateway.KeyNames, name) {
		return nil
	}
	return &usageError{fmt.Errorf("there is no key %s; %s are known", name, strings.Join(gateway.KeyNames, ", "))}
}

// currentKeys returns the keys of the configuration, or those of the key file that it names.
func currentKeys(cfg *configs.Config) (gateway.Keys, error) {
	if cfg.Gateway.Keys != (gateway.Keys{}) {
		return cfg.Gateway.Keys, nil
	}
	return gateway.ReadKeys(cfg.Gateway.KeyPath())
}

// printKeys prints all keys. A Key does not print itself, so they are converted here, where that
// is wanted.
func (a *app) printKeys(cfg *configs.Config, keys *gateway.Keys) error {
	v := map[string]string{}
	for _, name := range gateway.KeyNames {
		v[name] = string(keys.Named(name))
	}
	return a.print(v, func(w io.Writer) error {
		if cfg.Gateway.Keys == (gateway.Keys{}) {
			fmt.Fprintf(w, "%s\n", cfg.Gateway.KeyPath())
		}
		for _, name := range gateway.KeyNames {
			fmt.Fprintf(w, "  %-20s%s\n", name, orNone(v[name]))
		}
		return nil
	})
}

func orNone(text string) string {
	if text == "" {
		return "not in force"
	}
	return text
}
