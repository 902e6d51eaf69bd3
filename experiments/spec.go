// Package experiments defines what an experiment is: its question, the
// prediction written before the run, the workload, the factors that vary, and
// the tests from which verdicts follow. The experiments themselves are the .toml
// files beside this code, embedded in the binary.
//
// The package only describes. What a workload key or a broker setting means is
// known to those who run it; what the file says in which line is known here, so
// that an error can always name key and line.
package experiments

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Spec is one experiment file.
type Spec struct {
	Name string `toml:"-"` // the file's name without .toml
	Text string `toml:"-"` // the file as it was read

	Question   string   `toml:"question"`
	Prediction string   `toml:"prediction"` // written before the run; it stays
	Claims     []string `toml:"claims"`     // ids of Claims

	Cluster  Cluster        `toml:"cluster"`
	Workload map[string]any `toml:"workload"`
	// Vary holds the factors, each with its levels: a workload key, a broker
	// setting (it has a dot in its name), or a name from Levels.
	Vary map[string][]any `toml:"vary"`
	// Levels defines factors that change several keys at once: factor → level → key → value.
	Levels map[string]map[string]map[string]any `toml:"levels"`
	// Except lists combinations that make no sense or say nothing new; each is a part of a cell.
	Except []map[string]any `toml:"except"`

	Run      Run       `toml:"run"`
	Check    []string  `toml:"check"` // a sample that fails one is shown and left out of every estimate
	Verdicts []Verdict `toml:"verdicts"`
	Report   []string  `toml:"report"` // metrics of the report's table
	Figures  []Figure  `toml:"figures"`

	Quick *Override `toml:"quick"`
	Full  *Override `toml:"full"`

	positions positions
	factors   []string // of Vary, in the file's order
}

// Cluster says what runs. Settings are server.properties entries of every broker.
type Cluster struct {
	Brokers           int            `toml:"brokers"`             // above 1: they coordinate through the embedded ZooKeeper
	ReplicationFactor int            `toml:"replication_factor"`  // of the topic; a workload key or factor of this name replaces it
	MinInsyncReplicas int            `toml:"min_insync_replicas"` // min.insync.replicas
	Settings          map[string]any `toml:"settings"`
}

// Run says how often and in which order.
type Run struct {
	Seed    uint64 `toml:"seed"`
	Repeats int    `toml:"repeats"`
	// MaxRepeats > Repeats: go on, repeat by repeat, until the interval of every
	// verdict's ratio is at most Width wide (hi/lo − 1), or MaxRepeats is reached.
	MaxRepeats int     `toml:"max_repeats"`
	Width      float64 `toml:"width"`
	Order      string  `toml:"order"` // interleaved: each repeat runs all cells, in an order of its own
}

// Verdict is a claim and the test that decides it.
type Verdict struct {
	Claim string `toml:"claim"`
	Says  string `toml:"says"`
	Test  string `toml:"test"` // see ParseTest

	test Test
}

// Parsed is the verdict's test.
func (v Verdict) Parsed() Test { return v.test }

// Figure says what to draw.
type Figure struct {
	Name     string         `toml:"name"`     // of the file
	Title    string         `toml:"title"`    // a statement or question, not a pair of axis names
	Subtitle string         `toml:"subtitle"` // what was held fixed
	Metric   string         `toml:"metric"`
	X        string         `toml:"x"`      // factor along the x axis
	Series   string         `toml:"series"` // factor that tells lines or bars apart; may be empty
	Where    map[string]any `toml:"where"`  // only cells with these levels
	Kind     string         `toml:"kind"`   // line, bars; timeline: one repeat of each level of Series over time, of which X says nothing
	Log      string         `toml:"log"`    // "", x, y, xy
	Limit    string         `toml:"limit"`  // label of the machine's limit; empty: none drawn
	XLabel   string         `toml:"x_label"`
	YLabel   string         `toml:"y_label"`
	Names    map[string]any `toml:"names"` // level → what to call it in the figure
	Notes    []string       `toml:"notes"` // metrics to write beside each series of a timeline
}

// Override is what another size of the experiment does differently. Vary
// replaces the levels of the factors that it names.
type Override struct {
	Workload map[string]any   `toml:"workload"`
	Settings map[string]any   `toml:"settings"`
	Vary     map[string][]any `toml:"vary"`
	Run      Run              `toml:"run"`
}

