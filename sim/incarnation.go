package sim

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker/coord"
	"github.com/tidemark-log/tidemark/broker/env"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

// crashMark is what a file operation panics with when the process dies in it.
// Only the event loop recovers it; the incarnation is dropped as it stands, with
// whatever locks it held.
type crashMark struct{ owner *incarnation }

// incarnation is one process's life of the broker, and its env.Env.
type incarnation struct {
	process
	*node
	number int
	born   time.Duration
	broker server
	disk   vfs.FS // the node's, hooked

	started  bool // ready was called
	open     bool // takes connections: what was recovered has been judged
	stopping bool

	crashIn  int64 // operations on the disk until it dies; 0: it lives
	power    bool  // what then happens
	fail     *failure
	syncs    int  // under way
	down     bool // a log directory went offline
	injected bool // an operation was made to fail
	unsynced bool // that was the sync of a file

	sessions []*coord.ModelClient // with the coordination service, oldest first
}

// failure is an operation that will be answered with an error.
type failure struct {
	kinds []vfs.OpKind
	in    int64 // operations of these kinds until then
	err   error // nil: a plain I/O error
}

var _ env.Env = (*incarnation)(nil)

func (i *incarnation) Now() time.Duration { return i.elapsed(i.w.now - i.born) }
func (i *incarnation) Wall() time.Time    { return i.wall() }
func (i *incarnation) Rand() env.Rand     { return i.w.rng }
func (i *incarnation) Disk() vfs.FS       { return i.disk }

// BootID is another one after each power cut, and on another disk.
func (i *incarnation) BootID() string { return strconv.Itoa(i.node.disk.Boots()) }

func (i *incarnation) After(d time.Duration, f func()) (stop func() bool) {
	e := i.w.after(&i.process, i.toReal(d), f)
	return func() bool { return i.w.stop(e) }
}

// Sync walks the steps as one thread of a pool would: each begins when the one
// before has ended, and takes its time.
func (i *incarnation) Sync(steps []vfs.Syncer, done func(error)) {
	steps = slices.Clone(steps)
	i.syncs++
	i.w.after(&i.process, i.w.between(0, time.Millisecond), func() { i.syncStep(steps, done) })
}

func (i *incarnation) syncStep(steps []vfs.Syncer, done func(error)) {
	if len(steps) == 0 {
		i.syncs--
		done(nil)
		return
	}
	finish := steps[0].Sync
	if b, ok := steps[0].(vfs.BeginSyncer); ok {
		finish = b.BeginSync()
	}
	i.w.after(&i.process, i.w.between(50*time.Microsecond, i.syncMax), func() {
		if err := finish(); err != nil {
			i.syncs--
			done(err)
			return
		}
		i.syncStep(steps[1:], done)
	})
}

// Send and OpenCoord: this world has one broker, and it keeps its metadata itself.
func (i *incarnation) Send(env.Peer, kmsg.Request, time.Duration, func(kmsg.Response, error)) {
	panic("BUG: sim: a cluster of one sends to a broker")
}

func (i *incarnation) OpenCoord(time.Duration, func(coord.SessionState)) coord.Client {
	panic("BUG: sim: a cluster of one opens a session")
}

func (i *incarnation) Report(level env.Level, text string) {
	if i.id == 0 {
		i.w.trace.say(i.w.now, "broker %s: %s", levelNames[level], text)
	} else {
		i.say("%s: %s", levelNames[level], text)
	}
	for _, p := range reportProbes {
		if strings.Contains(text, p.text) {
			i.w.trace.probe(p.probe)
		}
	}
	if strings.Contains(text, "is offline until") {
		i.down = true
	}
}

var levelNames = [...]string{"info", "warn", "error"}

// reportProbes tells rare paths by what the broker says of them.
var reportProbes = []struct{ text, probe string }{
	{"is offline until", "log directory offline"},
	{"bytes cut from the end", "torn tail cut"},
	{"corrupt batch in", "damage reported"},
	{"segments deleted", "segments deleted by retention"},
}

// hook stands before every operation on the disk: here the process dies, and here
// operations fail.
func (i *incarnation) hook(op vfs.Op) error {
	if i.dead {
		panic(crashMark{i}) // deferred calls on the way out change nothing any more
	}
	i.w.trace.op(i.w.now, i.id, op)
	if op.Kind == vfs.OpWrite && i.syncs > 0 {
		i.w.trace.probe("write while a sync was under way")
	}
	if i.crashIn > 0 {
		if i.crashIn--; i.crashIn == 0 {
			return i.die(op)
		}
	}
	if f := i.fail; f != nil && slices.Contains(f.kinds, op.Kind) {
		if f.in--; f.in <= 0 {
			i.fail = nil
			return i.failOp(op, f)
		}
	}
	return i.w.planted.hook(i, op)
}

// die ends the process before op, or in its middle.
func (i *incarnation) die(op vfs.Op) error {
	mark := func() { panic(crashMark{i}) }
	if op.Kind == vfs.OpWrite && op.Len > 1 && i.w.chance(2) {
		n := 1 + i.w.rng.IntN(op.Len-1)
		i.w.trace.probe("crash in the middle of a write")
		i.say("the process dies %d bytes into %s of %s", n, op.Kind.String(), op.Name)
		return &vfs.Partial{Bytes: n, Err: vfs.ErrInjected, Then: mark}
	}
	i.say("the process dies before %s of %s", op.Kind.String(), op.Name)
	mark()
	return nil
}

func (i *incarnation) failOp(op vfs.Op, f *failure) error {
	err := fmt.Errorf("%w: %s of %s", vfs.ErrInjected, op.Kind, op.Name)
	if f.err != nil {
		err = errors.Join(err, f.err)
	}
	i.w.trace.probe("I/O error")
	i.unsynced = i.unsynced || op.Kind == vfs.OpSync || op.Kind == vfs.OpSyncEnd
	i.say("%s of %s fails", op.Kind.String(), op.Name)
	i.injected = true
	if op.Kind == vfs.OpWrite && op.Len > 1 && i.w.chance(2) {
		return &vfs.Partial{Bytes: i.w.rng.IntN(op.Len), Err: err}
	}
	return err
}
