package controller

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// world is a store, and brokers that obey, around a Controller: the driver and
// everything behind it, small enough to be checked.
type world struct {
	cfg        Config
	c          *Controller
	now        time.Duration
	epoch      int32 // newest controller epoch; the version of its node equals it
	topics     map[string]*storedTopic
	registered map[int32]Broker
	handled    []BrokerEpoch
	marks      []string // of topics to be deleted
	pending    []Effect // given out by the controller and not yet carried out
	print      func(format string, args ...any)
	resigned   string
	writes     func() Outcome // what the store does with the next write
	processes  map[int32]*process
	epochs     map[int32]int64                                // broker: version of its epoch node
	afterWrite func(tp TopicPartition, old, new *storedState) // a check
	answered   []Answer
	logOf      func(id int32, tp TopicPartition) (lastEpoch int32, start, end int64)
}

type storedTopic struct {
	Topic
	states map[int32]*storedState
}

type storedState struct {
	State
	version int32
}

// process is a running broker: what it was told.
type process struct {
	broker   Broker
	replicas map[TopicPartition]PartitionInfo
	metadata map[TopicPartition]PartitionInfo
	brokers  []int32
	log      func(TopicPartition) (lastEpoch int32, start, end int64)
}

func newWorld(cfg Config) *world {
	w := &world{
		cfg: cfg, topics: map[string]*storedTopic{}, registered: map[int32]Broker{}, processes: map[int32]*process{}, epochs: map[int32]int64{},
		logOf: func(int32, TopicPartition) (int32, int64, int64) { return -1, 0, 0 },
		print: func(string, ...any) {}, writes: func() Outcome { return Accepted },
	}
	return w
}

// elect makes a new controller and loads it.
func (w *world) elect() {
	w.epoch++
	w.c, w.pending, w.resigned = New(w.cfg), nil, ""
	l := Loaded{ControllerEpoch: w.epoch, EpochVersion: w.epoch, Brokers: w.brokers(), Handled: slices.Clone(w.handled), Delete: slices.Clone(w.marks)}
	for _, name := range slices.Sorted(maps.Keys(w.topics)) {
		t := w.topics[name]
		l.Topics = append(l.Topics, t.read())
		for n := range t.Partitions {
			l.States = append(l.States, w.readState(TopicPartition{name, int32(n)}))
		}
	}
	w.step(l)
}

func (t *storedTopic) read() Topic {
	c := t.Topic
	c.Partitions = slices.Clone(c.Partitions)
	return c
}

func (w *world) brokers() []Broker {
	var l []Broker
	for _, id := range slices.Sorted(maps.Keys(w.registered)) {
		l = append(l, w.registered[id])
	}
	return l
}

func (w *world) readState(tp TopicPartition) StateRead {
	r := StateRead{Partition: tp}
	if t := w.topics[tp.Topic]; t != nil {
		if s := t.states[tp.Partition]; s != nil {
			r.Found, r.State, r.Version = true, s.State, s.version
		}
	}
	return r
}

func (w *world) step(in Input) {
	for _, e := range w.c.Step(w.now, in) {
		w.print("%s", show(e))
		switch e := e.(type) {
		case Resign:
			w.resigned = e.Reason
		case Answer:
			w.answered = append(w.answered, e)
		case WriteStates: // they may end in any order
			for _, s := range e.Writes {
				w.pending = append(w.pending, WriteStates{e.EpochVersion, []StateWrite{s}})
			}
		default:
			w.pending = append(w.pending, e)
		}
	}
}

// carryOut does the pending effect i and tells the controller.
func (w *world) carryOut(i int) { w.step(w.take(i)) }

// take does it, and gives what is to be told.
func (w *world) take(i int) Input {
	e := w.pending[i]
	w.pending = slices.Delete(w.pending, i, i+1)
	return w.do(e)
}

