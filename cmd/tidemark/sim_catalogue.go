package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tidemark-log/tidemark/experiments"
)

func simCatalogueCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "catalogue [ENTRY]",
		Short: "List the historic failures that the simulator plays, or tell one of them",
		Long: `List the entries of the failure catalogue that this project covers: what each breaks, the
rules that are off where it does (each is a historic fix), and where it was reported. Those that
cannot arise in this design stand with the reason. With an entry, tell its whole story.`,
		Example: `  tidemark sim catalogue
  tidemark sim catalogue B1
  tidemark sim run B1`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			out := cmd.OutOrStdout()
			all, err := experiments.Catalogue()
			if len(args) == 1 {
				all, err = experiments.FindEntry(args[0])
			}
			switch {
			case err != nil:
				return err
			case asJSON:
				var list []catalogueJSON
				for _, e := range all {
					list = append(list, entryJSON(e))
				}
				return writeJSON(out, list)
			case len(args) == 0:
				writeCatalogue(out, all)
				return nil
			}
			for i, e := range all {
				if i > 0 {
					fmt.Fprintln(out)
				}
				newStoryWriter(out).entry(e)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// catalogueJSON is an entry as a program reads it.
type catalogueJSON struct {
	ID       string            `json:"id"`
	Title    string            `json:"title"`
	Absent   string            `json:"cannot_arise,omitempty"`
	Source   string            `json:"source,omitempty"`
	Says     string            `json:"says,omitempty"`
	Breaks   []string          `json:"breaks,omitempty"`
	RulesOff []string          `json:"rules_off,omitempty"`
	Bug      map[string]string `json:"bug_settings,omitempty"`
	BugAcks  []int16           `json:"bug_acks,omitempty"`
	Settings map[string]string `json:"settings,omitempty"`
	Envelope string            `json:"envelope,omitempty"`
	Scenario string            `json:"scenario,omitempty"`
	Steps    []string          `json:"steps,omitempty"`
	Witness  []string          `json:"witness,omitempty"`
}

func entryJSON(e experiments.Entry) catalogueJSON {
	j := catalogueJSON{ID: e.ID, Title: e.Title, Absent: e.Absent}
	if s := e.Scenario; s != nil {
		j.Source, j.Says, j.Breaks, j.RulesOff, j.Bug, j.BugAcks, j.Settings = s.Source, strings.Join(strings.Fields(s.Says), " "), s.Breaks, s.RulesOff, s.Bug, s.BugAcks, s.Settings
		j.Envelope, j.Scenario, j.Witness = string(s.Envelope), scenarioFile(s), s.Witness
		for i := range s.Steps {
			j.Steps = append(j.Steps, stepInWords(&s.Steps[i]))
		}
	}
	return j
}

func scenarioFile(s *experiments.Scenario) string {
	return "experiments/scenarios/" + s.Name + ".toml"
}

// writeCatalogue is the table; each line tells one entry.
func writeCatalogue(out io.Writer, all []experiments.Entry) {
	s := newStoryWriter(out)
	title, breaks := 0, 0
	for _, e := range all {
		if e.Scenario != nil {
			title, breaks = max(title, len(e.Title)), max(breaks, len(strings.Join(e.Scenario.Breaks, " ")))
		}
	}
	row := fmt.Sprintf("%%-4s %%-%ds  %%-%ds  %%-8s  ", title, breaks)
	s.line("%s", s.paint(inkStrong, fmt.Sprintf(row, "", "what happened", "breaks", "envelope")+"without"))
	played := 0
	for _, e := range all {
		if x := e.Scenario; x != nil {
			played++
			s.line("%s%s", fmt.Sprintf(row, e.ID, e.Title, strings.Join(x.Breaks, " "), x.Envelope), s.paint(inkWarn, shortVector(x)))
		}
	}
	s.line("\n%s", s.paint(inkStrong, "cannot arise in this design:"))
	for _, e := range all {
		if e.Scenario == nil {
			s.line("%-4s %s: %s", e.ID, e.Title, s.paint(inkDim, e.Absent))
		}
	}
	s.line("\n%d histories are played. E0: no fault may take what was written; E1: min.insync.replicas-1 may, until it is replicated again; E2: any number of power cuts.", played)
	s.line("One entry in full: tidemark sim catalogue B1; played both ways: tidemark sim run B1")
}

// shortVector names what is off or set in the run that must break, in a few words.
func shortVector(x *experiments.Scenario) string {
	all := slices.Clone(x.RulesOff)
	for _, key := range slices.Sorted(maps.Keys(x.Bug)) {
		value := x.Bug[key]
		if len(value) > 10 {
			value = "unlimited"
		}
		all = append(all, key+"="+value)
	}
	if x.BugAcks != nil {
		all = append(all, "acks="+strings.Trim(fmt.Sprint(x.BugAcks), "[]"))
	}
	return strings.Join(all, ", ")
}

func stepInWords(f *experiments.Fault) string {
	if timing := f.Timing(); timing != "" {
		return timing + ": " + f.Deed()
	}
	return f.Deed()
}

// entry tells one entry whole.
func (s *storyWriter) entry(e experiments.Entry) {
	if e.Scenario == nil {
		s.line("%s", s.paint(inkStrong, e.ID+"  "+e.Title))
		s.wrapped("", "Cannot arise in this design: "+e.Absent+".")
		return
	}
	x := e.Scenario
	s.heading(x)
	s.wrapped("", x.Says)
	s.line("\n%s", s.paint(inkStrong, "what breaks, with "+vectorInWords(x)+":"))
	for _, id := range x.Breaks {
		name, demands := experiments.Invariant(id)
		s.line("  %-4s %s: %s", id, name, demands)
	}
	s.line("\n%s", s.paint(inkStrong, "what is done:"))
	for i := range x.Steps {
		s.line("  %2d  %s", i+1, stepInWords(&x.Steps[i]))
	}
	s.line("\n%s", s.paint(inkStrong, "the world:"))
	s.line("  %d brokers, %d replicas, envelope %s, producers with acks=%s", x.Brokers, x.Replicas, x.Envelope, strings.Trim(fmt.Sprint(x.Acks), "[]"))
	for _, key := range slices.Sorted(maps.Keys(x.Settings)) {
		s.line("  %s=%s", key, x.Settings[key])
	}
	s.line("\n%s %s", s.paint(inkStrong, "witness, with every rule on:"), strings.Join(x.Witness, "; "))
	s.line("%s %s", s.paint(inkStrong, "scenario:"), scenarioFile(x))
	s.line("%s tidemark sim run %s", s.paint(inkStrong, "play it:"), x.Name)
}
