package experiments

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Entry is one history of the failure catalogue, as this project covers it: by a
// scenario, or with the reason why it cannot arise here.
type Entry struct {
	ID       string
	Title    string
	Scenario *Scenario // nil: it cannot arise
	Absent   string    // why
}

// absent are the entries that cannot arise in this design.
var absent = []Entry{
	{ID: "A4", Title: "Majority acknowledgement without fsync", Absent: "no majority acknowledges anything here: acks=all waits for every replica that may be elected"},
	{ID: "C8", Title: "Zombie controller answers an ISR request", Absent: "leaders ask no controller: they write the ISR themselves, on the condition of the version they know"},
	{ID: "C9", Title: "Isolated quorum leader never resigns", Absent: "there is no quorum of controllers: metadata is in ZooKeeper, and a controller whose session has ended can write nothing"},
	{ID: "C10", Title: "Commit index exposed one record early", Absent: "there is no quorum of controllers, and so no metadata log with a commit index"},
	{ID: "C11", Title: "Voter returns with an empty disk", Absent: "there is no quorum of controllers, and so no voter"},
	{ID: "C14", Title: "Foreign id in the ISR", Absent: "a reassignment writes replicas, leader and ISR in one transaction with a new leader epoch, and a leader writes its ISR on the condition of the version it knows: no write of before can put the id back"},
}

// Catalogue lists the entries that this project covers, in the catalogue's order.
func Catalogue() ([]Entry, error) {
	all := slices.Clone(absent)
	for _, name := range ScenarioNames() {
		s, err := LoadScenario(name)
		if err != nil {
			return nil, err
		}
		all = append(all, Entry{ID: s.Entry, Title: s.Title, Scenario: s})
	}
	slices.SortStableFunc(all, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.ID[:1], b.ID[:1]), cmp.Compare(entryNumber(a.ID), entryNumber(b.ID)))
	})
	return all, nil
}

func entryNumber(id string) int {
	n, _ := strconv.Atoi(id[1:])
	return n
}

// FindEntry finds an entry by its id, as B1, or by the name of its scenario. An entry that is
// played in more than one way gives all of them.
func FindEntry(id string) ([]Entry, error) {
	all, err := Catalogue()
	if err != nil {
		return nil, err
	}
	found := slices.DeleteFunc(slices.Clone(all), func(e Entry) bool {
		return !strings.EqualFold(e.ID, id) && (e.Scenario == nil || !strings.EqualFold(e.Scenario.Name, id))
	})
	if len(found) == 0 {
		return nil, fmt.Errorf("no entry %q: there are %s", id, entryIDs(all))
	}
	return found, nil
}

func entryIDs(all []Entry) string {
	var ids []string
	for _, e := range all {
		ids = append(ids, e.ID)
	}
	return strings.Join(slices.Compact(ids), ", ")
}

// Invariant names an invariant of the failure catalogue and says what it demands; "" for one that is not known.
func Invariant(id string) (name, demands string) {
	i := slices.IndexFunc(invariants, func(x [3]string) bool { return x[0] == id })
	if i < 0 {
		return "", ""
	}
	return invariants[i][1], invariants[i][2]
}

// invariants are those that a scenario or a run may break.
var invariants = [][3]string{
	{"S1", "OneLeaderPerEpoch", "at most one broker appends, acknowledges or moves the high watermark of a partition in a leader epoch"},
	{"S2", "EpochAndOffsetOrder", "in a log offsets rise and epochs never fall"},
	{"S3", "LogMatching", "below both high watermarks two replicas hold the same"},
	{"S4", "LeaderCompleteness", "whoever leads holds everything that was acknowledged"},
	{"S5", "CandidateCompleteness", "whoever may be elected holds everything that was acknowledged"},
	{"S6", "QuorumSuperset", "a leader waits for everybody who may be elected"},
	{"S7", "NoGlobalLoss", "what was acknowledged is on some replica"},
	{"S8", "AckMeansCopies", "when acks=all is answered, min.insync.replicas replicas hold the record"},
	{"S9", "HW", "high watermarks, and end offsets told to clients, never go back"},
	{"S10", "CommittedReadsOnly", "nobody reads what is not committed"},
	{"S11", "RepeatableRead", "what was read at an offset is read there again"},
	{"S12", "OffsetUnique", "an offset has one value"},
	{"S14", "ProducerOrder", "what a producer sent first stands first"},
	{"S15", "NoDuplicate", "with idempotence a record is there once"},
	{"S16", "NoSessionGap", "with idempotence nothing is missing before what was acknowledged"},
	{"S20", "AtLeastOnce", "nothing is passed over unread"},
	{"S22", "PollContiguity", "a consumer neither skips nor goes back"},
	{"S23", "RetentionSafe", "only what retention allows is deleted"},
	{"S25", "IndexFaithful", "an index leads to the offset asked for"},
	{"S26", "RecoveryFaithful", "a restart finds what was there"},
	{"S27", "ControllerFence", "only the newest controller is obeyed"},
	{"S28", "UncleanExclusion", "a replica that lost records neither leads nor is in the ISR before it has them again"},
	{"L1", "OneController", "there is a controller again"},
	{"L2", "Leaders", "every partition has a leader again"},
	{"L3", "Unfenced", "every broker serves again"},
	{"L4", "FullISR", "every replica is in sync again"},
	{"L5", "Replicated", "what was acknowledged is on every replica"},
	{"L6", "NoPendingProduce", "every produce is answered"},
	{"L7", "Readable", "what was acknowledged can be read"},
	{"L9", "NoLag", "consumers reach the end"},
	{"L10", "NoPendingISRChange", "no ISR change waits for ever"},
	{"L11", "SameMetadata", "every broker knows what the controller knows"},
	{"L12", "PreferredLeaders", "preferred leaders lead again"},
}