func (w *world) do(e Effect) Input {
	switch e := e.(type) {
	case WriteStates:
		s := e.Writes[0]
		o := w.transact(e.EpochVersion, func() bool { return w.mayWrite(s) }, func() { w.write(s) })
		return StatesWritten{[]StateWritten{{s.Partition, o, s.Version + 1}}}
	case CreateStates:
		in := StatesCreated{Topic: e.Topic}
		for _, s := range e.Writes {
			in.Partitions = append(in.Partitions, s.Partition.Partition)
		}
		in.Outcome = w.transact(e.EpochVersion, func() bool {
			return w.topics[e.Topic] != nil && !slices.ContainsFunc(e.Writes, func(s StateWrite) bool { return w.readState(s.Partition).Found })
		}, func() {
			for _, s := range e.Writes {
				w.write(s)
			}
		})
		return in
	case WriteTopic:
		return w.writeTopic(e)
	case DeleteTopic:
		o := w.transact(e.EpochVersion, func() bool { return true }, func() {
			delete(w.topics, e.Topic)
			w.marks = slices.DeleteFunc(w.marks, func(m string) bool { return m == e.Topic })
		})
		return TopicDeleted{e.Topic, o}
	case WriteHandled:
		return HandledWritten{w.transact(e.EpochVersion, func() bool { return true }, func() { w.handled = e.Handled })}
	case ReadBrokers:
		return BrokersRead{w.brokers()}
	case ReadTopics:
		var in TopicsRead
		for _, name := range e.Topics {
			if t := w.topics[name]; t != nil {
				in.Topics = append(in.Topics, t.read())
			} else {
				in.Missing = append(in.Missing, name)
			}
		}
		return in
	case ReadStates:
		var in StatesRead
		for _, tp := range e.Partitions {
			in.States = append(in.States, w.readState(tp))
		}
		return in
	case Send:
		return w.send(e)
	}
	panic(fmt.Sprintf("unknown effect %T", e))
}

// transact is one multi with the check of the controller epoch.
func (w *world) transact(epochVersion int32, may func() bool, apply func()) Outcome {
	o := w.writes()
	if o == lost {
		return Unknown
	}
	if epochVersion != -1 && epochVersion != w.epoch {
		return Fenced
	}
	if o == Conflict || o == Fenced {
		return o
	}
	if !may() {
		if o == Unknown {
			return Unknown
		}
		return Conflict
	}
	apply()
	return o
}

// lost is Unknown, and nothing was written.
const lost Outcome = 100

func (w *world) mayWrite(s StateWrite) bool {
	for _, j := range s.Join {
		if w.epochs[j.Broker] != j.Epoch {
			return false
		}
	}
	r := w.readState(s.Partition)
	return r.Found && r.Version == s.Version
}

func (w *world) write(s StateWrite) {
	t := w.topics[s.Partition.Topic]
	old := t.states[s.Partition.Partition]
	n := &storedState{s.State, s.Version + 1}
	t.states[s.Partition.Partition] = n
	if w.afterWrite != nil {
		w.afterWrite(s.Partition, old, n)
	}
}

func (w *world) writeTopic(e WriteTopic) Input {
	in := TopicWritten{Topic: e.Topic, Version: e.Version + 1}
	in.Outcome = w.transact(e.EpochVersion, func() bool {
		t := w.topics[e.Topic]
		return t != nil && t.Version == e.Version && !slices.ContainsFunc(e.States, func(s StateWrite) bool { return !w.mayWrite(s) })
	}, func() {
		t := w.topics[e.Topic]
		t.Version++
		t.Partitions = slices.Clone(e.Partitions)
		for _, s := range e.States {
			w.write(s)
		}
	})
	for _, s := range e.States {
		in.States = append(in.States, s.Version+1)
	}
	return in
}

func (w *world) send(e Send) Input {
	in := CommandDone{Broker: e.To.ID, Seq: e.Seq}
	p := w.processes[e.To.ID]
	switch {
	case p == nil:
		in.Failed = true
		return in
	case e.BrokerEpoch != -1 && e.BrokerEpoch != p.broker.Epoch:
		in.Code = codeStaleBrokerEpoch
		return in
	case e.ControllerEpoch < w.epoch && w.cfg.Rules.ControllerEpochCheck:
		in.Code = codeStaleControllerEpoch
		return in
	}
	p.obey(e.Command)
	in.Logs = p.logs(e.Command)
	return in
}

