package sim

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/tidemark-log/tidemark/broker/rules"
	"github.com/tidemark-log/tidemark/sim/ghost"
)

// Drawn is a fault that a seed drew for a cluster and that happened.
type Drawn struct {
	Number int    `toml:"number" json:"number"` // tells it from the others, and gives it its chances
	At     string `toml:"at" json:"at"`
	Kind   string `toml:"kind" json:"kind"`
	Broker int32  `toml:"broker" json:"broker"`
	Role   string `toml:"role,omitempty" json:"role,omitempty"` // of that broker, then
	// Idle: it came to nothing, as when a dead broker was to be killed.
	Idle bool `toml:"idle,omitempty" json:"idle,omitempty"`
}

// startFault numbers a death that is drawn at the start of a broker's life. Strikes are
// numbered from 1; their numbers do not come near.
func startFault(broker int32, life int) int {
	return startFaultFirst*int(broker) + min(life, startFaultFirst-1)
}

const startFaultFirst = 10_000

// noteFault keeps a fault when it is drawn: idle, until it strikes.
func (c *Cluster) noteFault(number int, kind string) *Drawn {
	d := &Drawn{Number: number, At: c.now.String(), Kind: kind, Idle: true}
	c.struck = append(c.struck, d)
	return d
}

// aims says whom a fault strikes now.
func (c *Cluster) aims(d *Drawn, n *node) {
	d.At, d.Broker, d.Role = c.now.String(), n.id, c.rolesOf(n)
}

// leftOut says that a drawn fault is not to happen.
func (c *Cluster) leftOut(number int) bool {
	return slices.Contains(c.without, number) || c.only != nil && !slices.Contains(c.only, number)
}

// drawDeath may let a new life end soon, in the middle of an operation on the disk.
func (c *Cluster) drawDeath(n *node, i *incarnation) {
	if c.healed || !c.cfg.faults.kill || !c.chance(10) {
		return
	}
	in, power := 1+c.rng.Int64N(120), c.drawPower(n)
	number := startFault(n.id, i.number)
	if c.leftOut(number) {
		return
	}
	kind := fmt.Sprintf("kill in operation %d of life %d", in, i.number)
	if power {
		kind = strings.Replace(kind, "kill", "power", 1)
	}
	d := c.noteFault(number, kind)
	c.aims(d, n)
	d.Idle = false
	i.crashIn, i.power = in, power
}

// rolesOf says in words what a broker is now.
func (c *Cluster) rolesOf(n *node) string {
	var all []string
	for i := range c.cfg.partitions {
		if c.ghost.Leader(tp(i)) == n.id {
			all = append(all, "leader of "+nameOf(tp(i)))
		}
	}
	if c.tree.controller == n.id {
		all = append(all, "controller")
	}
	if len(all) == 0 && n.live == nil {
		return "down"
	}
	return strings.Join(all, ", ")
}

func nameOf(t ghost.TP) string { return fmt.Sprintf("%s/%d", t.Topic, t.Partition) }

// savedFormat is the version of what Encode writes.
const savedFormat = 1

// Saved is a run of a cluster written down: what to play, with the faults one by one, and what came of it.
type Saved struct {
	Format    int      `toml:"format"`
	Seed      uint64   `toml:"seed"`
	Brokers   int      `toml:"brokers"`
	RulesOff  []string `toml:"rules_off,omitempty"`
	Retention bool     `toml:"retention,omitempty"`
	Unclean   bool     `toml:"unclean,omitempty"`
	Batches   []int    `toml:"batches,omitempty"`  // of each producer
	Overtime  int      `toml:"overtime,omitempty"` // steps, see Result

	Hash      string `toml:"hash"`      // of the trace
	Violation string `toml:"violation"` // "": none
	World     string `toml:"world"`     // what the seed drew

	Faults []Drawn `toml:"faults"` // no other drawn fault happens
}

// Save writes a run down.
func Save(o Options, r Result) (*Saved, error) {
	if o.Brokers < 1 || o.Scenario != nil {
		return nil, errors.New("only the run of a cluster's seed has faults that can be written down one by one")
	}
	s := &Saved{Format: savedFormat, Seed: r.Seed, Brokers: o.Brokers, RulesOff: o.RulesOff, Retention: o.Retention, Unclean: o.Unclean}
	s.takes(r)
	return s, nil
}

