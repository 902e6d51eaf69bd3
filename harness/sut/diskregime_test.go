package sut

import (
	"errors"
	"strings"
	"testing"
)

func TestTheDiskRegimeSaysWhatDisturbsIt(t *testing.T) {
	for _, c := range []struct {
		filled, settled bool
		want            []string
	}{
		{true, true, nil},
		{true, false, []string{"did not come to rest"}},
		{false, true, []string{"memory was not full"}},
		{false, false, []string{"did not come to rest", "memory was not full"}},
	} {
		d := DiskRegime{Throttling: &Throttling{filled: c.filled}, settled: c.settled}
		got := d.Warnings("the writer")
		if len(got) != len(c.want) {
			t.Errorf("%q, want %q", got, c.want)
			continue
		}
		for i, warning := range got {
			if !strings.HasPrefix(warning, "the writer: ") || !strings.Contains(warning, c.want[i]) {
				t.Errorf("%q, want %q", warning, c.want[i])
			}
		}
	}
}

// The disk takes 500 of what is written, whatever memory does: takes up what is too much, or gives off what it had.
func TestWhatMemoryTakesUpHasNotReachedTheDisk(t *testing.T) {
	for _, c := range []struct{ written, from, to, want int64 }{
		{700, 100, 300, 500}, {500, 300, 300, 500}, {400, 300, 200, 500},
	} {
		dirty := c.from
		d := DiskRegime{Throttling: &Throttling{dirty: func() (int64, error) { return dirty, nil }}}
		d.Open()
		dirty = c.to
		d.Close()
		if got, err := d.Reached(c.written); got != c.want || err != nil {
			t.Errorf("%+v: %d, %v", c, got, err)
		}
	}
	for _, failing := range []int{1, 2} { // a memory that was not looked at is not an empty one
		looks := 0
		d := DiskRegime{Throttling: &Throttling{dirty: func() (int64, error) {
			if looks++; looks == failing {
				return 0, errors.New("no look")
			}
			return 0, nil
		}}}
		d.Open()
		d.Close()
		if _, err := d.Reached(1); err == nil {
			t.Errorf("look %d failed, and nothing was said", failing)
		}
	}
}