func (p *process) obey(command Command) {
	switch command := command.(type) {
	case *LeaderAndISR:
		if command.Full {
			named := map[TopicPartition]bool{}
			for _, i := range command.Partitions {
				named[i.Partition] = true
			}
			maps.DeleteFunc(p.replicas, func(tp TopicPartition, _ PartitionInfo) bool { return !named[tp] })
		}
		for _, i := range command.Partitions {
			if old, ok := p.replicas[i.Partition]; !ok || old.LeaderEpoch < i.LeaderEpoch || old.LeaderEpoch == i.LeaderEpoch && old.PartitionEpoch <= i.PartitionEpoch {
				p.replicas[i.Partition] = i
			}
		}
	case *UpdateMetadata:
		p.brokers = nil
		for _, b := range command.Brokers {
			p.brokers = append(p.brokers, b.ID)
		}
		for _, i := range command.Partitions {
			if i.Leader == LeaderDuringDelete {
				delete(p.metadata, i.Partition)
			} else {
				p.metadata[i.Partition] = i
			}
		}
	case *StopReplica:
		for _, s := range command.Partitions {
			if old, ok := p.replicas[s.Partition]; ok && old.LeaderEpoch <= s.LeaderEpoch {
				delete(p.replicas, s.Partition)
			}
		}
	}
}

// logs is what the process says of its logs where there is no leader.
func (p *process) logs(command Command) (logs []ReplicaLog) {
	l, ok := command.(*LeaderAndISR)
	if !ok {
		return nil
	}
	for _, i := range l.Partitions {
		if i.Leader == NoLeader && p.replicas[i.Partition].LeaderEpoch == i.LeaderEpoch {
			log := ReplicaLog{Partition: i.Partition, LeaderEpoch: i.LeaderEpoch, LastEpoch: -1}
			if p.log != nil {
				log.LastEpoch, log.Start, log.End = p.log(i.Partition)
			}
			logs = append(logs, log)
		}
	}
	return logs
}

func (w *world) start(b Broker) {
	w.registered[b.ID], w.epochs[b.ID] = b, b.Epoch
	w.processes[b.ID] = &process{
		broker: b, replicas: map[TopicPartition]PartitionInfo{}, metadata: map[TopicPartition]PartitionInfo{},
		log: func(tp TopicPartition) (int32, int64, int64) { return w.logOf(b.ID, tp) },
	}
}

func (w *world) kill(id int32) {
	delete(w.registered, id)
	delete(w.processes, id)
}

func show(e Effect) string {
	var b strings.Builder
	unchecked := func(v int32) string {
		if v == -1 {
			return " unchecked"
		}
		return ""
	}
	switch e := e.(type) {
	case WriteStates:
		for i, s := range e.Writes {
			if i > 0 {
				b.WriteByte('\n')
			}
			fmt.Fprintf(&b, "write %s v%d %s%s", s.Partition, s.Version, showState(s.State), unchecked(e.EpochVersion))
			for _, j := range s.Join {
				fmt.Fprintf(&b, " if %d@%d", j.Broker, j.Epoch)
			}
		}
	case CreateStates:
		for i, s := range e.Writes {
			if i > 0 {
				b.WriteByte('\n')
			}
			fmt.Fprintf(&b, "create %s %s%s", s.Partition, showState(s.State), unchecked(e.EpochVersion))
		}
	case WriteTopic:
		fmt.Fprintf(&b, "write-topic %s v%d%s", e.Topic, e.Version, unchecked(e.EpochVersion))
		for i, a := range e.Partitions {
			fmt.Fprintf(&b, "\n  %d %s", i, showAssignment(a.Replicas, a.Adding, a.Removing))
		}
		for _, s := range e.States {
			fmt.Fprintf(&b, "\n  %s v%d %s", s.Partition, s.Version, showState(s.State))
		}
	case DeleteTopic:
		fmt.Fprintf(&b, "delete-topic %s", e.Topic)
	case WriteHandled:
		b.WriteString("handled")
		for _, h := range e.Handled {
			fmt.Fprintf(&b, " %d@%d", h.Broker, h.Epoch)
		}
	case ReadBrokers:
		b.WriteString("read-brokers")
	case ReadTopics:
		fmt.Fprintf(&b, "read-topics %s", strings.Join(e.Topics, " "))
	case ReadStates:
		b.WriteString("read")
		for _, tp := range e.Partitions {
			fmt.Fprintf(&b, " %s", tp)
		}
	case Answer:
		fmt.Fprintf(&b, "answer %d code=%d", e.Request, e.Code)
		for _, p := range e.Partitions {
			fmt.Fprintf(&b, " %s=%d", p.Partition, p.Code)
		}
	case Resign:
		fmt.Fprintf(&b, "resign: %s", e.Reason)
	case Send:
		fmt.Fprintf(&b, "send %d@%d ", e.To.ID, e.BrokerEpoch)
		showCommand(&b, e.Command)
	}
	return b.String()
}

