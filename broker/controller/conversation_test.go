package controller

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/tidemark-log/tidemark/broker/rules"
)

// TestConversations runs the files of testdata: a command a line, then what the controller
// did. Effects are carried out at once and told back unless a line holds or spoils them.
// See conversation.line for the commands.
func TestConversations(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		c := &conversation{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd != "do" {
				d.Fatalf(t, "unknown command %s", d.Cmd)
			}
			c.out.Reset()
			for line := range strings.Lines(d.Input) {
				if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
					if err := c.line(line); err != nil {
						d.Fatalf(t, "%s: %v", line, err)
					}
				}
			}
			return c.out.String()
		})
	})
}

type conversation struct {
	*world
	out     strings.Builder
	quiet   bool             // commands are not printed
	held    string           // kind of effects that stay pending: writes, commands, all
	spoiled []Outcome        // of the next writes
	fails   map[int32]string // broker: what becomes of its commands
	late    []Input          // outcomes that are held
	request uint64
}

type lineArgs struct {
	words []string
	named map[string]string
}

func (a lineArgs) id() int32 { return int32(number(a.words[0])) }

func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func (a lineArgs) number(name string, absent int64) int64 {
	if v, ok := a.named[name]; ok {
		return number(v)
	}
	return absent
}

func parseIDs(s string) []int32 {
	if s == "" || s == "-" {
		return nil
	}
	var out []int32
	for _, p := range strings.Split(s, ",") {
		out = append(out, int32(number(p)))
	}
	return out
}

func parseTP(s string) TopicPartition {
	i := strings.LastIndexByte(s, '-')
	return TopicPartition{s[:i], int32(number(s[i+1:]))}
}

func parseTPs(words []string) []TopicPartition {
	var out []TopicPartition
	for _, w := range words {
		out = append(out, parseTP(w))
	}
	return out
}

func parseLine(line string) (string, lineArgs) {
	words := strings.Fields(line)
	a := lineArgs{named: map[string]string{}}
	for _, w := range words[1:] {
		if k, v, ok := strings.Cut(w, "="); ok {
			a.named[k] = v
		} else {
			a.words = append(a.words, w)
		}
	}
	return words[0], a
}

func (c *conversation) line(line string) error {
	cmd, a := parseLine(line)
	switch cmd {
	case "world": // rules-off=... and settings: a new store, no controller
		return c.newWorld(a)
	case "broker": // registers: ID epoch= clean= run= rack=; before the first election its start counts as dealt with, unless handled=no
		id := a.id()
		epoch := a.number("epoch", 1)
		c.start(Broker{ID: id, Epoch: epoch, CleanEpoch: a.number("clean", -1), CleanRun: a.number("run", 0), Host: "h", Port: 9, Rack: a.named["rack"]})
		if a.named["handled"] != "no" && c.c == nil {
			c.handled = append(c.handled, BrokerEpoch{id, epoch})
		}
	case "kill": // the registration goes
		c.kill(a.id())
	case "topic": // replicas of each partition, separated by semicolons
		return c.topic(a)
	case "state": // a leader changed the state: leader= epoch= isr= elr=
		c.setState(parseTP(a.words[0]), a)
	case "log": // what broker ID says of its log of a partition: epoch= start= end=
		id, tp, epoch, start, end := a.id(), parseTP(a.words[1]), int32(a.number("epoch", -1)), a.number("start", 0), a.number("end", 0)
		before := c.logOf
		c.logOf = func(of int32, p TopicPartition) (int32, int64, int64) {
			if of == id && p == tp {
				return epoch, start, end
			}
			return before(of, p)
		}
	case "lose-state":
		tp := parseTP(a.words[0])
		delete(c.topics[tp.Topic].states, tp.Partition)
	case "elect":
		c.elect()
	case "brokers":
		c.step(BrokersRead{c.brokers()})
	case "topics":
		c.step(c.do(ReadTopics{a.words}))
	case "isr-changed":
		c.step(c.do(ReadStates{parseTPs(a.words)}))
	case "delete":
		c.marks = append(c.marks, a.words...)
		c.step(DeleteTopics{slices.Clone(c.marks)})
	case "shutdown":
		c.request++
		id := a.id()
		c.step(ControlledShutdown{c.request, id, a.number("epoch", c.registered[id].Epoch)})
	case "preferred", "unclean":
		c.request++
		c.step(ElectLeaders{c.request, cmd == "unclean", parseTPs(a.words)})
	case "reassign": // TOPIC-PARTITION REPLICAS ...
		c.request++
		in := Reassign{Request: c.request}
		for i := 0; i < len(a.words); i += 2 {
			in.Partitions = append(in.Partitions, Reassignment{parseTP(a.words[i]), parseIDs(a.words[i+1])})
		}
		c.step(in)
	case "disk-failed":
		c.step(LogDirFailed{a.id()})
	case "tick":
		d, err := time.ParseDuration(a.words[0])
		if err != nil {
			return err
		}
		c.now += d
		c.step(Tick{})
	case "hold": // writes, commands, all; outcomes: carried out, but not told; or nothing
		c.held = a.words[0]
	case "next-writes": // conflict, unknown, lost, fenced
		for _, w := range a.words {
			c.spoiled = append(c.spoiled, map[string]Outcome{"conflict": Conflict, "unknown": Unknown, "lost": lost, "fenced": Fenced, "ok": Accepted}[w])
		}
	case "commands": // ID ok, or timeout (obeyed, answer lost), unheard, code=N, error TOPIC-PARTITION=N
		c.fails[a.id()] = strings.Join(strings.Fields(line)[2:], " ")
	case "quiet": // commands are not printed from here
		c.quiet = true
	case "loud":
		c.quiet = false
	case "other-controller":
		c.epoch++
	case "show":
		c.show(a.words)
		return nil
	default:
		return fmt.Errorf("unknown command")
	}
	c.settle()
	return nil
}

