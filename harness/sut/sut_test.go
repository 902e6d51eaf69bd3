package sut

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-log/tidemark/internal/need"
	"time"
)

func shell(script string) ProcessSpec {
	return ProcessSpec{Path: "/bin/sh", Args: []string{"-c", script}, Ready: func(line string) bool { return line == "ready" }}
}

func gone(t *testing.T, p *Process) {
	t.Helper()
	select {
	case <-p.Exited():
	case <-time.After(20 * time.Second):
		t.Fatal("the process did not end")
	}
}

func TestAProcessThatEndsBeforeItIsReadyTellsWhatItSaid(t *testing.T) {
	_, err := Start(t.Context(), shell("echo port in use >&2; exit 3"))
	if err == nil || !strings.Contains(err.Error(), "port in use") {
		t.Errorf("%v", err)
	}
}

func TestAProcessThatIsNeverReadyIsKilled(t *testing.T) {
	s := shell("echo hello; exec sleep 1000")
	s.ReadyWithin = 50 * time.Millisecond
	_, err := Start(t.Context(), s)
	if err == nil || !strings.Contains(err.Error(), "not ready within") || !strings.Contains(err.Error(), "hello") {
		t.Errorf("%v", err)
	}
}

func TestTheEndOfTheContextKills(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p, err := Start(ctx, shell("trap '' TERM; echo ready; sleep 1000 & wait"))
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	gone(t, p)
	p.Kill() // again is harmless
}

// The context may have ended before the process was there. The race detector looks on here.
func TestAnEndedContextKills(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(ctx, shell("sleep 60")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestAProcessOfAClusterThatEndsIsTold(t *testing.T) {
	p, err := Start(t.Context(), shell("echo ready; sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	c := Cluster{zookeeper: p}
	ended := c.Exited(t.Context())
	p.Kill()
	if e := <-ended; e.Broker != 0 || e.Process != p || p.State() != "signal: killed" {
		t.Errorf("%+v, %s", e, p.State())
	}
	if err := c.StopLiving(); err != nil {
		t.Error(err)
	}
}

// A panic's last line is the end of some stack; what it was stands before that.
func TestHowAProcessEndedIsItsStateAndItsLastWords(t *testing.T) {
	for script, want := range map[string]string{
		"echo out; echo first >&2; echo no such directory >&2; echo bye; exit 3": "exit status 3: no such directory",
		"exit 0":        "exit status 0",
		"kill -KILL $$": "signal: killed",
		`printf "serving\npanic: BUG: 3 > 2\n\ngoroutine 1 [running]:\n\tfile.go:1\n" >&2; exit 2`: "exit status 2: panic: BUG: 3 > 2",
	} {
		p, err := Start(t.Context(), shell("trap '"+script+"' TERM; echo ready; while :; do sleep 0.01; done"))
		if err != nil {
			t.Fatal(err)
		}
		_ = p.Stop(20 * time.Second)
		if got := p.HowEnded(); got != want {
			t.Errorf("%s: %q", script, got)
		}
	}
}

func TestStopKillsWhatIgnoresIt(t *testing.T) {
	p, err := Start(t.Context(), shell("trap '' TERM; echo ready; while :; do sleep 0.01; done"))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(50 * time.Millisecond); err == nil || !strings.Contains(err.Error(), "was killed") {
		t.Errorf("%v", err)
	}
	gone(t, p)
}

func TestACgroupHoldsAProcessToItsLimit(t *testing.T) {
	c, err := NewCgroup(64 << 20)
	if errors.Is(err, ErrNoCgroup) {
		need.Skip(t, "cgroup", err.Error())
	} else if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	// Its page cache is part of it: a process may write more than its limit, and holds no more than that.
	file := filepath.Join(t.TempDir(), "f")
	s := shell("dd if=/dev/zero of=" + file + " bs=1048576 count=160 2>/dev/null; echo ready; exec sleep 1000")
	s.Cgroup = c
	p, err := Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	used, err := c.Used()
	if err != nil || used > 64<<20 || used < 16<<20 {
		t.Errorf("%d MB used of a limit of 64, %v", used>>20, err)
	}
}

func TestTheCacheIsDroppedWarmedAndSeen(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "sub", "f")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, make([]byte, 8<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	look := func(when string, low, high int64) {
		t.Helper()
		st, ok := Cached(dir)
		if !ok {
			need.Skip(t, "cachestat", "this kernel has no such call")
		}
		if st.Size != 8<<20 || st.Cached < low || st.Cached > high {
			t.Errorf("%s: %+v", when, st)
		}
	}
	look("written", 8<<20, 8<<20)
	if err := DropCache(dir); err != nil {
		t.Fatal(err)
	}
	look("dropped", 0, 1<<20)
	if err := WarmCache(dir); err != nil {
		t.Fatal(err)
	}
	look("warmed", 8<<20, 8<<20)
	DropClean(dir)() // started and stopped
}
