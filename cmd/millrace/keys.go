package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/internal/operator"
	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/store/gateway"
)

func newKeys(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Show, make or replace the keys of applications and operators",
		Long: `Keys shows and replaces the master keys of the Cosmos DB protocol, which open
everything and are made at the first start; and it makes, replaces and revokes keys
of applications, each of which opens the items of one container, to read or for all,
and keys of operators, which open no item: with one millrace status and verify work, and
with one of mode operator millrace plan and apply too, for pipelines between the
containers that it names. They lie in files of the node's directory that its owner
alone can read; of keys of operators there is only what tells that one is right.`,
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
or that of an application's key, which millrace keys list lists. The key of an operator
is printed when it is made or rotated, and never again.`,
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
that, and rotate the secondary one. Of the key of an application or an operator there
is one: make another, give it that, and revoke the one before. The key of an operator
then holds for as long as the one before did when it was made.`,
		Example: "  millrace keys rotate primary --dir shop",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			cfg, err := a.config()
			if err != nil {
				return err
			}
			if !slices.Contains(gateway.KeyNames, args[0]) {
				made, secret, err := operator.RotateKey(operator.KeysPath(&cfg.Gateway), args[0])
				if err == nil {
					return a.printOperatorKey(&made, secret)
				}
				if !errors.Is(err, operator.ErrNoKey) {
					return err
				}
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
	var into, from []string
	var life time.Duration
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a key of an application or an operator",
		Long: `Create makes a key and prints it. A running node takes it within seconds.

With --container it is for an application, which uses it in the place of a master key:
with any SDK, or with millrace --endpoint. It opens the items of one container, to read
(--mode read) or to write and delete them too (--mode all), and how the container is
described; nothing else: no other container, no console, no metrics, and the container
cannot be changed or deleted with it. It counts for whichever container has the name.

With --mode status it is for an operator: millrace status and verify work with it, at
http.listen of a store or of millrace up, and show nothing of items. With --mode operator
plan and apply work too, for pipelines that write to containers of --into alone, and read
one of --from or --into: who can have fields copied from a container can read it. What is
registered under the name of such a pipeline has to lie within them too. Containers that
the files declare stay as they are, and projections into files or databases are refused.
It holds for --expires, and is printed this once.`,
		Example: "  millrace keys create shop-front --container shop/orders --mode all --dir shop\n  export COSMOS_KEY=$(millrace keys show shop-front --dir shop)\n" +
			"  millrace keys create ci --mode operator --into shop/orders --from shop/products --expires 720h --dir shop",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := a.config()
			if err != nil {
				return err
			}
			switch mode {
			case modeRead, modeAll:
				if of == "" {
					return &usageError{errors.New("name the container that the key is for: --container [DATABASE/]CONTAINER")}
				}
				if len(into)+len(from) > 0 || cmd.Flags().Changed("expires") {
					return &usageError{fmt.Errorf("--into, --from and --expires are for keys of operators: --mode %s", operator.ModeOperator)}
				}
				return a.createApplicationKey(cfg, args[0], of, mode)
			case string(operator.ModeStatus), string(operator.ModeOperator):
				if of != "" {
					return &usageError{fmt.Errorf("--container is for keys of applications: --mode %s or %s", modeRead, modeAll)}
				}
				if life < 0 {
					return &usageError{fmt.Errorf("--expires %s: a time of 0 or more is expected", life)}
				}
				return a.createOperatorKey(cfg, args[0], operator.Mode(mode), into, from, life)
			}
			return &usageError{fmt.Errorf("--mode %s: %s or %s is expected, or for operators %s or %s", mode, modeRead, modeAll, operator.ModeStatus, operator.ModeOperator)}
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&of, "container", "", "the container that the key of an application opens, [DATABASE/]CONTAINER")
	flags.StringVar(&mode, "mode", modeRead, "what it allows: read or all, of an application; status or operator")
	flags.StringSliceVar(&into, "into", nil, "with --mode operator, a container that pipelines may write to, [DATABASE/]CONTAINER; may be given again")
	flags.StringSliceVar(&from, "from", nil, "with --mode operator, a container that pipelines may read besides; may be given again")
	flags.DurationVar(&life, "expires", operatorLife, "for how long the key of an operator holds; 0 is until it is revoked")
	return cmd
}

// operatorLife is for how long the key of an operator holds by default.
const operatorLife = 90 * 24 * time.Hour

func (a *app) createApplicationKey(cfg *configs.Config, name, of, mode string) error {
	others, err := operator.ReadKeys(operator.KeysPath(&cfg.Gateway))
	if err != nil {
		return err
	}
	if slices.ContainsFunc(others, func(k operator.Key) bool { return k.Name == name }) {
		return fmt.Errorf("there is a key %s already", name)
	}
	database, container := a.splitName(of)
	key, err := gateway.CreateApplicationKey(cfg.Gateway.ApplicationKeyPath(), gateway.ApplicationKey{
		Name: name, Database: database, Container: container, Writes: mode == modeAll,
	})
	if err != nil {
		return err
	}
	return a.printApplicationKey(&key)
}

