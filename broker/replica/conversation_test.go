package replica

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/tidemark-log/tidemark/broker/rules"
)

// conversation is one leader and one follower, with a log each, that a file of testdata
// talks to, one line a call. Times are seconds, and now= stands on any line.
//
//	rules [off=…]                    begins anew
//	log [start= empty=] epochs=0*5,1*2      five records of epoch 0, then two of epoch 1, and no record of epoch
//	                                 empty: the log of what is begun next
//	lead epoch= [hw= isr= elr= replicas= version= min= durable flushed=] · append n= · flushed to= · resign
//	fetch from= epoch= at= [last= broker= log-start=]
//	tick · accepted version= · refused · unknown · joiner-gone     of the last proposal; seq= of another
//	read | pushed [leader= epoch=] isr= [elr=] version=
//	replicas ids= · eligible ids= · min n= · latest · may-append · end-of epoch=
//	follow leader= epoch= [hw= durable] · stop epoch= · next · synced to=
//	ends epoch= asked= is=epoch:offset [code=]        an answer to OffsetForLeaderEpoch, asked in epoch
//	got epoch= at= hw= [records=1*2 diverging=epoch:offset code= log-start=]
//	consume at=
//
// Each line's effects are printed, then how things stand.
type conversation struct {
	rules    rules.Rules
	pending  *memLog
	log      *memLog // the follower's
	llog     *memLog // the leader's
	leader   *Leader
	follower *Follower
	refuses  bool // the log, what the leader sent
	cfg      Settings
	seq      uint64
	now      time.Duration
	out      strings.Builder
}

func TestConversations(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		c := &conversation{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			args := make([]string, len(d.CmdArgs))
			for i, a := range d.CmdArgs {
				args[i] = strings.ReplaceAll(a.String(), ", ", ",")
			}
			c.out.Reset()
			for _, line := range append([]string{d.Cmd + " " + strings.Join(args, " ")}, strings.Split(d.Input, "\n")...) {
				if line = strings.TrimSpace(line); line != "" {
					c.line(t, line)
				}
			}
			c.standing()
			return c.out.String()
		})
	})
}

func (c *conversation) say(format string, args ...any) { fmt.Fprintf(&c.out, format+"\n", args...) }

// words are a line's arguments.
type words struct {
	t    *testing.T
	line string
	m    map[string]string
}

func (w words) text(key string) string { return w.m[key] }

func (w words) int(key string, otherwise int64) int64 {
	s, found := w.m[key]
	if !found {
		return otherwise
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		w.t.Fatalf("%s: %v", w.line, err)
	}
	return n
}

func (w words) epoch(key string) LeaderEpoch { return LeaderEpoch(w.int(key, -1)) }

func (w words) ids(key string) (ids []BrokerID) {
	for _, s := range strings.FieldsFunc(w.m[key], func(r rune) bool { return strings.ContainsRune("(), ", r) }) {
		n, err := strconv.Atoi(s)
		if err != nil {
			w.t.Fatalf("%s: %v", w.line, err)
		}
		ids = append(ids, BrokerID(n))
	}
	return ids
}

func (w words) pair(key, separator string) (a, b int64) {
	if _, err := fmt.Sscanf(w.m[key], "%d"+separator+"%d", &a, &b); err != nil {
		w.t.Fatalf("%s: %s: %v", w.line, key, err)
	}
	return a, b
}

func (w words) records(key string) (records []memRecord) {
	for s := range strings.SplitSeq(w.m[key], ",") {
		if s == "" {
			continue
		}
		epoch, n := words{w.t, w.line, map[string]string{"": s}}.pair("", "*")
		for range n {
			records = append(records, memRecord{epoch: LeaderEpoch(epoch)})
		}
	}
	return records
}

func (w words) epochEnd(key string) (EpochEnd, bool) {
	if w.m[key] == "" {
		return NoEpochEnd, false
	}
	epoch, end := w.pair(key, ":")
	return EpochEnd{LeaderEpoch(epoch), end}, true
}

