package sim

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/tidemark-log/tidemark/storage/vfs"
)

// trace is the run's story: a hash over all of it, the last events in words, and
// how often each rare path was reached.
//
// The hash takes in every event and every operation on the disk, with its
// arguments. Two runs of a seed that differ in anything at all differ in it.
type trace struct {
	hash   uint64
	last   ring // of all
	words  ring // of what is no operation of a disk
	probes map[string]int64
	echo   func(string) // every line as it comes, for a run that is watched; nil: none
}

// traceKept is how many events are told after a violation.
const traceKept = 60

// traceEntry is kept unformatted: most are never read.
type traceEntry struct {
	at     time.Duration
	format string
	args   []any
	node   int32 // whose operation on the disk; 0: the only one's
	op     vfs.Op
}

func (e traceEntry) String() string {
	text := e.op.String()
	if e.node != 0 {
		text = fmt.Sprintf("broker %d: %s", e.node, text)
	}
	if e.format != "" {
		text = fmt.Sprintf(e.format, e.args...)
	}
	return fmt.Sprintf("%12s  %s", e.at.Round(time.Microsecond), text)
}

// FNV-1a, 64 bits.
const (
	hashOffset = 14695981039346656037
	hashPrime  = 1099511628211
)

func (t *trace) addBytes(s string) {
	h := t.hash
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * hashPrime
	}
	t.hash = h
}

func (t *trace) addInt(v int64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(v))
	for _, c := range b {
		t.hash = (t.hash ^ uint64(c)) * hashPrime
	}
}

// op takes in an operation on the disk.
func (t *trace) op(at time.Duration, node int32, op vfs.Op) {
	t.addInt(int64(at))
	if node != 0 {
		t.addInt(int64(node))
	}
	t.addInt(int64(op.Kind))
	t.addBytes(op.Name)
	t.addBytes(op.NewName)
	t.addInt(op.Off)
	t.addInt(int64(op.Len))
	t.keep(traceEntry{at: at, node: node, op: op})
}

// say takes in something that happened. args are strings and integers, which do
// not change later.
func (t *trace) say(at time.Duration, format string, args ...any) {
	t.addInt(int64(at))
	t.addBytes(format)
	for _, a := range args {
		switch a := a.(type) {
		case int:
			t.addInt(int64(a))
		case int16:
			t.addInt(int64(a))
		case int32:
			t.addInt(int64(a))
		case int64:
			t.addInt(a)
		case string:
			t.addBytes(a)
		default:
			t.addBytes(fmt.Sprint(a))
		}
	}
	t.keep(traceEntry{at: at, format: format, args: args})
}

func (t *trace) keep(e traceEntry) {
	t.last.add(e)
	if e.format != "" {
		t.words.add(e)
	}
	if t.echo != nil {
		t.echo(e.String())
	}
}

// tail gives the last events in words, oldest first.
func (t *trace) tail() []string { return t.last.lines() }

// ring holds the newest entries.
type ring struct {
	entries [traceKept]traceEntry
	n       int
}

func (r *ring) add(e traceEntry) {
	r.entries[r.n%traceKept] = e
	r.n++
}

func (r *ring) lines() []string {
	var lines []string
	for i := max(0, r.n-traceKept); i < r.n; i++ {
		lines = append(lines, r.entries[i%traceKept].String())
	}
	return lines
}

// probe counts that a rare path was reached.
func (t *trace) probe(name string) {
	if _, known := t.probes[name]; !known {
		panic("BUG: sim: probe " + name + " is not in the list")
	}
	t.probes[name]++
}

// probeNames are the rare paths that a sweep should reach: one never reached
// tells that the world does not do what we think it does.
var probeNames = []string{
	"kill", "power cut", "power cut that lost sectors", "power cut that lost names", "crash between operations",
	"crash in the middle of a write", "crash while starting", "crash while shutting down",
	"clean shutdown", "power cut right after a clean shutdown",
	"I/O error", "log directory offline", "restart on the same boot after a failed sync", "connection broken", "answer lost with its connection", "answer that outlived its broker",
	"torn tail cut", "damage reported", "recovered log shorter than before", "acknowledged but not durable batch lost",
	"segments deleted by retention", "records deleted", "offset out of range", "region outlived its file's name",
	"batch sent again", "idempotent session begun anew", "producer gave a batch up",
	"write while a sync was under way", "long poll", "seek into a batch",
	"topic deleted and made again", "restart while the topic was deleted",
}

// clusterProbeNames are the rare paths of the cluster world.
var clusterProbeNames = []string{
	"kill", "bounce", "power cut", "power cut that lost sectors", "disk swapped", "clean shutdown", "crash while starting", "crash in the middle of a write",
	"process paused", "broker isolated", "link cut", "link cut one way", "slow link", "connection broken", "session expired by fault",
	"leadership moved", "partition reassigned", "message held", "all brokers died together",
	"coordination service away", "broker cut off from the coordination service", "clock jump", "I/O error", "log directory offline", "torn tail cut",
	"request timed out", "message held by a cut link", "answer lost with its connection", "answer that outlived its broker", "region outlived its file's name",
	"batch sent again", "producer gave a batch up", "not enough in-sync replicas",
	"controller elected", "election from the ELR", "election of the longest log", "unclean election", "unclean election that lost records", "ISR down to one", "ISR empty", "ISR grew",
	"truncation that dropped records", "lossy restart that lost committed records", "lossy replica caught up",
	"end offset not available yet", "write while a sync was under way",
}

// clusterRareNames are counted too, and need not be reached by every sweep.
var clusterRareNames = []string{
	"stale controller refused", "command to an earlier incarnation refused", "controlled shutdown not yet", "follower of another epoch refused", "follower told that it diverges", "conditional write refused", "follower behind its consumer", "read that ends before the log", "state written as it was",
	"sequence refused by a deposed leader", "damage reported", "segments deleted by retention", "idempotent session begun anew", "offset out of range", "consumer saw a truncation", "records expired before they were read",
}

func clusterProbes() []string { return append(slices.Clone(clusterProbeNames), clusterRareNames...) }