func showCommand(b *strings.Builder, command Command) {
	switch command := command.(type) {
	case *LeaderAndISR:
		b.WriteString("leader-and-isr")
		if command.Full {
			b.WriteString(" full")
		}
		for _, i := range command.Partitions {
			fmt.Fprintf(b, "\n  %s v%d leader=%d epoch=%d %s %s", i.Partition, i.PartitionEpoch, i.Leader, i.LeaderEpoch, showSets(i), showAssignment(i.Replicas, i.Adding, i.Removing))
		}
	case *UpdateMetadata:
		b.WriteString("update-metadata brokers=")
		for n, l := range command.Brokers {
			if n > 0 {
				b.WriteByte(',')
			}
			fmt.Fprint(b, l.ID)
		}
		for _, i := range command.Partitions {
			fmt.Fprintf(b, "\n  %s v%d leader=%d epoch=%d isr=%s replicas=%s", i.Partition, i.PartitionEpoch, i.Leader, i.LeaderEpoch, ids(i.ISR), ids(i.Replicas))
			if len(i.Offline) > 0 {
				fmt.Fprintf(b, " offline=%s", ids(i.Offline))
			}
		}
	case *StopReplica:
		b.WriteString("stop-replica")
		for _, s := range command.Partitions {
			fmt.Fprintf(b, " %s@%d", s.Partition, s.LeaderEpoch)
			if s.Delete {
				b.WriteString("(delete)")
			}
		}
	}
}

func (tp TopicPartition) String() string { return fmt.Sprintf("%s-%d", tp.Topic, tp.Partition) }

func showState(s State) string {
	out := fmt.Sprintf("leader=%d epoch=%d isr=%s", s.Leader, s.LeaderEpoch, ids(s.ISR))
	if len(s.ELR) > 0 {
		out += " elr=" + ids(s.ELR)
	}
	if len(s.LastKnownELR) > 0 {
		out += " known=" + ids(s.LastKnownELR)
	}
	if s.LastLeader != NoLeader {
		out += fmt.Sprintf(" last=%d", s.LastLeader)
	}
	return out
}

func showSets(i PartitionInfo) string {
	if len(i.ELR) == 0 {
		return "isr=" + ids(i.ISR)
	}
	return "isr=" + ids(i.ISR) + " elr=" + ids(i.ELR)
}

func showAssignment(replicas, adding, removing []int32) string {
	out := "replicas=" + ids(replicas)
	if len(adding) > 0 {
		out += " adding=" + ids(adding)
	}
	if len(removing) > 0 {
		out += " removing=" + ids(removing)
	}
	return out
}

func ids(list []int32) string {
	if len(list) == 0 {
		return "-"
	}
	var parts []string
	for _, id := range list {
		parts = append(parts, fmt.Sprint(id))
	}
	return strings.Join(parts, ",")
}
