package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/store"
)

func newDelete(a *app) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "delete container|pipeline NAME",
		Short: "Delete a container with its items, or a pipeline",
		Long: `Delete removes a pipeline, whose copies stay as they are, or a container with all
its items and its change feed. A container that a pipeline uses is not deleted,
and one that holds items only with --yes.`,
		Example: "  millrace delete pipeline tag-names",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			k, err := parseKind(args[0])
			if err != nil {
				return err
			}
			database, name := a.splitName(args[1])
			return a.withSession(cmd.Context(), func(ctx context.Context, s *session) error {
				if k == kindPipeline {
					err = s.registry.Delete(ctx, database, name)
				} else {
					err = deleteContainer(ctx, s, database, name, yes)
				}
				if err != nil {
					return err
				}
				return a.printDone(string(k), database, name, "deleted")
			})
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "delete a container although it holds items")
	return cmd
}

// deleteContainer deletes a container that no pipeline uses and, without yes, that has no items.
func deleteContainer(ctx context.Context, s *session, database, name string, yes bool) error {
	// Refused with --yes too: a pipeline without its container would be stuck for ever.
	users, err := s.users(ctx, database, name)
	if err != nil {
		return err
	}
	if len(users) > 0 {
		return bad("container %s/%s is used by the pipelines %s\nnext: delete them first, with millrace delete pipeline NAME", database, name, strings.Join(users, ", "))
	}
	info, err := s.client.Catalog().Get(ctx, database, name)
	if err != nil {
		return err
	}
	// One that is being made holds nothing, and one that is being deleted was asked about; nobody serves either.
	if !yes && info.State == store.ContainerReady {
		ct, err := s.client.Open(info)
		if err != nil {
			return err
		}
		items, err := countItems(ctx, ct)
		if err != nil {
			return err
		}
		if items > 0 {
			return bad("container %s/%s holds %s\nnext: export them with millrace export %s, or delete it with --yes", database, name, format.Plural(items, "item", "items"), name)
		}
	}
	return s.client.Catalog().Delete(ctx, database, name)
}

// printDone prints that an action was carried out on one resource.
func (a *app) printDone(kind, database, name, what string) error {
	v := map[string]string{"kind": kind, "database": database, "name": name, "action": what}
	return a.printText(v, "%s %s/%s %s\n", kind, database, name, what)
}
