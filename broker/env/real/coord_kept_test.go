package real_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tidemark-log/tidemark/broker/coord"
	"github.com/tidemark-log/tidemark/broker/env/real"
	"github.com/tidemark-log/tidemark/internal/zookeepertest"
)

// start opens a session as a broker's process does, over a directory that it has locked.
func start(t *testing.T, connect, dir string) (coord.Client, <-chan coord.SessionState) {
	t.Helper()
	e := real.New(nil, slog.New(slog.DiscardHandler))
	e.UseCoord(connect)
	e.NoteSession(filepath.Join(dir, "note"), filepath.Join(dir, "lock"))
	states := make(chan coord.SessionState, 100)
	c := e.OpenCoord(30*time.Second, func(s coord.SessionState) { states <- s })
	t.Cleanup(func() {
		done := make(chan struct{})
		c.Close(func(error) { close(done) })
		within(t, done, "the end of Close")
	})
	if s := within(t, states, "a session"); s != coord.Connected {
		t.Fatal(s)
	}
	return c, states
}

func lockedDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func there(t *testing.T, c coord.Client, path string) bool {
	t.Helper()
	done := make(chan error, 1)
	c.Exists(path, nil, func(_ coord.Stat, err error) { done <- err })
	err := within(t, done, "exists "+path)
	if err != nil && !errors.Is(err, coord.ErrNoNode) {
		t.Fatal(err)
	}
	return err == nil
}

func testKilled(t *testing.T, connect string) {
	dir := lockedDir(t)
	before, states := start(t, connect, dir)
	if err := create(t, before, "/here", coord.Ephemeral); err != nil {
		t.Fatal(err)
	}
	after, _ := start(t, connect, dir) // the process before did not close its session
	if there(t, after, "/here") {
		t.Error("the session of the process before is still there")
	}
	for s := coord.Connected; s != coord.Expired; {
		s = within(t, states, "the end of the first session")
	}
	third, _ := start(t, connect, dir)
	if third.Session() == after.Session() || after.Session() == before.Session() {
		t.Error("a session was taken over")
	}
}

// The session of a process that was killed ends when the next one has the directory, not when it times out.
func TestTheSessionOfAKilledProcessIsEnded(t *testing.T) {
	testKilled(t, embedded(t).Addr())
}

func TestTheSessionOfAKilledProcessIsEndedAtAZooKeeper(t *testing.T) {
	testKilled(t, zookeepertest.Addrs([]*zookeepertest.Server{zookeepertest.Start(t)}))
}

// A broker that may be alive keeps its session.
func TestASessionWhoseProcessMayLiveIsLeftAlone(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(t *testing.T, note []byte) (dir string)
	}{
		{"a copy of the directory", func(t *testing.T, note []byte) string {
			dir := lockedDir(t)
			if err := os.WriteFile(filepath.Join(dir, "note"), note, 0o600); err != nil {
				t.Fatal(err)
			}
			return dir
		}},
		{"an empty directory", func(t *testing.T, _ []byte) string { return lockedDir(t) }},
		{"no directory", func(t *testing.T, _ []byte) string { return filepath.Join(t.TempDir(), "none") }},
		{"a damaged note", func(t *testing.T, note []byte) string {
			dir := lockedDir(t)
			if err := os.WriteFile(filepath.Join(dir, "note"), note[:len(note)/2], 0o600); err != nil {
				t.Fatal(err)
			}
			return dir
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			connect, dir := embedded(t).Addr(), lockedDir(t)
			alive, _ := start(t, connect, dir)
			if err := create(t, alive, "/here", coord.Ephemeral); err != nil {
				t.Fatal(err)
			}
			note, err := os.ReadFile(filepath.Join(dir, "note"))
			if err != nil {
				t.Fatal(err)
			}
			other, _ := start(t, connect, c.make(t, note))
			if !there(t, other, "/here") {
				t.Error("its session was ended")
			}
		})
	}
}
