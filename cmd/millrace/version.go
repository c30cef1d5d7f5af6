package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Tell the version of this binary",
		RunE: func(*cobra.Command, []string) error {
			v := map[string]string{"version": versionText(), "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH}
			return a.print(v, func(w io.Writer) error {
				fmt.Fprintf(w, "millrace %s (%s, %s)\n", v["version"], v["go"], v["platform"])
				return nil
			})
		},
	}
}

// versionText returns the version that the linker set, else that of the module, as go install
// records it, else devel.
func versionText() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}
