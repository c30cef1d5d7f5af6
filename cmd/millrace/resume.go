package main

import (
	"github.com/spf13/cobra"

	"github.com/millrace/millrace/pipelines/registry"
)

func newResume(a *app) *cobra.Command {
	return a.onPipeline(&cobra.Command{
		Use:     "resume PIPELINE",
		Short:   "Let a paused pipeline go on where it stood",
		Example: "  millrace resume category-names",
	}, (*registry.Registry).Resume, "resumed")
}
