package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark-log/tidemark/experiments"
	"github.com/tidemark-log/tidemark/sim/ghost"
)

// storySettings are those of every story, unless it says otherwise: nothing happens by
// itself while it is told, and a session that is cut off ends soon.
var storySettings = map[string]string{
	"log.dirs": logDir, "zookeeper.connect": "coord:2181", "auto.create.topics.enable": "false", "lab.fetch.transfer": "copy",
	"zookeeper.connection.timeout.ms": "86400000", "zookeeper.session.timeout.ms": "6000", "auto.leader.rebalance.enable": "false",
}

// calm takes the chances out of a story's world that would only make it longer.
func (c *clusterConfig) calm() {
	c.requestTimeout, c.pollPause = 1500*time.Millisecond, 50*time.Millisecond
	c.syncMax, c.endsAsked = time.Millisecond, 30
	c.coord.Servers, c.coord.Lag = 1, time.Millisecond
}

// storyRest is how long after its last step a story waits for what comes of it.
const storyRest = 10 * time.Second

// storyMax is how long a story may take that hangs at a step.
const storyMax = 3 * time.Minute

// told says that a story is at its end, and the heal may come.
func (c *Cluster) told() bool {
	s := c.story
	if s == nil || len(s.Steps) == 0 || s.next < len(s.Steps) {
		return false
	}
	return c.now > s.last+storyRest
}

// tolerates says that a run without some rules goes on though an invariant is broken, until
// one breaks that it waits for.
func (c *Cluster) tolerates(text string) bool {
	name := invariantOf(text)
	if len(c.breaks) == 0 || slices.Contains(c.breaks, name) || len(name) < 2 || name[0] != 'S' || name[1] < '0' || name[1] > '9' {
		return false
	}
	if !slices.Contains(c.onTheWay, name) {
		c.trace.say(c.now, "on the way: %s", text)
		c.onTheWay = append(c.onTheWay, name)
	}
	if c.broken == "" {
		c.broken = text
	}
	return true
}

// violated ends the run, unless it waits for another invariant to break.
func (c *Cluster) violated(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !c.tolerates(text) {
		c.base.violated("%s", text)
	}
}

// ghostSays is what hears of a broken safety invariant.
func (c *Cluster) ghostSays(text string) { c.violated("%s", text) }

// actStory lets a step happen that is no fault, and says whether it was one.
func (c *Cluster) actStory(f *experiments.Fault) bool {
	target, with := f.Targets()
	switch f.Kind {
	case experiments.FaultSend:
		p := c.producers[int(target.Number)%len(c.producers)]
		for range max(f.Count, 1) {
			p.lanes[0].enqueue()
		}
	case experiments.FaultMend:
		for _, a := range c.endsOf(target) {
			for _, b := range c.endsOf(with) {
				c.mendBetween(a, b)
			}
		}
	default:
		return false
	}
	return true
}

// mendBetween ends every cut between two ends, in either direction.
func (c *Cluster) mendBetween(a, b end) {
	for _, x := range slices.Clone(c.cuts) {
		if i := slices.Index(c.cuts, x); x.from == a && x.to == b || x.from == b && x.to == a {
			c.cuts = slices.Delete(c.cuts, i, i+1)
			c.mend(x)
		}
	}
}

// Conditions that speak of brokers, each about partition 0 of the topic: "told 3" (it has
// heard of the present leader epoch), "end 3 = 2" (of its log), "hw 3 = 2", "hw 3 < 2",
// "acked 2" (records), "elr 1,2", "registered 3", "gone 3".

func isBrokerCondition(text string) bool { _, ok := parseBrokerCondition(text); return ok }

func parseBrokerCondition(text string) (is func(c *Cluster) bool, ok bool) {
	w := strings.Fields(text)
	var n []int64
	for _, x := range w[min(1, len(w)):] {
		if v, err := strconv.ParseInt(x, 10, 32); err == nil {
			n = append(n, v)
		}
	}
	at := tp(0)
	switch {
	case len(w) == 2 && len(n) == 1 && n[0] > 0:
		id := int32(n[0])
		is, ok = map[string]func(c *Cluster) bool{
			"told":       func(c *Cluster) bool { return c.ghost.Told(at, id) },
			"registered": func(c *Cluster) bool { return c.ghost.IsRegistered(id) },
			"gone":       func(c *Cluster) bool { return c.tree.registered != nil && c.tree.registered[id-1] == 0 },
			"acked":      func(c *Cluster) bool { return c.ghost.Acked+c.ghost.AckedWeak >= n[0] },
		}[w[0]]
	case len(w) == 4 && len(n) == 2 && (w[0] == "end" || w[0] == "hw"):
		of := func(c *Cluster) int64 { return c.ghost.EndOf(at, int32(n[0])) }
		if w[0] == "hw" {
			of = func(c *Cluster) int64 { return c.ghost.HighWatermarkOf(at, int32(n[0])) }
		}
		is, ok = map[string]func(c *Cluster) bool{
			"=": func(c *Cluster) bool { return of(c) == n[1] },
			"<": func(c *Cluster) bool { return of(c) < n[1] },
			">": func(c *Cluster) bool { return of(c) > n[1] },
		}[w[2]]
	}
	if len(w) == 2 && w[0] == "elr" {
		want, err := parseIDs(w[1])
		return func(c *Cluster) bool {
			return c.everyPartition(func(t ghost.TP) bool { return slices.Equal(slices.Sorted(slices.Values(c.ghost.StateOf(t).ELR)), want) })
		}, err == nil
	}
	return is, ok
}

// isSoOfBroker says whether such a condition holds.
func (c *Cluster) isSoOfBroker(text string) bool {
	is, ok := parseBrokerCondition(text)
	return ok && is(c)
}

// allSo and areConditions read several of any kind, with "and" between them.

func (c *Cluster) allSo(text string) bool {
	for _, one := range strings.Split(text, " and ") {
		if !c.isSo(one) {
			return false
		}
	}
	return true
}

func areConditions(text string) error {
	for _, one := range strings.Split(text, " and ") {
		if conditions[one] == nil && !isCondition(one) && !isBrokerCondition(one) {
			return fmt.Errorf("%q is no condition", one)
		}
	}
	return nil
}