func (a *app) createOperatorKey(cfg *configs.Config, name string, mode operator.Mode, into, from []string, life time.Duration) error {
	others, err := gateway.ReadApplicationKeys(cfg.Gateway.ApplicationKeyPath())
	if err != nil {
		return err
	}
	if slices.ContainsFunc(others, func(k gateway.ApplicationKey) bool { return k.Name == name }) {
		return fmt.Errorf("there is a key %s already", name)
	}
	key := operator.Key{Name: name, Mode: mode}
	if len(into)+len(from) > 0 || mode == operator.ModeOperator {
		key.Bounds = &registry.Bounds{Targets: a.named(into), Sources: a.named(from)}
	}
	made, secret, err := operator.CreateKey(operator.KeysPath(&cfg.Gateway), key, life)
	if err != nil {
		return err
	}
	return a.printOperatorKey(&made, secret)
}

func newKeysList(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the keys of applications and operators, and not what they are",
		Long:    "List tells the names of the keys of applications and operators, what each allows, when it was made, and when it expires. It shows no key.",
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
			operators, err := operator.ReadKeys(operator.KeysPath(&cfg.Gateway))
			if err != nil {
				return err
			}
			var views []keyView
			for i := range keys {
				views = append(views, keyViewOf(&keys[i]))
			}
			for i := range operators {
				views = append(views, operatorViewOf(&operators[i]))
			}
			slices.SortFunc(views, func(x, y keyView) int { return strings.Compare(x.Name, y.Name) })
			rows := make([][]string, len(views))
			for i := range views {
				v := &views[i]
				rows[i] = []string{v.Name, orDash(v.containers()), v.Mode, v.Created.Format(time.RFC3339), orDash(v.until())}
			}
			return a.print(map[string]any{"keys": append([]keyView{}, views...)}, func(w io.Writer) error {
				return columns(w, []string{"NAME", "CONTAINER", "MODE", "CREATED", "EXPIRES"}, rows)
			})
		},
	}
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func newKeysDelete(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "revoke NAME",
		Aliases: []string{"delete"},
		Short:   "Revoke the key of an application or an operator",
		Long: `Revoke removes the key of an application or an operator. A running node refuses it
within two seconds; what was begun with it goes on. The master keys cannot be deleted: replace them with millrace keys rotate.`,
		Example: "  millrace keys revoke shop-front --dir shop",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if slices.Contains(gateway.KeyNames, args[0]) {
				return &usageError{fmt.Errorf("%s is a master key; millrace keys rotate %[1]s replaces it", args[0])}
			}
			cfg, err := a.config()
			if err != nil {
				return err
			}
			err = operator.RevokeKey(operator.KeysPath(&cfg.Gateway), args[0])
			if errors.Is(err, operator.ErrNoKey) {
				err = gateway.DeleteApplicationKey(cfg.Gateway.ApplicationKeyPath(), args[0])
			}
			if err != nil {
				return noKey(args[0], err)
			}
			return a.printText(map[string]string{"revoked": args[0]}, "key %s revoked\n", args[0])
		},
	}
}

// keyView is the key of an application or an operator without what is secret, or with it.
type keyView struct {
	Name      string    `json:"name"`
	Container string    `json:"container,omitempty"`
	Into      []string  `json:"into,omitempty"`
	From      []string  `json:"from,omitempty"`
	Mode      string    `json:"mode"`
	Created   time.Time `json:"created"`
	Expires   time.Time `json:"expires,omitzero"`
	Key       string    `json:"key,omitempty"`
}

func keyViewOf(k *gateway.ApplicationKey) keyView {
	v := keyView{Name: k.Name, Container: k.Database + "/" + k.Container, Mode: modeRead, Created: k.Created}
	if k.Writes {
		v.Mode = modeAll
	}
	return v
}

func operatorViewOf(k *operator.Key) keyView {
	v := keyView{Name: k.Name, Mode: string(k.Mode), Created: k.Created, Expires: k.Expires}
	if k.Bounds != nil {
		for _, m := range k.Bounds.Targets {
			v.Into = append(v.Into, m.String())
		}
		for _, m := range k.Bounds.Sources {
			v.From = append(v.From, m.String())
		}
	}
	return v
}

// containers are what the key opens, "" if it opens none.
func (v *keyView) containers() string {
	text := v.Container + strings.Join(v.Into, ", ")
	if len(v.From) > 0 {
		text += " from " + strings.Join(v.From, ", ")
	}
	return text
}

// until is when the key expires, "" if it does not.
func (v *keyView) until() string {
	switch {
	case v.Expires.IsZero():
		return ""
	case !time.Now().Before(v.Expires):
		return "expired"
	}
	return v.Expires.Format(time.RFC3339)
}

func (a *app) printOperatorKey(k *operator.Key, secret string) error {
	v := operatorViewOf(k)
	v.Key = secret
	text := fmt.Sprintf("key %s is of mode %s", v.Name, v.Mode)
	if into := v.containers(); into != "" {
		text += ", for pipelines into " + into
	}
	if until := v.until(); until != "" {
		text += ", until " + until
	}
	return a.printText(v, "%s; it is not shown again:\n%s\n", text, secret)
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
	operators, err := operator.ReadKeys(operator.KeysPath(&cfg.Gateway))
	if err != nil {
		return err
	}
	if slices.ContainsFunc(operators, func(k operator.Key) bool { return k.Name == name }) {
		return &usageError{fmt.Errorf("key %s is of an operator, and was shown when it was made; millrace keys rotate %[1]s makes another", name)}
	}
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
	return &usageError{fmt.Errorf("there is no key %s; the master keys are %s, and millrace keys list lists the others", name, strings.Join(gateway.KeyNames, ", "))}
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