func (c *conversation) line(t *testing.T, line string) {
	fields := strings.Fields(line)
	w := words{t, line, map[string]string{}}
	for _, f := range fields[1:] {
		k, v, _ := strings.Cut(f, "=")
		w.m[k] = v
	}
	c.now = time.Duration(w.int("now", int64(c.now/time.Second))) * time.Second
	switch fields[0] {
	case "rules":
		r, err := rules.Parse(strings.FieldsFunc(w.text("off"), func(r rune) bool { return strings.ContainsRune("(), ", r) }))
		if err != nil {
			t.Fatal(err)
		}
		*c = conversation{rules: r, pending: &memLog{}, now: time.Duration(w.int("now", 0)) * time.Second}
	case "log":
		c.pending = &memLog{start: w.int("start", 0)}
		for _, r := range w.records("epochs") {
			c.pending.append(r)
		}
		c.pending.assign(w.epoch("empty"), c.pending.LogEndOffset())
	case "lead":
		c.lead(w)
	case "follow":
		c.follow(w)
	default:
		if !c.leaderLine(fields[0], w) && !c.followerLine(fields[0], w) {
			t.Fatalf("unknown command: %s", line)
		}
	}
}

func (c *conversation) lead(w words) {
	if c.leader == nil {
		_, durable := w.m["durable"]
		c.cfg = Settings{MinISR: int(w.int("min", 1)), LagMax: 30 * time.Second, DurableBeforeAck: durable}
		c.leader = NewLeader(c.rules, 1, c.cfg)
		c.llog = c.pending
	}
	end := c.llog.LogEndOffset()
	epoch := w.epoch("epoch")
	replicas := w.ids("replicas")
	if replicas == nil {
		replicas = []BrokerID{1, 2, 3}
	}
	c.llog.assign(epoch, end)
	fx, err := c.leader.Become(BecomeLeader{State: State{Leader: 1, LeaderEpoch: epoch, ISR: w.ids("isr"), ELR: w.ids("elr"), PartitionEpoch: PartitionEpoch(w.int("version", 0))},
		Replicas: replicas, LEO: end, Flushed: w.int("flushed", end), HW: w.int("hw", 0), Now: c.now})
	if err != nil {
		c.say("%v", err)
	}
	c.effects(fx)
}

func (c *conversation) leaderLine(cmd string, w words) bool {
	l := c.leader
	seq := uint64(w.int("seq", int64(c.seq)))
	switch cmd {
	case "append":
		for range w.int("n", 1) {
			c.llog.append(memRecord{epoch: l.LeaderEpoch()})
		}
		c.effects(l.Appended(c.llog.LogEndOffset()))
	case "flushed":
		c.effects(l.Flushed(w.int("to", 0)))
	case "resign":
		l.Resign()
	case "fetch":
		last := w.epoch("last")
		answer, fx := l.Fetched(Fetch{From: BrokerID(w.int("from", 0)), BrokerEpoch: w.int("broker", -1), LeaderEpoch: w.epoch("epoch"), Offset: w.int("at", 0),
			LastFetchedEpoch: last, EpochEnd: c.llog.end(last), LogStart: c.llog.start, Now: c.now})
		if answer.Verdict == FetchDiverging {
			c.say("diverging: epoch %d ends at %d", answer.Diverging.Epoch, answer.Diverging.End)
		} else if answer.Verdict != FetchOK {
			c.say("%v", answer.Verdict)
		}
		c.effects(fx)
	case "tick":
		c.effects(l.Tick(c.now))
	case "accepted":
		c.effects(l.Accepted(seq, PartitionEpoch(w.int("version", 0))))
	case "refused":
		c.effects(l.Refused(seq))
	case "unknown":
		c.effects(l.Unknown(seq))
	case "joiner-gone":
		c.effects(l.JoinerGone(seq))
	case "read", "pushed":
		s := State{Leader: BrokerID(w.int("leader", 1)), LeaderEpoch: LeaderEpoch(w.int("epoch", int64(l.LeaderEpoch()))), ISR: w.ids("isr"), ELR: w.ids("elr"), PartitionEpoch: PartitionEpoch(w.int("version", 0))}
		if cmd == "read" {
			c.effects(l.StateRead(s, c.now))
		} else {
			c.effects(l.StateChanged(s, c.now))
		}
	case "replicas":
		c.effects(l.SetReplicas(w.ids("ids"), c.now))
	case "eligible":
		l.SetEligible(w.ids("ids"))
	case "min":
		c.cfg.MinISR = int(w.int("n", 1))
		c.effects(l.SetSettings(c.cfg))
	case "latest":
		if offset, ok := l.LatestOffset(); ok {
			c.say("latest %d", offset)
		} else {
			c.say("OFFSET_NOT_AVAILABLE")
		}
	case "may-append":
		c.say("may append with acks=all: %v", l.MayAppendAll())
	case "end-of":
		at := l.EpochEndAnswer(w.epoch("epoch"), c.llog)
		c.say("epoch %d ends at %d", at.Epoch, at.End)
	default:
		return false
	}
	return true
}