func (c *conversation) newWorld(a lineArgs) error {
	cfg := Config{Rules: rules.All()}
	if off := a.named["rules-off"]; off != "" {
		r, err := rules.Parse(strings.Split(off, ","))
		if err != nil {
			return err
		}
		cfg.Rules = r
	}
	duration := func(name string) time.Duration {
		d, err := time.ParseDuration(a.named[name])
		if a.named[name] != "" && err != nil {
			panic(err)
		}
		return d
	}
	cfg.ReplaceAfter, cfg.PreferredCheck = duration("replace-after"), duration("preferred-check")
	cfg.ImbalancePercent = int(a.number("imbalance", 0))
	cfg.WritesInFlightMax = int(a.number("writes-max", 0))
	cfg.PartitionsPerCommandMax = int(a.number("command-max", 0))
	*c = conversation{world: newWorld(cfg), fails: map[int32]string{}}
	c.epoch = 6
	c.print = func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		if c.quiet && strings.HasPrefix(text, "send ") {
			return
		}
		c.out.WriteString(text + "\n")
	}
	c.writes = func() Outcome {
		if len(c.spoiled) == 0 {
			return Accepted
		}
		o := c.spoiled[0]
		c.spoiled = c.spoiled[1:]
		return o
	}
	return nil
}

func (c *conversation) topic(a lineArgs) error {
	name := a.words[0]
	t := c.topics[name]
	if t == nil {
		t = &storedTopic{Topic{Name: name, Version: -1}, map[int32]*storedState{}}
		copy(t.ID[:], name)
		c.topics[name] = t
	}
	t.Version++
	t.MinISR, t.Unclean = int(a.number("min", 2)), a.named["unclean"] == "yes"
	if a.named["replicas"] == "" {
		return nil
	}
	t.Partitions = nil
	for _, r := range strings.Split(a.named["replicas"], ";") {
		t.Partitions = append(t.Partitions, Assignment{Replicas: parseIDs(r), Adding: parseIDs(a.named["adding"]), Removing: parseIDs(a.named["removing"])})
	}
	return nil
}

func (c *conversation) setState(tp TopicPartition, a lineArgs) {
	t := c.topics[tp.Topic]
	s := t.states[tp.Partition]
	n := &storedState{State{LastLeader: NoLeader, ControllerEpoch: c.epoch}, 0}
	if s != nil {
		*n = *s
		n.version++
	}
	n.Leader = int32(a.number("leader", int64(n.Leader)))
	n.LeaderEpoch = int32(a.number("epoch", int64(n.LeaderEpoch)))
	n.LastLeader = int32(a.number("last", int64(n.LastLeader)))
	if v, ok := a.named["isr"]; ok {
		n.ISR = parseIDs(v)
	}
	if v, ok := a.named["elr"]; ok {
		n.ELR = parseIDs(v)
	}
	t.states[tp.Partition] = n
}

// settle carries out what is pending and not held, in order.
func (c *conversation) settle() {
	if c.held != "outcomes" {
		for _, in := range c.late {
			c.step(in)
		}
		c.late = nil
	}
	for i := 0; i < len(c.pending); {
		send, isSend := c.pending[i].(Send)
		if c.held == "all" || c.held == "commands" && isSend || c.held == "writes" && !isSend {
			i++
			continue
		}
		if how := c.fails[send.To.ID]; isSend && how != "" && how != "ok" {
			c.pending = slices.Delete(c.pending, i, i+1)
			c.step(c.spoil(send, how))
		} else if in := c.take(i); c.held == "outcomes" && !isSend {
			c.late = append(c.late, in)
		} else {
			c.step(in)
		}
		i = 0
	}
}

func (c *conversation) spoil(s Send, how string) Input {
	in := CommandDone{Broker: s.To.ID, Seq: s.Seq}
	word, rest, _ := strings.Cut(how, " ")
	switch {
	case word == "timeout":
		c.send(s)
		in.Failed = true
	case word == "unheard":
		in.Failed = true
	case strings.HasPrefix(word, "code="):
		in.Code = int16(number(word[5:]))
	case word == "error":
		c.send(s)
		for _, w := range strings.Fields(rest) {
			tp, code, _ := strings.Cut(w, "=")
			in.Errors = append(in.Errors, PartitionError{parseTP(tp), int16(number(code))})
		}
	}
	return in
}

// show prints the store, or what a broker holds.
func (c *conversation) show(words []string) {
	if len(words) > 0 {
		p := c.processes[int32(number(words[0]))]
		byName := func(a, b TopicPartition) int { return strings.Compare(a.String(), b.String()) }
		for _, tp := range slices.SortedFunc(maps.Keys(p.replicas), byName) {
			i := p.replicas[tp]
			fmt.Fprintf(&c.out, "%s v%d leader=%d epoch=%d isr=%s replicas=%s\n", tp, i.PartitionEpoch, i.Leader, i.LeaderEpoch, ids(i.ISR), ids(i.Replicas))
		}
		return
	}
	for _, name := range slices.Sorted(maps.Keys(c.topics)) {
		t := c.topics[name]
		for n, a := range t.Partitions {
			fmt.Fprintf(&c.out, "%s-%d %s", name, n, showAssignment(a.Replicas, a.Adding, a.Removing))
			if s := t.states[int32(n)]; s != nil {
				fmt.Fprintf(&c.out, " v%d %s", s.version, showState(s.State))
			}
			fmt.Fprintln(&c.out)
		}
	}
}
