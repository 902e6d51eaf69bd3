// Command tidemark is the testbed's one binary: broker, harness, simulator and
// the tools around them. This package parses flags and calls the packages that
// do the work; it holds no logic of its own.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// commands is filled by this package's other files, one command a file.
var commands []func() *cobra.Command

func main() {
	root := &cobra.Command{
		Use:           "tidemark",
		Short:         "A testbed for the distributed log",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	for _, c := range commands {
		root.AddCommand(c())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "tidemark:", err)
		os.Exit(1)
	}
}