func (c *conversation) effects(fx Effects) {
	if fx.Deposed {
		c.say("deposed")
	}
	if fx.Advanced {
		if hw, acked := c.leader.HighWatermark(), c.leader.AckOffset(); hw == acked {
			c.say("advance-hw %d", hw)
		} else {
			c.say("advance-hw %d, acks up to %d", hw, acked)
		}
	}
	if fx.ISRChanged {
		c.say("isr-changed")
	}
	if p := fx.Propose; p != nil {
		c.seq = p.Seq
		elr, joiner := "", ""
		if len(p.ELR) > 0 {
			elr = " elr=" + list(p.ELR)
		}
		if p.Joiner >= 0 {
			joiner = fmt.Sprintf(" joiner=%d of broker epoch %d", p.Joiner, p.JoinerEpoch)
		}
		c.say("propose isr=%s%s at version %d%s", list(p.ISR), elr, p.PartitionEpoch, joiner)
	}
	if fx.Reread {
		c.say("reread-state")
	}
}

func list(ids []BrokerID) string {
	return "(" + strings.ReplaceAll(strings.Trim(fmt.Sprint(ids), "[]"), " ", ",") + ")"
}

// standing prints how the leader and the follower stand.
func (c *conversation) standing() {
	if l := c.leader; l != nil && l.Leading() {
		elr, positions := "", ""
		if len(l.ELR()) > 0 {
			elr = " elr=" + list(l.ELR())
		}
		for _, p := range l.Others() {
			at := "?"
			if p.LEO >= 0 {
				at = strconv.FormatInt(p.LEO, 10)
			}
			positions += fmt.Sprintf(" %d@%s", p.ID, at)
		}
		c.say("leader: leo=%d hw=%d isr=%s%s%s", l.LogEndOffset(), l.HighWatermark(), list(l.ISR()), elr, positions)
	}
	if f := c.follower; f != nil {
		c.say("follower: %v log=%s hw=%d", f.Phase(), c.log, f.HighWatermark())
	}
}

// String is the log as the command log reads it.
func (l *memLog) String() string {
	var parts []string
	for i := 0; i < len(l.records); {
		n := i
		for n < len(l.records) && l.records[n].epoch == l.records[i].epoch {
			n++
		}
		parts = append(parts, fmt.Sprintf("%d*%d", l.records[i].epoch, n-i))
		i = n
	}
	s := strings.Join(parts, ",")
	if s == "" {
		s = "empty"
	}
	if l.start > 0 {
		s += fmt.Sprintf(" from %d", l.start)
	}
	return s
}
