package coord_test

import (
	"testing"
	"time"

	"github.com/tidemark-log/tidemark/broker/coord"
	"github.com/tidemark-log/tidemark/broker/coord/coordtest"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

// localService is Local as a coordtest.Service: a World of one queue.
type localService struct {
	t      testing.TB
	disk   vfs.FS
	events []func()
}

func (l *localService) Disk() vfs.FS    { return l.disk }
func (l *localService) Wall() time.Time { return time.UnixMilli(1_700_000_000_000) }
func (l *localService) Warn(s string)   { l.t.Errorf("warned: %s", s) }
func (l *localService) Error(s string)  { l.t.Errorf("reported: %s", s) }
func (l *localService) After(_ time.Duration, f func()) func() bool {
	l.events = append(l.events, f)
	return func() bool { panic("not used") }
}

func (l *localService) Sync(s []vfs.Syncer, done func(error)) {
	l.events = append(l.events, func() {
		for _, f := range s {
			if err := f.Sync(); err != nil {
				done(err)
				return
			}
		}
		done(nil)
	})
}

func (l *localService) Open(_ time.Duration, state func(coord.SessionState)) coord.Client {
	c, err := coord.OpenLocal(l, "data")
	if err != nil {
		l.t.Fatalf("open: %v", err)
	}
	c.Create(l.Root(), nil, coord.Persistent, func(string, coord.Stat, error) { state(coord.Connected) })
	return c
}

func (l *localService) Wait(cond func() bool) bool {
	for !cond() {
		if len(l.events) == 0 {
			return false
		}
		f := l.events[0]
		l.events = l.events[1:]
		f()
	}
	return true
}

func (l *localService) Settle()             { l.Wait(func() bool { return len(l.events) == 0 }) }
func (l *localService) Root() string        { return "/c" }
func (l *localService) Tick() time.Duration { return coord.TickMs * time.Millisecond }
func (l *localService) Cut(coord.Client)    { panic("BUG: Local has no connection") }
func (l *localService) Heal(coord.Client)   { panic("BUG: Local has no connection") }

func TestLocalKeepsTheContract(t *testing.T) {
	coordtest.Run(t, coordtest.Factory{
		New: func(t testing.TB) coordtest.Service {
			return &localService{t: t, disk: vfs.NewReal(t.TempDir(), nil)}
		},
		Cannot: map[coordtest.Feature]string{
			coordtest.Sessions:    "a cluster of one has one client",
			coordtest.Connections: "the tree is in the client's own process",
			coordtest.Ticks:       "its session does not expire",
			coordtest.LateWatches: "it is never cut off",
		},
	})
}