// takes writes down how a run went.
func (s *Saved) takes(r Result) {
	s.Hash, s.Violation, s.World, s.Batches, s.Overtime, s.Faults = hashInWords(r.Hash), r.Violation, r.Config, r.Batches, r.Overtime, r.Faults
}

func hashInWords(h uint64) string { return fmt.Sprintf("%016x", h) }

// Options are those of the run again.
func (s *Saved) Options() Options {
	o := Options{Brokers: s.Brokers, RulesOff: s.RulesOff, Retention: s.Retention, Unclean: s.Unclean, Batches: s.Batches, Overtime: &s.Overtime, Only: []int{}}
	for _, f := range s.Faults {
		o.Only = append(o.Only, f.Number)
	}
	return o
}

// Replay plays it again. same says that it went as it was written down; why says why not.
func (s *Saved) Replay(echo func(string)) (r Result, same bool, why string) {
	o := s.Options()
	o.Echo = echo
	r = Run(s.Seed, o)
	switch {
	case hashInWords(r.Hash) == s.Hash:
		return r, true, ""
	case r.Config != s.World:
		return r, false, "its seed draws another world now: it was written by another version, or changed by hand"
	}
	return r, false, "the same world goes another way now: the broker or the simulator has changed since, or the list of faults was"
}

// Invariant is the id of what was violated.
func (s *Saved) Invariant() string { return (&Result{Violation: s.Violation}).Invariant() }

const savedHead = `# A run of the simulator, with the faults that its seed drew, one by one.
#   tidemark sim replay FILE   plays it again and compares the trace hash
#   tidemark sim shrink FILE   looks for a smaller one that violates the same
`

// Encode gives it as text.
func (s *Saved) Encode() ([]byte, error) {
	text, err := toml.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("sim: %w", err)
	}
	return append([]byte(savedHead), text...), nil
}

// DecodeSaved reads what Encode wrote. What is wrong with it is one line.
func DecodeSaved(text []byte) (*Saved, error) {
	s := &Saved{}
	var version struct {
		Format *int `toml:"format"`
	}
	if err := toml.Unmarshal(text, &version); err != nil {
		return nil, damaged(err)
	}
	switch {
	case version.Format == nil:
		return nil, errors.New("it is no trace: the line format = 1 is missing")
	case *version.Format != savedFormat:
		return nil, fmt.Errorf("it is a trace of format %d, and this version reads format %d", *version.Format, savedFormat)
	}
	if err := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields().Decode(s); err != nil {
		return nil, damaged(err)
	}
	return s, s.check()
}

func damaged(err error) error {
	line := 0
	if at := (*toml.DecodeError)(nil); errors.As(err, &at) {
		line, _ = at.Position()
	}
	if missing := (*toml.StrictMissingError)(nil); errors.As(err, &missing) && len(missing.Errors) > 0 {
		line, _ = missing.Errors[0].Position()
		err = fmt.Errorf("unknown key %s", strings.Join(missing.Errors[0].Key(), "."))
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	return fmt.Errorf("it is no trace that can be read, line %d: %s", line, strings.TrimPrefix(text, "toml: "))
}

// These bound what a file may ask for; each is more than a seed draws.
const (
	brokersSaved = 100
	faultsSaved  = 100_000
	batchesSaved = 1000 // of one producer; there are clientsMax at most
)

func (s *Saved) check() error {
	switch {
	case s.Brokers < 1 || s.Brokers > brokersSaved:
		return fmt.Errorf("brokers = %d: want 1 to %d", s.Brokers, brokersSaved)
	case len(s.Faults) > faultsSaved:
		return fmt.Errorf("%d faults: want %d at most", len(s.Faults), faultsSaved)
	case len(s.Batches) > clientsMax:
		return fmt.Errorf("batches of %d producers: want %d at most", len(s.Batches), clientsMax)
	}
	if s.Overtime < 0 || s.Overtime > overtimeMax {
		return fmt.Errorf("overtime = %d: want 0 to %d", s.Overtime, overtimeMax)
	}
	for _, n := range s.Batches {
		if n < 0 || n > batchesSaved {
			return fmt.Errorf("batches = %d of a producer: want 0 to %d", n, batchesSaved)
		}
	}
	if _, err := rules.Parse(s.RulesOff); err != nil {
		return err
	}
	for _, f := range s.Faults {
		if _, err := time.ParseDuration(f.At); err != nil || f.Number < 1 {
			return fmt.Errorf("fault %d at %q: want a number from 1 and a time, as 1.5s", f.Number, f.At)
		}
	}
	return nil
}
