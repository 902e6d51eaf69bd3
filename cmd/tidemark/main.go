// Command tidemark is the testbed's one binary: broker, harness, simulator and
// the tools around them. This package parses flags and calls the packages that
// do the work; it holds no logic of its own.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemark-log/tidemark/harness/chaos"
)

// commands is filled by this package's other files, one command a file.
var commands []func() *cobra.Command

func main() {
	ctx := untilSignal()
	err := rootCommand().ExecuteContext(ctx)
	if err == nil {
		return
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) { // wherever it was, that is no fault of the place
		err = errors.New("interrupted")
	}
	fmt.Fprintln(os.Stderr, "tidemark:", err)
	os.Exit(exitStatus(err))
}

// secondSignalAfter is how long after the first signal another one counts as a second. One wish to stop may come as two
// signals: timeout(1) sends to its child and then to its whole group, a wrapper passes on what the terminal sent to both. They
// come within milliseconds. A person who sees that it does not end, and asks again, takes longer than this.
const secondSignalAfter = 500 * time.Millisecond

// untilSignal ends with the first SIGINT or SIGTERM: commands then end in good order, which
// may take them as long as a disk or a peer does. A second one, secondSignalAfter later, ends the process at once, and what it started with it.
func untilSignal() context.Context {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-signals
		first := time.Now()
		cancel()
		for time.Since(first) < secondSignalAfter {
			<-signals
		}
		fmt.Fprintln(os.Stderr, "tidemark: ended at once by a second signal; what a broker had not flushed is recovered at its next start")
		os.Exit(130)
	}()
	return ctx
}

// exitStatus is 1, or 2 where what was asked for cannot be done at all.
func exitStatus(err error) int {
	if notLive := (*chaos.NotLiveError)(nil); errors.As(err, &notLive) {
		return 2
	}
	return 1
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "tidemark",
		Short:         "A testbed for the distributed log",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	for _, c := range commands {
		root.AddCommand(c())
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return fmt.Errorf("%w; see %s --help", err, c.CommandPath())
	})
	for _, c := range root.Commands() {
		explainArgs(c)
	}
	return root
}

// explainArgs makes c, and what is below it, say how it is used when its
// arguments are wrong. Cobra answers an unknown word after a command that has
// only subcommands with the help text and success; here it is an error.
func explainArgs(c *cobra.Command) {
	for _, sub := range c.Commands() {
		explainArgs(sub)
	}
	check := c.Args
	if c.HasSubCommands() && !c.Runnable() {
		check = cobra.NoArgs
		c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	}
	if check == nil {
		return
	}
	c.Args = func(c *cobra.Command, args []string) error {
		err := check(c, args)
		if err == nil {
			return nil
		}
		if c.HasSubCommands() {
			return fmt.Errorf("%w; see %s --help", err, c.CommandPath())
		}
		return fmt.Errorf("%w; usage: %s", err, c.UseLine())
	}
}
