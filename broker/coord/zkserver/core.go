package zkserver

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/tidemark-log/tidemark/broker/coord"
)

// core owns the tree: one goroutine runs it, so everything has one order, and
// nothing here needs a lock. It takes what has arrived as one batch, applies it, makes the changes
// durable with one sync, and only then lets answers and events go: nobody sees what
// a power cut can take back. Requests of one connection are answered in their order, and an event
// stands before every answer that already shows the change.
type core struct {
	tree     *coord.Tree
	store    *coord.Store // nil: in memory only
	secret   []byte
	log      *slog.Logger
	now      func() time.Duration // since start
	wall     func() time.Time
	arrived  chan item
	sessions map[coord.SessionID]*conn // who holds a session now
	touched  []*conn                   // have output from this batch
	held     int                       // bytes of it
	scratch  []byte                    // a reply's body
	lastID   coord.SessionID
	quit     bool
	ticks    int64
	tickedAt time.Duration
	latency  latency
	stats    *stats
}

// item is one thing to do in order: a request of a connection, or a function.
type item struct {
	conn *conn
	req  request
	call func()
}

const (
	// arrivedMax items wait for the core; who brings more waits.
	arrivedMax = 1024
	// batchMax items share a sync.
	batchMax = 1024
	// batchJournalMax bytes of changes end a batch, too.
	batchJournalMax = 16 << 20
	// treeBytesMax of nodes are kept. It is a quarter of what a journal may be, which has to hold a snapshot, changes
	// of as many bytes, and a batch: nothing may be acknowledged that a restart would not read.
	treeBytesMax = 512 << 20
)

// run works until it is told to quit, or writing to the disk fails.
func (c *core) run() error {
	for !c.quit {
		c.do(<-c.arrived)
		for n := 1; n < batchMax && c.held < batchOutputMax && c.unsynced() < batchJournalMax && c.more(); n++ {
		}
		if c.store != nil {
			if err := c.store.Commit(c.tree); err != nil {
				return fmt.Errorf("zkserver: %w", err)
			}
		}
		for i, conn := range c.touched {
			conn.release()
			c.touched[i] = nil
		}
		c.touched, c.held = c.touched[:0], 0
	}
	return nil
}

// unsynced is how many bytes of changes this batch has.
func (c *core) unsynced() int {
	if c.store == nil {
		return 0
	}
	return c.store.Pending()
}

// more does the next item if there is one already.
func (c *core) more() bool {
	select {
	case it := <-c.arrived:
		c.do(it)
		return true
	default:
		return false
	}
}

func (c *core) do(it item) {
	if it.call != nil {
		it.call()
		return
	}
	if it.conn.finished || it.conn.session == 0 || c.sessions[it.conn.session] != it.conn {
		return // its session ended, or moved to another connection: this one is being closed
	}
	c.touch(it.conn)
	c.answer(it.conn, &it.req)
}

// apply runs a transaction and sends the events that it fires. A change is in the store's batch afterwards.
func (c *core) apply(txn coord.Txn) ([]coord.Result, error) {
	txn.Time = c.wall().UnixMilli()
	results, fired, err := c.tree.Apply(txn)
	if err != nil {
		return results, err
	}
	if c.store != nil {
		c.store.Add(txn, c.tree)
	}
	for _, f := range fired {
		if conn := c.sessions[f.Session]; conn != nil {
			c.event(conn, f.Event)
		}
	}
	return results, nil
}

// event queues a notification of a watch.
func (c *core) event(conn *conn, e coord.Event) {
	body := appendInt32(make([]byte, 0, 12+len(e.Path)), int32(e.Type))
	body = appendInt32(body, 3) // SyncConnected
	c.output(conn, xidEvent, -1, codeOK, appendString(body, e.Path))
}

// output queues a reply or an event for a connection.
func (c *core) output(conn *conn, xid int32, zxid int64, code int32, body []byte) {
	at := len(conn.held)
	b := appendInt32(appendInt64(appendInt32(beginFrame(conn.held), xid), zxid), code)
	conn.held = endFrame(append(b, body...), at)
	c.held += len(conn.held) - at
	c.stats.sent.Add(1)
	c.dirty(conn)
}

// raw queues bytes that are a frame already.
func (c *core) raw(conn *conn, frame []byte) {
	conn.held = append(conn.held, frame...)
	c.dirty(conn)
}

// dirty notes that a connection has something to release at the end of the batch.
func (c *core) dirty(conn *conn) {
	if !conn.dirty {
		conn.dirty = true
		c.touched = append(c.touched, conn)
	}
}
