package sample

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestASnapshotSeesThisProcess(t *testing.T) {
	s, err := New(os.Getpid(), "")
	if err != nil {
		t.Fatal(err)
	}
	from, err := s.Take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	spin := OwnCPU()
	for OwnCPU()-spin < 20*time.Millisecond { // work, not a wait: CPU time is what must show
	}
	to, err := s.Take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if used := to.CPU - from.CPU; used < 15*time.Millisecond {
		t.Errorf("20 ms of CPU show as %s", used)
	}
	if to.RSS < 1<<20 || to.Switches < from.Switches || to.Broker != nil {
		t.Errorf("%+v", to)
	}
}

func TestMetricsAreDifferencesPerByteAndSecond(t *testing.T) {
	counters := func(calls, user, kernel, delivered int64) *Counters {
		return &Counters{Syscalls: map[string]int64{"read": calls, "sendfile": calls}, ToUser: user, ToKernel: kernel, Delivered: delivered}
	}
	at := time.Now()
	from := Snapshot{At: at, CPU: time.Second, Broker: counters(10, 100, 200, 1000)}
	to := Snapshot{At: at.Add(2 * time.Second), CPU: 2 * time.Second, RSS: 5, Switches: 8, Broker: counters(1010, 1_000_100, 3_000_200, 4_001_000)}
	m := Metrics(from, to, 2_000_000, true)
	for name, want := range map[string]float64{
		"cpu-share": 0.5, "cpu-sec/GB": 250, "ctx-switches/s": 4, "broker-rss-bytes": 5,
		"copied-bytes/byte": 1, "syscalls/MB": 500,
	} {
		if got := m[name]; got != want {
			t.Errorf("%s = %g, want %g", name, got, want)
		}
	}
	if got := Metrics(from, to, 2_000_000, false)["copied-bytes/byte"]; got != 2 {
		t.Errorf("copied per byte sent = %g, want 2", got)
	}
}

func TestCountersThatCannotBeReadAreAnError(t *testing.T) {
	answer := http.StatusOK
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(answer)
		json.NewEncoder(w).Encode(map[string]any{"syscalls": map[string]int64{"fsync": 2, "fdatasync": 3}, "bytes_to_user": 7})
	}))
	defer srv.Close()
	s, err := New(os.Getpid(), strings.TrimPrefix(srv.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.Counters(t.Context())
	if err != nil || c.Calls() != 5 || c.Syncs() != 5 || c.ToUser != 7 {
		t.Errorf("%+v, %v", c, err)
	}
	answer = http.StatusInternalServerError
	if _, err := s.Take(t.Context()); err == nil {
		t.Error("a broken admin listener went unnoticed")
	}
}

func TestASumOfSnapshotsMissesNoBrokersPart(t *testing.T) {
	one := func(n int64) Snapshot {
		c := &Counters{Syscalls: map[string]int64{"read": n, "own" + strconv.Itoa(int(n)): 1}, ToUser: n, ToKernel: n, InKernel: n, Delivered: n}
		c.Status.LogEndOffsets = n
		return Snapshot{CPU: time.Duration(n), RSS: n, RSSAnon: n, Switches: n, Read: n, Written: n, Broker: c}
	}
	sum, first := one(1), one(1)
	kept := sum.Broker
	sum.add(one(2))
	sum.add(one(4))
	b := sum.Broker
	for name, got := range map[string]int64{
		"CPU": int64(sum.CPU), "RSS": sum.RSS, "RSSAnon": sum.RSSAnon, "Switches": sum.Switches, "Read": sum.Read, "Written": sum.Written, "ToUser": b.ToUser,
		"ToKernel": b.ToKernel, "InKernel": b.InKernel, "Delivered": b.Delivered, "LogEndOffsets": b.Status.LogEndOffsets, "read calls": b.Syscalls["read"],
	} {
		if got != 7 {
			t.Errorf("%s: %d, want 7", name, got)
		}
	}
	if b.Calls() != 10 || kept.Calls() != first.Broker.Calls() {
		t.Errorf("%d calls, want 10; and the first snapshot's own became %d", b.Calls(), kept.Calls())
	}
	sum.add(Snapshot{})
	if sum.Broker != nil {
		t.Error("a sum without one broker's counters is taken for the sum of all")
	}
}
