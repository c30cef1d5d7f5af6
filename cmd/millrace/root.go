package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/millrace/millrace/cmd/millrace/node"
	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/pipelines/spec"
)

// streams are where a command reads and writes.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// terminal says whether w is one, and how wide.
func terminal(w io.Writer) (columns int, ok bool) {
	f, isFile := w.(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) {
		return 0, false
	}
	columns, _, err := term.GetSize(int(f.Fd()))
	if err != nil || columns < 20 {
		columns = 80
	}
	return columns, true
}

// colored says how wide the terminal w is, 0 for none, and whether it may be in colour.
func colored(w io.Writer) (width int, color bool) {
	width, ok := terminal(w)
	return width, ok && os.Getenv("NO_COLOR") == ""
}

// app holds what all verbs share: the streams and the flags of the root.
type app struct {
	streams

	configFile string
	sets       []string
	output     string
	database   string
	timeout    time.Duration
	wait       time.Duration
	logLevel   string
}

// outputs are the forms of output.
var outputs = []string{"table", "json", "yaml"}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "millrace",
		Short: "Millrace keeps copies true",
		Long: `Millrace stores JSON items in partitioned containers and keeps what is copied
between them equal to its source: a category's name in every product, a tag's
name in every list of tags. Declare the copies in YAML; workers follow the
change feed and keep them equal; millrace verify proves it.

Try it:  millrace demo`,
		SilenceErrors: true, SilenceUsage: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return a.checkFlags(cmd) },
	}
	flags := root.PersistentFlags()
	flags.StringVarP(&a.configFile, "config", "c", os.Getenv("MILLRACE_CONFIG"), "configuration file; its keys are explained in configs/millrace.yaml")
	flags.StringArrayVar(&a.sets, "set", nil, "set a key of the configuration, as in --set store.queueMax=1000")
	flags.StringVarP(&a.output, "output", "o", "table", "form of the output: table, json or yaml")
	flags.StringVarP(&a.database, "database", "d", spec.DatabaseDefault, "database of the containers and pipelines that are named")
	flags.DurationVar(&a.timeout, "timeout", 10*time.Second, "how long one request may take")
	flags.DurationVar(&a.wait, "wait", 30*time.Second, "how long to wait for NATS and for what a command needs of it; 0 is not at all")
	flags.StringVar(&a.logLevel, "log-level", "", "debug, info, warn or error")
	// These set keys of the configuration, whose environment variables count too.
	flags.String("server", "", "URL of the NATS servers (MILLRACE_SERVER; default that of the node on --dir, else "+configs.ServerDefault+")")
	flags.String("dir", configs.DirDefault, "directory of the node, where its address and credentials are (MILLRACE_DIR)")
	flags.String("creds", "", "file with credentials for NATS instead (MILLRACE_CONNECT_CREDS)")
	flags.String("ca", "", "PEM file that signs the server's certificate (MILLRACE_CONNECT_CA)")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &usageError{fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())}
	})
	root.AddGroup(&cobra.Group{ID: "run", Title: "Run:"}, &cobra.Group{ID: "declare", Title: "Declare:"},
		&cobra.Group{ID: "watch", Title: "Watch and prove:"}, &cobra.Group{ID: "items", Title: "Items:"})
	add := func(group string, verbs ...*cobra.Command) {
		for _, v := range verbs {
			v.GroupID = group
			checkArgs(v)
			root.AddCommand(v)
		}
	}
	add("run", newUp(a), newStore(a), newWorker(a), newDemo(a), newKeys(a), newCredentials(a), newDrain(a), newSplit(a), newUpgrade(a))
	add("declare", newInit(a), newApply(a), newPlan(a), newTest(a), newExplain(a), newGet(a), newDescribe(a), newDelete(a), newPause(a), newResume(a), newBackfill(a), newRewind(a), newDeadLetters(a))
	add("watch", newConsole(a), newStatus(a), newNodes(a), newTop(a), newHealth(a), newVerify(a), newRepair(a), newDoctor(a), newFeed(a))
	add("run", newBackup(a), newRestore(a))
	add("items", newImport(a), newExport(a), newQuery(a), newItems(a))
	v := newVersion(a)
	checkArgs(v)
	root.AddCommand(v)
	return root
}

