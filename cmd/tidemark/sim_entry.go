package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemark-log/tidemark/experiments"
	"github.com/tidemark-log/tidemark/internal/words"
	"github.com/tidemark-log/tidemark/sim"
)

// entryFlags are those of a sweep with the vector of entries of the failure catalogue.
type entryFlags struct {
	entries []string // none: an ordinary sweep; "all"
	hits    int
	fixed   bool
}

func (e *entryFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringSliceVar(&e.entries, "entry", nil, "entries of the failure catalogue, as B1,C3, or all: sweep with an entry's rules off and under its settings, and stop at the first seed that breaks an invariant that it names")
	f.IntVar(&e.hits, "hits", 1, "of --entry: go on until so many seeds have broken it")
	f.BoolVar(&e.fixed, "fixed", false, "of --entry: leave the rules on and the settings those of the fix, so that nothing may break")
}

// scenarios gives what the entries are: those that can arise.
func (e *entryFlags) scenarios() ([]*experiments.Scenario, error) {
	var chosen []*experiments.Scenario
	if slices.Equal(e.entries, []string{"all"}) {
		all, err := experiments.Catalogue()
		for _, one := range all {
			if one.Scenario != nil {
				chosen = append(chosen, one.Scenario)
			}
		}
		return chosen, err
	}
	for _, id := range e.entries {
		s, err := entryScenario(id)
		if err != nil {
			return nil, err
		}
		chosen = append(chosen, s)
	}
	return chosen, nil
}

// entryScenario is that of an entry that can arise; of one that is played in several ways the first,
// unless it is called by the name of its scenario.
func entryScenario(id string) (*experiments.Scenario, error) {
	all, err := experiments.FindEntry(id)
	if err != nil {
		return nil, fmt.Errorf("--entry: %w", err)
	}
	if all[0].Scenario == nil {
		return nil, fmt.Errorf("--entry %s: it cannot arise here: %s", id, all[0].Absent)
	}
	return all[0].Scenario, nil
}

// entryName is what --entry calls a scenario by: its entry or, of one that is not the entry's first, its own name.
func entryName(s *experiments.Scenario) string {
	if first, err := entryScenario(s.Entry); err == nil && first.Name != s.Name {
		return s.Name
	}
	return s.Entry
}

// entrySweep is one entry's part of a sweep.
type entrySweep struct {
	sim.Hunted
	name string        // for --entry
	Took time.Duration `json:"took_ns"`
}

// sweep hunts for one entry after the other and says what it took.
func (e *entryFlags) sweep(ctx context.Context, s sim.Sweep, out, progress io.Writer, asJSON bool) error {
	switch {
	case s.Plant != "" || s.Brokers > 0 || len(s.RulesOff) > 0:
		return fmt.Errorf("--entry: an entry says itself how many brokers there are and what they do without; leave --plant, --brokers and --rules-off out")
	case s.Shards > 1:
		return fmt.Errorf("--entry: runs its seeds in order, so that it can say how many it took; leave --shard out")
	case e.hits < 1:
		return fmt.Errorf("--hits %d: want 1 or more", e.hits)
	}
	scenarios, err := e.scenarios()
	if err != nil {
		return err
	}
	bar := entryProgress{newSweepProgress(progress, len(scenarios)*s.Size()), progress}
	var all []entrySweep
	for _, one := range scenarios {
		began := time.Now()
		h := sim.Hunt{Entry: one, From: s.From, To: s.To, Hits: e.hits, Fixed: e.fixed}
		h.Each = func(sim.Result) bool { bar.step(); return ctx.Err() != nil }
		all = append(all, entrySweep{h.Run(), entryName(one), time.Since(began)})
		bar.entry(all[len(all)-1])
		if ctx.Err() != nil {
			break
		}
	}
	bar.end()
	if asJSON {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		err = enc.Encode(all)
	} else {
		e.write(out, all)
	}
	if err != nil {
		return err
	}
	return e.judge(all, len(scenarios))
}

// entryProgress tells of each entry, where there is no terminal with a bar.
type entryProgress struct {
	*sweepProgress
	w io.Writer
}

