package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/tidemark-log/tidemark/internal/words"
	"github.com/tidemark-log/tidemark/sim"
)

func simReplayCommand() *cobra.Command {
	var trace, asJSON bool
	cmd := &cobra.Command{
		Use:   "replay FILE",
		Short: "Play a saved run of a cluster again, and say whether it is the same",
		Long: `Play again what tidemark sim run --save wrote: its seed, with exactly the faults that the
file lists. The exit status is 0 only if the trace hash is the one in the file.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if trace && asJSON {
				return errors.New("--trace and --json: choose one")
			}
			saved, err := readSaved(args[0])
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			var echo func(string)
			if trace {
				echo = echoTo(out)
			}
			r, same, why := saved.Replay(echo)
			if asJSON {
				err = writeJSON(out, struct {
					Same bool   `json:"same"`
					Why  string `json:"why,omitempty"`
					sim.Result
				}{same, why, r})
			} else {
				newStoryWriter(out).replayed(saved, r, same)
			}
			if err == nil && !same {
				err = fmt.Errorf("%s: trace hash %016x, and %s in the file: %s", args[0], r.Hash, saved.Hash, why)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&trace, "trace", false, "print every event")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func simShrinkCommand() *cobra.Command {
	var to string
	s := sim.Shrink{}
	cmd := &cobra.Command{
		Use:   "shrink FILE",
		Short: "Look for a smaller run that violates the same: fewer faults, less work of clients",
		Long: `Leave faults out of a saved run, half of them, a quarter, down to single ones, and let
clients send less, as long as the same invariant breaks. What remains is written to another file,
and is often short enough to be understood.`,
		Example: `  tidemark sim run --seed 3 --brokers 3 --rules-off maximal-isr --save found.toml
  tidemark sim shrink found.toml
  tidemark sim replay found.small.toml --trace`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if s.RunsMax < 1 {
				return fmt.Errorf("--runs-max %d: want at least 1", s.RunsMax)
			}
			saved, err := readSaved(args[0])
			if err != nil {
				return err
			}
			if saved.Violation == "" {
				return fmt.Errorf("%s: that run violates nothing, so there is nothing to look for", args[0])
			}
			if to == "" {
				ext := filepath.Ext(args[0])
				to = strings.TrimSuffix(args[0], ext) + ".small" + ext
			}
			s.Saved = saved
			progress := newShrinkProgress(cmd.ErrOrStderr(), s.RunsMax)
			s.Each = func(runs int, smallest *sim.Saved) bool {
				progress.step(runs, smallest)
				return cmd.Context().Err() != nil
			}
			smallest, runs := s.Run()
			progress.end()
			if smallest == nil {
				return fmt.Errorf("%s: played again it does not violate %s; see tidemark sim replay %s", args[0], saved.Invariant(), args[0])
			}
			if err := writeSaved(to, smallest); err != nil {
				return err
			}
			newStoryWriter(cmd.OutOrStdout()).shrunk(saved, smallest, runs, to)
			if cmd.Context().Err() != nil {
				return fmt.Errorf("stopped after %s; the smallest so far is in %s", words.Count(runs, "run"), to)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&to, "out", "", "where to write the smaller run (default: beside FILE, with .small in its name)")
	f.IntVar(&s.RunsMax, "runs-max", 500, "end the search after so many runs")
	return cmd
}

func readSaved(path string) (*sim.Saved, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		if at := (*fs.PathError)(nil); errors.As(err, &at) {
			err = at.Err
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	saved, err := sim.DecodeSaved(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return saved, nil
}

func writeSaved(path string, s *sim.Saved) error {
	text, err := s.Encode()
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}

// saveRun writes a run down and says how it is played again.
func saveRun(out io.Writer, path string, o sim.Options, r sim.Result) error {
	s, err := sim.Save(o, r)
	if err != nil {
		return err
	}
	if err := writeSaved(path, s); err != nil {
		return err
	}
	fmt.Fprintf(out, "saved with its %s; again: tidemark sim replay %s", words.Count(len(s.Faults), "fault"), path)
	if s.Violation != "" {
		fmt.Fprintf(out, "; smaller: tidemark sim shrink %s", path)
	}
	fmt.Fprintln(out)
	return nil
}

// faults tells drawn faults one by one.
func (s *storyWriter) faults(all []sim.Drawn) {
	for _, f := range all {
		at, err := time.ParseDuration(f.At)
		if err != nil { // DecodeSaved has looked
			at = 0
		}
		kind := f.Kind
		if f.Idle {
			kind += ", which came to nothing"
		}
		role := ""
		if f.Role != "" {
			role = s.paint(inkDim, " ("+f.Role+")")
		}
		s.line("%12s  broker %d%s: %s", at.Round(time.Millisecond), f.Broker, role, kind)
	}
}

func (s *storyWriter) replayed(saved *sim.Saved, r sim.Result, same bool) {
	rules := ""
	if len(saved.RulesOff) > 0 {
		rules = ", without " + strings.Join(saved.RulesOff, ", ")
	}
	s.line("%s", s.paint(inkStrong, fmt.Sprintf("seed %d, %d brokers%s; producers send %s batches", saved.Seed, saved.Brokers, rules, strings.ReplaceAll(strings.Trim(fmt.Sprint(saved.Batches), "[]"), " ", " + "))))
	s.faults(r.Faults)
	s.ended(r)
	if same {
		s.line("%s: trace hash %016x", s.paint(inkGood, "the same as in the file"), r.Hash)
	}
}

// ended tells what a run came to.
func (s *storyWriter) ended(r sim.Result) {
	if r.Violation == "" {
		s.line("%12s  %s", r.Virtual.Round(time.Millisecond), s.paint(inkGood, "no violation"))
		return
	}
	s.line("%12s  %s  %s", r.Virtual.Round(time.Millisecond), s.paint(inkBad, "BROKEN"), r.Violation)
	s.line("  the last events, of %d:", r.Events)
	for _, line := range r.Words[max(0, len(r.Words)-eventsTold):] {
		s.line("%s", s.paint(inkDim, "  "+line))
	}
}

func (s *storyWriter) shrunk(from, to *sim.Saved, runs int, path string) {
	s.line("%s", s.paint(inkStrong, fmt.Sprintf("after %s: %s of %d, and %d batches of %d", words.Count(runs, "run"), words.Count(len(to.Faults), "fault"), len(from.Faults), total(to.Batches), total(from.Batches))))
	s.faults(to.Faults)
	s.line("%14s%s  %s", "", s.paint(inkBad, "BROKEN"), to.Violation)
	s.line("written to %s; again: tidemark sim replay %s --trace", path, path)
}

func total(all []int) (n int) {
	for _, x := range all {
		n += x
	}
	return n
}

// shrinkProgress is a bar on a terminal and a line for each tenth elsewhere.
type shrinkProgress struct {
	w   io.Writer
	of  int
	bar *progressbar.ProgressBar
}

func newShrinkProgress(w io.Writer, of int) *shrinkProgress {
	p := &shrinkProgress{w: w, of: of}
	if f, ok := w.(*os.File); ok && isTerminal(f) {
		p.bar = progressbar.NewOptions(of, progressbar.OptionSetWriter(w), progressbar.OptionShowCount(), progressbar.OptionClearOnFinish(), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionSetWidth(20))
	}
	return p
}

func (p *shrinkProgress) step(runs int, smallest *sim.Saved) {
	what := fmt.Sprintf("%s, %d batches", words.Count(len(smallest.Faults), "fault"), total(smallest.Batches))
	switch {
	case p.bar != nil:
		p.bar.Describe(fmt.Sprintf("smallest: %-24s", what))
		_ = p.bar.Set(runs)
	case p.of >= 100 && runs%(p.of/10) == 0:
		fmt.Fprintf(p.w, "%d runs, at most %d: %s\n", runs, p.of, what)
	}
}

func (p *shrinkProgress) end() {
	if p.bar != nil {
		_ = p.bar.Finish()
	}
}
