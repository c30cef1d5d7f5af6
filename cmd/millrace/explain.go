package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/internal/reference"
	"github.com/millrace/millrace/configs"
)

// explainWidth is where words are wrapped where no terminal says more or less.
const explainWidth = 80

func newExplain(a *app) *cobra.Command {
	var recursive bool
	cmd := &cobra.Command{
		Use:   "explain [KIND[.KEY]...]",
		Short: "Tell what the keys of a document mean",
		Long: `Explain tells what a key of a declaration means, what it takes, its default and what is
below it; without a path, which kinds of documents there are. The names of a map's
entries, such as those of tables and columns, are passed over. A path that a finding
named, such as spec.cascade.match, is understood too.

No server is asked. docs/pipelines.md says the same, with samples.`,
		Example: "  millrace explain pipeline.spec.cascade\n  millrace explain pipeline.spec.project.tables.columns.type\n  millrace explain container --recursive",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			tree, err := reference.New(configs.Schema)
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return a.explainKinds(tree, recursive)
			}
			k, err := tree.Find(args[0])
			if err != nil {
				return &badNews{err}
			}
			return a.explainKey(k, recursive)
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			// No space behind a key, for a dot and the next one may follow.
			return completeKeys(typed), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		},
	}
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "all keys below, with what they take")
	return cmd
}

// completeKeys returns the paths that continue what was typed by one key.
func completeKeys(typed string) []string {
	tree, err := reference.New(configs.Schema)
	if err != nil {
		return nil
	}
	keys := tree.Kinds
	if dot := strings.LastIndexByte(typed, '.'); dot >= 0 {
		within, err := tree.Find(typed[:dot])
		if err != nil {
			return nil
		}
		keys = within.Keys
	}
	var paths []string
	for _, k := range keys {
		if strings.HasPrefix(k.Path, typed) {
			first, _, _ := strings.Cut(k.Text, ". ")
			paths = append(paths, k.Path+"\t"+first)
		}
	}
	return paths
}

// explainKinds tells which documents there are.
func (a *app) explainKinds(tree *reference.Tree, recursive bool) error {
	kinds := make([]*reference.Key, len(tree.Kinds))
	for i, kind := range tree.Kinds {
		kinds[i] = keyShown(kind, recursive)
	}
	return a.print(kinds, func(w io.Writer) error {
		out := &explainer{w: w, width: widthOf(w)}
		for i, kind := range tree.Kinds {
			if i > 0 {
				out.line("")
			}
			out.line(kind.Path)
			out.words("  ", kind.Text)
			if recursive {
				out.tree(kind.Keys, "  ")
			}
		}
		if !recursive {
			out.line("")
			out.line("next: millrace explain pipeline.spec")
		}
		return out.err
	})
}

// explainKey tells of one key.
func (a *app) explainKey(k *reference.Key, recursive bool) error {
	return a.print(keyShown(k, recursive), func(w io.Writer) error {
		out := &explainer{w: w, width: widthOf(w)}
		out.line("%s  %s", k.Path, takes(k))
		out.line("")
		out.words("  ", k.Text)
		if k.Example != "" {
			out.line("  For example: %s", k.Example)
		}
		switch {
		case len(k.Keys) == 0:
		case recursive:
			out.line("")
			out.tree(k.Keys, "  ")
		default:
			for _, c := range k.Keys {
				out.line("")
				out.line("  %s  %s", c.Name(), takes(c))
				out.words("    ", c.Text)
			}
		}
		return out.err
	})
}

// keyShown is k as JSON has it: with all that is below it, or its keys without theirs.
func keyShown(k *reference.Key, recursive bool) *reference.Key {
	if recursive {
		return k
	}
	one := *k
	one.Keys = nil
	for _, c := range k.Keys {
		flat := *c
		flat.Keys = nil
		one.Keys = append(one.Keys, &flat)
	}
	return &one
}

// takes says in a few words what can stand at a key.
func takes(k *reference.Key) string {
	text := k.Type
	if len(k.Values) > 0 {
		text = strings.Join(k.Values, ", ")
	}
	if len(k.Limits) > 0 {
		text += "; " + strings.Join(k.Limits, ", ")
	}
	switch {
	case k.Required:
		text += "; required"
	case k.Default != "" && !strings.Contains(k.Default, " "):
		text += "; default " + k.Default
	}
	return "<" + text + ">"
}

// explainer writes lines up to a width and keeps the first error.
type explainer struct {
	w     io.Writer
	width int
	err   error
}

// widthOf is how wide lines on w may be.
func widthOf(w io.Writer) int {
	if columns, ok := terminal(w); ok {
		return min(columns, 120)
	}
	return explainWidth
}

func (e *explainer) line(format string, args ...any) {
	if e.err == nil {
		_, e.err = fmt.Fprintf(e.w, format+"\n", args...)
	}
}

// words writes a text in lines that begin with an indent.
func (e *explainer) words(indent, text string) {
	line := indent
	for word := range strings.FieldsSeq(text) {
		if line != indent && len([]rune(line))+len([]rune(word)) > e.width {
			e.line("%s", strings.TrimRight(line, " "))
			line = indent
		}
		line += word + " "
	}
	e.line("%s", strings.TrimRight(line, " "))
}

// tree writes keys with all that is below them.
func (e *explainer) tree(keys []*reference.Key, indent string) {
	for _, k := range keys {
		e.line("%s%s  %s", indent, k.Name(), takes(k))
		e.tree(k.Keys, indent+"  ")
	}
}