// Size is how much time a run may take.
type Size string

const (
	SizeQuick   Size = "quick"   // seconds: estimates, no verdicts
	SizeDefault Size = "default" // minutes
	SizeFull    Size = "full"    // hours
)

// Factors lists the factors in the file's order.
func (s *Spec) Factors() []string { return s.factors }

// FactorLevels gives a factor's levels as text.
func (s *Spec) FactorLevels(factor string) []string {
	var levels []string
	for _, v := range s.Vary[factor] {
		levels = append(levels, Text(v))
	}
	return levels
}

// At names file and line of a key, as in "acks.toml:7", or only the file when the key has no line of its own.
func (s *Spec) At(key ...string) string {
	for n := len(key); n > 0; n-- {
		if line, ok := s.positions.line(key[:n]); ok {
			return fmt.Sprintf("%s.toml:%d", s.Name, line)
		}
	}
	return s.Name + ".toml"
}

// WithSize gives the experiment in another size.
func (s *Spec) WithSize(size Size) (*Spec, error) {
	var o *Override
	switch size {
	case SizeQuick:
		o = s.Quick
	case SizeFull:
		o = s.Full
	case SizeDefault:
	default:
		return nil, fmt.Errorf("unknown size %q: quick, default or full", size)
	}
	if o == nil {
		return s, nil
	}
	sized := *s
	sized.Workload = overlay(s.Workload, o.Workload)
	sized.Cluster.Settings = overlay(s.Cluster.Settings, o.Settings)
	sized.Vary = overlay(s.Vary, o.Vary)
	if o.Run.Seed != 0 {
		sized.Run.Seed = o.Run.Seed
	}
	if o.Run.Repeats != 0 {
		sized.Run.Repeats = o.Run.Repeats
		sized.Run.MaxRepeats = 0 // belongs to the repeats it was written beside
	}
	if o.Run.MaxRepeats != 0 {
		sized.Run.MaxRepeats = o.Run.MaxRepeats
	}
	if o.Run.Width != 0 {
		sized.Run.Width = o.Run.Width
	}
	if o.Run.Order != "" {
		sized.Run.Order = o.Run.Order
	}
	if err := sized.check(); err != nil {
		return nil, fmt.Errorf("in size %s: %w", size, err)
	}
	return &sized, nil
}

// With gives the experiment with one setting held at a value: `--set key=value`.
// A factor is held at that level; anything else is a workload key or broker setting.
func (s *Spec) With(key, value string) (*Spec, error) {
	set := *s
	for factor := range s.Levels {
		for _, level := range s.FactorLevels(factor) {
			if _, ok := s.Levels[factor][level][key]; ok {
				return nil, fmt.Errorf("%s=%s: level %s of %s sets it, so that would say what is not; hold %s at a level instead", key, value, level, factor, factor)
			}
		}
	}
	switch defined := s.Levels[key]; {
	case defined != nil && defined[value] == nil:
		return nil, fmt.Errorf("%s=%s: no such level; [levels.%s] defines %s", key, value, key, strings.Join(slices.Sorted(maps.Keys(defined)), ", "))
	case s.Vary[key] != nil:
		set.Vary = overlay(s.Vary, map[string][]any{key: {value}})
	case strings.Contains(key, "."):
		set.Cluster.Settings = overlay(s.Cluster.Settings, map[string]any{key: value})
	default:
		set.Workload = overlay(s.Workload, map[string]any{key: value})
	}
	return &set, nil
}

func overlay[V any](under, over map[string]V) map[string]V {
	if len(over) == 0 {
		return under
	}
	both := make(map[string]V, len(under)+len(over))
	for k, v := range under {
		both[k] = v
	}
	for k, v := range over {
		both[k] = v
	}
	return both
}

// Text writes a TOML value as settings and tests write it.
func Text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case float64:
		return strings.TrimSuffix(fmt.Sprintf("%g", v), ".0")
	case time.Time:
		return v.Format(time.RFC3339)
	}
	return fmt.Sprint(v)
}

