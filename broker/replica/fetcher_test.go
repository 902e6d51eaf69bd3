package replica

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"
)

func plan(f *Fetcher[int], limit int, ask func(int) Ask) string {
	p := f.Plan(Limits{Partitions: limit}, ask)
	var ends, fetches []int
	for _, x := range p.EpochEnds {
		ends = append(ends, x.Partition)
	}
	for _, x := range p.Fetches {
		fetches = append(fetches, x.Partition)
	}
	return fmt.Sprintf("ends=%v fetch=%v sync=%v left-out=%v wake=%v", ends, fetches, p.Flushes, p.LeftOut, p.Wake)
}

func fetches(int) Ask { return Ask{Kind: AskFetch} }

func want(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// Those that had no room come first next time, and everybody has a turn.
func TestFetcherRotatesWhatIsLeftOut(t *testing.T) {
	f := NewFetcher(cmp.Compare[int])
	for _, p := range []int{5, 3, 1, 4, 2, 3} {
		f.Add(p)
	}
	want(t, plan(f, 2, fetches), "ends=[] fetch=[1 2] sync=[] left-out=true wake=0s")
	f.Filled(1) // left out comes first
	want(t, plan(f, 2, fetches), "ends=[] fetch=[3 4] sync=[] left-out=true wake=0s")
	f.Remove(1)
	f.Remove(9)
	f.Add(0)
	want(t, plan(f, 2, fetches), "ends=[] fetch=[5 0] sync=[] left-out=true wake=0s")
	want(t, plan(f, 9, fetches), "ends=[] fetch=[2 3 4 5 0] sync=[] left-out=false wake=0s")
	f.Filled(3) // its records may have used up the bytes
	want(t, plan(f, 9, fetches), "ends=[] fetch=[4 5 0 2 3] sync=[] left-out=false wake=0s")
	f.Filled(9) // gone meanwhile: where it would be
	want(t, plan(f, 9, fetches), "ends=[] fetch=[0 2 3 4 5] sync=[] left-out=false wake=0s")
}

func TestFetcherSortsQuestions(t *testing.T) {
	f := NewFetcher(cmp.Compare[int])
	want(t, plan(f, 3, fetches), "ends=[] fetch=[] sync=[] left-out=false wake=0s")
	for p := range 9 {
		f.Add(p)
	}
	want(t, plan(f, 2, func(p int) Ask {
		switch {
		case p < 3:
			return Ask{Kind: AskEpochEnd}
		case p < 5:
			return Ask{Kind: AskFlush}
		case p < 7:
			return Ask{NotBefore: time.Duration(p) * time.Second}
		case p == 7:
			return Ask{}
		}
		return Ask{Kind: AskFetch}
	}), "ends=[0 1] fetch=[8] sync=[3 4] left-out=false wake=5s")
}

// However partitions come and go, each that stays is asked for within as many requests as
// it takes to go round.
func TestFetcherStarvesNobody(t *testing.T) {
	const n, limit = 50, 7
	f := NewFetcher(cmp.Compare[int])
	for p := range n {
		f.Add(p * 2)
	}
	seen := map[int]int{}
	for round := range 200 {
		odd := round*37%n*2 + 1
		f.Add(odd)
		for _, x := range f.Plan(Limits{Partitions: limit}, fetches).Fetches {
			if last := seen[x.Partition]; x.Partition%2 == 0 && round-last > n/limit+2 {
				t.Fatalf("round %d: partition %d was last asked for in round %d", round, x.Partition, last)
			}
			seen[x.Partition] = round
		}
		f.Remove(odd)
	}
	if len(slices.Collect(func(yield func(int) bool) {
		for p := range n {
			if seen[p*2] > 0 && !yield(p) {
				return
			}
		}
	})) != n {
		t.Error("some partition was never asked for")
	}
}
