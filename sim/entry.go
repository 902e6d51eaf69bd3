package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-log/tidemark/experiments"
	"github.com/tidemark-log/tidemark/sim/ghost"
)

// Hunt lets the ordinary swarm look for what an entry of the failure catalogue names: its
// brokers do without the entry's rules and under its settings, and nothing is told of the
// steps that its scenario plays.
type Hunt struct {
	Entry    *experiments.Scenario
	From, To uint64 // seeds, both included
	// Hits is how many seeds are looked for, each from behind the one before; 0: one.
	Hits int
	// Fixed leaves the rules on, and the settings those of the fix: nothing may break.
	Fixed bool
	// Each hears of every run; stop ends the hunt.
	Each func(r Result) (stop bool)
}

// Hit is a seed that broke what the entry names.
type Hit struct {
	Seed      uint64        `json:"seed"`
	Seeds     int           `json:"seeds"`      // that were run since the hit before, this one too
	Virtual   time.Duration `json:"virtual_ns"` // of all of them
	Invariant string        `json:"invariant"`
	Violation string        `json:"violation"`
}

// Hunted is what came of a hunt.
type Hunted struct {
	Entry  string   `json:"entry"`
	Vector string   `json:"vector"` // in words
	Breaks []string `json:"breaks"` // the invariants of which one must break
	Runs   int      `json:"runs"`
	Hits   []Hit    `json:"hits"`
	// Others are further invariants that broke, and in how many seeds.
	Others map[string]int   `json:"others"`
	Probes map[string]int64 `json:"probes"`
	Events int64            `json:"events"`
}

// Run runs seeds until enough of them broke what the entry names.
func (h *Hunt) Run() Hunted {
	s := h.Entry
	out := Hunted{Entry: s.Entry, Vector: Vector(s), Breaks: s.Breaks, Others: map[string]int{}, Probes: map[string]int64{}}
	hit := Hit{}
	for seed := h.From; seed <= h.To; seed++ {
		r := Run(seed, Options{Entry: s, Bug: !h.Fixed})
		out.Runs++
		out.Events += r.Events
		hit.Seeds++
		hit.Virtual += r.Virtual
		for _, name := range slices.Sorted(maps.Keys(r.Probes)) {
			out.Probes[name] += r.Probes[name]
		}
		for _, name := range r.OnTheWay {
			out.Others[name]++
		}
		switch name := r.Invariant(); {
		case slices.Contains(s.Breaks, name):
			hit.Seed, hit.Invariant, hit.Violation = seed, name, r.Violation
			out.Hits = append(out.Hits, hit)
			hit = Hit{}
		case name != "" && !slices.Contains(r.OnTheWay, name):
			out.Others[name]++
		}
		if len(out.Hits) >= max(h.Hits, 1) || h.Each != nil && h.Each(r) {
			break
		}
	}
	return out
}

// invariantOf is the name at the head of a violation: "S5 CandidateCompleteness: …", "L4: …".
// What has none, as a panic, is named by its first word.
func invariantOf(violation string) string {
	name, _, _ := strings.Cut(violation, " ")
	return strings.TrimSuffix(name, ":")
}

// Vector says in words what an entry changes.
func Vector(s *experiments.Scenario) string {
	parts := slices.Clone(s.RulesOff)
	for _, name := range slices.Sorted(maps.Keys(s.Bug)) {
		parts = append(parts, name+"="+s.Bug[name])
	}
	if s.BugAcks != nil {
		parts = append(parts, fmt.Sprintf("acks=%d counts as a promise", s.BugAcks[0]))
	}
	return strings.Join(parts, ", ")
}

// applyVector makes a drawn configuration one of an entry: how many brokers and replicas, its
// rules and its settings, which acknowledgement is a promise. Times are part of its schedule, so
// they stay as drawn, and so do clients and faults.
func (c *clusterConfig) applyVector(s *experiments.Scenario, bug bool) error {
	fixed, err := parseStory(storySettings, untimed(s.Settings))
	if err != nil {
		return err
	}
	actual := fixed
	if bug {
		if actual, err = parseStory(storySettings, untimed(s.Settings), s.Bug); err != nil {
			return err
		}
		c.broker.RulesOff = s.RulesOff
	}
	c.replicas = s.Replicas
	b := &c.broker
	b.ReplicationFactor = s.Replicas
	if sets(s, "min.insync.replicas") {
		b.MinISR, c.rules.MinISR = actual.MinISR, int(fixed.MinISR)
	}
	if sets(s, "unclean.leader.election.enable") {
		b.UncleanElection, c.rules.Unclean = actual.UncleanElection, fixed.UncleanElection
	}
	if sets(s, "log.flush.interval.messages") {
		b.Log.FlushMessages, b.Log.FlushMs, b.FlushGroup = actual.Log.FlushMessages, none, false
		c.rules.FlushBeforeAck = fixed.Log.FlushMessages == 1
	}
	if sets(s, "lab.read.from") {
		b.ReadFrom, c.readers = actual.ReadFrom, max(c.readers, s.Readers)
	}
	if bug && s.BugAcks != nil {
		c.rules.WeakCounts = true
		for i := range c.producers {
			c.producers[i].acks, c.producers[i].idempotent, c.producers[i].retries = s.BugAcks[0], false, true
		}
	}
	c.envelope = envelopeOf(c.rules)
	return nil
}

// sets says whether an entry has a setting, for the fix or for the bug.
func sets(s *experiments.Scenario, name string) bool {
	_, fixed := s.Settings[name]
	_, bug := s.Bug[name]
	return fixed || bug
}

// untimed leaves times out.
func untimed(settings map[string]string) map[string]string {
	all := maps.Clone(settings)
	maps.DeleteFunc(all, func(name, _ string) bool { return strings.HasSuffix(name, ".ms") })
	return all
}

// envelopeOf is the largest envelope in which these promises hold.
func envelopeOf(r ghost.Rules) int {
	if r.FlushBeforeAck && r.MinISR > 1 {
		return 2
	}
	return 1
}
