package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemark-log/tidemark/experiments"
	"github.com/tidemark-log/tidemark/harness/chaos"
	"github.com/tidemark-log/tidemark/internal/words"
)

func init() { commands = append(commands, chaosCommand) }

func chaosCommand() *cobra.Command {
	var o chaos.Options
	var seconds int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "chaos SCENARIO",
		Short: "Play a scenario of faults on live processes, and judge what clients saw",
		Long: `Start brokers and the embedded ZooKeeper as processes of this machine, and play a scenario on
them under producers and a consumer: kill, bounce, stop, pause, an empty disk, ZooKeeper away. Then heal,
demand that everything comes to rest, read everything again, and judge it by the checkers that judge
the simulator's clients. Last, stop the brokers and compare the replicas on their disks, batch by batch.
The exit status is 0 only if nothing is violated.

What needs a cut network, a held message or lost power is for the simulator: such a scenario is
refused, with the steps that cannot be played, and the exit status is 2.`,
		Example: `  tidemark chaos chaos-kills
  tidemark chaos chaos-kills --brokers 5 --seconds 300
  tidemark sim run chaos-kills        # the same in the simulator`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case o.Brokers < 0 || o.Brokers > 100:
				return fmt.Errorf("--brokers %d: want 1 to 100, or 0 for as many as the scenario says", o.Brokers)
			case seconds < 0:
				return fmt.Errorf("--seconds %d: want 0 or more", seconds)
			}
			o.For = time.Duration(seconds) * time.Second
			all, err := experiments.FindScenarios(args[0])
			if err != nil {
				return err
			}
			return runChaos(cmd, all[0], o, asJSON)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Brokers, "brokers", 0, "how many brokers; 0: as the scenario says")
	f.IntVar(&seconds, "seconds", 0, "tell the story again until so much time has passed; 0: once")
	f.StringVar(&o.Dir, "dir", "", "directory for everything that is kept (default: one of its own, removed if nothing is violated)")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func runChaos(cmd *cobra.Command, s *experiments.Scenario, o chaos.Options, asJSON bool) error {
	if err := chaos.Check(s); err != nil { // before a directory is made
		return err
	}
	remove := func() {}
	var err error
	if o.Dir == "" {
		if o.Dir, err = os.MkdirTemp("", "tidemark-chaos-"); err != nil {
			return err
		}
		remove = func() { os.RemoveAll(o.Dir) }
	}
	if o.Binary, err = os.Executable(); err != nil {
		return err
	}
	out := newStoryWriter(cmd.OutOrStdout())
	if asJSON {
		out.w = io.Discard
	}
	out.heading(s)
	out.wrapped("", s.Says)
	out.line("")
	o.Say = func(at time.Duration, what string) { out.line("%12s  %s", at.Round(time.Millisecond), what) }
	r, err := chaos.Run(cmd.Context(), s, o)
	if r != nil && err == nil {
		if asJSON {
			err = writeJSON(cmd.OutOrStdout(), r)
		} else {
			out.chaos(r)
		}
	}
	switch {
	case cmd.Context().Err() != nil:
		remove()
		return err
	case err != nil:
		return fmt.Errorf("%w; what the brokers said is in %s", err, o.Dir)
	case r.Violation != "":
		return errors.New("the brokers broke a promise; their data and what they said is in " + o.Dir)
	}
	remove()
	return nil
}

// chaos tells how a live run went.
func (s *storyWriter) chaos(r *chaos.Report) {
	if r.Violation != "" {
		s.line("%12s  %s  %s", r.Took, s.paint(inkBad, "BROKEN"), r.Violation)
	} else {
		s.line("%12s  %s  everything acknowledged is there, once and in order, and what was read stands", r.Took, s.paint(inkGood, "PASSES"))
		s.line("%s compared on all replicas: the same to the byte", words.Count(r.Compared, "batch"))
	}
	s.line("%s on %s, told %s: %s acknowledged under acks=all, %d under acks=1, %d read on the way",
		words.Count(r.Faults, "step"), words.Count(r.Brokers, "broker"), words.Count(r.Rounds, "time"), words.Count(r.Acked, "record"), r.AckedWeak, r.Read)
}
