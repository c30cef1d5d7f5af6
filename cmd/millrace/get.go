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

	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/store"
)

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
				database, name = a.split(args[1])
			}
			return a.with(cmd.Context(), func(ctx context.Context, s *session) error {
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
	docs := []json.RawMessage{}
	for i := range infos {
		doc, err := declaration(registry.ContainerDocument(&infos[i]))
		if err != nil {
			return err
		}
		docs = append(docs, doc)
	}
	return a.print(only(docs, one), func(w io.Writer) error {
		if len(infos) == 0 {
			fmt.Fprintf(w, "No container in database %s; declare one with millrace apply -f FILE.\n", a.database)
			return nil
		}
		var rows [][]string
		for i := range infos {
			info := &infos[i]
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
	docs := []json.RawMessage{}
	for i := range records {
		doc, err := declaration(records[i].Document())
		if err != nil {
			return err
		}
		docs = append(docs, doc)
	}
	return a.print(only(docs, one), func(w io.Writer) error {
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

// only returns the one element if one was asked for.
func only[T any](all []T, one bool) any {
	if one && len(all) == 1 {
		return all[0]
	}
	return all
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
