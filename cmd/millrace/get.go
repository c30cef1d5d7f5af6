package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/internal/declaration"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/store"
)

// kind is a kind of resource as it is named on the command line.
type kind string

const (
	kindContainer kind = "container"
	kindPipeline  kind = "pipeline"
)

// parseKind reads container, containers, Pipeline and the like.
func parseKind(s string) (kind, error) {
	switch k := kind(strings.TrimSuffix(strings.ToLower(s), "s")); k {
	case kindContainer, kindPipeline:
		return k, nil
	}
	return "", &usageError{fmt.Errorf("there is no kind %s: container or pipeline is expected", s)}
}

// splitName divides database/name; without a database it is that of --database.
func (a *app) splitName(name string) (database, rest string) {
	if database, rest, ok := strings.Cut(name, "/"); ok {
		return database, rest
	}
	return a.database, name
}

func newGet(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "get container|pipeline [NAME]",
		Short: "List containers or pipelines, or one of them",
		Long: `Get lists what is declared. With -o yaml it prints the declarations as apply
takes them.`,
		Example: "  millrace get pipelines\n  millrace get container product -o yaml",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			k, err := parseKind(args[0])
			if err != nil {
				return err
			}
			database, name := a.database, ""
			if len(args) == 2 {
				database, name = a.splitName(args[1])
			}
			return a.withSession(cmd.Context(), func(ctx context.Context, s *session) error {
				if k == kindContainer {
					infos, err := s.containers(ctx, database, name)
					if err != nil {
						return err
					}
					return a.printContainers(infos, name != "")
				}
				records, err := s.pipelines(ctx, database, name)
				if err != nil {
					return err
				}
				return a.printPipelines(records, name != "")
			})
		},
	}
}

func (a *app) printContainers(infos []store.ContainerInfo, one bool) error {
	docs, err := declarations(len(infos), one, func(i int) any { return registry.ContainerDocument(&infos[i]) })
	if err != nil {
		return err
	}
	return a.print(docs, func(w io.Writer) error {
		if len(infos) == 0 {
			fmt.Fprintf(w, "No container in database %s; declare one with millrace apply -f FILE.\n", a.database)
			return nil
		}
		var rows [][]string
		for i := range infos {
			info := &infos[i]
			// Those that are being built are listed too: they are declared.
			indexes := slices.Concat(info.Spec.Indexes, info.IndexesWanted)
			rows = append(rows, []string{
				info.Name, string(info.State), strings.Join(info.Spec.PartitionKey, " "), strconv.Itoa(len(info.Partitions)),
				dash(strings.Join(indexes, " ")), info.Spec.TTL.String(), string(info.ID),
			})
		}
		return columns(w, []string{"CONTAINER", "STATE", "PARTITION KEY", "PARTITIONS", "INDEXES", "TTL", "ID"}, rows)
	})
}

func (a *app) printPipelines(records []registry.Record, one bool) error {
	docs, err := declarations(len(records), one, func(i int) any { return records[i].Document() })
	if err != nil {
		return err
	}
	return a.print(docs, func(w io.Writer) error {
		if len(records) == 0 {
			fmt.Fprintf(w, "No pipeline in database %s; declare one with millrace apply -f FILE.\n", a.database)
			return nil
		}
		var rows [][]string
		for i := range records {
			r := &records[i]
			state := "running"
			if r.Paused {
				state = "paused"
			}
			rows = append(rows, []string{r.Name, state, r.Spec.Source.Container, r.Spec.Keeps(), dash(r.Spec.Source.Where.String()), strconv.Itoa(int(r.Generation))})
		}
		return columns(w, []string{"PIPELINE", "STATE", "SOURCE", "KEEPS", "WHERE", "GENERATION"}, rows)
	})
}

// declarations returns n documents in the form in which apply reads them: a list, or the
// only one if one was asked for.
func declarations(n int, one bool, document func(i int) any) (any, error) {
	docs := []json.RawMessage{} // not nil: no declarations are [] and not null
	for i := range n {
		doc, err := declaration.JSON(document(i))
		if err != nil {
			return nil, err
		}
		docs = append(docs, doc)
	}
	if one && n == 1 {
		return docs[0], nil
	}
	return docs, nil
}

// dash returns s for a column of a table, which must not be empty.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
