package sim

import (
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-log/tidemark/experiments"
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

	// OnTheWay are invariants that broke before the one that was waited for, which may not have come.
	OnTheWay []string `json:"on_the_way,omitempty"`

	// Words are the last events without the operations of disks, when something was violated.
	Words []string `json:"words,omitempty"`

	// Steps of a scenario that happened, and how many did not come about.
	Steps     []StepTold `json:"steps,omitempty"`
	StepsLeft int        `json:"steps_left,omitempty"`

	Cluster *ClusterResult `json:"cluster,omitempty"`
	Batches []int          `json:"batches,omitempty"` // that each producer of a cluster was to send
	Faults  []Drawn        `json:"faults,omitempty"`  // that the seed drew for a cluster and that happened
	// Overtime is how many steps its faults went on for until the run was worth something.
	Overtime int `json:"overtime,omitempty"`
}

// ClusterResult is what else is told of a run of several brokers.
type ClusterResult struct {
	Acked      int64 `json:"acked"` // records acknowledged under acks=all
	AckedWeak  int64 `json:"acked_1"`
	Faults     int64 `json:"faults"`
	Elections  int64 `json:"elections"`
	ISRChanges int64 `json:"isr_changes"`
}

func (r *ClusterResult) add(o *ClusterResult) {
	r.Acked += o.Acked
	r.AckedWeak += o.AckedWeak
	r.Faults += o.Faults
	r.Elections += o.Elections
	r.ISRChanges += o.ISRChanges
}

// Options of a run.
type Options struct {
	Plant string            // name of a planted fault; "": none
	Echo  func(line string) // hears every event in words; nil: nobody
	// Brokers > 0: a cluster of so many, with a coordination service between them. 0: a broker alone.
	Brokers int
	// Scenario is what happens instead of drawn faults; nil: none. Bug plays it with its rules off.
	Scenario *experiments.Scenario
	Bug      bool
	// Retention: the cluster deletes what is old or much, so that logs of the same partition begin at
	// different offsets, and all of a log may be gone.
	Retention bool
	// Unclean: replicas outside ISR and ELR may be elected, and take what they lack with them.
	Unclean bool
	// Entry is of whom a drawn cluster has the vector: Bug with its rules off. nil: of none.
	Entry *experiments.Scenario
	// RulesOff are replication rules that its brokers do without.
	RulesOff []string
	// Without are drawn faults of a cluster, by number from 1, that do not happen; what else is drawn stays.
	Without []int
	// Only, unless nil, are the drawn faults of a cluster that happen, by number.
	Only []int
	// Batches of each producer of a cluster; nil: as drawn.
	Batches []int
	// Overtime is how many steps of overtime there are; nil: as many as it takes.
	Overtime *int
}

// Run plays the world of one seed. A panic of the broker is a violation like any other.
func Run(seed uint64, o Options) (r Result) {
	if o.Scenario != nil {
		if err := checkScenario(o.Scenario); err != nil {
			return Result{Seed: seed, Violation: err.Error()}
		}
		o.Brokers = o.Scenario.Brokers
	}
	if o.Entry != nil {
		o.Brokers = o.Entry.Brokers
	}
	if o.Brokers > 0 {
		return runCluster(seed, o)
	}
	w := newWorld(seed, o.Plant, o.Echo)
	defer func() {
		r = w.result(recover())
		r.Config, r.Lives = w.cfg.String(), w.lives
	}()
	w.run()
	return r
}

func runCluster(seed uint64, o Options) (r Result) {
	c := newCluster(seed, o)
	defer func() {
		r = c.result(recover())
		if r.Violation == "" {
			r.Violation = c.broken
		}
		r.OnTheWay, r.Overtime = c.onTheWay, c.extra
		r.Config = c.cfg.String()
		for _, p := range c.cfg.producers {
			r.Batches = append(r.Batches, p.batches)
		}
		for _, f := range c.struck {
			r.Faults = append(r.Faults, *f)
		}
		for _, n := range c.nodes {
			r.Lives += n.lives
		}
		if c.story != nil {
			r.Steps, r.StepsLeft = c.story.done, len(c.story.Steps)-c.story.next
		}
		r.Cluster = &ClusterResult{c.ghost.Acked, c.ghost.AckedWeak, c.faults, c.ghost.Elections, c.ghost.ISRChanges}
	}()
	c.run()
	return r
}

// result is what any world tells; p is what its run panicked with.
func (b *base) result(p any) Result {
	if p != nil {
		b.violated("panic: %v", p)
	}
	r := Result{Seed: b.seed, Hash: b.trace.hash, Violation: b.violation, Events: b.events, Virtual: b.now, Probes: b.trace.probes}
	if r.Violation != "" {
		r.Tail, r.Words = b.trace.tail(), b.trace.words.lines()
	}
	if p != nil {
		r.Tail = append(r.Tail, strings.Split(strings.TrimSpace(string(debug.Stack())), "\n")...)
	}
	return r
}

// Sweep is a range of seeds to run.
type Sweep struct {
	From, To      uint64 // both included
	Shard, Shards int    // this process runs the seeds with seed % Shards == Shard; Shards 0: all
	Options
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
	Cluster    ClusterResult    `json:"cluster,omitzero"`
	// Least of what a seed without a violation was worth, and which were Short.
	Least    Worth    `json:"least,omitzero"`
	Short    []uint64 `json:"short,omitempty"`
	Overtime int      `json:"overtime,omitempty"` // seeds whose faults went on
}

// Worth is what a run of a cluster was worth, see VirtualMin.
type Worth struct {
	Virtual time.Duration `json:"virtual_ns"`
	Acked   int64         `json:"acked"`
	Faults  int64         `json:"faults"`
}

func (s *Summary) addWorth(r Result) {
	w := Worth{r.Virtual, r.Cluster.Acked, r.Cluster.Faults}
	if s.Least == (Worth{}) {
		s.Least = w
	}
	s.Least = Worth{min(s.Least.Virtual, w.Virtual), min(s.Least.Acked, w.Acked), min(s.Least.Faults, w.Faults)}
	if r.Short() {
		s.Short = append(s.Short, r.Seed)
	}
	if r.Overtime > 0 {
		s.Overtime++
	}
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
		r := Run(seed, s.Options)
		if s.TwiceEvery > 0 && seed%s.TwiceEvery == 0 && r.Violation == "" {
			sum.Twice++
			if again := Run(seed, s.Options); again.Hash != r.Hash {
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
	for _, name := range slices.Sorted(maps.Keys(r.Probes)) {
		s.Probes[name] += r.Probes[name]
	}
	if r.Cluster != nil {
		s.Cluster.add(r.Cluster)
		if r.Violation == "" {
			s.addWorth(r)
		}
	}
	if r.Violation != "" {
		s.Violations = append(s.Violations, r)
	}
}

// ProbeNames lists the rare paths that a sweep should reach, in a fixed order.
func (o Options) ProbeNames() []string {
	if o.Brokers > 0 || o.Entry != nil {
		return clusterProbeNames
	}
	return probeNames
}
