package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/tidemark-log/tidemark/broker/rules"
	"github.com/tidemark-log/tidemark/internal/words"
	"github.com/tidemark-log/tidemark/sim"
)

func init() { commands = append(commands, simCommand) }

func simCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Run the broker in a simulated world of faults, from a seed",
		Long: `Run the broker in a simulated world: one seed draws its configuration, its clients and
its faults (kills, power cuts, cut networks, paused processes, lost disks), and every invariant is
checked after every step. The same seed gives the same history, always. The world is a cluster of
three brokers, or with --brokers 0 one broker alone.

Planted faults, to see a checker find one in a broker alone (--plant NAME):
` + plantList(),
	}
	cmd.AddCommand(simRunCommand(), simSweepCommand(), simReplayCommand(), simShrinkCommand(), simCatalogueCommand())
	return cmd
}

func plantList() string {
	var b strings.Builder
	for _, name := range sim.Plants() {
		fmt.Fprintf(&b, "  %-22s %s\n", name, sim.PlantDoc(name))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// brokersMax bounds a simulated cluster.
const brokersMax = 7

// simFlags are the flags that every run of the simulator has.
func simFlags(cmd *cobra.Command, o *sim.Options) {
	f := cmd.Flags()
	f.StringVar(&o.Plant, "plant", "", "plant a known fault")
	f.IntVar(&o.Brokers, "brokers", 3, "simulate a cluster of so many brokers; 0, or a --plant: one broker alone, which replicates nothing")
	f.BoolVar(&o.Retention, "retention", false, "the cluster deletes what is old or much")
	f.BoolVar(&o.Unclean, "unclean", false, "a replica from outside ISR and ELR may be elected, and takes what it lacks with it")
	f.StringSliceVar(&o.RulesOff, "rules-off", nil, "replication rules that the brokers of a cluster do without, see lab.rules.off")
}

// checkSimOptions also takes a world with a planted fault for one of a lone broker, unless a cluster is asked for.
func checkSimOptions(cmd *cobra.Command, o *sim.Options) error {
	if o.Plant != "" && !cmd.Flags().Changed("brokers") {
		o.Brokers = 0
	}
	switch {
	case o.Plant != "" && sim.PlantDoc(o.Plant) == "":
		return fmt.Errorf("--plant %s: no planted fault has that name; see tidemark sim --help", o.Plant)
	case o.Brokers < 0 || o.Brokers > brokersMax:
		return fmt.Errorf("--brokers %d: want 0 to %d", o.Brokers, brokersMax)
	case o.Brokers > 0 && o.Plant != "":
		return fmt.Errorf("--plant %s: is planted into one broker alone; leave --brokers out", o.Plant)
	case o.Brokers == 0 && o.Retention:
		return fmt.Errorf("--retention: a broker alone draws that by itself; leave --plant and --brokers 0 out")
	case o.Brokers == 0 && o.Unclean:
		return fmt.Errorf("--unclean: a broker alone elects nobody; leave --plant and --brokers 0 out")
	case o.Unclean && o.Retention:
		return fmt.Errorf("--unclean and --retention: choose one; of records that are gone the simulator cannot tell yet which of the two took them")
	case o.Brokers == 0 && len(o.RulesOff) > 0:
		return fmt.Errorf("--rules-off: a broker alone replicates nothing; leave --plant and --brokers 0 out")
	}
	if _, err := rules.Parse(o.RulesOff); err != nil {
		return fmt.Errorf("--rules-off: %w", err)
	}
	return nil
}

func simSweepCommand() *cobra.Command {
	var seeds, shard string
	var asJSON bool
	s := sim.Sweep{}
	var e entryFlags
	cmd := &cobra.Command{
		Use:   "sweep --seeds A-B",
		Short: "Run a range of seeds; exit 1 and tell the seed when one finds a violation",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkSimOptions(cmd, &s.Options); err != nil {
				return err
			}
			var err error
			if s.From, s.To, err = parseSeeds(seeds); err != nil {
				return err
			}
			if s.Shard, s.Shards, err = parseShard(shard); err != nil {
				return err
			}
			if len(e.entries) > 0 {
				if !cmd.Flags().Changed("brokers") {
					s.Brokers = 0 // as many as the entry says
				}
				return e.sweep(cmd.Context(), s, cmd.OutOrStdout(), cmd.ErrOrStderr(), asJSON)
			}
			progress := newSweepProgress(cmd.ErrOrStderr(), s.Size())
			s.Each = func(sim.Result) bool { progress.step(); return cmd.Context().Err() != nil }
			began := time.Now()
			sum := s.Run()
			progress.end()
			if asJSON {
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				err = enc.Encode(sum)
			} else {
				writeSummary(cmd.OutOrStdout(), sum, time.Since(began), s.Options)
			}
			switch n := len(sum.Violations); {
			case err != nil:
				return err
			case n > 0:
				return fmt.Errorf("%d of %d seeds violate what the broker promises, the first is %d", n, sum.Runs, sum.Violations[0].Seed)
			}
			if cmd.Context().Err() != nil {
				return fmt.Errorf("stopped after %d of %d seeds", sum.Runs, s.Size())
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&seeds, "seeds", "1-200", "from-to, both included")
	f.StringVar(&shard, "shard", "", "i/n: this process runs the seeds that leave i when divided by n, i from 0")
	simFlags(cmd, &s.Options)
	e.add(cmd)
	f.Uint64Var(&s.TwiceEvery, "twice-every", 50, "run each n-th seed twice and compare trace hashes; 0: none")
	f.IntVar(&s.ViolationsMax, "violations-max", 5, "stop after so many; 0: never")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// parseSeeds reads "A-B" or "A".
func parseSeeds(text string) (from, to uint64, err error) {
	a, b, isRange := strings.Cut(text, "-")
	if !isRange {
		b = a
	}
	from, err1 := strconv.ParseUint(a, 10, 63)
	to, err2 := strconv.ParseUint(b, 10, 63)
	if err1 != nil || err2 != nil || from > to {
		return 0, 0, fmt.Errorf("--seeds %s: want two whole numbers, the smaller first, as in 1-2000", text)
	}
	return from, to, nil
}

// parseShard reads "i/n"; "" is the only one.
func parseShard(text string) (i, n int, err error) {
	if text == "" {
		return 0, 1, nil
	}
	a, b, _ := strings.Cut(text, "/")
	i, err1 := strconv.Atoi(a)
	n, err2 := strconv.Atoi(b)
	if err1 != nil || err2 != nil || n < 1 || i < 0 || i >= n {
		return 0, 0, fmt.Errorf("--shard %s: want i/n with i from 0 to n-1, as in 0/2", text)
	}
	return i, n, nil
}

func writeSummary(w io.Writer, s sim.Summary, took time.Duration, o sim.Options) {
	fmt.Fprintf(w, "%s, %d of them run twice to compare their traces; %d lives of a broker, %v of virtual time\n", words.Count(s.Runs, "seed"), s.Twice, s.Lives, s.Virtual.Round(time.Second))
	fmt.Fprintf(w, "%d events in %v: %.0f events/s, %.1f seeds/s\n", s.Events, took.Round(time.Millisecond), float64(s.Events)/took.Seconds(), float64(s.Runs+s.Twice)/took.Seconds())
	if o.Brokers > 0 {
		writeCluster(w, s.Cluster, took)
		writeWorth(w, s)
	}
	writeProbes(w, s.Probes, o)
	for _, r := range s.Violations {
		writeViolation(w, r, o)
	}
	if len(s.Violations) == 0 {
		fmt.Fprintln(w, "no violation")
	}
}

// writeCluster tells what a real second bought.
func writeCluster(w io.Writer, c sim.ClusterResult, took time.Duration) {
	each := func(n int64) float64 { return float64(n) / took.Seconds() }
	fmt.Fprintf(w, "%d records acknowledged under acks=all (%.0f/s), %d under acks=1, %d faults (%.1f/s), %d elections (%.1f/s), %d ISR changes (%.1f/s)\n",
		c.Acked, each(c.Acked), c.AckedWeak, c.Faults, each(c.Faults), c.Elections, each(c.Elections), c.ISRChanges, each(c.ISRChanges))
}

// writeWorth tells what the poorest seed was worth: a mean hides those in which little happened.
func writeWorth(w io.Writer, s sim.Summary) {
	fmt.Fprintf(w, "each seed: at least %v, %d records acknowledged under acks=all, %d faults", s.Least.Virtual.Round(time.Second), s.Least.Acked, s.Least.Faults)
	if s.Overtime > 0 {
		fmt.Fprintf(w, "; in %d the faults went on until there was so much", s.Overtime)
	}
	fmt.Fprintln(w)
	if len(s.Short) > 0 {
		fmt.Fprintf(w, "%s worth less than %v, %d records and %d faults: %s\n", words.Count(len(s.Short), "seed"), sim.VirtualMin, sim.AckedMin, sim.FaultsMin, strings.Trim(fmt.Sprint(s.Short), "[]"))
	}
}

func writeProbes(w io.Writer, probes map[string]int64, o sim.Options) {
	var never []string
	fmt.Fprintln(w, "reached:")
	for _, name := range o.ProbeNames() {
		if n := probes[name]; n > 0 {
			fmt.Fprintf(w, "%10d  %s\n", n, name)
		} else {
			never = append(never, name)
		}
	}
	if len(never) > 0 {
		fmt.Fprintf(w, "never reached: %s\n", strings.Join(never, ", "))
	}
}

func writeViolation(w io.Writer, r sim.Result, o sim.Options) {
	again := fmt.Sprintf("tidemark sim run --seed %d", r.Seed)
	if o.Plant != "" {
		again += " --plant " + o.Plant
	}
	if o.Entry != nil {
		again += " --entry " + entryName(o.Entry)
		if !o.Bug {
			again += " --fixed-only"
		}
	}
	if o.Entry == nil && o.Plant == "" {
		again += fmt.Sprintf(" --brokers %d", o.Brokers)
	}
	if o.Retention {
		again += " --retention"
	}
	if o.Unclean {
		again += " --unclean"
	}
	if len(o.RulesOff) > 0 {
		again += " --rules-off " + strings.Join(o.RulesOff, ",")
	}
	fmt.Fprintf(w, "\nVIOLATION, seed %d: %s\nworld: %s\nlast events:\n", r.Seed, r.Violation, r.Config)
	for _, line := range r.Tail {
		fmt.Fprintln(w, "  "+line)
	}
	fmt.Fprintf(w, "again: %s --trace\n", again)
	if o.Brokers > 0 {
		fmt.Fprintf(w, "smaller: %s --save seed-%d.toml; tidemark sim shrink seed-%d.toml\n", again, r.Seed, r.Seed)
	}
}

// sweepProgress is a bar on a terminal and a line for each tenth elsewhere.
type sweepProgress struct {
	w     io.Writer
	bar   *progressbar.ProgressBar
	n, of int
}

func newSweepProgress(w io.Writer, of int) *sweepProgress {
	p := &sweepProgress{w: w, of: of}
	if f, ok := w.(*os.File); ok && isTerminal(f) {
		p.bar = progressbar.NewOptions(of, progressbar.OptionSetWriter(w), progressbar.OptionSetDescription("seeds"),
			progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetPredictTime(true), progressbar.OptionClearOnFinish(), progressbar.OptionThrottle(100*time.Millisecond))
	}
	return p
}

func (p *sweepProgress) step() {
	p.n++
	switch {
	case p.bar != nil:
		_ = p.bar.Add(1)
	case p.of >= 100 && p.n%(p.of/10) == 0:
		fmt.Fprintf(p.w, "%d of %d seeds\n", p.n, p.of)
	}
}

func (p *sweepProgress) end() {
	if p.bar != nil {
		_ = p.bar.Finish()
	}
}
