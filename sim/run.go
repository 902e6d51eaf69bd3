package sim

import (
	"fmt"
	"runtime/debug"
	"strings"
	"time"
)

// Result is how a run ended.
type Result struct {
	Seed      uint64           `json:"seed"`
	Hash      uint64           `json:"hash"`      // of the trace: equal in every run of the seed
	Violation string           `json:"violation"` // "": none
	Config    string           `json:"config"`
	Tail      []string         `json:"tail"` // the last events in words, when something was violated
	Events    int64            `json:"events"`
	Lives     int              `json:"lives"` // of the broker
	Virtual   time.Duration    `json:"virtual_ns"`
	Probes    map[string]int64 `json:"probes"`
}

// Options of a run.
type Options struct {
	Plant string            // name of a planted fault; "": none
	Echo  func(line string) // hears every event in words; nil: nobody
}

// Run plays the world of one seed. A panic of the broker is a violation like any other.
func Run(seed uint64, o Options) (r Result) {
	w := newWorld(seed, o.Plant, o.Echo)
	defer func() {
		p := recover()
		if p != nil {
			w.violated("panic: %v", p)
		}
		r = Result{
			Seed: seed, Hash: w.trace.hash, Violation: w.violation, Config: w.cfg.String(),
			Events: w.events, Lives: w.lives, Virtual: w.now, Probes: w.trace.probes,
		}
		if r.Violation != "" {
			r.Tail = w.trace.tail()
		}
		if p != nil {
			r.Tail = append(r.Tail, strings.Split(strings.TrimSpace(string(debug.Stack())), "\n")...)
		}
	}()
	w.run()
	return r
}

// Sweep is a range of seeds to run.
type Sweep struct {
	From, To      uint64 // both included
	Shard, Shards int    // this process runs the seeds with seed % Shards == Shard; Shards 0: all
	Plant         string
	// TwiceEvery runs each n-th seed a second time and compares the hashes; 0: none.
	TwiceEvery uint64
	// ViolationsMax ends the sweep early; 0: never.
	ViolationsMax int
	// Each hears of every run; stop ends the sweep.
	Each func(r Result) (stop bool)
}

// Summary is what a sweep found.
type Summary struct {
	Runs       int              `json:"runs"`
	Twice      int              `json:"twice"`
	Events     int64            `json:"events"`
	Lives      int              `json:"lives"`
	Virtual    time.Duration    `json:"virtual_ns"`
	Violations []Result         `json:"violations"`
	Probes     map[string]int64 `json:"probes"`
}

// Size is how many seeds the sweep runs.
func (s *Sweep) Size() int {
	n := 0
	for seed := s.From; seed <= s.To; seed++ {
		if s.mine(seed) {
			n++
		}
	}
	return n
}

func (s *Sweep) mine(seed uint64) bool {
	return s.Shards <= 1 || seed%uint64(s.Shards) == uint64(s.Shard)
}

// Run runs the seeds one after the other.
func (s *Sweep) Run() Summary {
	sum := Summary{Probes: map[string]int64{}}
	for seed := s.From; seed <= s.To; seed++ {
		if !s.mine(seed) {
			continue
		}
		r := Run(seed, Options{Plant: s.Plant})
		if s.TwiceEvery > 0 && seed%s.TwiceEvery == 0 && r.Violation == "" {
			sum.Twice++
			if again := Run(seed, Options{Plant: s.Plant}); again.Hash != r.Hash {
				r.Violation = fmt.Sprintf("the same seed gave two histories: trace hashes %016x and %016x", r.Hash, again.Hash)
			}
		}
		sum.add(r)
		if s.Each != nil && s.Each(r) || s.ViolationsMax > 0 && len(sum.Violations) >= s.ViolationsMax {
			break
		}
	}
	return sum
}

func (s *Summary) add(r Result) {
	s.Runs++
	s.Events += r.Events
	s.Lives += r.Lives
	s.Virtual += r.Virtual
	for _, name := range probeNames {
		s.Probes[name] += r.Probes[name]
	}
	if r.Violation != "" {
		s.Violations = append(s.Violations, r)
	}
}

// ProbeNames lists the rare paths that runs count, in a fixed order.
func ProbeNames() []string { return probeNames }