// flagSettle says how long pipelines may take to come to rest, where a command waits
// for them; --wait is for what the command itself needs of NATS.
const flagSettle = "settle"

// checkArgs makes wrong arguments a usage error, and so does a verb that a command does not
// have: cobra prints help for both and calls that a success.
func checkArgs(v *cobra.Command) {
	if v.HasSubCommands() && !v.Runnable() {
		v.Args = cobra.NoArgs
		v.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	check := v.Args
	if check == nil {
		check = takesNone
	}
	v.Args = func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return &usageError{fmt.Errorf("%w; usage: %s", err, cmd.UseLine())}
		}
		return nil
	}
}

// takesNone refuses arguments, and says where what is given belongs if it is a file.
func takesNone(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	if f := cmd.Flags().Lookup("file"); f != nil {
		hint = "; is it a file? Then: --file " + args[0]
	}
	return fmt.Errorf("%s takes no argument and got %q%s", cmd.CommandPath(), args[0], hint)
}

// flagKeys are the flags that set keys of the configuration.
var flagKeys = map[string]string{
	"server": "server", "creds": "connect.creds", "ca": "connect.ca", "dir": "dir", "listen": "http.listen", "durability": "durability",
	"gateway": "gateway.listen", "gateway-tls": "gateway.tls",
}

// checkFlags looks at the flags of the root.
func (a *app) checkFlags(cmd *cobra.Command) error {
	if !slices.Contains(outputs, a.output) {
		return &usageError{fmt.Errorf("--output %s: %s is expected", a.output, strings.Join(outputs, ", "))}
	}
	if a.timeout <= 0 {
		return &usageError{fmt.Errorf("--timeout %s: a time above 0 is expected", a.timeout)}
	}
	if a.wait < 0 {
		hint := ""
		if cmd.Flags().Lookup(flagSettle) != nil {
			hint = "; how long to wait for pipelines is --" + flagSettle
		}
		return &usageError{fmt.Errorf("--wait %s: a time of 0 or more is expected%s", a.wait, hint)}
	}
	// Appended to --set, so that a flag of its own has precedence over --set and file.
	for name, key := range flagKeys {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed {
			a.sets = append(a.sets, key+"="+f.Value.String())
		}
	}
	if a.logLevel != "" {
		a.sets = append(a.sets, "log.level="+a.logLevel)
	}
	return nil
}

// config returns the configuration of this command line.
func (a *app) config() (*configs.Config, error) {
	c, err := configs.Load(a.configFile, os.Environ(), a.sets)
	if err != nil {
		return nil, &configError{err}
	}
	return c, nil
}

// quietConfig is config for a command that prints an answer: its log warns only, unless
// more is asked for, and where no server is named it is that of the node on the directory.
func (a *app) quietConfig() (*configs.Config, error) {
	c, err := a.config()
	if err != nil {
		return nil, err
	}
	if a.logLevel == "" {
		c.Log.Level = "warn"
	}
	if !c.ServerConfigured {
		node.FindServer(c)
	}
	return c, nil
}

// logger makes the logger of the process, on standard error, its default too.
func (a *app) logger(c *configs.Config) *slog.Logger {
	log := node.NewLogger(a.err, c.Log)
	slog.SetDefault(log)
	return log
}

// usageError is a command line that cannot be understood.
type usageError struct{ error }

func (e *usageError) Unwrap() error { return e.error }

// configError is a configuration that cannot be understood.
type configError struct{ error }

func (e *configError) Unwrap() error { return e.error }

// badNews is an answer that is bad news: it could be asked, and exits with 1.
type badNews struct{ error }

func (e *badNews) Unwrap() error { return e.error }

func bad(format string, args ...any) error { return &badNews{fmt.Errorf(format, args...)} }

// errTold is bad news that the output has told already.
var errTold = errors.New("")

// errUnjudged says that a verification found nothing wrong, and could not look at all.
var errUnjudged = errors.New("not all could be judged")
