package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/store/gateway"
)

func newKeys(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Show, make or replace the keys with which applications sign their requests",
		Long: `Keys shows and replaces the master keys of the Cosmos DB protocol, which open
everything and are made at the first start; and it makes, replaces and deletes keys
of applications, each of which opens the items of one container, to read or for all.
They lie in files of the node's directory that its owner alone can read.`,
		Args: cobra.NoArgs,
	}
	cmd.PersistentFlags().String("dir", configs.DirDefault, "directory of the node (MILLRACE_DIR)")
	for _, verb := range []*cobra.Command{newKeysShow(a), newKeysRotate(a), newKeysCreate(a), newKeysList(a), newKeysDelete(a)} {
		checkArgs(verb)
		cmd.AddCommand(verb)
	}
	return cmd
}

func newKeysShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "show [KEY]",
		Short: "Show the master keys, or one key alone",
		Long: `Show prints the master keys. With a name it prints that key and nothing else, for
scripts: ` + strings.Join(gateway.KeyNames, ", ") + `,
or that of an application's key, which millrace keys list lists.`,
		Example: "  millrace keys show --dir shop\n  export COSMOS_KEY=$(millrace keys show primary --dir shop)",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			cfg, err := a.config()
			if err != nil {
				return err
			}
			if len(args) == 1 && !slices.Contains(gateway.KeyNames, args[0]) {
				return a.showApplicationKey(cfg, args[0])
			}
			keys, err := currentKeys(cfg)
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return a.printKeys(cfg, &keys)
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
that, and rotate the secondary one. Of the key of an application there is one: make
another, give it that, and delete the one before.`,
		Example: "  millrace keys rotate primary --dir shop",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			cfg, err := a.config()
			if err != nil {
				return err
			}
			if !slices.Contains(gateway.KeyNames, args[0]) {
				key, err := gateway.RotateApplicationKey(cfg.Gateway.ApplicationKeyPath(), args[0])
				if err != nil {
					return noKey(args[0], err)
				}
				return a.printApplicationKey(&key)
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

// The values of --mode.
const (
	modeRead = "read"
	modeAll  = "all"
)

func newKeysCreate(a *app) *cobra.Command {
	var of, mode string
	cmd := &cobra.Command{
		Use:   "create NAME --container [DATABASE/]CONTAINER",
		Short: "Make a key that opens the items of one container",
		Long: `Create makes a key for an application and prints it. The application uses it in the
place of a master key: with any SDK, or with millrace --endpoint. It opens the items
of one container, to read (--mode read) or to write and delete them too (--mode all),
and how the container is described; nothing else: no other container, no console, no
metrics, and the container cannot be changed or deleted with it. It counts for
whichever container has the name. A running node takes it within seconds.`,
		Example: "  millrace keys create shop-front --container shop/orders --mode all --dir shop\n  export COSMOS_KEY=$(millrace keys show shop-front --dir shop)",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if of == "" {
				return &usageError{errors.New("name the container that the key is for: --container [DATABASE/]CONTAINER")}
			}
			if mode != modeRead && mode != modeAll {
				return &usageError{fmt.Errorf("--mode %s: %s or %s is expected", mode, modeRead, modeAll)}
			}
			cfg, err := a.config()
			if err != nil {
				return err
			}
			database, container := a.splitName(of)
			key, err := gateway.CreateApplicationKey(cfg.Gateway.ApplicationKeyPath(), gateway.ApplicationKey{
				Name: args[0], Database: database, Container: container, Writes: mode == modeAll,
			})
			if err != nil {
				return err
			}
			return a.printApplicationKey(&key)
		},
	}
	cmd.Flags().StringVar(&of, "container", "", "the container that the key opens, [DATABASE/]CONTAINER")
	cmd.Flags().StringVar(&mode, "mode", modeRead, "what it allows: read, or all")
	return cmd
}

func newKeysList(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the keys of applications, and not what they are",
		Long:    "List tells the names of the keys of applications, what each opens, and when it was made. It shows no key.",
		Example: "  millrace keys list --dir shop",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			cfg, err := a.config()
			if err != nil {
				return err
			}
			keys, err := gateway.ReadApplicationKeys(cfg.Gateway.ApplicationKeyPath())
			if err != nil {
				return err
			}
			views := make([]applicationKeyView, len(keys))
			rows := make([][]string, len(keys))
			for i := range keys {
				v := keyViewOf(&keys[i])
				views[i], rows[i] = v, []string{v.Name, v.Container, v.Mode, v.Created.Format(time.RFC3339)}
			}
			return a.print(map[string]any{"keys": views}, func(w io.Writer) error {
				return columns(w, []string{"NAME", "CONTAINER", "MODE", "CREATED"}, rows)
			})
		},
	}
}

func newKeysDelete(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "delete NAME",
		Short: "Delete the key of an application",
		Long: `Delete removes the key of an application. A running node refuses it within two
seconds. The master keys cannot be deleted: replace them with millrace keys rotate.`,
		Example: "  millrace keys delete shop-front --dir shop",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if slices.Contains(gateway.KeyNames, args[0]) {
				return &usageError{fmt.Errorf("%s is a master key; millrace keys rotate %[1]s replaces it", args[0])}
			}
			cfg, err := a.config()
			if err != nil {
				return err
			}
			if err := gateway.DeleteApplicationKey(cfg.Gateway.ApplicationKeyPath(), args[0]); err != nil {
				return noKey(args[0], err)
			}
			return a.printText(map[string]string{"deleted": args[0]}, "key %s deleted\n", args[0])
		},
	}
}

// applicationKeyView is the key of an application without what is secret, or with it.
type applicationKeyView struct {
	Name      string    `json:"name"`
	Container string    `json:"container"`
	Mode      string    `json:"mode"`
	Created   time.Time `json:"created"`
	Key       string    `json:"key,omitempty"`
}

func keyViewOf(k *gateway.ApplicationKey) applicationKeyView {
	v := applicationKeyView{Name: k.Name, Container: k.Database + "/" + k.Container, Mode: modeRead, Created: k.Created}
	if k.Writes {
		v.Mode = modeAll
	}
	return v
}

func (a *app) printApplicationKey(k *gateway.ApplicationKey) error {
	v := keyViewOf(k)
	v.Key = string(k.Key) // a Key does not print itself, and here that is wanted
	return a.printText(v, "key %s opens the items of %s: %s\n%s\n", v.Name, v.Container, v.Mode, v.Key)
}

func (a *app) showApplicationKey(cfg *configs.Config, name string) error {
	keys, err := gateway.ReadApplicationKeys(cfg.Gateway.ApplicationKeyPath())
	if err != nil {
		return err
	}
	i := slices.IndexFunc(keys, func(k gateway.ApplicationKey) bool { return k.Name == name })
	if i < 0 {
		return noKey(name, gateway.ErrNoApplicationKey)
	}
	key := string(keys[i].Key)
	return a.printText(map[string]string{name: key}, "%s\n", key)
}

// noKey makes of the error that there is no key a usage error, which says which ones there are.
func noKey(name string, err error) error {
	if !errors.Is(err, gateway.ErrNoApplicationKey) {
		return err
	}
	return &usageError{fmt.Errorf("there is no key %s; the master keys are %s, and millrace keys list lists those of applications", name, strings.Join(gateway.KeyNames, ", "))}
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
