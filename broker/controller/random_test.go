package controller

import (
	"strings"
	"testing"

	"github.com/tidemark-log/tidemark/broker/rules"
)

// TestRandom runs controllers against a store and brokers that come, go, lose records,
// change their ISRs and lose answers, in an order drawn from a seed. See chaos for what is checked.
func TestRandom(t *testing.T) {
	seeds := 1000
	if testing.Short() {
		seeds = 300
	}
	total := map[string]int{}
	for seed := range uint64(seeds) {
		c := newChaos(rules.All(), seed)
		c.live(400)
		if c.failed != "" {
			t.Fatalf("seed %d: %s\n%s\nseed %d: %s", seed, c.failed, c.tail(), seed, c.failed)
		}
		for k, n := range c.reached {
			total[k] += n
		}
	}
	for _, k := range []string{
		"leader from ISR", "leader from ELR", "longest log", "no leader", "unclean start", "clean start", "fenced write", "unknown write",
		"topic deleted", "switched", "replacing", "shutdown answered", "refused shutdown", "stale command", "conflict", "elected anew",
	} {
		if total[k] == 0 {
			t.Errorf("never reached: %s", k)
		}
	}
	t.Log(total)
}

// TestRandomBites: each rule off, or a fault planted, is found by the same runs.
func TestRandomBites(t *testing.T) {
	for _, f := range []struct {
		name  string
		plant func(*chaos)
		want  string
	}{
		{"elr", func(c *chaos) { c.cfg.Rules.ELR = false }, "lost records"},
		{"compare-logs", func(c *chaos) { c.cfg.Rules.CompareLogs = false }, "lost records"},
		{"controller-epoch-check", func(c *chaos) { c.cfg.Rules.ControllerEpochCheck = false }, ""},
		{"fence-before-reregister", func(c *chaos) { c.cfg.Rules.FenceBeforeReregister = false }, "lost records"},
		{"starts are not noted", func(c *chaos) { c.forgetHandled = true }, "lost records"},
		{"a resent command is dropped", func(c *chaos) { c.dropFailed = true }, "knows"},
	} {
		t.Run(f.name, func(t *testing.T) {
			for seed := range uint64(3000) {
				c := newChaos(rules.All(), seed)
				f.plant(c)
				c.live(400)
				if c.failed != "" && strings.Contains(c.failed, f.want) {
					t.Logf("seed %d: %s", seed, c.failed)
					return
				}
			}
			t.Fatal("not found")
		})
	}
}
