package broker

import (
	"errors"
	"slices"
	"testing"

	"github.com/tidemark-log/tidemark/storage"
)

// failing is a log whose changes fail half way, or are refused.
type failing struct {
	storage.Log
	err error
}

func (f failing) LogStartOffset() int64               { return 7 }
func (f failing) LogEndOffset() int64                 { return 7 }
func (f failing) FlushedOffset() int64                { return 0 }
func (f failing) TruncateFullyAndStartAt(int64) error { return f.err }
func (f failing) EndFlush(*storage.Flush, error)      {}

type heard struct {
	Observer
	calls []string
}

func (h *heard) LogTruncates(string, int32, int64)   { h.calls = append(h.calls, "truncates") }
func (h *heard) LogChanged(string, int32, LogBounds) { h.calls = append(h.calls, "changed") }

// TestAnObserverIsNotToldOfAChangeThatFailed: it was begun, and what the disk holds is not what the log in memory says. A refused one
// changed nothing.
func TestAnObserverIsNotToldOfAChangeThatFailed(t *testing.T) {
	for _, f := range []struct {
		err  error
		want []string
	}{
		{&storage.WriteError{Err: errors.New("disk")}, []string{"truncates"}},
		{errors.New("refused"), []string{"truncates", "changed", "changed"}},
	} {
		h := &heard{}
		l := &observedLog{Log: failing{err: f.err}, o: h, topic: "t"}
		if err := l.TruncateFullyAndStartAt(7); !errors.Is(err, f.err) {
			t.Errorf("%v instead of %v", err, f.err)
		}
		l.EndFlush(nil, nil) // one that was under way
		if !slices.Equal(h.calls, f.want) {
			t.Errorf("%v: %v instead of %v", f.err, h.calls, f.want)
		}
	}
}
