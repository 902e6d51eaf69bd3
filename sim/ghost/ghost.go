// Package ghost knows of a simulated cluster what no broker in it may know: what
// every replica holds, on disk or in memory, what was ever committed, what was
// acknowledged, what the coordination service holds.
//
// It is told of every change and checks the safety invariants of the failure
// catalogue as far as the change can touch them, so the cost of a step does not grow
// with the length of a run. After the heal it says which of the liveness
// invariants are not yet kept. It draws nothing and never acts.
//
// Each invariant is a function that bears its catalogue name: s4LeaderCompleteness
// and so on in the files safety_….go, l2PartitionsLed and so on in liveness.go.
package ghost

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tidemark-log/tidemark/internal/crc32c"
	"github.com/tidemark-log/tidemark/storage/record"
)

// TP names a partition.
type TP struct {
	Topic     string
	Partition int32
}

func (t TP) String() string { return fmt.Sprintf("%s-%d", t.Topic, t.Partition) }

// BatchID tells batches apart: CRCs that cover unique values, and what goes with them.
type BatchID struct {
	CRC           uint32 // of the batch: a leader that sets timestamps gives it another
	Content       uint32 // of the records alone
	Bytes         int32
	Records       int32
	Sequence      int32
	Producer      int64
	Timestamp     int64 // largest, ms
	ProducerEpoch int16
}

// IDOf is the identity of a batch, whose header is h.
func IDOf(h record.Header, batch []byte) BatchID {
	return BatchID{CRC: h.CRC, Content: crc32c.Checksum(batch[record.HeaderSize:]), Bytes: int32(h.Size()), Records: h.RecordCount, Sequence: h.BaseSequence, Producer: h.ProducerID, Timestamp: h.MaxTimestamp, ProducerEpoch: h.ProducerEpoch}
}

// sentAs is true if the batch in a log is what a producer sent. LogAppendTime changes its header, and so its CRC.
func (b BatchID) sentAs(sent BatchID) bool {
	sent.CRC, sent.Timestamp = b.CRC, b.Timestamp
	return b == sent
}

// Entry is a batch in a log.
type Entry struct {
	Base, Next int64 // [Base, Next)
	Epoch      int32 // leader epoch
	ID         BatchID

	// chain stands for this entry and everything before it; 0: what was before is not known.
	chain uint64
}

func (e Entry) String() string {
	return fmt.Sprintf("[%d, %d) epoch %d crc %08x (producer %d, sequence %d)", e.Base, e.Next, e.Epoch, e.ID.CRC, e.ID.Producer, e.ID.Sequence)
}

// Entries reads whole batches that stand back to back.
func Entries(batches []byte) []Entry {
	var all []Entry
	for h, batch := range record.Batches(batches) {
		all = append(all, Entry{Base: h.BaseOffset, Next: h.NextOffset(), Epoch: h.PartitionLeaderEpoch, ID: IDOf(h, batch)})
	}
	return all
}

// Rules are what the cluster under test promises.
type Rules struct {
	MinISR int
	// FlushBeforeAck: what acks=all acknowledges lies flushed on MinISR replicas.
	FlushBeforeAck bool
	// RetentionMs and RetentionBytes say what may be deleted; negative: nothing by that rule.
	RetentionMs, RetentionBytes int64
	// Unclean: a replica outside ISR and ELR may be elected, and takes what it lacks with it.
	Unclean bool
	// WeakCounts: acks=1 is held to be a promise, as who uses it may think (A1).
	WeakCounts bool
	// Balanced: preferred leaders are brought back by themselves.
	Balanced bool
}

// State is the ghost state of one cluster.
type State struct {
	rules    Rules
	violated func(text string) // hears of each violation

	brokers     []*broker                // ascending by id
	partitions  map[TP]*partition        // for look-ups
	sorted      []*partition             // by topic and number
	controllers map[int32]int32          // controller epoch to who acted in it
	epoch       int32                    // of the controller, in the coordination service
	probe       func(name string, n int) // counts rare paths

	// Counters, for reports.
	Acked         int64 // records acknowledged under acks=all
	AckedWeak     int64 // under acks=1
	Elections     int64 // changes of a partition's leader epoch
	ISRChanges    int64
	Unclean       int64 // elections from outside ISR and ELR
	AckedWeakLost int64
}

// broker is what is known of one of them.
type broker struct {
	id         int32
	running    bool  // its process lives
	registered bool  // the coordination service knows this very incarnation
	controller int32 // largest controller epoch that this incarnation obeyed
	lossy      bool  // since its last start it may lack what it had: no clean end, power cut or another disk
	lost       bool  // the life that ended last took data with it
}

// New makes the ghost of a cluster of so many brokers, ids from 1. probe may be nil.
func New(brokers int, rules Rules, violated func(text string), probe func(name string, n int)) *State {
	if probe == nil {
		probe = func(string, int) {}
	}
	s := &State{rules: rules, violated: violated, probe: probe, partitions: map[TP]*partition{}, controllers: map[int32]int32{}}
	for id := range brokers {
		s.brokers = append(s.brokers, &broker{id: int32(id) + 1})
	}
	return s
}

