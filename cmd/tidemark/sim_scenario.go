package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/tidemark-log/tidemark/experiments"
	"github.com/tidemark-log/tidemark/internal/words"
	"github.com/tidemark-log/tidemark/sim"
)

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// storyWriter tells of scenarios: coloured and as wide as the window on a terminal, plain elsewhere.
type storyWriter struct {
	w     io.Writer
	color bool
	width int
}

// widthPlain is how wide lines are where there is no terminal.
const widthPlain = 110

func newStoryWriter(w io.Writer) *storyWriter {
	s := &storyWriter{w: w, width: widthPlain}
	if f, ok := w.(*os.File); ok && isTerminal(f) {
		s.color = true
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 40 {
			s.width = min(width, 140)
		}
	}
	return s
}

// Inks of a terminal.
const (
	inkStrong = "1"
	inkDim    = "2"
	inkBad    = "1;31"
	inkGood   = "1;32"
	inkWarn   = "33"
)

func (s *storyWriter) paint(ink, text string) string {
	if !s.color || text == "" {
		return text
	}
	return "\x1b[" + ink + "m" + text + "\x1b[0m"
}

func (s *storyWriter) line(format string, args ...any) { fmt.Fprintf(s.w, format+"\n", args...) }

// wrapped writes text in lines that begin with indent.
func (s *storyWriter) wrapped(indent, text string) {
	if text == "" {
		return
	}
	line := indent
	for _, word := range strings.Fields(text) {
		if len(line)+1+len(word) > s.width && line != indent {
			s.line("%s", line)
			line = indent
		}
		if line != indent {
			line += " "
		}
		line += word
	}
	s.line("%s", line)
}

// told tells how a scenario went, both ways.
func (s *storyWriter) told(t *sim.Told) {
	s.heading(t.Scenario)
	s.wrapped("", t.Scenario.Says)
	if t.Vector != nil {
		s.line("\n%s", s.paint(inkStrong, fmt.Sprintf("With %s (seed %d):", vectorInWords(t.Scenario), t.Seed)))
		s.steps(*t.Vector)
		s.broke(t)
	}
	if t.Fixed != nil {
		seed := fmt.Sprintf("seed %d", t.Seed)
		if t.Vector != nil {
			seed = "the same seed"
		}
		s.line("\n%s", s.paint(inkStrong, fmt.Sprintf("With every rule on (%s):", seed)))
		s.steps(*t.Fixed)
		s.passed(t)
	}
	s.line("")
	if len(t.Problems) == 0 {
		s.line("%s", s.paint(inkGood, t.Name+" holds what it promises"))
		return
	}
	for _, p := range t.Problems {
		s.line("%s", s.paint(inkBad, t.Name+": "+p))
	}
}

func (s *storyWriter) heading(x *experiments.Scenario) {
	text := strings.TrimSpace(x.Entry + "  " + x.Title)
	if x.Title == "" {
		text = strings.TrimSpace(x.Entry + "  " + x.Name)
	}
	source := ""
	if x.Source != "" {
		source = "  (" + x.Source + ")"
	}
	s.line("%s%s", s.paint(inkStrong, text), s.paint(inkDim, source))
}

// vectorInWords names what is different in the run that must break.
func vectorInWords(x *experiments.Scenario) string {
	var all []string
	if len(x.RulesOff) > 0 {
		all = append(all, strings.Join(x.RulesOff, ", ")+" off")
	}
	for _, key := range slices.Sorted(maps.Keys(x.Bug)) {
		all = append(all, key+"="+x.Bug[key])
	}
	if x.BugAcks != nil {
		all = append(all, fmt.Sprintf("acks=%s taken for a promise", strings.Trim(fmt.Sprint(x.BugAcks), "[]")))
	}
	return strings.Join(all, " and ")
}

func (s *storyWriter) steps(r sim.Result) {
	for _, step := range r.Steps {
		whom := ""
		if step.Whom != nil {
			whom = s.paint(inkDim, fmt.Sprintf(" (broker %s)", strings.Trim(fmt.Sprint(step.Whom), "[]")))
		}
		s.line("%12s  %2d  %s%s", time.Duration(step.At).Round(time.Millisecond), step.Number, step.Deed, whom)
	}
	if r.StepsLeft > 0 && r.Violation == "" {
		s.line("%s", s.paint(inkBad, fmt.Sprintf("%14s%s did not come about", "", words.Count(r.StepsLeft, "step"))))
	}
}

// eventsTold is how many of the last events are told of what broke.
const eventsTold = 14

func (s *storyWriter) broke(t *sim.Told) {
	r := t.Vector
	if r.Violation == "" {
		s.line("  %s", s.paint(inkBad, "nothing broke"))
		return
	}
	s.line("%12s  %s  %s", r.Virtual.Round(time.Millisecond), s.paint(inkBad, "BROKEN"), r.Violation)
	if _, demands := experiments.Invariant(t.Broken); demands != "" {
		s.line("%22s%s", "", s.paint(inkDim, fmt.Sprintf("%s demands: %s", t.Broken, demands)))
	}
	s.line("  the last events, of %d:", r.Events)
	for _, line := range r.Words[max(0, len(r.Words)-eventsTold):] {
		s.line("%s", s.paint(inkDim, "  "+line))
	}
}

func (s *storyWriter) passed(t *sim.Told) {
	r := t.Fixed
	if r.Violation != "" {
		s.line("  %s  %s", s.paint(inkBad, "BROKEN"), r.Violation)
		for _, line := range r.Words[max(0, len(r.Words)-eventsTold):] {
			s.line("%s", s.paint(inkDim, "  "+line))
		}
	} else {
		acked := r.Cluster.Acked
		s.line("%12s  %s  every invariant holds; %s acknowledged under acks=all, %s, %s of the ISR", r.Virtual.Round(time.Millisecond), s.paint(inkGood, "PASSES"),
			words.Count(acked, "record"), words.Count(r.Cluster.Elections, "election"), words.Count(r.Cluster.ISRChanges, "change"))
	}
	for _, w := range t.Scenario.Witness {
		if n := r.Probes[w]; n > 0 {
			s.line("%14switness: %s (%s)", "", w, words.Count(n, "time"))
		} else {
			s.line("%14s%s", "", s.paint(inkBad, "witness missing: "+w))
		}
	}
}
