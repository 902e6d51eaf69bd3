package controller

import (
	"slices"
	"time"
)

// tickReplace re-creates the replicas of brokers that stay away, on those that have the
// fewest, in racks that the partition does not have yet where there are such. It is a
// reassignment like any other: the dead replica goes only when the target is in sync.
func (c *Controller) tickReplace() {
	if c.cfg.ReplaceAfter <= 0 {
		return
	}
	counted := false
	for _, id := range c.brokerIDs {
		b := c.brokers[id]
		if !b.away || c.now < b.awaySince+c.cfg.ReplaceAfter || c.now < b.replaceScan {
			continue
		}
		if !counted {
			counted = true
			for _, id := range c.brokerIDs {
				c.brokers[id].load = len(c.brokers[id].partitions)
			}
		}
		c.replaceAll(b)
	}
}

// scanPause keeps the scans of brokers that cannot be replaced few.
const scanPause = 5 * time.Second

func (c *Controller) replaceAll(b *broker) {
	b.replaceScan = c.now + min(scanPause, c.cfg.ReplaceAfter)
	for _, p := range b.partitions {
		if c.replacing >= c.cfg.ReplacementsMax {
			b.replaceScan = c.now + c.cfg.RetryBackoff
			return
		}
		if !p.known || p.topic.deleting || p.target != nil || len(p.adding)+len(p.removing) > 0 || p.state.Leader == NoLeader {
			continue
		}
		if target := c.replacement(p); target != nil {
			p.target, p.auto = target, true
			c.replacing++
			c.decideLater(p)
		}
	}
}

// replacement is p's replicas with live brokers in place of those that stay away; nil if there are none to be had.
func (c *Controller) replacement(p *partition) []int32 {
	target := slices.Clone(p.replicas)
	found := false
	for i, id := range target {
		if b := c.lookup(p, id); !b.away || c.now < b.awaySince+c.cfg.ReplaceAfter {
			continue
		}
		if n := c.choose(target); n != nil {
			target[i] = n.id
			n.load++
			found = true
		}
	}
	if !found {
		return nil
	}
	return target
}

// choose gives the live broker outside taken with the fewest replicas, first those in a rack that no live one of taken is in.
func (c *Controller) choose(taken []int32) *broker {
	rackTaken := func(rack string) bool {
		return slices.ContainsFunc(taken, func(id int32) bool { b := c.brokers[id]; return b.live && b.reg.Rack == rack })
	}
	var best *broker
	bestNew := false
	for _, id := range c.brokerIDs {
		b := c.brokers[id]
		if !b.live || b.shuttingDown || slices.Contains(taken, id) {
			continue
		}
		isNew := b.reg.Rack != "" && !rackTaken(b.reg.Rack)
		if best == nil || isNew && !bestNew || isNew == bestNew && b.load < best.load {
			best, bestNew = b, isNew
		}
	}
	return best
}
