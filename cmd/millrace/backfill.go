package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/pipelines/registry"
)

// newBackfill returns the command that begins or ends a backfill. It only writes the record;
// workers do the rest.
func newBackfill(a *app) *cobra.Command {
	var scope registry.BackfillScope
	var stop bool
	cmd := &cobra.Command{
		Use:   "backfill PIPELINE [--where EXPR] [--key KEY] | --stop",
		Short: "Let a pipeline go through the items that are there, all or a part",
		Long: `Backfill lets a pipeline go once through the items that are there, page by page,
beside what changes: a cascade sets the copies that differ from their sources, a
projection writes rows. A pipeline that was applied with --from-now so gets what was
there before, as a whole or part by part. It rests for as long as it works, goes on
after a crash where it was, and millrace status shows how far it is.

--where and --key narrow it: to the items for which an expression is true, and to
those of one logical partition. They are those that hold the copies of a cascade, and
those whose rows a projection keeps. A key is a text or JSON, as of millrace query.

--stop ends one that is under way; what it has brought stays.

Rows that are there and ought not to be stay; millrace repair removes them. An
aggregate always knows all its members and has no backfill of its own.`,
		Example: `  millrace apply -f orders.yaml --from-now
  millrace backfill order-rows --where 'c.region = "EU"'
  millrace backfill category-names --key 75BF1ACB-…
  millrace backfill category-names --stop`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			// The key is stored in its one form, whatever form the flag has: abc and ["abc"] are
			// one key.
			if cmd.Flags().Changed("key") {
				key, _, err := parsePrefix(scope.Key)
				if err != nil {
					return err
				}
				scope.Key = key.String()
			}
			return a.withSession(cmd.Context(), func(ctx context.Context, s *session) error {
				database, name := a.splitName(args[0])
				if stop {
					if _, err := s.registry.StopBackfill(ctx, database, name, s.cfg.Leases.Bucket); err != nil {
						return err
					}
					return a.printDone("pipeline", database, name, "backfill stopped")
				}
				rec, err := s.registry.Backfill(ctx, database, name, scope, s.cfg.Leases.Bucket)
				if err != nil {
					return err
				}
				v := map[string]any{
					"kind": "pipeline", "database": database, "name": name, "action": "backfill", "scope": scope, "generation": rec.Generation,
				}
				return a.printText(v, "pipeline %s/%s goes through %s; see millrace status %s\n", database, name, scope, name)
			})
		},
	}
	cmd.Flags().StringVar(&scope.Where, "where", "", "only items for which this expression is true")
	cmd.Flags().StringVarP(&scope.Key, "key", "k", "", "only items of this partition key")
	cmd.Flags().BoolVar(&stop, "stop", false, "end the backfill that is under way")
	cmd.MarkFlagsMutuallyExclusive("stop", "where")
	cmd.MarkFlagsMutuallyExclusive("stop", "key")
	return cmd
}
