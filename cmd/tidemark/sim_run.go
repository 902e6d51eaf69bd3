package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemark-log/tidemark/experiments"
	"github.com/tidemark-log/tidemark/sim"
)

// simRunFlags are what sim run can be asked for beside a world.
type simRunFlags struct {
	seed                  uint64
	trace, asJSON         bool
	vectorOnly, fixedOnly bool
	save                  string
	entry                 string
}

func simRunCommand() *cobra.Command {
	var r simRunFlags
	o := sim.Options{}
	cmd := &cobra.Command{
		Use:   "run SCENARIO|--seed N",
		Short: "Play a scenario of the failure catalogue, or the world of one seed, and say what happened",
		Long: `With a scenario (an entry of the failure catalogue such as B1, a name, or a file), play it
twice from one seed: without the rules of its vector, where the invariant that it names must
break, and with the rules on, where nothing may break and each witness must occur, so that the
clean run shows something. The exit status is 0 only if all of that holds.

Without one, play the world of a seed: its configuration, clients and faults are drawn.`,
		Example: `  tidemark sim run B1
  tidemark sim run chaos-kills --trace
  tidemark sim run my-story.toml --vector-only
  tidemark sim run --seed 7`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := r.check(cmd, args); err != nil {
				return err
			}
			if err := checkSimOptions(cmd, &o); err != nil {
				return err
			}
			if len(args) == 1 {
				return runScenarios(cmd.OutOrStdout(), args[0], r)
			}
			if r.entry != "" {
				var err error
				if o.Entry, err = entryScenario(r.entry); err != nil {
					return err
				}
				o.Bug = !r.fixedOnly
			}
			return runSeed(cmd.OutOrStdout(), r, o)
		},
	}
	f := cmd.Flags()
	f.Uint64Var(&r.seed, "seed", 1, "which world")
	simFlags(cmd, &o)
	f.StringVar(&r.entry, "entry", "", "of a seed: with the rules off and the settings of this entry of the failure catalogue, see sim sweep --entry")
	f.BoolVar(&r.vectorOnly, "vector-only", false, "of a scenario, only the run without its rules")
	f.BoolVar(&r.fixedOnly, "fixed-only", false, "of a scenario, only the run with the rules on; of a seed with --entry, the rules on and the settings of the fix")
	f.StringVar(&r.save, "save", "", "of a seed of a cluster: write the run with its faults one by one to this file, for replay and shrink")
	f.BoolVar(&r.trace, "trace", false, "print every event")
	f.BoolVar(&r.asJSON, "json", false, "print JSON")
	return cmd
}

// check finds flags that do not go together.
func (r simRunFlags) check(cmd *cobra.Command, args []string) error {
	of := "a scenario"
	if len(args) == 0 {
		of = "a seed"
	}
	for _, name := range map[string][]string{
		"a scenario": {"seed", "plant", "brokers", "rules-off", "retention", "unclean", "save", "entry"}, "a seed": {"vector-only"},
	}[of] {
		if cmd.Flags().Changed(name) {
			return fmt.Errorf("--%s: has no meaning for %s", name, of)
		}
	}
	switch {
	case len(args) == 0 && r.fixedOnly && r.entry == "":
		return errors.New("--fixed-only: has no meaning for a seed without --entry")
	case r.entry != "" && (cmd.Flags().Changed("brokers") || cmd.Flags().Changed("plant") || cmd.Flags().Changed("rules-off")):
		return errors.New("--entry: says itself how many brokers there are and what they do without; leave --plant, --brokers and --rules-off out")
	case r.vectorOnly && r.fixedOnly:
		return errors.New("--vector-only and --fixed-only: choose one")
	case r.trace && r.asJSON:
		return errors.New("--trace and --json: choose one")
	}
	return nil
}

// echoTo prints every event as it comes.
func echoTo(out io.Writer) func(string) { return func(line string) { fmt.Fprintln(out, line) } }

func runSeed(out io.Writer, f simRunFlags, o sim.Options) error {
	if f.trace {
		o.Echo = echoTo(out)
	}
	if f.save != "" && o.Brokers == 0 {
		return errors.New("--save: a broker alone is its seed, and nothing else; leave --plant and --brokers 0 out")
	}
	began := time.Now()
	r := sim.Run(f.seed, o)
	if f.asJSON {
		if err := writeJSON(out, r); err != nil {
			return err
		}
	} else {
		writeRun(out, r, o, time.Since(began))
	}
	if f.save != "" {
		words := out
		if f.asJSON {
			words = io.Discard
		}
		if err := saveRun(words, f.save, o, r); err != nil {
			return err
		}
	}
	if r.Violation != "" {
		return fmt.Errorf("seed %d violates what the broker promises", f.seed)
	}
	return nil
}

func writeRun(out io.Writer, r sim.Result, o sim.Options, took time.Duration) {
	fmt.Fprintf(out, "seed %d: %s\n", r.Seed, r.Config)
	fmt.Fprintf(out, "%d events, %d lives of the broker, %v of virtual time in %v; trace hash %016x\n",
		r.Events, r.Lives, r.Virtual.Round(time.Millisecond), took.Round(time.Millisecond), r.Hash)
	if r.Cluster != nil {
		writeCluster(out, *r.Cluster, took)
	}
	writeProbes(out, r.Probes, o)
	if r.Violation != "" {
		writeViolation(out, r, o)
		return
	}
	fmt.Fprintln(out, "no violation")
}

// runScenarios plays every scenario that what stands for, and fails if one does not hold.
func runScenarios(out io.Writer, what string, f simRunFlags) error {
	all, err := experiments.FindScenarios(what)
	if err != nil {
		return err
	}
	var failed error
	for i, s := range all {
		if i > 0 && !f.asJSON {
			fmt.Fprintln(out)
		}
		failed = cmp.Or(failed, runScenario(out, s, f))
	}
	return failed
}

func runScenario(out io.Writer, s *experiments.Scenario, f simRunFlags) error {
	if f.vectorOnly && len(s.Breaks) == 0 {
		return fmt.Errorf("--vector-only: %s has no vector: nothing is to break in it", s.Name)
	}
	w := sim.Ways{Vector: !f.fixedOnly, Fixed: !f.vectorOnly}
	if f.trace {
		w.Echo = echoTo(out)
	}
	t, err := sim.Tell(s, w)
	if err != nil {
		return err
	}
	if f.asJSON {
		err = writeJSON(out, t)
	} else {
		newStoryWriter(out).told(t)
	}
	if err == nil && len(t.Problems) > 0 {
		err = fmt.Errorf("%s does not do what it promises: %s", s.Name, t.Problems[0])
	}
	return err
}
