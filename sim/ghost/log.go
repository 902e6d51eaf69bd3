package ghost

import (
	"cmp"
	"slices"
)

// at finds the entry whose base is offset.
func at(log []Entry, offset int64) (i int, found bool) {
	return slices.BinarySearchFunc(log, offset, func(e Entry, o int64) int { return cmp.Compare(e.Base, o) })
}

// holding finds the entry that holds offset, or where it would be.
func holding(log []Entry, offset int64) (i int, found bool) {
	return slices.BinarySearchFunc(log, offset, func(e Entry, o int64) int {
		switch {
		case e.Next <= o:
			return -1
		case e.Base > o:
			return 1
		}
		return 0
	})
}

func (e Entry) same(o Entry) bool {
	return e.Base == o.Base && e.Next == o.Next && e.Epoch == o.Epoch && e.ID == o.ID
}

// FNV-1a over what is there, in order.
func chained(before uint64, e Entry) uint64 {
	h := before
	for _, v := range [...]uint64{uint64(e.Base), uint64(e.Next), uint64(e.Epoch), uint64(e.ID.CRC), uint64(e.ID.Bytes), uint64(e.ID.Producer), uint64(e.ID.Sequence)} {
		h = (h ^ v) * 1099511628211
		h ^= h >> 29
	}
	return h | 1 // never 0
}

const chainStart = 14695981039346656037

// append takes a batch into the replica's log, and into what the checks need.
func (p *partition) append(r *replica, e Entry) {
	n := len(r.log)
	switch {
	case n > 0 && r.log[n-1].chain != 0:
		e.chain = chained(r.log[n-1].chain, e)
	case n == 0 && e.Base == 0:
		e.chain = chained(chainStart, e)
	case n == 0: // it begins further on: what is before is as in truth, or unknown
		if i, found := at(p.truth, e.Base); found && i > 0 && p.truth[i-1].chain != 0 {
			e.chain = chained(p.truth[i-1].chain, e)
		}
	}
	if n == 0 && e.Base > 0 {
		r.agrees = max(r.agrees, min(e.Base, p.end()))
	}
	r.log = append(r.log, e)
	r.end = e.Next
	p.advance(r)
}

// advance moves r.agrees as far as log and truth are the same.
func (p *partition) advance(r *replica) {
	defer p.maybeMended(r)
	if r.agrees >= min(r.end, p.end()) {
		return
	}
	i, ok := at(p.truth, r.agrees)
	j, found := at(r.log, r.agrees)
	for ok && found && i < len(p.truth) && j < len(r.log) && p.truth[i].same(r.log[j]) {
		r.agrees = p.truth[i].Next
		i, j = i+1, j+1
	}
}

// maybeMended ends the time after a lossy restart once the replica has a part again and lacks nothing.
func (p *partition) maybeMended(r *replica) {
	if r.lossy && r.epoch >= 0 && r.agrees >= p.end() {
		r.lossy = false
		p.s.probe("lossy replica caught up", 1)
	}
}

// cut takes everything at offset and above from the replica's log.
func (r *replica) cut(offset int64) {
	i, _ := holding(r.log, offset)
	r.log = r.log[:i]
	r.end = offset
	if i > 0 {
		r.end = r.log[i-1].Next
	}
	r.agrees = min(r.agrees, offset)
	r.hw = min(r.hw, offset)
	r.flushed = min(r.flushed, offset)
}

// empty makes the log empty, to begin at offset.
func (r *replica) empty(offset int64) {
	r.log, r.start, r.end, r.hw, r.flushed = nil, offset, offset, offset, offset
}

// find gives the entry at base in the replica's log.
func (r *replica) find(base int64) (Entry, bool) {
	if i, found := at(r.log, base); found && r.here {
		return r.log[i], true
	}
	return Entry{}, false
}

// holds says whether the replica has e at its place.
func (r *replica) holds(e Entry) bool {
	have, ok := r.find(e.Base)
	return ok && have.ID == e.ID
}