// check says what is wrong with a decoded spec.
func (s *Spec) check() error {
	for _, f := range []func() error{s.checkWords, s.checkFactors, s.checkVerdicts, s.checkFigures} {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

func (s *Spec) checkWords() error {
	switch {
	case strings.TrimSpace(s.Question) == "":
		return fmt.Errorf("%s: no question: begin with question = \"what is asked?\"", s.At("question"))
	case strings.TrimSpace(s.Prediction) == "":
		return fmt.Errorf("%s: no prediction: write what you expect before you run it", s.At("prediction"))
	case len(s.Workload) == 0:
		return fmt.Errorf("%s: no workload", s.At("workload"))
	case s.Cluster.Brokers < 1:
		return fmt.Errorf("%s: cluster.brokers = %d: must be at least 1", s.At("cluster", "brokers"), s.Cluster.Brokers)
	case s.Cluster.ReplicationFactor < 1 || s.Cluster.ReplicationFactor > s.Cluster.Brokers:
		return fmt.Errorf("%s: cluster.replication_factor = %d: must be from 1 to %d, the number of brokers", s.At("cluster", "replication_factor"), s.Cluster.ReplicationFactor, s.Cluster.Brokers)
	case s.Cluster.MinInsyncReplicas < 1 || s.Cluster.MinInsyncReplicas > s.Cluster.Brokers:
		return fmt.Errorf("%s: cluster.min_insync_replicas = %d: must be from 1 to %d, the number of brokers", s.At("cluster", "min_insync_replicas"), s.Cluster.MinInsyncReplicas, s.Cluster.Brokers)
	case s.Run.Repeats < 1 || s.Run.Repeats > 1000:
		return fmt.Errorf("%s: run.repeats = %d: must be from 1 to 1000", s.At("run", "repeats"), s.Run.Repeats)
	case s.Run.MaxRepeats != 0 && (s.Run.MaxRepeats < s.Run.Repeats || s.Run.MaxRepeats > 1000):
		return fmt.Errorf("%s: run.max_repeats = %d: must be from run.repeats, which is %d, to 1000", s.At("run", "max_repeats"), s.Run.MaxRepeats, s.Run.Repeats)
	case s.Run.MaxRepeats > s.Run.Repeats && !(s.Run.Width > 0):
		return fmt.Errorf("%s: run.max_repeats needs run.width: the interval's width at which to stop", s.At("run", "max_repeats"))
	case s.Run.Order != "interleaved" && s.Run.Order != "listed":
		return fmt.Errorf("%s: run.order = %q: must be interleaved or listed", s.At("run", "order"), s.Run.Order)
	}
	for _, id := range s.Claims {
		if _, ok := ClaimByID(id); !ok {
			return fmt.Errorf("%s: no claim %q", s.At("claims"), id)
		}
	}
	return nil
}

func (s *Spec) checkFactors() error {
	for _, factor := range s.factors {
		levels := s.FactorLevels(factor)
		if len(levels) == 0 {
			return fmt.Errorf("%s: factor %s has no levels", s.At("vary", factor), factor)
		}
		for i, level := range levels {
			if slices.Contains(levels[:i], level) {
				return fmt.Errorf("%s: factor %s has level %s twice", s.At("vary", factor), factor, level)
			}
			if defined := s.Levels[factor]; defined != nil && defined[level] == nil {
				return fmt.Errorf("%s: level %s of factor %s is not defined in [levels.%s]", s.At("vary", factor), level, factor, factor)
			}
		}
	}
	for factor := range s.Levels {
		if s.Vary[factor] == nil {
			return fmt.Errorf("%s: [levels.%s] defines a factor that vary does not use", s.At("levels", factor), factor)
		}
	}
	if err := s.checkLevels(); err != nil {
		return err
	}
	for size, o := range map[Size]*Override{SizeQuick: s.Quick, SizeFull: s.Full} {
		if o == nil {
			continue
		}
		for factor := range o.Vary {
			if s.Vary[factor] == nil {
				return fmt.Errorf("%s: %s.vary names %s, which is no factor", s.At(string(size), "vary", factor), size, factor)
			}
		}
	}
	for i, e := range s.Except {
		if err := s.checkSettings(settings(e), s.At("except", fmt.Sprint(i)), "except"); err != nil {
			return err
		}
	}
	return nil
}

// checkLevels refuses two factors that set one key: a cell's name would say what the cell is not.
func (s *Spec) checkLevels() error {
	by := map[string]string{}
	for _, factor := range slices.Sorted(maps.Keys(s.Levels)) {
		for _, level := range slices.Sorted(maps.Keys(s.Levels[factor])) {
			for _, key := range slices.Sorted(maps.Keys(s.Levels[factor][level])) {
				at := s.At("levels", factor, level, key)
				if key != factor && s.Vary[key] != nil {
					return fmt.Errorf("%s: level %s of %s sets %s, which is a factor too", at, level, factor, key)
				}
				if other := by[key]; other != "" && other != factor {
					return fmt.Errorf("%s: level %s of %s sets %s, which %s sets too", at, level, factor, key, other)
				}
				by[key] = factor
			}
		}
	}
	return nil
}

func (s *Spec) checkVerdicts() error {
	for i := range s.Verdicts {
		v := &s.Verdicts[i]
		at := s.At("verdicts", fmt.Sprint(i), "test")
		if !slices.Contains(s.Claims, v.Claim) {
			return fmt.Errorf("%s: verdict on %q, which the file's claims = [ … ] do not list: add it there", s.At("verdicts", fmt.Sprint(i)), v.Claim)
		}
		test, err := ParseTest(v.Test)
		if err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
		v.test = test
		for _, part := range [][]Setting{test.Numerator, test.Denominator, test.Where} {
			if err := s.checkSettings(part, at, "test"); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Spec) checkFigures() error {
	for i := range s.Figures {
		f, at := &s.Figures[i], s.At("figures", fmt.Sprint(i))
		switch {
		case f.Name == "" || strings.Trim(f.Name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "":
			return fmt.Errorf("%s: figure name %q: lower-case letters, digits and dashes", at, f.Name)
		case f.Kind != "line" && f.Kind != "bars" && f.Kind != "timeline":
			return fmt.Errorf("%s: figure %s: kind %q must be line, bars or timeline", at, f.Name, f.Kind)
		case f.Kind == "timeline" && (f.X != "" || f.Log != "" || f.Limit != ""):
			return fmt.Errorf("%s: figure %s: a timeline's x axis is time: x, log and limit say nothing there", at, f.Name)
		case f.Kind != "timeline" && len(f.Notes) > 0:
			return fmt.Errorf("%s: figure %s: notes are for kind timeline", at, f.Name)
		case !slices.Contains([]string{"", "x", "y", "xy"}, f.Log):
			return fmt.Errorf("%s: figure %s: log %q must be x, y or xy", at, f.Name, f.Log)
		case f.Kind != "timeline" && s.Vary[f.X] == nil:
			return fmt.Errorf("%s: figure %s: x %q is no factor", at, f.Name, f.X)
		case f.Series != "" && s.Vary[f.Series] == nil:
			return fmt.Errorf("%s: figure %s: series %q is no factor", at, f.Name, f.Series)
		}
		if err := s.checkSettings(settings(f.Where), at, "figure "+f.Name); err != nil {
			return err
		}
		if slices.ContainsFunc(s.Figures[:i], func(other Figure) bool { return other.Name == f.Name }) {
			return fmt.Errorf("%s: figure name %q is there twice", at, f.Name)
		}
		if err := s.checkPlaces(f, at); err != nil {
			return err
		}
	}
	return nil
}

// checkPlaces refuses a figure in which one place stands for several cells: it would show the first of them.
func (s *Spec) checkPlaces(f *Figure, at string) error {
	cells, _, err := s.Cells()
	if err != nil {
		return nil // who runs the cells says what is wrong with them
	}
	first := map[[2]string]Cell{}
	for _, c := range cells {
		if !c.Has(settings(f.Where)) {
			continue
		}
		place := [2]string{c.Level(f.X), c.Level(f.Series)}
		other, taken := first[place]
		if !taken {
			first[place] = c
			continue
		}
		for k, l := range c.Levels {
			if other.Levels[k] != l {
				return fmt.Errorf("%s: figure %s: %s has several levels, and the figure says nothing of it: hold it at one in where, or make it x or series", at, f.Name, l.Key)
			}
		}
	}
	return nil
}

func (s *Spec) checkSettings(part []Setting, at, what string) error {
	for _, p := range part {
		switch levels := s.FactorLevels(p.Key); {
		case levels == nil:
			return fmt.Errorf("%s: %s names %s, which is no factor; factors are %s", at, what, p.Key, strings.Join(s.factors, ", "))
		case !slices.Contains(levels, p.Value):
			return fmt.Errorf("%s: %s names %s=%s, which is no level of it; levels are %s", at, what, p.Key, p.Value, strings.Join(levels, ", "))
		}
	}
	return nil
}
