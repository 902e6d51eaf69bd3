package replica

import (
	"slices"
	"time"
)

// Limits of one request to a leader.
type Limits struct {
	Partitions int // at most so many are asked for; at least 1
}

// Fetcher chooses what goes into the next request to one leader broker. It knows the
// partitions that this broker follows there, and asks each what it wants. One request
// is in flight at a time. Each begins after the last partition that the one before
// brought records for, or had no room for: a busy partition does not starve the rest.
type Fetcher[P any] struct {
	compare    func(a, b P) int
	partitions []P // ascending
	start      int // where the next request begins
	plan       Plan[P]
}

// Plan is the next round with a leader: first the questions about epochs, and with
// them, or when there are none, the fetch. It is good until the next call.
type Plan[P any] struct {
	EpochEnds []Planned[P]
	Fetches   []Planned[P]
	Flushes   []P // to be synced before they fetch again
	// LeftOut: partitions that wanted to fetch and had no room. Then the fetch must not
	// wait at the leader for records (MaxWait 0): those left out would wait with it.
	LeftOut bool
	// Wake: ask again then, for a partition that waits; 0: none does.
	Wake time.Duration
}

// Planned is one partition's question.
type Planned[P any] struct {
	Partition P
	Ask       Ask
}

// NewFetcher orders its partitions by compare.
func NewFetcher[P any](compare func(a, b P) int) *Fetcher[P] {
	return &Fetcher[P]{compare: compare}
}

// Add a partition; one that is there is left.
func (f *Fetcher[P]) Add(p P) {
	i, found := slices.BinarySearchFunc(f.partitions, p, f.compare)
	if found {
		return
	}
	f.partitions = slices.Insert(f.partitions, i, p)
	if i < f.start {
		f.start++
	}
}

// Remove a partition, if it is there.
func (f *Fetcher[P]) Remove(p P) {
	i, found := slices.BinarySearchFunc(f.partitions, p, f.compare)
	if !found {
		return
	}
	f.partitions = slices.Delete(f.partitions, i, i+1)
	if i < f.start {
		f.start--
	}
}

// Len is the number of partitions.
func (f *Fetcher[P]) Len() int { return len(f.partitions) }

// Plan asks each partition what it wants, with ask. Those that turn out to follow
// another leader, or none, are the driver's to Remove: ask gives AskNothing for them.
func (f *Fetcher[P]) Plan(limits Limits, ask func(P) Ask) *Plan[P] {
	p := &f.plan
	*p = Plan[P]{EpochEnds: p.EpochEnds[:0], Fetches: p.Fetches[:0], Flushes: p.Flushes[:0]}
	limit := max(1, limits.Partitions)
	n := len(f.partitions)
	first := -1 // left out
	for i := range n {
		at := (f.start + i) % n
		q := f.partitions[at]
		a := ask(q)
		switch a.Kind {
		case AskNothing:
			if a.NotBefore > 0 && (p.Wake == 0 || a.NotBefore < p.Wake) {
				p.Wake = a.NotBefore
			}
		case AskFlush:
			p.Flushes = append(p.Flushes, q)
		case AskEpochEnd:
			if len(p.EpochEnds) < limit {
				p.EpochEnds = append(p.EpochEnds, Planned[P]{q, a})
			}
		case AskFetch:
			switch {
			case len(p.Fetches) < limit:
				p.Fetches = append(p.Fetches, Planned[P]{q, a})
			case first < 0:
				first = at
			}
		}
	}
	if first >= 0 {
		p.LeftOut, f.start = true, first
	}
	return p
}

// Filled tells, after a response, the last partition that it brought records for: the
// next request begins behind it, unless this one had left some out.
func (f *Fetcher[P]) Filled(p P) {
	if f.plan.LeftOut || len(f.partitions) == 0 {
		return
	}
	i, found := slices.BinarySearchFunc(f.partitions, p, f.compare)
	if found {
		i++
	}
	f.start = i % len(f.partitions)
}
