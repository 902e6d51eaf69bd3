package experiments

// Claim is one sentence of the texts that the project tests. The ids are used
// by experiments, reports and PAPER.md.
type Claim struct {
	ID   string
	Says string
}

// Claims lists all claims, in order. Their sources are the paper "Kafka: a
// Distributed Messaging System for Log Processing" (2011) and two later write-ups.
func Claims() []Claim { return claims }

// ClaimByID finds a claim.
func ClaimByID(id string) (Claim, bool) {
	for _, c := range claims {
		if c.ID == id {
			return c, true
		}
	}
	return Claim{}, false
}

var claims = []Claim{
	{"C1", "Sequential disk I/O beats random I/O by orders of magnitude; the disk need not be the bottleneck."},
	{"C2", "A log only appends and reads forward, so its cost stays flat as data grows; a B-tree's cost grows."},
	{"C3", "Keep messages in the page cache, not in the process: no double caching, twice the room, and the cache outlives a process restart."},
	{"C4", "Message sets turn many small I/Os into few large ones on the network, on disk and in memory."},
	{"C5", "sendfile moves pages from the page cache to the socket: four copies and two system calls shrink to one copy."},
	{"C6", "Compress a whole batch, store it compressed, decompress only in the consumer: CPU is traded for network."},
	{"C7", "A producer chooses: wait until the message is committed, or do not wait."},
	{"C8", "The broker flushes after a number of messages or an interval, and only flushed messages are visible."},
	{"C9", "A backlog of unconsumed messages does not slow the broker; traditional brokers degrade sharply."},
	{"C10", "Pull suits better than push: a consumer never gets more than it can handle."},
	{"C11", "The broker keeps no per-message delivery state; it deletes by age or size; consumers may rewind."},
	{"C12", "A message has no id but its offset, found through a sorted list of segment base offsets; there is no id index to maintain."},
	{"C13", "A partition is the smallest unit of parallelism; balance needs many more partitions than consumers."},
	{"C14", "Consumers coordinate themselves through ZooKeeper without a master, and rebalances are rare."},
	{"C15", "A message is committed when every in-sync replica has it and only then visible; a leader's death loses nothing committed."},
	{"C16", "Reads are served by the leader only, or by followers too."},
	{"C17", "Marking a message consumed before processing loses it on a crash; after processing duplicates it."},
	{"C18", "A producer sends to a random partition or to one chosen by key and partition function."},
	{"C19", "Small per-message overhead: 9 bytes against 144 in JMS."},
	{"C20", "Producer: batch 50 is 8× batch 1, at least 2× RabbitMQ, and orders of magnitude over ActiveMQ."},
	{"C21", "Consumer: more than 4× ActiveMQ and RabbitMQ."},
	{"C22", "Four APIs: Producer, Consumer, Streams (topics in, topics out), Connector."},
}