func (p entryProgress) entry(h entrySweep) {
	if p.bar == nil {
		fmt.Fprintf(p.w, "%s: seeds %s of %d; broke too: %s\n", h.Entry, hitsText(h.Hits), h.Runs, othersText(h.Others))
	}
}

// judge: what was looked for must be found, and with the rules on nothing.
func (e *entryFlags) judge(all []entrySweep, want int) error {
	if len(all) < want {
		return fmt.Errorf("stopped after %d of %s", len(all), words.Count(want, "entry"))
	}
	var wrong []string
	for _, h := range all {
		if e.fixed && len(h.Hits)+len(h.Others) > 0 || !e.fixed && len(h.Hits) == 0 {
			wrong = append(wrong, h.Entry)
		}
	}
	switch {
	case len(wrong) > 0 && e.fixed:
		return fmt.Errorf("with the rules on something breaks: %s", strings.Join(wrong, ", "))
	case len(wrong) > 0:
		return fmt.Errorf("%d of %d found; not found: %s", len(all)-len(wrong), len(all), strings.Join(wrong, ", "))
	}
	return nil
}

func (e *entryFlags) write(out io.Writer, all []entrySweep) {
	if len(all) == 1 {
		e.writeOne(out, all[0])
		return
	}
	w := tabwriter.NewWriter(out, 0, 0, 1, ' ', 0)
	fmt.Fprintln(w, "| entry\t| vector\t| breaks\t| seeds for each hit\t| median\t| simulated s to the first\t| seeds/s\t| others that broke (seeds)\t|")
	fmt.Fprintln(w, "|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|")
	for _, h := range all {
		seeds, median, first := fmt.Sprintf("none in %d", h.Runs), "", ""
		if len(h.Hits) > 0 {
			seeds, median, first = hitsText(h.Hits), fmt.Sprint(medianSeeds(h.Hits)), fmt.Sprintf("%.0f", h.Hits[0].Virtual.Seconds())
		}
		fmt.Fprintf(w, "| %s\t| %s\t| %s\t| %s\t| %s\t| %s\t| %.1f\t| %s\t|\n", h.Entry, h.Vector, strings.Join(h.Breaks, ", "), seeds, median, first, float64(h.Runs)/h.Took.Seconds(), othersText(h.Others))
	}
	w.Flush()
}

func (e *entryFlags) writeOne(out io.Writer, h entrySweep) {
	fmt.Fprintf(out, "entry %s: %s; one of %s must break\n", h.Entry, h.Vector, strings.Join(h.Breaks, ", "))
	var virtual time.Duration
	for _, hit := range h.Hits {
		virtual += hit.Virtual
		fmt.Fprintf(out, "seed %d, the %d. after the one before, %.0f simulated seconds: %s\n", hit.Seed, hit.Seeds, hit.Virtual.Seconds(), hit.Violation)
		fmt.Fprintf(out, "again: tidemark sim run --seed %d --entry %s --trace\n", hit.Seed, h.name)
	}
	fmt.Fprintf(out, "%s in %.1f s: %d found it\n", words.Count(h.Runs, "seed"), h.Took.Seconds(), len(h.Hits))
	if len(h.Others) > 0 {
		fmt.Fprintf(out, "broke too (seeds): %s\n", othersText(h.Others))
	}
	if len(h.Hits) == 0 {
		writeProbes(out, h.Probes, sim.Options{Entry: &experiments.Scenario{}})
	}
}

func hitsText(hits []sim.Hit) string {
	var all []string
	for _, h := range hits {
		all = append(all, fmt.Sprint(h.Seeds))
	}
	return strings.Join(all, ", ")
}

// medianSeeds is the middle of what the hits took; the larger of two.
func medianSeeds(hits []sim.Hit) int {
	var all []int
	for _, h := range hits {
		all = append(all, h.Seeds)
	}
	slices.Sort(all)
	return all[len(all)/2]
}

func othersText(others map[string]int) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(others)) {
		all = append(all, fmt.Sprintf("%s %d", name, others[name]))
	}
	return strings.Join(all, ", ")
}