func (s *State) broker(id int32) *broker {
	if id < 1 || int(id) > len(s.brokers) {
		return nil
	}
	return s.brokers[id-1]
}

// fail tells of a broken invariant by its catalogue name.
func (s *State) fail(invariant, format string, args ...any) {
	s.violated(invariant + ": " + fmt.Sprintf(format, args...))
}

// partition is what is known of one, over all its replicas.
type partition struct {
	tp TP
	s  *State

	// truth is what was ever committed, in order: everything below the highest
	// high watermark that any leader reached (TRUEHW). It only grows, but for a deliberate
	// unclean election. Nothing is taken off its front: what retention deleted is still known.
	truth []Entry

	replicas []*replica      // ascending by broker
	leaders  map[int32]int32 // leader epoch to who led in it
	places   map[place]uint64

	sessions map[session]progress // of idempotent producers, in truth

	state     StateNode
	stateSeen bool

	acked    []Entry // acknowledged under acks=all and not below TRUEHW: there should be none
	ackedEnd int64   // everything acknowledged under acks=all lies below
	start    int64   // largest log start offset of any replica: what may be gone
	deleted  int64   // largest offset that a DeleteRecords named
	resets   int     // unclean elections that took something from truth
	// unclean is the leader epoch of the last allowed unclean election; 0: none was. Who
	// still acts in an earlier one may go on for a while, and all of it is lost.
	unclean int32
}

// place is where a batch lies, by whom it was put there.
type place struct {
	base  int64
	epoch int32
}

// StateNode is a partition's state in the coordination service.
type StateNode struct {
	Leader          int32 // -1: none
	LeaderEpoch     int32
	ControllerEpoch int32
	ISR, ELR        []int32
	Replicas        []int32 // assigned
}

// replica is one broker's copy of a partition.
type replica struct {
	b    *broker
	here bool // there is a log
	open bool // its broker has opened it in this life

	log     []Entry
	start   int64
	end     int64
	flushed int64
	// agrees: below this offset everything that the log holds is as in truth, and
	// what is missing lies before its first entry.
	agrees int64
	hw     int64
	// truncates: a truncation to here has begun and not ended, so a death may leave less than end; -1: none.
	truncates int64
	removes   bool // a deletion has begun and not ended, so after a death there may be no log

	leads   bool
	epoch   int32 // leader epoch that it acts in; -1: none
	epochHW int64 // as leader in this epoch
	// reconciled is the last allowed unclean election that it leads after, or has taken batches of a leader after.
	reconciled int32
	unsure     bool // a power cut has come since the log was opened last
	// lossy: a lossy restart took something that it had, committed by then or not (its leader may
	// have counted it and commit it later), and it has not reached TRUEHW again under a leader.
	lossy bool
	// unmended: since a lossy restart it has not been in the ISR as a registered broker, in however many lives.
	unmended bool
	// had: a lossy fault may have taken what lay below, and the leader counted it; 0 once it has fetched again.
	had int64
	// told is how far of that was committed when it fetched again: whoever asks for an acknowledgement of it after
	// that, as a producer that tries again, gets one, though the copy is not there yet.
	told int64
}

// loses notes a lossy fault: what a leader may have counted here may be gone.
func (r *replica) loses(flushBeforeAck bool) {
	if flushBeforeAck {
		r.had = max(r.had, r.flushed)
	} else {
		r.had = max(r.had, r.end)
	}
}

func (p *partition) end() int64 {
	if n := len(p.truth); n > 0 {
		return p.truth[n-1].Next
	}
	return 0
}

func (s *State) partition(tp TP) *partition {
	p := s.partitions[tp]
	if p == nil {
		p = &partition{tp: tp, s: s, leaders: map[int32]int32{}, places: map[place]uint64{}, sessions: map[session]progress{}}
		p.state.Leader = -1
		s.partitions[tp] = p
		s.sorted = append(s.sorted, p)
		slices.SortFunc(s.sorted, func(a, b *partition) int {
			return cmp.Or(cmp.Compare(a.tp.Topic, b.tp.Topic), cmp.Compare(a.tp.Partition, b.tp.Partition))
		})
	}
	return p
}

// replica gives broker id's copy, which may hold nothing yet.
func (p *partition) replica(id int32) *replica {
	i, found := slices.BinarySearchFunc(p.replicas, id, func(r *replica, id int32) int { return cmp.Compare(r.b.id, id) })
	if !found {
		p.replicas = slices.Insert(p.replicas, i, &replica{b: p.s.broker(id), epoch: -1, truncates: -1})
	}
	return p.replicas[i]
}

// fit says whether a broker's replica counts as that of a running, known broker: only then
// does the state in the coordination service speak of this very copy.
func (r *replica) fit() bool { return r.here && r.b.running && r.b.registered }

// TrueHighWatermark is the highest that any leader of tp reached.
func (s *State) TrueHighWatermark(tp TP) int64 { return s.partition(tp).end() }

// Resets counts the unclean elections that took committed records.
func (s *State) Resets(tp TP) int { return s.partition(tp).resets }
